/**
 * Backups of services by snapshots of their volumes: objects of CloudNativePG, of which one is made
 * when it is due, and old ones are deleted with their snapshots.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { BackupPolicy } from '../../config.ts';
import type { Engine, LocalBackups } from '../engine.ts';
import { KINDS } from './api/kinds.ts';
import { backupName } from './manifests/names.ts';
import { backupManifest } from './manifests/snapshots.ts';
import type { Region } from './region.ts';
import type { BackupState } from './service/backup-state.ts';
import { placesIn } from './service/objects.ts';
import type { ClusterState } from './service/observed.ts';
import { nameOf } from './storage-classes.ts';

export type SnapshotPolicy = Pick<BackupPolicy, 'windowMs' | 'snapshotEveryMs'>;

const DAY_MS = 86_400_000;
/** After a first failure: a stop or a restart ends a backup that is under way (fact 27). */
const AGAIN_MS = 60_000;
/** After many. */
const AGAIN_MAX_MS = 3_600_000;
/** A snapshot that takes longer is taken all the same. */
const WITHIN_MS = 60_000;
const POLL_MS = 100;

export const NO_VERIFICATION =
  'services on Kubernetes have no verification of backups: fork the last snapshot, and examine it';

export function createBackups(region: Region, policy: SnapshotPolicy): Engine['backups'] {
  return {
    describe: async (id) => describe(region, policy, id),
    restorable: async () => null,
    keep: (id, { removes }) => keep(region, policy, id, removes),
    verify: async () => {
      throw new Error(NO_VERIFICATION);
    },
  };
}

function describe({ cache, snapshotClass }: Region, policy: SnapshotPolicy, id: string) {
  const backups = cache.backups(id);
  const volumeGb = cache.cluster(id)?.desired?.storageGb ?? 0;
  const described: LocalBackups = {
    // Without an archive, no moment between two snapshots can be reached.
    window: { earliest: null, latest: null, days: policy.windowMs / DAY_MS },
    snapshots: backups
      .filter(({ snapshot }) => snapshot !== null)
      .map(({ name, askedMs }) => ({
        id: name,
        taken: new Date(askedMs).toISOString(),
        kind: 'scheduled',
        storage_mb: volumeGb * 1000,
      })),
    archive_mb: 0,
    problem: 'name' in snapshotClass() ? problemOf(backups) : NO_SNAPSHOTS,
  };
  return described;
}

const NO_SNAPSHOTS =
  'its region has no snapshots of volumes (howdah region doctor says why): use pg_dump';

/** Why the last snapshot was not taken; null: it was, or none was asked for. */
export const problemOf = ([newest]: readonly BackupState[]): string | null =>
  newest === undefined || newest.problem === null
    ? null
    : `no snapshot was taken: ${newest.problem}`;

const isEnded = ({ snapshot, problem }: BackupState): boolean =>
  snapshot !== null || problem !== null;

/** Whether a snapshot must be taken now. @param backups newest first */
export function isDue(
  backups: readonly BackupState[],
  nowMs: number,
  { snapshotEveryMs }: SnapshotPolicy,
): boolean {
  const [newest] = backups;
  if (newest === undefined) return true;
  const everyMs = newest.problem === null ? snapshotEveryMs : againMs(backups);
  return isEnded(newest) && nowMs - newest.askedMs >= everyMs;
}

/** Failed backups since the last snapshot, newest first. */
function failuresIn(backups: readonly BackupState[]): readonly BackupState[] {
  const taken = backups.findIndex(({ snapshot }) => snapshot !== null);
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
  const taken = backups.filter(({ snapshot }) => snapshot !== null);
  const base = taken.findIndex(({ askedMs }) => askedMs <= nowMs - windowMs);
  const old = base === -1 ? [] : taken.slice(base + 1);
  const failures = failuresIn(backups);
  const kept = [failures[0], failures.at(-1)];
  return [...old, ...backups.filter((one) => one.problem !== null && !kept.includes(one))];
}

/** Whether a snapshot of a service can be taken: it runs, and its Cluster has the class. */
function canTake({ cache, snapshotClass }: Region, cluster: ClusterState): boolean {
  const { desired, awaited, provisioned, leaving } = cluster;
  const className = nameOf(snapshotClass());
  return (
    cache.staleWhy() === null &&
    cache.knowsBackups() &&
    className !== null &&
    desired?.snapshotClass === className &&
    desired.running &&
    awaited === null &&
    provisioned &&
    !leaving
  );
}

async function keep(
  region: Region,
  policy: SnapshotPolicy,
  id: string,
  removes: boolean,
): Promise<boolean> {
  const { kube, cache } = region;
  const cluster = cache.cluster(id);
  if (cluster === null || cluster.projectId === null || !canTake(region, cluster)) return false;
  if (isDue(cache.backups(id), Date.now(), policy))
    await take(region, id, cluster.projectId, cluster.uid);
  const backups = cache.backups(id);
  const outdated = removes ? listOutdated(backups, Date.now(), policy) : [];
  for (const { name, namespace } of outdated)
    await kube.remove({ kind: KINDS.backup, namespace, name });
  return problemOf(backups) !== null;
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
