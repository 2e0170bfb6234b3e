/** Sizes, passwords, server logs, metrics and add-ons of a service, as its owner sees them. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { EXTENSION_OF_ADDON, SERVICE_SIZES, SERVICE_TYPES, type Addon } from '@howdah/contract';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import type { Service } from './harness-caller.ts';
import {
  admin,
  cloud,
  logs,
  pageOf,
  refusalOf,
  rows,
  service,
  twin,
  value,
  setUp,
  tearDown,
} from './database-cloud.ts';
import { configFiles, instancePaths, prepareMachine } from './probe.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

const run = promisify(execFile);

test('every service is a cluster of its own, with checksums', async () => {
  const other = await connectTo(cloud, twin, twin.initial_password);
  const identifier = async (client: Client) =>
    value(client, 'select system_identifier::text from pg_control_system()');
  const template = join(cloud.home, 'data', 'templates');
  // A template that is being made may be gone before it is read.
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

test("a size sets PostgreSQL's settings, and limits of the operating system", async () => {
  const other = await connectTo(cloud, twin, twin.initial_password);
  expect(await value(admin, 'show shared_buffers')).toBe('512MB');
  expect(await value(other, 'show shared_buffers')).toBe('1GB');
  expect(await value(other, 'show max_connections')).toBe('200');
  for (const client of [admin, other])
    expect(
      await rows(
        client,
        'select name from pg_settings where pending_restart ' +
          "or source not in ('default', 'override', 'configuration file', 'client', " +
          "'session', 'database', 'user', 'environment variable', 'command line')",
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
      expect(await contentOf(limits.root, twin.service_id, 'cpu.weight')).toBe('100');
      expect(await contentOf(limits.root, service.service_id, 'cpu.weight')).toBe('50');
      expect(await contentOf(limits.root, twin.service_id, 'memory.max')).toBe(
        String(4 * 1024 ** 3),
      );
      expect(await contentOf(limits.root, twin.service_id, 'cgroup.procs')).not.toBe('');
      if (limits.disk !== null)
        expect(await contentOf(limits.root, twin.service_id, 'io.max')).toMatch(/ wbps=\d+ /);
      break;
    case 'v1':
      expect(await contentOf(limits.cpu, twin.service_id, 'cpu.shares')).toBe('1024');
      expect(await contentOf(limits.cpu, service.service_id, 'cpu.shares')).toBe('512');
      expect(await contentOf(limits.memory, twin.service_id, 'memory.limit_in_bytes')).toBe(
        String(4 * 1024 ** 3),
      );
      expect(await contentOf(limits.memory, twin.service_id, 'cgroup.procs')).not.toBe('');
      if (limits.blkio === null) break;
      expect(
        await contentOf(limits.blkio.group, twin.service_id, 'blkio.throttle.write_bps_device'),
      ).toMatch(new RegExp(`^${limits.blkio.disk} \\d+$`));
      expect(await contentOf(limits.blkio.group, service.service_id, 'cgroup.procs')).not.toBe('');
      break;
    case 'none':
      expect(regions?.[0]?.limits_note).toContain('not enforced');
  }
});

test('PostgreSQL starts with the settings of every size', async () => {
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

test('a new password is valid at once, the old one refused, sessions stay', async () => {
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
      (
        await cloud.request('POST', `/services/${twin.service_id}/updatePassword`, {
          password,
          keep_sessions: true,
        })
      ).status,
    ).toBe(204);
    expect(await refusalOf({ ...target, password }), password).toBeNull();
    expect(await refusalOf({ ...target, password: old }), password).toMatch(/^28P01 /);
    old = password;
  }
  expect(await value(session, 'select pg_backend_pid()')).toBe(pid);
  await session.end();
});

test('libpq connects with passwords that its preparation (SASLprep) changes', async () => {
  const { installations } = await prepareMachine(cloud.home);
  const psql = await findPsql(installations.usable.map(({ bin }) => join(bin, 'psql')));
  // Machines without a client have the verifier's unit test.
  if (psql === null) return;
  const url =
    `host=127.0.0.1 port=${twin.endpoint.port} user=tsdbadmin dbname=tsdb sslmode=verify-full ` +
    `sslrootcert=${join(cloud.home, 'ca', 'ca.pem')}`;
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

test('a statement that fails is in the server log, and a search finds it', async () => {
  await expect(admin.query('select howdah_no_such_column')).rejects.toThrow();
  await expect(admin.query("select 'a parameter'::int")).rejects.toThrow();
  await expect(admin.query('select $1::int', ['howdah-secret-parameter'])).rejects.toThrow();
  await untilExpected('the server log has the failed statement', async () =>
    expect(await logs('search=HOWDAH_no_such_column&severities=ERROR')).toHaveLength(1),
  );
  const [entry] = await logs('search=howdah_no_such_column');
  expect(entry).toEqual({
    severity: 'ERROR',
    timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    message: expect.stringMatching(/does not exist\nSTATEMENT: select howdah_no_such_column/),
    origin: expect.objectContaining({ user_name: 'tsdbadmin', database_name: 'tsdb' }),
  });
  expect(await logs('search=howdah_no_such_column&severities=FATAL')).toEqual([]);
  expect(await logs('search=howdah_no_such_column&search=nowhere')).toEqual([]);
  expect(await logs(`search=howdah_no_such_column&since=${entry.timestamp}`)).toHaveLength(1);
  expect(await logs(`search=howdah_no_such_column&until=${entry.timestamp}`)).toHaveLength(0);
});

test('more than 500 log entries come page by page, each once, newest first', async () => {
  await admin.query(
    "do $$ begin for i in 1..1234 loop raise log 'numbered %.', i; end loop; end $$",
  );
  const found: string[] = [];
  await untilExpected('the server log has the last entry', async () =>
    expect(
      (await cloud.request('GET', `/services/${service.service_id}/logs?search=numbered 1234.`))
        .body,
    ).toMatchObject({ entries: [{ severity: 'LOG' }] }),
  );
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

test('metrics match what the service does', async () => {
  await untilExpected('the service has metrics', async () =>
    expect((await cloud.get(service.service_id)).metrics.memory_mb).not.toBeNull(),
  );
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
    await untilExpected(`the series ${name} has a point`, async () =>
      expect((await read(name)).filter((point) => point.value !== null).length).toBeGreaterThan(0),
    );
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

/** Statements by which an extension does its work: it is not enough that it is listed. */
const WORK_OF: Record<Addon, string> = {
  'time-series': `create table metrics (at timestamptz not null, v float);
    select create_hypertable('metrics', 'at');
    insert into metrics select now() - n * interval '1 day', n from generate_series(1, 30) n;
    select count(*)::int from show_chunks('metrics')`,
  ai: `create table items (e vector(3)); create index on items using hnsw (e vector_l2_ops);
    insert into items values ('[1,2,3]'), ('[4,5,6]'); select count(*)::int
      from (select * from items order by e <-> '[1,2,3]' limit 2) as nearest`,
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
  '%s: is created where it is available, and refused with the package where it is not',
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
      const results: unknown = await client.query(WORK_OF[addon]);
      const last: unknown = Array.isArray(results) ? results.at(-1) : results;
      expect(
        Number(Object.values(Object(Reflect.get(Object(last), 'rows')[0]))[0]),
      ).toBeGreaterThanOrEqual(2);
    }
    // TimescaleDB runs a job as its owner: nobody may write into its catalog, or a job of theirs
    // would run as our superuser.
    if (addons.includes('time-series'))
      await expect(
        client.query("update _timescaledb_config.bgw_job set owner = 'howdah'"),
      ).rejects.toMatchObject({ code: '42501' });
    await client.end();
    expect((await cloud.request('DELETE', `/services/${made.service_id}`)).status).toBe(202);
  },
);
