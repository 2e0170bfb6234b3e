/** Services on two major versions: one from npm in `data/postgres`, beside those of the machine. */
import { existsSync } from 'node:fs';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
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
  verificationOf,
  withClient,
  type ServiceAccess,
} from './service-access.ts';
import { untilExpected } from './until.ts';

const MAJOR = OLDER_MAJOR;

let cloud: Installation;
let installed: string;
beforeAll(async () => {
  const home = await makeHome();
  installed = join(home, 'data', 'postgres', 'older');
  await mkdir(join(home, 'data', 'postgres'), { recursive: true });
  await putPostgresql(OLDER_PACKAGE, installed);
  cloud = await install({ HOWDAH_HOME: home, HOWDAH_SPARES: '1', ...hurried() });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const create = (name: string, more: object = {}): Promise<ServiceAccess & Service> =>
  cloud.create({ name, service_type: 'POSTGRES', ...more });

const call = (service: ServiceAccess, path: string, body?: object) =>
  cloud.request('POST', `/services/${service.service_id}/${path}`, body);

/** Makes a change, and waits until the service accepts connections again. */
async function change(service: ServiceAccess, path: string, body?: object): Promise<void> {
  expect(await call(service, path, body)).toMatchObject({ status: 202 });
  await cloud.until(service.service_id, path === 'stop' ? 'PAUSED' : 'READY');
}

/** The major version of a server, as it says itself. */
async function majorOf(service: ServiceAccess): Promise<string | undefined> {
  return withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ server_version: string }>('show server_version');
    return rows[0]?.server_version.split('.')[0];
  });
}

/** The version of a create that asks for none. */
async function defaultMajor(): Promise<string> {
  const { data: regions } = await cloud.client.GET('/projects/{project_id}/regions', {
    params: { path: { project_id: cloud.projectId } },
  });
  const offer = regions?.[0]?.service_types.find(({ service_type }) => service_type === 'POSTGRES');
  return offer?.version?.split('.')[0] ?? '';
}

/** Forks a service into a newer version; null: it is refused, since npm's has no pg_dump. */
async function askedFork(parent: ServiceAccess, to: string): Promise<ServiceAccess | null> {
  const asked = { fork_strategy: 'NOW', pg_version: to };
  const answer = await call(parent, 'forkService', asked);
  if (existsSync(`/usr/lib/postgresql/${to}/bin/pg_dump`)) return accessOf(answer.body);
  expect(answer).toMatchObject({
    status: 422,
    body: { message: expect.stringContaining('pg_dump and pg_restore of PostgreSQL') },
  });
  return null;
}

async function forked(parent: ServiceAccess, body: object): Promise<ServiceAccess> {
  const fork = accessOf((await call(parent, 'forkService', body)).body);
  await cloud.until(fork.service_id, 'READY');
  return fork;
}

test(
  'a service has the version that was asked for, as have its forks and replicas',
  { tags: 'slow' },
  async () => {
    const { data: regions } = await cloud.client.GET('/projects/{project_id}/regions', {
      params: { path: { project_id: cloud.projectId } },
    });
    const offer = regions?.[0]?.service_types.find(
      ({ service_type }) => service_type === 'POSTGRES',
    );
    const byDefault = offer?.version?.split('.')[0];
    expect(byDefault).not.toBe(MAJOR);
    expect(offer?.versions.map(({ pg_version: major }) => major)).toEqual(
      expect.arrayContaining([byDefault, MAJOR]),
    );

    const usual = await create('usual');
    expect(usual.pg_version).toBe(byDefault);
    expect(await majorOf(usual)).toBe(byDefault);
    const service = await create('older', { pg_version: MAJOR });
    expect(service.pg_version).toBe(MAJOR);
    expect(await majorOf(service)).toBe(MAJOR);

    await insert(cloud, service, 'kept');
    const then = await moment(cloud, service);
    await insert(cloud, service, 'later');
    const now = await forked(service, { fork_strategy: 'NOW', pg_version: MAJOR });
    const past = await forked(service, { fork_strategy: 'PITR', target_time: then });
    expect([await majorOf(now), await majorOf(past)]).toEqual([MAJOR, MAJOR]);
    expect(await namesIn(cloud, past)).toEqual(['kept']);
    expect((await cloud.get(past.service_id)).pg_version).toBe(MAJOR);

    if ((await findProgram('haproxy')) !== null) {
      await change(service, 'setHA', { replica_count: 1, sync_replica_count: 1 });
      await change(service, 'switchover');
      const set = { name: 'reads', cpu_millis: 250, memory_gbs: 1, nodes: 1 };
      const made = Object((await call(service, 'replicaSets', set)).body);
      await cloud.until(made.id, 'READY');
      const reader = { ...made, initial_password: service.initial_password };
      expect(await majorOf(reader)).toBe(MAJOR);
      expect(await cloud.get(made.id)).toMatchObject({ pg_version: MAJOR });
    }
    await change(service, 'resize', { cpu_millis: 1000 });
    expect(await majorOf(service)).toBe(MAJOR);
    await change(service, 'stop');
    await change(service, 'start');
    expect(await majorOf(service)).toBe(MAJOR);
    expect(await namesIn(cloud, service)).toEqual(['kept', 'later']);
    expect(await verificationOf(cloud, now)).toMatchObject({ status: 'succeeded' });
  },
);

test('a version that cannot be had is refused with the reason', async () => {
  const ask = (pg_version: unknown, more: object = {}) =>
    cloud.request('POST', '/services', {
      name: 'cannot',
      service_type: 'POSTGRES',
      pg_version,
      ...more,
    });
  const missing = { code: 'UNAVAILABLE_HERE', message: expect.stringContaining('postgresql-99') };
  expect(await ask('99')).toMatchObject({ status: 422, body: missing });
  const vector = expect.stringContaining(`vector for PostgreSQL ${MAJOR} is needed`);
  expect(await ask(MAJOR, { service_type: 'VECTOR' })).toMatchObject({
    status: 422,
    body: { message: vector },
  });
  for (const wrong of ['15', '16.4', '', 17, 'newest', null])
    expect(await ask(wrong)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining('pg_version') },
    });
  const usual = await create('parent');
  expect(
    await call(usual, 'forkService', { fork_strategy: 'NOW', pg_version: MAJOR }),
  ).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('a fork has the version of its parent') },
  });
});

/** A function that makes a role with the name of who runs it, and definitions that run it. */
const HOSTILE = `
  create function report(value text) returns boolean language plpgsql as $$ begin
    if not exists (select from pg_roles where rolname = 'ran_as_' || current_user) then
      execute format('create role %I', 'ran_as_' || current_user);
    end if;
    return true;
  end $$;
  create domain watched as text check (public.report(value));
  create function add(watched, text) returns watched language sql as 'select $1';
  create aggregate gathered(text) (sfunc = add, stype = watched, initcond = 'none');
  create table parted (key watched) partition by list (key);
  create table part partition of parted for values in ('a');
  create function report_of(number int) returns int immutable language plpgsql
    as 'begin perform public.report(number::text); return number; end';
  create table folded (i int) partition by range ((i + report_of(1)));
  create table measured (i int check (i < 1000000));
  create index on measured ((i + report_of(2))) where report_of(3) > i;
  create function checked(measured) returns boolean immutable language sql
    as 'select public.report_of(4) > 0';
  alter table measured add constraint apart check (checked(measured.*) and report_of(5) > 0);
  insert into measured select generate_series(1, 3);
  create materialized view seen as select report_of(i) from measured;
  alter database tsdb set search_path = public, pg_catalog;
  alter database tsdb set default_transaction_read_only = on`;

/** Belongings of a tenant beside tables: roles with passwords, owners, settings. */
const BELONGINGS = `
  create role team;
  create role app login password 'of-the-application' in role team connection limit 7;
  alter role app set statement_timeout = '61s';
  grant create on schema public to app;
  create schema "of ""the"" team" authorization team;
  create table notes (id int generated always as identity primary key, note text);
  alter table notes owner to app;
  insert into notes (note) select 'note ' || i from generate_series(1, 1000) i;
  grant select on notes to team;
  create table "of ""the"" team".t (i int references notes);
  alter table "of ""the"" team".t owner to team;
  alter table notes enable row level security;
  create policy own on notes to team using (id < 500);
  alter default privileges for role app in schema public grant select on tables to team;
  create extension hstore;
  create table kept (name hstore);
  insert into kept values ('a=>1');
  select lo_create(4711);
  grant connect on database tsdb to team`;

const FACTS = `select json_build_object(
  'notes', (select count(*) from notes),
  'owner', (select relowner::regrole from pg_class where oid = 'notes'::regclass),
  'next', nextval('notes_id_seq'),
  'team', (select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'of "the" team'),
  'policies', (select count(*) from pg_policies where roles = '{team}'),
  'rights', has_table_privilege('team', 'notes', 'select'),
  'member', pg_has_role('app', 'team', 'usage'),
  'mine', (select array_agg(format('%s %s %s %s', grantor::regrole, admin_option, inherit_option,
             set_option) order by grantor::regrole::text) from pg_auth_members
           where roleid = 'app'::regrole and member = 'tsdbadmin'::regrole),
  'limit', (select rolconnlimit from pg_roles where rolname = 'app'),
  'settings', (select json_agg(setconfig order by setconfig) from pg_db_role_setting
               where setrole in (0, 'tsdbadmin'::regrole, 'app'::regrole)),
  'large', (select count(*) from pg_largeobject_metadata),
  'other', (select count(*) from pg_database where datname = 'other "one" = x'),
  'rows', (select count(*) from seen),
  'default', (select count(*) from pg_default_acl),
  'hstore', (select name -> 'a' from kept)
) as facts`;

const factsOf = (service: ServiceAccess) =>
  withClient(cloud, service, async (client) => {
    await client.query('begin read write');
    const { rows } = await client.query<{ facts: object }>(FACTS);
    await client.query('rollback');
    return rows[0]?.facts;
  });

test('a fork of a newer version has all that its parent has', async () => {
  const parent = await create('to-upgrade', { pg_version: MAJOR });
  await withClient(cloud, parent, async (client) => {
    await client.query(BELONGINGS);
    await client.query('create database "other ""one"" = x"');
    await client.query(HOSTILE);
    // Until now it ran by the tenant's own statements.
    await client.query('set default_transaction_read_only = off; drop role ran_as_tsdbadmin');
  });
  const to = await defaultMajor();
  const fork = await askedFork(parent, to);
  if (fork === null) return;
  await cloud.until(fork.service_id, 'READY');
  expect(await majorOf(fork)).toBe(to);
  const facts = await factsOf(parent);
  expect(facts).toMatchObject({ notes: 1000, owner: 'app', rights: true, limit: 7, hstore: '1' });
  expect(await factsOf(fork)).toEqual(facts);
  const ran = await withClient(cloud, fork, (client) =>
    client.query("select rolname from pg_roles where rolname like 'ran\\_as\\_%'"),
  );
  expect(ran.rows).toEqual([{ rolname: 'ran_as_tsdbadmin' }]);
  const app = await connectTo(cloud, fork, 'of-the-application', { user: 'app' });
  expect((await app.query('show statement_timeout')).rows).toEqual([{ statement_timeout: '61s' }]);
  await app.end();
  expect(await majorOf(parent)).toBe(MAJOR);
});

test('a fork whose parent cannot be restored in the newer version says why', async () => {
  const parent = await create('cannot-upgrade', { pg_version: MAJOR });
  await withClient(cloud, parent, (client) =>
    // The function raises an error where it is restored: there is no such table yet.
    client.query(`
      create table needed (i int);
      create function find(value text) returns boolean language plpgsql
        as 'begin perform from public.needed; return true; end';
      create domain found as text check (public.find(value));
      create function add(found, text) returns found language sql as 'select $1';
      create aggregate gathered(text) (sfunc = add, stype = found, initcond = 'x')`),
  );
  const fork = await askedFork(parent, await defaultMajor());
  if (fork === null) return;
  await cloud.until(fork.service_id, 'UNSTABLE');
  const [operation] = await cloud.operations(fork.service_id);
  expect(operation?.error).toContain('relation "public.needed" does not exist');
  expect(operation?.error).not.toContain(cloud.home);
  await cloud.request('DELETE', `/services/${fork.service_id}`);
});

test('an import into an older version is refused', async () => {
  const [newer, older] = [await create('newer'), await create('target', { pg_version: MAJOR })];
  // No dump is made: a program that only says its version is enough.
  const programs = join(cloud.home, 'programs');
  await mkdir(programs);
  await writeFile(join(programs, 'pg_dump'), '#!/bin/sh\necho pg_dump 99.0\n', { mode: 0o755 });
  const { host, port } = newer.endpoint;
  const url = `postgres://tsdbadmin:${newer.initial_password}@${host}:${port}/tsdb?sslmode=require`;
  const { PATH = '' } = cloud.env;
  Object.assign(cloud.env, {
    PATH: `${programs}:${PATH}`,
    PGPASSWORD: older.initial_password,
  });
  const refused = await cloud.cli('import', url, '--into', older.service_id);
  cloud.env['PATH'] = PATH;
  delete cloud.env['PGPASSWORD'];
  expect(refused.code, refused.stderr).toBe(5);
  expect(refused.stderr).toContain(
    `the source runs PostgreSQL ${await majorOf(newer)}, the service ${MAJOR}: a service needs`,
  );
});

test('a service whose PostgreSQL was removed runs on, and says what brings it back', async () => {
  const running = await create('running', { pg_version: MAJOR });
  const paused = await create('paused', { pg_version: MAJOR });
  await insert(cloud, paused, 'kept');
  await change(paused, 'stop');
  await rename(installed, join(cloud.home, 'elsewhere'));

  const missing = expect.stringContaining(`apt-get install postgresql-${MAJOR}`);
  await untilExpected('the service warns of its missing PostgreSQL', async () =>
    expect((await cloud.get(running.service_id)).warnings).toContainEqual({
      code: 'NOT_INSTALLED',
      message: missing,
    }),
  );
  expect(await namesIn(cloud, running)).toEqual([]);
  expect(await call(paused, 'start')).toMatchObject({ status: 202 });
  expect(await call(running, 'resize', { cpu_millis: 1000 })).toMatchObject({ status: 202 });
  for (const { service_id: id } of [paused, running]) {
    await cloud.until(id, 'UNSTABLE');
    const [operation] = await cloud.operations(id);
    expect(operation?.error).toContain(`PostgreSQL ${MAJOR} is needed; found`);
    expect(operation?.error).toContain(`apt-get install postgresql-${MAJOR}`);
  }
  // The server was not stopped for a size that it could not have started with.
  expect(await majorOf(running)).toBe(MAJOR);

  await cloud.stop('SIGTERM');
  await rename(join(cloud.home, 'elsewhere'), installed);
  await cloud.up();
  for (const { service_id: id } of [paused, running]) await cloud.until(id, 'READY');
  expect(await namesIn(cloud, paused)).toEqual(['kept']);
});
