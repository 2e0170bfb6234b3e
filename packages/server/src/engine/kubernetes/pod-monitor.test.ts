/** The manifest by which Prometheus reads the figures of CloudNativePG's servers. */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { LABELS, ROLE_LABEL } from './names.ts';

const MANIFEST = new URL('../../../../../deploy/kubernetes/pod-monitor.yaml', import.meta.url);

/** The name that Prometheus has for a label of a pod. */
const metaOf = (label: string): string =>
  `__meta_kubernetes_pod_label_${label.replaceAll(/[^a-zA-Z0-9]/g, '_')}`;

test('the PodMonitor selects servers of services, and names them as the API does', async () => {
  const monitor: unknown = parse(await readFile(fileURLToPath(MANIFEST), 'utf8'));
  expect(monitor).toMatchObject({
    kind: 'PodMonitor',
    spec: {
      // Each project has a namespace.
      namespaceSelector: { any: true },
      selector: {
        matchExpressions: [
          { key: LABELS.region, operator: 'Exists' },
          { key: 'cnpg.io/podRole', operator: 'In', values: ['instance'] },
        ],
      },
      podMetricsEndpoints: [
        {
          port: 'metrics',
          relabelings: [
            { sourceLabels: [metaOf(LABELS.region)], targetLabel: 'region' },
            { sourceLabels: [metaOf(LABELS.project)], targetLabel: 'project_id' },
            { sourceLabels: [metaOf(LABELS.service)], targetLabel: 'service_id' },
            { sourceLabels: [metaOf(ROLE_LABEL)], targetLabel: 'role' },
          ],
        },
      ],
    },
  });
});
