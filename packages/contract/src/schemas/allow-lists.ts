/** Schemas of allow lists: the networks whose clients may connect to a service. */
import { Type } from 'typebox';
import { NETWORK_PATTERN } from '../network-patterns.ts';
import { documented, Named } from '../schema.ts';
import { VISIBLE_PATTERN } from '../text.ts';
import { MAX_CIDR_BLOCKS } from '../types.ts';
import { dateTime, ignored, name } from './parts.ts';

const cidrBlocks = Type.Array(
  Type.String({
    minLength: 1,
    maxLength: 64,
    pattern: VISIBLE_PATTERN,
    ...documented({ pattern: NETWORK_PATTERN }),
  }),
  {
    minItems: 1,
    maxItems: MAX_CIDR_BLOCKS,
    description: 'networks, IPv4 like 203.0.113.0/24 or IPv6 like 2001:db8::/32',
  },
);

export const AllowListSchema = Named(
  'AllowList',
  Type.Object({
    allow_list_id: Type.String(),
    project_id: Type.String(),
    description: Type.String(),
    cidr_blocks: Type.Array(Type.String(), {
      description: 'the networks whose clients may connect',
    }),
    created_at: dateTime('when it was created'),
    ignored,
  }),
);

export type AllowList = Type.Static<typeof AllowListSchema>;

const description = name('1 to 128 characters');

export const CreateAllowListBody = Named(
  'CreateAllowList',
  Type.Object({ description, cidr_blocks: cidrBlocks }),
);

export type CreateAllowListBody = Type.Static<typeof CreateAllowListBody>;

export const UpdateAllowListBody = Named(
  'UpdateAllowList',
  Type.Object({
    description: Type.Optional(description),
    cidr_blocks: Type.Optional(cidrBlocks),
  }),
);

export type UpdateAllowListBody = Type.Static<typeof UpdateAllowListBody>;

export const AllowListInputBody = Named(
  'ServiceAllowListInput',
  Type.Object({
    allow_list_id: Type.String({
      minLength: 1,
      maxLength: 64,
      pattern: VISIBLE_PATTERN,
      description: 'the allow list',
    }),
  }),
);
