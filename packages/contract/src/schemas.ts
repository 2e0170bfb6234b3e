import { Type } from 'typebox';
import { ERROR_CODES } from './errors.ts';
import { Named, Ref, StringEnum } from './schema.ts';
import { OPERATION_KINDS, OPERATION_STATUSES, SERVICE_STATUSES } from './status.ts';
import { ADDONS, ENVIRONMENTS, NAME_MAX_CHARACTERS, PASSWORD_CHARACTERS, SERVICE_TYPES } from './types.ts';

const NO_CONTROL_CHARACTERS = '^[^\\u0000-\\u001f\\u007f-\\u009f]*$';
const closed = { additionalProperties: false } as const;
const dateTime = (description: string) => Type.String({ format: 'date-time', description });
/** Names are shown in terminals and logs, and the store cannot hold a NUL: no control characters. */
const name = (description: string) =>
  Type.String({ minLength: 1, maxLength: NAME_MAX_CHARACTERS, pattern: NO_CONTROL_CHARACTERS, description });

export const ErrorBody = Named(
  'Error',
  Type.Object({
    code: StringEnum(ERROR_CODES, { description: 'for programs' }),
    message: Type.String({ description: 'for people: names the field or thing, what was found, what is allowed and what mends it' }),
    details: Type.Optional(Type.Object({}, { additionalProperties: true })),
    request_id: Type.String({ description: 'stands in the log of the control plane too' }),
  }),
);

export const MessageBody = Named('Message', Type.Object({ message: Type.Optional(Type.String()) }));

export const EndpointSchema = Named('Endpoint', Type.Object({ host: Type.String(), port: Type.Integer({ minimum: 1, maximum: 65535 }) }));

export const ResourceSchema = Named(
  'Resource',
  Type.Object({
    id: Type.String(),
    spec: Type.Object({
      cpu_millis: Type.Optional(Type.Integer({ description: 'thousandths of a core; absent for a shared size' })),
      memory_gbs: Type.Optional(Type.Integer({ description: 'gigabytes; absent for a shared size' })),
      volume_type: Type.String(),
    }),
  }),
);

export const ReadReplicaSetSchema = Named('ReadReplicaSet', Type.Object({ id: Type.String(), name: Type.String() }));

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
    endpoint: Ref(EndpointSchema),
    initial_password: Type.Optional(Type.String({ format: 'password', description: 'in the answer to create only' })),
    forked_from: Type.Optional(
      Type.Object(
        { project_id: Type.String(), service_id: Type.String(), is_standby: Type.Boolean() },
        { description: 'the parent of a fork' },
      ),
    ),
    ha_replicas: Type.Object({ replica_count: Type.Integer(), sync_replica_count: Type.Integer() }),
    metadata: Type.Object({ environment: StringEnum(ENVIRONMENTS) }),
    metrics: Type.Object({
      memory_mb: Type.Union([Type.Integer(), Type.Null()], { description: 'megabytes in use; null while not running' }),
      milli_cpu: Type.Union([Type.Integer(), Type.Null()], { description: 'thousandths of a core in use; null while not running' }),
      storage_mb: Type.Union([Type.Integer(), Type.Null()], { description: 'megabytes on disk; null while not running' }),
    }),
    read_replica_sets: Type.Array(Ref(ReadReplicaSetSchema)),
    resources: Type.Array(Ref(ResourceSchema)),
  }),
);
export type Service = Type.Static<typeof ServiceSchema>;
export const ServiceListSchema = Type.Array(Ref(ServiceSchema));

/** A number of a request: clients send digits as a string or an integer. */
const sizeInput = (description: string, shared: boolean) =>
  Type.Union([Type.String({ pattern: shared ? '^([0-9]{1,9}|shared)$' : '^[0-9]{1,9}$' }), Type.Integer({ minimum: 0 })], { description });

export const CreateServiceBody = Named(
  'CreateService',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      addons: Type.Optional(
        Type.Array(StringEnum(ADDONS), {
          uniqueItems: true,
          maxItems: ADDONS.length,
          description: 'time-series → TIMESCALEDB, ai → VECTOR, both → TIMESCALEDB with vector, none → POSTGRES',
        }),
      ),
      service_type: Type.Optional(StringEnum(SERVICE_TYPES, { description: 'in place of addons' })),
      region_code: Type.Optional(Type.String({ maxLength: 64 })),
      replica_count: Type.Optional(Type.Integer({ minimum: 0, description: 'HA replicas' })),
      cpu_millis: Type.Optional(sizeInput('thousandths of a core, or "shared"', true)),
      memory_gbs: Type.Optional(sizeInput('gigabytes, or "shared"', true)),
      environment_tag: Type.Optional(StringEnum(ENVIRONMENTS, { default: 'DEV' })),
    },
    closed,
  ),
);
export type CreateServiceBody = Type.Static<typeof CreateServiceBody>;

/** Which state of the parent a fork begins with. */
export const FORK_STRATEGIES = ['NOW', 'LAST_SNAPSHOT', 'PITR'] as const;
export type ForkStrategy = (typeof FORK_STRATEGIES)[number];

export const ForkBody = Named(
  'ForkService',
  Type.Object(
    {
      fork_strategy: StringEnum(FORK_STRATEGIES, { description: 'NOW, LAST_SNAPSHOT or PITR' }),
      target_time: Type.Optional(Type.String({ maxLength: 64, description: 'date-time, to the microsecond; for PITR, and only there' })),
      name: Type.Optional(name('1 to 128 characters; default: the name of the parent and "-fork"')),
      cpu_millis: Type.Optional(sizeInput('thousandths of a core, or "shared"; default: the size of the parent', true)),
      memory_gbs: Type.Optional(sizeInput('gigabytes, or "shared"; default: the size of the parent', true)),
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
      cpu_millis: Type.Optional(sizeInput('thousandths of a core; one of the pair implies the other', false)),
      memory_gbs: Type.Optional(sizeInput('gigabytes; one of the pair implies the other', false)),
    },
    closed,
  ),
);
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
export const SetEnvironmentBody = Named('SetEnvironmentInput', Type.Object({ environment: StringEnum(ENVIRONMENTS) }, closed));
export const RenameBody = Named('RenameService', Type.Object({ name: name('1 to 128 characters') }, closed));

const moment = (description: string) => Type.Union([dateTime(description), Type.Null()]);

export const BackupsSchema = Named(
  'Backups',
  Type.Object({
    window: Type.Object({
      earliest: moment('from this moment on the service can be forked at a point in time; null: not yet'),
      latest: moment('up to this one'),
      days: Type.Number({ description: 'for how long backups are kept' }),
    }),
    snapshots: Type.Array(
      Type.Object({
        id: Type.String(),
        taken: dateTime('its state is that of this moment'),
        kind: StringEnum(['birth', 'scheduled']),
        storage_mb: Type.Integer({
          description: 'megabytes; on a file system that clones by reference most of them are shared with the service',
        }),
      }),
      { description: 'newest first' },
    ),
    archive_mb: Type.Integer({ description: 'megabytes of archived WAL' }),
    problem: Type.Union([Type.String(), Type.Null()], { description: 'why backups do not get on' }),
  }),
);
export type Backups = Type.Static<typeof BackupsSchema>;

export const OperationStepSchema = Type.Object({
  name: Type.String(),
  started: dateTime('when it began'),
  finished: Type.Union([dateTime('when it ended'), Type.Null()]),
  detail: Type.Union([Type.String(), Type.Null()], { description: 'what was done, or why it did not work' }),
});
export type OperationStep = Type.Static<typeof OperationStepSchema>;

export const OperationSchema = Named(
  'Operation',
  Type.Object({
    id: Type.String(),
    kind: StringEnum(OPERATION_KINDS),
    service_id: Type.String(),
    status: StringEnum(OPERATION_STATUSES),
    requested_by: Type.String({ description: 'public key; "howdah" for repairs it began itself' }),
    steps: Type.Array(OperationStepSchema),
    error: Type.Optional(Type.String({ description: 'why it failed, or why its last attempt did and is being retried' })),
    created: dateTime('when it was accepted'),
    finished: Type.Union([dateTime('when it ended'), Type.Null()]),
  }),
);
export type Operation = Type.Static<typeof OperationSchema>;

export const LogEntrySchema = Type.Object({ timestamp: Type.String(), message: Type.String(), severity: Type.String() });
export type LogEntry = Type.Static<typeof LogEntrySchema>;
export const LogsSchema = Named(
  'ServiceLogs',
  Type.Object({
    logs: Type.Array(Type.String(), { description: 'one line an entry, newest first' }),
    entries: Type.Array(LogEntrySchema),
    last_cursor: Type.Optional(Type.String({ description: 'hand it back as cursor for the next page; absent on the last page' })),
    lastCursor: Type.Optional(Type.String({ description: 'the same, old spelling' })),
  }),
);

/** What a series does with the samples inside one bucket. */
export const SERIES_FUNCTIONS = ['avg', 'min', 'max', 'sum', 'last'] as const;
export type SeriesFunction = (typeof SERIES_FUNCTIONS)[number];
/** The series kept of every service, with their units in their names. */
export const SERIES_NAMES = ['cpu_millis', 'memory_bytes', 'storage_bytes', 'connections', 'transactions_per_second'] as const;
export type SeriesName = (typeof SERIES_NAMES)[number];

export const SeriesBody = Named(
  'SeriesQuery',
  Type.Object(
    {
      name: Type.String({ maxLength: 64, description: 'one of available-series' }),
      from: dateTime('begin, inclusive'),
      to: dateTime('end, exclusive'),
      bucket_seconds: Type.Optional(
        Type.Integer({ minimum: 60, maximum: 2_592_000, description: 'default 60; at most the 30 days for which samples are kept' }),
      ),
      fn: Type.Optional(StringEnum(SERIES_FUNCTIONS, { default: 'avg' })),
      filters: Type.Optional(
        Type.Array(Type.Object({ key: Type.String({ maxLength: 64 }), value: Type.String({ maxLength: 128 }) }, closed), { maxItems: 16 }),
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
    data: Type.Array(Type.Object({ time: dateTime('begin of the bucket'), value: Type.Union([Type.Number(), Type.Null()]) })),
  }),
);

export const RegionSchema = Named(
  'Region',
  Type.Object({
    code: Type.String(),
    engine: Type.String(),
    limits_enforced: Type.Boolean({ description: 'whether sizes are enforced by the operating system' }),
    limits_note: Type.String(),
    sizes: Type.Array(Type.Object({ cpu_millis: Type.Integer(), memory_gbs: Type.Integer() })),
    service_types: Type.Array(
      Type.Object({
        service_type: StringEnum(SERVICE_TYPES),
        available: Type.Boolean(),
        version: Type.Optional(Type.String({ description: 'of PostgreSQL' })),
        reason: Type.Optional(Type.String({ description: 'why it cannot be had here, and what adds it' })),
      }),
    ),
  }),
);

export const ProjectSchema = Named('Project', Type.Object({ id: Type.String(), name: Type.String() }));

const apiKeyInfo = Type.Object({
  public_key: Type.String(),
  name: Type.String(),
  created: dateTime('when the key was made'),
  project: Type.Object({ id: Type.String(), name: Type.String(), plan_type: Type.String() }),
  issuing_user: Type.Object({ id: Type.String(), name: Type.String(), email: Type.String() }),
});
export const AuthInfoSchema = Named('AuthInfo', Type.Object({ type: StringEnum(['apiKey']), api_key: apiKeyInfo, apiKey: apiKeyInfo }));

export const AnalyticsSchema = Named('AnalyticsAnswer', Type.Object({ status: StringEnum(['success']) }));

/** Every schema that is referred to by name. */
export const NAMED_SCHEMAS = [
  ErrorBody,
  MessageBody,
  EndpointSchema,
  ResourceSchema,
  ReadReplicaSetSchema,
  ServiceSchema,
  CreateServiceBody,
  ForkBody,
  ResizeBody,
  BackupsSchema,
  UpdatePasswordBody,
  SetEnvironmentBody,
  RenameBody,
  OperationSchema,
  LogsSchema,
  SeriesBody,
  SeriesSchema,
  RegionSchema,
  ProjectSchema,
  AuthInfoSchema,
  AnalyticsSchema,
] as const;
