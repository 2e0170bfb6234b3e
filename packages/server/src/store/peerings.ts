/** Peerings between VPCs. */
import { type Selectable, sql } from 'kysely';
import type { Db, Tables, Tx } from './tables.ts';
import { isNumber, type VpcRow } from './vpcs.ts';

export type PeeringRow = Selectable<Tables['peerings']>;

export async function listPeerings(db: Db, vpcId: string): Promise<PeeringRow[]> {
  return db
    .selectFrom('peerings')
    .selectAll()
    .where('vpc_id', '=', vpcId)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

export async function findPeering(db: Db, vpcId: string, id: string): Promise<PeeringRow | null> {
  if (!isNumber(id)) return null;
  return (
    (await db
      .selectFrom('peerings')
      .selectAll()
      .where('id', '=', id)
      .where('vpc_id', '=', vpcId)
      .executeTakeFirst()) ?? null
  );
}

export type NewPeering = Pick<
  PeeringRow,
  'vpc_id' | 'peer_account_id' | 'peer_region_code' | 'peer_vpc_id' | 'asked' | 'status'
> & {
  error_message?: string;
};

export async function insertPeering(tx: Tx, peering: NewPeering): Promise<PeeringRow> {
  return tx
    .insertInto('peerings')
    .values({ error_message: null, provisioned_id: null, ...peering })
    .returningAll()
    .executeTakeFirstOrThrow();
}

export async function changePeering(
  tx: Tx,
  id: string,
  change: Partial<Pick<PeeringRow, 'asked' | 'status' | 'error_message' | 'provisioned_id'>>,
): Promise<PeeringRow> {
  return tx
    .updateTable('peerings')
    .set(change)
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

export async function deletePeeringRow(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('peerings').where('id', '=', id).execute();
}

/** The peering of a VPC with another one, requested or active; null: there is none. */
export async function findPeeringBetween(
  db: Db,
  vpcId: string,
  peer: Pick<VpcRow, 'id' | 'project_id'>,
): Promise<PeeringRow | null> {
  const row = await db
    .selectFrom('peerings')
    .selectAll()
    .where('vpc_id', '=', vpcId)
    .where('peer_account_id', '=', peer.project_id)
    .where('peer_vpc_id', '=', peer.id)
    .where('status', 'in', ['pending', 'approved', 'active'])
    .executeTakeFirst();
  return row ?? null;
}

/** The ids of the VPCs that a VPC is peered with. */
export async function listPeers(
  db: Db,
  vpcId: string,
): Promise<{ id: string; cidr: string; peering: string }[]> {
  return db
    .selectFrom('peerings')
    .innerJoin('vpcs', (join) => join.on(sql<boolean>`vpcs.id::text = peerings.peer_vpc_id`))
    .select(['vpcs.id', 'vpcs.cidr', 'peerings.id as peering'])
    .where('peerings.vpc_id', '=', vpcId)
    .where('peerings.status', 'in', ['approved', 'active'])
    .orderBy('vpcs.id')
    .execute();
}

/** Ends requests whose other VPC is gone. */
export async function refusePeeringRequests(
  tx: Tx,
  vpc: Pick<VpcRow, 'id' | 'project_id'>,
  why: string,
): Promise<void> {
  await tx
    .updateTable('peerings')
    .set({ status: 'invalid', error_message: why })
    .where('peer_account_id', '=', vpc.project_id)
    .where('peer_vpc_id', '=', vpc.id)
    .where('status', '=', 'pending')
    .execute();
}

/** Ends requests that were never answered. */
export async function expirePeeringRequests(db: Db, afterMs: number, why: string): Promise<void> {
  await db
    .updateTable('peerings')
    .set({ status: 'timeout', error_message: why })
    .where('status', '=', 'pending')
    .where('created', '<', sql<Date>`now() - ${`${afterMs} ms`}::interval`)
    .execute();
}
