/** One round of a read replica set. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BeginStep, Verdict } from '../../../engine.ts';
import { type Topology, listenerFor } from '../context.ts';
import { decideSet, setStepName, type SetStep } from '../../../postgres/decisions/decide-set.ts';
import { finishRound, type Decided } from '../driver.ts';
import { gatewayPaths, allowNetworks, startGateway, stopGateway } from '../gateways.ts';
import {
  tidyReplicated,
  createSlots,
  seedStandby,
  configureReplicated,
  startStandby,
  dropSlots,
} from '../standbys.ts';
import { observeSet, type SetObserved, findPrimary } from './observe.ts';
import { setStateOf, type SetState, type Primary } from './set-state.ts';
import type { PlacedSet, PlacedSpec } from '../../../postgres/decisions/placed-spec.ts';
import { removeEntry, listEntries } from '../../../../lib/untrusted-files.ts';
import { nodeName } from '../../../postgres/replication/replication-conf.ts';
import { fence, makeInstanceDirectories, findServer } from '../../postgres/server.ts';
import { applyToStandby, writeReplicationFor, planOrThrow, startPooler } from '../apply.ts';
import type { Found } from '../executor.ts';
import { balance, withhold } from './watch.ts';
import { removeTree } from '../../host/clone.ts';
import { instancePaths, memberKey } from '../../host/layout.ts';
import type { Machine } from '../../host/machine-record.ts';
import { currentBoot, readMarker, writeMarker } from '../../host/marker.ts';
import { NotYet } from '../../../not-yet.ts';
import { ownService } from '../../host/ownership.ts';
import { rename } from '../../host/root-files.ts';
import { ownerOf } from '../../host/users.ts';
import { sessionsOf } from '../../proxy/gateway.ts';
import { holdPooler, stopPooler, reloadPooler } from '../../proxy/pooler.ts';
import { startServer, stopIfRunning } from '../start-stop.ts';
import { parseLsn } from '../../../postgres/data/wal.ts';
import { type Step, endingOf, isEnding } from '../../../postgres/decisions/decide.ts';
import { askReplay } from '../../../postgres/replication/replication-state.ts';
import { eligibleNodes } from './judge.ts';
import { noneOf } from '../../../../lib/processes.ts';
import { primaryPaths } from '../instances.ts';

/** Observes a read replica set, decides, and performs one step. */
export async function convergeSet(
  topology: Topology,
  spec: PlacedSpec,
  set: PlacedSet,
  begin: BeginStep,
): Promise<Verdict> {
  const { machine } = topology;
  const known = setStateOf(topology, spec, set);
  const observed = await observeSet(topology, known);
  const step = decideSet(spec, observed.seen);
  const { isReachable } = observed;
  return finishRound(
    {
      before: {
        reachable: isReachable,
        present: observed.seen.directory === 'ours',
        // A set has no data of its own: its nodes are made again from its service.
        provisioned: false,
      },
      decided: decidedOf(step),
      tidy: () => tidyReplicated(machine, spec.id, observed.found),
      apply: () => applyToSet(topology, known, step, observed),
      isReachableAfter: () => isReachable,
    },
    begin,
  );
}

function decidedOf(step: SetStep): Decided {
  const ending = step.kind === 'server' || step.kind === 'pooler' ? endingOf(step.step) : null;
  return ending === null ? { name: setStepName(step) ?? step.kind } : { ending };
}

/** Forgets a set that is being removed. */
export function forgetSet(topology: Topology, id: string): void {
  if (topology.sets.delete(id)) topology.gateways.forget(gatewayPaths(topology, id));
}

// Performs the step that `decideSet` has chosen for a read replica set.

type StepOf<Kind extends SetStep['kind']> = Extract<SetStep, { kind: Kind }>;
type StepOfNode = StepOf<'fence' | 'seed' | 'restart' | 'server'>;

/** @returns a line for the user @throws NotYet when the step has to wait */
async function applyToSet(
  topology: Topology,
  known: SetState,
  step: SetStep,
  observed: SetObserved,
): Promise<string> {
  const { machine, monitor } = topology;
  const { spec, set } = known;
  const { id } = spec;
  switch (step.kind) {
    case 'make':
      return makeSet(machine, id, set.parent);
    case 'own':
      return changeOwnerOfSet(topology, known, observed.found.values());
    case 'openGateway':
      return startGateway(topology, spec);
    case 'closeGateway':
      await stopGateway(topology, id);
      return step.why;
    case 'allowNetworks':
      return allowNetworks(topology, spec);
    case 'balance':
      return balance(topology, known);
    case 'setSlots': {
      const names = set.nodes.map(({ n }) => nodeName(id, n));
      await createSlots(monitor, primaryOrWait(observed.primary).key, names);
      return names.join(', ');
    }
    case 'pooler':
      return applyToPoolerOfSet(topology, known, step.step, observed);
    case 'fence':
    case 'seed':
    case 'restart':
    case 'server':
      known.asked.add(step.n);
      return applyToNode(topology, known, step, observed);
  }
}

async function applyToNode(
  topology: Topology,
  known: SetState,
  step: StepOfNode,
  { found, conf, primary }: SetObserved,
): Promise<string> {
  const { n } = step;
  const node = found.get(n);
  if (node === undefined) throw new Error(`node ${n} was not observed`);
  const settings = conf.get(n) ?? '';
  switch (step.kind) {
    case 'fence':
      topology.monitor.forget(node.key);
      if (!(await fence(node.paths))) throw new Error(`node ${n} does not end`);
      // The node went a way of its own: whatever its files say, it cannot follow any more.
      await removeEntry(join(node.paths.data, 'standby.signal'));
      return 'it is recreated';
    case 'seed':
      await withhold(topology, known, n);
      try {
        return await seedStandby(topology.standbys, node, {
          primary: primaryOrWait(primary),
          slot: nodeName(known.spec.id, n),
          conf: settings,
          why: step.why,
        });
      } finally {
        known.withheld.delete(n);
      }
    case 'restart':
      return restartNode(topology, known, n, node, settings);
    case 'server':
      return applyToServer(topology, known, step, node, settings);
  }
}

async function applyToServer(
  topology: Topology,
  known: SetState,
  { n, step }: StepOf<'server'>,
  found: Found,
  conf: string,
): Promise<string> {
  if (isEnding(step)) return '';
  await writeReplicationFor(topology, step, found, conf);
  // A node that starts accepts connections before it can answer; the connections of a dead one may
  // outlive it for a moment.
  if (step.kind === 'stop' || step.kind === 'start') await withhold(topology, known, n);
  try {
    return await applyToStandby(topology, known.spec, step, found);
  } finally {
    known.withheld.delete(n);
  }
}

// The directory of a read replica set, and the restart of its nodes.

/**
 * How long sessions may take to end before their node is restarted on purpose: a tenant can keep
 * some open for ever (docs/high-availability.md).
 */
const DRAIN_MS = 5000;

/** A directory for the nodes of a set, which runs on what its parent runs on. */
async function makeSet(machine: Machine, id: string, parent: string): Promise<string> {
  const { layout } = machine;
  const marker = await readMarker(layout.service(parent));
  if (marker === null) throw new NotYet('its service is not there yet');
  const unfinished = instancePaths(`${layout.service(id).root}.new`);
  await removeTree(unfinished.root, machine.cloneMethod);
  await makeInstanceDirectories(ownerOf(machine, layout.service(parent)), unfinished);
  const { installation, uid } = marker;
  await writeMarker(unfinished, {
    id,
    installation,
    provisioned: true,
    parent: null,
    began: null,
    madeIn: await currentBoot(),
    uid,
    userOf: parent,
    recovery: null,
    upgrade: null,
    exchange: null,
  });
  await rename(unfinished.root, layout.service(id).root);
  return `for PostgreSQL ${marker.installation}`;
}

/**
 * Ends all of a set and gives it to the user of the service that it follows, without which it
 * cannot follow it.
 */
async function changeOwnerOfSet(
  topology: Topology,
  { spec: { id, set } }: SetState,
  nodes: Iterable<Found>,
): Promise<string> {
  const { machine, executor, poolers } = topology;
  await stopPooler(poolers, machine.layout.service(id));
  await stopGateway(topology, id);
  for (const node of nodes) await stopIfRunning(executor, node);
  return ownService(machine, id, set?.parent ?? null);
}

/**
 * In order: the node gets no new connections, transactions end, then the node is stopped.
 * Connections to a set of one node wait meanwhile.
 */
async function restartNode(
  topology: Topology,
  known: SetState,
  n: number,
  found: Found,
  conf: string,
): Promise<string> {
  const { machine, executor, poolers, standbys } = topology;
  const { spec } = known;
  const begun = Date.now();
  try {
    await withhold(topology, known, n);
    await holdPooler(poolers, machine.layout.service(spec.id));
    const left = await drain(topology, spec.id, n);
    await stopIfRunning(executor, found);
    await configureReplicated(executor, found, conf);
    await startStandby(standbys, found.key, () => startServer(executor, spec, found));
    return `in ${Date.now() - begun} ms${left === 0 ? '' : `; ${left} sessions ended with it`}`;
  } finally {
    known.withheld.delete(n);
  }
}

/**
 * Waits until the sessions with a node have ended, or their time is up. @returns how many are left
 */
async function drain(topology: Topology, id: string, n: number): Promise<number> {
  const end = Date.now() + DRAIN_MS;
  for (;;) {
    const sessions = await sessionsOf(gatewayPaths(topology, id), n);
    if (sessions === 0 || Date.now() > end) return sessions;
    await sleep(20);
  }
}

// The steps of the connection pooler of a read replica set.

/** How long the start of a pooler waits for its role to be replayed by the nodes. */
const REPLAY_MS = 60_000;

async function applyToPoolerOfSet(
  topology: Topology,
  known: SetState,
  step: Step,
  { primary, pooler: plan }: SetObserved,
): Promise<string> {
  const { machine, executor, poolers } = topology;
  const { spec } = known;
  const paths = machine.layout.service(spec.id);
  const serversNow = () => ({
    primary: primaryOrWait(primary),
    untilReplayed: (lsn: bigint) => untilReplayed(topology, known, lsn),
  });
  switch (step.kind) {
    case 'startPooler':
      return startPooler(executor, spec.id, paths, listenerFor(topology, spec), plan, serversNow());
    case 'reloadPooler':
      return reloadPooler(poolers, spec.id, paths, planOrThrow(plan), serversNow());
    case 'stopPooler':
      await stopPooler(poolers, paths);
      return step.why;
    default:
      return '';
  }
}

/**
 * Waits until all nodes that the gateway routes to have replayed the WAL up to a position.
 *
 * @throws Error naming a node that has not done so within {@link REPLAY_MS}; the step is tried
 *   again
 */
async function untilReplayed(topology: Topology, known: SetState, lsn: bigint): Promise<void> {
  const end = Date.now() + REPLAY_MS;
  for (;;) {
    const nodes = await Promise.all(
      eligibleNodes(topology, known).map(async (n) => ({
        n,
        answer: await askReplay(topology.monitor, memberKey(known.spec.id, n)),
      })),
    );
    // A node that does not answer soon gets no connections; it is asked again if it does.
    const behind = nodes.find(
      ({ answer }) => answer === null || parseLsn(answer.replayed ?? '0/0') < lsn,
    );
    if (behind === undefined) return;
    if (Date.now() > end)
      throw new Error(
        `node ${behind.n} has not replayed the role of the pooler within ${REPLAY_MS / 1000} s`,
      );
    await sleep(20);
  }
}

// The slots of a read replica set on the primary that it follows.

/** @throws NotYet when the primary cannot be asked */
function primaryOrWait(primary: Primary | null): Primary {
  if (primary === null) throw new NotYet('the primary cannot be asked');
  return primary;
}

/**
 * Drops the slots of a set that is being removed, or removes those of a primary that does not run
 * with its files. @throws NotYet when that has to wait
 */
export async function dropSlotsOfSet(
  topology: Topology,
  id: string,
  parent: string,
): Promise<void> {
  const prefix = nodeName(id, 0).slice(0, -1);
  const primary = await findPrimary(topology, parent);
  const paths = primaryPaths(topology.machine, parent);
  if (primary !== null) {
    const ours = primary.slots.filter((name) => name.startsWith(prefix));
    // The nodes of the set have ended, which the primary may be about to see.
    if ((await dropSlots(topology.monitor, primary.key, ours)) < ours.length)
      throw new NotYet('its slots are dropped when none is in use');
    return;
  }
  if ((await findServer(paths)) !== null)
    throw new NotYet('its slots are dropped when the primary can be asked');
  const directory = join(paths.data, 'pg_replslot');
  const slots = (await listEntries(directory).catch(noneOf('ENOENT', 'ENOTDIR'))) ?? [];
  for (const name of slots.filter((slot) => slot.startsWith(prefix)))
    await removeEntry(join(directory, name));
}
