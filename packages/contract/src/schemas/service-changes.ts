/** Bodies of the calls that create and change services. */
import { Type } from 'typebox';
import { documented, Named, StringEnum } from '../schema.ts';
import {
  closed,
  dateTime,
  force,
  lifetime,
  name,
  NO_CONTROL_CHARACTERS,
  pgVersion,
  regionCode,
  replicaCount,
  sizeInput,
  cpuBound,
  storageGb,
  syncReplicaCount,
  autoSuspendSeconds,
  ttlSeconds,
  uniqueName,
  vpcId,
} from './parts.ts';
import { OPERATION_KINDS } from '../status.ts';
import { ADDONS, ENVIRONMENTS, PASSWORD_CHARACTERS, SERVICE_TYPES } from '../types.ts';
import { DRILL_KINDS, FORK_STRATEGIES, RESET_TARGETS } from '../values.ts';

export const CreateServiceBody = Named(
  'CreateService',
  Type.Object({
    name: name('1 to 128 characters'),
    unique_name: Type.Optional(uniqueName),
    addons: Type.Optional(
      Type.Array(StringEnum(ADDONS), {
        uniqueItems: true,
        maxItems: ADDONS.length,
        description:
          'time-series → TIMESCALEDB, ai → VECTOR, both → TIMESCALEDB with vector, none → POSTGRES',
      }),
    ),
    service_type: Type.Optional(
      StringEnum(SERVICE_TYPES, { description: 'in place of addons, or the type that they make' }),
    ),
    pg_version: Type.Optional(
      pgVersion('default: as the region chooses for the type; GET /regions lists them'),
    ),
    region_code: Type.Optional(regionCode('default: the first region')),
    replica_count: Type.Optional(replicaCount),
    sync_replica_count: Type.Optional(syncReplicaCount),
    cpu_millis: Type.Optional(sizeInput('thousandths of a core, or "shared"', true)),
    memory_gbs: Type.Optional(sizeInput('gigabytes, or "shared"', true)),
    storage_gb: Type.Optional(
      storageGb(
        'gigabytes of disk for each of its servers; default: 5 for each of memory, 10 at least',
      ),
    ),
    cpu_bound: Type.Optional(cpuBound('as its region has it')),
    auto_suspend_seconds: Type.Optional(
      autoSuspendSeconds('as the key says, where a DEV service can; else never'),
    ),
    environment_tag: Type.Optional(StringEnum(ENVIRONMENTS, { default: 'DEV' })),
    enable_pooler: Type.Optional(Type.Boolean({ description: 'with a connection pooler' })),
    ...lifetime('as the key has it, else it does not expire'),
    force,
    vpc_id: Type.Optional(
      vpcId('the VPC that the service is created in; without one, its endpoint is open to all'),
    ),
  }),
);

export type CreateServiceBody = Type.Static<typeof CreateServiceBody>;

export const ForkBody = Named(
  'ForkService',
  Type.Object({
    fork_strategy: StringEnum(FORK_STRATEGIES, { description: 'NOW, LAST_SNAPSHOT or PITR' }),
    target_time: Type.Optional(
      Type.String({
        maxLength: 64,
        ...documented({ format: 'date-time' }),
        description: 'date-time, to the microsecond; for PITR, and only there',
      }),
    ),
    name: Type.Optional(
      name(
        '1 to 128 characters; default: the name of the parent and "-fork", with a number if in use',
      ),
    ),
    unique_name: Type.Optional(uniqueName),
    cpu_millis: Type.Optional(
      sizeInput('thousandths of a core, or "shared"; default: the size of the parent', true),
    ),
    memory_gbs: Type.Optional(
      sizeInput('gigabytes, or "shared"; default: the size of the parent', true),
    ),
    storage_gb: Type.Optional(
      storageGb('gigabytes of disk, not less than its data takes; default: as the parent'),
    ),
    cpu_bound: Type.Optional(cpuBound('as the parent')),
    auto_suspend_seconds: Type.Optional(
      autoSuspendSeconds(
        'as the key says, else as the parent, where a DEV service can; else never',
      ),
    ),
    region_code: Type.Optional(regionCode('the region of the parent, by any of its names')),
    pg_version: Type.Optional(
      pgVersion('that of the parent, or a newer one that the data is copied into; not with PITR'),
    ),
    environment_tag: Type.Optional(StringEnum(ENVIRONMENTS, { default: 'DEV' })),
    ...lifetime('as the key has it, else it does not expire'),
    force,
  }),
);

export type ForkBody = Type.Static<typeof ForkBody>;

export const ResizeBody = Named(
  'ResizeInput',
  Type.Object({
    cpu_millis: Type.Optional(
      sizeInput('thousandths of a core; one of the pair implies the other', false),
    ),
    memory_gbs: Type.Optional(sizeInput('gigabytes; one of the pair implies the other', false)),
    storage_gb: Type.Optional(
      storageGb(
        'gigabytes of disk for each of its servers, not less than it takes; ' +
          'alone it needs no restart',
      ),
    ),
    cpu_bound: Type.Optional(cpuBound('as it was; on Kubernetes a change needs a restart')),
    force,
  }),
);

export type ResizeBody = Type.Static<typeof ResizeBody>;

export const SetExpiryBody = Named(
  'SetExpiry',
  Type.Object(
    {
      ttl_seconds: Type.Optional(ttlSeconds('it is deleted so many seconds from now')),
      expires_at: Type.Optional(
        Type.Union([dateTime('it is deleted at this moment'), Type.Null()], {
          description: 'in place of ttl_seconds; null: it does not expire',
        }),
      ),
      purge_on_expiry: Type.Optional(
        Type.Boolean({
          description: 'whether it cannot be restored after it has expired; default: as it was',
        }),
      ),
    },
    closed,
  ),
);

export type SetExpiryBody = Type.Static<typeof SetExpiryBody>;

export const SetAutoSuspendBody = Named(
  'SetAutoSuspend',
  Type.Object({ auto_suspend_seconds: autoSuspendSeconds('none') }, closed),
);

export type SetAutoSuspendBody = Type.Static<typeof SetAutoSuspendBody>;

export const AdoptBody = Named(
  'AdoptService',
  Type.Object(
    {
      directory: Type.String({
        minLength: 1,
        maxLength: 4096,
        pattern: NO_CONTROL_CHARACTERS,
        ...documented({ pattern: '^/[^\\u0000-\\u001f\\u007f-\\u009f]*$' }),
        description:
          'the absolute path of a directory of a service that the metadata database does not ' +
          'know, on the machine of the installation',
      }),
      name: Type.Optional(name('1 to 128 characters; default: its id')),
      vpc_id: Type.Optional(
        vpcId('the VPC that it comes into; without one, its endpoint is open to its allow list'),
      ),
      allow_list_id: Type.Optional(
        Type.String({
          maxLength: 64,
          description: 'the allow list that it gets; without one, all clients may connect',
        }),
      ),
    },
    closed,
  ),
);

export type AdoptBody = Type.Static<typeof AdoptBody>;

export const RecoverBody = Named(
  'RecoverService',
  Type.Object({
    confirm: Type.Optional(
      Type.String({
        maxLength: 512,
        description: 'the name of the service; a PROD service is recovered only with it',
      }),
    ),
  }),
);

export type RecoverBody = Type.Static<typeof RecoverBody>;

export const ResetBody = Named(
  'ResetService',
  Type.Object(
    {
      target: Type.Optional(
        StringEnum(RESET_TARGETS, {
          default: 'NOW',
          description:
            'the state of its parent: of NOW, of the BEGINNING of the fork, or of a point in ' +
            'time (PITR)',
        }),
      ),
      target_time: Type.Optional(
        Type.String({
          maxLength: 64,
          ...documented({ format: 'date-time' }),
          description: 'date-time, to the microsecond; for PITR, and only there',
        }),
      ),
      confirm: Type.Optional(
        Type.String({
          maxLength: 512,
          description: 'the name of the fork; a PROD fork is reset only with it',
        }),
      ),
    },
    closed,
  ),
);

export type ResetBody = Type.Static<typeof ResetBody>;

export const UpgradeBody = Named(
  'UpgradeService',
  Type.Object({
    pg_version: Type.Optional(pgVersion('a newer major version; GET /regions lists them')),
    try: Type.Optional(
      Type.Boolean({
        description: 'converts a copy, reports in the operation, and leaves the service alone',
      }),
    ),
    undo: Type.Optional(
      Type.Boolean({
        description:
          'in place of pg_version: the data from before the last upgrade comes back; what was ' +
          'written since then is lost',
      }),
    ),
    confirm: Type.Optional(
      Type.String({
        maxLength: 512,
        description:
          'the name of the service; a PROD service is upgraded only with it, and an upgrade is ' +
          'undone only with it',
      }),
    ),
  }),
);

export type UpgradeBody = Type.Static<typeof UpgradeBody>;

export const MoveBody = Named(
  'MoveService',
  Type.Object({
    region_code: regionCode('another region; GET /projects/{project_id}/regions lists them'),
  }),
);

export type MoveBody = Type.Static<typeof MoveBody>;

export const UpdatePasswordBody = Named(
  'UpdatePassword',
  Type.Object({
    password: Type.String({
      minLength: PASSWORD_CHARACTERS.min,
      maxLength: PASSWORD_CHARACTERS.max,
      pattern: NO_CONTROL_CHARACTERS,
      description: '8 to 128 characters without control characters',
    }),
    keep_sessions: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          'whether open sessions of tsdbadmin stay, which could set another password; default: ' +
          'they end, in all servers and through the poolers',
      }),
    ),
  }),
);
export type UpdatePasswordBody = Type.Static<typeof UpdatePasswordBody>;

export const SetEnvironmentBody = Named(
  'SetEnvironmentInput',
  Type.Object({ environment: StringEnum(ENVIRONMENTS) }),
);

export const SetHABody = Named(
  'SetHAInput',
  Type.Object({
    replica_count: Type.Optional(replicaCount),
    sync_replica_count: Type.Optional(syncReplicaCount),
  }),
);

export const DrillBody = Named(
  'DrillInput',
  Type.Object({
    kind: StringEnum(DRILL_KINDS, {
      description: 'failover kills the primary, switchover swaps it in order',
    }),
    confirm: Type.Optional(
      Type.String({
        maxLength: 512,
        description: 'the name of the service; a failover of a PROD service happens only with it',
      }),
    ),
  }),
);

export const RenameBody = Named(
  'RenameService',
  Type.Object({ name: name('1 to 128 characters') }),
);

/** A service in the repository of a recovery kit. */
const KitServiceSchema = Type.Object({
  service_id: Type.String({ description: 'its id there' }),
  name: Type.String(),
  can_come_back: Type.Boolean({ description: 'whether there is a backup of it' }),
  state: Type.String({ description: 'which moment comes back of it, or why none does' }),
});

export type KitService = Type.Static<typeof KitServiceSchema>;

/**
 * The answer to a change that was only asked about: `?dry_run=true`, or a key with dry_run_only.
 */
export const DryRunSchema = Named(
  'DryRun',
  Type.Object({
    dry_run: Type.Boolean({ description: 'true: nothing was done' }),
    response_status: Type.Integer({ description: 'the status code of the answer' }),
    note: Type.Optional(
      Type.String({ description: 'what it would do beside its steps, in words' }),
    ),
    not_carried: Type.Optional(
      Type.Array(Type.String(), {
        description: 'what the result would not have of the service, in words; absent: nothing',
      }),
    ),
    services: Type.Optional(
      Type.Array(KitServiceSchema, {
        description: 'of createServiceFromKit without a service: those in the repository',
      }),
    ),
    operation: Type.Union(
      [
        Type.Object({
          kind: StringEnum(OPERATION_KINDS),
          service_id: Type.Union([Type.String(), Type.Null()], {
            description: 'null: it would be made',
          }),
          steps: Type.Array(Type.String(), {
            description: 'the steps, if nothing is in the way',
          }),
        }),
        Type.Null(),
      ],
      {
        description: 'null: none, since nothing would change, or the call changes no service',
      },
    ),
  }),
);

export type DryRunAnswer = Type.Static<typeof DryRunSchema>;
