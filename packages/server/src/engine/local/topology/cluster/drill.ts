/** Rehearses a failover or a switchover of a cluster that is in use. */
import { setTimeout as sleep } from 'node:timers/promises';
import { signal } from '../../../../lib/processes.ts';
import type { DaemonPaths } from '../../host/layout.ts';
import { NotYet } from '../../host/not-yet.ts';
import type { Listener } from '../../network/listener.ts';
import { findServer } from '../../postgres/server.ts';
import { listenerFor } from '../context.ts';
import { rehearse } from '../drill.ts';
import { choosePlanned } from '../failover.ts';
import { gatewayPaths } from '../gateways.ts';
import { failOver, isDead } from './failover.ts';
import { toPrimary } from './primary.ts';
import { pathsOf, portOf, type ClusterRound } from './round.ts';
import { findSuccessor } from './successor.ts';
import { switchOver } from './switchover.ts';

/** A process ends at once after SIGKILL, unless it waits for a disk. */
const DIES_WITHIN_MS = 60_000;

/** Performs a requested drill. @returns what became of the writes */
export async function runDrill(round: ClusterRound): Promise<string> {
  const { topology, spec, ha } = round;
  const { id } = spec;
  const { layout } = topology.machine;
  // Taken up before it begins: one that is interrupted does not kill another primary.
  if (!(await topology.records.takeDrill(id))) throw new Error('drill interrupted; run it again');
  return rehearse({
    primary: () => {
      const primary = layout.primaryOf(id);
      return { paths: layout.member(id, primary), port: portOf(ha, primary) };
    },
    endpoint: {
      host: hostThrough(listenerFor(topology, spec), gatewayPaths(topology, id)),
      port: spec.endpoint.port,
    },
    injectFault: () => (ha.drill === 'switchover' ? rehearseSwitchover(round) : killPrimary(round)),
  });
}

async function rehearseSwitchover(round: ClusterRound): Promise<void> {
  const { ha } = round;
  const successor = choosePlanned(ha.servers.filter(({ n }) => n !== ha.primary));
  if (successor !== undefined)
    await toPrimary(round, () => switchOver(round, successor.n, 'drill')).catch(forGood);
}

async function killPrimary(round: ClusterRound): Promise<void> {
  const { topology, cluster, ha } = round;
  const { id } = cluster;
  cluster.lastFailoverMs = null;
  const successor = await findSuccessor(round);
  if ('why' in successor)
    throw new Error(`nothing was killed, since no standby can take over: ${successor.why}`);
  const server = await findServer(pathsOf(round, ha.primary));
  if (server !== null) signal(server.postmaster.pid, 'SIGKILL');
  for (
    const end = Date.now() + DIES_WITHIN_MS;
    !(await isDead(topology, id, ha.primary)) && Date.now() < end;
  )
    await sleep(2);
  const choice = await failOver(round);
  if ('why' in choice && topology.machine.layout.primaryOf(id) === ha.primary)
    throw new Error(`no standby took over: ${choice.why}`);
}

/** Where the control plane itself gets through a gateway: in a VPC, by the gateway's own socket. */
function hostThrough(
  { address, namespace, allowedNetworks }: Listener,
  gateway: DaemonPaths,
): string {
  return namespace === null && allowedNetworks === null ? address : gateway.root;
}

/** Turns a wait into a failure. */
function forGood(error: unknown): never {
  throw error instanceof NotYet ? new Error(error.message, { cause: error }) : error;
}
