/** Leases that are databases in a server which they share: what they have, and their end. */
import type { Schemas } from '@howdah/client';
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { claimDueDatabase } from './probe.ts';
import { share } from './shared.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
beforeAll(async () => {
  cloud = await share();
  metadata = await openMetadata(cloud.home);
});
afterEach(() => cloud.tidy());
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

type Lease = Schemas['Lease'];

/** Takes leases of a service that has all that these statements make. */
async function take(count: number, statements: readonly string[]): Promise<Lease[]> {
  const made = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
  const admin = await connectTo(cloud, made, made.initial_password);
  for (const statement of statements) await admin.query(statement);
  await admin.end();
  const { data } = await cloud.client.POST('/projects/{project_id}/leases', {
    params: { path: { project_id: cloud.projectId } },
    body: { from: made.service_id, count, reset: 'database', ttl_seconds: 3600 },
  });
  const leases = data?.leases ?? [];
  expect(leases.map(({ ready }) => ready)).toEqual(Array.from({ length: count }, () => true));
  return leases;
}

const sessionOf = ({ role: user, ...lease }: Lease, database = lease.database): Promise<Client> =>
  connectTo(cloud, lease, lease.initial_password ?? '', { user, database });

/** Runs statements, the last of which may return a value. */
async function runIn(lease: Lease, database: string, ...sql: string[]): Promise<unknown> {
  const client = await sessionOf(lease, database);
  try {
    let value: unknown;
    for (const text of sql) {
      const { rows } = await client.query<unknown[]>({ text, rowMode: 'array' });
      value = rows[0]?.[0];
    }
    return value;
  } finally {
    await client.end();
  }
}

const SEARCH_PATH = `app, "it's, ""quoted""\\", public`;

test('a database has the settings of its service, and reaches no other one', async () => {
  const [lease] = await take(1, [
    'create schema app',
    'create table app.items as select generate_series(1, 100) as id',
    `alter database tsdb set search_path = ${SEARCH_PATH}`,
    `alter role tsdbadmin set application_name = 'it''s "quoted"'`,
    "alter role tsdbadmin in database tsdb set work_mem = '7MB'",
    // A role of which a lease is no member.
    'create role app',
    'grant app to tsdbadmin with set true',
    'alter role tsdbadmin set role = app',
    'create database of_app owner app',
    'create role other',
    'grant other to tsdbadmin with set true',
    'set role app',
    'grant connect on database of_app to other with grant option',
    'set role other',
    'grant connect on database of_app to public',
  ]);
  if (lease === undefined) throw new Error('a lease was asked for');
  const shown = async (sql: string) => runIn(lease, lease.database, sql);
  expect(await shown('show search_path')).toBe(SEARCH_PATH);
  expect(await shown('show application_name')).toBe(`it's "quoted"`);
  expect(await shown('show work_mem')).toBe('7MB');
  expect(await shown('select current_user')).toBe(lease.role);
  expect(await shown('select count(*)::int from items')).toBe(100);
  await expect(runIn(lease, 'of_app', 'select 1')).rejects.toThrow('permission denied');
  // An end that was put off after the database was listed is not due.
  expect(await claimDueDatabase(metadata.db, lease.id)).toBeNull();
});

test('a lease cannot prevent its end, nor outlive it', async () => {
  const items = 'create table items as select generate_series(1, 100) as id';
  const leases = await take(5, [items]);
  const [template, privileges, granted, locker, kept] = leases;
  if (!template || !privileges || !granted || !locker || !kept)
    throw new Error('five leases were asked for');
  await runIn(template, template.database, `alter database ${template.database} is_template true`);
  const grant = 'alter default privileges grant select on tables to public';
  await runIn(privileges, 'postgres', grant);
  await runIn(kept, kept.database, `grant select on items to ${granted.role}`);
  // Sessions of a role, and of others that it lets change its database.
  const locks = await sessionOf(locker, 'postgres');
  await locks.query(`begin; alter role ${locker.role} password 'another'`);
  const giving = `grant connect on database ${locker.database} to ${kept.role} with grant option`;
  await runIn(locker, locker.database, giving);
  const others = await sessionOf(kept);
  await others.query(`begin; grant connect on database ${locker.database} to public`);

  const ended = [template, privileges, granted, locker];
  const { status } = await cloud.request('POST', '/leases/return', {
    lease_ids: ended.map(({ id }) => id),
  });
  expect(status).toBe(202);
  const roles = ended.map(({ role }) => `'${role}'`).join(', ');
  await untilExpected('their roles and databases are gone', async () => {
    const left = `select array(select rolname::text from pg_roles where rolname in (${roles})
      union all select datname::text from pg_database where datname in (${roles}))`;
    expect(await runIn(kept, kept.database, left)).toEqual([]);
  });
  for (const lease of ended)
    await expect(runIn(lease, 'postgres', 'select 1')).rejects.toThrow('authentication failed');
  await expect(locks.query('select 1')).rejects.toThrow();
  for (const client of [locks, others]) await client.end().catch(() => undefined);
  expect(await runIn(kept, kept.database, 'select count(*)::int from items')).toBe(100);
  await untilExpected('no row is left of them', async () => {
    const rows = await metadata.db.selectFrom('leased_databases').select('id').execute();
    expect(rows).toEqual([{ id: kept.id }]);
  });
});
