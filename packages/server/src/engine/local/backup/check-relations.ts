/** Checks the tables and indexes of a restored copy with amcheck. */
import { escapeIdentifier, type Client } from 'pg';
import { REMOVED_LIMIT } from '../../../domain/postgres/databases.ts';
import type { InstancePaths } from '../host/layout.ts';
import { READER_ROLE } from '../../statements/reader-role.ts';
import { MAINTENANCE_DATABASE } from '../postgres/files.ts';
import { withSessionAs, withSuperuserSession } from '../postgres/superuser.ts';
import { inCopy, STATEMENT_LIMIT_MS } from './copy.ts';

/**
 * For all indexes with expressions of a tenant together, which may never end. Indexes that are left
 * then are checked without their expressions.
 */
const EXPRESSIONS_LIMIT_MS = 600_000;

/**
 * Checks every table and B-tree of every database of a copy: pages, rows, order, and that each
 * index has every row.
 *
 * @returns a line for the user
 * @throws Error when a table or an index is damaged
 */
export async function checkRelations(copy: InstancePaths, signal: AbortSignal): Promise<string> {
  const { databases, removed } = await withSuperuserSession(
    inCopy(copy, MAINTENANCE_DATABASE),
    prepareChecks,
  );
  const limit = { leftMs: EXPRESSIONS_LIMIT_MS };
  let [tables, indexes, partly] = [0, 0, 0];
  for (const database of databases) {
    const found = await withSuperuserSession(inCopy(copy, database), relationsOf);
    if (found === null) continue;
    // In no database does a superuser's session evaluate what a tenant wrote.
    const withChecker: Checker = (use, limitMs) =>
      withSessionAs(READER_ROLE, { ...inCopy(copy, database), limitMs }, use);
    await withChecker(async (client) => {
      for (const table of found.tables) {
        signal.throwIfAborted();
        await checkTable(client, database, table);
      }
      for (const { oid, evaluates } of found.indexes) {
        signal.throwIfAborted();
        if (!evaluates) await checkIndex(client, oid, true);
      }
    }, STATEMENT_LIMIT_MS);
    for (const { oid } of found.indexes.filter(({ evaluates }) => evaluates)) {
      signal.throwIfAborted();
      if (!(await checkExpressions(withChecker, oid, limit))) partly += 1;
    }
    tables += found.tables.length;
    indexes += found.indexes.length;
  }
  // Every database has catalogs, and so tables.
  if (tables === 0)
    return 'not done: the extension amcheck is missing from this PostgreSQL; its contrib package brings it';
  return [
    `${tables} tables and ${indexes} indexes in ${databases.length} databases`,
    ...(partly === 0
      ? []
      : [`${partly} of the indexes only by their order: their expressions took too long`]),
    ...(removed === 0
      ? []
      : [`without ${removed} whose removal was interrupted: DROP DATABASE removes the rest`]),
  ].join('; ');
}

type Checker = <T>(use: (client: Client) => Promise<T>, limitMs: number) => Promise<T>;

/**
 * Checks an index with expressions within the time that is left for all of them.
 *
 * @returns whether they were evaluated
 */
async function checkExpressions(
  withChecker: Checker,
  oid: number,
  limit: { leftMs: number },
): Promise<boolean> {
  const begunMs = performance.now();
  if (limit.leftMs >= 1) {
    const limitMs = Math.floor(limit.leftMs);
    try {
      await withChecker((client) => checkIndex(client, oid, true), limitMs);
      return true;
    } catch (error) {
      // The client leaves a statement that catches its own cancellation.
      if (performance.now() - begunMs < limitMs) throw error;
    } finally {
      limit.leftMs -= performance.now() - begunMs;
    }
  }
  await withChecker((client) => checkIndex(client, oid, false), STATEMENT_LIMIT_MS);
  return false;
}

/**
 * Creates the role that checks run as, and lets it into every database. It is no superuser,
 * whatever the service had made of it. Limits that the owner of a database has set would hold for
 * it. Nobody can connect to a database whose removal was interrupted.
 *
 * @returns the databases to check, and the number of those that cannot be
 */
async function prepareChecks(client: Client): Promise<{ databases: string[]; removed: number }> {
  const { rows: roles } = await client.query('select from pg_roles where rolname = $1', [
    READER_ROLE,
  ]);
  if (roles.length === 0) await client.query(`create role ${READER_ROLE}`);
  await client.query(`
    alter role ${READER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls
      connection limit -1`);
  const { rows } = await client.query<{ name: string; isRemoved: boolean }>(
    `select datname::text as name, datconnlimit = ${REMOVED_LIMIT} as "isRemoved" from pg_database
     where datname <> 'template0' order by datname`,
  );
  const databases = rows.filter(({ isRemoved }) => !isRemoved).map(({ name }) => name);
  for (const name of databases.map((database) => escapeIdentifier(database)))
    await client.query(`alter database ${name} connection limit -1 allow_connections true;
      grant connect on database ${name} to ${READER_ROLE}`);
  return { databases, removed: rows.length - databases.length };
}

type Relations = {
  tables: { oid: number; name: string }[];
  indexes: { oid: number; evaluates: boolean }[];
};

/**
 * Finds the relations to check, and creates the extension that checks them; null: it is not
 * installed.
 */
async function relationsOf(client: Client): Promise<Relations | null> {
  const { rows: available } = await client.query(
    "select from pg_available_extensions where name = 'amcheck'",
  );
  if (available.length === 0) return null;
  // As pg_amcheck does: in this schema, no object of a user can replace it.
  await client.query(
    'create extension if not exists amcheck schema pg_catalog; ' +
      'alter extension amcheck set schema pg_catalog',
  );
  const { rows: functions } = await client.query<{ signature: string }>(
    `select p.oid::regprocedure::text as signature from pg_proc p
     where p.pronamespace = 'pg_catalog'::regnamespace and p.proname in ('verify_heapam', 'bt_index_check')`,
  );
  for (const { signature } of functions)
    await client.query(`grant execute on function ${signature} to ${READER_ROLE}`);
  const select = (more: string, condition: string): string =>
    `select c.oid, ${more} from pg_class c where c.relpersistence <> 't' and ${condition} order by c.oid`;
  const tables = await client.query<{ oid: number; name: string }>(
    select('c.oid::regclass::text as name', TABLES),
  );
  const indexes = await client.query<{ oid: number; evaluates: boolean }>(
    select(
      `(select i.indexprs is not null or i.indpred is not null from pg_index i where i.indexrelid = c.oid) as evaluates`,
      INDEXES,
    ),
  );
  return { tables: tables.rows, indexes: indexes.rows };
}

async function checkTable(
  client: Client,
  database: string,
  { oid, name }: { oid: number; name: string },
): Promise<void> {
  const { rows } = await client.query<{ block: string; message: string }>(
    'select blkno::text as block, msg as message from pg_catalog.verify_heapam($1::oid::regclass, on_error_stop => true) limit 1',
    [oid],
  );
  if (rows[0] !== undefined)
    throw new Error(`table ${name} of ${database}, block ${rows[0].block}: ${rows[0].message}`);
}

/**
 * @param rows whether to compare the index with the rows of its table: this evaluates its
 * expressions, as the table's owner
 */
async function checkIndex(client: Client, oid: number, rows: boolean): Promise<void> {
  await client.query('select pg_catalog.bt_index_check($1::oid::regclass, heapallindexed => $2)', [
    oid,
    rows,
  ]);
}

// The relations that pg_amcheck checks ([PG] pg_amcheck); temporary ones belong to sessions that
// are gone.
const TABLES = `c.relkind in ('r', 'm', 't') and c.relam = (select oid from pg_catalog.pg_am where amname = 'heap')`;
const INDEXES = `c.relkind = 'i' and c.relam = (select oid from pg_catalog.pg_am where amname = 'btree')
  and exists (select from pg_catalog.pg_index i where i.indexrelid = c.oid and i.indisvalid and i.indisready and i.indislive)`;
