/** Schemas of services and their members. */
import { Type } from 'typebox';
import { Named, oldSpelling, Ref, StringEnum } from '../schema.ts';
import {
  EndpointSchema,
  PoolerSchema,
  ResourceSchema,
  VpcEndpointSchema,
} from './errors-and-endpoints.ts';
import { dateTime, ignored, force, name, sizeInput } from './parts.ts';
import { exporterId } from './exporters.ts';
import { SERVICE_STATUSES, REPLICA_SET_STATUSES } from '../status.ts';
import {
  ENVIRONMENTS,
  SERVICE_TYPES,
  MAX_NODES,
  MAX_NODES_OF_SERVICE,
  SET_PURPOSES,
} from '../types.ts';

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

/**
 * What a warning is about: the disk of a region (at the region, not at its services), WAL that is
 * not archived, a snapshot not taken, a backup that did not verify itself, a repository that gets
 * no backups, a replica that is missing, processes ended by the memory limit, the quota of the
 * service, a PostgreSQL that was replaced or removed under a running server, a Cluster on
 * Kubernetes that others have changed.
 */
export const WARNING_CODES = [
  'DISK',
  'STORAGE',
  'ARCHIVE',
  'SNAPSHOT',
  'VERIFICATION',
  'REPOSITORY',
  'REPLICA_MISSING',
  'MEMORY',
  'MINOR_VERSION',
  'NOT_INSTALLED',
  'CLUSTER_CHANGED',
  'REGION_AWAY',
] as const;

export const WarningSchema = Named(
  'Warning',
  Type.Object({
    code: StringEnum(WARNING_CODES, { description: 'for programs' }),
    message: Type.String({
      description: 'for people: what is wrong, with figures, and what fixes it',
    }),
  }),
);

export type Warning = Type.Static<typeof WarningSchema>;

const wait = (description: string) =>
  Type.Optional(
    Type.Object(
      {
        millis: Type.Integer({ description: 'in thousandths' }),
        neighbours: Type.Optional(
          Type.Integer({ description: 'how many other services wanted the same; absent: unknown' }),
        ),
      },
      { description },
    ),
  );

export const WaitsSchema = Named(
  'Waits',
  Type.Object(
    {
      cpu: wait('processes that waited for a processor, in thousandths: 1500 are one and a half'),
      writes: wait(
        'the part of the time in which its writes were held back at its part of the disk',
      ),
    },
    { description: 'what the service waited for notably in the last minute; absent: for nothing' },
  ),
);

export type ServiceWaits = Type.Static<typeof WaitsSchema>;

export const ServiceSchema = Named(
  'Service',
  Type.Object({
    service_id: Type.String(),
    project_id: Type.String(),
    name: Type.String(),
    service_type: StringEnum(SERVICE_TYPES),
    pg_version: Type.Optional(
      Type.String({ description: 'the major version of PostgreSQL; absent: not known yet' }),
    ),
    upgraded: Type.Optional(
      Type.Object(
        {
          from: Type.String({ description: 'the major version before' }),
          at: dateTime('when it was done'),
        },
        {
          description:
            'the last upgrade of PostgreSQL; it can be undone while its former data is kept',
        },
      ),
    ),
    status: StringEnum(SERVICE_STATUSES),
    region_code: Type.String(),
    created: dateTime('when the create was accepted'),
    created_by: Type.Optional(
      Type.String({ description: 'public key of the caller who created or forked it' }),
    ),
    expires_at: Type.Optional(dateTime('when it is deleted; absent: it does not expire')),
    purge_on_expiry: Type.Optional(
      Type.Boolean({ description: 'true: it cannot be restored after it has expired' }),
    ),
    auto_suspend_seconds: Type.Optional(
      Type.Integer({
        description: 'it falls asleep when nobody has used it for so long; absent: it does not',
      }),
    ),
    suspended: Type.Optional(
      Type.Boolean({
        description: 'true: its server is stopped until the next client comes; absent: it is not',
      }),
    ),
    last_active_at: Type.Optional(dateTime('when it was last used before it fell asleep')),
    endpoint: Ref(EndpointSchema),
    connection_pooler: Type.Optional(Ref(PoolerSchema)),
    vpc_endpoint: Type.Optional(Ref(VpcEndpointSchema)),
    vpcEndpoint: Type.Optional(oldSpelling(Ref(VpcEndpointSchema), 'VpcEndpointDeprecated')),
    allow_list_id: Type.Optional(
      Type.String({
        description: 'the allow list of its endpoint; it has no effect while it is in a VPC',
      }),
    ),
    metric_exporter_id: Type.Optional(exporterId('the exporter that gets its samples')),
    initial_password: Type.Optional(
      Type.String({ format: 'password', description: 'in the answer to create only' }),
    ),
    assumed: Type.Optional(
      Type.Array(Type.String(), {
        description: 'in the answer to adopt only: what its directory does not say, and its value',
      }),
    ),
    forked_from: Type.Optional(
      Type.Object(
        { project_id: Type.String(), service_id: Type.String(), is_standby: Type.Boolean() },
        {
          description:
            'the parent of a fork; of a read replica set (is_standby) the service that it follows',
        },
      ),
    ),
    ha_replicas: Type.Object({ replica_count: Type.Integer(), sync_replica_count: Type.Integer() }),
    metadata: Type.Object({ environment: StringEnum(ENVIRONMENTS) }),
    metrics: Type.Object({
      memory_mb: Type.Union([Type.Integer(), Type.Null()], {
        description: 'megabytes in use; null while not running',
      }),
      milli_cpu: Type.Union([Type.Integer(), Type.Null()], {
        description: 'thousandths of a core in use; null while not running',
      }),
      storage_mb: Type.Union([Type.Integer(), Type.Null()], {
        description: 'megabytes on disk; null while not running',
      }),
    }),
    waits: Type.Optional(Ref(WaitsSchema)),
    read_replica_sets: Type.Array(Ref(ReadReplicaSetSchema)),
    resources: Type.Array(Ref(ResourceSchema)),
    warnings: Type.Optional(
      Type.Array(Ref(WarningSchema), {
        description: 'problems that need attention; absent when there are none',
      }),
    ),
    restore_note: Type.Optional(
      Type.String({
        description:
          'for how long it can be restored, and what may end that time earlier; in the answer to ' +
          'delete only',
      }),
    ),
    ignored,
  }),
);

export type Service = Type.Static<typeof ServiceSchema>;

export const ServiceListSchema = Type.Array(Ref(ServiceSchema));

/**
 * The state of a server of a service: the primary is `running`; the others are `streaming`,
 * `catching_up` or not connected to it (`disconnected`).
 */
export const MEMBER_STATES = [
  'running',
  'streaming',
  'catching_up',
  'disconnected',
  'stopped',
] as const;

export const MemberSchema = Named(
  'Member',
  Type.Object({
    node: Type.Integer({ description: 'its number: the logs are asked for by it' }),
    role: StringEnum(['primary', 'standby']),
    state: StringEnum(MEMBER_STATES),
    synchronous: Type.Boolean({
      description: 'whether it has every write before it is acknowledged',
    }),
    lag_bytes: Type.Union([Type.Integer(), Type.Null()], {
      description: 'bytes of WAL that it has not replayed; null for the primary, and if unknown',
    }),
    lag_seconds: Type.Union([Type.Number(), Type.Null()], {
      description:
        'how long the newest write took to be readable there; null where ' +
        'nothing was written lately',
    }),
  }),
);

export type Member = Type.Static<typeof MemberSchema>;

export const DeletedServiceSchema = Named(
  'DeletedService',
  Type.Object({
    service_id: Type.String(),
    name: Type.String(),
    service_type: StringEnum(SERVICE_TYPES),
    environment: StringEnum(ENVIRONMENTS),
    created_by: Type.Optional(
      Type.String({ description: 'public key of the caller who created or forked it' }),
    ),
    deleted: dateTime('when it was'),
    restorable_until: Type.Optional(
      dateTime(
        'its data is removed then, or earlier when the disk is nearly full; or its backups, if ' +
          'they are in a repository only',
      ),
    ),
    restore_note: Type.Optional(
      Type.String({
        description:
          'what may end that time earlier; absent: nothing, since its backups are in a repository',
      }),
    ),
    restore_at_risk: Type.Boolean({
      description: 'whether the disk is so full that this may happen soon',
    }),
    repository: Type.Optional(
      Type.String({
        description:
          'the name of the repository that it is restored from; absent: its data is on this ' +
          'machine',
      }),
    ),
  }),
);

// Schemas of read replica sets.

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
