/** The endpoints of services, and their routes at a TLS gateway. */
import type { Endpoint, ServiceSpec } from '../../spec.ts';
import { KubeError } from '../api/errors.ts';
import type { RegionSettings } from '../region/settings.ts';
import {
  clusterName,
  idOf,
  setName,
  endpointService,
  LABELS,
  MANAGED,
  namespaceOf,
  poolerName,
} from '../names.ts';
import type { Region } from '../region/region.ts';
import type { ClusterState } from '../cluster/state.ts';
import type { Manifest } from '../api/client.ts';
import { KINDS, type Place } from '../api/kinds.ts';

// Routes of the TLS gateway: for each endpoint of a region with a domain a name in the DNS of the
// cluster, by a Service of the type ExternalName (docs/decisions/0073-tls-gateway.md).

/** The namespace of the TLS gateway. */
export const GATEWAY_NAMESPACE = 'howdah-gateway';

/** The port of all endpoints at a TLS gateway. */
const GATEWAY_PORT = 5432;

/** The servers of a service or read replica set, or its pooler. */
export type RoutePart = 'servers' | 'pooler';

/** The first label of the name of an endpoint. */
const labelOf = (id: string, part: RoutePart): string => (part === 'servers' ? id : poolerName(id));

/** The endpoint at the TLS gateway of a domain. */
export const publicEndpoint = (domain: string, id: string, part: RoutePart): Endpoint => ({
  host: `${labelOf(id, part)}.${domain}`,
  port: GATEWAY_PORT,
});

export const routePlace = (id: string, part: RoutePart): Place => ({
  kind: KINDS.service,
  namespace: GATEWAY_NAMESPACE,
  name: `db-${labelOf(id, part)}`,
});

type RouteInput = Readonly<{
  id: string;
  /** The name of its Cluster. */
  cluster: string;
  projectId: string;
  region: string;
  part: RoutePart;
}>;

/** The Service that a route names. The gateway adds the domain of its cluster. */
export const routeTarget = ({ cluster, projectId, part }: Omit<RouteInput, 'id' | 'region'>) =>
  `${part === 'servers' ? endpointService(cluster) : poolerName(cluster)}.` +
  `${namespaceOf(projectId)}.svc`;

export function routeManifest(input: RouteInput): Manifest {
  const { id, projectId, region, part } = input;
  return {
    apiVersion: 'v1',
    kind: KINDS.service.kind,
    metadata: {
      name: routePlace(id, part).name ?? '',
      namespace: GATEWAY_NAMESPACE,
      labels: {
        ...MANAGED,
        [LABELS.service]: id,
        [LABELS.project]: projectId,
        [LABELS.region]: region,
      },
    },
    spec: { type: 'ExternalName', externalName: routeTarget(input) },
  };
}

/** Where the servers of a Cluster answer; null: unknown. */
export function endpointOf(
  { host, domain }: Pick<RegionSettings, 'host' | 'domain'>,
  { name, nodePort }: Pick<ClusterState, 'name' | 'nodePort'>,
): Endpoint | null {
  const id = idOf(name);
  if (domain !== null && id !== null) return publicEndpoint(domain, id, 'servers');
  return nodePort === null ? null : { host, port: nodePort };
}

type Routed = Pick<ServiceSpec, 'id' | 'set'> & { readonly projectId: string };

/**
 * Has the gateway connect clients to a service. Does nothing in a region without a domain.
 *
 * @throws Error without the namespace of the gateway; KubeError
 */
export async function writeRoute(
  { kube, settings: { code, domain } }: Pick<Region, 'kube' | 'settings'>,
  { id, set, projectId }: Routed,
  part: RoutePart,
): Promise<void> {
  if (domain === null) return;
  const cluster = set === null ? clusterName(id) : setName(id);
  const manifest = routeManifest({ id, cluster, projectId, region: code, part });
  try {
    await kube.apply(routePlace(id, part), manifest);
  } catch (error) {
    if (error instanceof KubeError && error.status === 404)
      throw new Error(NO_NAMESPACE, { cause: error });
    throw error;
  }
}

const NO_NAMESPACE =
  `the cluster has no namespace ${GATEWAY_NAMESPACE}, which the TLS gateway of the region is in: ` +
  'kubectl apply -f deploy/kubernetes/gateway.yaml';
