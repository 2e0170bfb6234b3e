/**
 * The control plane in the cluster that it manages, by its own manifests: two pods, of which one is
 * killed in a create.
 */
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { get } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { text as readText } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { parse, parseAllDocuments } from 'yaml';
import { connectTo, HOWDAH } from '../test/harness.ts';
import type { Service } from '../test/harness-caller.ts';
import { poolerImage, rig, s3 } from './cloud.ts';
import { FIELD_MANAGER } from './probe.ts';
import { realOperatorFiles, realPluginFiles } from './real-operator.ts';
import { makeImage } from './image.ts';
import { untilExpected } from '../test/until.ts';

const MANIFESTS = fileURLToPath(new URL('../../../deploy/kubernetes/', import.meta.url));
const IMAGE = 'localhost/howdah/control-plane:1';

const run = promisify(execFile);
let top: string;
/** The HOWDAH_HOME of the command line. */
let home: string;

beforeAll(async () => {
  top = await mkdtemp(join(tmpdir(), 'hd-'));
  home = join(top, 'kubernetes/files');
  // The installation's own files are made beside the manifests.
  await cp(MANIFESTS, join(top, 'kubernetes'), { recursive: true });
  await rm(home, { recursive: true, force: true });
});
afterAll(async () => {
  await rm(top, { recursive: true });
});

const kubectl = async (...args: string[]): Promise<string> =>
  (await rig().inNode('kubectl', '--namespace', 'howdah', ...args)).stdout;

async function cli(...args: string[]): Promise<string> {
  const env = { PATH: process.env['PATH'] ?? '', HOWDAH_HOME: home, NO_COLOR: '1' };
  return (await run(process.execPath, [HOWDAH, ...args], { env })).stdout;
}

/** The pod that works; null: none does yet. */
async function findLeader(): Promise<string | null> {
  const pods = (await kubectl('get', 'pods', '-l', 'app.kubernetes.io/name=howdah', '-o', 'name'))
    .trim()
    .split('\n');
  for (const pod of pods) if ((await kubectl('logs', pod)).includes('"msg":"serving"')) return pod;
  return null;
}

const caPem = (): Promise<string> => readFile(join(home, 'ca/ca.pem'), 'utf8');

async function rowsWritten(service: Service, password: string): Promise<number> {
  const client = await connectTo({ caPem }, service, password);
  try {
    await client.query('create table if not exists t (n integer)');
    await client.query('insert into t values (1)');
    return (await client.query('select from t')).rowCount ?? 0;
  } finally {
    await client.end();
  }
}

type Created = Service & { initial_password: string };

test('a cluster gets its own control plane by its manifests, and a service', async () => {
  const { host, image, storageClass } = rig();
  await run(join(top, 'kubernetes/make-files'), [host]);
  const archive = await makeImage(IMAGE, await mkdtemp(join(top, 'image-')));
  await rig().inNode('ctr', '--namespace', 'k8s.io', 'images', 'import', archive);
  await kubectl('apply', '-k', join(top, 'kubernetes'));
  await kubectl('rollout', 'status', 'deployment/howdah', '--timeout=600s');
  await cli(
    ...`region add kube --ports 30100-30199 --storage-class ${storageClass}`.split(' '),
    ...`--host ${host} --image 17=${image} --pooler-image ${poolerImage()}`.split(' '),
    ...'--node-selector kubernetes.io/os=linux --priority-class system-cluster-critical'.split(' '),
  );
  const notes = ['nodes'];
  if (realOperatorFiles === null || realPluginFiles !== null)
    await cli('region', 'object-store', 'kube', ...s3().options);
  else notes.push('object store');
  const findings: { what: string; state: string }[] = JSON.parse(
    await cli('region', 'doctor', 'kube', '-o', 'json'),
  );
  // The rig has one node.
  expect(findings.filter(({ state }) => state !== 'ok')).toMatchObject(
    notes.map((what) => ({ what, state: 'note' })),
  );
  const created: Created = JSON.parse(
    await cli('service', 'create', '--name', 'orders', '--addons', 'none', '-o', 'json'),
  );
  expect(created.region_code).toBe('kube');
  expect(await rowsWritten(created, created.initial_password)).toBe(1);
  expect(await audit()).not.toMatch(/kubectl|service|region/);
});

/** The integrity check, by the pod that works. It may find more of the machine of the node. */
async function audit(): Promise<string> {
  const command = ['node', '/opt/howdah/packages/cli/dist/howdah.js', 'audit'];
  const pod = (await findLeader()) ?? 'deployment/howdah';
  const found = await kubectl('exec', pod, '--', ...command).catch((error: unknown) =>
    String(Reflect.get(Object(error), 'stdout')),
  );
  expect(found).toMatch(/No problems found|howdah-/);
  return found;
}

test('the pod that works is killed in a create, and the other one finishes it', async () => {
  const leader = await findLeader();
  if (leader === null) throw new Error('no control plane works');
  const created: Created = JSON.parse(
    await cli(...'service create --name taken-over --addons none --no-wait -o json'.split(' ')),
  );
  await kubectl('delete', leader, '--grace-period=0', '--force');
  const found = (...command: string[]): Promise<unknown> =>
    cli(...command, '-o', 'json').then(
      (text) => JSON.parse(text),
      () => null, // nobody answers for a moment
    );
  // With its operations, which have the reason if it does not become so.
  const stateOf = async () => ({
    service: await found('service', 'get', 'taken-over'),
    operations: await found('operation', 'list'),
  });
  await untilExpected('the service is ready', async () =>
    expect(await stateOf()).toMatchObject({ service: { status: 'READY' } }),
  );
  expect(await findLeader()).not.toBe(leader);
  expect(await rowsWritten(created, created.initial_password)).toBe(1);
  await kubectl('rollout', 'status', 'deployment/howdah', '--timeout=600s');
});

test('Prometheus gets metrics in the way of the manifest for its operator', async () => {
  const text = await readFile(join(MANIFESTS, 'service-monitor.yaml'), 'utf8');
  const { selector, endpoints } = Value.Parse(MONITOR, parse(text)).spec;
  const labels = Object.entries(selector.matchLabels).map(([name, value]) => `${name}=${value}`);
  const services = await kubectl('get', 'services', '-l', labels.join(), '-o', 'json');
  expect(JSON.parse(services)).toMatchObject({
    items: [{ metadata: { name: 'howdah' }, spec: { ports: [{ name: endpoints[0].port }] } }],
  });
  const { relabelings, tlsConfig } = endpoints[0];
  const address = relabelings.find(({ targetLabel }) => targetLabel === '__address__');
  const ca = await caPem();
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    get(
      {
        host: rig().host,
        port: 30_443,
        path: '/metrics',
        ca,
        servername: tlsConfig.serverName,
        headers: { host: address?.replacement },
      },
      resolve,
    ).once('error', reject);
  });
  expect(await readText(answer)).toContain('howdah_services{status="READY"}');
});

/** The fields of a ServiceMonitor that this uses. */
const MONITOR = Type.Object({
  spec: Type.Object({
    selector: Type.Object({ matchLabels: Type.Record(Type.String(), Type.String()) }),
    endpoints: Type.Tuple([
      Type.Object({
        port: Type.String(),
        tlsConfig: Type.Object({ serverName: Type.String() }),
        relabelings: Type.Array(
          Type.Object({
            targetLabel: Type.Optional(Type.String()),
            replacement: Type.Optional(Type.String()),
          }),
        ),
      }),
    ]),
  }),
});

test('a rollout replaces both pods, and services end as they began', async () => {
  await kubectl('rollout', 'restart', 'deployment/howdah');
  await kubectl('rollout', 'status', 'deployment/howdah', '--timeout=600s');
  await untilExpected('a control plane has the lease', async () =>
    expect(await findLeader()).not.toBe(null),
  );
  expect(await cli('service', 'logs', 'orders')).toContain('ready to accept connections');
  for (const name of ['orders', 'taken-over']) {
    const { service_id: id }: Created = JSON.parse(await cli('service', 'get', name, '-o', 'json'));
    await cli('service', 'delete', name);
    await cli('service', 'purge', id, '--yes');
  }
  const remove = () =>
    cli('region', 'remove', 'kube', '--yes').then(
      () => true,
      () => false, // the services are just being removed
    );
  await untilExpected('the region is removed', async () => expect(await remove()).toBe(true));
});

// The last of all tests with the cluster: the others use the rights too, as an administrator.
test('the control plane uses each right that it has, and no other', async () => {
  const granted = rightsIn(await readFile(join(MANIFESTS, 'rights.yaml'), 'utf8'));
  expect(await usedRights()).toEqual(granted);
});

const ROLE = Type.Object({
  kind: Type.Literal('ClusterRole'),
  rules: Type.Array(
    Type.Object({
      apiGroups: Type.Array(Type.String()),
      resources: Type.Array(Type.String()),
      verbs: Type.Array(Type.String()),
    }),
  ),
});

function rightsIn(text: string): Set<string> {
  const roles = parseAllDocuments(text).map((document): unknown => document.toJS());
  const rights = roles
    .filter((role) => Value.Check(ROLE, role))
    .flatMap(({ rules }) => rules)
    .flatMap(({ apiGroups, resources, verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) => verbs.map((verb) => `${verb} ${resource}.${group}`)),
      ),
    );
  return new Set(rights.toSorted());
}

/** A line of the audit log of the API server. */
const AUDITED = Type.Object({
  verb: Type.String(),
  userAgent: Type.Literal(FIELD_MANAGER),
  objectRef: Type.Object({
    resource: Type.String(),
    subresource: Type.Optional(Type.String()),
    apiGroup: Type.Optional(Type.String()),
  }),
  responseStatus: Type.Object({ code: Type.Number() }),
});
/** Everybody may ask for their own rights. */
const REVIEWS = 'selfsubjectaccessreviews';
const CREATED = 201;

/** Which rights control planes have used, by the API server. */
async function usedRights(): Promise<Set<string>> {
  const text = await readFile(rig().auditLog, 'utf8');
  // The last line may still be written.
  const lines = text.slice(0, Math.max(0, text.lastIndexOf('\n'))).split('\n');
  const rights = lines
    .filter((line) => line !== '')
    .map((line): unknown => JSON.parse(line))
    .filter((line) => Value.Check(AUDITED, line))
    .filter(({ objectRef }) => objectRef.resource !== REVIEWS)
    .flatMap(({ verb, objectRef: { resource, subresource, apiGroup = '' }, responseStatus }) => {
      const part = subresource === undefined ? '' : `/${subresource}`;
      const what = `${resource}${part}.${apiGroup}`;
      // To apply an object that is not there needs the right to create it too.
      const creates = verb === 'patch' && responseStatus.code === CREATED;
      return creates ? [`${verb} ${what}`, `create ${what}`] : [`${verb} ${what}`];
    });
  return new Set(rights.toSorted());
}
