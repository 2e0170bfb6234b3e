/** The table columns of regions on Kubernetes. */
import type { Schemas } from '@howdah/client';
import type { View } from './output.ts';

/** The labels of nodes, and the places that servers are spread over. */
function placeOf({
  placement: { node_selector: labels = {}, topology_spread: spread = [] },
  service_placements: services,
}: Schemas['KubernetesRegion']): string {
  const parts = [
    ...Object.entries(labels).map(([key, value]) => `${key}=${value}`),
    ...spread.map(({ topology_key: key }) => `over ${key.replace(/^.*\//, '')}`),
    ...(Object.keys(services).length === 0 ? [] : ['services differ']),
  ];
  return parts.length === 0 ? 'any' : parts.join(', ');
}

export const KUBERNETES_REGION_VIEW: View<Schemas['KubernetesRegion']> = {
  noun: 'region',
  columns: [
    ['CODE', ({ code }) => code],
    ['CLUSTER', ({ server }) => server],
    ['HOST', ({ host, domain }) => (domain === null ? host : `*.${domain}`)],
    [
      'PORTS',
      ({ first_port: first, last_port: last }) =>
        first === last ? `${first}` : `${first}-${last}`,
    ],
    ['STORAGE CLASS', ({ storage_class: name }) => name ?? 'default'],
    ['NODES', placeOf],
    ['OBJECT STORE', ({ object_store: store }) => store?.bucket ?? 'none'],
    ['POSTGRESQL', ({ images }) => Object.keys(images).join(', ')],
  ],
};
