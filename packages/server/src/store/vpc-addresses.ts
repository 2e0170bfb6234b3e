/** Addresses and allowed networks of services in VPCs. */
import { sql } from 'kysely';
import { addressAt, hostOf, nextHost, trustedCidr } from '../lib/cidr.ts';
import { listPeers } from './peerings.ts';
import type { Db, Tx } from './tables.ts';
import { changeVpcs, type VpcRow } from './vpcs.ts';

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
                                         from peerings p join vpcs peer on peer.id::text = p.peer_vpc_id
                                         where p.vpc_id = v.id and p.status in ('approved', 'active') order by peer.id) as allowed_networks
      from vpcs v where v.region_code = ${region}
    ), other as (
      select s.id from services s join wanted on wanted.id = s.vpc_id and s.allowed_networks is distinct from wanted.allowed_networks
      order by s.parent_id nulls first, s.id for update of s -- as all who lock services with their sets
    )
    update services s set allowed_networks = wanted.allowed_networks, due_at = now() from wanted
    where s.id = any (array(select id from other)) and wanted.id = s.vpc_id
    returning s.id`.execute(db);
  return rows.map(({ id }) => id);
}
