/** The SQL of regions on Kubernetes. There are few. */
import { sql, type Insertable, type Selectable } from 'kysely';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Db, Tables, Tx } from './tables.ts';

export type KubernetesRegionRow = Selectable<Tables['kubernetes_regions']>;

/** All of them, oldest first. */
export async function listKubernetesRegions(db: Db): Promise<KubernetesRegionRow[]> {
  return db
    .selectFrom('kubernetes_regions')
    .selectAll()
    .orderBy('created')
    .orderBy('code')
    .execute();
}

export async function findKubernetesRegion(
  db: Db,
  code: string,
): Promise<KubernetesRegionRow | null> {
  const query = db.selectFrom('kubernetes_regions').selectAll().where('code', '=', code);
  return (await query.executeTakeFirst()) ?? null;
}

/** Locks the regions on Kubernetes against other changes, and reads them. */
export async function lockKubernetesRegions(tx: Tx): Promise<KubernetesRegionRow[]> {
  await sql`select pg_advisory_xact_lock(hashtext('howdah kubernetes regions'))`.execute(tx);
  return listKubernetesRegions(tx);
}

export async function insertKubernetesRegion(
  tx: Tx,
  made: Insertable<Tables['kubernetes_regions']>,
): Promise<KubernetesRegionRow> {
  return tx.insertInto('kubernetes_regions').values(made).returningAll().executeTakeFirstOrThrow();
}

/** @param place as JSON @param sealed its secrets */
export async function updateObjectStore(
  tx: Tx,
  code: string,
  place: string,
  sealed: Buffer,
): Promise<KubernetesRegionRow> {
  return tx
    .updateTable('kubernetes_regions')
    .set({ object_store: place, object_store_sealed: sealed })
    .where('code', '=', code)
    .returningAll()
    .executeTakeFirstOrThrow();
}

type Images = Pick<
  Insertable<Tables['kubernetes_regions']>,
  'images' | 'extensions' | 'pooler_image'
>;

export async function updateImages(
  tx: Tx,
  code: string,
  images: Images,
): Promise<KubernetesRegionRow> {
  return tx
    .updateTable('kubernetes_regions')
    .set(images)
    .where('code', '=', code)
    .returningAll()
    .executeTakeFirstOrThrow();
}

type PlacementColumns = Pick<
  Insertable<Tables['kubernetes_regions']>,
  | 'placement'
  | 'service_placements'
  | 'wal_storage_class'
  | 'image_pull_sealed'
  | 'image_pull_registries'
>;

export async function updatePlacement(
  tx: Tx,
  code: string,
  columns: PlacementColumns,
): Promise<KubernetesRegionRow> {
  return tx
    .updateTable('kubernetes_regions')
    .set(columns)
    .where('code', '=', code)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Those of some services and read replica sets that are in a region. */
export async function listServicesIn(
  tx: Tx,
  region: string,
  ids: readonly string[],
): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await tx
    .selectFrom('services')
    .select('id')
    .where('region_code', '=', region)
    .where('id', 'in', ids)
    .execute();
  return rows.map(({ id }) => id);
}

/** The versions and add-ons of the services of a region, deleted and arriving ones included. */
export async function listImageNeeds(
  tx: Tx,
  region: string,
): Promise<Pick<ServiceRow, 'pg_version' | 'addons'>[]> {
  return tx
    .selectFrom('services')
    .select(['pg_version', 'addons'])
    .distinct()
    .where(
      sql<boolean>`region_code = ${region}
        or (move ->> 'to' = ${region} and move ->> 'state' in ('copy', 'switch'))`,
    )
    .execute();
}

/** The services and read replica sets of a region that have a pooler. */
export async function listPooled(tx: Tx, region: string): Promise<string[]> {
  const rows = await tx
    .selectFrom('services')
    .select('id')
    .where('region_code', '=', region)
    .where('pooler', '=', true)
    .execute();
  return rows.map(({ id }) => id);
}

/** Whether services of a region are being forked from a moment. */
export async function hasUnfinishedPastForks(tx: Tx, region: string): Promise<boolean> {
  const row = await tx
    .selectFrom('services')
    .select('id')
    .where('region_code', '=', region)
    .where('provisioned', '=', false)
    .where(sql<boolean>`origin ->> 'strategy' = 'PITR'`)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

export async function deleteKubernetesRegion(tx: Tx, code: string): Promise<void> {
  await tx.deleteFrom('kubernetes_regions').where('code', '=', code).execute();
}

/** The VPCs of a region. */
export async function countVpcsOf(tx: Tx, region: string): Promise<number> {
  const { count } = await tx
    .selectFrom('vpcs')
    .select(({ fn }) => fn.countAll<string>().as('count'))
    .where('region_code', '=', region)
    .executeTakeFirstOrThrow();
  return Number(count);
}
