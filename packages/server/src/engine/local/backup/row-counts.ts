/**
 * Counts the rows of a restored copy. An owner of a database has no part in it: pgstattuple reads
 * the pages of a table by itself, so that no expression, policy or function of a tenant runs, and
 * the session that calls it is of the role that checks the tables.
 */
import type { Client } from 'pg';
import type { RestoreCertificate } from '@howdah/contract';
import { OPEN_DATABASES, SYSTEM_DATABASES } from '../../../domain/postgres/databases.ts';
import { MAINTENANCE_DATABASE } from '../../postgres/roles.ts';
import { withSessionAs, withSuperuserSession } from '../../postgres/sessions/superuser.ts';
import { READER_ROLE } from '../../statements/session.ts';
import type { InstancePaths } from '../host/layout.ts';
import { inCopy } from './copy.ts';

/** For all tables together, the smallest of each database first. */
const LIMIT_MS = 600_000;

type Contents = NonNullable<RestoreCertificate['contents']>;

/**
 * Counts the rows of all tables of users, as far as the time reaches.
 *
 * @returns a line for the user; contents: null if they could not be counted
 */
export async function countRows(
  copy: InstancePaths,
  signal: AbortSignal,
): Promise<{ contents: Contents | null; detail: string }> {
  const { rows: open } = await withSuperuserSession(inCopy(copy, MAINTENANCE_DATABASE), (client) =>
    client.query<{ name: string }>(OPEN_DATABASES),
  );
  const databases = open.map(({ name }) => name).filter((name) => !SYSTEM_DATABASES.includes(name));
  const untilMs = performance.now() + LIMIT_MS;
  const contents = { databases: databases.length, tables: 0, rows: 0, uncounted_tables: 0 };
  for (const database of databases) {
    const tables = await withSuperuserSession(inCopy(copy, database), tablesOf);
    if (tables === null)
      return {
        contents: null,
        detail:
          'not done: the extension pgstattuple is missing from this PostgreSQL; ' +
          'its contrib package brings it',
      };
    const { counted, rows } = await countIn(copy, database, tables, untilMs, signal);
    contents.tables += tables.length;
    contents.rows += rows;
    contents.uncounted_tables += tables.length - counted;
  }
  return { contents, detail: lineOf(contents) };
}

const lineOf = ({ databases, tables, rows, uncounted_tables: left }: Contents): string =>
  `${rows} rows in ${tables - left} tables of ${databases} databases` +
  (left === 0 ? '' : `; tables that were not counted, for lack of time: ${left}`);

/** Counts table after table. An error leaves that table and the rest uncounted. */
async function countIn(
  copy: InstancePaths,
  database: string,
  tables: readonly number[],
  untilMs: number,
  signal: AbortSignal,
): Promise<{ counted: number; rows: number }> {
  const result = { counted: 0, rows: 0 };
  const limitMs = Math.floor(untilMs - performance.now());
  if (tables.length === 0 || limitMs < 1) return result;
  const count = async (client: Client): Promise<void> => {
    for (const oid of tables) {
      signal.throwIfAborted();
      if (performance.now() >= untilMs) return;
      const { rows } = await client.query<{ rows: string }>(
        'select tuple_count::text as rows from pg_catalog.pgstattuple($1::oid::regclass)',
        [oid],
      );
      result.counted += 1;
      result.rows += Number(rows[0]?.rows ?? 0);
    }
  };
  await withSessionAs(READER_ROLE, { ...inCopy(copy, database), limitMs }, count).catch(() =>
    signal.throwIfAborted(),
  );
  return result;
}

/**
 * The tables of users in a database, the smallest first; those of other access methods, which
 * pgstattuple refuses, are the last. null: the extension is not installed.
 */
async function tablesOf(client: Client): Promise<number[] | null> {
  const { rows: available } = await client.query(
    "select from pg_available_extensions where name = 'pgstattuple'",
  );
  if (available.length === 0) return null;
  // As for amcheck: in this schema, no object of a user can replace it.
  await client.query(
    'create extension if not exists pgstattuple schema pg_catalog; ' +
      'alter extension pgstattuple set schema pg_catalog; ' +
      `grant execute on function pg_catalog.pgstattuple(regclass) to ${READER_ROLE}`,
  );
  const { rows } = await client.query<{ oid: number }>(
    `select c.oid from pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     join pg_catalog.pg_am a on a.oid = c.relam
     where c.relkind in ('r', 'm') and c.relpersistence <> 't'
       and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
     order by a.amname <> 'heap', pg_catalog.pg_relation_size(c.oid), c.oid`,
  );
  return rows.map(({ oid }) => oid);
}
