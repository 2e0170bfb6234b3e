/** VPCs and peerings as the API answers them. */
import type { Peering, Vpc } from '@howdah/contract';

/** The row of a peering, as far as its document needs it. */
type PeeringColumns = Pick<
  Peering,
  'id' | 'peer_account_id' | 'peer_region_code' | 'peer_vpc_id' | 'status'
> & { error_message: string | null; provisioned_id: string | null };

/** The name of a VPC's region, as it was asked for. */
export function regionNameOf(vpc: { region_code: string; region_alias: string | null }): string {
  return vpc.region_alias ?? vpc.region_code;
}

type VpcColumns = Pick<Vpc, 'id' | 'name' | 'cidr' | 'region_code'> & {
  region_alias: string | null;
};

export function vpcDocument(row: VpcColumns): Vpc {
  return { id: row.id, name: row.name, cidr: row.cidr, region_code: regionNameOf(row) };
}

export function peeringDocument(row: PeeringColumns): Peering {
  return {
    id: row.id,
    peer_account_id: row.peer_account_id,
    peer_region_code: row.peer_region_code,
    peer_vpc_id: row.peer_vpc_id,
    status: row.status,
    ...(row.error_message === null ? {} : { error_message: row.error_message }),
    ...(row.provisioned_id === null ? {} : { provisioned_id: row.provisioned_id }),
  };
}
