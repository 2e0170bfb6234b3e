/** One round of a service with replicas. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { BeginStep, Verdict, ShowProgress } from '../../../engine.ts';
import { type Topology, listenerFor } from '../context.ts';
import { decideHa, haStepName, type HaStep } from '../../../postgres/decisions/decide-ha.ts';
import { finishRound, type Decided } from '../driver.ts';
import { endingOf, isEnding } from '../../../postgres/decisions/decide.ts';
import {
  tidyReplicated,
  seedStandby,
  writeReplication,
  createSlots,
  dataOf,
  dropSlots,
  forgetStandby,
} from '../standbys.ts';
import { clusterOf, inTurn } from './cluster.ts';
import { observeCluster, type ClusterObserved } from './observe.ts';
import {
  withRecordedPrimary,
  toPrimary,
  foundAt,
  keyOf,
  pathsOf,
  portOf,
  type ClusterRound,
} from './round.ts';
import type { PlacedCluster, PlacedSpec } from '../../../postgres/decisions/placed-spec.ts';
import { memberName } from '../../../postgres/replication/replication-conf.ts';
import { fence, findServer, stopServer } from '../../postgres/server.ts';
import { applyStep, applyToStandby, writeReplicationFor } from '../apply.ts';
import { sweepRehearsal, rehearse } from '../../../postgres/replication/drill.ts';
import {
  allowNetworks,
  routeGateway,
  startGateway,
  stopGateway,
  gatewayPaths,
} from '../gateways.ts';
import { acceptWrites, failOver, isDead } from './failover.ts';
import { changeOwner, move, moveToGateway, restart, switchOver } from './switchover.ts';
import { archiveLeftovers } from '../../backup/recovery.ts';
import { discard, removeTree } from '../../host/clone.ts';
import { ownerOf } from '../../host/users.ts';
import type { Found } from '../executor.ts';
import { followersOf } from '../../../postgres/replication/replication-state.ts';
import { findDaemon } from '../../host/daemon.ts';
import { instanceNumbers } from '../instances.ts';
import { signal } from '../../../../lib/processes.ts';
import type { DaemonPaths } from '../../host/layout.ts';
import { NotYet } from '../../../not-yet.ts';
import type { Listener } from '../../network/listener.ts';
import { choosePlanned } from '../../../postgres/decisions/failover.ts';
import { findSuccessor } from './successor.ts';
import { isWildcard } from '../../../../config.ts';

/** Observes a cluster, decides, and performs one step. */
export async function convergeCluster(
  topology: Topology,
  spec: PlacedSpec,
  ha: PlacedCluster,
  begin: BeginStep,
): Promise<Verdict> {
  const { machine } = topology;
  const cluster = clusterOf(topology, spec.id);
  await cluster.failingOver?.catch(() => undefined);
  const desired = { topology, cluster, spec, ha };
  const round = await inTurn(cluster, () => withRecordedPrimary(desired));
  // Another primary was recorded after these servers were chosen: the next round chooses again.
  if (!ha.servers.some(({ n }) => n === round.ha.primary)) return ANOTHER_PRIMARY;
  cluster.spec = spec;
  const observed = await observeCluster(round);
  const step = decideHa(spec, round.ha, observed.seen);
  const { isWritable } = observed;
  const { directory, provisioned } = observed.seen.primary;
  return finishRound(
    {
      before: { reachable: isWritable, present: directory === 'ours', provisioned },
      decided: decidedOf(step, isWritable),
      tidy: () => tidyReplicated(machine, spec.id, observed.found),
      apply: (show) => applyToCluster(round, step, observed, show),
      isReachableAfter: () => isWritable,
    },
    begin,
  );
}

const ANOTHER_PRIMARY: Verdict = {
  did: null,
  detail: null,
  seen: { reachable: true, present: true, provisioned: true },
  outcome: 'again',
  waitMs: 20,
};

function decidedOf(step: HaStep, isWritable: boolean): Decided {
  const ending = step.kind === 'server' ? endingOf(step.step) : null;
  if (ending === null) return { name: haStepName(step) ?? step.kind };
  if (ending.kind !== 'wait' || isWritable) return { ending };
  return { ending: { ...ending, why: `writes wait: ${ending.why}` } };
}

// Performs the step that `decideHa` has chosen for a cluster.

type StepOf<Kind extends HaStep['kind']> = Extract<HaStep, { kind: Kind }>;

/** @returns a line for the user @throws NotYet when the step has to wait */
async function applyToCluster(
  round: ClusterRound,
  step: HaStep,
  observed: ClusterObserved,
  show: ShowProgress,
): Promise<string> {
  const { topology, spec, ha } = round;
  switch (step.kind) {
    case 'server':
      return applyToServer(round, step, observed, show);
    case 'startWithGateway':
      return startWithGateway(round, step.n, observed);
    case 'promote':
    case 'switchOver':
    case 'restart':
    case 'moveToGateway':
    case 'own':
    case 'move':
      return toPrimary(round, () => applyToPrimary(round, step, observed));
    case 'fence':
    case 'seed':
    case 'setSlots':
    case 'retire':
      return applyToStandbys(round, step, observed);
    case 'failOver': {
      const choice = await failOver(round);
      return 'n' in choice ? `member ${choice.n} is the primary: ${choice.detail}` : choice.why;
    }
    case 'allowNetworks':
      return allowNetworks(topology, spec);
    case 'openGateway':
      return startGateway(topology, spec);
    case 'routeGateway':
      await routeGateway(topology, spec.id, portOf(ha, ha.primary));
      return `member ${ha.primary}`;
    case 'closeGateway':
      await stopGateway(topology, spec.id);
      return step.why;
    case 'sweepDrill':
      await sweepRehearsal({ paths: pathsOf(round, ha.primary), port: portOf(ha, ha.primary) });
      return 'it was interrupted';
    case 'drill':
      return runDrill(round);
  }
}

/** Steps that start, stop or promote the primary; the caller has its turn. */
async function applyToPrimary(
  round: ClusterRound,
  step: StepOf<'promote' | 'switchOver' | 'restart' | 'moveToGateway' | 'own' | 'move'>,
  { found, conf }: ClusterObserved,
): Promise<string> {
  const { primary } = round.ha;
  const at = () => ({ found: foundAt(found, primary), conf: conf.get(primary) ?? '' });
  switch (step.kind) {
    case 'promote':
      await acceptWrites(round, primary);
      return `member ${primary}`;
    case 'switchOver':
      return switchOver(round, step.to, step.why);
    case 'restart':
      return restart(round, at().found, step.why);
    case 'moveToGateway':
      return moveToGateway(round, at());
    case 'own':
      return changeOwner(round, found, at().conf);
    case 'move':
      return move(round, at(), step.why);
  }
}

/** Steps that create and remove standbys. */
async function applyToStandbys(
  round: ClusterRound,
  step: StepOf<'fence' | 'seed' | 'setSlots' | 'retire'>,
  { found, conf }: ClusterObserved,
): Promise<string> {
  const { topology, spec, ha } = round;
  switch (step.kind) {
    case 'fence':
      topology.monitor.forget(keyOf(round, step.n));
      if (!(await fence(foundAt(found, step.n).paths)))
        throw new Error(`member ${step.n} does not end`);
      return 'it follows the primary from now on';
    case 'seed':
      return seedStandby(topology.standbys, foundAt(found, step.n), {
        primary: { key: keyOf(round, ha.primary), paths: foundAt(found, ha.primary).paths },
        slot: memberName(step.n),
        conf: conf.get(step.n) ?? '',
        why: step.why,
      });
    case 'setSlots':
      return setSlots(round);
    case 'retire':
      await retire(topology, spec.id, step.n, foundAt(found, step.n));
      return 'as requested';
  }
}

/** Starts the primary and its gateway side by side: clients wait, whichever is ready first. */
async function startWithGateway(
  round: ClusterRound,
  n: number,
  observed: ClusterObserved,
): Promise<string> {
  const both = [
    applyToServer(round, { kind: 'server', n, step: { kind: 'start' } }, observed),
    startGateway(round.topology, round.spec),
  ];
  // Neither may continue once the caller knows that the other has failed.
  await Promise.allSettled(both);
  return (await Promise.all(both)).join('; the gateway ');
}

async function applyToServer(
  round: ClusterRound,
  { n, step }: StepOf<'server'>,
  observed: ClusterObserved,
  show?: ShowProgress,
): Promise<string> {
  if (isEnding(step)) return '';
  const { topology, spec, ha } = round;
  const { executor } = topology;
  const found = foundAt(observed.found, n);
  const conf = observed.conf.get(n) ?? '';
  await writeReplicationFor(topology, step, found, conf);
  if (n !== ha.primary) return applyToStandby(topology, spec, step, found);
  if (step.kind === 'convert' || step.kind === 'exchange')
    // The step waits for its turn: no failover begins before all members are stopped.
    return toPrimary(round, () => applyStep(executor, spec, step, found));
  if (step.kind !== 'start' && step.kind !== 'stop') {
    const did = await applyStep(executor, spec, step, found, show);
    // A new instance has a directory for the file only now.
    if (step.kind === 'clone' || step.kind === 'fork' || step.kind === 'recover')
      await writeReplication(executor, found, conf);
    return did;
  }
  const { successor } = observed.seen;
  const why =
    successor !== null && 'why' in successor ? `; nobody takes over: ${successor.why}` : '';
  return toPrimary(round, async () => `${await applyStep(executor, spec, step, found)}${why}`);
}

// The standbys of a cluster: their slots on the primary, and their removal.

/** Gives the primary a slot for each standby, and no others. @returns a line for the user */
async function setSlots(round: ClusterRound): Promise<string> {
  const { ha } = round;
  const { monitor } = round.topology;
  const key = keyOf(round, ha.primary);
  const names = ha.servers.filter(({ n }) => n !== ha.primary).map(({ n }) => memberName(n));
  const there = (await followersOf(monitor, key))?.slots ?? [];
  await dropSlots(
    monitor,
    key,
    there.filter((name) => !names.includes(name)),
  );
  await createSlots(monitor, key, names);
  return names.join(', ');
}

/** Ends an instance that is not desired any more, and removes it. */
async function retire(
  { machine, monitor, standbys }: Topology,
  id: string,
  n: number,
  { key, paths }: Found,
): Promise<void> {
  monitor.forget(key);
  if (!(await fence(paths))) throw new Error(`member ${n} does not end`);
  if (dataOf(paths) === 'primary') await archiveLeftovers(ownerOf(machine, paths), paths);
  await discard(machine, id, paths.data);
  // The directory of instance 0 is the service's.
  if (n > 0) await removeTree(paths.root, machine.cloneMethod);
  forgetStandby(standbys, key);
}

// The removal of a service with replicas.

/**
 * Ends the gateway of a service, if it has one, and all of its instances but the first.
 *
 * @returns whether anything was running
 */
export async function endCluster(topology: Topology, id: string): Promise<boolean> {
  const { machine, clusters } = topology;
  const cluster = clusters.get(id);
  if (cluster !== undefined) {
    // The record stays: a failover may be under way.
    cluster.spec = null;
    cluster.isAdopted = false;
  }
  const isGatewayRunning = (await findDaemon(gatewayPaths(topology, id))) !== null;
  await stopGateway(topology, id);
  let ended = isGatewayRunning;
  for (const n of await instanceNumbers(machine, id)) {
    const paths = machine.layout.member(id, n);
    const server = n === 0 ? null : await findServer(paths);
    if (server === null) continue;
    ended = true;
    if (!(await stopServer(machine, server, 'immediate', 5000)) && !(await fence(paths)))
      throw new Error(`member ${n} does not end`);
  }
  return ended;
}

// Rehearses a failover or a switchover of a cluster that is in use.

/** A process ends at once after SIGKILL, unless it waits for a disk. */
const DIES_WITHIN_MS = 60_000;

/** Performs a requested drill. @returns what became of the writes */
async function runDrill(round: ClusterRound): Promise<string> {
  const { topology, spec, ha } = round;
  const { id } = spec;
  const { layout } = topology.machine;
  // Taken up before it begins: one that is interrupted does not kill another primary.
  if (!(await topology.records.takeDrill(id))) throw new Error('drill interrupted; run it again');
  const host = hostThrough(listenerFor(topology, spec), gatewayPaths(topology, id));
  return rehearse({
    primary: () => {
      const primary = layout.primaryOf(id);
      return { paths: layout.member(id, primary), port: portOf(ha, primary) };
    },
    endpoint: { host: isWildcard(host) ? '127.0.0.1' : host, port: spec.endpoint.port },
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
