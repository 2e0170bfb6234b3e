/** Services without a project: spares, and new services before they are assigned. */
import { type Addon, defaultStorageGb, type ServiceType, type Size } from '@howdah/contract';
import { sql } from 'kysely';
import type { ServiceRow } from '../domain/service/row.ts';
import { sizeColumns } from '../domain/service/spec.ts';
import type { Endpoint, Origin } from '../engine/spec.ts';
import { newId } from '../lib/ids.ts';
import { isSpare } from './predicates.ts';
import type { Db, Tx } from './tables.ts';

export type NewService = {
  /** Default: a new one. */
  id?: string;
  region: string;
  serviceType: ServiceType;
  addons: readonly Addon[];
  /** The major version of PostgreSQL; null: not known yet. */
  major: number | null;
  size: Size;
  /** Default: by the size. */
  storageGb?: number;
  endpoint: Endpoint;
  origin: Origin | null;
  /** The service that a read replica set follows. */
  parent?: string;
};

/** Inserts a service without a project: a spare. `changeService` assigns it to one. */
export async function insertSpare(tx: Tx, spare: NewService): Promise<ServiceRow> {
  return tx
    .insertInto('services')
    .values({
      id: spare.id ?? newId(),
      project_id: null,
      region_code: spare.region,
      name: 'spare',
      service_type: spare.serviceType,
      addons: [...spare.addons],
      pg_version: spare.major,
      environment: 'DEV',
      ...spare.endpoint,
      resource_id: newId(),
      ...sizeColumns(spare.size),
      storage_gb: spare.storageGb ?? defaultStorageGb(spare.size),
      power: 'running',
      first_verifier: null,
      origin: spare.origin === null ? null : JSON.stringify(spare.origin),
      parent_id: spare.parent ?? null,
      deleted_at: null,
      drill: null,
      vpc_id: null,
      vpc_address: null,
      allow_list_id: null,
      metric_exporter_id: null,
      exported_until: null,
      allowed_networks: null,
      memory_mb: null,
      milli_cpu: null,
      storage_mb: null,
      operation_id: null,
      status: 'QUEUED',
      doc: '',
      lease_token: null,
      lease_until: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

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
