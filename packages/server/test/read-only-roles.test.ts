/** Roles that cannot write, made with the statements that `tiger db create role` sends. */
import { DatabaseError, type Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import { admin, cloud, rows, service, setUp, tearDown, value } from './database-cloud.ts';

/** Whether the module for read-only sessions is loaded; elsewhere such roles are refused. */
let enforced = false;

beforeAll(async () => {
  await setUp();
  enforced =
    (await value(admin, "select current_setting('tsdb_admin.read_only_connection', true)")) !==
    null;
  await admin.query('create table t (i int); insert into t values (1)');
});
afterAll(tearDown);

const PASSWORD = "it's a secret";

const open = (user: string, options?: string): Promise<Client> =>
  connectTo(cloud, service, PASSWORD, { user, ...(options === undefined ? {} : { options }) });

const codeOf = async (work: Promise<unknown>): Promise<string> => {
  const error: unknown = await work.then(
    () => null,
    (reason: unknown) => reason,
  );
  return error instanceof DatabaseError ? (error.code ?? '') : String(error);
};

/** Expects that a role can read, where that is enforced, and elsewhere not even connect. */
async function expectReader(user: string): Promise<void> {
  for (const options of ['-c tsdb_admin.read_only_role=false', '-c tsdb_admin.read_only_role=off'])
    expect(await codeOf(open(user, options)), options).toBe(enforced ? '55P02' : '0A000');
  if (!enforced) {
    expect(await codeOf(open(user))).toBe('0A000');
    return;
  }
  const client = await open(user);
  expect(await rows(client, 'select i from t')).toEqual([{ i: 1 }]);
  for (const statement of [
    'insert into t values (2)',
    `alter role ${user} reset all`,
    `alter role ${user} set tsdb_admin.read_only_role = false`,
    'set role tsdbadmin; insert into t values (2)',
    'begin read write; insert into t values (2)',
    'set tsdb_admin.read_only_role = false',
    'reset tsdb_admin.read_only_role; insert into t values (2)',
    'discard all',
    'create role evil',
  ]) {
    const code = await codeOf(client.query(statement));
    if (statement !== 'discard all') expect(code, statement).toMatch(/^(25006|55P02|42501)$/);
    await client.query('rollback');
  }
  expect(await codeOf(client.query('insert into t values (2)'))).toBe('25006');
  await client.end();
}

test('create role --read-only --from ROLE', async () => {
  await admin.query(`begin`);
  await admin.query(`CREATE ROLE "app" WITH LOGIN PASSWORD 'x'`);
  await admin.query('grant select, insert on t to app');
  await admin.query(`CREATE ROLE "reads" WITH LOGIN PASSWORD 'it''s a secret' IN ROLE "app"`);
  await admin.query('ALTER ROLE "reads" SET tsdb_admin.read_only_role = true');
  await admin.query('ALTER ROLE "reads" SET statement_timeout = 30000');
  await admin.query('commit');
  await expectReader('reads');
  // The owner of the role may undo it, for the next session.
  await admin.query('alter role reads set tsdb_admin.read_only_role = false');
  const client = await open('reads');
  await client.query('insert into t values (2)');
  await client.end();
  await admin.query('delete from t where i = 2; drop role reads; drop owned by app; drop role app');
});

test('create role --read-only --from tsdbadmin', async () => {
  await admin.query('begin');
  await admin.query('SELECT timescale_functions.create_bare_readonly_role($1, $2)', [
    'analyst',
    PASSWORD,
  ]);
  await admin.query('SELECT timescale_functions.grant_tsdbadmin_to_role($1)', ['analyst']);
  await admin.query('commit');
  expect(await value(admin, "select pg_has_role('analyst', 'tsdbadmin', 'set')")).toBe(true);
  await expectReader('analyst');
  await admin.query('select timescale_functions.revoke_tsdbadmin_from_role($1)', ['analyst']);
  expect(await value(admin, "select pg_has_role('analyst', 'tsdbadmin', 'member')")).toBe(false);
  await admin.query('select timescale_functions.delete_bare_readonly_role($1)', ['analyst']);
  expect(await rows(admin, "select from pg_roles where rolname = 'analyst'")).toEqual([]);
});

test('the functions serve tsdbadmin alone, and change none of our roles', async () => {
  await admin.query("create role other login password 'it''s a secret'");
  const other = await open('other');
  for (const call of [
    "create_bare_readonly_role('x', 'x')",
    "grant_tsdbadmin_to_role('other')",
    "revoke_tsdbadmin_from_role('other')",
    "delete_bare_readonly_role('other')",
  ])
    expect(await codeOf(other.query(`select timescale_functions.${call}`)), call).toBe('42501');
  await other.end();
  const refused: [call: string, code: string][] = [
    ["grant_tsdbadmin_to_role('howdah')", '42501'],
    ["grant_tsdbadmin_to_role('pg_write_server_files')", '42501'],
    ["grant_tsdbadmin_to_role('nobody')", '42704'],
    // A role that tsdbadmin administers cannot inherit it as well.
    ["grant_tsdbadmin_to_role('other')", '0LP01'],
    ["delete_bare_readonly_role('howdah')", '42501'],
    ["delete_bare_readonly_role('tsdbadmin')", '42501'],
    ["delete_bare_readonly_role('other')", '42809'],
    ["create_bare_readonly_role('howdah_x', 'x')", '42939'],
    ["create_bare_readonly_role('pg_x', 'x')", '42939'],
    ["create_bare_readonly_role('other', 'x')", '42710'],
    ["create_bare_readonly_role('x', '')", '22023'],
    ["create_bare_readonly_role('x', null)", '22023'],
  ];
  for (const [call, code] of refused)
    expect(await codeOf(admin.query(`select timescale_functions.${call}`)), call).toBe(code);
  for (const statement of [
    'drop schema timescale_functions cascade',
    'drop function timescale_functions.grant_tsdbadmin_to_role(text)',
    'alter function timescale_functions.grant_tsdbadmin_to_role(text) set search_path = public',
    'create function timescale_functions.f() returns int language sql as $$ select 1 $$',
    'alter role howdah_reader set tsdb_admin.read_only_role = true',
    'alter role howdah set tsdb_admin.read_only_role = true',
  ])
    expect(await codeOf(admin.query(statement)), statement).toMatch(/^(42501|42704)$/);
  await admin.query('drop role other');
});
