/** Writes what the Barman Cloud plugin needs of a service, and removes what it has archived. */
import type { BeginStep, Seen, Verdict } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { clusterName, namespaceOf } from '../manifests/names.ts';
import {
  objectStoreManifest,
  objectStoreName,
  storeSecret,
  storeSecretManifest,
} from '../manifests/object-store.ts';
import { folderOf } from '../../object-store.ts';
import type { Region } from '../region.ts';
import { removeSome, StoreError } from '../s3.ts';
import type { ClusterState } from './observed.ts';
import { STEPS } from './steps.ts';

/** The parts of a region that its object store needs. */
export type StoreReach = Pick<Region, 'kube' | 'settings' | 'objectStore' | 'retentionDays'>;

/** Writes the credentials and the ObjectStore of a service. The call can be repeated. */
export async function writeObjectStore(
  { kube, settings, objectStore, retentionDays }: StoreReach,
  id: string,
  projectId: string,
): Promise<void> {
  const store = objectStore();
  if (store === null) return;
  const { code: region } = settings;
  const input = { id, projectId, region, store, retentionDays };
  const namespace = namespaceOf(projectId);
  await kube.apply(
    { kind: KINDS.secret, namespace, name: storeSecret(region) },
    storeSecretManifest(input),
  );
  await kube.apply(
    { kind: KINDS.objectStore, namespace, name: objectStoreName(id) },
    objectStoreManifest(input),
  );
}

/** A service that is made without the plugin would not be archived before its first restart. */
export const whyUnread = (
  { cache, objectStore }: Region,
  { set }: Pick<ServiceSpec, 'set'>,
  cluster: ClusterState | null,
): string | null =>
  cluster === null && set === null && objectStore() !== null && cache.hasPlugin() === null
    ? 'the cluster has not said yet whether it has the Barman Cloud plugin'
    : null;

const NO_KEY =
  'the key of the object store of the region cannot be read, so what is archived there cannot be ' +
  'removed: howdah region doctor says more';

/**
 * Makes one step towards the removal of what is archived of a service that has no Cluster any more.
 *
 * @param places its ObjectStore
 * @throws StoreError
 */
export async function endArchive(
  region: Region,
  id: string,
  { places, begin, seen }: Readonly<{ places: readonly Place[]; begin: BeginStep; seen: Seen }>,
): Promise<Verdict> {
  if (places.length === 0)
    return { did: null, detail: null, seen: { ...seen, present: false }, outcome: 'settled' };
  await begin(STEPS.removeArchive, seen);
  const store = region.objectStore();
  // Its place is known, or there would be no ObjectStore.
  if (store === null) throw new StoreError(NO_KEY);
  const count = await removeSome(store, `${folderOf(store)}/${clusterName(id)}`);
  if (count > 0)
    return { did: null, detail: `${count} objects`, seen, outcome: 'again', waitMs: 0 };
  // Last: while it is there, something may be left in the bucket.
  for (const place of places) await region.kube.remove(place);
  const detail = 'all of it in the object store of the region';
  return { did: STEPS.removeArchive, detail, seen, outcome: 'again', waitMs: 0 };
}
