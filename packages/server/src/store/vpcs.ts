/**
 * The SQL of VPCs.
 *
 * Locks are taken in one order: services, then VPCs by their ids. A VPC counts what is wanted of
 * it; the engine has made it true once `made` has come up to `wanted` (reconcile/vpcs.ts).
 */
import { type Selectable, sql } from 'kysely';
import type { VpcSpec } from '../engine/spec.ts';
import { notifyVpcs } from './notifications.ts';
import type { Db, Tables, Tx } from './tables.ts';

export type VpcRow = Selectable<Tables['vpcs']>;

/** Whether a text can be the id of a VPC or a peering. */
export function isNumber(id: string): boolean {
  return /^[1-9][0-9]{0,17}$/.test(id);
}

export async function listVpcs(db: Db, projectId: string): Promise<VpcRow[]> {
  return db
    .selectFrom('vpcs')
    .selectAll()
    .where('project_id', '=', projectId)
    .where('deleting', '=', false)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

/** A VPC that is not being deleted; null when there is none with that id. */
export async function findVpc(db: Db, id: string): Promise<VpcRow | null> {
  if (!isNumber(id)) return null;
  return (
    (await db
      .selectFrom('vpcs')
      .selectAll()
      .where('id', '=', id)
      .where('deleting', '=', false)
      .executeTakeFirst()) ?? null
  );
}

/** VPCs that are not being deleted, locked for the rest of the transaction, by their ids. */
export async function lockVpcs(tx: Tx, ids: readonly string[]): Promise<Map<string, VpcRow>> {
  const wanted = ids.filter(isNumber);
  if (wanted.length === 0) return new Map();
  const rows = await tx
    .selectFrom('vpcs')
    .selectAll()
    .where('id', 'in', wanted)
    .where('deleting', '=', false)
    .orderBy('id')
    .forUpdate()
    .execute();
  return new Map(rows.map((row) => [row.id, row]));
}

export async function insertVpc(
  tx: Tx,
  vpc: Pick<VpcRow, 'project_id' | 'region_code' | 'region_alias' | 'name' | 'cidr'>,
): Promise<VpcRow> {
  const row = await tx.insertInto('vpcs').values(vpc).returningAll().executeTakeFirstOrThrow();
  await notifyVpcs(tx);
  return row;
}

/**
 * The VPCs of a project and region, one create at a time: locks the region
 * until the transaction ends.
 */
export async function vpcsToCompare(tx: Tx, projectId: string, region: string): Promise<VpcRow[]> {
  await tx
    .selectFrom('regions')
    .select('code')
    .where('code', '=', region)
    .forUpdate()
    .executeTakeFirstOrThrow();
  return (await listVpcs(tx, projectId)).filter(({ region_code }) => region_code === region);
}

export async function setVpcName(db: Db, id: string, name: string): Promise<VpcRow | null> {
  const row = await db
    .updateTable('vpcs')
    .set({ name })
    .where('id', '=', id)
    .where('deleting', '=', false)
    .returningAll()
    .executeTakeFirst();
  return row ?? null;
}

/** Makes these VPCs due: raises the number of their desired state and notifies. */
export async function changeVpcs(
  tx: Tx,
  ids: readonly string[],
  more: { deleting?: true } = {},
): Promise<void> {
  if (ids.length === 0) return;
  await tx
    .updateTable('vpcs')
    .set(({ eb }) => ({ wanted: eb('wanted', '+', 1), ...more }))
    .where('id', 'in', [...ids])
    .execute();
  await notifyVpcs(tx);
}

/**
 * Services that are in a VPC; deleted ones that can be restored among them. Read replica sets are
 * where their service is.
 */
export async function servicesIn(
  db: Db,
  vpcId: string,
): Promise<{ id: string; name: string; deleted: boolean }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'name', 'deleted_at'])
    .where('vpc_id', '=', vpcId)
    .where('parent_id', 'is', null)
    .orderBy('id')
    .execute();
  return rows.map(({ id, name, deleted_at }) => ({ id, name, deleted: deleted_at !== null }));
}

/** A VPC with the number of its desired state when it was read. */
export type WantedVpc = VpcSpec & {
  region: string;
  wanted: number;
  made: number;
  deleting: boolean;
};

/** The integrity check reads it too. */
export const WANTED_VPCS = `
    select v.id::text as id, v.region_code as region,
           v.cidr::text as cidr, v.wanted, v.made, v.deleting,
           array(select host(a.address) from vpc_addresses a where a.vpc_id = v.id order by a.address) as addresses,
           coalesce((select json_agg(json_build_object('id', peer.id::text, 'cidr', peer.cidr::text) order by peer.id)
                     from peerings p join vpcs peer on peer.id::text = p.peer_vpc_id
                     where p.vpc_id = v.id and p.status in ('approved', 'active') and not v.deleting), '[]') as peers
    from vpcs v order by v.id`;

/** The number of VPCs of a project, with those that are being deleted. */
export async function countVpcs(tx: Tx, projectId: string): Promise<number> {
  const { count } = await tx
    .selectFrom('vpcs')
    .select(sql<number>`count(*)::int`.as('count'))
    .where('project_id', '=', projectId)
    .executeTakeFirstOrThrow();
  return count;
}

/** All VPCs of a region, with those that are being deleted. */
export async function wantedVpcs(db: Db, code: string): Promise<WantedVpc[]> {
  const { rows } = await sql.raw<WantedVpc>(WANTED_VPCS).execute(db);
  return rows.filter(({ region }) => region === code);
}

/** Whether the engine has made the desired state of all VPCs of a region. */
export async function vpcsAreMade(db: Db, region: string): Promise<boolean> {
  return (
    (await db
      .selectFrom('vpcs')
      .select('id')
      .where('region_code', '=', region)
      .whereRef('made', '<>', 'wanted')
      .limit(1)
      .executeTakeFirst()) === undefined
  );
}

/** Whether the engine has made the desired state of a VPC. */
export async function vpcIsMade(db: Db, id: string): Promise<boolean> {
  return (
    (await db
      .selectFrom('vpcs')
      .select('id')
      .where('id', '=', id)
      .whereRef('made', '=', 'wanted')
      .executeTakeFirst()) !== undefined
  );
}

/**
 * Records that the engine has made the desired state that was read. From now on
 * its peerings are active.
 */
export async function noteMade(tx: Tx, { id, wanted, peers }: WantedVpc): Promise<void> {
  await tx.updateTable('vpcs').set({ made: wanted }).where('id', '=', id).execute();
  for (const peer of peers) {
    const [low, high] = [id, peer.id].toSorted((a, b) => Number(a) - Number(b));
    await tx
      .updateTable('peerings')
      .set({ status: 'active', provisioned_id: `pcx-${low}-${high}` })
      .where('vpc_id', '=', id)
      .where('peer_vpc_id', '=', peer.id)
      .where('status', '=', 'approved')
      .execute();
  }
}

/** Removes a VPC of which nothing is left. @returns false: a service has not left it yet */
export async function deleteEmptyVpc(tx: Tx, id: string): Promise<boolean> {
  const held = await tx
    .selectFrom('vpc_addresses')
    .select('address')
    .where('vpc_id', '=', id)
    .limit(1)
    .executeTakeFirst();
  if (held !== undefined) return false;
  await tx.deleteFrom('vpcs').where('id', '=', id).where('deleting', '=', true).execute();
  return true;
}

/** Makes the services in VPCs due. @returns their ids */
export async function makeServicesDue(db: Db, vpcIds: readonly string[]): Promise<string[]> {
  if (vpcIds.length === 0) return [];
  const rows = await db
    .updateTable('services')
    .set({ due_at: sql<Date>`now()` })
    .where('id', 'in', (where) =>
      where
        .selectFrom('services')
        .select('id')
        .where('vpc_id', 'in', [...vpcIds])
        .orderBy('parent_id', (order) => order.nullsFirst())
        .orderBy('id')
        .forUpdate(),
    )
    .returning('id')
    .execute();
  return rows.map(({ id }) => id);
}
