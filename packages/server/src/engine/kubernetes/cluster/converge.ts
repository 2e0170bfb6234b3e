/** One step of a service towards its spec, or towards its removal. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type BeginStep, type Seen, type Verdict, EngineUnavailable } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { FENCED, FENCED_ALL } from './manifest.ts';
import { AWAITED, clusterName, setName, namespaceOf } from '../names.ts';
import { nameOf } from '../region/storage-classes.ts';
import type { Region } from '../region/region.ts';
import { askWhetherItAnswers, askChallenge, saltOf } from '../network/challenge.ts';
import { newestSnapshot } from '../backup/state.ts';
import { isRestartAsked } from './cluster-change.ts';
import { requestPrimary, runDrill } from './change-primary.ts';
import { decide, type Known, type Step } from './decide.ts';
import { mayHaveSnapshot } from '../backup/fork.ts';
import { whyNotFollowing } from './set.ts';
import {
  placesIn,
  writeObjects,
  writeSetObjects,
  changesToTakeBack,
  noteChanges,
  writeCluster,
} from './objects.ts';
import {
  PROVISIONED,
  STOPPED_BY_MOVE,
  type ClusterState,
  type Observed,
  VOLUME_FULL,
} from './state.ts';
import {
  knownPooler,
  limitPooler,
  poolerPlace,
  removePooler,
  startPooler,
  stopPooler,
} from '../pooler/pooler.ts';
import { writeRoute } from '../network/routes.ts';
import {
  endOriginSnapshot,
  findOriginBackup,
  findOriginSnapshot,
  ownOrigin,
  removeOrigin,
  removeUnusedBackup,
  takeOriginBackup,
  takeOriginSnapshot,
  whyBackupUnknown,
  whyNotBackedUp,
} from '../backup/origin-snapshots.ts';
import { whyUnread } from '../backup/object-store.ts';
import { STEPS } from './steps.ts';
import {
  again,
  AWAY_MS,
  CONNECT_AGAIN_MS,
  failed,
  OBSTACLE_MS,
  overdue,
  STEP_MS,
  waitForCluster,
} from './verdicts.ts';
import { readOutput, type Extent, type LogSource } from '../logs/pod-log.ts';

/** Makes one step towards the spec. */
export async function convergeOnce(
  region: Region,
  spec: ServiceSpec,
  begin: BeginStep,
): Promise<Verdict> {
  // Otherwise a Cluster would be written without the class, and again with it.
  await region.classesRead;
  const observed = observe(region, spec.id, spec.origin?.parent ?? spec.set?.parent);
  const seen = seenOf(region, spec.id, observed);
  const stale =
    region.cache.staleWhy() ??
    whyUnread(region, spec, observed.cluster) ??
    whyBackupUnknown(region, spec, observed.cluster);
  if (stale !== null) {
    region.answers.ask();
    return (
      overdue(region, spec.id, 'read the cluster', AWAY_MS, { seen, why: stale }) ??
      again(seen, stale)
    );
  }
  const { projectId } = spec;
  if (projectId === null)
    return { did: null, detail: null, seen, outcome: 'failed', reason: NO_SPARES, isFinal: true };
  const owned = { ...spec, projectId };
  const backup = findOriginBackup(region, spec);
  let snapshot: Observed['snapshot'] = null;
  try {
    if (observed.cluster !== null) await removeUnusedBackup(region, owned, observed.cluster);
    // One of the volume is taken only where a backup has failed, or was not asked for.
    if (mayHaveSnapshot(spec, observed.cluster) && (backup === null || backup.problem !== null))
      snapshot = await findOriginSnapshot(region, spec.id);
  } catch (error) {
    return failed(region, spec.id, STEPS.create, seen, error);
  }
  const known = await knownOf(region, owned, observed);
  const step = decide(spec, { ...observed, snapshot, backup }, known);
  switch (step.kind) {
    case 'settled':
      region.waiting.delete(spec.id);
      noteChanges(region, owned, observed.cluster);
      return { did: null, detail: null, seen, outcome: 'settled' };
    case 'wait':
      return waitFor(region, owned, step, seen);
    case 'refuse':
      return { did: null, detail: null, seen, outcome: 'failed', reason: step.why };
    default:
      await begin(step.name, seen);
      return perform(region, owned, step, seen);
  }
}

async function knownOf(region: Region, spec: Owned, { cluster }: Observed): Promise<Known> {
  const { reached, waiting, failovers, records, snapshotClass } = region;
  const { placementOf, imagePull, walStorageClass } = region.settings;
  const { id, ha } = spec;
  const waits = waiting.get(id);
  return {
    isReachable: reached.has(id),
    isFailingOver: failovers.isRunning(id),
    // A failover since the spec was read has satisfied the request.
    isSwitchoverAsked: ha?.switchover === true && (await records.read(id))?.switchover === true,
    // A class that is gone for a moment changes no Cluster.
    snapshotClass: nameOf(snapshotClass()) ?? cluster?.desired?.snapshotClass ?? null,
    placed: {
      boundsCpu: region.settings.boundsCpu,
      placement: placementOf(spec.set?.parent ?? id, id),
      pulls: imagePull !== null,
      walClass: walStorageClass,
    },
    canArchive: region.objectStore() !== null && region.cache.hasPlugin() === true,
    hasArchive: region.cache.archive(id) !== null,
    archiveProblem: region.archiveProblem(id),
    waitedMs:
      waits !== undefined && waits.what === cluster?.awaited ? Date.now() - waits.sinceMs : 0,
    pooler: knownPooler(region, spec, cluster),
    changedByOthers: changesToTakeBack(region, spec, cluster),
    cannotFollow: spec.set === null ? null : await whyNotFollowing(region, id),
  };
}

const NO_SPARES =
  'a service on Kubernetes is in the namespace of its project, and this one has none';

type Owned = ServiceSpec & { readonly projectId: string };
type Work = Exclude<Step, { kind: 'settled' | 'wait' | 'refuse' }>;

async function perform(region: Region, spec: Owned, step: Work, seen: Seen): Promise<Verdict> {
  const after = (did: string | null, detail: string): Verdict => ({
    did,
    detail,
    seen: seenOf(region, spec.id, observe(region, spec.id)),
    outcome: 'again',
    waitMs: 0,
  });
  // Keeping the logs takes seconds, so the step is made by what is seen after it.
  if (endsPods(step) && region.cache.cluster(spec.id) !== null)
    await region.logKeeper.keepBefore(spec.id);
  const { cluster } = observe(region, spec.id);
  try {
    switch (step.kind) {
      case 'write':
        region.reached.delete(spec.id);
        await write(region, spec, step, cluster);
        if (!step.awaits) return after(step.name, step.detail);
        // In this order: the end of a change that was not written would never come.
        await annotate(region, spec, { [AWAITED]: step.name });
        return after(null, step.detail);
      case 'snapshot':
        await takeOriginSnapshot(region, spec, step);
        return after(null, `of the volume of ${step.parent}`);
      case 'backUp':
        await takeOriginBackup(region, spec, step);
        region.waiting.delete(spec.id);
        return after(null, `of the volume of ${step.parent}, which runs`);
      case 'taken':
        await endOriginSnapshot(region, spec, step.of);
        region.waiting.delete(spec.id);
        return after(step.name, step.detail);
      case 'takeBack':
        await writeCluster(region, spec, step.desired, 'taken back');
        return after(step.name, step.detail);
      case 'expect':
        region.reached.delete(spec.id);
        await annotate(region, spec, { [AWAITED]: step.name });
        return after(null, 'CloudNativePG starts it');
      case 'ended':
        // Before the step has ended: its change of the primary is no failover.
        if (cluster !== null && cluster.instances > 1 && spec.set === null)
          await region.failovers.record(spec.id, cluster);
        await annotate(region, spec, { [AWAITED]: null });
        region.waiting.delete(spec.id);
        return after(step.name, step.detail);
      case 'connect':
        // Here, since a service that somebody has taken the route from needs no other step.
        await writeRoute(region, spec, 'servers');
        if (spec.pooler !== null) await writeRoute(region, spec, 'pooler');
        await connect(region, spec, cluster?.provisioned ?? false);
        await provision(region, spec);
        region.reached.add(spec.id);
        return after(step.name, `${spec.endpoint.host}:${spec.endpoint.port}`);
      case 'fence':
        await annotate(region, spec, { [FENCED]: FENCED_ALL });
        return after(null, 'not all servers are healthy: PostgreSQL is stopped in their pods');
      case 'unfence':
        await liftFence(region, spec, cluster);
        return after(step.name, 'PostgreSQL starts in its pods, which have stayed');
      case 'rebuild':
        await removeCluster(region, spec, cluster?.uid ?? '');
        return after(step.name, step.why);
      case 'expectSilence':
        return await expectSilence(region, spec, step.name, seen);
      case 'startPooler':
        return await bringUpPooler(region, spec, step.name, seen, after);
      case 'stopPooler':
        return after(
          step.name,
          cluster === null ? 'its Cluster is gone' : await stopPooler(region, spec, cluster),
        );
      case 'switchOver':
      case 'drill':
        return await changePrimary(region, spec, step, after);
    }
  } catch (error) {
    return failed(region, spec.id, step.name, seen, error);
  }
}

const endsPods = (step: Work): boolean =>
  step.kind === 'fence' || step.kind === 'rebuild' || (step.kind === 'write' && step.awaits);

/** Writes the Cluster, what must be so before, and what is left of before. */
async function write(
  region: Region,
  spec: Owned,
  { desired }: Extract<Work, { kind: 'write' }>,
  cluster: ClusterState | null,
): Promise<void> {
  const { id, power, projectId, pooler, set } = spec;
  // First: a Cluster that must run is not left without PostgreSQL.
  if (cluster?.fenced === true && power === 'running') await annotate(region, spec, NOT_FENCED);
  // First: nothing would look for it later.
  if (desired.parent === undefined) await removeOrigin(region, spec, cluster?.desired ?? {});
  if (cluster !== null) await limitPooler(region, spec, cluster);
  // A copy of a move has no other step, and is reached before it is promoted.
  await writeRoute(region, spec, 'servers');
  await (set === null
    ? writeObjects(region, spec, projectId, desired)
    : writeSetObjects(region, id, projectId));
  const isAsked = isRestartAsked(cluster?.desired ?? null, desired);
  await writeCluster(region, spec, desired, isAsked ? 'taken back' : 'left');
  if (desired.parent !== undefined) await ownOrigin(region, spec, desired);
  // Disabled while the service was paused.
  if (pooler === null && region.cache.pooler(id) !== null) await removePooler(region, spec);
}

/** Ends a stop once no server answers: a fenced server is ready (docs/cloudnativepg.md, fact 3). */
async function expectSilence(
  region: Region,
  spec: Owned,
  name: string,
  seen: Seen,
): Promise<Verdict> {
  const { authority, settings } = region;
  const answers = await askWhetherItAnswers(spec.endpoint, authority.certificatePem, settings);
  if (answers !== false) {
    const why = answers === true ? STILL_ANSWERS : `${UNKNOWN}: ${answers.unknown}`;
    return overdue(region, spec.id, name, STEP_MS, { seen, why }) ?? again(seen, why);
  }
  await annotate(region, spec, { [AWAITED]: null });
  region.waiting.delete(spec.id);
  const detail = 'PostgreSQL is stopped in its pods, which stay: not all of them were healthy';
  return { did: name, detail, seen, outcome: 'again', waitMs: 0 };
}

const STILL_ANSWERS = 'PostgreSQL still answers at the endpoint, and must be stopped';
const UNKNOWN = 'the TLS gateway does not say whether PostgreSQL has stopped';

type After = (did: string | null, detail: string) => Verdict;

async function bringUpPooler(
  region: Region,
  spec: Owned,
  name: string,
  seen: Seen,
  after: After,
): Promise<Verdict> {
  const { cluster } = observe(region, spec.id);
  if (cluster === null) return after(null, 'its Cluster is gone');
  const waits = await startPooler(region, spec, cluster, name);
  if (waits !== null) {
    const { why, isObstacle } = waits;
    return (
      overdue(region, spec.id, name, isObstacle ? OBSTACLE_MS : STEP_MS, { seen, why }) ??
      again(seen, why, CONNECT_AGAIN_MS)
    );
  }
  region.waiting.delete(spec.id);
  return after(name, poolerPlace(region, spec));
}

async function changePrimary(
  region: Region,
  spec: Owned,
  step: Extract<Step, { kind: 'switchOver' | 'drill' }>,
  after: After,
): Promise<Verdict> {
  const { cluster: before } = observe(region, spec.id);
  await region.logKeeper.keepBefore(spec.id);
  const { cluster } = observe(region, spec.id);
  if (cluster === null) return after(null, 'its Cluster is gone');
  // Meanwhile: it was decided for another primary.
  if (cluster.primary !== before?.primary || cluster.isChangingPrimary)
    return after(null, 'its primary has changed');
  if (step.kind === 'drill') {
    // Taken before it begins: one that is interrupted does not kill another primary.
    if (!(await region.records.takeDrill(spec.id))) return after(null, 'the drill is over');
    region.reached.delete(spec.id);
    return after(step.name, await runDrill(region, spec, cluster, step));
  }
  region.reached.delete(spec.id);
  // First: its end is waited for also by a control plane that does not know of the request.
  if (cluster.awaited !== step.name) await annotate(region, spec, { [AWAITED]: step.name });
  await requestPrimary(region, spec.id, step.to);
  return after(null, `CloudNativePG makes member ${step.to} the primary`);
}

/** Nobody else has changed the Cluster since: another move may have stopped it again. */
async function liftFence(region: Region, spec: Owned, cluster: ClusterState | null): Promise<void> {
  region.reached.delete(spec.id);
  await annotate(region, spec, NOT_FENCED, cluster?.version);
}

const NOT_FENCED = { [FENCED]: null, [STOPPED_BY_MOVE]: null } as const;

/**
 * @param annotations null removes one
 * @param resourceVersion the version that it must still have; by default, any
 */
async function annotate(
  { kube, cache }: Region,
  spec: Owned,
  annotations: Readonly<Record<string, string | null>>,
  resourceVersion?: string,
): Promise<void> {
  const unchanged = resourceVersion === undefined ? {} : { resourceVersion };
  cache.put(await kube.merge(placeOf(spec), { metadata: { annotations, ...unchanged } }));
}

/** Ends the sessions of others, and records that users may write to a service from now on. */
async function provision(region: Region, spec: Owned): Promise<void> {
  // Nodes of a set are restarted for other networks, and have no data of their own.
  if (spec.set !== null) return;
  const { id, allowedNetworks, pooler } = spec;
  if (allowedNetworks !== null) await region.guard.enforce(id, allowedNetworks, pooler !== null);
  await annotate(region, spec, { [PROVISIONED]: 'true' });
}

/** Deletes the Cluster of a set, and waits until the next step is decided without it. */
async function removeCluster(region: Region, spec: Owned, uid: string): Promise<void> {
  const { kube, cache } = region;
  region.reached.delete(spec.id);
  region.followChecks.delete(spec.id);
  region.waiting.delete(spec.id);
  await kube.remove(placeOf(spec));
  const endMs = Date.now() + NOTICED_WITHIN_MS;
  const isThere = (found: ClusterState | null): boolean => found?.uid === uid && !found.leaving;
  while (isThere(cache.cluster(spec.id)) && Date.now() < endMs) await sleep(NOTICED_MS);
}

/** As long as an answer of the API server may take. */
const NOTICED_WITHIN_MS = 30_000;
const NOTICED_MS = 20;

const placeOf = ({ id, projectId, set }: Owned): Place =>
  placesIn(projectId)(KINDS.cluster, set === null ? clusterName(id) : setName(id));

function observe(region: Region, id: string, parent?: string): Observed {
  const { cache } = region;
  return {
    parent: parent === undefined ? null : cache.cluster(parent),
    cluster: cache.cluster(id),
    servers: cache.servers(id),
    obstacle: cache.obstacle(id),
    snapshot: null,
    backup: null,
    whyNoBackup: whyNotBackedUp(region, parent),
    newestSnapshot: parent === undefined ? null : newestSnapshot(cache.backups(parent)),
    pooler: cache.pooler(id),
  };
}

function seenOf({ reached, failovers }: Region, id: string, { cluster, servers }: Observed): Seen {
  const primary = cluster?.primary ?? null;
  // A standby that is ready does not have the endpoint.
  const isReady = servers.some(({ n, ready }) => ready && (primary === null || n === primary));
  return {
    reachable: reached.has(id) && isReady && !failovers.isRunning(id),
    present: cluster !== null || servers.length > 0,
    provisioned: cluster?.provisioned ?? false,
  };
}

// The step `connect`: PostgreSQL answers at the endpoint of a service.

/**
 * Has PostgreSQL answer at the endpoint, of a new service with its first password: before the
 * operator sets that, a fork lets in with the password of its parent.
 *
 * @throws EngineUnavailable with the reason
 */
async function connect(
  { authority }: Region,
  { endpoint, firstVerifier, provisioned, allowedNetworks }: ServiceSpec,
  isProvisioned: boolean,
): Promise<void> {
  const challenge = await askChallenge(endpoint, authority.certificatePem).catch(
    (error: unknown) => {
      if (allowedNetworks === null || !(error instanceof EngineUnavailable)) throw error;
      throw new EngineUnavailable(`${error.message}${ONE_NODE}`, { cause: error });
    },
  );
  if (challenge.kind === 'disallowed' && allowedNetworks === null)
    throw new EngineUnavailable('PostgreSQL has not loaded yet that all networks are allowed');
  if (provisioned || isProvisioned || firstVerifier === null || challenge.kind === 'disallowed')
    return;
  if (challenge.salt !== saltOf(firstVerifier))
    throw new EngineUnavailable('CloudNativePG has not set its password yet');
}

const ONE_NODE =
  '; a service with allowed networks answers at the node of its primary only, and its pooler at ' +
  'that of its pod, so the host of the region must lead to those';

// The steps that are CloudNativePG's: how long they may take, and why they do not end.

/** A copy of a parent's data may take longer, by this for each gigabyte of the volume. */
const COPY_GIGABYTE_MS = 20_000;

/** Waits for what CloudNativePG does, and fails the step once that lasts too long. */
async function waitFor(
  region: Pick<Region, 'kube' | 'waiting' | 'answers'>,
  spec: ServiceSpec & { readonly projectId: string },
  { what, why, isObstacle, waitMs }: Extract<Step, { kind: 'wait' }>,
  seen: Seen,
): Promise<Verdict> {
  const limitMs = isObstacle ? OBSTACLE_MS : limitOf(spec);
  const verdict = (reason: string): Verdict =>
    waitForCluster(region, spec.id, what, limitMs, { seen, why: reason, waitMs });
  const first = verdict(why);
  if (first.outcome !== 'failed') return first;
  return verdict(await explainCrash(region.kube, namespaceOf(spec.projectId), why));
}

/** How long CloudNativePG may take for a step. */
const limitOf = (spec: ServiceSpec): number => {
  const { origin, set, move, recovery, provisioned, storageGb } = spec;
  const isCopied = origin !== null || set !== null || move?.as === 'copy';
  const isLong = recovery !== null || (isCopied && !provisioned);
  return STEP_MS + (isLong ? storageGb * COPY_GIGABYTE_MS : 0);
};

// Why a server ends again and again, where only its log has the reason.

const CRASHED = /^pod (\S+): CrashLoopBackOff\b/;
/**
 * The texts of ENOSPC and of EDQUOT. A volume that is limited by a quota has the latter, for which
 * CloudNativePG has no exit status (docs/cloudnativepg.md, fact 42).
 */
const NO_SPACE = /No space left on device|Disk quota exceeded/;
const LAST: Extent = { lines: 100, bytes: 64 * 1024 };
/** The node may not answer, and the step is shown without the reason then. */
const WITHIN_MS = 5000;

/**
 * @param why an obstacle of the service
 * @returns it, or that the volume is full. Users can write to the log, so nothing else depends on
 *   it
 */
export async function explainCrash(
  kube: LogSource,
  namespace: string,
  why: string,
): Promise<string> {
  const name = CRASHED.exec(why)?.[1];
  if (name === undefined) return why;
  const signal = AbortSignal.timeout(WITHIN_MS);
  // A container that waits for its next start has the output of the last one.
  const asked = { previous: false, since: null, extent: LAST, signal };
  try {
    const { text } = await readOutput(kube, { namespace, name, tag: '' }, asked);
    return NO_SPACE.test(text) ? `pod ${name}: ${VOLUME_FULL}` : why;
  } catch {
    return why;
  }
}
