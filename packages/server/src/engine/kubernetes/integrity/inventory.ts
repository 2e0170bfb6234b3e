/** Howdah's objects in a cluster, for the integrity check. All of them are input. */
import { Type, type Static } from 'typebox';
import type { Kube } from '../api/client.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS, type Kind } from '../api/kinds.ts';
import { CLUSTER_LABEL, idOf, idOfSnapshot, isInOurNamespace, LABELS, MANAGED } from '../names.ts';
import { GATEWAY_NAMESPACE } from '../network/routes.ts';
import {
  CLUSTER_OBJECT,
  clusterState,
  POD_OBJECT,
  serverState,
  type ClusterState,
} from '../cluster/state.ts';
import { describeForeign } from '../cluster/foreign-fields.ts';
import { DEPLOYMENT_OBJECT } from '../pooler/state.ts';

/** An object, and the service that its labels or its name give it to. */
export type Found = Readonly<{ kind: Kind; namespace: string; name: string; id: string }>;

export type FoundCluster = Found &
  Readonly<{
    region: string | null;
    state: ClusterState;
    /** The fields that others have set, as a sentence for each of them. */
    changes: readonly string[];
  }>;

export type ClusterInventory = Readonly<{
  /** Those of all regions and installations. */
  clusters: readonly FoundCluster[];
  /** Pods of servers that are not about to end. */
  servers: readonly Found[];
  poolers: readonly (Found & Readonly<{ isWanted: boolean }>)[];
  /** Ports at which nodes listen, for the Services of anybody. */
  ports: readonly Readonly<{ port: number; namespace: string; name: string }>[];
  /** Routes of the TLS gateway, with the Services that they stand for. */
  routes: readonly (Found & Readonly<{ target: string }>)[];
  /** Other objects of services. */
  parts: readonly Found[];
}>;

const LABELED = Type.Object({
  metadata: Type.Object({
    name: Type.String(),
    namespace: Type.String(),
    labels: Type.Optional(Type.Record(Type.String(), Type.String())),
  }),
});
type Labeled = Static<typeof LABELED>;

const SERVICE_OBJECT = Type.Object({
  metadata: Type.Object({
    name: Type.String(),
    namespace: Type.String(),
    labels: Type.Optional(Type.Record(Type.String(), Type.String())),
  }),
  spec: Type.Object({
    externalName: Type.Optional(Type.String()),
    ports: Type.Optional(Type.Array(Type.Object({ nodePort: Type.Optional(Type.Number()) }))),
  }),
});

/** Lists the parts before the Clusters: a service that is being made has a Cluster last. */
export async function takeClusterInventory(kube: Kube): Promise<ClusterInventory> {
  const [secrets, claims, others, poolers, services, pods] = await Promise.all([
    kube.list(everywhere(KINDS.secret), LABELED, MANAGED).then(({ items }) => items),
    kube.list(everywhere(KINDS.claim), LABELED).then(({ items }) => items),
    Promise.all([
      findIfServed(kube, KINDS.backup),
      findIfServed(kube, KINDS.objectStore),
      findIfServed(kube, KINDS.configMap, MANAGED),
      findIfServed(kube, KINDS.snapshot),
    ]),
    kube.list(everywhere(KINDS.deployment), DEPLOYMENT_OBJECT, MANAGED).then(({ items }) => items),
    kube.list(everywhere(KINDS.service), SERVICE_OBJECT).then(({ items }) => items),
    kube.list(everywhere(KINDS.pod), POD_OBJECT).then(({ items }) => items),
  ]);
  const clusters = await kube.list(everywhere(KINDS.cluster), CLUSTER_OBJECT);
  const running = pods.filter((pod) => serverState(pod)?.leaving === false);
  return {
    clusters: clusters.items.flatMap((cluster) =>
      partsOf(KINDS.cluster, [cluster]).map((found) => ({
        ...found,
        region: cluster.metadata.labels?.[LABELS.region] ?? null,
        state: clusterState(cluster),
        changes: describeForeign(clusterState(cluster).foreign),
      })),
    ),
    servers: partsOf(KINDS.pod, running),
    poolers: poolers.flatMap((pooler) =>
      partsOf(KINDS.deployment, [pooler]).map((found) => ({
        ...found,
        isWanted: pooler.spec.replicas > 0,
      })),
    ),
    ports: services.flatMap(({ metadata: { namespace, name }, spec }) =>
      (spec.ports ?? []).flatMap(({ nodePort }) =>
        nodePort === undefined ? [] : [{ port: nodePort, namespace, name }],
      ),
    ),
    routes: services
      .filter(({ metadata }) => metadata.namespace === GATEWAY_NAMESPACE)
      .flatMap((service) =>
        partsOf(KINDS.service, [service]).map((found) => ({
          ...found,
          target: service.spec.externalName ?? '',
        })),
      ),
    parts: [...partsOf(KINDS.secret, secrets), ...partsOf(KINDS.claim, claims), ...others.flat()],
  };
}

const everywhere = (kind: Kind) => ({ kind, namespace: null, name: null });

/** A cluster without such resources, or a user without the right to list them, has made none. */
async function findIfServed(
  kube: Kube,
  kind: Kind,
  labels: Readonly<Record<string, string>> = {},
): Promise<Found[]> {
  try {
    return partsOf(kind, (await kube.list(everywhere(kind), LABELED, labels)).items);
  } catch (error) {
    if (error instanceof KubeError && (error.status === 404 || error.status === 403)) return [];
    throw error;
  }
}

/** Objects with our labels count in all namespaces: there they are a finding. */
function partsOf(kind: Kind, objects: readonly Labeled[]): Found[] {
  return objects.flatMap(({ metadata: { namespace, name, labels } }) => {
    const cluster = labels?.[CLUSTER_LABEL];
    const labeled = labels?.[LABELS.service] ?? (cluster === undefined ? null : idOf(cluster));
    if (labeled === null) return [];
    const id = (kind === KINDS.snapshot ? idOfSnapshot(name) : null) ?? labeled;
    // Clusters of others may have names like ours; only ours have such a namespace or our labels.
    const isOurs = labels?.[LABELS.service] !== undefined || isInOurNamespace({ namespace });
    return isOurs ? [{ kind, namespace, name, id }] : [];
  });
}
