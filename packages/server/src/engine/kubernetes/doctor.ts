/** Examines the cluster of a region: what is there, what is missing, and what adds it. */
import { Type, type Static } from 'typebox';
import type { Finding } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { tryWrite } from './region/answers.ts';
import type { Kube } from './api/client.ts';
import { KubeError } from './api/errors.ts';
import { KINDS, type Kind } from './api/kinds.ts';
import { isInOurNamespace, LABELS } from './names.ts';
import { findSnapshotClass, findStorageClass } from './region/storage-classes.ts';

const OLDEST_KUBERNETES_MINOR = 34;
const OLDEST_OPERATOR = [1, 30] as const;

/** @param storageClass null: the default class @param namespace one like those of projects */
export async function examineCluster(
  kube: Kube,
  storageClass: string | null,
  namespace: string,
): Promise<Finding[]> {
  const checks = [
    examineVersion(kube),
    examineDefinitions(kube),
    examineOperator(kube),
    examineAdmission(kube),
    examineStorage(kube, storageClass),
    examineSnapshots(kube, storageClass),
    examineNodes(kube),
    examineMetrics(kube),
    examinePermissions(kube, namespace),
  ];
  const found = await Promise.all(
    checks.map((check) =>
      check.catch((error: unknown): Finding => ({
        what: 'cluster',
        state: 'missing',
        found: messageOf(error),
        remedy: 'let the user of the kubeconfig read it, or reach the cluster: docs/kubernetes.md',
      })),
    ),
  );
  return found;
}

const VERSION = Type.Object({ minor: Type.String(), gitVersion: Type.String() });

async function examineVersion(kube: Kube): Promise<Finding> {
  const { minor, gitVersion } = await kube.read('/version', VERSION);
  const isOld = Number.parseInt(minor, 10) < OLDEST_KUBERNETES_MINOR;
  return {
    what: 'Kubernetes',
    state: isOld ? 'note' : 'ok',
    found: gitVersion,
    ...(isOld ? { remedy: `upgrade to 1.${OLDEST_KUBERNETES_MINOR} or newer` } : {}),
  };
}

const DEFINITION = Type.Object({
  spec: Type.Object({
    versions: Type.Array(Type.Object({ name: Type.String(), served: Type.Boolean() })),
  }),
});
const INSTALL = 'install CloudNativePG 1.30 or newer: https://cloudnative-pg.io/docs/';

/** Whether the cluster has resources of a kind, in their version v1. */
export async function isServed(kube: Kube, name: string): Promise<boolean> {
  const found = await kube.get({ kind: KINDS.definition, namespace: null, name }, DEFINITION);
  return found?.spec.versions.some((one) => one.name === 'v1' && one.served) ?? false;
}

async function examineDefinitions(kube: Kube): Promise<Finding> {
  const name = 'clusters.postgresql.cnpg.io';
  const what = 'CloudNativePG resources';
  if (await isServed(kube, name)) return { what, state: 'ok', found: `${name}/v1` };
  return { what, state: 'missing', found: `${name}/v1 is not served`, remedy: INSTALL };
}

export const DEPLOYMENT = Type.Object({
  metadata: Type.Object({ name: Type.String(), namespace: Type.String() }),
  spec: Type.Object({
    template: Type.Object({
      spec: Type.Object({ containers: Type.Array(Type.Object({ image: Type.String() })) }),
    }),
  }),
  status: Type.Optional(Type.Object({ readyReplicas: Type.Optional(Type.Number()) })),
});

async function examineOperator(kube: Kube): Promise<Finding> {
  const what = 'CloudNativePG operator';
  const all = { kind: KINDS.deployment, namespace: null, name: null };
  const { items } = await kube.list(all, DEPLOYMENT, {
    'app.kubernetes.io/name': 'cloudnative-pg',
  });
  const [operator] = items;
  if (operator === undefined)
    return { what, state: 'missing', found: 'no Deployment of it', remedy: INSTALL };
  const { metadata, spec, status } = operator;
  const image = spec.template.spec.containers[0]?.image ?? '';
  const [, version] = /:v?(\d+\.\d+(?:\.\d+)?)/.exec(image) ?? [];
  const place = `${metadata.namespace}/${metadata.name}, ${version ?? image}`;
  if ((status?.readyReplicas ?? 0) === 0)
    return {
      what,
      state: 'missing',
      found: `${place}, is not ready`,
      remedy: `kubectl --namespace ${metadata.namespace} describe deployment ${metadata.name}`,
    };
  return version !== undefined && isOlder(version, OLDEST_OPERATOR)
    ? { what, state: 'missing', found: place, remedy: INSTALL }
    : { what, state: 'ok', found: place };
}

/** The API server waits 10 s for a webhook, and then says which one it is. */
const WEBHOOK_WITHIN_MS = 15_000;

async function examineAdmission(kube: Kube): Promise<Finding> {
  const what = 'changes of a Cluster';
  try {
    await tryWrite(kube, WEBHOOK_WITHIN_MS);
    return { what, state: 'ok', found: 'accepted' };
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    return {
      what,
      state: 'missing',
      found: error.message,
      remedy: 'see that the operator runs: kubectl get pods --all-namespaces',
    };
  }
}

function isOlder(version: string, [oldestMajor, oldestMinor]: readonly [number, number]): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < oldestMajor || (major === oldestMajor && minor < oldestMinor);
}

async function examineStorage(kube: Kube, wanted: string | null): Promise<Finding> {
  const what = 'storage class';
  const found = await findStorageClass(kube, wanted);
  if (found === null)
    return {
      what,
      state: 'missing',
      found: wanted === null ? 'there is no default class' : `there is no class ${wanted}`,
      remedy: 'add the region again with --storage-class; kubectl get storageclass lists them',
    };
  const { name } = found.metadata;
  return found.allowVolumeExpansion === true
    ? { what, state: 'ok', found: `${name}, volumes can grow` }
    : {
        what,
        state: 'note',
        found: `${name}, volumes cannot grow`,
        remedy: `set allowVolumeExpansion in the class ${name}, if its driver can do that`,
      };
}

const ONE_MOMENT = 'its driver must take them of one moment (docs/kubernetes.md)';
const WITHOUT_SNAPSHOTS =
  'there are no backups and no forks of paused services, and forks of running ones copy all data';

/** Without one, forks of running services are slow, and those of stopped ones are not possible. */
async function examineSnapshots(kube: Kube, storageClass: string | null): Promise<Finding> {
  const what = 'volume snapshots';
  const found = await findSnapshotClass(kube, storageClass);
  return 'name' in found
    ? { what, state: 'ok', found: `class ${found.name}, for backups and forks; ${ONE_MOMENT}` }
    : {
        what,
        state: 'note',
        found: `${found.missing}, so ${WITHOUT_SNAPSHOTS}`,
        remedy:
          'install a snapshot controller, and a class with deletionPolicy: Delete: ' +
          'https://kubernetes.io/docs/concepts/storage/volume-snapshots/',
      };
}

/** Everything that the engine asks of the API, by kind. */
const NEEDED: readonly (readonly [Kind, readonly string[], subresource?: string])[] = [
  [KINDS.namespace, ['patch', 'create']],
  [KINDS.secret, ['get', 'list', 'create', 'patch', 'delete']],
  [KINDS.cluster, ['list', 'watch', 'create', 'patch', 'delete']],
  // A switchover is asked for in the status.
  [KINDS.cluster, ['patch'], 'status'],
  // A drill kills the primary. A verification has a pod of its own.
  [KINDS.pod, ['list', 'watch', 'create', 'delete']],
  [KINDS.claim, ['list', 'delete']],
  [KINDS.service, ['list', 'create', 'patch', 'delete']],
  // Poolers.
  [KINDS.deployment, ['list', 'watch', 'create', 'patch', 'delete']],
  [KINDS.backup, ['list', 'watch', 'create', 'patch', 'delete']],
  [KINDS.snapshot, ['list', 'create', 'patch', 'delete']],
  // Archived WAL.
  [KINDS.configMap, ['list', 'watch', 'create', 'patch', 'delete']],
  [KINDS.objectStore, ['list', 'watch', 'create', 'patch', 'delete']],
  [KINDS.podMetrics, ['get']],
];
const REVIEW = Type.Object({ status: Type.Object({ allowed: Type.Boolean() }) });

async function examinePermissions(kube: Kube, namespace: string): Promise<Finding> {
  const asked = NEEDED.flatMap(([kind, verbs, subresource]) =>
    verbs.map((verb) => ({ kind, verb, ...(subresource === undefined ? {} : { subresource }) })),
  );
  const answers = await Promise.all(
    asked.map(async (access) => {
      const { allowed } = await reviewAccess(kube, access, namespace);
      const { kind, verb, subresource } = access;
      return allowed
        ? []
        : [`${verb} ${kind.plural}${subresource === undefined ? '' : `/${subresource}`}`];
    }),
  );
  const missing = answers.flat();
  const what = 'permissions';
  if (missing.length === 0)
    return { what, state: 'ok', found: `all ${asked.length} that are needed` };
  return {
    what,
    state: 'missing',
    found: `the user of the kubeconfig may not ${missing.join(', ')}`,
    remedy: 'grant them by a ClusterRole: docs/kubernetes.md',
  };
}

type Access = Readonly<{ kind: Kind; verb: string; subresource?: string }>;

async function reviewAccess(
  kube: Kube,
  { kind, verb, subresource }: Access,
  namespace: string,
): Promise<{ allowed: boolean }> {
  const [group, version] = kind.apiVersion.includes('/')
    ? kind.apiVersion.split('/')
    : ['', kind.apiVersion];
  const review = {
    apiVersion: KINDS.accessReview.apiVersion,
    kind: KINDS.accessReview.kind,
    spec: {
      resourceAttributes: {
        group,
        version,
        resource: kind.plural,
        verb,
        ...(subresource === undefined ? {} : { subresource }),
        ...(kind.namespaced ? { namespace } : {}),
      },
    },
  };
  const place = { kind: KINDS.accessReview, namespace: null, name: null };
  return (await kube.create(place, review, REVIEW)).status;
}

const METRICS = '/apis/metrics.k8s.io/v1beta1';

/** Without it there are no figures of services, and all else works. */
async function examineMetrics(kube: Kube): Promise<Finding> {
  const what = 'metrics API';
  try {
    const { groupVersion } = await kube.read(METRICS, Type.Object({ groupVersion: Type.String() }));
    return { what, state: 'ok', found: groupVersion };
  } catch (error) {
    if (!(error instanceof KubeError) || error.status === null) throw error;
    return {
      what,
      state: 'note',
      found: `${METRICS} is not served, so services have no metrics`,
      remedy: 'install metrics-server: https://github.com/kubernetes-sigs/metrics-server',
    };
  }
}

/** A node, as far as it says whether it is ready, and where. */
export const NODE = Type.Object({
  status: Type.Object({
    conditions: Type.Array(Type.Object({ type: Type.String(), status: Type.String() })),
    addresses: Type.Array(Type.Object({ type: Type.String(), address: Type.String() })),
  }),
});

/** A primary and two replicas are on three nodes, if there are so many. */
const NODES = 3;

async function examineNodes(kube: Kube): Promise<Finding> {
  const { items } = await kube.list({ kind: KINDS.node, namespace: null, name: null }, NODE);
  const ready = items.filter(isReady).length;
  const what = 'nodes';
  if (ready >= NODES) return { what, state: 'ok', found: `${ready} are ready` };
  return {
    what,
    state: 'note',
    found: `${ready} are ready: servers of one service can be on the same node, and end with it`,
    remedy: `add nodes, for services with replicas: ${NODES} for two of them`,
  };
}

export const isReady = ({ status }: Static<typeof NODE>): boolean =>
  status.conditions.some((one) => one.type === 'Ready' && one.status === 'True');

/** The address of the first node that is ready, an external one if possible; null: none is. */
export async function findNodeHost(kube: Kube): Promise<string | null> {
  const { items } = await kube.list({ kind: KINDS.node, namespace: null, name: null }, NODE);
  const ready = items.find(isReady);
  const addresses = ready?.status.addresses ?? [];
  const found = ['ExternalIP', 'InternalIP'].flatMap((type) =>
    addresses.filter((one) => one.type === type),
  );
  return found[0]?.address ?? null;
}

const CLUSTER_METADATA = Type.Object({
  metadata: Type.Object({
    namespace: Type.String(),
    labels: Type.Record(Type.String(), Type.String()),
  }),
});

/** How many Clusters there are of a region with this code, be they ours or not. */
export async function countClusters(kube: Kube, code: string): Promise<number> {
  const all = { kind: KINDS.cluster, namespace: null, name: null };
  try {
    const { items } = await kube.list(all, CLUSTER_METADATA, { [LABELS.region]: code });
    return items.filter(({ metadata }) => isInOurNamespace(metadata)).length;
  } catch (error) {
    // Without the operator there are none.
    if (error instanceof KubeError && error.status === 404) return 0;
    throw error;
  }
}
