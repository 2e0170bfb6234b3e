import { Type } from 'typebox';
import { ERROR_CODES } from './errors.ts';
import {
  AuditEntrySchema,
  CreateWebhookBody,
  DeliverySchema,
  EventSchema,
  WebhookSchema,
  WebhookTestSchema,
} from './events.ts';
import { Named, Ref, StringEnum } from './schema.ts';
import { STORAGE_GB } from './sizes.ts';
import {
  OPERATION_KINDS,
  OPERATION_STATUSES,
  REPLICA_SET_STATUSES,
  SERVICE_STATUSES,
} from './status.ts';
import { VISIBLE_PATTERN } from './text.ts';
import {
  ADDONS,
  ENVIRONMENTS,
  MAX_NODES,
  MAX_NODES_OF_SERVICE,
  MAX_REPLICAS,
  NAME_MAX_CHARACTERS,
  PASSWORD_CHARACTERS,
  PEERING_STATUSES,
  ROLES,
  SERVICE_TYPES,
  VPC_METHODS,
} from './types.ts';

const NO_CONTROL_CHARACTERS = '^[^\\u0000-\\u001f\\u007f-\\u009f]*$';
const closed = { additionalProperties: false } as const;
const dateTime = (description: string) => Type.String({ format: 'date-time', description });
/** Names are shown in terminals, logs and pages: no characters that nobody sees. */
const name = (description: string) =>
  Type.String({
    minLength: 1,
    maxLength: NAME_MAX_CHARACTERS,
    pattern: VISIBLE_PATTERN,
    description,
  });

export const ErrorBody = Named(
  'Error',
  Type.Object({
    code: StringEnum(ERROR_CODES, { description: 'for programs' }),
    message: Type.String({
      description:
        'for people: names the field or thing, what was found, what is allowed and what fixes it',
    }),
    details: Type.Optional(Type.Object({}, { additionalProperties: true })),
    request_id: Type.String({ description: 'stands in the log of the control plane too' }),
  }),
);

export const MessageBody = Named('Message', Type.Object({ message: Type.Optional(Type.String()) }));

export const EndpointSchema = Named(
  'Endpoint',
  Type.Object({ host: Type.String(), port: Type.Integer({ minimum: 1, maximum: 65535 }) }),
);

/** Where clients inside the VPC of a service reach it. */
export const VpcEndpointSchema = Named(
  'VpcEndpoint',
  Type.Object({
    host: Type.String(),
    port: Type.Integer({ minimum: 1, maximum: 65535 }),
    vpc_id: Type.String(),
  }),
);

export type VpcEndpoint = Type.Static<typeof VpcEndpointSchema>;

export const PoolerSchema = Named(
  'ConnectionPooler',
  Type.Object({ endpoint: Ref(EndpointSchema) }),
);

export const ResourceSchema = Named(
  'Resource',
  Type.Object({
    id: Type.String(),
    spec: Type.Object({
      cpu_millis: Type.Optional(
        Type.Integer({ description: 'thousandths of a core; absent for a shared size' }),
      ),
      memory_gbs: Type.Optional(
        Type.Integer({ description: 'gigabytes; absent for a shared size' }),
      ),
      storage_gb: Type.Integer({
        description:
          'gigabytes that each server of it may take of the disk: data, WAL, temporary files and logs, the primary with the WAL archive; beyond it the service is read-only',
      }),
      volume_type: Type.String(),
    }),
  }),
);

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
    status: StringEnum(REPLICA_SET_STATUSES),
  }),
);
export type ReadReplicaSet = Type.Static<typeof ReadReplicaSetSchema>;
export const ReadReplicaSetListSchema = Type.Array(Ref(ReadReplicaSetSchema));

/** What a replica is at this moment: of a service with HA, or a node of a set. */
export const ReplicaStateSchema = Named(
  'ReplicaState',
  Type.Object({
    node: Type.Integer({ description: 'its number, by which logs and series are asked for' }),
    serving: Type.Boolean({ description: 'whether the endpoint of its set routes to it' }),
    lag_bytes: Type.Union([Type.Integer(), Type.Null()], {
      description: 'what it has not replayed yet; null: it cannot be told',
    }),
    lag_seconds: Type.Union([Type.Number(), Type.Null()], {
      description: 'how old what it shows is; null: it cannot be told',
    }),
    detail: Type.String({ description: 'for people: what it does, or why it does not serve' }),
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

/**
 * What a warning is about: the disk that services stand on, WAL that is not archived, a snapshot not taken, a backup that did not verify
 * itself, a replica that is missing, processes ended by the memory limit, the quota of the service.
 */
export const WARNING_CODES = [
  'DISK',
  'STORAGE',
  'ARCHIVE',
  'SNAPSHOT',
  'VERIFICATION',
  'REPLICA_MISSING',
  'MEMORY',
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

export const ServiceSchema = Named(
  'Service',
  Type.Object({
    service_id: Type.String(),
    project_id: Type.String(),
    name: Type.String(),
    service_type: StringEnum(SERVICE_TYPES),
    status: StringEnum(SERVICE_STATUSES),
    region_code: Type.String(),
    created: dateTime('when the create was accepted'),
    created_by: Type.Optional(
      Type.String({ description: 'public key of the caller who created or forked it' }),
    ),
    endpoint: Ref(EndpointSchema),
    connection_pooler: Type.Optional(Ref(PoolerSchema)),
    vpc_endpoint: Type.Optional(Ref(VpcEndpointSchema)),
    vpcEndpoint: Type.Optional(Ref(VpcEndpointSchema)),
    initial_password: Type.Optional(
      Type.String({ format: 'password', description: 'in the answer to create only' }),
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
    read_replica_sets: Type.Array(Ref(ReadReplicaSetSchema)),
    resources: Type.Array(Ref(ResourceSchema)),
    warnings: Type.Optional(
      Type.Array(Ref(WarningSchema), {
        description: 'what will become trouble; absent when there is nothing to warn of',
      }),
    ),
  }),
);
export type Service = Type.Static<typeof ServiceSchema>;
export const ServiceListSchema = Type.Array(Ref(ServiceSchema));

/** A number of a request: clients send digits as a string or an integer. */
const sizeInput = (description: string, shared: boolean) =>
  Type.Union(
    [
      Type.String({ pattern: shared ? '^([0-9]{1,9}|shared)$' : '^[0-9]{1,9}$' }),
      Type.Integer({ minimum: 0 }),
    ],
    { description },
  );

const storageGb = (description: string) =>
  Type.Integer({ minimum: STORAGE_GB.min, maximum: STORAGE_GB.max, description });

const replicaCount = Type.Integer({
  minimum: 0,
  maximum: MAX_REPLICAS,
  description: `HA replicas, 0 to ${MAX_REPLICAS}`,
});
const syncReplicaCount = Type.Integer({
  minimum: 0,
  maximum: MAX_REPLICAS,
  description: 'how many of them have every write before it is acknowledged',
});

const vpcId = (description: string) =>
  Type.String({ minLength: 1, maxLength: 64, pattern: VISIBLE_PATTERN, description });

export const CreateServiceBody = Named(
  'CreateService',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      addons: Type.Optional(
        Type.Array(StringEnum(ADDONS), {
          uniqueItems: true,
          maxItems: ADDONS.length,
          description:
            'time-series → TIMESCALEDB, ai → VECTOR, both → TIMESCALEDB with vector, none → POSTGRES',
        }),
      ),
      service_type: Type.Optional(StringEnum(SERVICE_TYPES, { description: 'in place of addons' })),
      region_code: Type.Optional(Type.String({ maxLength: 64 })),
      replica_count: Type.Optional(replicaCount),
      sync_replica_count: Type.Optional(syncReplicaCount),
      cpu_millis: Type.Optional(sizeInput('thousandths of a core, or "shared"', true)),
      memory_gbs: Type.Optional(sizeInput('gigabytes, or "shared"', true)),
      storage_gb: Type.Optional(
        storageGb(
          'gigabytes of disk for each of its servers; default: 5 for each of memory, 10 at least',
        ),
      ),
      environment_tag: Type.Optional(StringEnum(ENVIRONMENTS, { default: 'DEV' })),
      enable_pooler: Type.Optional(Type.Boolean({ description: 'with a connection pooler' })),
      vpc_id: Type.Optional(
        vpcId('the VPC that the service is created in; without one, its endpoint is open to all'),
      ),
    },
    closed,
  ),
);
export type CreateServiceBody = Type.Static<typeof CreateServiceBody>;

/** Which state of the parent a fork begins with. */
export const FORK_STRATEGIES = ['NOW', 'LAST_SNAPSHOT', 'PITR'] as const;
export type ForkStrategy = (typeof FORK_STRATEGIES)[number];

/** How a data directory is cloned: in the same time whatever its size, by the number of its files, or byte by byte. */
export const CLONE_METHODS = ['subvolume', 'reflink', 'copy'] as const;
export type CloneMethod = (typeof CLONE_METHODS)[number];

export const ForkBody = Named(
  'ForkService',
  Type.Object(
    {
      fork_strategy: StringEnum(FORK_STRATEGIES, { description: 'NOW, LAST_SNAPSHOT or PITR' }),
      target_time: Type.Optional(
        Type.String({
          maxLength: 64,
          description: 'date-time, to the microsecond; for PITR, and only there',
        }),
      ),
      name: Type.Optional(name('1 to 128 characters; default: the name of the parent and "-fork"')),
      cpu_millis: Type.Optional(
        sizeInput('thousandths of a core, or "shared"; default: the size of the parent', true),
      ),
      memory_gbs: Type.Optional(
        sizeInput('gigabytes, or "shared"; default: the size of the parent', true),
      ),
      storage_gb: Type.Optional(
        storageGb('gigabytes of disk, not less than its data takes; default: as the parent'),
      ),
      environment_tag: Type.Optional(StringEnum(ENVIRONMENTS, { default: 'DEV' })),
    },
    closed,
  ),
);
export type ForkBody = Type.Static<typeof ForkBody>;

export const ResizeBody = Named(
  'ResizeInput',
  Type.Object(
    {
      cpu_millis: Type.Optional(
        sizeInput('thousandths of a core; one of the pair implies the other', false),
      ),
      memory_gbs: Type.Optional(sizeInput('gigabytes; one of the pair implies the other', false)),
      storage_gb: Type.Optional(
        storageGb(
          'gigabytes of disk for each of its servers, not less than it takes; alone it needs no restart',
        ),
      ),
    },
    closed,
  ),
);
export type ResizeBody = Type.Static<typeof ResizeBody>;
export const CreateReplicaSetBody = Named(
  'CreateReadReplicaSet',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      nodes: Type.Integer({
        minimum: 1,
        maximum: MAX_NODES,
        description: `1 to ${MAX_NODES}; at most ${MAX_NODES_OF_SERVICE} in all sets of a service`,
      }),
      cpu_millis: sizeInput('thousandths of a core, of each node', false),
      memory_gbs: sizeInput('gigabytes, of each node', false),
    },
    closed,
  ),
);
export type CreateReplicaSetBody = Type.Static<typeof CreateReplicaSetBody>;

export const UpdatePasswordBody = Named(
  'UpdatePassword',
  Type.Object(
    {
      password: Type.String({
        minLength: PASSWORD_CHARACTERS.min,
        maxLength: PASSWORD_CHARACTERS.max,
        pattern: NO_CONTROL_CHARACTERS,
        description: '8 to 128 characters without control characters',
      }),
    },
    closed,
  ),
);
export const SetEnvironmentBody = Named(
  'SetEnvironmentInput',
  Type.Object({ environment: StringEnum(ENVIRONMENTS) }, closed),
);
export const SetHABody = Named(
  'SetHAInput',
  Type.Object(
    {
      replica_count: Type.Optional(replicaCount),
      sync_replica_count: Type.Optional(syncReplicaCount),
    },
    closed,
  ),
);

/** What a drill does to a service: kill its primary, or swap it in order. */
export const DRILL_KINDS = ['failover', 'switchover'] as const;
export type DrillKind = (typeof DRILL_KINDS)[number];

export const DrillBody = Named(
  'DrillInput',
  Type.Object(
    {
      kind: StringEnum(DRILL_KINDS, {
        description: 'failover kills the primary, switchover swaps it in order',
      }),
      confirm: Type.Optional(
        Type.String({
          maxLength: 512,
          description: 'the name of the service; a failover of a PROD service happens only with it',
        }),
      ),
    },
    closed,
  ),
);
export const RenameBody = Named(
  'RenameService',
  Type.Object({ name: name('1 to 128 characters') }, closed),
);

const moment = (description: string) => Type.Union([dateTime(description), Type.Null()]);

/** What became of restoring a snapshot to verify it; a file beside the snapshot holds the same. */
export const VerificationSchema = Named(
  'Verification',
  Type.Object({
    at: dateTime('when it ended'),
    succeeded: Type.Boolean(),
    recovery_seconds: Type.Union([Type.Number(), Type.Null()], {
      description: 'from the begin of the restore to accepting connections; null: it never did',
    }),
    recovery_point: moment(
      'the last transaction that it holds is of this moment; null: it did not recover',
    ),
    checks: Type.Array(
      Type.Object({ name: Type.String(), succeeded: Type.Boolean(), detail: Type.String() }),
      {
        description: 'in their order; the first that fails is the last',
      },
    ),
    problem: Type.Optional(Type.String({ description: 'why it failed' })),
  }),
);
export type Verification = Type.Static<typeof VerificationSchema>;

export const BackupsSchema = Named(
  'Backups',
  Type.Object({
    window: Type.Object({
      earliest: moment(
        'from this moment on the service can be forked at a point in time; null: not yet',
      ),
      latest: moment('up to this one'),
      days: Type.Number({ description: 'for how long backups are kept' }),
      gaps: Type.Optional(
        Type.Array(
          Type.Object({
            after: dateTime('this moment can still be reached'),
            before: dateTime('this one can be reached again'),
          }),
          {
            description:
              'in the order of time; nothing between the two can be reached, since a WAL file is missing from the archive; absent: there is none',
          },
        ),
      ),
    }),
    snapshots: Type.Array(
      Type.Object({
        id: Type.String(),
        taken: dateTime('its state is that of this moment'),
        kind: StringEnum(['initial', 'scheduled']),
        storage_mb: Type.Integer({
          description:
            'megabytes; on a file system that clones by reference most of them are shared with the service',
        }),
        verification: Type.Optional(Ref(VerificationSchema)),
      }),
      { description: 'newest first' },
    ),
    archive_mb: Type.Integer({ description: 'megabytes of archived WAL' }),
    last_verification: Type.Optional(Ref(VerificationSchema)),
    storage: Type.Union(
      [
        Type.Object({
          total_mb: Type.Integer(),
          owned_mb: Type.Integer({ description: 'what would be free without this service' }),
          shared_mb: Type.Integer({
            description: 'shared with its snapshots, its forks, its parent or its template',
          }),
        }),
        Type.Null(),
      ],
      {
        description:
          'megabytes of the data, without archive and snapshots; null where it cannot be told',
      },
    ),
    problem: Type.Union([Type.String(), Type.Null()], { description: 'why backups do not get on' }),
  }),
);
export type Backups = Type.Static<typeof BackupsSchema>;

export const OperationStepSchema = Type.Object({
  name: Type.String(),
  started: dateTime('when it began'),
  finished: Type.Union([dateTime('when it ended'), Type.Null()]),
  detail: Type.Union([Type.String(), Type.Null()], {
    description: 'what was done, or why it did not work',
  }),
});
export type OperationStep = Type.Static<typeof OperationStepSchema>;

export const OperationSchema = Named(
  'Operation',
  Type.Object({
    id: Type.String(),
    kind: StringEnum(OPERATION_KINDS),
    service_id: Type.String(),
    status: StringEnum(OPERATION_STATUSES),
    requested_by: Type.String({ description: 'public key; "howdah" for what it began itself' }),
    steps: Type.Array(OperationStepSchema),
    error: Type.Optional(
      Type.String({
        description: 'why it failed, or why its last attempt did and is being retried',
      }),
    ),
    created: dateTime('when it was accepted'),
    finished: Type.Union([dateTime('when it ended'), Type.Null()]),
    remaining_seconds: Type.Optional(
      Type.Number({
        description:
          'about how long it will still take, from past ones of its kind; absent: ended, or nobody can tell',
      }),
    ),
  }),
);
export type Operation = Type.Static<typeof OperationSchema>;

export const LogEntrySchema = Type.Object({
  timestamp: Type.String(),
  message: Type.String(),
  severity: Type.String(),
});
export type LogEntry = Type.Static<typeof LogEntrySchema>;
export const LogsSchema = Named(
  'ServiceLogs',
  Type.Object({
    logs: Type.Array(Type.String(), { description: 'one line an entry, newest first' }),
    entries: Type.Array(LogEntrySchema),
    last_cursor: Type.Optional(
      Type.String({
        description: 'hand it back as cursor for the next page; absent on the last page',
      }),
    ),
    lastCursor: Type.Optional(Type.String({ description: 'the same, old spelling' })),
  }),
);

/** What a series does with the samples inside one bucket. */
export const SERIES_FUNCTIONS = ['avg', 'min', 'max', 'sum', 'last'] as const;
export type SeriesFunction = (typeof SERIES_FUNCTIONS)[number];
/** The series kept of every service, with their units in their names. */
export const SERIES_NAMES = [
  'cpu_millis',
  'memory_bytes',
  'storage_bytes',
  'connections',
  'transactions_per_second',
  'lag_bytes', // of those that follow
  'lag_seconds',
] as const;
export type SeriesName = (typeof SERIES_NAMES)[number];

export const SeriesBody = Named(
  'SeriesQuery',
  Type.Object(
    {
      name: Type.String({ maxLength: 64, description: 'one of available-series' }),
      from: dateTime('begin, inclusive'),
      to: dateTime('end, exclusive'),
      bucket_seconds: Type.Optional(
        Type.Integer({
          minimum: 60,
          maximum: 2_592_000,
          description: 'default 60; at most the 30 days for which samples are kept',
        }),
      ),
      fn: Type.Optional(StringEnum(SERIES_FUNCTIONS, { default: 'avg' })),
      filters: Type.Optional(
        Type.Array(
          Type.Object(
            { key: Type.String({ maxLength: 64 }), value: Type.String({ maxLength: 128 }) },
            closed,
          ),
          { maxItems: 16 },
        ),
      ),
    },
    closed,
  ),
);
export type SeriesBody = Type.Static<typeof SeriesBody>;
export const SeriesSchema = Named(
  'Series',
  Type.Object({
    labels: Type.Record(Type.String(), Type.String()),
    data: Type.Array(
      Type.Object({
        time: dateTime('begin of the bucket'),
        value: Type.Union([Type.Number(), Type.Null()]),
      }),
    ),
  }),
);

/** The most rows of one answer, and the longest time that a statement may take. */
export const QUERY_MAX_ROWS = 10_000;
export const QUERY_MAX_TIMEOUT_MS = 60_000;
export const QueryBody = Named(
  'Query',
  Type.Object(
    {
      sql: Type.String({
        minLength: 1,
        description: 'one statement that only reads; $1, $2, … stand for the parameters',
      }),
      parameters: Type.Optional(
        Type.Array(Type.Union([Type.String(), Type.Null()]), {
          maxItems: 100,
          description: "PostgreSQL's text of each, or null",
        }),
      ),
      max_rows: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: QUERY_MAX_ROWS,
          default: 100,
          description: 'more rows than these are not answered',
        }),
      ),
      timeout_ms: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: QUERY_MAX_TIMEOUT_MS,
          default: 10_000,
          description: 'a statement that takes longer is ended',
        }),
      ),
    },
    closed,
  ),
);
export type QueryBody = Type.Static<typeof QueryBody>;
export const QueryResultSchema = Named(
  'QueryResult',
  Type.Object({
    columns: Type.Array(
      Type.Object({
        name: Type.String(),
        type: Type.String({ description: 'as PostgreSQL writes it: numeric(10,2)' }),
      }),
    ),
    rows: Type.Array(Type.Array(Type.Union([Type.String(), Type.Null()])), {
      description: "each value as PostgreSQL's text, or null",
    }),
    row_count: Type.Integer({ description: 'of the rows that are answered' }),
    truncated: Type.Boolean({
      description: 'whether there were more rows: more than max_rows, or more than 4 MiB',
    }),
    elapsed_ms: Type.Number({ description: 'from sending the statement to its last row' }),
  }),
);
export type QueryResult = Type.Static<typeof QueryResultSchema>;

/** How quotas are enforced. */
export const STORAGE_METHODS = ['measured'] as const;
export type StorageMethod = (typeof STORAGE_METHODS)[number];

export const RegionSchema = Named(
  'Region',
  Type.Object({
    code: Type.String(),
    engine: Type.String(),
    limits_enforced: Type.Boolean({
      description: 'whether sizes are enforced by the operating system',
    }),
    limits_note: Type.String(),
    isolation: Type.Object(
      { isolated: Type.Boolean(), note: Type.String() },
      {
        description:
          'whether each service runs as an operating system user of its own, and what is in the way where it does not',
      },
    ),
    clone_method: StringEnum(CLONE_METHODS, {
      description: 'how forks and snapshots are made here; copy is O(n) in the size',
    }),
    fork_cost: Type.String({ description: 'the same in words' }),
    sizes: Type.Array(Type.Object({ cpu_millis: Type.Integer(), memory_gbs: Type.Integer() })),
    service_types: Type.Array(
      Type.Object({
        service_type: StringEnum(SERVICE_TYPES),
        available: Type.Boolean(),
        version: Type.Optional(Type.String({ description: 'of PostgreSQL' })),
        reason: Type.Optional(
          Type.String({ description: 'why it cannot be had here, and what adds it' }),
        ),
      }),
    ),
    high_availability: Type.Object({
      available: Type.Boolean({ description: 'whether services can have replicas that stand by' }),
      version: Type.Optional(Type.String({ description: 'of HAProxy' })),
      reason: Type.Optional(
        Type.String({ description: 'why none can be had here, and what adds it' }),
      ),
    }),
    pooler: Type.Object({
      available: Type.Boolean({ description: 'whether services can have a connection pooler' }),
      version: Type.Optional(Type.String({ description: 'of PgBouncer' })),
      reason: Type.Optional(
        Type.String({ description: 'why none can be had here, and what adds it' }),
      ),
    }),
    storage: Type.Object({
      method: StringEnum(STORAGE_METHODS, {
        description: 'how storage_gb is enforced; measured: by looking at what a service takes',
      }),
      note: Type.String({ description: 'the same in words' }),
    }),
    vpc: Type.Object({
      method: StringEnum(VPC_METHODS, {
        description:
          'bridge: a network of its own; address: rules by the address that a client comes from',
      }),
      note: Type.String({
        description: 'the same in words; for address also why, and what adds the other',
      }),
    }),
  }),
);

/** How what was looked at is: as it is best, lacking something, or worth knowing. */
export const FINDING_STATES = ['ok', 'missing', 'note'] as const;
export const FindingSchema = Named(
  'Finding',
  Type.Object({
    what: Type.String({ description: 'what was looked at' }),
    state: StringEnum(FINDING_STATES, {
      description:
        'missing: something cannot be had without it; note: it works, and could be better',
    }),
    found: Type.String(),
    remedy: Type.Optional(Type.String({ description: 'what adds or fixes it: a command, mostly' })),
  }),
);
/** One thing that `howdah doctor` looked at. */
export type Finding = Type.Static<typeof FindingSchema>;

// ── VPCs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

export const VpcSchema = Named(
  'Vpc',
  Type.Object({
    id: Type.String({ description: 'digits' }),
    name: Type.String(),
    cidr: Type.String({ description: 'the addresses of the network: 10.1.0.0/16' }),
    region_code: Type.String(),
  }),
);
export type Vpc = Type.Static<typeof VpcSchema>;

export const CreateVpcBody = Named(
  'CreateVpc',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      cidr: Type.String({
        maxLength: 64,
        description: 'private IPv4 addresses, /16 to /28, like 10.1.0.0/16',
      }),
      region_code: Type.String({ maxLength: 64 }),
    },
    closed,
  ),
);
export type CreateVpcBody = Type.Static<typeof CreateVpcBody>;
export const RenameVpcBody = Named(
  'RenameVpc',
  Type.Object({ name: name('1 to 128 characters') }, closed),
);
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
  }),
);
export type Peering = Type.Static<typeof PeeringSchema>;

export const CreatePeeringBody = Named(
  'CreatePeering',
  Type.Object(
    {
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
    },
    closed,
  ),
);
export type CreatePeeringBody = Type.Static<typeof CreatePeeringBody>;

export const AttachBody = Named(
  'ServiceVpcInput',
  Type.Object({ vpc_id: vpcId('the VPC to attach the service to') }, closed),
);
export const DetachBody = Named(
  'DetachInput',
  Type.Object(
    {
      vpc_id: Type.Optional(vpcId('the VPC that the service is in; for those who want to be sure')),
    },
    closed,
  ),
);

export const ProjectSchema = Named(
  'Project',
  Type.Object({ id: Type.String(), name: Type.String() }),
);

/** What the limits of a project are about. */
export const PROJECT_LIMITS = ['services', 'replica_sets', 'cpu_millis', 'memory_gbs'] as const;
export type ProjectLimit = (typeof PROJECT_LIMITS)[number];

const count = (description: string) => Type.Integer({ minimum: 0, description });
const limit = (description: string) =>
  Type.Optional(
    Type.Union([Type.Integer({ minimum: 0, maximum: 1_000_000_000 }), Type.Null()], {
      description: `${description}; null: no limit`,
    }),
  );

export const ProjectLimitsSchema = Named(
  'ProjectLimits',
  Type.Object(
    {
      services: limit('services, paused ones too'),
      replica_sets: limit('read replica sets'),
      cpu_millis: limit('thousandths of a core of all services and their replicas together'),
      memory_gbs: limit('gigabytes of all services and their replicas together'),
    },
    { additionalProperties: false, description: 'what is left out stays as it is' },
  ),
);
export type ProjectLimits = Type.Static<typeof ProjectLimitsSchema>;

export const ProjectDetailsSchema = Named(
  'ProjectDetails',
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    created: dateTime('when it was made'),
    operator: Type.Boolean({
      description: 'whether its admin keys manage projects and their limits',
    }),
    limits: Ref(ProjectLimitsSchema),
    used: Type.Object({
      services: count('services'),
      replica_sets: count('read replica sets'),
      cpu_millis: count('thousandths of a core'),
      memory_gbs: count('gigabytes'),
    }),
  }),
);
export type ProjectDetails = Type.Static<typeof ProjectDetailsSchema>;

export const CreateProjectBody = Named(
  'CreateProject',
  Type.Object(
    { name: name('1 to 128 characters'), limits: Type.Optional(Ref(ProjectLimitsSchema)) },
    closed,
  ),
);
export type CreateProjectBody = Type.Static<typeof CreateProjectBody>;
export const RenameProjectBody = Named(
  'RenameProject',
  Type.Object({ name: name('1 to 128 characters') }, closed),
);

export const KeySchema = Named(
  'Key',
  Type.Object({
    public_key: Type.String({ description: 'names the key; may be logged' }),
    name: Type.String(),
    role: StringEnum(ROLES),
    dry_run_only: Type.Boolean({ description: 'every change it asks for is told and not made' }),
    fork_only: Type.Boolean({
      description: 'it reads, forks, and changes nothing but forks that it made',
    }),
    created: dateTime('when it was made'),
    created_by: Type.Union([Type.String(), Type.Null()], {
      description: 'public key; null: made by the first start',
    }),
    expires_at: Type.Union([dateTime('it is refused from then on'), Type.Null()]),
    revoked_at: Type.Union([dateTime('it is refused since'), Type.Null()]),
    last_used: Type.Union([dateTime('to the minute'), Type.Null()]),
    secret_key: Type.Optional(Type.String({ description: 'in the answer to create only' })),
  }),
);
export type Key = Type.Static<typeof KeySchema>;

export const CreateKeyBody = Named(
  'CreateKey',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      role: StringEnum(ROLES, { description: 'admin, developer or viewer' }),
      expires_at: Type.Optional(dateTime('date-time in the future; absent: never')),
      dry_run_only: Type.Optional(
        Type.Boolean({ description: 'it may only ask what would be done' }),
      ),
      fork_only: Type.Optional(
        Type.Boolean({ description: 'it may change nothing but forks that it made' }),
      ),
    },
    closed,
  ),
);
export type CreateKeyBody = Type.Static<typeof CreateKeyBody>;

/** The answer to a change that was only asked about: `?dry_run=true`, or a key with dry_run_only. */
export const DryRunSchema = Named(
  'DryRun',
  Type.Object({
    dry_run: Type.Boolean({ description: 'true: nothing was done' }),
    response_status: Type.Integer({ description: 'the status code of the answer' }),
    operation: Type.Union(
      [
        Type.Object({
          kind: StringEnum(OPERATION_KINDS),
          service_id: Type.Union([Type.String(), Type.Null()], {
            description: 'null: it would be made',
          }),
          steps: Type.Array(Type.String(), {
            description: 'as they are taken when nothing is in the way',
          }),
        }),
        Type.Null(),
      ],
      {
        description:
          'null: there would be none, since all is so already or it is no change of a service',
      },
    ),
  }),
);
export type DryRunAnswer = Type.Static<typeof DryRunSchema>;

const apiKeyInfo = Type.Object({
  public_key: Type.String(),
  name: Type.String(),
  role: StringEnum(ROLES, { description: 'what the key may do' }),
  fork_only: Type.Optional(
    Type.Boolean({ description: 'whether it changes only forks that it made' }),
  ),
  dry_run_only: Type.Optional(
    Type.Boolean({ description: 'whether each change that it asks for is a dry run' }),
  ),
  created: dateTime('when the key was made'),
  project: Type.Object({ id: Type.String(), name: Type.String(), plan_type: Type.String() }),
  issuing_user: Type.Object({ id: Type.String(), name: Type.String(), email: Type.String() }),
});
export const AuthInfoSchema = Named(
  'AuthInfo',
  Type.Object({ type: StringEnum(['apiKey']), api_key: apiKeyInfo, apiKey: apiKeyInfo }),
);

/** A browser's way into the web console. */
export const OpenLinkBody = Named(
  'OpenLink',
  Type.Object({ token: Type.String({ minLength: 1, maxLength: 128 }) }, closed),
);
export const ConsoleLinkSchema = Named(
  'ConsoleLink',
  Type.Object({
    path: Type.String({ description: 'below the address of the installation' }),
    expires: dateTime('until then, once'),
  }),
);

/** How a server of a service is: the primary `running`, the others `streaming`, `catching_up` or not connected to it (`disconnected`). */
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
      description:
        'bytes of the log that it has not replayed; null for the primary, and where it cannot be told',
    }),
    lag_seconds: Type.Union([Type.Number(), Type.Null()], {
      description:
        'how long the newest write took to be readable there; null where nothing was written lately',
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
      dateTime('its data is removed then, or earlier when the disk is nearly full'),
    ),
  }),
);

export const AnalyticsSchema = Named(
  'AnalyticsAnswer',
  Type.Object({ status: StringEnum(['success']) }),
);

/** Every schema that is referred to by name. */
export const NAMED_SCHEMAS = [
  ErrorBody,
  MessageBody,
  EndpointSchema,
  VpcEndpointSchema,
  PoolerSchema,
  ResourceSchema,
  ReadReplicaSetSchema,
  ReplicaStateSchema,
  ReadReplicaSetDetailSchema,
  WarningSchema,
  ServiceSchema,
  CreateServiceBody,
  ForkBody,
  CreateReplicaSetBody,
  ResizeBody,
  VerificationSchema,
  BackupsSchema,
  UpdatePasswordBody,
  SetEnvironmentBody,
  RenameBody,
  SetHABody,
  DrillBody,
  OperationSchema,
  LogsSchema,
  SeriesBody,
  SeriesSchema,
  QueryBody,
  QueryResultSchema,
  RegionSchema,
  FindingSchema,
  VpcSchema,
  CreateVpcBody,
  RenameVpcBody,
  RenamedVpcSchema,
  PeeringSchema,
  CreatePeeringBody,
  AttachBody,
  DetachBody,
  ProjectSchema,
  ProjectLimitsSchema,
  ProjectDetailsSchema,
  CreateProjectBody,
  RenameProjectBody,
  KeySchema,
  CreateKeyBody,
  DryRunSchema,
  AuthInfoSchema,
  AnalyticsSchema,
  EventSchema,
  CreateWebhookBody,
  WebhookSchema,
  DeliverySchema,
  WebhookTestSchema,
  AuditEntrySchema,
  OpenLinkBody,
  ConsoleLinkSchema,
  MemberSchema,
  DeletedServiceSchema,
] as const;
