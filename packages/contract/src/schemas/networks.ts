/** Schemas of VPCs and peerings. */
import { Type } from 'typebox';
import { VPC_CIDR_PATTERN, NETWORK_PATTERN } from '../values.ts';
import { documented, Named, StringEnum } from '../schema.ts';
import { ignored, name, regionCode, vpcId, dateTime } from './parts.ts';
import { VISIBLE_PATTERN } from '../text.ts';
import { PEERING_STATUSES, MAX_CIDR_BLOCKS } from '../types.ts';

export const VpcSchema = Named(
  'Vpc',
  Type.Object({
    id: Type.String({ description: 'digits' }),
    name: Type.String(),
    cidr: Type.String({ description: 'the addresses of the network: 10.1.0.0/16' }),
    region_code: Type.String(),
    ignored,
  }),
);

export type Vpc = Type.Static<typeof VpcSchema>;

export const CreateVpcBody = Named(
  'CreateVpc',
  Type.Object({
    name: name('1 to 128 characters'),
    cidr: Type.String({
      maxLength: 64,
      ...documented({ pattern: VPC_CIDR_PATTERN }),
      description: 'private IPv4 addresses, /16 to /28, like 10.1.0.0/16',
    }),
    region_code: regionCode('of its services'),
  }),
);

export type CreateVpcBody = Type.Static<typeof CreateVpcBody>;

export const RenameVpcBody = Named('RenameVpc', Type.Object({ name: name('1 to 128 characters') }));

export const RenamedVpcSchema = Named(
  'RenamedVpc',
  Type.Object({ ...VpcSchema.properties, message: Type.String() }),
);

export const PeeringSchema = Named(
  'Peering',
  Type.Object({
    id: Type.String({ description: 'digits' }),
    peer_account_id: Type.String(),
    peer_region_code: Type.String(),
    peer_vpc_id: Type.String(),
    status: StringEnum(PEERING_STATUSES, {
      description:
        'pending: the other side has not asked yet; active: the networks reach each other',
    }),
    error_message: Type.Optional(
      Type.String({ description: 'why it failed or ended, and what to do about it' }),
    ),
    provisioned_id: Type.Optional(
      Type.String({ description: 'of the connection, once it is active; the same on both sides' }),
    ),
    ignored,
  }),
);

export type Peering = Type.Static<typeof PeeringSchema>;

export const CreatePeeringBody = Named(
  'CreatePeering',
  Type.Object({
    peer_account_id: Type.String({
      minLength: 1,
      maxLength: 64,
      pattern: VISIBLE_PATTERN,
      description: 'the project of the other VPC',
    }),
    peer_region_code: Type.String({
      minLength: 1,
      maxLength: 64,
      pattern: VISIBLE_PATTERN,
      description: 'its region',
    }),
    peer_vpc_id: Type.String({
      minLength: 1,
      maxLength: 64,
      pattern: VISIBLE_PATTERN,
      description: 'the other VPC',
    }),
  }),
);

export type CreatePeeringBody = Type.Static<typeof CreatePeeringBody>;

export const AttachBody = Named(
  'ServiceVpcInput',
  Type.Object({ vpc_id: vpcId('the VPC to attach the service to') }),
);

export const DetachBody = Named(
  'DetachInput',
  Type.Object({
    vpc_id: Type.Optional(vpcId('the VPC that the service is in, as a check')),
  }),
);

// Schemas of allow lists: the networks whose clients may connect to a service.

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
