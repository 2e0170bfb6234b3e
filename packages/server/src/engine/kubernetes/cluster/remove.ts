/** The removal of a service or of a read replica set. */
import { type BeginStep, type Seen, type Verdict, EngineUnavailable } from '../../engine.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { clusterName, setName, LABELS } from '../names.ts';
import type { Region } from '../region/region.ts';
import { findLeftovers, listPlaces } from './objects.ts';
import { STEPS } from './steps.ts';
import { again, AWAY_MS, failed, overdue, RETRY_MS, STEP_MS, waitForCluster } from './verdicts.ts';
import { folderOf } from '../../object-store.ts';
import type { Kube } from '../api/client.ts';
import { archiveRecordName, storeSecret } from '../backup/manifests.ts';
import { removeSome, StoreError } from '../backup/s3.ts';

/**
 * Makes one step towards the removal.
 *
 * @param parent the service that a read replica set follows
 */
export async function removeOnce(
  region: Region,
  id: string,
  parent: string | null,
  begin: BeginStep,
): Promise<Verdict> {
  const { cache } = region;
  const cluster = cache.cluster(id);
  const isEnding = cache.podCount(id) > 0 || cache.pooler(id) !== null;
  const seen: Seen = {
    reachable: false,
    present: true,
    provisioned: cluster?.provisioned ?? false,
  };
  region.reached.delete(id);
  region.startingPoolers.delete(id);
  region.followChecks.delete(id);
  region.changedByOthers.delete(id);
  region.takenBack.delete(id);
  const stale = cache.staleWhy();
  if (stale !== null)
    return (
      overdue(region, id, 'read the cluster', AWAY_MS, { seen, why: stale }) ?? again(seen, stale)
    );
  // The pooler ends with its owner, the Cluster.
  if (cluster?.leaving === true || (cluster === null && isEnding))
    return waitForCluster(region, id, STEPS.remove, STEP_MS, { seen, why: 'its pods are ending' });
  const name = parent === null ? clusterName(id) : setName(id);
  try {
    const left = await findLeftovers(region, id, name);
    if (cluster === null && left.length === 0)
      // A read replica set archives nothing.
      return parent === null
        ? await endArchive(region, id, { begin, seen })
        : { did: null, detail: null, seen: { ...seen, present: false }, outcome: 'settled' };
    await begin(STEPS.remove, seen);
    if (cluster !== null) {
      const { namespace } = cluster;
      await region.kube.remove({ kind: KINDS.cluster, namespace, name });
    }
    for (const place of left) await region.kube.remove(place);
  } catch (error) {
    return failed(region, id, STEPS.remove, seen, error);
  }
  return {
    did: STEPS.remove,
    detail: 'the Cluster with its volumes and secrets',
    seen,
    outcome: 'again',
    waitMs: RETRY_MS,
  };
}

// Removes what a service has in the object store of its region.

const NO_KEY =
  'the key of the object store of the region cannot be read, so what is archived there cannot be ' +
  'removed: howdah region doctor says more';

/** Users learn nothing of where it is. */
const NO_STORE =
  'the object store of the region does not answer, or refuses; it is tried again (the operator: ' +
  'howdah region doctor)';

/** Makes one step towards the removal of what is archived of a service without a Cluster. */
async function endArchive(
  region: Region,
  id: string,
  { begin, seen }: Readonly<{ begin: BeginStep; seen: Seen }>,
): Promise<Verdict> {
  try {
    const places = await listArchive(region.kube, id);
    if (places.length === 0 && !mayBeHidden(region)) {
      await removeUnusedKeys(region);
      return { did: null, detail: null, seen: { ...seen, present: false }, outcome: 'settled' };
    }
    await begin(STEPS.removeArchive, seen);
    const store = region.objectStore();
    // The place of the archive is known, or there would be no ObjectStore.
    if (store === null) throw new EngineUnavailable(NO_KEY);
    const count = await removeSome(store, `${folderOf(store)}/${clusterName(id)}`);
    // Gives way to other services.
    if (count > 0) return again(seen, `${count} objects`, 1);
    // Last: while it is there, something may be left in the bucket.
    for (const place of places) await region.kube.remove(place);
    const detail = 'all of it in the object store of the region';
    const done = { did: STEPS.removeArchive, detail } as const;
    if (places.length > 0) return { ...done, seen, outcome: 'again', waitMs: 0 };
    await removeUnusedKeys(region);
    return { ...done, seen: { ...seen, present: false }, outcome: 'settled' };
  } catch (error) {
    const isOfStore = error instanceof StoreError;
    const shown = isOfStore ? new EngineUnavailable(NO_STORE, { cause: error }) : error;
    return failed(region, id, STEPS.removeArchive, seen, shown);
  }
}

/** The record of its archive, and last its ObjectStore. */
async function listArchive(kube: Kube, id: string): Promise<Place[]> {
  const ofService = { [LABELS.service]: id };
  const [records, stores] = await Promise.all([
    listPlaces(kube, KINDS.configMap, ofService),
    listPlaces(kube, KINDS.objectStore, ofService),
  ]);
  const isOurs = ({ name }: Place): boolean => name === archiveRecordName(id);
  return [...records.filter(isOurs), ...stores];
}

/** Whether ObjectStores are not listed where there may be some: the bucket is looked at then. */
const mayBeHidden = ({ cache, objectStore }: Region): boolean =>
  objectStore() !== null && cache.hasPlugin() !== true;

/** Removes the Secrets with the key of the bucket that no archived service needs. */
async function removeUnusedKeys({ kube, cache, settings, objectStore }: Region): Promise<void> {
  const ofRegion = { [LABELS.region]: settings.code };
  const keys = objectStore() === null ? [] : await listPlaces(kube, KINDS.secret, ofRegion);
  if (keys.length === 0) return;
  const stores = await listPlaces(kube, KINDS.objectStore, ofRegion);
  const used = new Set(stores.map(({ namespace }) => namespace));
  // Where ObjectStores cannot be listed, Clusters say which ones there are.
  for (const id of cache.ids()) {
    const cluster = cache.cluster(id);
    if (cluster?.desired?.archives === true) used.add(cluster.namespace);
  }
  for (const key of keys)
    if (key.name === storeSecret(settings.code) && !used.has(key.namespace)) await kube.remove(key);
}
