/** Spares: services without a project that run until a create takes one. */
import type { Addon, Size } from '@howdah/contract';
import { sql } from 'kysely';
import type { ServiceRow } from '../domain/service/row.ts';
import { sizeColumns } from '../domain/service/spec.ts';
import type { Endpoint } from '../engine/spec.ts';
import { isSpare } from './predicates.ts';
import type { Db, Tx } from './tables.ts';

/** Locks a running spare with these add-ons, version and size; null: there is none. */
export async function lockSpare(
  tx: Tx,
  wanted: { region: string; addons: readonly Addon[]; major: number; size: Size },
): Promise<ServiceRow | null> {
  const { cpu_millis, memory_gbs } = sizeColumns(wanted.size);
  const row = await tx
    .selectFrom('services')
    .selectAll()
    .where(isSpare)
    .where('region_code', '=', wanted.region)
    .where('reachable', '=', true)
    .where('pg_version', '=', wanted.major)
    .where(sql<boolean>`addons = ${[...wanted.addons]}::text[]`)
    .where(
      sql<boolean>`(cpu_millis, memory_gbs)
        is not distinct from (${cpu_millis}::int, ${memory_gbs}::int)`,
    )
    .orderBy('created')
    .limit(1)
    .forUpdate()
    .skipLocked()
    .executeTakeFirst();
  return row ?? null;
}

/** The kind of the spares that are kept: a create of another kind cannot use one. */
export type SpareKind = Readonly<{ addons: readonly Addon[]; major: number | null }>;

/** Counts the spares of a kind, with those that do not run yet. */
export async function countSpares(
  db: Db,
  region: string,
  { addons, major }: SpareKind,
): Promise<number> {
  const { count } = await db
    .selectFrom('services')
    .select(sql<number>`count(*)::int`.as('count'))
    .where(isSpare)
    .where('region_code', '=', region)
    .where(sql<boolean>`addons = ${[...addons]}::text[]`)
    .where(sql<boolean>`pg_version is not distinct from ${major}::int`)
    .executeTakeFirstOrThrow();
  return count;
}

/**
 * Spares that no create can use: other add-ons, version or host than wanted now, or more than are
 * kept.
 *
 * @param wanted.isCurrent whether a new service would be at the host of this endpoint
 */
export async function listStaleSpares(
  db: Db,
  region: string,
  wanted: SpareKind & {
    isCurrent: (endpoint: Endpoint) => boolean;
    keep: number;
  },
): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'host', 'port', 'addons', 'pg_version'])
    .where(isSpare)
    .where('region_code', '=', region)
    .orderBy('created')
    .execute();
  const fits = (row: Endpoint & Pick<ServiceRow, 'addons' | 'pg_version'>) =>
    wanted.isCurrent(row) &&
    row.addons.join() === wanted.addons.join() &&
    row.pg_version === wanted.major;
  const kept = new Set(
    rows
      .filter(fits)
      .slice(0, wanted.keep)
      .map(({ id }) => id),
  );
  return rows.map(({ id }) => id).filter((id) => !kept.has(id));
}
