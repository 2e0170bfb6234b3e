/**
 * A double of metrics-server for tests: the API `metrics.k8s.io`, served by this process, with the
 * figures of the kubelet.
 * https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { issueServerCertificate, openCertificateAuthority } from '../test/probe.ts';
import { awaitCondition, type Api } from './operator/api.ts';

const NAME = 'howdah-metrics';
const NAMESPACE = 'kube-system';
const GROUP = 'metrics.k8s.io';
const VERSION = 'v1beta1';
const APIS = `/apis/${GROUP}/${VERSION}`;
const API_SERVICES = '/apis/apiregistration.k8s.io/v1/apiservices';
const API_SERVICE = `${API_SERVICES}/${VERSION}.${GROUP}`;

const SUMMARY = Type.Object({
  pods: Type.Array(
    Type.Object({
      podRef: Type.Object({ name: Type.String(), namespace: Type.String() }),
      containers: Type.Array(
        Type.Object({
          name: Type.String(),
          cpu: Type.Optional(Type.Object({ usageNanoCores: Type.Optional(Type.Number()) })),
          memory: Type.Optional(Type.Object({ workingSetBytes: Type.Optional(Type.Number()) })),
        }),
      ),
    }),
  ),
});
/** @param host an address of this machine that the cluster reaches */
export async function startMetricsServer(api: Api, host: string): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const authority = await openCertificateAuthority(directory);
  const { certificatePem, keyPem } = await issueServerCertificate(authority, [host]);
  await rm(directory, { recursive: true });
  const server = createServer({ cert: certificatePem, key: keyPem }, (request, response) => {
    void answer(api, request, response);
  });
  server.listen(0, host);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  await register(api, host, address.port);
  return async () => {
    await api.remove(API_SERVICE);
    server.close();
    server.closeAllConnections();
  };
}

async function answer(api: Api, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname } = new URL(request.url ?? '', 'https://metrics');
  const body = await answerTo(api, pathname).catch(() => null);
  response.writeHead(body === null ? 404 : 200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body ?? { kind: 'Status', status: 'Failure', code: 404 }));
}

/** Has the API server pass requests on, and waits until it does. */
async function register(api: Api, ip: string, port: number): Promise<void> {
  const within = `/api/v1/namespaces/${NAMESPACE}`;
  const metadata = { name: NAME };
  await api.create(`${within}/services`, {
    metadata,
    spec: { ports: [{ name: 'https', port: 443, targetPort: port }] },
  });
  await api.create(`${within}/endpoints`, {
    metadata,
    subsets: [{ addresses: [{ ip }], ports: [{ name: 'https', port }] }],
  });
  await api.create(API_SERVICES, {
    apiVersion: 'apiregistration.k8s.io/v1',
    kind: 'APIService',
    metadata: { name: `${VERSION}.${GROUP}` },
    spec: {
      group: GROUP,
      version: VERSION,
      groupPriorityMinimum: 100,
      versionPriority: 100,
      insecureSkipTLSVerify: true,
      service: { namespace: NAMESPACE, name: NAME, port: 443 },
    },
  });
  await awaitCondition(api, API_SERVICE, 'Available');
}

/** @returns null: there is no such thing */
async function answerTo(api: Api, path: string): Promise<object | null> {
  if (path === APIS)
    return {
      kind: 'APIResourceList',
      apiVersion: 'v1',
      groupVersion: `${GROUP}/${VERSION}`,
      resources: [
        { name: 'pods', singularName: '', namespaced: true, kind: 'PodMetrics', verbs: ['get'] },
      ],
    };
  const [, namespace, name] = /\/namespaces\/([^/]+)\/pods\/([^/]+)$/.exec(path) ?? [];
  if (namespace === undefined || !path.startsWith(APIS)) return null;
  const { pods } = await api.read('/api/v1/nodes/node/proxy/stats/summary', SUMMARY);
  const found = pods.find(({ podRef }) => podRef.namespace === namespace && podRef.name === name);
  return found === undefined ? null : metricsOf(found);
}

/** metrics-server has no figures of a pod before it has seen all its containers twice. */
function metricsOf({ podRef, containers }: Static<typeof SUMMARY>['pods'][number]): object | null {
  const seen = containers.flatMap(({ name, cpu, memory }) =>
    cpu?.usageNanoCores === undefined || memory?.workingSetBytes === undefined
      ? []
      : [
          {
            name,
            usage: {
              cpu: `${cpu.usageNanoCores}n`,
              memory: `${Math.round(memory.workingSetBytes / 1024)}Ki`,
            },
          },
        ],
  );
  if (seen.length === 0 || seen.length < containers.length) return null;
  return {
    kind: 'PodMetrics',
    apiVersion: `${GROUP}/${VERSION}`,
    metadata: podRef,
    timestamp: new Date().toISOString(),
    window: '15s',
    containers: seen,
  };
}
