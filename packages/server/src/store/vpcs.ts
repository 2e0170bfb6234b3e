/**
 * The SQL of VPCs.
 *
 * Locks are taken in one order: services, then VPCs by their ids. A VPC counts what is wanted of
 * it; the engine has made it true once `made` has come up to `wanted` (reconcile/vpcs.ts).
 */
import { type Selectable, sql } from 'kysely';
import type { VpcSpec } from '../engine/spec.ts';
import { notifyVpcs } from './events.ts';
import type { Db, Tables, Tx } from './tables.ts';
import { addressAt, hostOf, nextHost, trustedCidr } from '../lib/cidr.ts';

export type VpcRow = Selectable<Tables['vpcs']>;

/** Whether a text can be the id of a VPC or a peering. */
function isNumber(id: string): boolean {
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
           array(select host(a.address) from vpc_addresses a where a.vpc_id = v.id
             order by a.address) as addresses,
           coalesce((select json_agg(json_build_object('id', peer.id::text, 'cidr', peer.cidr::text)
             order by peer.id)
                     from peerings p join vpcs peer on peer.id::text = p.peer_vpc_id
                     where p.vpc_id = v.id and p.status in ('approved', 'active')
                       and not v.deleting), '[]') as peers
    from vpcs v order by v.id`;

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

// Peerings between VPCs.

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

type NewPeering = Pick<
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

// Addresses and allowed networks of services in VPCs.

/**
 * The address of a service in a VPC that the transaction has locked: the one that it still has
 * there, or the next free one.
 *
 * @returns null: all are taken
 */
export async function takeAddress(tx: Tx, vpc: VpcRow, serviceId: string): Promise<string | null> {
  const rows = await tx
    .selectFrom('vpc_addresses')
    .select(['address', 'service_id'])
    .where('vpc_id', '=', vpc.id)
    .execute();
  const own = rows.find(({ service_id }) => service_id === serviceId);
  if (own !== undefined) return own.address;
  const cidr = trustedCidr(vpc.cidr);
  const host = nextHost(
    cidr,
    vpc.last_host,
    new Set(rows.map(({ address }) => hostOf(cidr, address))),
  );
  if (host === null) return null;
  const address = addressAt(cidr, host);
  await tx
    .insertInto('vpc_addresses')
    .values({ vpc_id: vpc.id, address, service_id: serviceId })
    .execute();
  await tx.updateTable('vpcs').set({ last_host: host }).where('id', '=', vpc.id).execute();
  return address;
}

/**
 * Frees the addresses in VPCs that a service has left.
 *
 * @param except the VPC that it is in; null: none
 */
export async function releaseAddresses(
  tx: Tx,
  serviceId: string,
  except: string | null,
): Promise<void> {
  const rows = await tx
    .deleteFrom('vpc_addresses')
    .where('service_id', '=', serviceId)
    .where(sql<boolean>`vpc_id is distinct from ${except}::bigint`)
    .returning('vpc_id')
    .execute();
  await changeVpcs(
    tx,
    rows.map(({ vpc_id }) => vpc_id),
  );
}

/** The allowed networks of services in a VPC. */
export async function readAllowedNetworks(
  db: Db,
  vpc: Pick<VpcRow, 'id' | 'cidr'>,
): Promise<string[]> {
  const peers = await listPeers(db, vpc.id);
  return [vpc.cidr, ...peers.map(({ cidr }) => cidr)];
}

/**
 * Updates the allowed networks of services in VPCs of a region.
 *
 * @returns the services whose networks changed
 */
export async function refreshAllowedNetworks(db: Db, region: string): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    with wanted as materialized (
      select v.id, v.cidr::text || array(select peer.cidr::text
                                         from peerings p
                                         join vpcs peer on peer.id::text = p.peer_vpc_id
                                         where p.vpc_id = v.id
                                           and p.status in ('approved', 'active')
                                         order by peer.id) as allowed_networks
      from vpcs v where v.region_code = ${region}
    ), other as (
      select s.id from services s join wanted on wanted.id = s.vpc_id
        and s.allowed_networks is distinct from wanted.allowed_networks
      -- As all who lock services with their sets.
      order by s.parent_id nulls first, s.id for update of s
    )
    update services s set allowed_networks = wanted.allowed_networks, due_at = now() from wanted
    where s.id = any (array(select id from other)) and wanted.id = s.vpc_id
    returning s.id`.execute(db);
  return rows.map(({ id }) => id);
}
