/** Writes what the Barman Cloud plugin needs of a service. */
import type { ServiceSpec } from '../../spec.ts';
import { KINDS } from '../api/kinds.ts';
import { namespaceOf } from '../names.ts';
import {
  objectStoreManifest,
  objectStoreName,
  storeSecret,
  storeSecretManifest,
} from './manifests.ts';
import type { Region } from '../region/region.ts';
import type { ClusterState } from '../cluster/state.ts';

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

/**
 * A service that is made without the plugin would not be archived before its first restart. One
 * whose desired state cannot be read would lose it.
 */
export const whyUnread = (
  { cache, objectStore }: Region,
  { set }: Pick<ServiceSpec, 'set'>,
  cluster: ClusterState | null,
): string | null =>
  cluster?.desired == null &&
  set === null &&
  (objectStore() !== null || cluster !== null) &&
  cache.hasPlugin() === null
    ? 'the cluster has not said yet whether it has the Barman Cloud plugin'
    : null;
