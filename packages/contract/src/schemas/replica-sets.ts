/** Schemas of read replica sets. */
import { Type } from 'typebox';
import { Named, Ref, StringEnum } from '../schema.ts';
import { EndpointSchema, PoolerSchema, VpcEndpointSchema } from './errors-and-endpoints.ts';
import { force, ignored, name, sizeInput } from './parts.ts';
import { REPLICA_SET_STATUSES } from '../status.ts';
import { ENVIRONMENTS, MAX_NODES, MAX_NODES_OF_SERVICE, SET_PURPOSES } from '../types.ts';

export const ReadReplicaSetSchema = Named(
  'ReadReplicaSet',
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    nodes: Type.Integer(),
    cpu_millis: Type.Integer({ description: 'thousandths of a core, of each node' }),
    memory_gbs: Type.Integer({ description: 'gigabytes, of each node' }),
    endpoint: Ref(EndpointSchema),
    connection_pooler: Type.Optional(Ref(PoolerSchema)),
    vpc_endpoint: Type.Optional(Ref(VpcEndpointSchema)),
    metadata: Type.Object({ environment: StringEnum(ENVIRONMENTS) }),
    purpose: StringEnum(SET_PURPOSES),
    status: StringEnum(REPLICA_SET_STATUSES),
    ignored,
  }),
);

export type ReadReplicaSet = Type.Static<typeof ReadReplicaSetSchema>;

export const ReadReplicaSetListSchema = Type.Array(Ref(ReadReplicaSetSchema));

/** The state of a replica at this moment: of a service with HA, or of a node of a set. */
export const ReplicaStateSchema = Named(
  'ReplicaState',
  Type.Object({
    node: Type.Integer({ description: 'its number, by which logs and series are asked for' }),
    serving: Type.Boolean({ description: 'whether the endpoint of its set routes to it' }),
    lag_bytes: Type.Union([Type.Integer(), Type.Null()], {
      description: 'what it has not replayed yet; null: unknown',
    }),
    lag_seconds: Type.Union([Type.Number(), Type.Null()], {
      description: 'the age of the data that it shows; null: unknown',
    }),
    detail: Type.String({ description: 'for people: what it does, or why it gets no connections' }),
  }),
);

export type ReplicaState = Type.Static<typeof ReplicaStateSchema>;

export const ReadReplicaSetDetailSchema = Named(
  'ReadReplicaSetDetail',
  Type.Object({
    ...ReadReplicaSetSchema.properties,
    lag_limit: Type.Object(
      { bytes: Type.Integer(), seconds: Type.Number() },
      { description: 'a node beyond either gets no connections' },
    ),
    node_states: Type.Array(Ref(ReplicaStateSchema)),
  }),
);

export type ReadReplicaSetDetail = Type.Static<typeof ReadReplicaSetDetailSchema>;

const purpose = StringEnum(SET_PURPOSES, {
  default: 'reports',
  description:
    'reports: queries of minutes end, and the primary keeps the rows that they see. lookups: ' +
    'short queries on the newest data; one that is in the way of a change is cancelled after 30 s',
});

export const SetPurposeBody = Named('SetPurpose', Type.Object({ purpose }));

export const CreateReplicaSetBody = Named(
  'CreateReadReplicaSet',
  Type.Object({
    name: name('1 to 128 characters'),
    nodes: Type.Integer({
      minimum: 1,
      maximum: MAX_NODES,
      description: `1 to ${MAX_NODES}; at most ${MAX_NODES_OF_SERVICE} in all sets of a service`,
    }),
    cpu_millis: sizeInput('thousandths of a core, of each node', false),
    memory_gbs: sizeInput('gigabytes, of each node', false),
    purpose: Type.Optional(purpose),
    force,
  }),
);

export type CreateReplicaSetBody = Type.Static<typeof CreateReplicaSetBody>;
