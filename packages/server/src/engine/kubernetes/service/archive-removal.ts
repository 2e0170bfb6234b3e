/** Removes what a service has in the object store of its region. */
import pLimit from 'p-limit';
import type { BeginStep, Seen, Verdict } from '../../engine.ts';
import { folderOf } from '../../object-store.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { clusterName, LABELS } from '../manifests/names.ts';
import { storeSecret } from '../manifests/object-store.ts';
import type { Region } from '../region.ts';
import { removeSome, StoreError } from '../s3.ts';
import { listPlaces } from './objects.ts';
import { STEPS } from './steps.ts';

const NO_KEY =
  'the key of the object store of the region cannot be read, so what is archived there cannot be ' +
  'removed: howdah region doctor says more';

/** Two purges of a project would each leave the key to the other. */
const oneAtATime = pLimit(1);

/**
 * Makes one step towards the removal of what is archived of a service that has no Cluster any more.
 *
 * @throws StoreError
 */
export async function endArchive(
  region: Region,
  id: string,
  { begin, seen }: Readonly<{ begin: BeginStep; seen: Seen }>,
): Promise<Verdict> {
  const places = await listPlaces(region.kube, KINDS.objectStore, { [LABELS.service]: id });
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
  await oneAtATime(async () => {
    for (const place of places) {
      await removeUnusedKey(region, place);
      await region.kube.remove(place);
    }
  });
  const detail = 'all of it in the object store of the region';
  return { did: STEPS.removeArchive, detail, seen, outcome: 'again', waitMs: 0 };
}

/** Removes the Secret with the key of the bucket, if no other ObjectStore needs it. */
async function removeUnusedKey(
  { kube, settings }: Region,
  { namespace, name }: Place,
): Promise<void> {
  const { code } = settings;
  const all = await listPlaces(kube, KINDS.objectStore, { [LABELS.region]: code });
  const isUsed = all.some((one) => one.namespace === namespace && one.name !== name);
  if (!isUsed) await kube.remove({ kind: KINDS.secret, namespace, name: storeSecret(code) });
}
