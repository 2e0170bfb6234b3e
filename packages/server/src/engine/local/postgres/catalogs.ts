/**
 * Whether a restored server holds what the service does, by the sizes of its catalogs: what can be
 * compared honestly, and no more.
 */
import type { Client } from 'pg';

/** Catalogs with a row for each object of a user. */
const CATALOGS = [
  'pg_class',
  'pg_attribute',
  'pg_type',
  'pg_proc',
  'pg_index',
  'pg_constraint',
  'pg_namespace',
  'pg_extension',
  'pg_authid',
  'pg_database',
] as const;

export type CatalogSizes = {
  /** Rows by catalog. */
  rows: ReadonlyMap<string, number>;
  /**
   * Rows ever inserted or deleted, as the statistics count them: these show objects that were
   * created and dropped meanwhile.
   */
  writes: number;
};

/** Whether two servers have the same catalogs, as far as the sizes show, in a sentence. */
export type Comparison = { equal: boolean; detail: string };

export async function readCatalogSizes(client: Client): Promise<CatalogSizes> {
  const counts = CATALOGS.map(
    (name) => `select '${name}' as name, count(*)::int as rows from pg_catalog.${name}`,
  ).join(' union all ');
  const { rows } = await client.query<{ name: string; rows: number }>(counts);
  const { rows: written } = await client.query<{ writes: string }>(
    `select coalesce(sum(n_tup_ins + n_tup_del), 0)::text as writes
     from pg_catalog.pg_stat_sys_tables where schemaname = 'pg_catalog' and relname = any($1)`,
    [CATALOGS],
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
  const names = [...before.rows.keys()];
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
      `${name} has ${restored.rows.get(name)} rows, in the service ${before.rows.get(name)}`,
  );
  return { equal: false, detail: `the catalogs differ: ${found.join(', ')}` };
}
