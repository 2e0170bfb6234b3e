/** The table columns of regions on Kubernetes. */
import type { Schemas } from '@howdah/client';
import type { View } from './output.ts';

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
    ['OBJECT STORE', ({ object_store: store }) => store?.bucket ?? 'none'],
    ['POSTGRESQL', ({ images }) => Object.keys(images).join(', ')],
  ],
};
