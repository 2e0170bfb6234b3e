/** Dumps of a service as its owner, restored into another; and databases of the owner's own. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import { admin, cloud, rows, service, setUp, tearDown, twin, value } from './database-cloud.ts';
import { createLayout, prepareMachine, withSuperuserSession } from './probe.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

/** pg_dump is not in npm's PostgreSQL, and an older one than the server refuses. */
const programOf = async (name: string): Promise<string> => {
  const number = Number(await value(admin, "select current_setting('server_version_num')"));
  return `/usr/lib/postgresql/${Math.floor(number / 10_000)}/bin/${name}`;
};

const run = async (name: string, on: typeof service, args: string[]) =>
  promisify(execFile)(await programOf(name), args, {
    env: {
      PGHOST: on.endpoint.host,
      PGPORT: String(on.endpoint.port),
      PGUSER: 'tsdbadmin',
      PGPASSWORD: on.initial_password,
      PGSSLMODE: 'require',
    },
  });

test('a dump holds nothing of ours, and restores without a message', async () => {
  await admin.query(`
    create schema sales;
    create table sales.orders (id serial primary key, note text default 'none');
    comment on schema public is 'of the owner';
    insert into sales.orders (note) select 'order ' || i from generate_series(1, 100) i;
    create view public.notes as select note from sales.orders;
    create function public.f() returns int language plpgsql as 'begin return 1; end'`);
  // Tools that compare a schema with the desired one see what the owner made, and nothing else.
  expect(
    await rows(admin, "select relname from pg_class where relnamespace = 'public'::regnamespace"),
  ).toEqual([{ relname: 'notes' }]);
  expect(
    await rows(
      admin,
      `select extname, extowner::regrole::text as owner, extnamespace::regnamespace::text as schema
       from pg_extension where extname = 'pg_stat_statements'`,
    ),
  ).toEqual([{ extname: 'pg_stat_statements', owner: 'tsdbadmin', schema: 'pg_catalog' }]);
  if (!existsSync(await programOf('pg_dump'))) return;
  const directory = await mkdtemp(join(tmpdir(), 'howdah-dump-'));
  const file = join(directory, 'dump');
  const dumped = await run('pg_dump', service, ['-Fc', '-f', file, 'tsdb']);
  expect(dumped.stderr).toBe('');
  const { stdout: script } = await run('pg_restore', twin, ['-f', '-', file]);
  expect(script).toContain('CREATE TABLE sales.orders');
  expect(script).not.toMatch(/howdah|timescale_functions|EVENT TRIGGER|^(GRANT|REVOKE)/m);
  const restored = await run('pg_restore', twin, ['--exit-on-error', '-d', 'tsdb', file]);
  expect(restored.stderr).toBe('');
  await rm(directory, { recursive: true });
  const other = await connectTo(cloud, twin, twin.initial_password);
  expect(await rows(other, 'select count(*)::int as n from notes')).toEqual([{ n: 100 }]);
  await other.end();
});

test('the owner grants the roles of tools for monitoring, not of superusers', async () => {
  await admin.query('create role monitor');
  for (const role of ['pg_monitor', 'pg_signal_backend', 'pg_checkpoint', 'pg_read_all_data'])
    await admin.query(`grant ${role} to monitor`);
  await admin.query('checkpoint');
  for (const role of ['pg_maintain', 'pg_create_subscription', 'pg_execute_server_program'])
    await expect(admin.query(`grant ${role} to monitor`), role).rejects.toThrow();
  await admin.query('drop role monitor');
});

test('the owner can create a database, work in it, and drop it', async () => {
  await admin.query('create database shadow');
  const shadow = await connectTo(cloud, service, service.initial_password, { database: 'shadow' });
  await shadow.query('create table t (i int); insert into t values (1)');
  expect(await rows(shadow, 'select i from t')).toEqual([{ i: 1 }]);
  // As in tsdb, functions that write in a transaction that only reads are not for everybody.
  await admin.query('create role other');
  expect(
    await rows(
      shadow,
      `select distinct has_function_privilege('other', oid, 'execute') as may
       from pg_proc where proname in ('pg_logical_emit_message', 'pg_export_snapshot')`,
    ),
  ).toEqual([{ may: false }]);
  await admin.query('drop role other');
  // As tools for migrations do, in a database of their own and after a reset of the schema.
  const { body } = await cloud.request('GET', `/services/${service.service_id}/extensions`);
  const extensions: unknown[] = Array.isArray(body) ? body : [];
  const found = extensions.find((one) => Object(one).name === 'pg_stat_statements');
  const may = Object(found).statement !== undefined;
  expect(may).toBe((await prepareMachine(cloud.home)).sandbox.way === 'mounts');
  for (const statement of ['', 'drop schema public cascade; create schema public']) {
    await shadow.query(statement);
    const created = shadow.query('create extension pg_stat_statements schema public');
    if (may) await created;
    else await expect(created).rejects.toThrow('permission denied');
  }
  await shadow.end();
  await admin.query('drop database shadow');
});

test('a server of an older release gets its rights and its guard while it runs', async () => {
  const triggers = "select count(*)::int as n from pg_event_trigger where evtevent = 'login'";
  const before = await rows(admin, triggers);
  await cloud.stop('SIGKILL');
  const layout = createLayout(await realpath(join(cloud.home, 'data')));
  const at = (database: string, statement: string) =>
    withSuperuserSession(
      {
        server: layout.service(service.service_id),
        port: service.endpoint.port,
        name: 'test',
        database,
      },
      async (client) => void (await client.query(statement)),
    );
  await at(
    'tsdb',
    `do $$ declare member regprocedure; begin
       for member in
         select oid from pg_proc where pronamespace = 'timescale_functions'::regnamespace
       loop
         execute 'alter extension plpgsql drop function ' || member;
       end loop;
       alter extension plpgsql drop schema timescale_functions;
       drop schema timescale_functions cascade;
       if exists (select from pg_event_trigger where evtname = 'howdah_read_only') then
         alter extension plpgsql drop event trigger howdah_read_only;
         drop event trigger howdah_read_only;
       end if;
     end $$`,
  );
  await at('postgres', 'alter role tsdbadmin nocreatedb; revoke pg_signal_backend from tsdbadmin');
  await cloud.up();
  const again = async () => {
    const client = await connectTo(cloud, service, service.initial_password);
    const seen = {
      rights: await rows(
        client,
        `select rolcreatedb, pg_has_role('pg_signal_backend', 'member with admin option') as signals
         from pg_roles where rolname = current_user`,
      ),
      guard: await rows(client, triggers),
      functions: await rows(
        client,
        "select to_regnamespace('timescale_functions') is null as gone",
      ),
    };
    await client.end();
    return seen;
  };
  await untilExpected('all is as it was before the restore', async () =>
    expect(await again()).toEqual({
      rights: [{ rolcreatedb: true, signals: true }],
      guard: before,
      functions: [{ gone: false }],
    }),
  );
});
