/**
 * Backups of services by snapshots of their volumes, and by base backups in the object store of the
 * region: objects of CloudNativePG, of which one is made when it is due.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Verification } from '@howdah/contract';
import type { BackupPolicy } from '../../../config.ts';
import {
  EngineUnavailable,
  NotRestorable,
  type Engine,
  type LocalBackups,
  type Restorable,
} from '../../engine.ts';
import { KINDS } from '../api/kinds.ts';
import type { Archiver } from './archiver.ts';
import type { Cache } from '../region/cache.ts';
import { backupName, baseBackupName } from '../names.ts';
import { baseBackupManifest, backupManifest } from './manifests.ts';
import type { Region } from '../region/region.ts';
import { isEnded, type BackupState } from './state.ts';
import { newestOf, windowOf } from './archive-state.ts';
import { placesIn } from '../cluster/objects.ts';
import type { ClusterState } from '../cluster/state.ts';
import { nameOf } from '../region/storage-classes.ts';
import { NO_ANSWER } from '../api/errors.ts';
import { removeVerification, verifyBackup } from './verification.ts';
import type { RunStep } from '../../run-step.ts';
import type { Manifest } from '../api/client.ts';

export type SnapshotPolicy = Pick<BackupPolicy, 'windowMs' | 'snapshotEveryMs'>;

export const DAY_MS = 86_400_000;
/** After a first failure: a stop or a restart ends a backup that is under way (fact 27). */
const AGAIN_MS = 60_000;
/** After many. */
const AGAIN_MAX_MS = 3_600_000;
/** A snapshot that takes longer is taken all the same. */
const WITHIN_MS = 60_000;
const POLL_MS = 100;
/** A base backup of a large volume takes hours. A tenant is warned after so many. */
const SLOW_AFTER_MS = 21_600_000;
/** Then a backup is removed, and another one taken: CloudNativePG takes one at a time. */
const STUCK_AFTER_MS = DAY_MS;

/** Whether its backups are kept in the object store of the region. */
type Archiving = Pick<Archiver, 'problem'>;

export function createBackups(
  region: Region,
  policy: SnapshotPolicy,
  archiver: Pick<Archiver, 'problem' | 'bytes'>,
): Engine['backups'] {
  const verifying = new Set<string>();
  return {
    describe: async (id) => describe(region, policy, archiver, id),
    restorable: async (id) => restorable(region, id),
    keep: async (id, { removes }) => {
      if (!verifying.has(id)) await removeLeft(region, id);
      return keep(region, policy, archiver, id, removes);
    },
    verify: async (spec, runStep, signal) => {
      verifying.add(spec.id);
      try {
        return await verifyBackup(region, spec, runStep, signal);
      } finally {
        verifying.delete(spec.id);
      }
    },
    backUp: (id, _wanted, runStep, signal) => backUpNow(region, id, runStep, signal),
  };
}

function describe(
  region: Region,
  policy: SnapshotPolicy,
  archiver: Pick<Archiver, 'problem' | 'bytes'>,
  id: string,
) {
  const { cache, snapshotClass } = region;
  const backups = cache.backups(id);
  const window = windowOf(cache.archive(id), region.objectStore());
  const last = lastVerification(backups);
  const volumeGb = cache.cluster(id)?.desired?.storageGb ?? 0;
  const described: LocalBackups = {
    window: {
      // Without an archive, no moment between two snapshots can be reached.
      earliest: window === null ? null : new Date(window.earliestMs).toISOString(),
      latest: window === null ? null : new Date(window.latestMs).toISOString(),
      days: policy.windowMs / DAY_MS,
    },
    snapshots: backups
      .filter(({ snapshot }) => snapshot !== null)
      .map(({ name, askedMs, verification }) => ({
        id: name,
        taken: new Date(askedMs).toISOString(),
        kind: 'scheduled',
        storage_mb: volumeGb * 1000,
        ...(verification === null ? {} : { verification }),
      })),
    archive_mb: Math.ceil((archiver.bytes(id) ?? 0) / 1e6),
    ...(last === null ? {} : { last_verification: last }),
    problem:
      whyNotArchived(region, archiver, id) ??
      problemOf(backups, Date.now()) ??
      ('name' in snapshotClass() || region.objectStore() !== null ? null : NO_SNAPSHOTS),
  };
  return described;
}

/**
 * The archive that a service is made of whose Cluster somebody has deleted.
 *
 * @throws NotRestorable, EngineUnavailable
 */
function restorable({ cache, objectStore, answers }: Region, id: string): Restorable {
  if (cache.staleWhy() !== null || answers.away()?.isClusterSeen === false)
    throw new EngineUnavailable(NO_ANSWER);
  const cluster = cache.cluster(id);
  if (cluster?.leaving === false)
    throw new NotRestorable(
      'its Cluster is there, so nothing is restored in its place: fork it at a moment ' +
        '(howdah service fork --at), or restart it',
    );
  const latestMs = newestOf(cache.archive(id), objectStore());
  if (latestMs === null)
    throw new NotRestorable(
      'the object store of its region has no archive of it that is known: ' +
        'restore its Cluster and ' +
        'volumes by a backup of the Kubernetes cluster, or delete it',
    );
  return {
    repository: null,
    place: 'the object store of its region',
    latestMs,
    seconds: null,
    isLost: true,
  };
}

/** The newest verification of any backup; null: there was none. */
function lastVerification(backups: readonly BackupState[]): Verification | null {
  const found = backups.flatMap(({ verification }) =>
    verification === null ? [] : [verification],
  );
  return found.toSorted((a, b) => Date.parse(b.at) - Date.parse(a.at))[0] ?? null;
}

/** A control plane that was killed in a verification has left its pods, which have volumes. */
async function removeLeft(region: Region, id: string): Promise<void> {
  const { cache } = region;
  const projectId = cache.cluster(id)?.projectId ?? null;
  if (projectId === null) return;
  if (cache.verification(id) === null && cache.recovering(id).length === 0) return;
  await removeVerification(region, projectId, id);
}

const NO_SNAPSHOTS =
  'its region has no snapshots of volumes (howdah region doctor says why): use pg_dump';

const UNREADABLE =
  'the key of the object store of its region cannot be read, so it has no new base backups, and ' +
  'its window ends; an administrator finds the reason with howdah region doctor';

type ArchiveReading = Pick<Region, 'objectStore' | 'answers'> & {
  readonly cache: Pick<Cache, 'cluster' | 'hasPlugin' | 'backups'>;
};

/** Why a service is not backed up in the object store of its region; null: no reason is known. */
export function whyNotArchived(
  { cache, objectStore, answers }: ArchiveReading,
  archiver: Archiving,
  id: string,
): string | null {
  const desired = cache.cluster(id)?.desired;
  // A read replica set has its data from its service, which is archived.
  if (desired?.running !== true || desired.set !== undefined) return null;
  // Nothing is known of the archive then, whatever the bucket does.
  if (answers.away()?.isClusterSeen === false)
    return desired.archives === true
      ? `${NO_ANSWER}, so it is not known how far it is archived`
      : null;
  // A store that was set stays set.
  if (objectStore() === null) return desired.archives === true ? UNREADABLE : null;
  if (cache.hasPlugin() === false) return NO_PLUGIN;
  if (desired.archives !== true) return NOT_RESTARTED;
  const [newest] = ofKind(cache.backups(id), 'base');
  const why = whyNotTaken(newest, Date.now());
  return archiver.problem(id) ?? (why === null ? null : `no base backup was taken: ${why}`);
}

const NO_PLUGIN =
  'its region has an object store, and its cluster no Barman Cloud plugin, so it is not archived ' +
  '(howdah region doctor says more)';
const NOT_RESTARTED =
  'it runs since before its region got an object store, so its WAL is not archived: restart it';

const ofKind = (backups: readonly BackupState[], kind: BackupState['kind']): BackupState[] =>
  backups.filter((backup) => backup.kind === kind);

/** Why the last snapshot was not taken; null: it was, or none was asked for. */
export function problemOf(backups: readonly BackupState[], nowMs: number): string | null {
  const [newest] = ofKind(backups, 'snapshot');
  const why = whyNotTaken(newest, nowMs);
  return why === null ? null : `no snapshot was taken: ${why}`;
}

function whyNotTaken(newest: BackupState | undefined, nowMs: number): string | null {
  if (newest === undefined || newest.problem !== null) return newest?.problem ?? null;
  if (isEnded(newest) || nowMs - newest.askedMs < SLOW_AFTER_MS) return null;
  const asked = new Date(newest.askedMs).toISOString();
  return `that of ${asked} has not ended, and is replaced after a day`;
}

/** Whether a backup will not end any more. */
export const isStuck = (backup: BackupState, nowMs: number): boolean =>
  !isEnded(backup) && nowMs - backup.askedMs >= STUCK_AFTER_MS;

/** Whether a backup of its kind must be taken now. @param backups of it, newest first */
export function isDue(
  backups: readonly BackupState[],
  nowMs: number,
  wantedEveryMs: number,
): boolean {
  const [newest] = backups;
  if (newest === undefined || isStuck(newest, nowMs)) return true;
  const everyMs = newest.problem === null ? wantedEveryMs : againMs(backups);
  return isEnded(newest) && nowMs - newest.askedMs >= everyMs;
}

/** Failed backups since the last snapshot, newest first. */
function failuresIn(backups: readonly BackupState[]): readonly BackupState[] {
  const taken = backups.findIndex(({ isTaken }) => isTaken);
  return backups
    .slice(0, taken === -1 ? undefined : taken)
    .filter(({ problem }) => problem !== null);
}

/** The wait after a failure: as long as they have gone on, so that each is about twice the last. */
function againMs(backups: readonly BackupState[]): number {
  const failures = failuresIn(backups);
  const [newest, first] = [failures[0], failures.at(-1)];
  const sinceMs = (newest?.askedMs ?? 0) - (first?.askedMs ?? 0);
  return Math.min(Math.max(sinceMs, AGAIN_MS), AGAIN_MAX_MS);
}

/**
 * The backups that are not needed any more: all that are older than the newest one from before the
 * window, and failed ones but the first and the newest since the last snapshot.
 *
 * @param backups newest first
 */
export function listOutdated(
  backups: readonly BackupState[],
  nowMs: number,
  { windowMs }: SnapshotPolicy,
): BackupState[] {
  const taken = backups.filter(({ isTaken }) => isTaken);
  const base = taken.findIndex(({ askedMs }) => askedMs <= nowMs - windowMs);
  const old = base === -1 ? [] : taken.slice(base + 1);
  return [...old, ...listOldFailures(backups)];
}

/** Failed backups but the first and the newest since the last that was taken. */
function listOldFailures(backups: readonly BackupState[]): BackupState[] {
  const failures = failuresIn(backups);
  const kept = [failures[0], failures.at(-1)];
  return backups.filter((one) => one.problem !== null && !kept.includes(one));
}

/** Whether a service can be backed up now: it runs, and nothing is changed. */
function isUnchanged({ cache }: Region, cluster: ClusterState): boolean {
  const { desired, awaited, provisioned, leaving } = cluster;
  return (
    cache.staleWhy() === null &&
    cache.knowsBackups() === true &&
    desired?.running === true &&
    awaited === null &&
    provisioned &&
    !leaving
  );
}

async function keep(
  region: Region,
  policy: SnapshotPolicy,
  archiver: Archiving,
  id: string,
  removes: boolean,
): Promise<boolean> {
  const { kube, cache } = region;
  const cluster = cache.cluster(id);
  if (cluster === null || cluster.projectId === null || !isUnchanged(region, cluster)) return false;
  const { projectId, uid, desired } = cluster;
  const remove = async (those: readonly BackupState[]): Promise<void> => {
    for (const { name, namespace } of those)
      await kube.remove({ kind: KINDS.backup, namespace, name });
  };
  await remove(cache.backups(id).filter((backup) => isStuck(backup, Date.now())));
  const className = nameOf(region.snapshotClass());
  const hasClass = className !== null && desired?.snapshotClass === className;
  if (hasClass && isDue(ofKind(cache.backups(id), 'snapshot'), Date.now(), policy.snapshotEveryMs))
    await take(region, id, projectId, uid);
  if (desired?.archives === true) await keepBase(region, { id, projectId, uid });
  const backups = cache.backups(id);
  const outdated =
    removes && hasClass ? listOutdated(ofKind(backups, 'snapshot'), Date.now(), policy) : [];
  // The plugin removes those that were taken by the retention of the ObjectStore.
  const failed = listOldFailures(ofKind(backups, 'base'));
  await remove([...outdated, ...failed]);
  return problemOf(backups, Date.now()) !== null || whyNotArchived(region, archiver, id) !== null;
}

type Backed = Readonly<{ id: string; projectId: string; uid: string }>;

/** Has a base backup taken in the object store a day after the last one; it may take hours. */
async function keepBase(
  { kube, cache, settings, objectStore }: Region,
  { id, projectId, uid: clusterUid }: Backed,
): Promise<void> {
  const store = objectStore();
  if (store === null || cache.hasPlugin() !== true) return;
  // Until then, it would be in the place of before.
  if (cache.archive(id)?.archived?.store !== store.id) return;
  // Those of before are in another place.
  const known = ofKind(cache.backups(id), 'base').filter(({ askedMs }) => askedMs >= store.sinceMs);
  const nowMs = Date.now();
  if (!isDue(known, nowMs, DAY_MS)) return;
  const name = baseBackupName(id, nowMs);
  const manifest = baseBackupManifest({ id, projectId, region: settings.code, name, clusterUid });
  await kube.apply(placesIn(projectId)(KINDS.backup, name), manifest);
}

/** Has a snapshot taken, and waits for it a while. */
async function take(
  { kube, cache, settings }: Region,
  id: string,
  projectId: string,
  clusterUid: string,
): Promise<void> {
  const nowMs = Date.now();
  const name = backupName(id, nowMs);
  const manifest = backupManifest({ id, projectId, region: settings.code, name, clusterUid });
  await kube.apply(placesIn(projectId)(KINDS.backup, name), manifest);
  const hasEnded = (): boolean =>
    cache.backups(id).some((backup) => backup.name === name && isEnded(backup));
  while (!hasEnded() && Date.now() - nowMs < WITHIN_MS) await sleep(POLL_MS);
}

// Takes the backups of a service that somebody has asked for, and waits for them.

const ASK_AGAIN_MS = 500;

/**
 * Takes a snapshot and a base backup, as far as the service has them.
 *
 * @throws what `signal` was aborted with; Error when one fails, or there is none to take
 */
async function backUpNow(
  region: Region,
  id: string,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<void> {
  const { cache, settings, snapshotClass } = region;
  const cluster = cache.cluster(id);
  if (cluster === null || cluster.projectId === null)
    throw new Error('it has no Cluster, so there is nothing to back up');
  const { projectId, uid, desired } = cluster;
  if (desired?.running !== true)
    throw new Error('it is PAUSED, and CloudNativePG backs up servers that run: start it first');
  const className = nameOf(snapshotClass());
  const takesSnapshot = className !== null && desired.snapshotClass === className;
  if (!takesSnapshot && desired.archives !== true)
    throw new Error(
      'it has no snapshots and no archive: a service that runs since before its region got an ' +
        'object store has them after a restart (howdah service restart)',
    );
  const names = { id, projectId, region: settings.code, clusterUid: uid };
  if (takesSnapshot) {
    const name = backupName(id, Date.now());
    await runStep('take snapshot', () => take(region, backupManifest({ ...names, name }), signal));
  }
  if (desired.archives === true) {
    const name = baseBackupName(id, Date.now());
    const manifest = baseBackupManifest({ ...names, name });
    await runStep('take base backup', () => take(region, manifest, signal));
  }

  async function take(of: Region, manifest: Manifest, ends: AbortSignal): Promise<string> {
    const { name } = manifest.metadata;
    of.cache.putBackup(await of.kube.apply(placesIn(projectId)(KINDS.backup, name), manifest));
    for (;;) {
      ends.throwIfAborted();
      const found = of.cache.backups(id).find((one) => one.name === name);
      if (found === undefined) throw new Error(`its Backup ${name} was removed meanwhile`);
      if (found.problem !== null) throw new Error(found.problem);
      if (isEnded(found)) return name;
      await sleep(ASK_AGAIN_MS, undefined, { signal: ends });
    }
  }
}
