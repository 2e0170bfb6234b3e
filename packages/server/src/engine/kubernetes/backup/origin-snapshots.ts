/** Takes and removes the snapshots of volumes that forks are made of. Each call can be repeated. */
import type { ServiceSpec } from '../../spec.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { AWAITED, clusterName, LABELS, originBackup, originSnapshot, podOf } from '../names.ts';
import { originBackupManifest, originSnapshotManifest } from './manifests.ts';
import type { Cache } from '../region/cache.ts';
import type { Region } from '../region/region.ts';
import { isBusy } from './state.ts';
import { mayHaveSnapshot } from './fork.ts';
import { listLabeledSnapshots, placesIn } from '../cluster/objects.ts';
import { snapshotState, type ClusterState, type SnapshotState } from '../cluster/state.ts';
import type { Desired } from '../cluster/desired-state.ts';
import { STEPS } from '../cluster/steps.ts';
import { STEP_MS } from '../cluster/verdicts.ts';

type Owned = Pick<ServiceSpec, 'id'> & Readonly<{ projectId: string }>;

const placeOf = ({ id, projectId }: Owned): Place =>
  placesIn(projectId)(KINDS.snapshot, originSnapshot(id));

const backupOf = ({ id, projectId }: Owned): Place =>
  placesIn(projectId)(KINDS.backup, originBackup(id));

/** The snapshot that a fork is made of; null: there is none. */
export async function findOriginSnapshot(
  { kube }: Region,
  id: string,
): Promise<SnapshotState | null> {
  const all = await listLabeledSnapshots(kube, { [LABELS.service]: id });
  const found = all.find(({ metadata }) => metadata.name === originSnapshot(id));
  return found === undefined ? null : snapshotState(found);
}

/** The backup of its running parent that a fork is made of; null: there is none. */
export function findOriginBackup(
  { cache }: Readonly<{ cache: Pick<Cache, 'originBackup' | 'cluster'> }>,
  spec: ServiceSpec,
): SnapshotState | null {
  const { id, origin, storageGb } = spec;
  const found = cache.originBackup(id);
  if (found === null) return null;
  const { askedMs, isTaken, isAwaited, problem } = found;
  const withinMs = STEP_MS + storageGb * SNAPSHOT_GIGABYTE_MS;
  const isLate = !isTaken && Date.now() - askedMs >= withinMs;
  const late = `it has not ended within ${Math.round(withinMs / 60_000)} minutes`;
  const parent = origin === null ? null : cache.cluster(origin.parent);
  const isLarger = (parent?.desired?.storageGb ?? 0) > storageGb;
  const why = problem ?? (isLate ? late : null) ?? (isLarger ? LARGER : null);
  return { ready: isTaken, isAwaited, problem: why };
}

/** Storage that copies what has changed needs a time by the size of the volume. */
const SNAPSHOT_GIGABYTE_MS = 2000;

/** A volume cannot be made of the snapshot of a larger one. */
const LARGER = 'the volume of its parent has grown meanwhile';

/** Why the backup of a fork may be there and is not known; null: it is known. */
export const whyBackupUnknown = (
  { cache }: Region,
  spec: ServiceSpec,
  cluster: ClusterState | null,
): string | null =>
  mayHaveSnapshot(spec, cluster) && cache.knowsBackups() === null
    ? 'the cluster has not listed its backups yet'
    : null;

/** Why a service has no snapshots. */
export const WAL_VOLUME =
  'its WAL has a volume of its own, and snapshots of two volumes are not of one moment';

/** Why the operator cannot take a snapshot of a service that runs; null: it can. */
export function whyNotBackedUp({ cache }: Region, id: string | undefined): string | null {
  if (id === undefined) return null;
  if (cache.knowsBackups() === false) return 'the backups of its cluster cannot be listed';
  if (isBusy(cache.backups(id), Date.now())) return 'a base backup of it is under way';
  if (cache.cluster(id)?.walClass != null) return WAL_VOLUME;
  return cache.cluster(id)?.desired?.snapshotClass === undefined
    ? 'its Cluster has no class for snapshots yet'
    : null;
}

/** Asks for a snapshot of the volume of the parent's primary. */
export async function takeOriginSnapshot(
  { kube, snapshotClass }: Region,
  spec: Owned,
  { parent, primary }: Readonly<{ parent: string; primary: number }>,
): Promise<void> {
  const found = snapshotClass();
  if ('missing' in found) throw new Error(found.missing);
  const { id, projectId } = spec;
  const claim = podOf(parent, primary);
  const input = { id, projectId, className: found.name, claim, step: STEPS.snapshot };
  await kube.apply(placeOf(spec), originSnapshotManifest(input));
}

/** Has the operator take a snapshot of the parent while that runs. */
export async function takeOriginBackup(
  { kube, cache, settings }: Region,
  spec: Owned,
  { parent, primary }: Readonly<{ parent: string; primary: number }>,
): Promise<void> {
  const { id, projectId } = spec;
  const pod = podOf(parent, primary);
  const input = { id, projectId, region: settings.code, parent, pod, step: STEPS.snapshot };
  cache.putBackup(await kube.apply(backupOf(spec), originBackupManifest(input)));
}

/** Records that the step which takes the snapshot has ended. */
export async function endOriginSnapshot(
  { kube, cache }: Region,
  spec: Owned,
  of: 'volume' | 'backup',
): Promise<void> {
  const ended = { metadata: { annotations: { [AWAITED]: null } } };
  if (of === 'volume') await kube.merge(placeOf(spec), ended);
  else cache.putBackup(await kube.merge(backupOf(spec), ended));
}

/**
 * Has the snapshot go with the Cluster of the fork, if somebody deletes that.
 *
 * @param desired the state of the Cluster that was written
 */
export async function ownOrigin(
  { kube, cache }: Region,
  spec: Owned,
  { snapshot }: Pick<Desired, 'snapshot'>,
): Promise<void> {
  const { id } = spec;
  const cluster = cache.cluster(id);
  if (cluster === null) return;
  const { apiVersion, kind } = KINDS.cluster;
  const owner = { apiVersion, kind, name: clusterName(id), uid: cluster.uid };
  const owned = { metadata: { ownerReferences: [owner] } };
  if (snapshot === originSnapshot(id)) await kube.merge(placeOf(spec), owned);
  if (snapshot === originBackup(id)) await kube.merge(backupOf(spec), owned);
}

/**
 * Removes a backup that was given up: until it ends, CloudNativePG takes none of the parent.
 *
 * @param cluster of the fork, which copies the parent then
 */
export async function removeUnusedBackup(
  region: Region,
  spec: Owned,
  { desired }: ClusterState,
): Promise<void> {
  const isUsed = desired === null || desired.snapshot === originBackup(spec.id);
  if (!isUsed && region.cache.originBackup(spec.id) !== null) await removeBackup(region, spec);
}

/** @param desired the state of the Cluster that is made of it */
export async function removeOrigin(
  region: Region,
  spec: Owned,
  { snapshot }: Pick<Desired, 'snapshot'>,
): Promise<void> {
  const { id } = spec;
  if (snapshot === originSnapshot(id)) await region.kube.remove(placeOf(spec));
  if (region.cache.originBackup(id) !== null || snapshot === originBackup(id))
    await removeBackup(region, spec);
}

async function removeBackup({ kube }: Region, spec: Owned): Promise<void> {
  await kube.remove(backupOf(spec));
  // Kubernetes removes it too, later.
  await kube.remove(placesIn(spec.projectId)(KINDS.snapshot, originBackup(spec.id)));
}
