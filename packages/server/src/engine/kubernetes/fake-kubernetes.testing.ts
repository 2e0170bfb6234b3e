/**
 * The API of Kubernetes as far as a region asks for it, without pods: it keeps objects, and reports
 * each change to watches. No operator runs, so what a test needs of one it does itself.
 */
import { createServer } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { arch } from 'node:process';
import { isDeepStrictEqual } from 'node:util';
import { issueServerCertificate, openCertificateAuthority } from '../../lib/tls.ts';
import { answerLog, type FakeLogs } from './logs/fake-log.testing.ts';

const TOKEN = 'token-of-a-test';

/** The kinds whose objects have their labels in all tests. */
const SELECTED = /\/(secrets|backups)$/;

type Stored = {
  metadata: { name: string; namespace?: string; resourceVersion: string } & Record<string, unknown>;
} & Record<string, unknown>;

export type FakeKubernetes = Awaited<ReturnType<typeof startFakeKubernetes>>;

/** Collections that are there from the begin, by their paths. */
const NODES = '/api/v1/nodes';
const CLASSES = '/apis/storage.k8s.io/v1/storageclasses';
const DEPLOYMENTS = '/apis/apps/v1/deployments';
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const CLUSTER_DEFINITION = 'clusters.postgresql.cnpg.io';

const INITIAL: readonly (readonly [path: string, object: object])[] = [
  [
    `${NODES}/node`,
    {
      status: {
        conditions: [{ type: 'Ready', status: 'True' }],
        addresses: [{ type: 'InternalIP', address: '127.0.0.1' }],
        nodeInfo: { architecture: arch === 'x64' ? 'amd64' : arch },
      },
    },
  ],
  [`${CLASSES}/fast`, { provisioner: 'example.com/fast', allowVolumeExpansion: true }],
  [`${DEFINITIONS}/${CLUSTER_DEFINITION}`, { spec: { versions: [{ name: 'v1', served: true }] } }],
  [
    DEPLOYMENTS.replace('/deployments', '/namespaces/cnpg-system/deployments/operator'),
    {
      spec: {
        replicas: 1,
        template: { spec: { containers: [{ image: 'example.com/operator:1.30.0' }] } },
      },
      status: { readyReplicas: 1 },
    },
  ],
];

/** The objects, their changes, and the watches of them. */
function createObjects() {
  const objects = new Map<string, Stored>();
  const watches = new Map<ServerResponse, string>();
  const history: { path: string; type: string; object: Stored }[] = [];
  const faults: {
    refusal: string | null;
    hasSilentWebhook: boolean;
    hidden: string | null;
    isManaged: boolean;
  } = { refusal: null, hasSilentWebhook: false, hidden: null, isManaged: false };
  const logs: FakeLogs = new Map();
  let version = 0;
  const notify = (path: string, type: string, object: Stored): void => {
    history.push({ path, type, object });
    for (const [answer, collection] of watches)
      if (isIn(path, collection)) answer.write(`${JSON.stringify({ type, object })}\n`);
  };
  return {
    faults,
    objects,
    logs,
    watches,
    put: (path: string, object: object): Stored => {
      version += 1;
      const type = objects.has(path) ? 'MODIFIED' : 'ADDED';
      const stored = withMetadata(path, object, String(version));
      objects.set(path, stored);
      notify(path, type, stored);
      return stored;
    },
    /** @returns whether there was such an object */
    take: (path: string): boolean => {
      const found = objects.get(path);
      if (found === undefined) return false;
      version += 1;
      objects.delete(path);
      notify(path, 'DELETED', withMetadata(path, found, String(version)));
      return true;
    },
    /** @param selector labels, which are compared for kinds in `SELECTED` only */
    list: (collection: string, selector: string): object => ({
      metadata: { resourceVersion: String(version) },
      items: [...objects]
        .filter(([path]) => isIn(path, collection))
        .map(([, object]) => object)
        .filter((object) => !SELECTED.test(collection) || hasLabels(object, selector)),
    }),
    /** Sends the changes after a version, and all later ones. */
    watch: (collection: string, after: number, response: ServerResponse): void => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.flushHeaders();
      for (const { path, type, object } of history)
        if (isIn(path, collection) && Number(object.metadata.resourceVersion) > after)
          response.write(`${JSON.stringify({ type, object })}\n`);
      watches.set(response, collection);
      response.on('close', () => watches.delete(response));
    },
  };
}

type Objects = ReturnType<typeof createObjects>;

async function answer(
  { faults, objects, logs, put, take, list, watch }: Objects,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '', 'https://fake');
  // The status is a part of its object.
  const path = pathname.replace(/\/status$/, '');
  const send = (status: number, body: object): void => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  };
  if (request.headers.authorization !== `Bearer ${TOKEN}`)
    return send(401, { message: 'Unauthorized', reason: 'Unauthorized' });
  if (path === '/version') return send(200, { minor: '36', gitVersion: 'v1.36.3' });
  const { refusal, hasSilentWebhook } = faults;
  if (hasSilentWebhook && request.method === 'POST' && path.includes('/clusters')) return;
  if (refusal !== null && request.method !== 'GET' && path.includes('/clusters'))
    return send(500, { message: refusal, reason: 'InternalError' });
  if (path.endsWith('/log')) {
    const pod = path.slice(0, -'/log'.length);
    const output = objects.has(pod) ? answerLog(logs, pod, searchParams) : null;
    if (output === 'silent') return;
    return output === null ? send(404, {}) : void response.end(output);
  }
  if (request.method === 'POST' && path.endsWith('/pods')) {
    const pod: unknown = JSON.parse(await bodyOf(request));
    return send(201, put(`${path}/${String(Object(pod).metadata.name)}`, Object(pod)));
  }
  // Reviews of access, and trials of a Cluster.
  if (request.method === 'POST') return send(201, { status: { allowed: true } });
  const isApply = searchParams.get('fieldManager') === 'howdah';
  if (faults.isManaged && isApply && path.includes('/clusters') && !searchParams.has('force'))
    return send(409, { message: 'Apply failed with 1 conflict: .spec', reason: 'Conflict' });
  if (request.method === 'PATCH') {
    const patch: unknown = JSON.parse(await bodyOf(request));
    const before = objects.get(path);
    if (isOutdated(patch, before)) return send(409, { message: 'modified', reason: 'Conflict' });
    if (changesTooMuch(before, patch)) return send(422, { message: TOO_MUCH, reason: 'Invalid' });
    return send(200, put(path, merged(keptOf(before, request), Object(patch))));
  }
  if (request.method === 'DELETE') return send(take(path) ? 200 : 404, {});
  const found = objects.get(path);
  if (found !== undefined) return send(200, found);
  const isHidden = faults.hidden !== null && path.endsWith(faults.hidden);
  if (isHidden || !isCollection(path))
    return send(404, { message: 'not found', reason: 'NotFound' });
  if (searchParams.get('watch') !== 'true')
    return send(200, list(path, searchParams.get('labelSelector') ?? ''));
  return watch(path, Number(searchParams.get('resourceVersion')), response);
}

export async function startFakeKubernetes() {
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const authority = await openCertificateAuthority(directory);
  const { certificatePem, keyPem } = await issueServerCertificate(authority, ['127.0.0.1']);
  const objects = createObjects();
  for (const [path, object] of INITIAL) objects.put(path, object);
  const server = createServer({ cert: certificatePem, key: keyPem }, (request, response) => {
    void answer(objects, request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    kubeconfig: kubeconfigFor(`https://127.0.0.1:${address.port}`, authority.certificatePem),
    objects: objects.objects,
    put: objects.put,
    /** The outputs of pods, by the paths of those. */
    logs: objects.logs,
    /** Refuses to write a Cluster, as without its webhook. @param message null: no more */
    refuseClusters: (message: string | null): void => {
      objects.faults.refusal = message;
    },
    /** Has another manager own fields of Clusters, with the values that they have. */
    manageClusters: (): void => {
      objects.faults.isManaged = true;
    },
    /** Has no resources of a kind from now on. @param plural of the kind */
    hide: (plural: string): void => {
      objects.faults.hidden = plural;
    },
    /** Leaves new Clusters unanswered, as while its webhook is waited for. */
    silenceWebhook: (isSilent: boolean): void => {
      objects.faults.hasSilentWebhook = isSilent;
    },
    /** Takes an object away, as its controller would. */
    take: objects.take,
    /** Ends every watch, with an answer that it may go on, or that its place is forgotten. */
    endWatches: (isForgotten: boolean): void => {
      const gone = { type: 'ERROR', object: { code: 410, message: 'too old resource version' } };
      for (const watch of objects.watches.keys())
        watch.end(isForgotten ? `${JSON.stringify(gone)}\n` : undefined);
      objects.watches.clear();
    },
    close: async (): Promise<void> => {
      server.close();
      server.closeAllConnections();
      await rm(directory, { recursive: true });
    },
  };
}

function kubeconfigFor(server: string, certificatePem: string): string {
  const authority = Buffer.from(certificatePem).toString('base64');
  return JSON.stringify({
    'current-context': 'fake',
    clusters: [{ name: 'fake', cluster: { server, 'certificate-authority-data': authority } }],
    users: [{ name: 'fake', user: { token: TOKEN } }],
    contexts: [{ name: 'fake', context: { cluster: 'fake', user: 'fake' } }],
  });
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString('utf8');
}

/** A patch that applies has the whole spec: fields that it leaves out go. */
function keptOf(before: Stored | undefined, { headers }: IncomingMessage): object {
  const isApplied = headers['content-type']?.startsWith('application/apply-patch') === true;
  return { ...before, ...(isApplied ? { spec: null } : {}) };
}

const TOO_MUCH = "Can't change image name and configuration at the same time";

/** Whether a patch changes both the image and the parameters of a Cluster (fact 44). */
function changesTooMuch(before: Stored | undefined, patch: unknown): boolean {
  const [old, wanted] = [Object(Object(before)['spec']), Object(Object(patch).spec)];
  const images: unknown[] = [old.imageName, wanted.imageName];
  const isOther = !images.includes(undefined) && images[0] !== images[1];
  const parametersOf = ({ postgresql }: { postgresql?: unknown }): unknown =>
    Object(postgresql).parameters;
  return isOther && !isDeepStrictEqual(parametersOf(old), parametersOf(wanted));
}

/** Whether a patch names another version of its object. */
function isOutdated(patch: unknown, before: Stored | undefined): boolean {
  const { metadata } = Object(patch);
  const version: unknown = Object(metadata).resourceVersion;
  return version !== undefined && version !== before?.metadata.resourceVersion;
}

/** Whether an object has all labels of a selector. */
function hasLabels({ metadata }: Stored, selector: string): boolean {
  const labels: unknown = Object(metadata).labels;
  return selector
    .split(',')
    .filter((pair) => pair !== '')
    .every((pair) => {
      const [name = '', value] = pair.split('=');
      return Object(labels)[name] === value;
    });
}

/** Objects of all namespaces are in the collection of a kind, too. */
function isIn(path: string, collection: string): boolean {
  return path.replace(/\/namespaces\/[^/]+(?=\/[a-z]+\/[^/]+$)/, '').startsWith(`${collection}/`);
}

const isCollection = (path: string): boolean =>
  /^\/(api\/v1|apis\/[^/]+\/v[0-9]+)\/[a-z]+$/.test(path);

function withMetadata(path: string, object: object, resourceVersion: string): Stored {
  const [, namespace] = /\/namespaces\/([^/]+)\/[a-z]+\//.exec(path) ?? [];
  const name = path.slice(path.lastIndexOf('/') + 1);
  const metadata: unknown = Reflect.get(object, 'metadata');
  return {
    ...object,
    metadata: {
      ...Object(metadata),
      name,
      ...(namespace === undefined ? {} : { namespace }),
      uid: path,
      creationTimestamp:
        Reflect.get(Object(metadata), 'creationTimestamp') ?? new Date().toISOString(),
      resourceVersion,
    },
  };
}

/** Fields of the patch win, those that are null go. */
function merged(object: object, patch: object): object {
  const entries = new Map<string, unknown>(Object.entries(object));
  for (const [name, value] of Object.entries(patch)) {
    const before = entries.get(name);
    if (value === null) entries.delete(name);
    else if (isPlain(value) && isPlain(before)) entries.set(name, merged(before, value));
    else entries.set(name, value);
  }
  return Object.fromEntries(entries);
}

const isPlain = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
