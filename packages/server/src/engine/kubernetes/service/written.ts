/** Writes the Cluster of a service or a set, and finds fields that others have changed since. */
import type { ServiceSpec } from '../../spec.ts';
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import { clusterName, setName } from '../manifests/names.ts';
import type { Region } from '../region.ts';
import type { Desired } from './desired.ts';
import { changedFields } from './foreign-fields.ts';
import { placesIn, serviceManifest } from './objects.ts';
import type { ClusterState } from './observed.ts';
import { setManifestOf } from './set-objects.ts';

type Owned = ServiceSpec & { readonly projectId: string };

const manifestOf = (region: Region, spec: Owned, desired: Desired) =>
  (spec.set === null ? serviceManifest : setManifestOf)(region, spec, desired);

/** @param fields of others: they are `left`, or `taken back` */
export async function writeCluster(
  region: Region,
  spec: Owned,
  desired: Desired,
  fields: 'left' | 'taken back',
): Promise<void> {
  if (fields === 'taken back') region.takenBack.set(spec.id, spec.restarts);
  const name = spec.set === null ? clusterName(spec.id) : setName(spec.id);
  const place = placesIn(spec.projectId)(KINDS.cluster, name);
  const manifest = manifestOf(region, spec, desired);
  const first = withImageOfBefore(region, spec, desired, manifest);
  if (first !== null) await region.kube.apply(place, first, fields);
  region.cache.put(await region.kube.apply(place, manifest, fields));
}

/**
 * The manifest of all else that changes beside the image of a Cluster. CloudNativePG refuses a
 * change of the image that changes parameters too (docs/cloudnativepg.md, fact 44), so the image is
 * written afterwards, at once. A stopped service stays so until then: no server starts with the
 * image of before.
 *
 * @returns null: it is new, or its image does not change
 */
function withImageOfBefore(
  region: Region,
  spec: Owned,
  desired: Desired,
  { spec: wanted }: Manifest,
): Manifest | null {
  const before = region.cache.cluster(spec.id);
  const image = before?.image ?? null;
  if (before === null || image === null || Object(wanted).imageName === image) return null;
  const running = before.desired?.running ?? desired.running;
  const manifest = manifestOf(region, spec, { ...desired, running });
  return { ...manifest, spec: { ...Object(manifest['spec']), imageName: image } };
}

/** The fields that others have set to other values than the last write had, as texts. */
function changesIn(region: Region, spec: Owned, cluster: ClusterState | null): string[] {
  if (cluster === null || cluster.desired === null || cluster.foreign.length === 0) return [];
  return changedFields(cluster.foreign, manifestOf(region, spec, cluster.desired)['spec']);
}

/**
 * Those that a restart takes back. It does so once: another program may set them again at once, and
 * two programs must not go on against each other.
 */
export const changesToTakeBack = (region: Region, spec: Owned, cluster: ClusterState | null) =>
  region.takenBack.get(spec.id) === spec.restarts ? [] : changesIn(region, spec, cluster);

/** Has the service warn of them, or warn no more. */
export function noteChanges(region: Region, spec: Owned, cluster: ClusterState | null): void {
  const changes = changesIn(region, spec, cluster);
  if (changes.length > 0) region.changedByOthers.set(spec.id, changes);
  else region.changedByOthers.delete(spec.id);
}
