/** What a service is to its users: their rights, their sessions, its identity, its logs and figures. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { EXTENSION_OF_ADDON, SERVICE_SIZES, SERVICE_TYPES, type Addon } from '@howdah/contract';
import { Client, type ClientConfig } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { configFiles } from '../src/engine/local/postgres/files.ts';
import { instancePaths } from '../src/engine/local/host/layout.ts';
import { prepareMachine } from '../src/engine/local/host/machine.ts';
import { openCertificateAuthority } from '../src/lib/tls.ts';
import { connectTo, install, type Installation, type Service } from './harness.ts';

type ServiceAccess = Service & { initial_password: string };

let cloud: Installation;
let service: ServiceAccess;
let twin: ServiceAccess;
let admin: Client;
beforeAll(async () => {
  cloud = await install();
  [service, twin] = await Promise.all([
    cloud.create({ name: 'one', service_type: 'POSTGRES' }),
    cloud.create({ name: 'two', service_type: 'POSTGRES', cpu_millis: '1000' }),
  ]);
  admin = await connectTo(cloud, service, service.initial_password);
});
afterAll(async () => {
  await admin?.end();
  expect(await cloud?.destroy()).toEqual([]);
});

const run = promisify(execFile);
const rows = async (client: Client, text: string, values: unknown[] = []) =>
  (await client.query(text, values)).rows;
const value = async (client: Client, text: string): Promise<unknown> =>
  Object.values((await client.query(text)).rows[0] ?? {})[0];

/** Connects with settings of the test's own. @returns null, or the code or words of the refusal */
async function refusalOf(config: ClientConfig & { replication?: string }): Promise<string | null> {
  const client = new Client({
    host: service.endpoint.host,
    port: service.endpoint.port,
    user: 'tsdbadmin',
    database: 'tsdb',
    ...config,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return null;
  } catch (error) {
    return error instanceof Error
      ? `${'code' in error ? String(error.code) : ''} ${error.message}`
      : String(error);
  } finally {
    await client.end().catch(() => undefined);
  }
}

// ── what tsdbadmin may not ───────────────────────────────────────────────────────────────────────────────────────

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
  ['grant pg_signal_backend to tsdbadmin', '42501'],
  ['grant pg_write_all_data to tsdbadmin', '42501'],
  ['create database other', '42501'],
  ['alter database tsdb rename to other', '(42501|0A000|55006)'],
  ['drop database tsdb', '55006'],
  ['drop database postgres', '42501'],
  ["create tablespace t location '/tmp'", '42501'],
  [
    'create event trigger e on ddl_command_start execute function suppress_redundant_updates_trigger()',
    '42501',
  ],
  [
    "create subscription s connection 'host=127.0.0.1' publication p with (connect = false)",
    '42501',
  ],
  ["update pg_authid set rolsuper = true where rolname = 'tsdbadmin'", '42501'],
  [
    'insert into pg_auth_members (oid, roleid, member, grantor) select 1, oid, oid, oid from pg_authid limit 1',
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
    'create database other',
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

test('our own sessions are not theirs to end', async () => {
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

// ── what tsdbadmin may ───────────────────────────────────────────────────────────────────────────────────────────

test('schemas, tables, grants, roles of its own and becoming them', async () => {
  await admin.query(`
    create schema sales; create table sales.orders (n int); insert into sales.orders values (1);
    create role reader login password 'reader-secret'; create role writers;
    grant usage on schema sales to reader, writers; grant select on sales.orders to reader;
    grant writers to reader; grant pg_read_all_stats to reader; alter default privileges in schema sales grant select on tables to reader`);
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
  await expect
    .poll(
      async () =>
        rows(
          admin,
          "select 1 from pg_stat_activity where pid = $1 and query like '%pg_sleep%' and state = 'active'",
          [pid],
        ),
      { timeout: 30_000 },
    )
    .toHaveLength(1);
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

test('trusted extensions, and pg_stat_statements with its reset', async () => {
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

test('logical replication: slots, publications, and a connection for it', async () => {
  await admin.query('create table streamed (n int); create publication p for table streamed');
  await admin.query("select pg_create_logical_replication_slot('slot_one', 'pgoutput')");
  await admin.query('insert into streamed values (1)');
  const changes = await rows(
    admin,
    "select * from pg_logical_slot_peek_binary_changes('slot_one', null, null, 'proto_version', '1', 'publication_names', 'p')",
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

// ── the way in ───────────────────────────────────────────────────────────────────────────────────────────────────

test('only TLS, only SCRAM, only its own database, never our role', async () => {
  const password = service.initial_password;
  const ssl = { rejectUnauthorized: false };
  expect(await refusalOf({ password, ssl })).toBeNull();
  expect(await refusalOf({ password, ssl: false })).toMatch(/^28000 .*no encryption/);
  expect(await refusalOf({ password: 'wrong', ssl })).toMatch(/^28P01 /);
  expect(await refusalOf({ password, ssl, user: 'nobody-there' })).toMatch(/^28P01 /);
  for (const database of ['postgres', 'template1', 'template0', 'nothing'])
    expect(await refusalOf({ password, ssl, database })).toMatch(/^28000 /);
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

test('verify-full works with our CA, and only with it', async () => {
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

// ── identity ─────────────────────────────────────────────────────────────────────────────────────────────────────

test('every service is a cluster of its own, with checksums', async () => {
  const other = await connectTo(cloud, twin, twin.initial_password);
  const identifier = async (client: Client) =>
    value(client, 'select system_identifier::text from pg_control_system()');
  const template = join(cloud.home, 'data', 'templates');
  // One that is being made may be gone before it is read.
  const made = (await readdir(template)).filter((name) => !name.endsWith('.new'));
  const controls = made.map((name) => join(template, name, 'data', 'global', 'pg_control'));
  const identifiers = await Promise.all(
    controls.map(async (path) => (await readFile(path)).readBigUInt64LE(0).toString()),
  );
  expect(identifiers.length).toBeGreaterThan(0);
  const all = [...identifiers, await identifier(admin), await identifier(other)];
  expect(new Set(all).size).toBe(all.length);
  expect(await value(admin, 'show data_checksums')).toBe('on');
  expect(twin.endpoint.port).not.toBe(service.endpoint.port);
  expect(twin.initial_password).not.toBe(service.initial_password);
  await admin.query('create table mine (n int)');
  expect(await value(other, "select to_regclass('mine')")).toBeNull();
  await admin.query('drop table mine');
  await other.end();
  expect(
    await refusalOf({ password: twin.initial_password, ssl: { rejectUnauthorized: false } }),
  ).toMatch(/^28P01 /);
});

const contentOf = async (...path: string[]) => (await readFile(join(...path), 'utf8')).trim();

test('a size is what the settings say, and what the operating system enforces where it can', async () => {
  const other = await connectTo(cloud, twin, twin.initial_password);
  expect(await value(admin, 'show shared_buffers')).toBe('128MB');
  expect(await value(other, 'show shared_buffers')).toBe('1GB');
  expect(await value(other, 'show max_connections')).toBe('200');
  for (const client of [admin, other])
    expect(
      await rows(
        client,
        "select name from pg_settings where pending_restart or source not in ('default', 'override', 'configuration file', 'client', 'session', 'database', 'user', 'environment variable', 'command line')",
      ),
    ).toEqual([]);
  await other.end();
  const { limits } = await prepareMachine(cloud.home);
  const { data: regions } = await cloud.client.GET('/projects/{project_id}/regions', {
    params: { path: { project_id: cloud.projectId } },
  });
  expect(regions?.[0]?.limits_enforced).toBe(limits.kind !== 'none');
  switch (limits.kind) {
    case 'v2':
      expect(await contentOf(limits.root, twin.service_id, 'cpu.max')).toBe('20000 20000');
      expect(await contentOf(limits.root, twin.service_id, 'memory.max')).toBe(
        String(4 * 1024 ** 3),
      );
      expect(await contentOf(limits.root, twin.service_id, 'cgroup.procs')).not.toBe('');
      if (limits.disk !== null)
        expect(await contentOf(limits.root, twin.service_id, 'io.max')).toContain('wbps=67108864');
      break;
    case 'v1':
      expect(await contentOf(limits.cpu, twin.service_id, 'cpu.cfs_quota_us')).toBe('20000');
      expect(await contentOf(limits.cpu, twin.service_id, 'cpu.cfs_period_us')).toBe('20000');
      expect(await contentOf(limits.cpu, service.service_id, 'cpu.cfs_quota_us')).toBe('10000');
      expect(await contentOf(limits.memory, twin.service_id, 'memory.limit_in_bytes')).toBe(
        String(4 * 1024 ** 3),
      );
      expect(await contentOf(limits.memory, twin.service_id, 'cgroup.procs')).not.toBe('');
      if (limits.blkio === null) break;
      expect(
        await contentOf(limits.blkio.group, twin.service_id, 'blkio.throttle.write_bps_device'),
      ).toBe(`${limits.blkio.disk} 67108864`);
      expect(await contentOf(limits.blkio.group, service.service_id, 'cgroup.procs')).not.toBe('');
      break;
    case 'none':
      expect(regions?.[0]?.limits_note).toContain('not enforced');
  }
});

test('PostgreSQL itself takes the settings of every size', async () => {
  const { installations } = await prepareMachine(cloud.home);
  const directory = await mkdtemp(join(tmpdir(), 'hd-conf-'));
  for (const installation of installations.usable) {
    for (const size of ['shared' as const, ...SERVICE_SIZES]) {
      const paths = instancePaths(
        join(directory, installation.name, size === 'shared' ? size : String(size.cpuMillis)),
      );
      await mkdir(paths.config, { recursive: true });
      const files = configFiles(
        {
          paths,
          installation,
          extensions: installation.extensions,
          size,
          storageGb: 10,
          listen: { address: '127.0.0.1', port: 5 },
          allowedNetworks: null,
        },
        { control: 'x', owner: null, gateway: null },
      );
      await writeFile(join(paths.config, 'postgresql.conf'), files['postgresql.conf']);
      for (const included of ['postgresql.auto.conf', 'replication.conf', 'quota.conf'])
        await writeFile(join(paths.config, included), '');
      const { stdout, stderr } = await run(join(installation.bin, 'postgres'), [
        '-C',
        'max_connections',
        '-D',
        paths.config,
      ]);
      expect(stderr).toBe('');
      expect(files['postgresql.conf']).toContain(`max_connections = ${stdout.trim()}\n`);
    }
  }
  await rm(directory, { recursive: true });
});

// ── passwords ────────────────────────────────────────────────────────────────────────────────────────────────────

test('a new password is live at once, the old one is refused, running sessions stay', async () => {
  const ssl = { rejectUnauthorized: false };
  let old = twin.initial_password;
  const session = await connectTo(cloud, twin, old);
  const pid = await value(session, 'select pg_backend_pid()');
  const target = { port: twin.endpoint.port, ssl };
  const passwords = [
    'plain-enough',
    'it\'s "quoted" \\ $1 %s',
    ' leading and trailing ',
    'x'.repeat(128),
    '🐘🐘🐘🐘🐘🐘🐘🐘',
    'пароль-ключ',
  ];
  for (const password of passwords) {
    expect(
      (await cloud.request('POST', `/services/${twin.service_id}/updatePassword`, { password }))
        .status,
    ).toBe(204);
    expect(await refusalOf({ ...target, password }), password).toBeNull();
    expect(await refusalOf({ ...target, password: old }), password).toMatch(/^28P01 /);
    old = password;
  }
  expect(await value(session, 'select pg_backend_pid()')).toBe(pid);
  await session.end();
});

test('libpq, which prepares passwords, gets in with those that change by it', async () => {
  const { installations } = await prepareMachine(cloud.home);
  const psql = await findPsql(installations.usable.map(({ bin }) => join(bin, 'psql')));
  // Machines without a client have the verifier's unit test.
  if (psql === null) return;
  const url = `host=127.0.0.1 port=${twin.endpoint.port} user=tsdbadmin dbname=tsdb sslmode=verify-full sslrootcert=${join(cloud.home, 'ca', 'ca.pem')}`;
  for (const password of [
    'ﬁsh-and-Ⅸ',
    'cafe\u0301-latte',
    'one\u00a0two\u3000six',
    'soft\u00adhyphen',
    'ﬁsh-🔒-more',
    'ﬁsh-\u05d0\u05d1-more',
  ]) {
    expect(
      (await cloud.request('POST', `/services/${twin.service_id}/updatePassword`, { password }))
        .status,
    ).toBe(204);
    const { stdout } = await run(psql, [url, '-Atc', 'select current_user'], {
      env: { PGPASSWORD: password, PATH: process.env['PATH'] },
    });
    expect(stdout.trim()).toBe('tsdbadmin');
  }
});

async function findPsql(candidates: readonly string[]): Promise<string | null> {
  for (const candidate of [...candidates, 'psql']) {
    const found = await run(candidate, ['--version']).catch(() => null);
    if (found !== null) return candidate;
  }
  return null;
}

// ── logs and figures ─────────────────────────────────────────────────────────────────────────────────────────────

const logs = async (query: string) => {
  const { body } = await cloud.request('GET', `/services/${service.service_id}/logs?${query}`);
  const entries: unknown = Reflect.get(Object(body), 'entries');
  return Array.isArray(entries) ? entries : [];
};

test('what fails stands in the logs, and is found again', async () => {
  await expect(admin.query('select howdah_no_such_column')).rejects.toThrow();
  await expect(admin.query("select 'a parameter'::int")).rejects.toThrow();
  await expect(admin.query('select $1::int', ['howdah-secret-parameter'])).rejects.toThrow();
  await expect
    .poll(async () => logs('search=HOWDAH_no_such_column&severities=ERROR'), { timeout: 30_000 })
    .toHaveLength(1);
  const [entry] = await logs('search=howdah_no_such_column');
  expect(entry).toEqual({
    severity: 'ERROR',
    timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    message: expect.stringMatching(/does not exist\nSTATEMENT: select howdah_no_such_column/),
  });
  expect(await logs('search=howdah_no_such_column&severities=FATAL')).toEqual([]);
  expect(await logs('search=howdah_no_such_column&search=nowhere')).toEqual([]);
  expect(await logs(`search=howdah_no_such_column&since=${entry.timestamp}`)).toHaveLength(1);
  expect(await logs(`search=howdah_no_such_column&until=${entry.timestamp}`)).toHaveLength(0);
});

test('more than 500 entries come page by page, each once, newest first', async () => {
  await admin.query(
    "do $$ begin for i in 1..1234 loop raise log 'numbered %.', i; end loop; end $$",
  );
  const found: string[] = [];
  await expect
    .poll(
      async () =>
        (await cloud.request('GET', `/services/${service.service_id}/logs?search=numbered 1234.`))
          .body,
      { timeout: 30_000 },
    )
    .toMatchObject({ entries: [{ severity: 'LOG' }] });
  let cursor = '';
  let pages = 0;
  do {
    const { body } = await cloud.request(
      'GET',
      `/services/${service.service_id}/logs?search=numbered&severities=LOG&cursor=${cursor}`,
    );
    const { entries, logs, last_cursor, lastCursor } = pageOf(body);
    expect(lastCursor).toBe(last_cursor);
    expect(logs).toHaveLength(entries.length);
    expect(entries.length).toBeLessThanOrEqual(500);
    found.push(...entries.map(({ message }) => /numbered (\d+)\./.exec(message)?.[1] ?? message));
    cursor = last_cursor ?? '';
    pages += 1;
  } while (cursor !== '');
  expect(found).toEqual(Array.from({ length: 1234 }, (_, index) => String(1234 - index)));
  expect(pages).toBeGreaterThanOrEqual(3);
});

type Page = {
  entries: { message: string }[];
  logs: string[];
  last_cursor?: string;
  lastCursor?: string;
};
const isPage = (candidate: unknown): candidate is Page =>
  typeof candidate === 'object' &&
  candidate !== null &&
  'entries' in candidate &&
  'logs' in candidate;
function pageOf(body: unknown): Page {
  if (!isPage(body)) throw new Error(`no page of logs: ${JSON.stringify(body)}`);
  return body;
}

test('figures are real', async () => {
  await expect
    .poll(async () => (await cloud.get(service.service_id)).metrics.memory_mb, { timeout: 60_000 })
    .not.toBeNull();
  const { memory_mb, storage_mb, milli_cpu } = (await cloud.get(service.service_id)).metrics;
  // An idle server of this size: tens of megabytes; a fresh cluster with its first WAL segment.
  expect(memory_mb).toBeGreaterThan(5);
  expect(memory_mb).toBeLessThan(1000);
  expect(storage_mb).toBeGreaterThan(20);
  expect(storage_mb).toBeLessThan(500);
  expect(milli_cpu).toBeGreaterThanOrEqual(0);
  const from = new Date(Math.floor(Date.now() / 60_000) * 60_000 - 540_000);
  const to = new Date(from.getTime() + 1_200_000);
  const read = async (name: string): Promise<{ time: string; value: number | null }[]> => {
    const { data } = await cloud.client.POST(
      '/projects/{project_id}/services/{service_id}/metrics/series',
      {
        params: { path: { project_id: cloud.projectId, service_id: service.service_id } },
        body: { name, from: from.toISOString(), to: to.toISOString() },
      },
    );
    return data?.[0]?.data ?? [];
  };
  for (const name of [
    'cpu_millis',
    'memory_bytes',
    'storage_bytes',
    'connections',
    'transactions_per_second',
  ]) {
    await expect
      .poll(async () => (await read(name)).filter((point) => point.value !== null).length, {
        timeout: 90_000,
      })
      .toBeGreaterThan(0);
    const points = await read(name);
    expect(points.map(({ time }) => time)).toEqual(
      Array.from({ length: 20 }, (_, index) =>
        new Date(from.getTime() + index * 60_000).toISOString(),
      ),
    );
  }
  expect(
    Math.max(...(await read('memory_bytes')).map((point) => point.value ?? 0)),
  ).toBeGreaterThan(5e6);
});

// ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** That an extension does its work, not only that it is listed. */
const PROOF: Record<Addon, string> = {
  'time-series': `create table metrics (at timestamptz not null, v float); select create_hypertable('metrics', 'at');
    insert into metrics select now() - n * interval '1 day', n from generate_series(1, 30) n;
    select count(*)::int from show_chunks('metrics')`,
  ai: `create table items (e vector(3)); create index on items using hnsw (e vector_l2_ops);
    insert into items values ('[1,2,3]'), ('[4,5,6]'); select count(*)::int from (select * from items order by e <-> '[1,2,3]' limit 2) as nearest`,
};
const KINDS: [
  string,
  { service_type: Service['service_type'] } | { addons: Addon[] },
  Service['service_type'],
  Addon[],
][] = [
  ...SERVICE_TYPES.map((type): (typeof KINDS)[number] => [
    `type ${type}`,
    { service_type: type },
    type,
    type === 'TIMESCALEDB' ? ['time-series'] : type === 'VECTOR' ? ['ai'] : [],
  ]),
  ['add-on ai', { addons: ['ai'] }, 'VECTOR', ['ai']],
  ['both add-ons', { addons: ['ai', 'time-series'] }, 'TIMESCALEDB', ['time-series', 'ai']],
];
test.each(KINDS)(
  '%s: made where it can be had, refused with the package where it cannot',
  async (_title, body, type, addons) => {
    const { usable } = (await prepareMachine(cloud.home)).installations;
    const can = usable.some(({ extensions }) =>
      addons.every((addon) => extensions.includes(EXTENSION_OF_ADDON[addon])),
    );
    const { data: regions } = await cloud.client.GET('/projects/{project_id}/regions', {
      params: { path: { project_id: cloud.projectId } },
    });
    const said = regions?.[0]?.service_types.find(({ service_type }) => service_type === type);
    if (addons.length < 2) expect(said?.available).toBe(can);
    if (!can) {
      const refused = await cloud.request('POST', '/services', { name: 'cannot', ...body });
      expect(refused).toMatchObject({
        status: 422,
        body: { code: 'UNAVAILABLE_HERE', message: expect.stringContaining('apt-get install') },
      });
      const packages = { 'time-series': 'postgresql-17-timescaledb', ai: 'postgresql-17-pgvector' };
      for (const addon of addons) expect(JSON.stringify(refused.body)).toContain(packages[addon]);
      return;
    }
    const made = await cloud.create({ name: 'can', ...body });
    expect(made.service_type).toBe(type);
    const client = await connectTo(cloud, made, made.initial_password);
    const version = String(await value(client, 'show server_version'));
    expect(usable.map((installation) => installation.version)).toContain(version.split(' ')[0]);
    if (addons.length < 2) expect(said?.version).toBe(version.split(' ')[0]);
    const installed = (
      await rows(
        client,
        "select extname from pg_extension where extname in ('timescaledb', 'vector')",
      )
    ).map(({ extname }) => String(extname));
    expect(installed.toSorted()).toEqual(
      addons.map((addon) => EXTENSION_OF_ADDON[addon]).toSorted(),
    );
    for (const addon of addons) {
      const results: unknown = await client.query(PROOF[addon]);
      const last: unknown = Array.isArray(results) ? results.at(-1) : results;
      expect(
        Number(Object.values(Object(Reflect.get(Object(last), 'rows')[0]))[0]),
      ).toBeGreaterThanOrEqual(2);
    }
    // TimescaleDB runs a job as its owner: nobody may write into its catalog, or a job of theirs would run as our superuser.
    if (addons.includes('time-series'))
      await expect(
        client.query("update _timescaledb_config.bgw_job set owner = 'howdah'"),
      ).rejects.toMatchObject({ code: '42501' });
    await client.end();
    expect((await cloud.request('DELETE', `/services/${made.service_id}`)).status).toBe(202);
  },
);
