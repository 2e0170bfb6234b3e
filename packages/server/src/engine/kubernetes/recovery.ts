/**
 * Recovers the archive of a service in a Cluster of its own, as a fork of a moment is made, and
 * leaves the volume for the pod that examines it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { EngineUnavailable } from '../engine.ts';
import { KubeError } from './api/errors.ts';
import { KINDS, pathOf, type Place } from './api/kinds.ts';
import { HIBERNATION } from './manifests/cluster.ts';
import { CLUSTER_LABEL, podIn, recoveredName } from './manifests/names.ts';
import { recoveredManifest, type RecoveredInput } from './manifests/recovered.ts';
import type { Region } from './region.ts';
import { StoreError, tryStore } from './s3.ts';
import { listPlaces, placesIn } from './service/objects.ts';
import {
  CLUSTER_OBJECT,
  clusterState,
  obstacleIn,
  type ClusterState,
  type PodObject,
} from './service/observed.ts';
import { damageIn } from './service/recovery-log.ts';
import type { StepResult } from './service/verification.ts';

const POLL_MS = 1000;
/** A cluster that is full for so long has no room for it today. */
const START_WITHIN_MS = 600_000;
/** The server is healthy then, and without clients. */
const STOP_WITHIN_MS = 600_000;
/** Its volume goes with it. */
const END_WITHIN_MS = 60_000;
/** Other services wait for their verification meanwhile: 8 MB a second, and two hours. */
const withinMs = (storageGb: number): number => 7_200_000 + storageGb * 120_000;
/** The first one may have met a store that was away for a moment. */
const ATTEMPTS = 2;
const LOG_LINES = 100;
const LOG_BYTES = 512 * 1024;
/** A container with a higher status was ended by a signal, for example for want of memory. */
const MAX_STATUS = 128;

const recoveredPlace = (projectId: string, id: string): Place =>
  placesIn(projectId)(KINDS.cluster, recoveredName(id));

/** The volume with the copy. */
export const recoveredClaim = (id: string): string => podIn(recoveredName(id), 0);

/** `endMs`: when it is given up. */
type Recovery = Readonly<{ input: RecoveredInput; signal: AbortSignal; endMs: number }>;

/**
 * Recovers the archive, and stops the server in order.
 *
 * @returns why the archive cannot be recovered; null: the volume has the copy
 * @throws what `signal` was aborted with; Error when that is not known
 */
export async function recoverArchive(
  region: Region,
  input: RecoveredInput,
  signal: AbortSignal,
): Promise<StepResult | null> {
  const { id, projectId, storageGb } = input;
  const endMs = Date.now() + withinMs(storageGb);
  for (let attempt = 1; ; attempt += 1) {
    const failed = await recoverOnce(region, { input, signal, endMs });
    if (failed === null || attempt === ATTEMPTS) return failed;
    // CloudNativePG would try it again on the same volume, beside the first copy.
    if (!(await removeRecovered(region, projectId, id))) throw new Error(STILL_ENDING);
  }
}

/** Parts of a verification that has ended are in the way. */
export const STILL_ENDING = 'parts of an earlier verification are still ending: verify it again';

async function recoverOnce(region: Region, recovery: Recovery): Promise<StepResult | null> {
  const { kube } = region;
  const { id, projectId } = recovery.input;
  const place = recoveredPlace(projectId, id);
  await kube.apply(place, recoveredManifest(recovery.input));
  const failed = await untilRecovered(region, place, recovery);
  if (failed !== null) return failed;
  await kube.merge(place, { metadata: { annotations: { [HIBERNATION]: 'on' } } });
  for (const endMs = Date.now() + STOP_WITHIN_MS; ; await sleep(POLL_MS)) {
    recovery.signal.throwIfAborted();
    if ((await stateOf(region, place))?.hibernated === true) return null;
    if (Date.now() > endMs)
      throw new Error('the server of the copy does not stop within 10 minutes: verify it again');
  }
}

/**
 * By a list: the control plane has no right to get a Cluster, since it watches all of its own.
 *
 * @returns null: the cluster does not answer now
 */
async function stateOf({ kube }: Region, place: Place): Promise<ClusterState | null> {
  const { kind, namespace, name } = place;
  const all = { kind, namespace: null, name: null };
  const fields = `metadata.name=${name},metadata.namespace=${namespace}`;
  try {
    const { items } = await kube.list(all, CLUSTER_OBJECT, {}, fields);
    const found = items.find(({ metadata }) => metadata.name === name);
    if (found !== undefined) return clusterState(found);
  } catch (error) {
    // A copy of hours is not given up for it.
    if (error instanceof KubeError && error.isTemporary) return null;
    throw error;
  }
  throw new Error('somebody has removed the Cluster that recovers it: verify it again');
}

async function untilRecovered(
  region: Region,
  place: Place,
  { input, signal, endMs }: Recovery,
): Promise<StepResult | null> {
  let ranMs = Date.now();
  for (; ; await sleep(POLL_MS)) {
    signal.throwIfAborted();
    const state = await stateOf(region, place);
    if (state !== null && state.ready > 0) return null;
    const pods = region.cache.recovering(input.id);
    const failed = pods.find(({ status }) => status?.phase === 'Failed');
    if (failed !== undefined) return whyFailed(region, failed);
    if (pods.some(({ status }) => status?.phase === 'Running')) ranMs = Date.now();
    const obstacle = obstacleIn(pods);
    if (Date.now() - ranMs > START_WITHIN_MS)
      throw new Error(
        `the pod that recovers it does not start: ${obstacle ?? 'it has no node yet'}; verify it ` +
          'again once the cluster has room for it',
      );
    if (Date.now() > endMs)
      throw new Error(
        `it was not recovered within ${Math.round(withinMs(input.storageGb) / 3_600_000)} hours` +
          (obstacle === null ? '' : `: ${obstacle}`),
      );
  }
}

/** A pod that was killed, and a store that is away, say nothing of the archive. */
async function whyFailed(region: Region, pod: PodObject): Promise<StepResult> {
  const { kube, objectStore } = region;
  const statuses = (pod.status?.containerStatuses ?? []).map(
    ({ state }) => state?.terminated?.exitCode ?? MAX_STATUS,
  );
  if (!statuses.some((status) => status > 0 && status < MAX_STATUS))
    throw new Error('the pod that recovers it was killed: verify it again');
  const place = { kind: KINDS.pod, ...pod.metadata };
  const query = new URLSearchParams({
    tailLines: String(LOG_LINES),
    limitBytes: String(LOG_BYTES),
  });
  const { damage, text } = damageIn(await kube.text(`${pathOf(place, 'log')}?${query.toString()}`));
  if (damage === null) throw new EngineUnavailable(NOT_RECOVERED, { cause: new Error(text) });
  const store = objectStore();
  await (store === null ? Promise.reject(new StoreError('unknown')) : tryStore(store, true)).catch(
    (error: unknown) => {
      throw new EngineUnavailable(NO_STORE, { cause: error });
    },
  );
  return { state: 'failed', detail: damage };
}

/** Users learn nothing of the cluster and of the object store. */
const NOT_RECOVERED =
  'the pod that recovers it has failed for another reason than the archive; an administrator ' +
  'finds it in the log of the control plane';
const NO_STORE =
  'the object store of the region does not answer, or refuses; verify it again later (the ' +
  'operator: howdah region doctor)';

/**
 * Removes the Cluster, and waits for the end of its pods and volumes a while.
 *
 * @returns whether they are gone: CloudNativePG gives volumes that it finds to a new Cluster
 */
export async function removeRecovered(
  { kube, cache }: Region,
  projectId: string,
  id: string,
): Promise<boolean> {
  await kube.remove(recoveredPlace(projectId, id));
  const ofCluster = { [CLUSTER_LABEL]: recoveredName(id) };
  for (const endMs = Date.now() + END_WITHIN_MS; ; await sleep(POLL_MS)) {
    const claims = await listPlaces(kube, KINDS.claim, ofCluster);
    if (claims.length === 0 && cache.recovering(id).length === 0) return true;
    if (Date.now() > endMs) return false;
    for (const claim of claims) await kube.remove(claim);
  }
}
