/** The rights of the owner of a service in its database; who can connect to it, and how. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client, type ClientConfig } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import {
  admin,
  cloud,
  refusalOf,
  rows,
  service,
  value,
  setUp,
  tearDown,
} from './database-cloud.ts';
import { openCertificateAuthority } from './probe.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

const FORBIDDEN = [
  ["select pg_read_file('/etc/passwd')", '42501'],
  ["select pg_read_binary_file('PG_VERSION')", '42501'],
  ["select pg_ls_dir('/')", '42501'],
  ["select pg_stat_file('/etc/passwd')", '42501'],
  ["select lo_import('/etc/passwd')", '42501'],
  ["select lo_export(1, '/tmp/howdah-x')", '42501'],
  ["copy (select 1) to '/tmp/howdah-x'", '42501'],
  ["copy pg_class from '/etc/passwd'", '42501'],
  ["copy (select 1) to program 'id > /tmp/howdah-x'", '42501'],
  ["create table t (a text); copy t from program 'id'", '42501'],
  ["create function f() returns int language c as 'libc.so.6', 'getpid'", '42501'],
  ["create function f() returns int language internal as 'int4pl'", '42501'],
  ['create extension plpython3u', '(42501|0A000|58P01)'],
  ['create extension plperlu', '(42501|0A000|58P01)'],
  ['create extension dblink', '(42501|0A000|58P01)'],
  ['create extension file_fdw', '(42501|0A000|58P01)'],
  ['create extension adminpack', '(42501|0A000|58P01)'],
  ["alter system set work_mem = '1GB'", '42501'],
  ["set log_min_messages = 'panic'", '42501'],
  ["set session_preload_libraries = 'x'", '42501'],
  ["alter database tsdb set session_preload_libraries = 'x'", '42501'],
  ["alter role tsdbadmin set log_statement = 'none'", '42501'],
  ["load '/lib/x86_64-linux-gnu/libc.so.6'", '42501'],
  ['select pg_reload_conf()', '42501'],
  ['select pg_rotate_logfile()', '42501'],
  ['select pg_switch_wal()', '42501'],
  ["select pg_backup_start('x')", '42501'],
  ['alter role howdah password null', '42501'],
  ['alter role howdah rename to x', '42501'],
  ['alter role howdah nologin', '42501'],
  ['drop role howdah', '(42501|2BP01)'],
  ['set role howdah', '42501'],
  ['set session authorization howdah', '42501'],
  ['grant howdah to tsdbadmin', '42501'],
  ['alter role tsdbadmin superuser', '42501'],
  ['alter role tsdbadmin bypassrls', '42501'],
  ['alter role tsdbadmin createdb', '42501'],
  ['create role evil superuser', '42501'],
  ['create role evil bypassrls', '42501'],
  ['create role evil in role pg_execute_server_program', '42501'],
  ['create role evil in role pg_read_server_files', '42501'],
  ['grant pg_execute_server_program to tsdbadmin', '42501'],
  ['grant pg_read_server_files to tsdbadmin', '42501'],
  ['grant pg_write_server_files to tsdbadmin', '42501'],
  ['grant pg_write_all_data to tsdbadmin', '42501'],
  ['alter database tsdb rename to other', '(42501|0A000|55006)'],
  ['drop database tsdb', '55006'],
  ['drop database postgres', '42501'],
  ["create tablespace t location '/tmp'", '42501'],
  [
    'create event trigger e ' +
      'on ddl_command_start execute function suppress_redundant_updates_trigger()',
    '42501',
  ],
  [
    "create subscription s connection 'host=127.0.0.1' publication p with (connect = false)",
    '42501',
  ],
  ["update pg_authid set rolsuper = true where rolname = 'tsdbadmin'", '42501'],
  [
    'insert into pg_auth_members (oid, roleid, member, grantor) select 1, oid, oid, oid ' +
      'from pg_authid limit 1',
    '42501',
  ],
  ['create schema pg_evil', '42939'],
  ['create function pg_catalog.evil() returns int language sql as $$select 1$$', '42501'],
] as const;

test.each(FORBIDDEN)('tsdbadmin may not: %s', async (statement, code) => {
  await admin.query('begin');
  await expect(
    admin.query(statement.replace('create table t (a text); ', '')),
  ).rejects.toMatchObject({
    code: expect.stringMatching(
      statement.startsWith('create table t') ? /^42(501|P01)$/ : new RegExp(`^(${code}|25001)$`),
    ),
  });
  await admin.query('rollback');
});

test('tsdbadmin may not, outside of a transaction either', async () => {
  for (const statement of [
    "alter system set work_mem = '1GB'",
    "create tablespace t location '/tmp'",
  ])
    await expect(admin.query(statement), statement).rejects.toMatchObject({ code: '42501' });
  await expect(admin.query('drop database tsdb')).rejects.toMatchObject({ code: '55006' });
  await expect(admin.query('drop database postgres')).rejects.toMatchObject({ code: '42501' });
  await admin.query('create table copied (line text)');
  await expect(admin.query("copy copied from program 'id'")).rejects.toMatchObject({
    code: '42501',
  });
  await expect(admin.query("copy copied from '/etc/passwd'")).rejects.toMatchObject({
    code: '42501',
  });
  await admin.query('drop table copied');
});

test('tsdbadmin cannot end our own sessions', async () => {
  const ours: unknown[] = await rows(
    admin,
    "select pid from pg_stat_activity where usename = 'howdah'",
  );
  expect(ours.length).toBeGreaterThan(0);
  for (const end of ['pg_terminate_backend', 'pg_cancel_backend'])
    await expect(
      admin.query(`select ${end}(pid) from pg_stat_activity where usename = 'howdah'`),
    ).rejects.toMatchObject({ code: '42501' });
});

test('tsdbadmin can make schemas, tables, grants and roles, and become its roles', async () => {
  await admin.query(`
    create schema sales; create table sales.orders (n int); insert into sales.orders values (1);
    create role reader login password 'reader-secret'; create role writers;
    grant usage on schema sales to reader, writers; grant select on sales.orders to reader;
    grant writers to reader; grant pg_read_all_stats to reader;
      alter default privileges in schema sales grant select on tables to reader`);
  await admin.query('set role reader');
  expect(await value(admin, 'select current_user')).toBe('reader');
  expect(await value(admin, 'select n from sales.orders')).toBe(1);
  await expect(admin.query('insert into sales.orders values (2)')).rejects.toMatchObject({
    code: '42501',
  });
  await admin.query('reset role');
  const reader = await connectTo(cloud, service, 'reader-secret', { user: 'reader' });
  expect(await value(reader, 'select count(*)::int from sales.orders')).toBe(1);

  // Sessions of its own and of roles that it made: cancelled and ended.
  const pid = await value(reader, 'select pg_backend_pid()');
  const asleep = expect(reader.query('select pg_sleep(1000)')).rejects.toMatchObject({
    code: '57014',
  });
  await untilExpected('the statement of the reader runs', async () =>
    expect(
      await rows(
        admin,
        `select 1 from pg_stat_activity
         where pid = $1 and query like '%pg_sleep%' and state = 'active'`,
        [pid],
      ),
    ).toHaveLength(1),
  );
  expect(await rows(admin, 'select pg_cancel_backend($1) as done', [pid])).toEqual([
    { done: true },
  ]);
  await asleep;
  const own = await connectTo(cloud, service, service.initial_password);
  const ended = new Promise((resolve) => own.once('end', resolve));
  expect(
    await rows(admin, 'select pg_terminate_backend($1) as done', [
      await value(own, 'select pg_backend_pid()'),
    ]),
  ).toEqual([{ done: true }]);
  await ended;
  await reader.end();
  await admin.query(
    'drop schema sales cascade; drop owned by reader; drop role reader; drop role writers',
  );
});

test('tsdbadmin can create trusted extensions, and reset pg_stat_statements', async () => {
  for (const extension of ['hstore', 'pgcrypto', 'pg_trgm', 'citext', 'uuid-ossp']) {
    const available = await rows(
      admin,
      'select 1 from pg_available_extension_versions where name = $1 and trusted',
      [extension],
    );
    if (available.length === 0) continue;
    await admin.query(`create extension "${extension}"; drop extension "${extension}"`);
  }
  await admin.query("select 'find me' as marked");
  const found = "select calls from pg_stat_statements where query like '%as marked'";
  expect(await rows(admin, found)).toHaveLength(1);
  await admin.query('select pg_stat_statements_reset()');
  expect(await rows(admin, found)).toHaveLength(0);
});

test('tsdbadmin can use logical replication: slots, publications, connections', async () => {
  await admin.query('create table streamed (n int); create publication p for table streamed');
  await admin.query("select pg_create_logical_replication_slot('slot_one', 'pgoutput')");
  await admin.query('insert into streamed values (1)');
  const changes = await rows(
    admin,
    "select * from pg_logical_slot_peek_binary_changes('slot_one', null, null, " +
      "'proto_version', '1', 'publication_names', 'p')",
  );
  expect(changes.length).toBeGreaterThan(0);
  await admin.query("select pg_drop_replication_slot('slot_one')");

  const config: ClientConfig & { replication: string } = {
    host: service.endpoint.host,
    port: service.endpoint.port,
    user: 'tsdbadmin',
    database: 'tsdb',
    password: service.initial_password,
    ssl: { ca: await cloud.caPem() },
    replication: 'database',
  };
  const streaming = new Client(config);
  streaming.on('error', () => undefined);
  await streaming.connect();
  expect(await rows(streaming, 'IDENTIFY_SYSTEM')).toMatchObject([{ dbname: 'tsdb' }]);
  expect(await rows(streaming, 'CREATE_REPLICATION_SLOT slot_two LOGICAL pgoutput')).toMatchObject([
    { slot_name: 'slot_two' },
  ]);
  await streaming.query('DROP_REPLICATION_SLOT slot_two');
  await expect(
    streaming.query("BASE_BACKUP (TARGET 'server', TARGET_DETAIL '/tmp/howdah-x')"),
  ).rejects.toMatchObject({ code: '42501' });
  await streaming.end();
  await admin.query('drop publication p; drop table streamed');
});

test('physical replication is refused', async () => {
  const base = { password: service.initial_password, ssl: { rejectUnauthorized: false } };
  for (const replication of ['true', 'on', '1'])
    expect(await refusalOf({ ...base, replication })).toMatch(
      /^28000 .*no pg_hba\.conf entry for replication/,
    );
});

test('connections need TLS and SCRAM, reach own databases, cannot use our role', async () => {
  const password = service.initial_password;
  const ssl = { rejectUnauthorized: false };
  expect(await refusalOf({ password, ssl })).toBeNull();
  expect(await refusalOf({ password, ssl: false })).toMatch(/^28000 .*no encryption/);
  expect(await refusalOf({ password: 'wrong', ssl })).toMatch(/^28P01 /);
  expect(await refusalOf({ password, ssl, user: 'nobody-there' })).toMatch(/^28P01 /);
  for (const database of ['template1', 'template0'])
    expect(await refusalOf({ password, ssl, database })).toMatch(/^28000 /);
  expect(await refusalOf({ password, ssl, database: 'nothing' })).toMatch(/^3D000 /);
  for (const user of ['howdah', 'postgres'])
    expect(await refusalOf({ password, ssl, user })).toMatch(/^28(000|P01) /);
  // A role whose password is an md5 hash gets no further than others.
  await admin.query('create role old login');
  await expect(admin.query("alter role old password 'md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"))
    .resolves.toBeDefined()
    .catch(() => undefined);
  expect(await refusalOf({ password, ssl, user: 'old' })).toMatch(/^28P01 /);
  await admin.query('drop role old');
});

/** Statements that would leave something in the database that they run in. */
const PLANTED = [
  'create table planted (n int)',
  'create temporary table planted (n int)',
  'create schema planted',
  'create function public.planted() returns int language sql as $$select 1$$',
  'create domain public.planted as int',
  'create sequence public.planted',
  'create extension hstore',
  'create publication planted',
  'select lo_create(0)',
  'select lo_creat(-1)',
  "select lo_from_bytea(0, 'planted')",
  'alter database postgres set work_mem = 64',
  'alter database postgres rename to planted',
  "comment on database postgres is 'planted'",
  'create database planted template postgres',
  'drop database template1',
] as const;

test('tools create and drop databases from postgres, and leave nothing there', async () => {
  const session = (user: string, password: string) =>
    connectTo(cloud, service, password, { database: 'postgres', user });
  await admin.query("create role plain login password 'plain-secret'");
  const tool = await session('tsdbadmin', service.initial_password);
  const plain = await session('plain', 'plain-secret');
  for (const client of [tool, plain])
    for (const statement of PLANTED)
      await expect(client.query(statement), statement).rejects.toMatchObject({
        code: expect.stringMatching(/^(42501|55006|3F000)$/),
      });
  await expect(plain.query("select pg_logical_emit_message(true, 'a', 'b')")).rejects.toMatchObject(
    { code: '42501' },
  );
  // Sessions that stay keep nobody from creating databases.
  await tool.query('create database made');
  await admin.query('create database made_too template template1');
  const made = await connectTo(cloud, service, service.initial_password, { database: 'made' });
  expect(await value(made, "select to_regclass('planted')")).toBeNull();
  await made.end();
  await tool.query('drop database made');
  await tool.query('drop database made_too');
  for (const client of [tool, plain]) await client.end();
  await admin.query('drop role plain');
});

test('verify-full works with our CA only', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'hd-ca-'));
  const { certificatePem } = await openCertificateAuthority(join(directory, 'ca'));
  const { password } = { password: service.initial_password };
  const ca = await cloud.caPem();
  expect(await refusalOf({ password, ssl: { ca, rejectUnauthorized: true } })).toBeNull();
  expect(
    await refusalOf({ password, host: 'localhost', ssl: { ca, rejectUnauthorized: true } }),
  ).toBeNull();
  expect(
    await refusalOf({ password, ssl: { ca: certificatePem, rejectUnauthorized: true } }),
  ).toMatch(/certificate/i);
  expect(await refusalOf({ password, ssl: { rejectUnauthorized: true } })).toMatch(/certificate/i);
  expect(
    await refusalOf({ password, ssl: { ca, maxVersion: 'TLSv1.1', minVersion: 'TLSv1' } }),
  ).not.toBeNull();
  await rm(directory, { recursive: true });
});
