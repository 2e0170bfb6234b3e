/**
 * Whether a restored server holds what the service does, by the sizes of its catalogs: what can be
 * compared honestly, and no more.
 */
import { type Client, DatabaseError } from 'pg';
import { OPEN_DATABASES } from '../../../domain/postgres/databases.ts';
import { MAINTENANCE_DATABASE } from '../roles.ts';

/** Catalogs of a server with a row for each object of a user. */
const SHARED_CATALOGS = ['pg_authid', 'pg_database'] as const;
/** The same of each database. */
const CATALOGS = [
  'pg_class',
  'pg_attribute',
  'pg_type',
  'pg_proc',
  'pg_index',
  'pg_constraint',
  'pg_namespace',
  'pg_extension',
] as const;

export type CatalogSizes = {
  /** Rows by catalog, and database if it has one of its own. */
  rows: ReadonlyMap<string, number>;
  /**
   * Rows ever inserted or deleted, as the statistics count them: these show objects that were
   * created and dropped meanwhile.
   */
  writes: number;
};

/** Whether two servers have the same catalogs, as far as the sizes show, in a sentence. */
export type Comparison = { equal: boolean; detail: string };

/** Runs work in a session in a database. */
type InDatabase = <T>(database: string, work: (client: Client) => Promise<T>) => Promise<T>;

/** Reads the sizes of the catalogs of all databases that a session can be in. */
export async function readCatalogSizes(inDatabase: InDatabase): Promise<CatalogSizes> {
  const { names, shared } = await inDatabase(MAINTENANCE_DATABASE, async (client) => ({
    names: (await client.query<{ name: string }>(OPEN_DATABASES)).rows.map(({ name }) => name),
    shared: await readSizes(client, SHARED_CATALOGS),
  }));
  const all = [shared];
  for (const database of names) {
    const sizes = await inDatabase(database, (client) => readSizes(client, CATALOGS)).catch(
      (error: unknown) => {
        // A database was dropped or closed meanwhile: then the sizes differ from those at another
        // time.
        if (isWithoutDatabase(error)) return null;
        throw error;
      },
    );
    if (sizes === null) continue;
    const named = [...sizes.rows].map(([name, rows]) => [`${name} of ${database}`, rows] as const);
    all.push({ rows: new Map(named), writes: sizes.writes });
  }
  return {
    rows: new Map(all.flatMap(({ rows }) => [...rows])),
    writes: all.reduce((sum, { writes }) => sum + writes, 0),
  };
}

async function readSizes(client: Client, catalogs: readonly string[]): Promise<CatalogSizes> {
  const counts = catalogs
    .map((name) => `select '${name}' as name, count(*)::int as rows from pg_catalog.${name}`)
    .join(' union all ');
  const { rows } = await client.query<{ name: string; rows: number }>(counts);
  const { rows: written } = await client.query<{ writes: string }>(
    `select coalesce(sum(n_tup_ins + n_tup_del), 0)::text as writes
     from pg_catalog.pg_stat_sys_tables where schemaname = 'pg_catalog' and relname = any($1)`,
    [catalogs],
  );
  return {
    rows: new Map(rows.map(({ name, rows: count }) => [name, count])),
    writes: Number(written[0]?.writes ?? 0),
  };
}

/**
 * Compares a restored server's catalogs with those of the service before and after it was restored.
 * Only where nothing was made or dropped in between do they have to be equal: which of the two
 * states the restored one has is not known otherwise.
 */
export function compareCatalogs(
  before: CatalogSizes,
  restored: CatalogSizes,
  after: CatalogSizes,
): Comparison {
  const names = [
    ...new Set([...before.rows.keys(), ...restored.rows.keys(), ...after.rows.keys()]),
  ];
  const total = [...restored.rows.values()].reduce((sum, count) => sum + count, 0);
  if (
    before.writes !== after.writes ||
    names.some((name) => before.rows.get(name) !== after.rows.get(name))
  ) {
    return {
      equal: true,
      detail: `${total} rows; not compared: things were made or dropped in the service meanwhile`,
    };
  }
  const different = names.filter((name) => before.rows.get(name) !== restored.rows.get(name));
  if (different.length === 0)
    return { equal: true, detail: `${total} rows, the same as in the service` };
  const found = different.map(
    (name) =>
      `${name} has ${restored.rows.get(name) ?? 'no'} rows, ` +
      `in the service ${before.rows.get(name) ?? 'none'}`,
  );
  return { equal: false, detail: `the catalogs differ: ${found.join(', ')}` };
}

// Errors of databases that are not there.

/** Whether a database does not exist, or accepts no connections. */
export const isWithoutDatabase = (error: unknown): boolean =>
  error instanceof DatabaseError && ['3D000', '55000'].includes(error.code ?? '');
