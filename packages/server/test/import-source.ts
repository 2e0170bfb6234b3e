/** A PostgreSQL server that is no service: the source of imports. Its programs are the system's. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { chmod, chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { claimPorts } from './harness.ts';
import { during, until } from './until.ts';

const PROGRAMS = ['initdb', 'postgres', 'pg_dump', 'pg_restore', 'psql'];
const PACKAGES = '/usr/lib/postgresql';

/** The newest installation of the system that has a server and its client programs. */
function findBin(): string | null {
  const versions = existsSync(PACKAGES) ? readdirSync(PACKAGES) : [];
  const bins = versions
    .toSorted((a, b) => Number(b) - Number(a))
    .map((version) => join(PACKAGES, version, 'bin'));
  return bins.find((bin) => PROGRAMS.every((name) => existsSync(join(bin, name)))) ?? null;
}

export const SOURCE_BIN = findBin();

/** The reason that is part of the title where the tests cannot run. */
export const WHY_NOT = 'skipped: this machine has no PostgreSQL of the system with pg_dump';

/** A password with what a URL has to escape. */
const PASSWORD = 'p@ss/w:rd #1';

export type Source = Awaited<ReturnType<typeof startSource>>;

/** Starts a server with the database `shop` of the role `app`, which is no superuser. */
export async function startSource() {
  const { bin, directory, data, user } = await initialise();
  const port = await claimPorts();
  let child: ChildProcess | null = null;

  const connect = async (who: string, database: string): Promise<Client> => {
    const client = new Client({ host: '127.0.0.1', port, user: who, password: PASSWORD, database });
    client.on('error', () => undefined);
    await client.connect();
    return client;
  };

  const start = async (): Promise<void> => {
    const settings = [
      'wal_level=logical',
      'fsync=off',
      'listen_addresses=127.0.0.1',
      'unix_socket_directories=',
    ];
    const started = spawn(
      join(bin, 'postgres'),
      ['-D', data, '-p', String(port), ...settings.flatMap((one) => ['-c', one])],
      { ...user, cwd: '/', stdio: 'ignore' },
    );
    child = started;
    await until('the source accepts connections or has ended', async () => {
      if (started.exitCode !== null) return true;
      await (await connect('root_of_source', 'postgres')).end();
      return true;
    });
    if (started.exitCode !== null) throw new Error(`the source ended with ${started.exitCode}`);
  };

  /** At once, as a crash; the next start recovers. */
  const stop = async (): Promise<void> => {
    if (child === null || child.exitCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGQUIT');
    await ended;
  };

  await start();
  const root = await connect('root_of_source', 'postgres');
  await root.query(`create role app login replication password '${PASSWORD}'`);
  await root.query('create database shop owner app');
  await root.end();
  return {
    bin,
    data,
    start,
    stop,
    connect: () => connect('app', 'shop'),
    asRoot: () => connect('root_of_source', 'shop'),
    url: `postgres://app:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}/shop`,
    password: PASSWORD,
    destroy: async (): Promise<void> => {
      await stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

async function initialise() {
  const bin = SOURCE_BIN ?? '';
  const directory = await mkdtemp(join(tmpdir(), 'hd-source-'));
  const user = await otherUser();
  await chmod(directory, 0o755);
  const passwordFile = join(directory, 'password');
  await writeFile(passwordFile, PASSWORD);
  if (user.uid !== undefined) {
    await chown(directory, user.uid, user.gid ?? user.uid);
    await chown(passwordFile, user.uid, user.gid ?? user.uid);
  }
  const data = join(directory, 'data');
  await promisify(execFile)(
    join(bin, 'initdb'),
    [
      '-D',
      data,
      '-U',
      'root_of_source',
      '-A',
      'scram-sha-256',
      '--pwfile',
      passwordFile,
      '-N',
      '-E',
      'UTF8',
      '--locale=C.UTF-8',
    ],
    { ...user, cwd: '/' },
  );
  return { bin, directory, data, user };
}

/** PostgreSQL refuses to run as root. */
async function otherUser(): Promise<{ uid?: number; gid?: number }> {
  if (process.getuid?.() !== 0) return {};
  const id = async (flag: string): Promise<number> =>
    Number((await promisify(execFile)('id', [flag, 'nobody'])).stdout);
  return { uid: await id('-u'), gid: await id('-g') };
}

/** A schema with everything that an import has to carry over. */
export const SHOP = `
  create role "Reader ""1""" nologin;
  create schema "Sales; drop";
  create domain "Sales; drop".amount as numeric(12, 2) check (value >= 0);
  create type mood as enum ('sad', 'ok', 'it''s fine');
  create table customers (
    id bigint generated always as identity primary key,
    "na""me
with a line" text not null, note text, mood mood default 'ok',
    total numeric generated always as (id * 2) stored, tags text[], data jsonb, raw bytea,
    at timestamptz default '2026-01-02 03:04:05.678+02', span interval, f float8);
  comment on table customers is 'people \u001b[31m who pay';
  create table "Sales; drop"."Order
Items" (id serial primary key, customer bigint not null references customers,
    price "Sales; drop".amount, at date not null);
  create table parted (k int, day date, v text, primary key (k, day)) partition by range (day);
  create table parted_old partition of parted for values from (minvalue) to ('2026-01-01');
  create table parted_new partition of parted for values from ('2026-01-01') to (maxvalue);
  create table no_columns ();
  create table child () inherits (customers);
  alter table child add primary key (id), alter id set default 1;
  create view "a view" as select id, mood from customers;
  create materialized view sums as select count(*) as n from customers;
  create unique index on sums (n);
  create function audit() returns trigger language plpgsql as $$
    begin insert into audits (what) values (tg_op); return new; end $$;
  create table audits (id int generated by default as identity primary key, what text);
  create trigger audited after insert or update on customers for each row execute function audit();
  create index on customers using gin (tags);
  grant select on customers to "Reader ""1""";
  insert into customers ("na""me
with a line", note, mood, tags, data, raw, span, f)
    select 'name ' || i,
      case when i % 7 = 0 then null else repeat(E'\\\\.\\n\\t\\\\N' || i, i % 5) end,
      (array['sad', 'ok', 'it''s fine'])[1 + i % 3]::mood, array['a', null, '{"b\\\\"}'],
      jsonb_build_object('i', i), decode(md5(i::text), 'hex'), i * interval '1 day 1 sec', i / 3.0
    from generate_series(1, 1000) i;
  insert into child ("na""me
with a line", id) values ('inherited', 5000);
  insert into "Sales; drop"."Order
Items" (customer, price, at) select i, i / 10.0, '2026-01-01'::date + i
    from generate_series(1, 500) i;
  insert into parted select i, '2025-12-01'::date + i, 'v' || i from generate_series(1, 60) i;
  refresh materialized view sums;
  create sequence spare_numbers increment 7 start 100;
  select nextval('spare_numbers'), nextval('spare_numbers');`;

/** Tables with each kind of replica identity and of change. */
export const BOOKS = `
  create table accounts (id int primary key, balance numeric not null, memo text);
  create table ledger (id bigint generated always as identity primary key,
    payer int not null references accounts, amount numeric not null);
  create table log (what text, at point);
  alter table log replica identity full;
  create table moved (k text primary key, n int);
  insert into accounts select i, 100, string_agg(md5((i * 1000 + j)::text), '')
    from generate_series(1, 20) i, generate_series(1, 300) j group by i;
  insert into moved values ('a', 1)`;

/** Objects of a superuser, and an aggregate that is none of those. */
export const OBSTACLES = `
  create function upper_of(text) returns text language internal as 'upper';
  create function at_most(int) returns int language sql leakproof as 'select $1';
  create function join_two(text, text) returns text language sql as 'select $1 || $2';
  create aggregate join_texts(text) (sfunc = join_two, stype = text);
  create table secrets (i int);
  alter table secrets enable row level security;
  grant select on secrets to app;
  create sequence numbers`;

/** A dump with the statements of pg_dumpall and of other clouds. */
export const ELSEWHERE = `-- PostgreSQL database cluster dump
\\restrict a1
DROP DATABASE IF EXISTS shop;
CREATE ROLE postgres;
ALTER ROLE postgres WITH SUPERUSER LOGIN PASSWORD 'md5a';
CREATE ROLE app;
ALTER ROLE app WITH LOGIN PASSWORD 'md5b';
CREATE DATABASE shop;
\\connect shop
SET transaction_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA public;
ALTER SCHEMA public OWNER TO postgres;
COMMENT ON EXTENSION plpgsql IS 'x';
CREATE TABLE public.t (a int, b text);
ALTER TABLE public.t OWNER TO postgres;
COPY public.t (a, b) FROM stdin;
1\t'; COMMIT;
2\t\\\\.
\\.
CREATE POLICY "own; rows" ON public.t FOR SELECT TO app USING ((a > 0));
CREATE PUBLICATION all_rows FOR ALL TABLES;
CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION public.f();
GRANT SELECT ON TABLE public.t TO app;
GRANT SELECT ON TABLE public.t TO postgres;
ALTER DEFAULT PRIVILEGES FOR ROLE postgres IN SCHEMA public GRANT ALL ON TABLES TO app;
SELECT pg_catalog.lo_create('16500');
BEGIN;
SELECT pg_catalog.lo_open('16500', 131072);
SELECT pg_catalog.lowrite(0, '\\x6162');
SELECT pg_catalog.lo_close(0);
COMMIT;
\\unrestrict a1
`;

/** Pays until it is stopped; each payment is one row of the ledger. */
export async function startWriter(source: Source) {
  const client = await source.connect();
  let [isWriting, written] = [true, 0];
  const pay = async (): Promise<void> => {
    const payer = 1 + (written % 20);
    await client.query(`begin;
      update accounts set balance = balance - 1 where id = ${payer};
      insert into ledger (payer, amount) values (${payer}, 1), (${payer}, 0);
      delete from ledger where amount = 0;
      insert into log values ('paid', '(1,2)'), (null, null);
      update log set what = 'old' where what = 'paid';
      delete from log where what is null;
      update moved set k = k || 'x', n = n + 1 where length(k) < 50;
      commit`);
    written++;
    // A follower reads the whole log for each change, and must be able to catch up.
    await client.query('select pg_sleep(0.01)');
  };
  const paying = during(() => isWriting, pay);
  const stop = async (): Promise<void> => {
    isWriting = false;
    await paying;
    await client.end();
  };
  return { written: () => written, stop };
}
