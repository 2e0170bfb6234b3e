/**
 * The Clusters, pods and poolers of a region, kept up to date by watches, so that reads cost no
 * request and a change is noticed at once.
 */
import type { Static } from 'typebox';
import { createGroups } from '../../../lib/groups.ts';
import { Value } from 'typebox/value';
import type { Kube } from '../api/client.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS, type Kind } from '../api/kinds.ts';
import { follow } from '../api/watch.ts';
import {
  CLUSTER_LABEL,
  idOf,
  isInOurNamespace,
  LABELS,
  originBackup,
  POOLER_LABEL,
  VERIFICATION_LABEL,
} from '../names.ts';
import { archiveRecordName } from '../backup/manifests.ts';
import {
  ARCHIVE_OBJECT,
  ARCHIVE_RECORD,
  archiveState,
  type ArchiveRecord,
  type ArchiveState,
} from '../backup/archive-state.ts';
import {
  BACKUP_OBJECT,
  backupState,
  originBackupState,
  type BackupState,
  type OriginBackup,
} from '../backup/state.ts';
import {
  CLUSTER_OBJECT,
  clusterState,
  obstacleIn,
  POD_OBJECT,
  type ClusterObject,
  type PodObject,
  serverState,
  type ClusterState,
  type ServerState,
} from '../cluster/state.ts';
import { DEPLOYMENT_OBJECT, poolerState, type PoolerState } from '../pooler/state.ts';

/**
 * The labels of pods with the name of a service's Cluster. Pods of a Cluster that recovers an
 * archive have the first one, and another Cluster's name in the second.
 */
const POD_LABELS = [VERIFICATION_LABEL, CLUSTER_LABEL, POOLER_LABEL];

/** A pod that examines a copy of a service. */
export type VerificationPod = Readonly<{
  phase: string;
  /** Why it does not start, or has failed; null: no reason is known. */
  obstacle: string | null;
}>;

export type Cache = Readonly<{
  /** Waits for the first lists. @throws the error of a cluster that does not answer */
  ready: () => Promise<void>;
  /** Why what is known may be old; null: the cluster answers. */
  staleWhy: () => string | null;
  cluster: (id: string) => ClusterState | null;
  /** The ids of the read replica sets that follow a service. */
  setsOf: (id: string) => readonly string[];
  /** In the order of their numbers. */
  servers: (id: string) => readonly ServerState[];
  /** The number of all its pods: of servers, of jobs, of the pooler, of a verification. */
  podCount: (id: string) => number;
  /** The pod that examines a copy of it; null: there is none. */
  verification: (id: string) => VerificationPod | null;
  /** The pods of the Cluster that recovers its archive, so that the copy can be examined. */
  recovering: (id: string) => readonly PodObject[];
  /** Why one of the pods of its servers does not start; null: no reason is known. */
  obstacle: (id: string) => string | null;
  /**
   * Whether backups are known; false: a user without the right to list them has none; null: the
   * cluster does not say now.
   */
  knowsBackups: () => boolean | null;
  /** A service's snapshots and base backups, newest first. */
  backups: (id: string) => readonly BackupState[];
  /** The backup of its running parent that a fork is made of; null: there is none. */
  originBackup: (id: string) => OriginBackup | null;
  /** The services that have a Cluster. */
  ids: () => string[];
  /** Whether the cluster has the Barman Cloud plugin's resources; null: it has not said yet. */
  hasPlugin: () => boolean | null;
  /** Ends once it is known whether there are backups and resources of the plugin. */
  listed: Promise<void>;
  /** A service's ObjectStore, and how far it is archived; null: it has none. */
  archive: (id: string) => ArchiveState | null;
  pooler: (id: string) => PoolerState | null;
  /** The pods of its pooler, and why they do not start. */
  poolerPods: (id: string) => Readonly<{ names: readonly string[]; obstacle: string | null }>;
  /** Takes over the answer to a write, so that the next step is decided by it. */
  put: (cluster: unknown) => void;
  putBackup: (backup: unknown) => void;
  putRecord: (configMap: unknown) => void;
  putPooler: (deployment: unknown) => void;
  close: () => Promise<void>;
}>;

type Labelled = Readonly<{ metadata: Readonly<{ labels?: Readonly<Record<string, string>> }> }>;

const serviceOf = ({ metadata }: Labelled) => metadata.labels?.[LABELS.service] ?? null;

/** The service whose archive a ConfigMap records; those of CloudNativePG have our labels too. */
function recordedIn(record: ArchiveRecord): string | null {
  const id = serviceOf(record);
  return id !== null && record.metadata.name === archiveRecordName(id) ? id : null;
}

/** @param changed called with the id of a service of which something changed */
export function createCache(kube: Kube, region: string, changed: (id: string) => void): Cache {
  const ending = new AbortController();
  const parts = { kube, selector: { [LABELS.region]: region }, signal: ending.signal };
  const clusters = keep({
    ...parts,
    kind: KINDS.cluster,
    schema: CLUSTER_OBJECT,
    serviceOf: ({ metadata }) => idOf(metadata.name),
    groupOf: ({ metadata }) => metadata.labels?.[LABELS.parent] ?? null,
    changed,
  });
  /** Each is asked for often, and changes with its object only. */
  const states = new WeakMap<ClusterObject, ClusterState>();
  const pods = keep({
    ...parts,
    kind: KINDS.pod,
    schema: POD_OBJECT,
    serviceOf: ({ metadata: { labels } }) =>
      idOf(POD_LABELS.map((label) => labels?.[label]).find((name) => name !== undefined) ?? ''),
    changed,
  });
  const backups = keep({ ...parts, kind: KINDS.backup, schema: BACKUP_OBJECT, serviceOf, changed });
  const poolers = keep({
    ...parts,
    kind: KINDS.deployment,
    schema: DEPLOYMENT_OBJECT,
    serviceOf: ({ metadata }) => idOf(metadata.labels?.[POOLER_LABEL] ?? ''),
    changed,
  });
  const ofArchives = { kind: KINDS.objectStore, schema: ARCHIVE_OBJECT, serviceOf };
  const archives = keep({ ...parts, ...ofArchives, changed });
  const ofRecords = { kind: KINDS.configMap, schema: ARCHIVE_RECORD, serviceOf: recordedIn };
  const records = keep({ ...parts, ...ofRecords, changed });
  return {
    ready: async () => void (await Promise.all([clusters.first, pods.first, poolers.first])),
    staleWhy: () => (clusters.failure() ?? pods.failure() ?? poolers.failure())?.message ?? null,
    knowsBackups: () => isThere(backups.failure()),
    cluster: (id) => {
      const [found] = clusters.of(id);
      if (found === undefined) return null;
      const state = states.get(found) ?? clusterState(found);
      states.set(found, state);
      return state;
    },
    ...viewsOf(pods),
    setsOf: (id) => [...clusters.members(id)],
    backups: (id) =>
      backups
        .of(id)
        .filter((backup) => !isOrigin(id)(backup))
        .map(backupState)
        .toSorted((a, b) => b.askedMs - a.askedMs),
    originBackup: (id) => backups.of(id).filter(isOrigin(id)).map(originBackupState)[0] ?? null,
    ids: clusters.ids,
    hasPlugin: () => isThere(archives.failure()),
    listed: Promise.allSettled([archives.first, backups.first]).then(() => undefined),
    archive: (id) => {
      const [found] = archives.of(id);
      return found === undefined ? null : archiveState(id, found, records.of(id)[0]);
    },
    pooler: (id) => {
      const [found] = poolers.of(id);
      return found === undefined ? null : poolerState(found);
    },
    put: clusters.put,
    putBackup: backups.put,
    putRecord: records.put,
    putPooler: poolers.put,
    close: async () => {
      ending.abort();
      const all = [clusters, pods, backups, poolers, archives, records];
      await Promise.all(all.map(({ following }) => following));
    },
  };
}

type PodViews = Pick<
  Cache,
  'servers' | 'podCount' | 'verification' | 'recovering' | 'obstacle' | 'poolerPods'
>;

/** The pods of services, by what they are for. */
function viewsOf(pods: Readonly<{ of: (id: string) => readonly PodObject[] }>): PodViews {
  const has = ({ metadata }: PodObject, label: string): boolean =>
    metadata.labels?.[label] !== undefined;
  const podsWith = (label: string, id: string) => pods.of(id).filter((pod) => has(pod, label));
  const ofVerification = (id: string, isOfCluster: boolean) =>
    podsWith(VERIFICATION_LABEL, id).filter((pod) => has(pod, CLUSTER_LABEL) === isOfCluster);
  const ofCluster = (id: string) =>
    podsWith(CLUSTER_LABEL, id).filter((pod) => !has(pod, VERIFICATION_LABEL));
  return {
    servers: (id) =>
      ofCluster(id)
        .map(serverState)
        .filter((state) => state !== null)
        .toSorted((a, b) => a.n - b.n),
    podCount: (id) => pods.of(id).length,
    verification: (id) => {
      const found = ofVerification(id, false);
      const [pod] = found;
      return pod === undefined
        ? null
        : { phase: pod.status?.phase ?? 'Pending', obstacle: obstacleIn(found) };
    },
    recovering: (id) => ofVerification(id, true),
    obstacle: (id) => obstacleIn(ofCluster(id)),
    poolerPods: (id) => {
      const found = podsWith(POOLER_LABEL, id);
      return { names: found.map(({ metadata }) => metadata.name), obstacle: obstacleIn(found) };
    },
  };
}

/** Whether a backup is the one that a fork is made of. */
const isOrigin =
  (id: string) =>
  ({ metadata }: KeptObject): boolean =>
    metadata.name === originBackup(id);

/** Whether there are resources of a kind, or a user may list them. */
function isThere(failure: Error | null): boolean | null {
  if (failure === null) return true;
  const status = failure instanceof KubeError ? failure.status : null;
  return status === 404 || status === 403 ? false : null;
}

type KeptObject = Readonly<{ metadata: Readonly<{ name: string; resourceVersion: string }> }>;

type KeptSchema =
  | typeof CLUSTER_OBJECT
  | typeof POD_OBJECT
  | typeof BACKUP_OBJECT
  | typeof ARCHIVE_OBJECT
  | typeof ARCHIVE_RECORD
  | typeof DEPLOYMENT_OBJECT;

type Kept<T extends KeptSchema> = Readonly<{
  kube: Kube;
  selector: Readonly<Record<string, string>>;
  signal: AbortSignal;
  kind: Kind;
  schema: T;
  /** The service that an object belongs to; null: to none. */
  serviceOf: (object: Static<T>) => string | null;
  /** The service that the service of an object belongs to; absent: none ever does. */
  groupOf?: (object: Static<T>) => string | null;
  changed: (id: string) => void;
}>;

/** Keeps the objects of one kind, by their services. */
function keep<T extends KeptSchema>({ kube, selector, signal, kind, ...kept }: Kept<T>) {
  const { schema, serviceOf, groupOf = () => null, changed } = kept;
  const objects = new Map<string, Map<string, Static<T>>>();
  const groups = createGroups();
  let settleFirst: (error: Error | null) => void = () => undefined;
  const first = new Promise<void>((resolve, reject) => {
    settleFirst = (error) => (error === null ? resolve() : reject(error));
  });
  first.catch(() => undefined); // nobody may wait for it
  let failure: Error | null = new Error(`the ${kind.plural} of the cluster are not listed yet`);

  const put = (object: Static<T>): string | null => {
    const id = isInOurNamespace(object.metadata) ? serviceOf(object) : null;
    if (id === null) return null;
    const those = objects.get(id) ?? new Map<string, Static<T>>();
    const before = those.get(nameIn(object));
    // The answer to a write can be newer than the next event.
    if (before !== undefined && versionIn(object) < versionIn(before)) return null;
    objects.set(id, those.set(nameIn(object), object));
    groups.put(id, groupOf(object));
    return id;
  };
  const notify = (ids: Iterable<string | null>): void => {
    for (const id of new Set(ids)) if (id !== null) changed(id);
  };
  const following = follow(
    kube,
    { kind, namespace: null, name: null },
    schema,
    selector,
    {
      all: (items) => {
        const before = [...objects.keys()];
        objects.clear();
        groups.clear();
        const now = items.map(put);
        settleFirst(null);
        notify([...before, ...now]);
      },
      changed: (object) => notify([put(object)]),
      removed: (object) => {
        const id = isInOurNamespace(object.metadata) ? serviceOf(object) : null;
        if (id === null) return;
        const those = objects.get(id);
        those?.delete(nameIn(object));
        if (those?.size === 0) {
          objects.delete(id);
          groups.put(id, null);
        }
        notify([id]);
      },
      failed: (error) => {
        failure = error;
        if (error !== null) settleFirst(error);
      },
    },
    signal,
  );
  return {
    first,
    following,
    failure: (): Error | null => failure,
    put: (object: unknown): void => {
      if (Value.Check(schema, object)) put(object);
    },
    /** The services of which some object says that they belong to a service. */
    members: (id: string): ReadonlySet<string> => groups.of(id),
    ids: (): string[] => [...objects.keys()],
    of: (id: string): Static<T>[] => [...(objects.get(id)?.values() ?? [])],
  };
}

/** The name of an object; those of one service are in one namespace. */
const nameIn = ({ metadata }: KeptObject): string => metadata.name;

/**
 * A number that grows with each change.
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
 */
const versionIn = ({ metadata }: KeptObject): bigint => BigInt(metadata.resourceVersion);
