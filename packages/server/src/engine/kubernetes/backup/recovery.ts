/**
 * Recovers the archive of a service in a Cluster of its own, as a fork of a moment is made, and
 * leaves the volume for the pod that examines it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { ADMIN_ROLE, DATABASE_NAME, type Placement } from '@howdah/contract';
import { EngineUnavailable } from '../../engine.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS, pathOf, type Place } from '../api/kinds.ts';
import { HIBERNATION, volumesOf } from '../cluster/manifest.ts';
import {
  CLUSTER_LABEL,
  podIn,
  recoveredName,
  AUTHORITY_SECRET,
  certificateSecret,
  clusterName,
  LABELS,
  MANAGED,
  namespaceOf,
  passwordSecret,
  VERIFICATION_LABEL,
} from '../names.ts';
import type { Region } from '../region/region.ts';
import { StoreError, tryStore } from './s3.ts';
import { listPlaces, placesIn } from '../cluster/objects.ts';
import {
  CLUSTER_OBJECT,
  clusterState,
  obstacleIn,
  type ClusterState,
  type PodObject,
} from '../cluster/state.ts';
import type { StepResult } from './verification-pod.ts';
import type { Manifest } from '../api/client.ts';
import { pointInTimeOf } from './manifests.ts';
import { nodesOf, priorityOf, pullsOf } from '../region/settings.ts';

const POLL_MS = 1000;
/** A cluster that is full for so long has no room for it today. */
const START_WITHIN_MS = 600_000;
/** The server is healthy then, and without clients. */
const STOP_WITHIN_MS = 600_000;
/** The volume of a pod goes with it. */
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

// Why a recovery has failed, by the output of its pod. Names of a tenant may be in it.

/** A line of CloudNativePG; `record` is one of PostgreSQL. */
const LINE = Type.Object({
  msg: Type.Optional(Type.String()),
  error: Type.Optional(Type.String()),
  record: Type.Optional(
    Type.Object({ error_severity: Type.String(), message: Type.Optional(Type.String()) }),
  ),
});

/** Longest reason that users are shown. */
const MAX_LENGTH = 500;
/** The plugin looks for the first file before it copies anything. */
const NO_WAL = /([0-9A-F]{24}): WAL not found/;
/** These say something of the volume. */
const NO_SPACE = /No space left on device|Disk quota exceeded/;

/**
 * @returns `damage`: how the archive is damaged, as PostgreSQL or the plugin says it; null: it is
 *   not said. `text`: the last line, which is not for users
 */
export function damageIn(output: string): Readonly<{ damage: string | null; text: string }> {
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  const text = (lines.at(-1) ?? 'no output').slice(0, MAX_LENGTH);
  if (NO_SPACE.test(output)) return { damage: null, text: 'its volume is full' };
  const missing = NO_WAL.exec(output)?.[1];
  const fatal = lines.map(fatalIn).findLast((found) => found !== null) ?? null;
  const damage = missing === undefined ? fatal : `the archive has no WAL file ${missing}`;
  return { damage: damage === null ? null : shown(damage), text };
}

const shown = (text: string): string =>
  text
    .replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ')
    .trim()
    .slice(0, MAX_LENGTH);

/** The message of a line by which PostgreSQL ends; null: it is another one. */
function fatalIn(line: string): string | null {
  const parsed = parse(line);
  if (parsed === null) return plainFatal(line);
  const { msg = '', record } = parsed;
  const isFatal = record?.error_severity === 'FATAL' || record?.error_severity === 'PANIC';
  return isFatal ? unlessRefused(record.message ?? msg) : plainFatal(msg);
}

const plainFatal = (line: string): string | null =>
  unlessRefused(/\b(?:FATAL|PANIC): +(.*)$/s.exec(line)?.[1] ?? null);

/** A session that came too early or too late is refused by FATAL, too. */
const unlessRefused = (message: string | null): string | null =>
  message?.startsWith('the database system is ') === true ? null : message;

function parse(line: string) {
  if (!line.startsWith('{')) return null;
  try {
    const value: unknown = JSON.parse(line);
    return Value.Check(LINE, value) ? value : null;
  } catch {
    return null;
  }
}

// The Cluster that recovers the archive of a service, so that the copy can be examined. It runs
// until the operator calls it healthy, then its volume is the copy. No client can log in, no code
// of the tenant runs in it, and it archives nothing.

/** Room for WAL that the service has removed meanwhile: its volume may be full. */
const WAL_GB = 2;

type RecoveredInput = Readonly<{
  id: string;
  projectId: string;
  region: string;
  /** The Cluster of the service, with which it goes. */
  clusterUid: string;
  image: string;
  major: number;
  storageGb: number;
  storageClass: string | null;
  placement: Placement;
  /** Whether its image is pulled by the credentials of the region. */
  pulls: boolean;
  /** Settings that a recovery needs at least as large as the server had them. */
  limits: Readonly<Record<string, string>>;
  /** The moment up to which the archive is recovered, as PostgreSQL takes it. */
  targetTime: string;
}>;

function recoveredManifest(input: RecoveredInput): Manifest {
  const { id, projectId, region, clusterUid } = input;
  const { apiVersion, kind } = KINDS.cluster;
  const name = clusterName(id);
  // Not that of the service: it is none of its servers.
  const labels = {
    [LABELS.project]: projectId,
    [LABELS.region]: region,
    [VERIFICATION_LABEL]: name,
  };
  return {
    apiVersion,
    kind,
    metadata: {
      name: recoveredName(id),
      namespace: namespaceOf(projectId),
      labels: { ...MANAGED, ...labels },
      annotations: { [HIBERNATION]: 'off' },
      ownerReferences: [{ apiVersion, kind, name, uid: clusterUid }],
    },
    spec: { inheritedMetadata: { labels }, ...specOf(input, name) },
  };
}

function specOf(input: RecoveredInput, name: string): object {
  const { id, image, major, storageGb, limits, targetTime } = input;
  const { recovery, externalClusters } = pointInTimeOf(id, id, targetTime);
  return {
    instances: 1,
    imageName: image,
    storage: {
      size: `${storageGb + WAL_GB}G`,
      ...volumesOf(input),
    },
    affinity: nodesOf(input.placement),
    ...priorityOf(input.placement),
    ...pullsOf(input.region, input.pulls),
    // This Cluster takes what services leave.
    resources: { requests: { cpu: '50m', memory: '256Mi' }, limits: { memory: '1Gi' } },
    enableSuperuserAccess: false,
    certificates: { serverCASecret: AUTHORITY_SECRET, serverTLSSecret: certificateSecret(name) },
    postgresql: {
      parameters: {
        ...limits,
        shared_buffers: '128MB',
        max_wal_size: '96MB',
        wal_keep_size: '0',
        autovacuum: 'off',
        max_logical_replication_workers: '0',
        ...(major >= 17 ? { event_triggers: 'off' } : {}),
      },
      // Libraries of extensions have workers, which would work on the data.
      shared_preload_libraries: [],
      // After those of CloudNativePG itself, and before its last one, which lets all roles in.
      pg_hba: ['host all all all reject'],
    },
    bootstrap: {
      recovery: {
        ...recovery,
        database: DATABASE_NAME,
        owner: ADMIN_ROLE,
        secret: { name: passwordSecret(id) },
      },
    },
    externalClusters,
    enablePDB: false,
    managed: { services: { disabledDefaultServices: ['ro', 'r'], additional: [] } },
    startDelay: 86_400,
    stopDelay: 60,
    smartShutdownTimeout: 2,
    probes: { startup: { periodSeconds: 1 }, readiness: { periodSeconds: 1 } },
  };
}
