/** The endpoints of services, and their routes at a TLS gateway. */
import type { Endpoint, ServiceSpec } from '../../spec.ts';
import { KubeError } from '../api/errors.ts';
import type { RegionSettings } from '../manifests/cluster.ts';
import { clusterName, idOf, setName } from '../manifests/names.ts';
import {
  GATEWAY_NAMESPACE,
  publicEndpoint,
  routeManifest,
  routePlace,
  type RoutePart,
} from '../manifests/route.ts';
import type { Region } from '../region.ts';
import type { ClusterState } from './observed.ts';

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
