/**
 * The primary of a cluster is dead or hangs, and a standby takes over. The order makes it safe
 * whatever dies in between: see {@link chooseSuccessor} and docs/decisions/0010-ha-members.md.
 */
import { memberKey, partsOfKey } from '../../host/layout.ts';
import { fence, findServer } from '../../postgres/server.ts';
import type { Topology } from '../context.ts';
import { hangs } from '../../../postgres/decisions/decide-ha.ts';
import { promote, type Successor, createSteps } from '../../../postgres/decisions/failover.ts';
import { routeGateway } from '../gateways.ts';
import { inTurn } from './cluster.ts';
import {
  recordPrimary,
  withRecordedPrimary,
  keyOf,
  pathsOf,
  portOf,
  type ClusterRound,
} from './round.ts';
import { findSuccessor } from './successor.ts';

/** Ends the primary for certain and has a standby take over, if one can. One runs at a time. */
export function failOver(round: ClusterRound): Promise<Successor> {
  const { cluster } = round;
  if (cluster.failingOver !== null) return cluster.failingOver;
  const mine = inTurn(cluster, async () => takeOver(await withRecordedPrimary(round))).finally(
    () => {
      cluster.failingOver = null;
    },
  );
  cluster.failingOver = mine;
  return mine;
}

async function takeOver(round: ClusterRound): Promise<Successor> {
  const { topology, cluster, ha } = round;
  const { monitor, records } = topology;
  const { id } = cluster;
  const from = ha.primary;
  if (!(await isDead(topology, id, from))) return { why: `member ${from} runs` };
  const steps = createSteps();
  const announced = records.begin(id);
  announced.catch(() => undefined);
  const paths = pathsOf(round, from);
  const isGone = await steps.take(
    'fence',
    () => fence(paths),
    (gone) => (gone ? `nothing of member ${from} is left` : 'it does not end'),
  );
  if (!isGone)
    throw new Error(`member ${from} does not end, not even by SIGKILL: does its disk hang?`);
  monitor.forget(keyOf(round, from));
  const choice = await findSuccessor(round);
  if ('why' in choice) {
    await announced;
    await records.end(id, steps.done(), choice.why);
    return choice;
  }
  const to = choice.n;
  await recordPrimary(round, to);
  await steps.take(
    'promote',
    () => acceptWrites(round, to),
    () => `member ${to}: ${choice.detail}`,
  );
  cluster.lastFailoverMs = performance.now();
  await announced;
  await records.end(id, steps.done(), null);
  return choice;
}

/**
 * Has an instance that the metadata database names as the primary accept writes, and routes the
 * gateway to it.
 */
export async function acceptWrites(round: ClusterRound, n: number): Promise<void> {
  const { topology, cluster, ha } = round;
  const port = portOf(ha, n);
  const key = keyOf(round, n);
  // A promotion writes two WAL files of 16 MB, and the first commits wait for both.
  await topology.machine.shares.free(key);
  await promote({ n, port }, (text) => topology.monitor.query(key, text));
  // A gateway that does not run is started, and then routed there.
  await routeGateway(topology, cluster.id, port).catch(() => undefined);
}

/** Whether instance `n` of a service does not run, or hangs. */
export async function isDead(
  { machine, monitor }: Topology,
  id: string,
  n: number,
): Promise<boolean> {
  const server = await findServer(machine.layout.member(id, n));
  if (server === null) return true;
  return hangs({ server: server.postmaster, silentMs: monitor.silentMs(memberKey(id, n)) });
}

/**
 * A server died, stopped answering or answers again, by its key. If it was the primary of a
 * cluster, a standby takes over before the reconciler is notified.
 */
export async function noticed(topology: Topology, key: string): Promise<void> {
  const { id, n } = partsOfKey(key);
  const cluster = topology.clusters.get(id);
  const spec = cluster?.spec ?? null;
  try {
    if (
      cluster !== undefined &&
      spec?.ha != null &&
      spec.power === 'running' &&
      topology.machine.layout.primaryOf(id) === n &&
      (await isDead(topology, id, n))
    ) {
      const desired = { topology, cluster, spec, ha: spec.ha };
      const round = await inTurn(cluster, () => withRecordedPrimary(desired));
      if ('n' in (await findSuccessor(round))) await failOver(round);
    }
  } catch (error) {
    process.emitWarning(
      `service ${id}: its failover did not get on, and is tried again: ${String(error)}`,
    );
  } finally {
    topology.changed(id);
  }
}
