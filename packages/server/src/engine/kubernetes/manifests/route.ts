/**
 * Routes of the TLS gateway: for each endpoint of a region with a domain a name in the DNS of the
 * cluster, by a Service of the type ExternalName (docs/decisions/0073-tls-gateway.md).
 */
import type { Endpoint } from '../../spec.ts';
import type { Manifest } from '../api/client.ts';
import { KINDS, type Place } from '../api/kinds.ts';
import { endpointService, LABELS, MANAGED, namespaceOf, poolerName } from './names.ts';

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

export type RouteInput = Readonly<{
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
