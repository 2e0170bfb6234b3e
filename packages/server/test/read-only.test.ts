/**
 * Sessions with tsdb_admin.read_only_connection, and of roles with tsdb_admin.read_only_role: where
 * the module for them was compiled they cannot write, elsewhere they are refused.
 */
import { DatabaseError, type Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import {
  admin,
  cloud,
  refusalOf,
  rows,
  service,
  setUp,
  tearDown,
  value,
} from './database-cloud.ts';

/** As the Tiger CLI sends it. */
const READ_ONLY = '-c tsdb_admin.read_only_connection=true';

/** Whether the module is loaded, and the major version of the server. */
let enforced = false;
let major = 0;

beforeAll(async () => {
  await setUp();
  enforced =
    (await value(admin, "select current_setting('tsdb_admin.read_only_connection', true)")) !==
    null;
  major = Math.floor(
    Number(await value(admin, "select current_setting('server_version_num')")) / 1e4,
  );
  await admin.query(`
    create table t (i int);
    insert into t values (1);
    create sequence s;
    create view v as select * from t;
    create procedure commits() language plpgsql as 'begin commit; insert into t values (2); end';
    create procedure switches() language plpgsql
      as 'begin commit; set transaction read write; insert into t values (2); end';
    create function inserts() returns void language sql as 'insert into t values (3)';
    create function resets() returns void language plpgsql
      as 'begin perform pg_stat_statements_reset(); end';
    create function pg_stat_reset_mine() returns int language sql as 'select 1';
    create function by_default() returns void language plpgsql
      set default_transaction_read_only = off
      as 'begin insert into t values (4); end';
    create function by_definer() returns void language plpgsql security definer
      as 'begin
            perform set_config(''default_transaction_read_only'', ''off'', false);
            insert into t values (5);
          end'`);
  await admin.query('select lo_create(77)');
});
afterAll(tearDown);

const open = (options?: string): Promise<Client> =>
  connectTo(cloud, service, service.initial_password, options === undefined ? {} : { options });

/** Statements that write; each is tried by itself. */
const WRITES = [
  'insert into t values (10)',
  'update t set i = 10',
  'delete from t',
  'truncate t',
  'merge into t using (values (1)) as n (i) on t.i = n.i when matched then delete',
  'insert into v values (10)',
  'with x as (insert into t values (10) returning i) select * from x',
  'select * from t for update',
  'explain analyze insert into t values (10)',
  'prepare p as insert into t values (10); execute p',
  'create table x ()',
  'create temp table x ()',
  'create table x as select * from t',
  'select * into x from t',
  'create schema x',
  'create role x',
  'alter role tsdbadmin reset all',
  'alter database tsdb set default_transaction_read_only = off',
  'create database x',
  'drop table t cascade',
  'grant select on t to public',
  "comment on table t is 'x'",
  'create extension hstore',
  'refresh materialized view v',
  "security label on table t is 'x'",
  'copy t from stdin',
  "select nextval('s')",
  "select setval('s', 10)",
  'select inserts()',
  'select by_default()',
  'select by_definer()',
  'call commits()',
  'call switches()',
  "do 'begin insert into t values (10); end'",
  "do 'begin commit; insert into t values (10); end'",
  'select lo_create(0)',
  'select lo_creat(-1)',
  'select lo_unlink(77)',
  "select lo_put(77, 0, 'x')",
  "select lo_from_bytea(0, 'x')",
  "select lowrite(lo_open(77, 131072), 'x')",
  'vacuum t',
  'analyze t',
  'reindex table t',
  'cluster',
  'create index concurrently on t (i)',
  "alter system set work_mem = '1GB'",
  "select pg_logical_emit_message(false, 'a', 'b')",
  "select pg_create_logical_replication_slot('a', 'pgoutput')",
  "select pg_drop_replication_slot('a')",
  'select pg_export_snapshot()',
  "select lo_export(77, '/tmp/x')",
  "select lo_import('/etc/passwd')",
  'select pg_stat_statements_reset()',
  'select pg_stat_statements_reset(0, 0, 0)',
  'select pg_stat_reset()',
  "select pg_stat_reset_shared('bgwriter')",
  "select pg_stat_reset_single_table_counters('t'::regclass)",
  'select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()',
  'select pg_cancel_backend(pg_backend_pid())',
  "select pg_create_restore_point('x')",
  'select pg_switch_wal()',
  'select pg_reload_conf()',
  "select pg_replication_origin_create('x')",
  'select resets()',
  'checkpoint',
  "begin; prepare transaction 'x'",
];

/** Ways to become able to write; what follows tries it. */
const WAYS = [
  'set transaction_read_only = off',
  'set transaction read write',
  'set default_transaction_read_only = off',
  'set session characteristics as transaction read write',
  'reset default_transaction_read_only',
  'reset all',
  'discard all',
  "select set_config('transaction_read_only', 'off', false)",
  "select set_config('default_transaction_read_only', 'off', false)",
  "update pg_settings set setting = 'off' where name = 'default_transaction_read_only'",
  'set tsdb_admin.read_only_connection = off',
  'reset tsdb_admin.read_only_connection',
  'set tsdb_admin.read_only_role = off',
  'set role tsdbadmin',
  'reset session authorization',
  'begin read write',
  'begin; commit and chain',
  'begin; savepoint a; set transaction_read_only = off',
  'begin; set local transaction_read_only = off',
  'begin; set default_transaction_read_only = off; commit',
  'begin; set default_transaction_read_only = off; rollback',
];

const REFUSALS = /^(25006|42501|0A000|55000|25001|25P02|2D000|42809|22023|42704|22000)$/;

/** Everything that a write could change, as a text. */
const state = async (): Promise<unknown> =>
  value(
    admin,
    `select json_build_object(
       'rows', (select json_agg(i order by i) from t),
       'sequence', (select last_value || ' ' || is_called from s),
       'objects', (select count(*) from pg_class),
       'large', (select json_agg(json_build_array(loid, data)) from pg_largeobject),
       'numbers', (select count(*) from pg_largeobject_metadata),
       'roles', (select count(*) from pg_roles),
       'settings', (select count(*) from pg_db_role_setting),
       'slots', (select count(*) from pg_replication_slots),
       'statistics', (select reltuples || ' ' || relpages || ' ' || relfilenode
                      from pg_class where oid = 't'::regclass),
       'databases', (select count(*) from pg_database))::text`,
  );

async function codeOf(client: Client, statement: string): Promise<string | null> {
  try {
    await client.query(statement);
    return null;
  } catch (error) {
    return error instanceof DatabaseError ? (error.code ?? '') : String(error);
  }
}

describe('a read-only connection', () => {
  test('cannot write, or is refused', async () => {
    if (!enforced) return expectRefused();
    const before = await state();
    const client = await open(READ_ONLY);
    for (const statement of WRITES) {
      expect(await codeOf(client, statement), statement).toMatch(REFUSALS);
      await client.query('rollback');
    }
    await client.end();
    expect(await state()).toBe(before);
  });

  test('cannot become one that writes', async () => {
    if (!enforced) return expectRefused();
    const before = await state();
    for (const way of WAYS) {
      const client = await open(READ_ONLY);
      await codeOf(client, way);
      expect(await codeOf(client, 'insert into t values (10)'), way).toMatch(REFUSALS);
      await client.query('rollback');
      expect(await codeOf(client, 'insert into t values (10)'), way).toBe('25006');
      expect(await codeOf(client, "select nextval('s')"), way).toBe('25006');
      await client.end();
    }
    expect(await state()).toBe(before);
  });

  test('cannot be opened so that it writes', async () => {
    if (!enforced) return expectRefused();
    const ways = [
      '-c default_transaction_read_only=off',
      '-c transaction_read_only=off',
      '-c tsdb_admin.read_only_role=off',
    ];
    for (const way of ways)
      for (const options of [`${READ_ONLY} ${way}`, `${way} ${READ_ONLY}`]) {
        const client = await open(options).catch(() => null);
        if (client === null) continue; // refused, which is as good
        expect(await codeOf(client, 'insert into t values (10)'), options).toBe('25006');
        await client.end();
      }
    const replication = { password: service.initial_password, ssl: { rejectUnauthorized: false } };
    expect(
      await refusalOf({ ...replication, options: READ_ONLY, replication: 'database' }),
    ).toMatch(/cannot be read-only/);
    await admin.query('alter role tsdbadmin set default_transaction_read_only = off');
    const client = await open(READ_ONLY);
    expect(await codeOf(client, 'insert into t values (10)')).toBe('25006');
    await client.end();
    await admin.query('alter role tsdbadmin reset default_transaction_read_only');
  });

  test('reads as any other, in transactions of every kind', async () => {
    if (!enforced) return expectRefused();
    const client = await open(READ_ONLY);
    expect(await rows(client, 'select i from t')).toEqual([{ i: 1 }]);
    for (const begin of [
      'begin',
      'begin read only',
      'begin isolation level serializable, read only',
    ]) {
      await client.query(begin);
      expect(await rows(client, 'show transaction_read_only')).toEqual([
        { transaction_read_only: 'on' },
      ]);
      await client.query('commit');
    }
    await client.query('set max_parallel_workers_per_gather = 2; set debug_parallel_query = on');
    expect(await rows(client, 'select count(*)::int as n from t')).toEqual([{ n: 1 }]);
    await client
      .query('create function pg_temp.f() returns int language sql as $$ select 1 $$')
      .then(
        () => expect.unreachable(),
        () => undefined,
      );
    // A user may give a function any name.
    expect(await rows(client, 'select pg_stat_reset_mine() as n')).toEqual([{ n: 1 }]);
    // These end with the session, or are no state.
    await client.query(
      'listen x; notify x; select pg_advisory_lock(1); select pg_notify($$x$$, $$$$)',
    );
    await client.query('discard all');
    await client.end();
  });

  test('another session is not affected', async () => {
    const other = await open('-c tsdb_admin.read_only_connection=false');
    await other.query('begin; insert into t values (10); rollback');
    await other.end();
    expect(await codeOf(admin, 'begin; insert into t values (10); rollback')).toBeNull();
  });
});

async function expectRefused(): Promise<void> {
  expect(major).toBeGreaterThanOrEqual(17);
  for (const yes of ['true', 'on', '1', 'yes', 'TRUE', 't', 'maybe']) {
    const refusal = open(`-c tsdb_admin.read_only_connection=${yes}`);
    await expect(refusal, yes).rejects.toMatchObject({
      code: '0A000',
      message: expect.stringMatching(/cannot enforce read-only sessions/),
    });
  }
}

describe('where connections are refused', () => {
  test('the owner cannot undo that, and every database has it', async () => {
    const { rows: triggers } = await admin.query(
      `select evtname, evtenabled, evtowner::regrole::text as owner
       from pg_event_trigger where evtevent = 'login'`,
    );
    if (enforced) return expect(triggers).toEqual([]);
    expect(triggers).toEqual([{ evtname: 'howdah_read_only', evtenabled: 'A', owner: 'howdah' }]);
    for (const statement of [
      'drop event trigger howdah_read_only',
      'alter event trigger howdah_read_only disable',
      'alter extension plpgsql drop event trigger howdah_read_only',
      'drop extension plpgsql cascade',
      'drop schema pg_howdah cascade',
      'drop function pg_howdah.refuse_unenforced cascade',
      'set event_triggers = off',
      "set session_replication_role = 'replica'",
      'alter database tsdb set event_triggers = off',
    ])
      expect(await codeOf(admin, statement), statement).toBe('42501');
    for (const template of ['template0', 'template1']) {
      await admin.query(`create database other template ${template}`);
      const at = { password: service.initial_password, ssl: { rejectUnauthorized: false } };
      expect(await refusalOf({ ...at, database: 'other' })).toBeNull();
      expect(await refusalOf({ ...at, database: 'other', options: READ_ONLY })).toMatch(/^0A000 /);
      await admin.query('drop database other');
    }
    return undefined;
  });
});

test('a new password lets an owner write again whose role and database are read-only', async () => {
  await admin.query(`
    alter role tsdbadmin set tsdb_admin.read_only_role = true;
    alter role tsdbadmin in database tsdb set tsdb_admin.read_only_role = true;
    alter database tsdb set tsdb_admin.read_only_role = true`);
  const writes = async (password: string): Promise<void> => {
    const client = await connectTo(cloud, service, password);
    try {
      await client.query('insert into t values (20)');
    } finally {
      await client.end();
    }
  };
  await expect(writes(service.initial_password)).rejects.toThrow(/read-only/);
  const { status } = await cloud.request('POST', `/services/${service.service_id}/updatePassword`, {
    password: service.initial_password,
  });
  expect(status).toBe(204);
  await writes(service.initial_password);
});
