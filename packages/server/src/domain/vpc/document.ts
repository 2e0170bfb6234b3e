/** VPCs and peerings as the API answers them. */
import type { Peering, Vpc } from '@howdah/contract';

/** The row of a peering, as far as its document needs it. */
type PeeringColumns = Pick<
  Peering,
  'id' | 'peer_account_id' | 'peer_region_code' | 'peer_vpc_id' | 'status'
> & { error_message: string | null; provisioned_id: string | null };

export function vpcDocument({ id, name, cidr, region_code }: Vpc): Vpc {
  return { id, name, cidr, region_code };
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
