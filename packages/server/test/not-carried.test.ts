/** Forks, restores and switchovers name the parts that they do not carry over, and no others. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ServiceAccess } from './ha-load.ts';
import { connectTo, install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { untilExpected } from './until.ts';

const SLOTS = 'replication slots, logical and physical: consumers create them again';
const UNLOGGED = 'the rows of unlogged tables, and the values of unlogged sequences';
const COUNTERS = 'the counters of pg_stat_… and pg_stat_statements, which begin again at zero';

let cloud: Installation;
let service: ServiceAccess;
beforeAll(async () => {
  cloud = await install();
  service = await cloud.create({ name: 'orders', service_type: 'POSTGRES', storage_gb: 20 });
  await cloud.until(service.service_id, 'READY');
  const client = await connectTo(cloud, service, service.initial_password);
  await client.query(`
    create unlogged table volatile (n int);
    insert into volatile select generate_series(1, 10);
    create table kept (n int);
    insert into kept select generate_series(1, 1000);
    analyze kept;
    create role reader login password 'reader-password-1';
    alter database tsdb set statement_timeout = '7s';
    select lo_create(4242)`);
  await client.query("select pg_create_logical_replication_slot('cdc', 'pgoutput')");
  // Counters are reported when a session is idle.
  await untilExpected('the rows are counted', async () =>
    expect(await stateOf(service, service.initial_password)).toMatchObject({ counted: true }),
  );
  await client.end();
});
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

/** The parts that are there of all that were made. */
async function stateOf(of: Pick<ServiceAccess, 'endpoint'>, password: string) {
  const client = await connectTo(cloud, of, password);
  try {
    const { rows } = await client.query(`
      select array(select slot_name::text from pg_replication_slots) as slots,
             (select count(*)::int from volatile) as volatile,
             (select count(*)::int from kept) as kept,
             coalesce((select n_tup_ins >= 1000 from pg_stat_user_tables where relname = 'kept'),
               false) as counted,
             (select count(*)::int from pg_stats where tablename = 'kept') as planner,
             (select count(*)::int from pg_largeobject_metadata) as large,
             (select setting from pg_settings where name = 'statement_timeout') as setting,
             exists (select from pg_roles where rolname = 'reader') as role`);
    return rows[0];
  } finally {
    await client.end();
  }
}
/** These are always carried over. */
const ALL = { kept: 1000, planner: 1, large: 1, setting: '7000', role: true };

const path = (action = '') => `/services/${service.service_id}${action}`;
const listOf = (body: unknown): string[] => {
  const found: unknown = Reflect.get(Object(body), 'not_carried');
  return Array.isArray(found) ? found.map(String) : [];
};

/** Forks, and compares the dry run with the operation. */
async function fork(name: string) {
  const body = { fork_strategy: 'NOW' as const, name };
  const dry = await cloud.request('POST', `${path('/forkService')}?dry_run=true`, body);
  expect(dry.status).toBe(200);
  const { data: forked } = await cloud.client.POST(
    '/projects/{project_id}/services/{service_id}/forkService',
    {
      params: { path: { project_id: cloud.projectId, service_id: service.service_id } },
      body,
    },
  );
  if (forked?.initial_password === undefined) throw new Error('no fork was made');
  await cloud.until(forked.service_id, 'READY');
  const [operation] = await cloud.operations(forked.service_id);
  expect(operation).toMatchObject({ kind: 'fork', not_carried: listOf(dry.body) });
  const state = await stateOf(forked, forked.initial_password);
  return { forked, list: listOf(dry.body), state };
}

test('a fork of a running service lacks what its dry run names, and no more', async () => {
  const { forked, list, state } = await fork('copy');
  expect(list).toEqual(expect.arrayContaining([SLOTS, UNLOGGED, COUNTERS]));
  expect(list.join()).toContain('the password of tsdbadmin');
  expect(state).toEqual({ ...ALL, slots: [], volatile: 0, counted: false });
  await expect(stateOf(forked, service.initial_password)).rejects.toThrow(/password/);
  await cloud.request('DELETE', `/services/${forked.service_id}?purge=true`);
});

test('a fork names the parts of its service that it does not have, and no others', async () => {
  const dryRun = async () => {
    const body = { fork_strategy: 'NOW', name: 'x' };
    return listOf((await cloud.request('POST', `${path('/forkService')}?dry_run=true`, body)).body);
  };
  expect((await dryRun()).join()).not.toMatch(/retention|environment/);
  // Both need a repository, or are seen by all who use it: their record is enough here.
  const { db, close } = await openMetadata(cloud.home);
  await db
    .updateTable('services')
    .set({ backup_retention_days: 30 })
    .where('id', '=', service.service_id)
    .execute();
  await cloud.request('POST', path('/setEnvironment'), { environment: 'PROD' });
  const list = await dryRun();
  expect(list).toContain('its own backup retention of 30 days');
  expect(list).toContain('its environment PROD: the fork is DEV');
  await cloud.request('POST', path('/setEnvironment'), { environment: 'DEV' });
  await close();
});

test('a fork of a paused service has the rows of unlogged tables and the counters', async () => {
  await cloud.request('POST', path('/stop'));
  await cloud.until(service.service_id, 'PAUSED');
  const { forked, list, state } = await fork('still');
  expect(list).toContain(SLOTS);
  expect(list).not.toContain(UNLOGGED);
  expect(list).not.toContain(COUNTERS);
  expect(state).toEqual({ ...ALL, slots: [], volatile: 10, counted: true });
  await cloud.request('DELETE', `/services/${forked.service_id}?purge=true`);
  await cloud.request('POST', path('/start'));
  await cloud.until(service.service_id, 'READY');
});

test('a deleted service comes back with all that it had', async () => {
  await cloud.request('DELETE', path());
  await untilExpected('the service is deleted', async () =>
    expect((await cloud.request('GET', path())).status).toBe(404),
  );
  const dry = await cloud.request('POST', `${path('/restore')}?dry_run=true`);
  expect(listOf(dry.body)).toEqual([]);
  expect((await cloud.request('POST', path('/restore'))).status).toBe(202);
  await cloud.until(service.service_id, 'READY');
  const [operation] = await cloud.operations(service.service_id);
  expect(operation).toMatchObject({ kind: 'restore' });
  expect(operation).not.toHaveProperty('not_carried');
  expect(await stateOf(service, service.initial_password)).toEqual({
    ...ALL,
    slots: ['cdc'],
    volatile: 10,
    counted: true,
  });
});

test('the command line says it before and after', async () => {
  const words = ['service', 'fork', 'orders', '--name', 'listed'] as const;
  const dry = await cloud.cli(...words, '--dry-run');
  expect(dry.stdout).toMatch(/would not be carried over:\n.*tsdbadmin/);
  const made = await cloud.cli(...words);
  expect(made.stderr).toMatch(/was not carried over:\n.*tsdbadmin/);
  expect(await cloud.cli('service', 'purge', 'listed', '--yes')).toMatchObject({ code: 0 });
});

test('the dry run of a switchover names the slots that it removes', async () => {
  const replicas = { replica_count: 1, sync_replica_count: 1 };
  expect((await cloud.request('POST', path('/setHA'), replicas)).status).toBe(202);
  await cloud.until(service.service_id, 'READY');
  const asked = await cloud.request('POST', `${path('/switchover')}?dry_run=true`);
  expect(asked.status).toBe(200);
  expect(listOf(asked.body)).toEqual([
    'its replication slots cdc: consumers create them again, and read their tables again; ' +
      'a logical slot that is made with failover => true goes on',
    UNLOGGED,
    COUNTERS,
  ]);
  expect((await cloud.request('POST', path('/switchover'))).status).toBe(202);
  await cloud.until(service.service_id, 'READY');
  const [operation] = await cloud.operations(service.service_id);
  expect(operation).toMatchObject({ kind: 'switchover', not_carried: listOf(asked.body) });
  expect(await stateOf(service, service.initial_password)).toMatchObject({
    ...ALL,
    slots: expect.not.arrayContaining(['cdc']),
    volatile: 0,
    counted: false,
  });
});

test('a tenant cannot prevent a switchover of its service, nor name false slots', async () => {
  const client = await connectTo(cloud, service, service.initial_password);
  await client.query(`
    create schema mine;
    create view mine.pg_replication_slots as select 'no slot' as slot_name;
    create function mine.refuse(name, text) returns boolean language plpgsql
      as $$ begin raise exception 'refused'; end $$;
    create operator mine.!~ (function = mine.refuse, leftarg = name, rightarg = text);
    alter database tsdb set search_path = mine, pg_catalog`);
  const dryRun = () => cloud.request('POST', `${path('/switchover')}?dry_run=true`);
  const asked = await dryRun();
  expect(asked.status, JSON.stringify(asked.body)).toBe(200);
  expect(listOf(asked.body).join()).not.toContain('no slot');
  await client.query('alter database tsdb reset search_path; drop schema mine cascade');
  await client.end();
  // Without its database, and without the right to connect to it, nothing is known of slots.
  const other = await connectTo(cloud, service, service.initial_password, {
    database: 'postgres',
  });
  await other.query('revoke connect on database tsdb from public');
  expect(await dryRun()).toMatchObject({ status: 200 });
  await other.query('alter database tsdb rename to hidden');
  expect(await dryRun()).toMatchObject({ status: 200 });
  await other.query('alter database hidden rename to tsdb');
  await other.query('grant connect on database tsdb to public');
  await other.end();
});
