/** Examines whether the nodes and classes that a region names are there. */
import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Finding, Placement } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { Type, type Static } from 'typebox';
import type { Kube } from './api/client.ts';
import { KINDS } from './api/kinds.ts';
import { isReady, isServed, NODE, DEPLOYMENT } from './doctor.ts';
import { findStorageClass } from './region/storage-classes.ts';
import type { Endpoint } from '../spec.ts';
import { newId } from '../../lib/ids.ts';
import { LABELS, MANAGED } from './names.ts';
import { GATEWAY_NAMESPACE, publicEndpoint } from './network/routes.ts';
import { requestTls } from './network/challenge.ts';
import { locationOf, type ObjectStore } from '../object-store.ts';
import { StoreError, tryStore } from './backup/s3.ts';

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
        found: messageOf(error),
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

// Examines the TLS gateway of a region: by the way that clients take.

const ROUTE = Type.Object({
  metadata: Type.Object({
    namespace: Type.String(),
    labels: Type.Optional(Type.Record(Type.String(), Type.String())),
  }),
});

/** A region whose services have routes at the gateway of a cluster; null: there is none. */
export async function findRoutedRegion(kube: Kube): Promise<string | null> {
  const services = { kind: KINDS.service, namespace: null, name: null };
  const { items } = await kube.list(services, ROUTE, MANAGED);
  const route = items.find(({ metadata }) => metadata.namespace === GATEWAY_NAMESPACE);
  return route === undefined ? null : (route.metadata.labels?.[LABELS.region] ?? 'without a code');
}

export async function examineGateway(kube: Kube, domain: string): Promise<Finding[]> {
  const findings = [examineDeployment(kube), examineName(domain)];
  return Promise.all(
    findings.map((finding) =>
      finding.catch((error: unknown): Finding => ({
        what: 'TLS gateway',
        state: 'missing',
        found: messageOf(error),
        remedy: APPLY,
      })),
    ),
  );
}

const APPLY = 'kubectl apply -f deploy/kubernetes/gateway.yaml (docs/kubernetes.md)';

async function examineDeployment(kube: Kube): Promise<Finding> {
  const what = 'TLS gateway';
  const all = { kind: KINDS.deployment, namespace: null, name: null };
  const { items } = await kube.list(all, DEPLOYMENT, {
    'app.kubernetes.io/name': 'howdah-gateway',
  });
  const gateway = items.find(({ metadata }) => metadata.namespace === GATEWAY_NAMESPACE);
  const ready = gateway?.status?.readyReplicas ?? 0;
  if (gateway === undefined)
    return {
      what,
      state: 'missing',
      found: `no Deployment in ${GATEWAY_NAMESPACE}`,
      remedy: APPLY,
    };
  const found = `${GATEWAY_NAMESPACE}/${gateway.metadata.name}, ${ready} ready`;
  if (ready > 0) return { what, state: 'ok', found };
  const remedy = `kubectl --namespace ${GATEWAY_NAMESPACE} describe pods`;
  return { what, state: 'missing', found, remedy };
}

/** Asks for a service that nobody has: the gateway alone refuses it by the name. */
async function examineName(domain: string): Promise<Finding> {
  const what = 'names of services';
  const endpoint = publicEndpoint(domain, newId(), 'servers');
  const answer = await answerOf(endpoint);
  if (NO_ADDRESS.includes(answer))
    return {
      what,
      state: 'missing',
      found: `*.${domain} has no address`,
      remedy: `make a DNS record *.${domain} with ${ADDRESS}`,
    };
  const at = `*.${domain}, port ${endpoint.port}`;
  if (answer === UNRECOGNIZED_NAME) return { what, state: 'ok', found: at };
  return {
    what,
    state: 'missing',
    found: `${at}: ${answer}`,
    remedy:
      `give *.${domain} ${ADDRESS}, open its port ${endpoint.port}, and let the pods of the ` +
      'gateway reach the DNS of the cluster',
  };
}

const ADDRESS = `the address of the Service in ${GATEWAY_NAMESPACE}`;
const NO_ADDRESS: readonly string[] = ['ENOTFOUND', 'EAI_AGAIN'];
/** OpenSSL's name of the alert of the gateway. */
const UNRECOGNIZED_NAME = 'ERR_SSL_TLSV1_UNRECOGNIZED_NAME';
const WITHIN_MS = 10_000;

/** @returns the code or the message of the error */
async function answerOf({ host, port }: Endpoint): Promise<string> {
  const tcp = connectTcp({ host, port });
  const timer = setTimeout(() => tcp.destroy(new Error('no answer')), WITHIN_MS);
  try {
    await once(tcp, 'connect');
    await requestTls(tcp);
    const tls = connectTls({ socket: tcp, servername: host });
    await once(tls, 'secureConnect');
    return 'another program answers';
  } catch (error) {
    if (!(error instanceof Error)) return String(error);
    return 'code' in error && typeof error.code === 'string' ? error.code : error.message;
  } finally {
    clearTimeout(timer);
    tcp.destroy();
  }
}

// Examines the object store of a region, and the plugin that archives in it.

const DEFINITION = 'objectstores.barmancloud.cnpg.io';
const INSTALL =
  'install the Barman Cloud plugin beside the operator: ' +
  'https://cloudnative-pg.io/plugin-barman-cloud/docs/installation/';

type Stored = Readonly<{
  code: string;
  /** Whether a store is set. */
  isSet: boolean;
  /** null: none is, or its secrets cannot be read. */
  store: ObjectStore | null;
}>;

/** Without a store, the plugin is not needed. */
export async function examineObjectStore(kube: Kube, stored: Stored): Promise<Finding[]> {
  if (!stored.isSet)
    return [
      {
        what: 'object store',
        state: 'note',
        found: 'none is set, so no moment of the past can be forked',
        remedy: `howdah region object-store ${stored.code} --s3 https://HOST --bucket NAME …`,
      },
    ];
  return [await examineStore(stored), await examineResources(kube), await examinePlugin(kube)];
}

async function examineStore({ code, store }: Stored): Promise<Finding> {
  const what = 'object store';
  if (store === null)
    return {
      what,
      state: 'missing',
      found: 'its key cannot be read: HOWDAH_HOME/secrets.key is not the file it was',
      remedy:
        'restore that from a backup of the control plane, or howdah region object-store ' +
        `${code} …`,
    };
  try {
    await tryStore(store);
    const found = `${locationOf(store)}, lists, writes and deletes for the control plane`;
    return { what, state: 'ok', found };
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    return {
      what,
      state: 'missing',
      found: `${error.message}; WAL waits on the volumes of services meanwhile`,
      remedy:
        'start it, let the key list, read, write and delete, or howdah region object-store ' +
        `${code} …`,
    };
  }
}

async function examineResources(kube: Kube): Promise<Finding> {
  const what = 'Barman Cloud resources';
  return (await isServed(kube, DEFINITION))
    ? { what, state: 'ok', found: `${DEFINITION}/v1` }
    : { what, state: 'missing', found: `${DEFINITION}/v1 is not served`, remedy: INSTALL };
}

async function examinePlugin(kube: Kube): Promise<Finding> {
  const what = 'Barman Cloud plugin';
  const all = { kind: KINDS.deployment, namespace: null, name: null };
  const { items } = await kube.list(all, DEPLOYMENT, { app: 'barman-cloud' });
  const [plugin] = items;
  if (plugin === undefined)
    return { what, state: 'missing', found: 'no Deployment of it', remedy: INSTALL };
  const { name, namespace } = plugin.metadata;
  const found = `${namespace}/${name}`;
  if ((plugin.status?.readyReplicas ?? 0) > 0) return { what, state: 'ok', found };
  return {
    what,
    state: 'missing',
    found: `${found}, is not ready; CloudNativePG changes no archived service meanwhile`,
    remedy: `kubectl --namespace ${namespace} describe deployment ${name}`,
  };
}
