/** Takes and removes the snapshots of volumes that forks are made of. Each call can be repeated. */
import type { ServiceSpec } from '../../spec.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { AWAITED, clusterName, originSnapshot, podOf } from '../manifests/names.ts';
import { originSnapshotManifest } from '../manifests/snapshots.ts';
import type { Region } from '../region.ts';
import { listSnapshots, placesIn } from './objects.ts';
import { snapshotState, type SnapshotState } from './observed.ts';
import { STEPS } from './steps.ts';

type Owned = Pick<ServiceSpec, 'id'> & Readonly<{ projectId: string }>;

const placeOf = ({ id, projectId }: Owned): Place =>
  placesIn(projectId)(KINDS.snapshot, originSnapshot(id));

/** The snapshot that a fork is made of; null: there is none. */
export async function findOriginSnapshot(
  { kube }: Region,
  id: string,
): Promise<SnapshotState | null> {
  // Those of its backups have the labels of its Cluster.
  const all = await listSnapshots(kube, id);
  const found = all.find(({ metadata }) => metadata.name === originSnapshot(id));
  return found === undefined ? null : snapshotState(found);
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

/** Records that the step which takes the snapshot has ended. */
export async function endOriginSnapshot({ kube }: Region, spec: Owned): Promise<void> {
  await kube.merge(placeOf(spec), { metadata: { annotations: { [AWAITED]: null } } });
}

/** Has the snapshot go with the Cluster of the fork, if somebody deletes that. */
export async function ownOriginSnapshot({ kube, cache }: Region, spec: Owned): Promise<void> {
  const cluster = cache.cluster(spec.id);
  if (cluster === null) return;
  const { apiVersion, kind } = KINDS.cluster;
  const owner = { apiVersion, kind, name: clusterName(spec.id), uid: cluster.uid };
  await kube.merge(placeOf(spec), { metadata: { ownerReferences: [owner] } });
}

export async function removeOriginSnapshot({ kube }: Region, spec: Owned): Promise<void> {
  await kube.remove(placeOf(spec));
}
