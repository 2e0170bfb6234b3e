/** A region with a domain: its services are behind the TLS gateway, by its own manifest. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';
import { connectTo, install, preload, type Installation } from '../test/harness.ts';
import type { Service } from '../test/harness-caller.ts';
import { poolerImage, rig, untilSound } from './cloud.ts';
import { makeImage } from './image.ts';
import { untilExpected } from '../test/until.ts';

const MANIFEST = fileURLToPath(new URL('../../../deploy/kubernetes/gateway.yaml', import.meta.url));
const RESOLVE: string = new URL('../test/resolve.mjs', import.meta.url).href;
const DOMAIN = 'db.rig.test';
const run = promisify(execFile);

type Created = Service & { initial_password: string };

let cloud: Installation;
let directory: string;
let service: Created;

/** In the first test: the rig is opened after the hooks of this file have run. */
async function open(): Promise<void> {
  directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const record = { TEST_DOMAIN: `${DOMAIN}=${rig().host}` };
  Object.assign(process.env, record);
  await import(RESOLVE);
  cloud = await install({ ...preload('resolve.mjs'), ...record });
  await writeFile(join(directory, 'ca.pem'), await cloud.caPem());
}
afterAll(async () => {
  if (cloud === undefined) return;
  expect(await cloud.destroy()).toEqual([]);
  await rm(directory, { recursive: true });
});

const kubectl = async (...args: string[]): Promise<string> =>
  (await rig().inNode('kubectl', '--namespace', 'howdah-gateway', ...args)).stdout;

async function cli(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await cloud.cli(...args);
  if (code !== 0) throw new Error(`${args.join(' ')}: ${stdout}${stderr}`);
  return stdout;
}

/** Runs a statement with psql and `verify-full`. @returns what it prints */
async function psql(
  { host, port }: Service['endpoint'],
  sql: string,
  database = 'tsdb',
): Promise<string> {
  const facts = {
    host,
    hostaddr: rig().host,
    port,
    dbname: database,
    user: 'tsdbadmin',
    sslmode: 'verify-full',
    sslrootcert: join(directory, 'ca.pem'),
    gssencmode: 'disable',
  };
  const words = Object.entries(facts).map(([name, value]) => `${name}=${value}`);
  const env = { ...process.env, PGPASSWORD: service.initial_password };
  const { stdout } = await run('psql', [words.join(' '), '-XAtc', sql], { env });
  return stdout.trim();
}

const regionOptions = () =>
  `--storage-class ${rig().storageClass} --image 17=${rig().image} --pooler-image ${poolerImage()}`;

const findings = async (): Promise<{ what: string; state: string; remedy?: string }[]> =>
  JSON.parse(await cli('region', 'doctor', 'kube', '-o', 'json'));

test('a region has a domain, and the doctor says what its gateway lacks', async () => {
  await open();
  const { host, kubeconfigPath } = rig();
  await cli(
    ...`region add kube --kubeconfig ${kubeconfigPath} --domain ${DOMAIN}`.split(' '),
    ...regionOptions().split(' '),
  );
  const missing = (await findings()).filter(({ state }) => state === 'missing');
  expect(missing).toMatchObject([{ what: 'TLS gateway' }, { what: 'names of services' }]);
  expect(missing[0]?.remedy).toContain('kubectl apply -f deploy/kubernetes/gateway.yaml');
  const archive = await makeImage('localhost/howdah/control-plane:1', directory);
  await rig().inNode('ctr', '--namespace', 'k8s.io', 'images', 'import', archive);
  await kubectl('apply', '-f', MANIFEST);
  // As a load balancer before the node does.
  const ingress = JSON.stringify({ status: { loadBalancer: { ingress: [{ ip: host }] } } });
  await kubectl('patch', 'service', 'gateway', '--subresource=status', '-p', ingress);
  await kubectl('rollout', 'status', 'deployment/gateway', '--timeout=600s');
  await untilExpected('no prerequisite is missing', async () =>
    expect((await findings()).filter(({ state }) => state === 'missing')).toEqual([]),
  );
});

test('a service, its pooler and its read replica set have names at one port', async () => {
  service = await cloud.create({ name: 'orders', addons: [], region_code: 'kube' });
  const { service_id: id, endpoint } = service;
  expect(endpoint).toEqual({ host: `${id}.${DOMAIN}`, port: 5432 });
  expect(await psql(endpoint, 'create table t as select 7 as n; select n from t')).toMatch(/7$/);
  const client = await connectTo(cloud, service, service.initial_password);
  await client.end();
  await cli('service', 'enable-pooler', 'orders');
  const { connection_pooler: pooler } = await cloud.get(id);
  expect(pooler?.endpoint).toEqual({ host: `${id}-pooler.${DOMAIN}`, port: 5432 });
  if (pooler === undefined) throw new Error('it has a pooler');
  expect(await psql(pooler.endpoint, 'select n from t', 'tsdb_transaction')).toBe('7');
  const made: { id: string; endpoint: Service['endpoint'] } = JSON.parse(
    await cli(...`replica-set create orders --name reads --nodes 1 -o json`.split(' ')),
  );
  expect(made.endpoint).toEqual({ host: `${made.id}.${DOMAIN}`, port: 5432 });
  expect(await psql(made.endpoint, 'select n, pg_is_in_recovery() from t')).toBe('7|t');
  const services = JSON.parse(await kubectl('get', 'services', '-A', '-o', 'json'));
  expect(JSON.stringify(services)).not.toMatch(new RegExp(`s-${id}[^}]*"type":"NodePort"`));
  await untilSound(cloud);
});

test('a route that somebody has removed is found, and comes back', async () => {
  const { service_id: id, endpoint } = service;
  await kubectl('delete', 'service', `db-${id}`);
  expect(await cloud.audit()).toEqual([
    expect.stringContaining(`Service howdah-gateway/db-${id} is not its route`),
  ]);
  await cli('service', 'restart', 'orders');
  expect(await psql(endpoint, 'select n from t')).toBe('7');
  const routes = ['--selector', `howdah.io/service=${id}`, '-o', 'name'];
  expect((await kubectl('get', 'services', ...routes)).trim().split('\n')).toHaveLength(2);
});

test('networks of clients are refused with the reason', async () => {
  await cli(...'allow-list create --description office --cidr 192.0.2.0/24'.split(' '));
  const refused = await cloud.cli('service', 'attach-allow-list', 'orders', 'office');
  expect(refused.stderr).toContain('the address of the TLS gateway');
  expect(refused.code).not.toBe(0);
  await cli('allow-list', 'delete', 'office', '--yes');
});

test('routes go with their services', async () => {
  await cli('replica-set', 'delete', 'orders', 'reads', '--yes');
  await cli('service', 'disable-pooler', 'orders');
  await cli('service', 'delete', 'orders');
  await cli('service', 'purge', service.service_id, '--yes');
  const routes = () =>
    kubectl('get', 'services', '-l', 'app.kubernetes.io/managed-by=howdah', '-o', 'name');
  await untilExpected('no route is left', async () => expect(await routes()).toBe(''));
  await untilExpected('the region is removed', async () =>
    expect((await cloud.cli('region', 'remove', 'kube', '--yes')).code).toBe(0),
  );
  await untilSound(cloud);
  await rig().inNode('kubectl', 'delete', 'namespace', 'howdah-gateway');
});
