/**
 * Extensions that a service enables: with and without a restart, in copies and replicas, and in a
 * database full of traps.
 */
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sprungIn, TENANT_OPTIONS, TRAPS } from './hostile-sql.ts';
import { type Installation } from './harness.ts';
import { share } from './shared.ts';
import { findProgram } from './probe.ts';
import {
  accessOf,
  moment,
  verificationOf,
  withClient,
  type ServiceAccess,
} from './service-access.ts';
import { untilExpected } from './until.ts';

const haproxy = await findProgram('haproxy');

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

type Extension = { name: string; state: string; allowed: boolean; preload: boolean };

async function extensionsOf({ service_id: id }: ServiceAccess): Promise<Extension[]> {
  const { status, body } = await cloud.request('GET', `/services/${id}/extensions`);
  expect(status, JSON.stringify(body)).toBe(200);
  return Array.isArray(body) ? body : [];
}

const stateOf = async (service: ServiceAccess, name: string) =>
  (await extensionsOf(service)).find((one) => one.name === name)?.state;

/** Enables or disables an extension. @returns how it ended, with the names of its steps */
async function change(service: ServiceAccess, method: 'POST' | 'DELETE', name: string) {
  const path = `/services/${service.service_id}/extensions`;
  const answer =
    method === 'POST'
      ? await cloud.request('POST', path, { name })
      : await cloud.request('DELETE', `${path}/${name}`);
  expect(answer.status, JSON.stringify(answer.body)).toBe(202);
  const id = answer.headers.get('Operation-Id');
  if (id === null) return { status: 'nothing to do', error: '', steps: [] };
  const read = async () => Object((await cloud.request('GET', `/operations/${id}`)).body);
  await untilExpected(`the change of ${name} has ended`, async () =>
    expect((await read()).finished).not.toBe(null),
  );
  const { status, error, steps } = await read();
  const names: string[] = steps.map((step: { name: string }) => step.name);
  return { status: String(status), error: String(error ?? ''), steps: names };
}

const value = async (service: ServiceAccess, text: string): Promise<unknown> =>
  withClient(
    cloud,
    service,
    async (client) => Object.values(Object((await client.query(text)).rows[0]))[0],
  );

const LIBRARIES = "select current_setting('shared_preload_libraries')";

async function tenant(service: ServiceAccess): Promise<Client> {
  const client = new Client({
    ...service.endpoint,
    user: 'tsdbadmin',
    database: 'tsdb',
    password: service.initial_password,
    ssl: { rejectUnauthorized: false },
    options: TENANT_OPTIONS,
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/**
 * An extension whose script calls a function of its own with an argument for which another function
 * of that name is the better match: the known way to have a script run code of a tenant. It is
 * where npm's PostgreSQL looks for extensions.
 */
async function addCapturableExtension(): Promise<string | null> {
  const copies = join(cloud.home, 'data', 'postgres');
  const copy = (await readdir(copies)).find((name) => name.startsWith('npm-'));
  if (copy === undefined) return null;
  const share = join(copies, copy, 'share', 'postgresql', 'extension');
  await writeFile(
    join(share, 'hypopg.control'),
    "comment = 'a script that can be captured'\ndefault_version = '1'\nrelocatable = true\n",
  );
  await writeFile(
    join(share, 'hypopg--1.sql'),
    "create function capturable(numeric) returns boolean language sql as 'select true';\n" +
      'select capturable(1);\n',
  );
  return 'hypopg';
}

test(
  'no allowed extension springs a trap in a database that is full of them',
  { tags: 'slow' },
  async () => {
    const service = await cloud.create({ name: 'hostile', service_type: 'POSTGRES' });
    const client = await tenant(service);
    for (const statement of TRAPS) await client.query(statement);
    await client.query(
      `create function public.capturable(integer) returns boolean language plpgsql as $$
     begin return trap.spring('a better match'); end $$`,
    );
    // The names that extensions use, taken by the tenant before.
    await client.query('create schema postgis; create schema hypopg; create schema pgaudit');
    await client.query('alter database tsdb set search_path = trap, public, pg_catalog');
    await client.end();
    const capturable = await addCapturableExtension();
    const all = await extensionsOf(service);
    if (all.some(({ name }) => name === capturable))
      expect((await change(service, 'POST', 'hypopg')).status).toBe('succeeded');
    for (const { name, state } of all.filter(({ allowed }) => allowed)) {
      if (state === 'enabled' || name === 'hypopg') continue;
      const answer = await cloud.request('POST', `/services/${service.service_id}/extensions`, {
        name,
      });
      expect([202, 400, 422], `${name}: ${JSON.stringify(answer.body)}`).toContain(answer.status);
      await cloud.until(service.service_id, 'READY');
    }
    // And by SQL, in a schema of its own.
    const sql = await tenant(service);
    await sql.query('drop extension pg_stat_statements');
    await sql.query('create extension pg_stat_statements schema public').catch(() => undefined);
    await sql.end();
    expect(await sprungIn(cloud.home)).toEqual([]);
    // Those that are created belong to tsdbadmin, their objects do not.
    const owner = await tenant(service);
    const { rows } = await owner.query(OWNERS);
    await owner.end();
    expect(rows).toEqual([{ others: 0, functions: 0 }]);
  },
);

/** Extensions of others, and functions of extensions that tsdbadmin could replace. */
const OWNERS = `select
    (select count(*)::int from pg_extension
     where extowner <> 'tsdbadmin'::regrole and extname <> 'plpgsql') as others,
    (select count(*)::int from pg_depend d join pg_proc p on p.oid = d.objid
     where d.deptype = 'e' and d.classid = 'pg_proc'::regclass
       and p.proowner = 'tsdbadmin'::regrole) as functions`;

test('an extension that PostgreSQL refuses leaves nothing, and the service goes on', async () => {
  const service = await cloud.create({ name: 'taken', service_type: 'POSTGRES' });
  await withClient(cloud, service, (client) =>
    client.query("create function public.pgstattuple(text) returns int language sql as 'select 1'"),
  );
  const refused = await change(service, 'POST', 'pgstattuple');
  expect(refused).toMatchObject({ status: 'failed', steps: ['create extension'] });
  expect(refused.error).toMatch(/pgstattuple.*already exists/);
  await cloud.until(service.service_id, 'READY');
  expect(await stateOf(service, 'pgstattuple')).toBe('disabled');
  const schemas = "select count(*)::int from pg_namespace where nspname like 'howdah%'";
  expect(await value(service, schemas)).toBe(0);
  await withClient(cloud, service, (client) =>
    client.query('drop function public.pgstattuple(text)'),
  );
  expect((await change(service, 'POST', 'pgstattuple')).status).toBe('succeeded');
  expect(await value(service, schemas)).toBe(0);
  await withClient(cloud, service, async (client) => {
    await client.query('create table t as select generate_series(1, 100) n');
    expect(Object((await client.query("select * from pgstattuple('t')")).rows[0])).toMatchObject({
      tuple_count: '100',
    });
    await client.query('create view v as select * from pgstattuple($$t$$)');
  });
  const used = await change(service, 'DELETE', 'pgstattuple');
  expect(used).toMatchObject({ status: 'failed', steps: ['drop extension'] });
  expect(used.error).toMatch(/depends on/);
  // The owner may drop an extension, and nobody creates it again.
  await withClient(cloud, service, (client) =>
    client.query('drop view v; drop extension pgstattuple'),
  );
  expect(await stateOf(service, 'pgstattuple')).toBe('disabled');
  expect((await change(service, 'DELETE', 'pgstattuple')).status).toBe('nothing to do');
});

test('an extension with a library restarts the service, and its copies load it too', async () => {
  const service = await cloud.create({ name: 'preloaded', service_type: 'POSTGRES' });
  const dry = await cloud.request(
    'POST',
    `/services/${service.service_id}/extensions?dry_run=true`,
    {
      name: 'pg_prewarm',
    },
  );
  const enabled = await change(service, 'POST', 'pg_prewarm');
  expect(enabled).toMatchObject({ status: 'succeeded', error: '' });
  expect(enabled.steps).toEqual(
    expect.arrayContaining(['stop PostgreSQL', 'start PostgreSQL', 'create extension']),
  );
  expect(Object(dry.body).operation).toMatchObject({ steps: enabled.steps });
  expect(await value(service, LIBRARIES)).toContain('pg_prewarm');
  expect(await value(service, "select pg_prewarm('pg_class') > 0")).toBe(true);
  const target_time = await moment(cloud, service);
  await cloud.request('POST', `/services/${service.service_id}/stop`);
  await cloud.until(service.service_id, 'PAUSED');
  expect(await stateOf(service, 'pg_prewarm')).toBe('unknown');
  await cloud.request('POST', `/services/${service.service_id}/start`);
  await cloud.until(service.service_id, 'READY');
  expect(await value(service, LIBRARIES)).toContain('pg_prewarm');
  for (const body of [{ fork_strategy: 'NOW' }, { fork_strategy: 'PITR', target_time }]) {
    const path = `/services/${service.service_id}/forkService`;
    const fork = accessOf((await cloud.request('POST', path, body)).body);
    await cloud.until(fork.service_id, 'READY');
    expect(await value(fork, LIBRARIES)).toContain('pg_prewarm');
    expect(await stateOf(fork, 'pg_prewarm')).toBe('enabled');
  }
  expect(await verificationOf(cloud, service)).toEqual({ status: 'succeeded', error: undefined });
  const disabled = await change(service, 'DELETE', 'pg_prewarm');
  expect(disabled).toMatchObject({ status: 'succeeded', error: '' });
  expect(disabled.steps[0]).toBe('drop extension');
  expect(await value(service, LIBRARIES)).not.toContain('pg_prewarm');
});

test.skipIf(haproxy === null)(
  'replicas and nodes load a library before the primary does, with settings as large',
  { tags: 'slow' },
  async () => {
    const service = await cloud.create({
      name: 'replicated',
      service_type: 'POSTGRES',
      replica_count: 1,
    });
    const made = await cloud.request('POST', `/services/${service.service_id}/replicaSets`, {
      name: 'readers',
      nodes: 1,
      cpu_millis: 250,
      memory_gbs: 1,
    });
    const set = String(Object(made.body).id);
    await cloud.until(set, 'READY');
    const before = Number(await value(service, WORKERS));
    const enabled = await change(service, 'POST', 'pg_prewarm');
    expect(enabled, enabled.error).toMatchObject({ status: 'succeeded' });
    expect(enabled.steps).toContainEqual(expect.stringMatching(/^switch over to member/));
    expect(enabled.steps.at(-1)).toMatch(/^(create extension|start PostgreSQL|connect)/);
    expect(await value(service, LIBRARIES)).toContain('pg_prewarm');
    expect(Number(await value(service, WORKERS))).toBe(before + 2);
    const node = async () =>
      (
        await cloud.request('POST', `/services/${set}/query`, {
          sql: `select concat_ws(' ', current_setting('pg_prewarm.autoprewarm', true), (${WORKERS}),
          pg_is_in_recovery())`,
        })
      ).body;
    await untilExpected('the node of the set has the library and the workers', async () =>
      expect(JSON.stringify(await node())).toMatch(new RegExp(`on ${before + 2} t`)),
    );
    // The former primary, which follows now, has it too.
    expect((await cloud.request('POST', `/services/${service.service_id}/switchover`)).status).toBe(
      202,
    );
    await cloud.until(service.service_id, 'READY');
    expect(await value(service, LIBRARIES)).toContain('pg_prewarm');
    expect(await stateOf(service, 'pg_prewarm')).toBe('enabled');
    await cloud.request('DELETE', `/services/${service.service_id}/replicaSets/${set}`);
  },
);
const WORKERS = "select current_setting('max_worker_processes')";

test('timescaledb works in a POSTGRES service, and vector in a TIMESCALEDB one', async () => {
  const plain = await cloud.create({ name: 'plain', service_type: 'POSTGRES' });
  const names = (await extensionsOf(plain)).map(({ name }) => name);
  if (!names.includes('timescaledb')) {
    const path = `/services/${plain.service_id}/extensions`;
    expect((await cloud.request('POST', path, { name: 'timescaledb' })).body).toMatchObject({
      code: 'UNAVAILABLE_HERE',
      message: expect.stringContaining('howdah extension install timescaledb'),
    });
    return;
  }
  const enabled = await change(plain, 'POST', 'timescaledb');
  expect(enabled, enabled.error).toMatchObject({ status: 'succeeded' });
  await withClient(cloud, plain, (client) =>
    client.query(
      `create table m (at timestamptz not null);
       select create_hypertable('m', 'at'); insert into m values (now())`,
    ),
  );
  const series = await cloud.create({ name: 'series', service_type: 'TIMESCALEDB' });
  expect(
    (await cloud.request('DELETE', `/services/${series.service_id}/extensions/timescaledb`)).status,
  ).toBe(400);
  if (names.includes('vector')) {
    expect((await change(series, 'POST', 'vector')).status).toBe('succeeded');
    expect(await value(series, "select '[1,2]'::vector <-> '[1,2]'")).toBe(0);
  }
});
