// @module-tag slow
/** Services that move to a newer major version of PostgreSQL in their place, and back. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, makeHome, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import { OLDER_MAJOR, OLDER_PACKAGE, putPostgresql } from './npm-postgresql.ts';
import { findProgram } from './probe.ts';
import {
  accessOf,
  insert,
  moment,
  namesIn,
  withClient,
  type ServiceAccess,
} from './service-access.ts';
import { during, untilExpected } from './until.ts';

const MAJOR = OLDER_MAJOR;

let cloud: Installation;
/** The newer version, which new services get. */
let newer: string;
/** Whether it can take data over: packages for clients bring pg_dump, npm's PostgreSQL has none. */
let canUpgrade: boolean;
beforeAll(async () => {
  const home = await makeHome();
  await mkdir(join(home, 'data', 'postgres'), { recursive: true });
  await putPostgresql(OLDER_PACKAGE, join(home, 'data', 'postgres', 'older'));
  cloud = await install({ HOWDAH_HOME: home, ...hurried() });
  const { data: regions } = await cloud.client.GET('/projects/{project_id}/regions', {
    params: { path: { project_id: cloud.projectId } },
  });
  const offer = regions?.[0]?.service_types.find(({ service_type }) => service_type === 'POSTGRES');
  newer = offer?.version?.split('.')[0] ?? '';
  canUpgrade = existsSync(`/usr/lib/postgresql/${newer}/bin/pg_dump`);
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const create = (name: string, more: object = {}): Promise<ServiceAccess & Service> =>
  cloud.create({ name, service_type: 'POSTGRES', pg_version: MAJOR, ...more });

const call = (service: ServiceAccess, path: string, body?: object) =>
  cloud.request('POST', `/services/${service.service_id}/${path}`, body);

async function majorOf(service: ServiceAccess): Promise<string | undefined> {
  return withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ server_version: string }>('show server_version');
    return rows[0]?.server_version.split('.')[0];
  });
}

const upgrade = (name: string, ...more: string[]) => cloud.cli('service', 'upgrade', name, ...more);

/** Measures for how long nobody can connect while something is done. */
async function outageOf<T>(service: ServiceAccess, work: () => Promise<T>): Promise<[T, number]> {
  let [isOver, lastMs, longestMs] = [false, Date.now(), 0];
  const connect = async (): Promise<void> => {
    const connected = await withClient(cloud, service, () => Promise.resolve(true)).catch(
      () => false,
    );
    if (!connected) return;
    longestMs = Math.max(longestMs, Date.now() - lastMs);
    lastMs = Date.now();
  };
  const watching = during(() => !isOver, connect);
  const result = await work();
  isOver = true;
  await watching;
  return [result, longestMs];
}

/** The service whose upgrade is tried, made and undone, and a reader of its read replica set. */
type Upgraded = { service: ServiceAccess & Service; reader: ServiceAccess | null };

/** With a synchronous standby, a pooler and a set, where the machine has the programs. */
async function makeReplicated(): Promise<Upgraded> {
  const isReplicated = (await findProgram('haproxy')) !== null;
  const service = await create('orders', {
    enable_pooler: (await findProgram('pgbouncer')) !== null,
    ...(isReplicated ? { replica_count: 1, sync_replica_count: 1 } : {}),
  });
  if (!isReplicated) return { service, reader: null };
  const set = { name: 'reads', cpu_millis: 250, memory_gbs: 1, nodes: 1 };
  const made = Object((await call(service, 'replicaSets', set)).body);
  await cloud.until(made.id, 'READY');
  // The primary is another member than the first.
  expect((await call(service, 'switchover')).status).toBe(202);
  await cloud.until(service.service_id, 'READY');
  const { initial_password } = service;
  return { service, reader: { ...made, service_id: made.id, initial_password } };
}

/** Each endpoint of a service has PostgreSQL of this version, and its data. */
async function expectVersion({ service, reader }: Upgraded, major: string): Promise<void> {
  const now = await cloud.get(service.service_id);
  expect(now).toMatchObject({ status: 'READY', pg_version: major, endpoint: service.endpoint });
  expect([await majorOf(service), await namesIn(cloud, service)]).toEqual([major, ['kept']]);
  const app = await connectTo(cloud, service, 'of-the-application', { user: 'app' });
  await app.end();
  if (now.connection_pooler?.endpoint !== undefined) {
    const pooled = { ...service, endpoint: now.connection_pooler.endpoint };
    expect(await majorOf(pooled)).toBe(major);
  }
  if (reader === null) return;
  await untilExpected(`the set runs PostgreSQL ${major}`, async () =>
    expect(await majorOf(reader)).toBe(major),
  );
  expect(await cloud.get(reader.service_id)).toMatchObject({ pg_version: major });
}

test('an upgrade keeps all that users have, and its undo brings it back', async () => {
  const made = await makeReplicated();
  const { service } = made;
  if (!canUpgrade) {
    expect(await call(service, 'upgrade', { pg_version: newer })).toMatchObject({
      status: 422,
      body: { message: expect.stringContaining('pg_dump and pg_restore of PostgreSQL') },
    });
    return;
  }
  await insert(cloud, service, 'kept');
  await withClient(cloud, service, async (client) => {
    await client.query("create role app login password 'of-the-application'");
    await client.query(`create table bulk as select i, repeat('x', 500) as text
      from generate_series(1, 200000) i`);
  });
  const then = await moment(cloud, service);

  const tried = await upgrade('orders', '--to', newer, '--try');
  expect(tried, tried.stderr).toMatchObject({ code: 0 });
  expect(tried.stderr).toMatch(/copy data into the new version, beside the service.* by a dump/s);
  await expectVersion(made, MAJOR);

  const [done, outageMs] = await outageOf(service, () => upgrade('orders', '--to', newer));
  expect(done, done.stderr).toMatchObject({ code: 0 });
  await expectVersion(made, newer);
  const { rows } = await withClient(cloud, service, (client) =>
    client.query<{ mb: number }>('select round(pg_database_size(current_database()) / 1e6) as mb'),
  );
  console.log(`upgrade of ${rows[0]?.mb} MB: nobody could connect for ${outageMs} ms`);
  const past = { fork_strategy: 'PITR', target_time: then };
  expect(await call(service, 'forkService', past)).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining(`upgraded from PostgreSQL ${MAJOR}`) },
  });

  await insert(cloud, service, 'later');
  const unnamed = await upgrade('orders', '--undo');
  expect(unnamed.stderr).toContain('what was written since the upgrade is lost');
  const undone = await upgrade('orders', '--undo', '--confirm', 'orders');
  expect(undone, undone.stderr).toMatchObject({ code: 0 });
  await expectVersion(made, MAJOR);
  const fork = accessOf((await call(service, 'forkService', past)).body);
  await cloud.until(fork.service_id, 'READY');
  expect([await majorOf(fork), await namesIn(cloud, fork)]).toEqual([MAJOR, ['kept']]);
  expect(await call(service, 'upgrade', { undo: true, confirm: 'orders' })).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('was not upgraded') },
  });
});

test('data that cannot be copied stays in use as it was, and a trial says why', async () => {
  const service = await create('stuck');
  await insert(cloud, service, 'kept');
  await withClient(cloud, service, (client: Client) =>
    // The function raises an error where it is restored: there is no such table yet.
    client.query(`
      create table needed (i int);
      create function find(value text) returns boolean language plpgsql
        as 'begin perform from public.needed; return true; end';
      create domain found as text check (public.find(value));
      create function add(found, text) returns found language sql as 'select $1';
      create aggregate gathered(text) (sfunc = add, stype = found, initcond = 'x')`),
  );
  const missing = 'relation "public.needed" does not exist';
  const older = await call(service, 'upgrade', { pg_version: MAJOR });
  expect(older).toMatchObject({ status: 202 });
  expect(older.headers.get('operation-id')).toBeNull();
  if (!canUpgrade) {
    expect((await call(service, 'upgrade', { pg_version: newer, try: true })).status).toBe(422);
    return;
  }
  const tried = await upgrade('stuck', '--to', newer, '--try');
  expect(tried.code).not.toBe(0);
  expect(tried.stderr).toContain(missing);
  expect((await cloud.get(service.service_id)).status).toBe('READY');
  const done = await upgrade('stuck', '--to', newer);
  expect(done.code).not.toBe(0);
  expect(done.stderr).toContain(missing);
  expect(done.stderr).not.toContain(cloud.home);
  await cloud.until(service.service_id, 'READY');
  expect(await cloud.get(service.service_id)).toMatchObject({ pg_version: MAJOR });
  expect([await majorOf(service), await namesIn(cloud, service)]).toEqual([MAJOR, ['kept']]);
});
