/** The kinds of objects that the engine reads and writes, their paths in the API and metadata. */
import { Type } from 'typebox';

export type Kind = Readonly<{
  apiVersion: string;
  kind: string;
  plural: string;
  namespaced: boolean;
}>;

const CNPG = 'postgresql.cnpg.io/v1';
const BARMAN = 'barmancloud.cnpg.io/v1';

export const KINDS = {
  namespace: { apiVersion: 'v1', kind: 'Namespace', plural: 'namespaces', namespaced: false },
  node: { apiVersion: 'v1', kind: 'Node', plural: 'nodes', namespaced: false },
  pod: { apiVersion: 'v1', kind: 'Pod', plural: 'pods', namespaced: true },
  secret: { apiVersion: 'v1', kind: 'Secret', plural: 'secrets', namespaced: true },
  configMap: { apiVersion: 'v1', kind: 'ConfigMap', plural: 'configmaps', namespaced: true },
  service: { apiVersion: 'v1', kind: 'Service', plural: 'services', namespaced: true },
  claim: {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    plural: 'persistentvolumeclaims',
    namespaced: true,
  },
  priorityClass: {
    apiVersion: 'scheduling.k8s.io/v1',
    kind: 'PriorityClass',
    plural: 'priorityclasses',
    namespaced: false,
  },
  storageClass: {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    plural: 'storageclasses',
    namespaced: false,
  },
  deployment: {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    plural: 'deployments',
    namespaced: true,
  },
  networkPolicy: {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    plural: 'networkpolicies',
    namespaced: true,
  },
  snapshot: {
    apiVersion: 'snapshot.storage.k8s.io/v1',
    kind: 'VolumeSnapshot',
    plural: 'volumesnapshots',
    namespaced: true,
  },
  snapshotClass: {
    apiVersion: 'snapshot.storage.k8s.io/v1',
    kind: 'VolumeSnapshotClass',
    plural: 'volumesnapshotclasses',
    namespaced: false,
  },
  definition: {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    plural: 'customresourcedefinitions',
    namespaced: false,
  },
  accessReview: {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    plural: 'selfsubjectaccessreviews',
    namespaced: false,
  },
  /** The name is that of the pod. */
  podMetrics: {
    apiVersion: 'metrics.k8s.io/v1beta1',
    kind: 'PodMetrics',
    plural: 'pods',
    namespaced: true,
  },
  cluster: { apiVersion: CNPG, kind: 'Cluster', plural: 'clusters', namespaced: true },
  backup: { apiVersion: CNPG, kind: 'Backup', plural: 'backups', namespaced: true },
  /** The Barman Cloud plugin has them. */
  objectStore: {
    apiVersion: BARMAN,
    kind: 'ObjectStore',
    plural: 'objectstores',
    namespaced: true,
  },
  scheduledBackup: {
    apiVersion: CNPG,
    kind: 'ScheduledBackup',
    plural: 'scheduledbackups',
    namespaced: true,
  },
} as const satisfies Record<string, Kind>;

/** One object, or with `name: null` a collection; `namespace: null`: all, or none for its kind. */
export type Place = Readonly<{
  kind: Kind;
  namespace: string | null;
  name: string | null;
}>;

/** The path of an object or a collection in the API. */
export function pathOf({ kind, namespace, name }: Place, subresource?: string): string {
  const root = kind.apiVersion.includes('/')
    ? `/apis/${kind.apiVersion}`
    : `/api/${kind.apiVersion}`;
  const within = kind.namespaced && namespace !== null ? `/namespaces/${part(namespace)}` : '';
  const object = name === null ? '' : `/${part(name)}`;
  const more = subresource === undefined ? '' : `/${subresource}`;
  return `${root}${within}/${kind.plural}${object}${more}`;
}

/** Names are labels of DNS, which need no escapes; anything else must not change the path. */
const part = (name: string): string => encodeURIComponent(name);

// The metadata of objects, as far as they are read.

export const TEXTS = Type.Record(Type.String(), Type.String());
export const METADATA = Type.Object({
  name: Type.String(),
  namespace: Type.String(),
  uid: Type.String(),
  // Digits, by which an older state is known from a newer one.
  resourceVersion: Type.String({ pattern: '^[0-9]+$' }),
  /** Grows with each change of what is desired. */
  generation: Type.Optional(Type.Number()),
  deletionTimestamp: Type.Optional(Type.String()),
  labels: Type.Optional(TEXTS),
  annotations: Type.Optional(TEXTS),
});
