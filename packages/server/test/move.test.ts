/** Moves up to the copy, with real data and a region on Kubernetes without pods. */
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { hostname, networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  startFakeKubernetes,
  type FakeKubernetes,
} from '../src/engine/kubernetes/fake-kubernetes.testing.ts';
import { SPRUNG, TENANT_OPTIONS, TRAPS } from './hostile-sql.ts';
import { prepareMachine } from '../src/engine/local/host/machine.ts';
import { withSuperuserSession } from '../src/engine/local/postgres/superuser.ts';
import { findNextSourceToRemove, findNextToPurge } from '../src/store/service-lists.ts';
import { connectTo, install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { accessOf, withClient, type ServiceAccess } from './service-access.ts';

/** An address of this machine that is not of its loopback. */
const ADDRESS =
  Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? hostname();

let cloud: Installation;
let kubernetes: FakeKubernetes;
beforeAll(async () => {
  kubernetes = await startFakeKubernetes();
  cloud = await install({
    HOWDAH_HOST: '0.0.0.0',
    HOWDAH_PUBLIC_HOST: ADDRESS,
    HOWDAH_TLS: 'off',
  });
  const { kubeconfig } = kubernetes;
  await cloud.client.POST('/regions', { body: { code: 'kube', kubeconfig } });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
  await kubernetes?.close();
});

const STORAGE_CLASS = '/apis/storage.k8s.io/v1/storageclasses/fast';

/** Whether the cluster has a default storage class. */
function setDefaultClass(isDefault: boolean): void {
  kubernetes.put(STORAGE_CLASS, {
    metadata: { annotations: { 'storageclass.kubernetes.io/is-default-class': `${isDefault}` } },
    provisioner: 'example.com/fast',
  });
}

async function move({ service_id: id }: ServiceAccess, query = '?dry_run=true', to = 'kube') {
  const answer = await cloud.request('POST', `/services/${id}/move${query}`, { region_code: to });
  const { code, note, details } = Object(answer.body);
  return { status: answer.status, code, note, reasons: Object(details).reasons };
}

test('a dry run says what would be copied', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'plain', service_type: 'POSTGRES' });
  await withClient(cloud, service, (client) =>
    client.query('create extension hstore; create table t as select generate_series(1, 100) n'),
  );
  const possible = await move(service);
  expect(possible).toMatchObject({ status: 200, note: expect.stringMatching(/copies \d+ MB/) });
  expect(await move(service, '?dry_run=true', 'local')).toMatchObject({ status: 400 });
  expect(await move(service, '?dry_run=true', 'mars')).toMatchObject({ status: 400 });
  const printed = await cloud.cli('service', 'move', 'plain', '--region', 'kube', '--dry-run');
  expect(printed.stdout).toContain('nothing is in the way of a move to the region kube');
  await cloud.request('POST', `/services/${service.service_id}/stop`);
  await cloud.until(service.service_id, 'PAUSED');
  expect(await move(service)).toMatchObject({ status: 400, code: 'INVALID_STATE' });
});

test('a dry run names everything that is in the way', async () => {
  setDefaultClass(false);
  const service = await cloud.create({ name: 'obstacles', service_type: 'POSTGRES' });
  await withClient(cloud, service, async (client) => {
    await client.query('create role streaming_replica');
    await client.query('create unlogged table queue (n int)');
    await client.query('create table names (name text collate "und-x-icu" primary key)');
    await client.query('create database closed allow_connections false');
  });
  expect(await move(service)).toEqual({
    status: 422,
    code: 'UNAVAILABLE_HERE',
    reasons: [
      expect.stringContaining('it has the roles "streaming_replica"'),
      expect.stringContaining('it has the databases "closed"'),
      expect.stringContaining('unlogged tables or sequences "queue"'),
      expect.stringContaining('the collations "und-x-icu"'),
      expect.stringContaining('the target lacks "storage class"'),
    ],
  });
});

test('a dry run finds the collations in the types and expressions of indexes', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'ordered', service_type: 'POSTGRES' });
  await withClient(cloud, service, async (client) => {
    await client.query('create type span as range (subtype = text, collation = "de-x-icu")');
    await client.query('create type pair as (number int, word text collate "fr-x-icu")');
    await client.query('create domain pairs as pair[]');
    await client.query('create table spans (span span primary key)');
    await client.query('create table lists (pairs pairs primary key)');
    await client.query('create table words (word text, other text collate "nl-x-icu")');
    await client.query(`create index on words ((word < 'm' collate "es-x-icu"))`);
    await client.query(`create index on words (word) where word > 'm' collate "it-x-icu"`);
  });
  expect((await move(service)).reasons).toEqual([
    expect.stringMatching(
      /^it has indexes .* "de-x-icu", "es-x-icu", "fr-x-icu", "it-x-icu", whose order/,
    ),
  ]);
});

test('a dry run springs no trap in a database that is full of them', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'hostile', service_type: 'POSTGRES' });
  const password = service.initial_password;
  const client = await connectTo(cloud, service, password, { options: TENANT_OPTIONS });
  for (const statement of TRAPS) await client.query(statement);
  await client.query('alter database tsdb set search_path = trap, public, pg_catalog');
  await client.end();
  expect((await move(service)).status).toBeLessThan(500);
  const logs = join(cloud.home, 'data', 'services', service.service_id, 'logs');
  const texts = await Promise.all(
    (await readdir(logs)).map((name) => readFile(join(logs, name), 'utf8')),
  );
  expect(
    texts
      .join('\n')
      .split('\n')
      .filter((line) => line.includes(SPRUNG)),
  ).toEqual([]);
});

const clusters = (): number =>
  [...kubernetes.objects.keys()].filter((path) => path.includes('/clusters/s-')).length;

/** The roles of a service that a move makes, and whether its rules let a copy in. */
async function tracesOf(service: ServiceAccess): Promise<{ roles: string[]; rule: boolean }> {
  const roles = await withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ name: string }>(
      `select rolname::text as name from pg_roles
       where rolname in ('postgres', 'streaming_replica', 'howdah_control') order by rolname`,
    );
    return rows.map(({ name }) => name);
  });
  const path = join(cloud.home, 'data', 'services', service.service_id, 'config', 'pg_hba.conf');
  return { roles, rule: /replication +postgres/.test(await readFile(path, 'utf8')) };
}

const operationOf = async ({ service_id: id }: ServiceAccess) =>
  (await cloud.operations(id)).find(({ kind }) => kind === 'move');

const NOTHING = { roles: [], rule: false };

test('a move that is cancelled leaves the service as it was, and nothing of the copy', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'cancelled', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  expect(await tracesOf(service)).toEqual(NOTHING);
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await expect.poll(() => clusters()).toBe(1);
  expect(await tracesOf(service)).toEqual({
    roles: ['howdah_control', 'postgres', 'streaming_replica'],
    rule: true,
  });
  // The superuser of the copy has no database here, whatever its password.
  const login = connectTo(cloud, service, 'any', { user: 'postgres' });
  await expect(login).rejects.toThrow('pg_hba.conf rejects');
  expect((await cloud.get(id)).status).toBe('CONFIGURING');
  // A control plane that begins again goes on.
  await cloud.stop('SIGKILL');
  await cloud.up();
  const operation = await operationOf(service);
  expect(operation).toMatchObject({ status: 'running' });
  await cloud.request('POST', `/operations/${operation?.id}/cancel`);
  await expect.poll(() => clusters()).toBe(0);
  await expect.poll(() => tracesOf(service)).toEqual(NOTHING);
  expect(await operationOf(service)).toMatchObject({ status: 'failed' });
  expect(await cloud.get(id)).toMatchObject({ status: 'READY', region_code: 'local' });
  await expect.poll(() => cloud.audit()).toEqual([]);
});

test('the roles of a copy are of no tenant, and a deleted service has none', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'taken', service_type: 'POSTGRES' });
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await expect.poll(() => clusters()).toBe(1);
  await withClient(cloud, service, async (client) => {
    for (const statement of [
      'alter role postgres password $$mine$$',
      'grant postgres to tsdbadmin',
      'set role postgres',
      'alter role streaming_replica password $$mine$$',
      'drop role howdah_control',
    ])
      await expect(client.query(statement)).rejects.toThrow(/permission denied|must be/i);
  });
  const { service_id: id } = service;
  await cloud.request('DELETE', `/services/${id}?confirm=taken`);
  await expect.poll(() => clusters()).toBe(0);
  await expect.poll(() => cloud.audit()).toEqual([]);
  await cloud.request('POST', `/services/${id}/restore`);
  await cloud.until(id, 'READY');
  await expect.poll(() => tracesOf(service)).toEqual(NOTHING);
});

test('no role is made while a tenant may be about to take its name', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'racing', service_type: 'POSTGRES' });
  const tenant = await connectTo(cloud, service, service.initial_password);
  await tenant.query('begin');
  await tenant.query('create role bystander');
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await expect
    .poll(async () => (await operationOf(service))?.error, { timeout: 20_000 })
    .toContain('lock timeout');
  expect((await tracesOf(service)).roles).toEqual([]);
  // A name that is taken while we wait is seen.
  await withClient(cloud, service, (client) => client.query('create role streaming_replica'));
  await tenant.query('rollback');
  await tenant.end();
  await expect
    .poll(async () => (await operationOf(service))?.status, { timeout: 60_000 })
    .toBe('failed');
  expect((await operationOf(service))?.error).toContain('it has a role streaming_replica');
  await expect.poll(() => tracesOf(service)).toEqual({ roles: ['streaming_replica'], rule: false });
  expect(clusters()).toBe(0);
});

test('the superuser of a copy that comes to a fork with its data cannot log in there', async () => {
  const service = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
  const { layout } = await prepareMachine(cloud.home);
  const server = layout.service(service.service_id);
  const where = { server, port: service.endpoint.port, name: 'howdah test' };
  await withSuperuserSession(where, (client) =>
    client.query("create role postgres superuser login password 'known'"),
  );
  const path = `/services/${service.service_id}/forkService`;
  const fork = accessOf((await cloud.request('POST', path, { fork_strategy: 'NOW' })).body);
  await cloud.until(fork.service_id, 'READY');
  const login = connectTo(cloud, fork, 'known', { user: 'postgres' });
  await expect(login).rejects.toThrow('password authentication failed');
  await withSuperuserSession(where, (client) => client.query('drop role postgres'));
});

test('former servers are removed early, the oldest first, after deleted services', async () => {
  const { service_id: id } = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
  const { service_id: other } = await cloud.create({ name: 'next', service_type: 'POSTGRES' });
  const metadata = await openMetadata(cloud.home);
  const keep = (until: string | null, of = id) =>
    metadata.db
      .updateTable('services')
      .set({
        move:
          until === null
            ? null
            : JSON.stringify({ state: 'kept', from: 'former', to: 'local', until, source: {} }),
      })
      .where('id', '=', of)
      .execute();
  const next = () => findNextSourceToRemove(metadata.db, 'former');
  try {
    expect(await next()).toBe(null);
    await keep(new Date(Date.now() + 3_600_000).toISOString());
    expect(await next()).toBe(id);
    expect(await findNextSourceToRemove(metadata.db, 'local')).toBe(null);
    // Its removal is under way: the next one may not be needed.
    await keep(new Date(Date.now() - 1000).toISOString());
    expect(await next()).toBe(null);
    // A removal that does not end keeps no other one back.
    await keep(new Date(Date.now() - 120_000).toISOString());
    await keep(new Date(Date.now() + 3_600_000).toISOString(), other);
    expect(await next()).toBe(other);
  } finally {
    await keep(null);
    await keep(null, other);
    await metadata.close();
  }
});

test('a service goes on without the region of its copy, and its operator forgets it', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'stranded', service_type: 'POSTGRES' });
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await expect.poll(() => clusters()).toBe(1);
  kubernetes.refuseClusters('nobody answers');
  const operation = await operationOf(service);
  await cloud.request('POST', `/operations/${operation?.id}/cancel`);
  expect(await cloud.cli('service', 'restart', 'stranded')).toMatchObject({ code: 0 });
  // The superuser is gone, and would be rejected until the abort has ended.
  await expect.poll(() => tracesOf(service)).toEqual({ roles: [], rule: true });
  expect(clusters()).toBe(1);
  await cloud.client.DELETE('/regions/{region_code}', {
    params: { path: { region_code: 'kube' } },
  });
  await expect.poll(() => tracesOf(service), { timeout: 60_000 }).toEqual(NOTHING);
  kubernetes.refuseClusters(null);
  const { kubeconfig } = kubernetes;
  // The copy that is left in a cluster that comes back is named.
  const added = cloud.client.POST('/regions', { body: { code: 'kube', kubeconfig } });
  await expect(added).rejects.toThrow('of another installation or of one that is lost');
});

/** Adds the region that the test before has removed, without the Clusters that it has left. */
async function addRegionAgain(): Promise<void> {
  for (const path of kubernetes.objects.keys())
    if (path.includes('/clusters/s-')) kubernetes.objects.delete(path);
  const { kubeconfig } = kubernetes;
  await cloud.client.POST('/regions', { body: { code: 'kube', kubeconfig } });
  setDefaultClass(true);
}

test('a paused service ends a move to a region that is gone when it runs again', async () => {
  await addRegionAgain();
  const service = await cloud.create({ name: 'asleep', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await expect.poll(() => clusters()).toBe(1);
  kubernetes.refuseClusters('nobody answers');
  await cloud.request('POST', `/operations/${(await operationOf(service))?.id}/cancel`);
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await cloud.client.DELETE('/regions/{region_code}', {
    params: { path: { region_code: 'kube' } },
  });
  await cloud.request('POST', `/services/${id}/start`);
  await cloud.until(id, 'READY');
  await expect.poll(() => tracesOf(service), { timeout: 60_000 }).toEqual(NOTHING);
  kubernetes.refuseClusters(null);
});

test('the data of a purged service does not wait for its copy, nor do other purges', async () => {
  await addRegionAgain();
  const waiting = await cloud.create({ name: 'waiting', service_type: 'POSTGRES' });
  const service = await cloud.create({ name: 'purged', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  const begun = await move(service, '');
  expect(begun).toEqual({ status: 202 });
  await expect.poll(() => clusters()).toBe(1);
  kubernetes.refuseClusters('nobody answers');
  await cloud.request('DELETE', `/services/${waiting.service_id}?confirm=waiting`);
  await cloud.request('DELETE', `/services/${id}?confirm=purged`);
  const purge = () => cloud.request('DELETE', `/services/${id}?purge=true&confirm=purged`);
  expect((await purge()).status).toBeLessThan(300);
  const { layout } = await prepareMachine(cloud.home);
  const { data } = layout.service(id);
  await expect.poll(() => existsSync(data), { timeout: 30_000 }).toBe(false);
  expect(clusters()).toBe(1);
  const metadata = await openMetadata(cloud.home);
  const next = async () => (await findNextToPurge(metadata.db, 'local'))?.id;
  await expect.poll(next).toBe(waiting.service_id);
  await metadata.close();
  kubernetes.refuseClusters(null);
  await expect.poll(() => clusters(), { timeout: 60_000 }).toBe(0);
  await expect.poll(() => cloud.audit(), { timeout: 60_000 }).toEqual([]);
});
