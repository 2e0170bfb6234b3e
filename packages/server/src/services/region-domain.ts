/** The domains of regions on Kubernetes, whose services are behind a TLS gateway. */
import { ApiError, GATEWAY_PORT, NODE_PORTS, type AddRegionBody } from '@howdah/contract';
import type { KubernetesRegionRow } from '../store/kubernetes-regions.ts';

/** The ports of the services of a region. @throws ApiError INVALID_REQUEST */
export function portsOf({ domain, host, ...ports }: AddRegionBody) {
  const { first_port = NODE_PORTS.first, last_port = NODE_PORTS.last } = ports;
  if (first_port > last_port)
    throw new ApiError('INVALID_REQUEST', `last_port: found ${last_port}, below ${first_port}`);
  if (domain === undefined) return { first_port, last_port };
  const more = host ?? ports.first_port ?? ports.last_port;
  if (more !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `domain: its services are at port ${GATEWAY_PORT} of names in it; ` +
        'leave out host, first_port and last_port, or the domain',
    );
  return { first_port: GATEWAY_PORT, last_port: GATEWAY_PORT };
}

/**
 * Refuses a domain that another region has a part of: a name has one gateway, and a record of DNS
 * covers all names in a domain. A cluster has one gateway, for one region.
 *
 * @param server the address of the cluster
 * @throws ApiError CONFLICT
 */
export function refuseDomain(
  rows: readonly KubernetesRegionRow[],
  { domain, server }: Readonly<{ domain: string; server: string }>,
): void {
  const other = rows.find(
    ({ domain: taken }) =>
      taken !== null && (`.${domain}`.endsWith(`.${taken}`) || taken.endsWith(`.${domain}`)),
  );
  if (other !== undefined) {
    const { code, domain: taken } = other;
    throw new ApiError(
      'CONFLICT',
      `domain: the region ${code} has ${taken}` +
        `${taken === domain ? '' : ', and one is within the other'}; choose another domain`,
    );
  }
  const same = rows.find((row) => row.domain !== null && row.server === server);
  if (same !== undefined)
    throw new ApiError(
      'CONFLICT',
      `domain: the region ${same.code} has the TLS gateway of the cluster, with ${same.domain}; ` +
        'use another cluster, or host in place of the domain',
    );
}

/** @param code of the region whose routes are in the cluster */
export const gatewayTaken = (code: string): string =>
  `domain: the namespace howdah-gateway of the cluster has routes of the region ${code}, of this ` +
  'or another installation; use another cluster, use host in place of the domain, or, if that ' +
  'region is gone, remove what kubectl --namespace howdah-gateway get services --selector ' +
  'app.kubernetes.io/managed-by=howdah lists';
