/**
 * The steps that a change takes if nothing is in the way: the answer to a dry run. They are decided
 * as the real ones are, from the assumed state before the change, and named as they are.
 */
import type { OperationKind, Size } from '@howdah/contract';
import { BACKUP_STEP } from '../../off-machine.ts';
import {
  TRIAL_STEP,
  type HighAvailability,
  type ReplicaSet,
  type ServiceSpec,
} from '../../spec.ts';
import { chooseServers, numberNodes } from '../../records.ts';
import { VERIFICATION_STEPS } from '../../verification-steps.ts';
import { needsPreload } from '../../../domain/postgres/extension-rules.ts';
import { sizeLabel, compareSizes } from '../size-label.ts';
import { NOBODY } from '../replication/replication-conf.ts';
import { decideHa, haStepName, type InstanceSeen } from './decide-ha.ts';
import { decideSet, setStepName, type SetSeen } from './decide-set.ts';
import { decide, STEP_NAME, type Observation, isEnding } from './decide.ts';
import type { PlacedCluster, PlacedSpec } from './placed-spec.ts';
import * as cluster from './simulate-cluster.ts';
import { afterSetStep, nodeAbsent, withRoutes } from './simulate-cluster.ts';
import { afterStep, namesOfSteps, POOLER_WELL, WELL } from './simulate.ts';

/** The parts of a service that exist already: its gateway, and its servers by number. */
type Existing = {
  hasGateway: boolean;
  primary: number;
  servers: readonly number[];
  movesIntoVpc: boolean;
};
const NOTHING: Existing = { hasGateway: false, primary: 0, servers: [], movesIntoVpc: false };

/**
 * @param running whether its server runs already; of one that is to be made: whether a spare
 *   becomes it
 * @param sizeBefore the size that its servers have
 * @param there what exists of a service that gets replicas, and what a VPC is here
 */
export function planOf(
  kind: OperationKind,
  spec: ServiceSpec,
  running: boolean,
  sizeBefore: Size = spec.size,
  there: Existing = NOTHING,
): string[] {
  if (kind === 'verifyBackup') return [...VERIFICATION_STEPS];
  if (kind === 'runBackup') return [BACKUP_STEP];
  if (kind === 'tryUpgrade') return [TRIAL_STEP];
  const before = stateBefore(kind, spec, running, there.movesIntoVpc);
  if (before === null) return [];
  const size =
    kind === 'restart'
      ? 'restart'
      : (loads(kind, spec) ?? compareSizes(sizeLabel(sizeBefore), spec.size));
  // The password of a dry run is not known; whether there is one decides on its step.
  const named = { ...spec, firstVerifier: spec.firstVerifier ?? '' };
  if (spec.set !== null) return stepsOfSet({ ...named, set: spec.set }, before, size);
  return spec.ha === null
    ? stepsOfServer({ ...named, ha: null, set: null, ...serverPortOf(named) }, before, size)
    : stepsOfCluster(named, spec.ha, before, size, there);
}

/** How the libraries of a service before a change compare with the desired ones; null: they are. */
function loads(kind: OperationKind, { extension }: ServiceSpec): 'smaller' | 'larger' | null {
  if (extension === null || !needsPreload(extension.name)) return null;
  if (kind === 'enableExtension') return 'smaller';
  return kind === 'disableExtension' ? 'larger' : null;
}

/** The assumed state of a service before a change, whichever servers it has. */
type Before = {
  /** spare: it runs, and is not provisioned. */
  state: 'absent' | 'spare' | 'stopped' | 'running';
  hasPooler: boolean;
  filesCurrent: boolean;
  extension: Observation['extension'];
  /** moves: its servers run in another network after it. otherClients: others may connect. */
  network: 'same' | 'moves' | 'otherClients';
  /** Whether its data is replaced by its backups. */
  isReplaced: boolean;
  upgrade: Observation['upgrade'];
  /** changes: its server gets a relay, or loses it. */
  relay: 'same' | 'changes';
};

/** @returns null: the change has no steps, or none of a server that does not run */
function stateBefore(
  kind: OperationKind,
  spec: ServiceSpec,
  running: boolean,
  movesIntoVpc: boolean,
): Before | null {
  const state = running ? 'running' : 'stopped';
  const same: Before = {
    state,
    hasPooler: running && spec.pooler !== null,
    filesCurrent: true,
    extension: null,
    network: 'same',
    isReplaced: false,
    upgrade: 'done',
    relay: 'same',
  };
  switch (kind) {
    case 'create':
    case 'fork':
      return { ...same, state: running ? 'spare' : 'absent', hasPooler: false };
    case 'adopt':
      return { ...same, filesCurrent: false };
    case 'recover':
      return { ...same, hasPooler: false, isReplaced: true };
    case 'reset':
    case 'upgrade':
    case 'undoUpgrade':
      return { ...same, upgrade: 'asked' };
    case 'start':
    case 'restore':
    case 'repair':
      return { ...same, state: 'stopped', hasPooler: false };
    case 'stop':
    case 'restart':
    case 'delete':
    case 'setHA':
    case 'switchover':
    case 'failover':
    case 'drill':
      return running ? same : null;
    case 'resize':
      return { ...same, filesCurrent: false };
    case 'enableExtension':
      return { ...same, extension: 'create', filesCurrent: loads(kind, spec) === null };
    case 'disableExtension':
      return { ...same, extension: 'drop', filesCurrent: loads(kind, spec) === null };
    case 'setAutoSuspend':
      return running ? { ...same, relay: 'changes', filesCurrent: false } : null;
    case 'enablePooler':
      return running ? { ...same, hasPooler: false } : null;
    case 'disablePooler':
      return running ? { ...same, hasPooler: true } : null;
    case 'attachToVPC':
    case 'detachFromVPC': {
      const moves = spec.vpc === null ? movesIntoVpc : spec.vpc.address !== null;
      return running ? { ...same, network: moves ? 'moves' : 'otherClients' } : null;
    }
    case 'attachToAllowList':
    case 'detachFromAllowList':
      return running && spec.vpc === null ? { ...same, network: 'otherClients' } : null;
    case 'verifyBackup':
    case 'runBackup':
    case 'tryUpgrade':
    case 'move':
    case 'updatePassword':
    case 'setEnvironment':
    case 'setPurpose':
    case 'rename':
    case 'setExpiry':
    case 'setBackupRetention':
      return null;
  }
}

type SizeSeen = NonNullable<InstanceSeen['server']>['size'];

/** A service as `decide` observes it, whichever servers it has. */
function rulesOf({
  state,
  hasPooler,
  extension,
  network,
  isReplaced,
  upgrade,
}: Before): Observation {
  const exists = state !== 'absent';
  return {
    ...WELL,
    directory: exists ? 'ours' : 'absent',
    provisioned: exists && state !== 'spare',
    recovered: !isReplaced,
    upgrade,
    server: null,
    connected: false,
    extension,
    pooler: hasPooler ? { ...POOLER_WELL, placed: network !== 'moves' } : null,
  };
}

const runs = ({ state }: Before): boolean => state === 'running' || state === 'spare';

/** No step has a port in its name. */
const serverPortOf = ({ sleep }: Pick<ServiceSpec, 'sleep'>): Pick<PlacedSpec, 'serverPort'> =>
  sleep === undefined ? {} : { serverPort: 0 };

function stepsOfServer(spec: PlacedSpec, before: Before, size: SizeSeen): string[] {
  const { network } = before;
  const placed = network !== 'moves';
  const seen: Observation = {
    ...rulesOf(before),
    server: runs(before)
      ? {
          phase: 'ready',
          start: cluster.startOf(size),
          placed,
          ...(before.relay === 'changes' ? { elsewhere: true } : {}),
        }
      : null,
    relay:
      runs(before) && (spec.serverPort !== undefined) !== (before.relay === 'changes')
        ? { state: 'awake', current: true }
        : null,
    connected: runs(before),
    // A server allows the networks of its VPC or allow list by itself.
    filesCurrent: before.filesCurrent && network === 'same',
    disallowedSessions: network === 'otherClients' && spec.allowedNetworks !== null ? 1 : 0,
  };
  return namesOfSteps(seen, (now) => {
    const step = decide(spec, now);
    if (step.kind === 'settled' || step.kind === 'refuse') return null;
    return { name: isEnding(step) ? null : STEP_NAME[step.kind], after: afterStep(now, step) };
  });
}

function stepsOfCluster(
  spec: Omit<PlacedSpec, 'ha' | 'set'>,
  ha: HighAvailability,
  before: Before,
  size: SizeSeen,
  there: Existing,
): string[] {
  const wanted = clusterOf(ha, there);
  const placed: PlacedSpec = { ...spec, ha: wanted, set: null };
  return namesOfSteps(clusterBefore(placed, wanted, before, size, there), (now) => {
    const step = decideHa(placed, now.ha, cluster.observed(placed, now));
    if (step.kind === 'server' && (step.step.kind === 'settled' || step.step.kind === 'refuse'))
      return null;
    return { name: haStepName(step), after: cluster.afterHaStep(now, step) };
  });
}

/** No step has a port in its name: their numbers stand for them. */
const placedAt = (numbers: readonly number[]) => numbers.map((n) => ({ n, port: n }));

function clusterOf({ replicas, sync, switchover, drill }: HighAvailability, there: Existing) {
  const { primary, servers } = there;
  const wanted = chooseServers(primary, servers, replicas + 1);
  const leave = switchover ? primary : null;
  return { servers: placedAt(wanted), primary, sync, leave, drill };
}

function clusterBefore(
  spec: PlacedSpec,
  ha: PlacedCluster,
  before: Before,
  size: SizeSeen,
  there: Existing,
): cluster.AssumedCluster {
  const { primary } = ha;
  const isRunning = runs(before);
  const placed = before.network !== 'moves';
  const exists = before.state !== 'absent';
  const numbers = exists ? [...new Set([primary, ...there.servers])] : [];
  const listensAt = (n: number): number => (there.hasGateway ? n : spec.endpoint.port);
  const others = numbers.filter((n) => n !== primary);
  return {
    ha,
    rules: rulesOf(before),
    servers: numbers.map((n) => ({
      ...cluster.serverAbsent(n),
      data: n === primary ? 'primary' : 'standby',
      server: isRunning
        ? { phase: 'ready', size, port: listensAt(n), frozen: false, placed }
        : null,
      connected: isRunning,
      filesCurrent: before.filesCurrent,
      upstream: n === primary ? null : primary,
    })),
    gateway: {
      ...cluster.GATEWAY_CLOSED,
      running: isRunning && there.hasGateway,
      routesToPort: primary,
      placed,
      allowedNetworksCurrent: before.network === 'same',
    },
    slots: others,
    quorum:
      others.length === 0 ? NOBODY : { count: Math.min(ha.sync, others.length), members: others },
    rehearsed: false,
  };
}

function stepsOfSet(
  spec: Omit<PlacedSpec, 'ha' | 'set'> & { set: ReplicaSet },
  before: Before,
  size: SizeSeen,
): string[] {
  const nodes = numberNodes(spec.set.nodes);
  const set = { ...spec.set, nodes: placedAt(nodes) };
  const placed: PlacedSpec = { ...spec, ha: null, set };
  return namesOfSteps(setBefore(nodes, before, size), (now) => {
    const step = decideSet(placed, now);
    const own = step.kind === 'pooler' || step.kind === 'server' ? step.step.kind : null;
    if (own === 'settled' || own === 'refuse' || own === 'wait') return null;
    return { name: setStepName(step), after: afterSetStep(now, step) };
  });
}

function setBefore(nodes: readonly number[], before: Before, size: SizeSeen): SetSeen {
  const isRunning = runs(before);
  const exists = before.state !== 'absent';
  const placed = before.network !== 'moves';
  const { pooler, directory } = rulesOf(before);
  return withRoutes({
    directory,
    nodes: nodes.map((n) => ({
      ...nodeAbsent(n),
      data: exists ? 'standby' : 'absent',
      server: isRunning ? { phase: 'ready', size, port: n, frozen: false, placed } : null,
      connected: isRunning,
      filesCurrent: before.filesCurrent,
      serving: isRunning && placed,
    })),
    gateway: { running: isRunning, placed, allowedNetworksCurrent: before.network === 'same' },
    primaryReady: true,
    slotsCurrent: exists,
    pooler,
    owned: true,
  });
}
