import { expect, test } from 'vitest';
import { judge, judgeCommand } from './rules.ts';
import { partsOf } from './scan.ts';

async function verdictOf(statement: string) {
  for await (const part of partsOf(
    (async function* () {
      yield statement;
    })(),
  ))
    if (part.kind === 'statement') return judge(part.outline, part.text);
  throw new Error('no statement');
}

test.each([
  ['owner', 'ALTER FUNCTION public.f(a integer) OWNER TO postgres;'],
  ['owner', 'ALTER SCHEMA public OWNER TO postgres;'],
  ['owner', "SET SESSION AUTHORIZATION 'app';"],
  [
    'owner',
    'ALTER DEFAULT PRIVILEGES FOR ROLE supabase_admin IN SCHEMA auth GRANT ALL ON TABLES TO anon;',
  ],
  ['database', 'DROP DATABASE IF EXISTS music;'],
  ['database', "CREATE DATABASE shop WITH TEMPLATE = template0 ENCODING = 'UTF8';"],
  ['database', "ALTER DATABASE shop SET search_path TO 'a';"],
  ['database', 'GRANT CONNECT ON DATABASE shop TO app;'],
  ['role', "ALTER ROLE app WITH SUPERUSER LOGIN PASSWORD 'md5abc';"],
  ['role', 'GRANT readers TO app GRANTED BY postgres;'],
  ['schema', 'CREATE SCHEMA public;'],
  ['schema', 'DROP SCHEMA IF EXISTS public;'],
  ['extension', "COMMENT ON EXTENSION plpgsql IS 'x';"],
  ['extension', 'CREATE EXTENSION IF NOT EXISTS plpgsql WITH SCHEMA pg_catalog;'],
  ['extension', 'CREATE OR REPLACE PROCEDURAL LANGUAGE plpgsql;'],
  ['eventTrigger', 'CREATE EVENT TRIGGER pgrst_ddl_watch ON ddl_command_end EXECUTE FUNCTION f();'],
  ['foreign', 'CREATE USER MAPPING FOR app SERVER other;'],
  ['replication', 'CREATE PUBLICATION supabase_realtime FOR ALL TABLES;'],
  ['transaction', 'BEGIN;'],
  ['transaction', 'START TRANSACTION;'],
  ['maintenance', 'VACUUM ANALYZE;'],
  ['setting', "SET session_replication_role = 'replica';"],
  ['tablespace', 'SET default_tablespace = fast;'],
] as const)('%s: left out: %s', async (group, statement) => {
  expect(await verdictOf(statement)).toEqual({ kind: 'leave out', group });
});

test.each([
  ["CREATE FUNCTION public.add(a int) RETURNS int LANGUAGE c AS '$libdir/x', 'add';", 'language c'],
  ["CREATE FUNCTION f() RETURNS int LANGUAGE 'plpython3u' AS 'return 1';", 'language plpython3u'],
  ["CREATE FUNCTION f() RETURNS int LANGUAGE sql LEAKPROOF AS 'select 1';", 'LEAKPROOF'],
  ['CREATE TYPE public.box3 (INPUT = a, OUTPUT = b);', 'base type'],
  ['CREATE TYPE public.box3;', 'base type'],
  ['CREATE OPERATOR CLASS o DEFAULT FOR TYPE t USING btree AS OPERATOR 1 <;', 'operator class'],
  ['CREATE AGGREGATE a(int) (SFUNC = f, STYPE = internal);', 'internal'],
  ['CREATE CAST (character varying AS integer) WITH INOUT AS IMPLICIT;', 'the cast from'],
  ['CREATE FOREIGN TABLE t (a int) SERVER s;', 'foreign table'],
  ["COPY t FROM '/tmp/rows';", 'a file of the server'],
  ['COPY _timescaledb_catalog.hypertable (id) FROM stdin;', 'hypertables'],
  ['SET default_table_access_method = columnar;', 'access method'],
  ['ROLLBACK;', 'not committed'],
  ['CREATE TABLE `t` (a int);', 'MySQL'],
])('an obstacle: %s', async (statement, what) => {
  expect(await verdictOf(statement)).toMatchObject({
    kind: 'obstacle',
    what: expect.stringContaining(what),
    remedy: expect.stringMatching(/../),
  });
});

test.each([
  ['CREATE SCHEMA auth AUTHORIZATION supabase_admin;', 'CREATE SCHEMA auth;\n'],
  ['CREATE SCHEMA AUTHORIZATION app;', 'CREATE SCHEMA app;\n'],
  ['SET transaction_timeout = 0;', ''],
  ['CREATE INDEX CONCURRENTLY i ON t (a);', 'CREATE INDEX i ON t (a);'],
  ['ALTER TABLE t DISABLE TRIGGER ALL;', 'ALTER TABLE t DISABLE TRIGGER USER;'],
])('changed: %s', async (statement, text) => {
  expect(await verdictOf(statement)).toEqual({ kind: 'change', text });
});

test.each([
  'CREATE AGGREGATE public.join_texts(text) (SFUNC = public.join_two, STYPE = text);',
  'CREATE FUNCTION f(a numeric(4,2)) RETURNS text LANGUAGE plpgsql AS $$ begin set role x; end $$;',
  'CREATE TYPE public.mood AS ENUM (1);',
  'CREATE TYPE public.span AS RANGE (subtype = float8);',
  'CREATE CAST (public.mood AS text) WITH FUNCTION f(public.mood);',
  "CREATE TABLE t (a text DEFAULT 'OWNER TO x');",
  'CREATE TABLE public.p PARTITION OF t FOR VALUES FROM (1) TO (2);',
  "SELECT pg_catalog.set_config('search_path', '', false);",
  'SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE;',
  'COPY public.t (a) FROM stdin;',
  'ROLLBACK TO SAVEPOINT a;',
  "INSERT INTO t VALUES ('CREATE DATABASE x');",
  'ALTER TABLE ONLY public.t REPLICA IDENTITY FULL;',
])('kept: %s', async (statement) => {
  expect(await verdictOf(statement)).toEqual({ kind: 'keep' });
});

test('privileges and policies name their roles', async () => {
  expect(
    await verdictOf('GRANT SELECT ON TABLE public.t TO "Read Er",anon WITH GRANT OPTION;'),
  ).toEqual({
    kind: 'privilege',
    roles: ['Read Er', 'anon'],
  });
  expect(await verdictOf('REVOKE ALL ON SCHEMA public FROM PUBLIC;')).toEqual({
    kind: 'privilege',
    roles: [],
  });
  expect(
    await verdictOf("CREATE POLICY p ON public.t FOR SELECT TO authenticated USING ((a = 'x'));"),
  ).toEqual({ kind: 'policy', roles: ['authenticated'] });
  expect(await verdictOf('CREATE ROLE app;')).toEqual({ kind: 'role', name: 'app' });
  expect(await verdictOf('CREATE EXTENSION IF NOT EXISTS "uuid-ossp" WITH SCHEMA public;')).toEqual(
    {
      kind: 'extension',
      name: 'uuid-ossp',
    },
  );
});

test.each([
  ['\\c music;', 'music'],
  ['\\connect shop', 'shop'],
  [`\\connect -reuse-previous=on "dbname='a b'"`, 'a b'],
])('%s connects', (command, database) => {
  expect(judgeCommand(command)).toEqual({ kind: 'connect', database });
});

test('commands of psql that run programs or read files are in the way', () => {
  for (const command of [
    '\\! rm -rf /',
    '\\i more.sql',
    '\\copy t from x',
    '\\gexec',
    '\\set a b',
    '\\o |cat',
  ])
    expect(judgeCommand(command), command).toMatchObject({ kind: 'obstacle' });
  for (const command of ['\\echo hello', '\\timing on', '\\set ON_ERROR_STOP on'])
    expect(judgeCommand(command), command).toEqual({ kind: 'leave out', group: 'psql' });
});
