/**
 * Recovers the archive of a service in a Cluster of its own, as a fork of a moment is made, and
 * leaves the volume for the pod that examines it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { EngineUnavailable } from '../engine.ts';
import { KINDS, pathOf, type Place } from './api/kinds.ts';
import { HIBERNATION } from './manifests/cluster.ts';
import { podIn, recoveredName } from './manifests/names.ts';
import { recoveredManifest, type RecoveredInput } from './manifests/recovered.ts';
import type { Region } from './region.ts';
import { tryStore } from './s3.ts';
import { placesIn } from './service/objects.ts';
import {
  CLUSTER_OBJECT,
  clusterState,
  obstacleIn,
  type ClusterState,
  type PodObject,
} from './service/observed.ts';
import { lastError } from './service/recovery-log.ts';
import type { StepResult } from './service/verification.ts';

const POLL_MS = 1000;
/** A cluster that is full for so long has no room for it today. */
const START_WITHIN_MS = 600_000;
/** Its volume goes with it. */
const END_WITHIN_MS = 60_000;
/** The first one may have met a store that was away for a moment. */
const FAILURES = 2;
const LOG_LINES = 100;
const LOG_BYTES = 64 * 1024;

export const recoveredPlace = (projectId: string, id: string): Place =>
  placesIn(projectId)(KINDS.cluster, recoveredName(id));

/** The volume with the copy. */
export const recoveredClaim = (id: string): string => podIn(recoveredName(id), 0);

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
  const { kube } = region;
  const { id } = input;
  const place = recoveredPlace(input.projectId, id);
  await kube.apply(place, recoveredManifest(input));
  const failed = await untilRecovered(region, place, id, signal);
  if (failed !== null) return failed;
  await kube.merge(place, { metadata: { annotations: { [HIBERNATION]: 'on' } } });
  while (!(await stateOf(region, place)).hibernated) {
    signal.throwIfAborted();
    await sleep(POLL_MS);
  }
  return null;
}

/** By a list: the control plane has no right to get a Cluster, since it watches all of its own. */
async function stateOf({ kube }: Region, place: Place): Promise<ClusterState> {
  const { kind, namespace, name } = place;
  const all = { kind, namespace: null, name: null };
  const fields = `metadata.name=${name},metadata.namespace=${namespace}`;
  const { items } = await kube.list(all, CLUSTER_OBJECT, {}, fields);
  const found = items.find(({ metadata }) => metadata.name === name);
  if (found === undefined)
    throw new Error('somebody has removed the Cluster that recovers it: verify it again');
  return clusterState(found);
}

async function untilRecovered(
  region: Region,
  place: Place,
  id: string,
  signal: AbortSignal,
): Promise<StepResult | null> {
  const begunMs = Date.now();
  for (; ; await sleep(POLL_MS)) {
    signal.throwIfAborted();
    if ((await stateOf(region, place)).ready > 0) return null;
    const pods = region.cache.recovering(id);
    const failed = pods.filter(({ status }) => status?.phase === 'Failed');
    const [last] = failed.slice(-1);
    if (last !== undefined && failed.length >= FAILURES) return whyFailed(region, last);
    const hasStarted = pods.some(({ status }) => (status?.phase ?? 'Pending') !== 'Pending');
    if (!hasStarted && Date.now() - begunMs > START_WITHIN_MS)
      throw new Error(
        `the pod that recovers it does not start: ${obstacleIn(pods) ?? 'it has no node yet'}; ` +
          'verify it again once the cluster has room for it',
      );
  }
}

/** A store that is away says nothing of what is in it. */
async function whyFailed(region: Region, pod: PodObject): Promise<StepResult> {
  const { kube, objectStore } = region;
  const place = { kind: KINDS.pod, ...pod.metadata };
  const query = new URLSearchParams({
    tailLines: String(LOG_LINES),
    limitBytes: String(LOG_BYTES),
  });
  const why = lastError(await kube.text(`${pathOf(place, 'log')}?${query.toString()}`));
  const store = objectStore();
  if (store === null) throw new EngineUnavailable('the object store of the region is not known');
  await tryStore(store, true);
  return { state: 'failed', detail: why };
}

/** Removes the Cluster, and waits for the end of its pods a while. */
export async function removeRecovered(
  { kube, cache }: Region,
  projectId: string,
  id: string,
): Promise<void> {
  if (!(await kube.remove(recoveredPlace(projectId, id)))) return;
  const begunMs = Date.now();
  while (cache.recovering(id).length > 0 && Date.now() - begunMs < END_WITHIN_MS)
    await sleep(POLL_MS);
}
