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
  region: string;
  serviceType: ServiceType;
  addons: readonly Addon[];
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
      id: newId(),
      project_id: null,
      region_code: spare.region,
      name: 'spare',
      service_type: spare.serviceType,
      addons: [...spare.addons],
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

/** Locks a running spare with these add-ons and this size; null: there is none. */
export async function lockSpare(
  tx: Tx,
  wanted: { region: string; addons: readonly Addon[]; size: Size },
): Promise<ServiceRow | null> {
  const { cpu_millis, memory_gbs } = sizeColumns(wanted.size);
  const row = await tx
    .selectFrom('services')
    .selectAll()
    .where(isSpare)
    .where('region_code', '=', wanted.region)
    .where('reachable', '=', true)
    .where(sql<boolean>`addons = ${[...wanted.addons]}::text[]`)
    .where(
      sql<boolean>`(cpu_millis, memory_gbs) is not distinct from (${cpu_millis}::int, ${memory_gbs}::int)`,
    )
    .orderBy('created')
    .limit(1)
    .forUpdate()
    .skipLocked()
    .executeTakeFirst();
  return row ?? null;
}

/** Counts spares by their add-ons, with those that do not run yet. */
export async function countSpares(db: Db, region: string): Promise<Map<string, number>> {
  const rows = await db
    .selectFrom('services')
    .select(['addons', sql<number>`count(*)::int`.as('count')])
    .where(isSpare)
    .where('region_code', '=', region)
    .groupBy('addons')
    .execute();
  return new Map(rows.map(({ addons, count }) => [addons.join('+'), count]));
}

/**
 * Spares that no create can use: other add-ons or host than wanted now, or more than are kept.
 *
 * @param wanted.isCurrent whether a new service would be at the host of this endpoint
 */
export async function listStaleSpares(
  db: Db,
  region: string,
  wanted: {
    addons: readonly Addon[];
    isCurrent: (endpoint: Endpoint) => boolean;
    keep: number;
  },
): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'host', 'port', 'addons'])
    .where(isSpare)
    .where('region_code', '=', region)
    .orderBy('created')
    .execute();
  const fits = (row: Endpoint & { addons: Addon[] }) =>
    wanted.isCurrent(row) && row.addons.join() === wanted.addons.join();
  const kept = new Set(
    rows
      .filter(fits)
      .slice(0, wanted.keep)
      .map(({ id }) => id),
  );
  return rows.map(({ id }) => id).filter((id) => !kept.has(id));
}
