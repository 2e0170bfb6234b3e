/**
 * The next step of a service on Kubernetes. Pure.
 *
 * The operator does most of the work by itself, so most steps have two halves: the Cluster is asked
 * for something, and then its end is waited for. Between them the Cluster has the name of the step
 * in an annotation, so that a control plane that ends in between goes on.
 */
import { isDeepStrictEqual } from 'node:util';
import type { DrillKind } from '@howdah/contract';
import type { ReplicaSet, ServiceSpec } from '../../spec.ts';
import {
  decidePooler,
  decidePoolerStop,
  type KnownPooler,
  type PoolerStep,
} from '../pooler/decide.ts';
import { changeOf, isRestartAsked, restartWhy, type Change } from './cluster-change.ts';
import {
  boundAs,
  desiredOf,
  placedAt,
  restartMarkOf,
  type Desired,
  type Placed,
} from './desired-state.ts';
import { fewOf } from './foreign-fields.ts';
import { sourceOf, whyNotCopied, isStopped } from '../backup/fork.ts';
import type { ClusterState, Observed, ServerState } from './state.ts';
import { STEPS, switchoverIn, switchOverTo } from './steps.ts';
import { loadedLibraries } from '../../../domain/postgres/extension-rules.ts';
import { largestOf, limitsOf, type Limits } from './parameters.ts';

/** The phase of a Cluster with nothing left to do, in the words of CloudNativePG. */
export const HEALTHY = 'Cluster in healthy state';

export type Step =
  | Readonly<{ kind: 'settled' }>
  | Wait
  | Readonly<{ kind: 'refuse'; why: string }>
  /** Writes the objects of the service as desired; `awaits`: its end is waited for. */
  | Readonly<{ kind: 'write' } & Change>
  /** Begins to wait for what the operator does by itself. */
  | Readonly<{ kind: 'expect'; name: string }>
  /** Writes the Cluster as it was desired, with the fields that others have set since. */
  | Readonly<{ kind: 'takeBack'; name: string; detail: string; desired: Desired }>
  /** The awaited step has ended. */
  | Readonly<{ kind: 'ended'; name: string; detail: string }>
  /** Asks PostgreSQL at the endpoint for an answer. */
  | Readonly<{ kind: 'connect'; name: string }>
  /** Stops PostgreSQL in all pods, without the operator's wait for a healthy Cluster. */
  | Readonly<{ kind: 'fence'; name: string }>
  /** Starts PostgreSQL again in pods in which a move has stopped it. */
  | Readonly<{ kind: 'unfence'; name: string }>
  /** The same is done: a stop has ended when nothing answers at the endpoint. */
  | Readonly<{ kind: 'expectSilence'; name: string }>
  /** Asks the operator for another primary. */
  | Readonly<{ kind: 'switchOver'; name: string; to: number }>
  /** Deletes the Cluster of a set whose nodes can never follow again; it is made again. */
  | Readonly<{ kind: 'rebuild'; name: string; why: string }>
  /** Changes the primary, or kills it, and measures for how long nothing answers. */
  | Readonly<{ kind: 'drill'; name: string; drill: DrillKind; to: number }>
  | ForkStep
  | PoolerStep;

/** The state of a service beside its objects. */
export type Known = Readonly<{
  /** Whether PostgreSQL answered at the endpoint since the last change. */
  isReachable: boolean;
  /** Whether a change of the primary that nobody asked for is being recorded. */
  isFailingOver: boolean;
  /** Whether another primary is asked for, and none was recorded since. */
  isSwitchoverAsked: boolean;
  /** The class for snapshots of volumes; null: there is none. */
  snapshotClass: string | null;
  /** Where the region has its pods run now, and the storage class of new volumes for WAL. */
  placed: Placed;
  /** Whether the region has an object store, and its cluster the plugin for it. */
  canArchive: boolean;
  /** Whether it has an ObjectStore. */
  hasArchive: boolean;
  /** Why its WAL is not archived; null: it is, or that is not known. */
  archiveProblem: string | null;
  /** For how long the awaited step is waited for. */
  waitedMs: number;
  pooler: KnownPooler;
  /** The fields that others have set to other values, as texts. */
  changedByOthers: readonly string[];
  /** Why the nodes of a set can never follow the service again; null: no reason is known. */
  cannotFollow: string | null;
}>;

/** A stop waits for so long for the servers to be healthy, as the operator does. */
export const FENCE_AFTER_MS = 30_000;

export function decide(spec: ServiceSpec, observed: Observed, known: Known): Step {
  const { cluster } = observed;
  const desired = wantedOf(spec, observed, known);
  if (cluster === null) return decideCreate(spec, desired, observed, known);
  if (cluster.leaving) return wait(STEPS.remove, 'the Cluster of the same name is being deleted');
  const otherMajor = otherMajorOf(cluster.desired, desired);
  // The operator would convert the data, with no way back.
  if (otherMajor !== null) return { kind: 'refuse', why: otherMajor };
  // All that it has may be in the copy, which accepts writes in another moment.
  if (cluster.stoppedByMove && spec.move?.as === 'source' && !spec.move.isAborted)
    return wait(STEPS.start, STOPPED);
  const stop = decidePoolerStop(spec, observed.pooler);
  if (stop !== null) return stop;
  const change = changeOf(cluster.desired, desired);
  if (isRestartAsked(cluster.desired, desired) && known.changedByOthers.length > 0) {
    const detail = fewOf(known.changedByOthers);
    return { kind: 'takeBack', name: STEPS.takeBack, detail, desired: cluster.desired };
  }
  if (change !== null && !mustWaitForStandby(cluster, desired)) return { kind: 'write', ...change };
  const { awaited } = cluster;
  if (desired.running && cluster.stoppedByMove)
    return spec.move === undefined
      ? wait(STEPS.start, `${STOPPED}: howdah service restart starts it again`, true)
      : { kind: 'unfence', name: STEPS.start };
  if (desired.running && known.cannotFollow !== null)
    return { kind: 'rebuild', name: STEPS.rebuild, why: known.cannotFollow };
  if (awaited !== null) return decideAwaited(cluster, awaited, desired, observed, known);
  if (!desired.running) return { kind: 'settled' };
  // The operation of a failover ends with the report of it.
  if (known.isFailingOver) return wait(STEPS.failOver, whyStill(cluster, desired, known));
  if (!isUp(cluster, observed.servers, desired)) return { kind: 'expect', name: STEPS.start };
  // The endpoint of a copy is not in use yet.
  if (desired.source !== undefined) return { kind: 'settled' };
  if (!known.isReachable) return { kind: 'connect', name: STEPS.connect };
  return (
    planned(spec, cluster, observed.servers, known) ??
    decidePooler(spec, observed.pooler, known.pooler) ?? { kind: 'settled' }
  );
}

const STOPPED = 'a move to another region has stopped it';

function wantedOf(spec: ServiceSpec, observed: Observed, known: Known): Desired {
  const { cluster } = observed;
  const desired = contentOf(spec, observed, known);
  const { placed } = known;
  // A volume that is made of a snapshot has the WAL that it needs.
  const isRestored = desired.snapshot !== undefined;
  const walClass = cluster === null ? (isRestored ? null : placed.walClass) : cluster.walClass;
  const isRecovered = desired.parent === spec.id || cluster?.desired?.recovered === true;
  const before = cluster?.desired ?? null;
  const { boundsCpu, ...place } = keptPlace(before, desired, placed);
  const bound = desired.size !== null && (desired.bound ?? boundsCpu);
  return placedAt(
    boundAs({ ...desired, ...(isRecovered ? { recovered: true } : {}) }, before, bound),
    { ...place, walClass },
  );
}

/**
 * Where its pods run, and whether their region bounds them. Another place would replace them, so it
 * begins with a start that is due anyway, as another image does.
 */
function keptPlace(
  before: Desired | null,
  desired: Desired,
  placed: Omit<Placed, 'walClass'>,
): Omit<Placed, 'walClass'> {
  const goesOn =
    before !== null &&
    (!desired.running || (before.running && restartWhy(before, desired) === null));
  return goesOn
    ? {
        placement: before.placement ?? {},
        pulls: before.pulls === true,
        boundsCpu: before.bound === true,
      }
    : { placement: placed.placement, pulls: placed.pulls, boundsCpu: placed.boundsCpu };
}

/** All of the desired state but where its pods run. */
function contentOf(spec: ServiceSpec, observed: Observed, known: Known): Desired {
  const { cluster, servers, parent } = observed;
  const before = cluster?.desired ?? null;
  // A read replica set archives nothing: its service does.
  if (spec.set !== null) return desiredOfSet(spec, spec.set, parent, before);
  const { targetTime } = before ?? {};
  // The servers of a recovery were started with its mark.
  const started = {
    ...boundAs(desiredOf(spec), before, before?.bound === true),
    ...(targetTime === undefined ? {} : { targetTime }),
  };
  const hasStarted = cluster?.awaited === null && isUp(cluster, servers, started);
  const source = sourceOf(spec, observed, hasStarted);
  // Snapshots of two volumes are not of one moment.
  const hasWalVolume =
    cluster === null ? known.placed.walClass !== null : cluster.walClass !== null;
  const snapshotClass = hasWalVolume && source?.snapshot == null ? null : known.snapshotClass;
  const desiredWith = (archives: boolean): Desired =>
    desiredOf(spec, source, snapshotClass, archives);
  // A copy archives nothing while it follows. Then it gets its archive like any other service.
  if (spec.move?.as === 'copy') return desiredWith(false);
  return desiredWith(archives(before, known, desiredWith(false)));
}

function decideCreate(spec: ServiceSpec, desired: Desired, observed: Observed, known: Known): Step {
  const { parent, servers } = observed;
  if (!desired.running) return { kind: 'settled' };
  if (spec.set !== null) return decideCreateSet(desired, spec.set, parent, servers);
  // A new Cluster under its name would be empty.
  if (spec.provisioned && spec.recovery === null)
    return { kind: 'refuse', why: known.hasArchive ? LOST_BUT_ARCHIVED : LOST };
  if (spec.recovery !== null && servers.length > 0)
    return wait(STEPS.create, 'its pods of before are ending');
  if (spec.origin?.strategy === 'LAST_SNAPSHOT' && desired.snapshot === undefined)
    return wait(STEPS.create, noSnapshotOf(spec.origin.parent), true);
  if (desired.targetTime !== undefined && desired.archives !== true)
    return wait(STEPS.create, NO_STORE, true);
  if (spec.origin?.strategy === 'NOW' && desired.parent !== undefined) {
    const step = decideSnapshot(desired.parent, observed, known.snapshotClass);
    if (step !== null) return step;
  }
  const detail = `PostgreSQL ${spec.major}${dataOf(desired, observed, known)}`;
  return { kind: 'write', name: STEPS.create, awaits: false, detail, desired };
}

function dataOf(
  desired: Desired,
  { backup, whyNoBackup }: Observed,
  { snapshotClass }: Known,
): string {
  if (desired.source !== undefined) return ' that follows the service';
  if (desired.parent === undefined) return '';
  if (desired.recovered === true) return ' with its data of the object store';
  const data = ` with the data of ${desired.parent}`;
  const isCopied = desired.snapshot === undefined && desired.targetTime === undefined;
  const why = backup?.problem ?? whyNoBackup;
  return isCopied && snapshotClass !== null && why !== null
    ? `${data}, which is copied without a snapshot: ${why}`
    : data;
}

/** A set has no data of its own: whenever its Cluster is gone, it is made again. */
function decideCreateSet(
  desired: Desired,
  { parent: id, nodes }: ReplicaSet,
  parent: ClusterState | null,
  servers: readonly ServerState[],
): Step {
  if (servers.length > 0) return wait(STEPS.create, 'its pods of before are ending');
  const why = whyNotCopied(id, parent, 'set');
  if (why !== null) return wait(STEPS.create, why, true);
  const detail = `${nodes === 1 ? '1 node' : `${nodes} nodes`} with the data of ${id}`;
  return { kind: 'write', name: STEPS.create, awaits: false, detail, desired };
}

/**
 * Whether WAL is archived. The plugin is a container of the pod, so that a running service gets it
 * when its pod is replaced anyway: nobody's sessions end since an administrator sets a store. It
 * never loses it, also while the cluster does not say what it has, or what was desired.
 */
function archives(
  before: Desired | null,
  { canArchive, hasArchive }: Pick<Known, 'canArchive' | 'hasArchive'>,
  desired: Desired,
): boolean {
  if (before === null) return canArchive || hasArchive;
  if (before.archives === true) return true;
  const isReplaced = !before.running || restartWhy(before, desired) !== null;
  return canArchive && desired.running && isReplaced;
}

/** Whether a standby is still being added, and only writes must begin to wait for it. */
function mustWaitForStandby({ desired: before, awaited }: ClusterState, desired: Desired): boolean {
  return (
    awaited === STEPS.addStandby &&
    before !== null &&
    before.sync < desired.sync &&
    isDeepStrictEqual({ ...before, sync: desired.sync }, desired)
  );
}

/** A change of the primary that was asked for; null: none was, or no standby can take over. */
function planned(
  { ha }: ServiceSpec,
  cluster: ClusterState,
  servers: readonly ServerState[],
  { isSwitchoverAsked }: Known,
): Step | null {
  const to = chooseStandby(cluster, servers);
  if (to === null || ha === null) return null;
  if (isSwitchoverAsked) return { kind: 'switchOver', name: switchOverTo(to), to };
  return ha.drill === null ? null : { kind: 'drill', name: STEPS.drill, drill: ha.drill, to };
}

/**
 * The standby that becomes the primary as asked. All are as good: before one is promoted, the
 * operator stops the primary, which sends all its WAL to them first.
 */
export function chooseStandby(
  { primary }: ClusterState,
  servers: readonly ServerState[],
): number | null {
  const standby = servers.find(({ n, ready, leaving }) => n !== primary && ready && !leaving);
  return primary === null ? null : (standby?.n ?? null);
}

const NO_STORE =
  'its region has no object store any more, or its cluster no Barman Cloud plugin: howdah region ' +
  'doctor says more';

const noSnapshotOf = (parent: string): string =>
  `its parent ${parent} has no snapshot; delete the fork, and fork with the strategy NOW`;

const LOST =
  'its Cluster is gone, with its data: restore the Cluster and its volumes by a backup of the ' +
  'Kubernetes cluster, or delete the service';

const LOST_BUT_ARCHIVED =
  'its Cluster is gone, with its volumes. The object store of its region has its archive: howdah ' +
  'service recover brings it back, with its id, port and password';

/** Why data cannot be started by the major version that is wanted; null: it can. */
function otherMajorOf(before: Desired | null, { major }: Desired): string | null {
  const found = before?.major ?? null;
  if (found === null || major === null || found === major) return null;
  return (
    `its data is of PostgreSQL ${found}, and ${major} was asked for: ` +
    'services on Kubernetes stay in their major version'
  );
}

/** Whether what the operator was asked for is done. */
function decideAwaited(
  cluster: ClusterState,
  name: string,
  desired: Desired,
  observed: Observed,
  known: Known,
): Step {
  const { servers } = observed;
  const isDone = desired.running ? isUp(cluster, servers, desired) : isDown(cluster, servers);
  const to = switchoverIn(name);
  // The request of a switchover did not reach the operator, or the operator has given it up.
  if (isDone && to !== null && known.isSwitchoverAsked && cluster.primary !== to)
    return { kind: 'switchOver', name, to };
  if (isDone) return { kind: 'ended', name, detail: detailOf(cluster, desired) };
  if (!desired.running && cluster.fenced) return { kind: 'expectSilence', name };
  if (!desired.running && cluster.waitsForHealthy)
    return known.waitedMs < FENCE_AFTER_MS
      ? wait(name, observed.obstacle ?? phaseOf(cluster))
      : { kind: 'fence', name };
  const obstacle = obstacleOf(desired, observed);
  return wait(name, obstacle ?? whyStill(cluster, desired, known), obstacle !== null);
}

/**
 * Why the operator has not ended. A former primary archives all its WAL before it follows another
 * one (docs/cloudnativepg.md, P8).
 */
function whyStill(
  cluster: ClusterState,
  { replicas }: Desired,
  { archiveProblem }: Pick<Known, 'archiveProblem'>,
): string {
  const phase = phaseOf(cluster);
  return replicas === 0 || archiveProblem === null
    ? phase
    : `${phase}; a former primary follows once its WAL is archived: ${archiveProblem}`;
}

/** The reason why a Cluster does not become as desired; null: none is known. */
function obstacleOf(desired: Desired, { servers, obstacle, parent }: Observed): string | null {
  // A fork with a pod of its own has the data. A snapshot and an archive need no server.
  const needsNoServer = desired.snapshot !== undefined || desired.targetTime !== undefined;
  const isCopied = servers.length > 0 || needsNoServer;
  const copied = desired.parent ?? desired.set?.parent;
  if (copied === undefined || !desired.running || isCopied) return obstacle;
  return whyNotCopied(copied, parent, desired.set === undefined ? 'fork' : 'set') ?? obstacle;
}

/**
 * Whether all servers run as desired. `Ready` and the phase are not enough: a Cluster that is
 * hibernated, or resumes, is healthy and ready in both.
 */
function isUp(cluster: ClusterState, servers: readonly ServerState[], desired: Desired): boolean {
  const wanted = 1 + desired.replicas;
  const staying = servers.filter(({ leaving }) => !leaving);
  return (
    cluster.phase === HEALTHY &&
    !cluster.hibernated &&
    !cluster.isChangingPrimary &&
    cluster.ready === wanted &&
    staying.length === wanted &&
    staying.every((server) => server.ready && isCurrent(server, desired))
  );
}

/** A server that still has its size of before is about to be replaced. */
function isCurrent({ limits, restarts }: ServerState, desired: Desired): boolean {
  const { size } = desired;
  if (restarts !== null && restarts !== restartMarkOf(desired)) return false;
  return size === null || isAmount(limits['memory'], size.memoryGbs);
}

/** Kubernetes writes a quantity in the shortest form: 2Gi stays 2Gi, 0.5Gi becomes 512Mi. */
function isAmount(memory: string | undefined, gigabytes: number): boolean {
  const [, number, unit] = /^(\d+)(Gi|Mi)$/.exec(memory ?? '') ?? [];
  return Number(number) * (unit === 'Mi' ? 1 / 1024 : 1) === gigabytes;
}

function isDown(cluster: ClusterState, servers: readonly ServerState[]): boolean {
  return cluster.hibernated && servers.length === 0;
}

function detailOf({ primary }: ClusterState, { running, replicas, set }: Desired): string {
  if (!running) return 'all servers are stopped, the volumes are kept';
  if (set !== undefined) return `${1 + replicas} nodes follow ${set.parent}`;
  const detail = `member ${primary} is the primary`;
  return replicas === 0 ? detail : `${detail}, with ${replicas} standbys`;
}

/** The state in the words of CloudNativePG, for users. */
export function phaseOf({ phase, phaseReason }: ClusterState): string {
  const reason = phaseReason === null ? '' : ` (${phaseReason})`;
  return `CloudNativePG: ${phase ?? 'no answer yet'}${reason}`;
}

// The desired state of a read replica set, which depends on the service that it follows.

/**
 * @param parent the Cluster of the service that it follows; null: there is none
 * @param before what was written of the set; null: nothing
 */
export function desiredOfSet(
  spec: ServiceSpec,
  { parent: id, nodes, purpose }: ReplicaSet,
  parent: ClusterState | null,
  before: Desired | null,
): Desired {
  const { reader: _reader, control: _control, ...desired } = desiredOf(spec);
  const followed = parent?.desired ?? null;
  return {
    ...desired,
    major: followed?.major ?? spec.major,
    replicas: nodes - 1,
    // The data of a set grows with that of the service, and no volume shrinks.
    storageGb: Math.max(spec.storageGb, followed?.storageGb ?? 0, before?.storageGb ?? 0),
    set: { parent: id, purpose, limits: limitsOfSet(spec, followed, before?.set?.limits ?? {}) },
  };
}

/** Never less than before: the service may have the larger ones for some time yet. */
function limitsOfSet(spec: ServiceSpec, followed: Desired | null, before: Limits): Limits {
  const preload = loadedLibraries(spec);
  const own = limitsOf({ ...spec, preload, size: spec.size === 'shared' ? null : spec.size });
  return largestOf([own, followed === null ? {} : limitsOf(followed), before]);
}

// How a fork of now gets the data of its parent: by a snapshot of its volume, which takes the same
// time for any size, and after which the fork needs its parent no more. That of a running parent is
// a backup. Without a class for snapshots, or without success, a running parent is copied.

type ForkStep =
  /** Takes a snapshot of the volume of the parent's primary. */
  | Readonly<{ kind: 'snapshot'; name: string; parent: string; primary: number }>
  /** Has the operator take one of the parent while it runs. */
  | Readonly<{ kind: 'backUp'; name: string; parent: string; primary: number }>
  /** The snapshot is taken, or it cannot be; `of` says what has the name of the step. */
  | Readonly<{ kind: 'taken'; name: string; of: 'volume' | 'backup'; detail: string }>;

type Parent = Pick<Observed, 'parent' | 'whyNoBackup'>;

/** @returns null: there is nothing left to take; the fork can be made */
function decideSnapshot(
  id: string,
  { parent, snapshot, backup, whyNoBackup }: Parent & Pick<Observed, 'snapshot' | 'backup'>,
  snapshotClass: string | null,
): ForkStep | Wait | null {
  const taken = (of: 'volume' | 'backup', detail: string): ForkStep => ({
    kind: 'taken',
    name: STEPS.snapshot,
    of,
    detail,
  });
  const why = whyNotCopied(id, parent);
  const failure = backup?.problem ?? null;
  if (snapshot === null && failure !== null && backup?.isAwaited === true)
    return taken('backup', `none of ${id}, which is copied if it runs: ${failure}`);
  const found = snapshot ?? (failure === null ? backup : null);
  if (found !== null) {
    const obstacle = snapshot === null ? why : snapshot.problem;
    if (!found.ready)
      return wait(STEPS.snapshot, obstacle ?? 'it is being taken', obstacle !== null, TAKING_MS);
    const of = snapshot === null ? 'backup' : 'volume';
    const detail = `of the volume of ${id}${of === 'backup' ? ', which runs' : ''}`;
    return found.isAwaited ? taken(of, detail) : null;
  }
  const isWhole = parent !== null && isStopped(parent) && parent.walClass === null;
  const primary = isWhole ? parent.primary : null;
  if (snapshotClass !== null && primary !== null)
    return { kind: 'snapshot', name: STEPS.snapshot, parent: id, primary };
  if (why !== null) return wait(STEPS.create, why, true);
  if (backup !== null || snapshotClass === null || whyNoBackup !== null) return null;
  if (parent === null || parent.primary === null || parent.isChangingPrimary)
    return wait(STEPS.snapshot, `the primary of its parent ${id} is changing`, false, TAKING_MS);
  return { kind: 'backUp', name: STEPS.snapshot, parent: id, primary: parent.primary };
}

/** How soon a snapshot is looked at again, beside the events of backups. */
const TAKING_MS = 1000;

/** Whether a fork begins with a snapshot. */
export const beginsWithSnapshot = ({
  parent,
  whyNoBackup,
  snapshotClass,
}: Parent & Readonly<{ snapshotClass: string | null }>): boolean =>
  snapshotClass !== null && parent !== null && (isStopped(parent) || whyNoBackup === null);

// The verdict of a decision that nothing can be done yet.

/** `what`: the step that has not ended; `isObstacle`: it cannot end by itself. */
type Wait = Readonly<{
  kind: 'wait';
  what: string;
  why: string;
  isObstacle: boolean;
  waitMs: number;
}>;

/** How soon a Cluster that changes is looked at again, beside the events of watches. */
const SOON_MS = 200;

const wait = (what: string, why: string, isObstacle = false, waitMs = SOON_MS): Wait => ({
  kind: 'wait',
  what,
  why,
  isObstacle,
  waitMs,
});
