/** The table columns and detail lines of allow lists. */
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
