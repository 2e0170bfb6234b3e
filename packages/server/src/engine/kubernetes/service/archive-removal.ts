/** Removes what a service has in the object store of its region. */
import { EngineUnavailable, type BeginStep, type Seen, type Verdict } from '../../engine.ts';
import { folderOf } from '../../object-store.ts';
import type { Kube } from '../api/client.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { clusterName, LABELS } from '../manifests/names.ts';
import { archiveRecordName, storeSecret } from '../manifests/object-store.ts';
import type { Region } from '../region.ts';
import { removeSome, StoreError } from '../s3.ts';
import { listPlaces } from './objects.ts';
import { STEPS } from './steps.ts';
import { again, failed } from './verdicts.ts';

const NO_KEY =
  'the key of the object store of the region cannot be read, so what is archived there cannot be ' +
  'removed: howdah region doctor says more';

/** Users learn nothing of where it is. */
const NO_STORE =
  'the object store of the region does not answer, or refuses; it is tried again (the operator: ' +
  'howdah region doctor)';

/** Makes one step towards the removal of what is archived of a service without a Cluster. */
export async function endArchive(
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
    // Its place is known, or there would be no ObjectStore.
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
