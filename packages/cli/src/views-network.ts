/** The table columns and detail lines of allow lists, VPCs and peerings. */
import type { Schemas } from '@howdah/client';
import { dateAndDistance } from './moment.ts';
import type { View } from './output.ts';

export const ALLOW_LIST_VIEW: View<Schemas['AllowList']> = {
  noun: 'allow_list',
  columns: [
    ['ID', ({ allow_list_id: id }) => id],
    ['DESCRIPTION', ({ description }) => description],
    ['NETWORKS', ({ cidr_blocks: networks }) => networks.join(', ')],
  ],
  details: [['CREATED', ({ created_at: created }) => dateAndDistance(created)]],
};

export const VPC_VIEW: View<Schemas['Vpc']> = {
  noun: 'vpc',
  columns: [
    ['ID', ({ id }) => id],
    ['NAME', ({ name }) => name],
    ['CIDR', ({ cidr }) => cidr],
    ['REGION', ({ region_code: region }) => region],
  ],
};

export const PEERING_VIEW: View<Schemas['Peering']> = {
  noun: 'peering',
  columns: [
    ['ID', ({ id }) => id],
    ['PROJECT', ({ peer_account_id: project }) => project],
    ['VPC', ({ peer_vpc_id: vpc }) => vpc],
    ['STATUS', ({ status }) => status],
    ['WHY', ({ error_message: why }) => why ?? ''],
  ],
};
