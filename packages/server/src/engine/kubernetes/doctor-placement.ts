/** Examines whether the nodes and classes that a region names are there. */
import type { Finding, Placement } from '@howdah/contract';
import { Type, type Static } from 'typebox';
import type { Kube } from './api/client.ts';
import { KINDS } from './api/kinds.ts';
import { isReady, isServed, NODE } from './doctor.ts';
import { findStorageClass } from './storage-classes.ts';

const PLACED_NODE = Type.Interface([NODE], {
  metadata: Type.Object({ labels: Type.Optional(Type.Record(Type.String(), Type.String())) }),
  spec: Type.Optional(
    Type.Object({
      unschedulable: Type.Optional(Type.Boolean()),
      taints: Type.Optional(
        Type.Array(
          Type.Object({
            key: Type.String(),
            value: Type.Optional(Type.String()),
            effect: Type.String(),
          }),
        ),
      ),
    }),
  ),
});
type PlacedNode = Static<typeof PLACED_NODE>;

type Settings = Readonly<{
  code: string;
  placement: Placement;
  service_placements: Readonly<Record<string, Placement>>;
  wal_storage_class: string | null;
  image_pull_registries: readonly string[];
}>;

/** @returns nothing for what the region does not name */
export async function examinePlacement(kube: Kube, region: Settings): Promise<Finding[]> {
  const { code, placement, service_placements: services } = region;
  const of: [string, Placement][] = [
    ['', placement],
    ...Object.entries(services).map(([id, own]): [string, Placement] => [
      ` of ${id}`,
      { ...placement, ...own },
    ]),
  ];
  const checks = [
    ...of.flatMap(([whose, one]) => [
      examineNodes(kube, one, { whose, code }),
      examinePriority(kube, one, whose),
    ]),
    examineWal(kube, region.wal_storage_class),
    examineMonitors(kube),
  ];
  const found = await Promise.all(
    checks.map((check) =>
      check.catch((error: unknown): Finding => ({
        what: 'placement',
        state: 'missing',
        found: error instanceof Error ? error.message : String(error),
        remedy: 'let the user of the kubeconfig read it: docs/kubernetes.md',
      })),
    ),
  );
  const { image_pull_registries: registries } = region;
  return [
    ...found.filter((one) => one !== null),
    ...(registries.length === 0
      ? []
      : [
          {
            what: 'image pull secret',
            state: 'ok' as const,
            found: `credentials of ${registries.join(', ')}; nobody has tried them`,
          },
        ]),
  ];
}

async function examineNodes(
  kube: Kube,
  placement: Placement,
  { whose, code }: Readonly<{ whose: string; code: string }>,
): Promise<Finding | null> {
  const { node_selector: selector, topology_spread: spread = [], tolerations } = placement;
  if (selector === undefined && tolerations === undefined && spread.length === 0) return null;
  const what = `placement${whose}`;
  const { items } = await kube.list({ kind: KINDS.node, namespace: null, name: null }, PLACED_NODE);
  const nodes = items.filter((node) => isReady(node) && mayRun(node, placement));
  const found = `${nodes.length} of ${items.length} nodes may run its pods`;
  if (nodes.length === 0)
    return {
      what,
      state: 'missing',
      found: `${found}: none is ready, has the labels ${labelsOf(selector)}, and no other taints`,
      remedy: `label a node (kubectl label node NODE …), or howdah region set-placement ${code} …`,
    };
  const places = spread.map(({ topology_key: key }): readonly [string, number] => [
    key,
    new Set(nodes.flatMap(({ metadata: { labels } }) => labels?.[key] ?? [])).size,
  ]);
  const text = [found, ...places.map(([key, count]) => `${count} values of ${key}`)].join(', ');
  const few = places.find(([, count]) => count < 2);
  return few === undefined
    ? { what, state: 'ok', found: text }
    : {
        what,
        state: 'note',
        found: text,
        remedy: `add nodes with other values of ${few[0]}: servers are not spread over one`,
      };
}

const labelsOf = (selector: Placement['node_selector'] = {}): string =>
  Object.entries(selector)
    .map(([key, value]) => `${key}=${value}`)
    .join(', ') || '(any)';

/** Whether the scheduler may put a pod with this placement on a node, if there is room. */
export function mayRun(
  { metadata, spec }: Pick<PlacedNode, 'metadata' | 'spec'>,
  { node_selector: selector = {}, tolerations = [] }: Placement,
): boolean {
  const isSelected = Object.entries(selector).every(
    ([key, value]) => metadata.labels?.[key] === value,
  );
  const isTolerated = (spec?.taints ?? []).every(
    (taint) =>
      taint.effect === 'PreferNoSchedule' ||
      tolerations.some(
        ({ key, value, effect }) =>
          key === taint.key &&
          (value === undefined || value === (taint.value ?? '')) &&
          (effect === undefined || effect === taint.effect),
      ),
  );
  return isSelected && isTolerated && spec?.unschedulable !== true;
}

async function examinePriority(
  kube: Kube,
  { priority_class: name }: Placement,
  whose: string,
): Promise<Finding | null> {
  if (name === undefined) return null;
  const what = `priority class${whose}`;
  const place = { kind: KINDS.priorityClass, namespace: null, name };
  const found = await kube.get(place, Type.Object({ value: Type.Number() }));
  return found === null
    ? {
        what,
        state: 'missing',
        found: `there is no class ${name}, so no pod of it is made`,
        remedy: 'kubectl get priorityclass lists them',
      }
    : { what, state: 'ok', found: `${name}, ${found.value}` };
}

async function examineWal(kube: Kube, name: string | null): Promise<Finding | null> {
  if (name === null) return null;
  const what = 'storage class of WAL';
  const found = await findStorageClass(kube, name);
  return found === null
    ? {
        what,
        state: 'missing',
        found: `there is no class ${name}, so new services do not start`,
        remedy: 'kubectl get storageclass lists them',
      }
    : {
        what,
        state: 'ok',
        found: `${name}; services with a volume for WAL have no snapshots`,
      };
}

async function examineMonitors(kube: Kube): Promise<Finding | null> {
  if (!(await isServed(kube, 'podmonitors.monitoring.coreos.com'))) return null;
  return {
    what: 'PodMonitor resources',
    state: 'ok',
    found: 'deploy/kubernetes/pod-monitor.yaml has Prometheus read the servers of services',
  };
}
