/** Schemas of regions and findings of the doctor. */
import { Type } from 'typebox';
import { Named, StringEnum } from '../schema.ts';
import { CLONE_METHODS, STORAGE_METHODS } from './backups.ts';
import { WarningSchema } from './services.ts';
import { REGIONAL_ACTIONS } from '../actions.ts';
import { SERVICE_TYPES, VPC_METHODS } from '../types.ts';

export const RegionSchema = Named(
  'Region',
  Type.Object({
    code: Type.String(),
    aliases: Type.Array(Type.String(), {
      description: 'further names; a service or VPC shows the name that it was asked for by',
    }),
    engine: Type.String(),
    limits_enforced: Type.Boolean({
      description: 'whether sizes are enforced by the operating system',
    }),
    limits_note: Type.String(),
    cpu_bound: Type.Boolean({
      description:
        'true: the CPU of a size is a bound for services that do not say otherwise; false: they ' +
        'may use idle processors beyond it',
    }),
    isolation: Type.Object(
      { isolated: Type.Boolean(), note: Type.String() },
      {
        description:
          'whether each service runs as an operating system user of its own, ' +
          'and what is in the way where it does not',
      },
    ),
    warnings: Type.Optional(
      Type.Array(WarningSchema, {
        description: 'what is wrong with the machine for all services; missing: nothing is',
      }),
    ),
    clone_method: StringEnum(CLONE_METHODS, {
      description: 'how forks and snapshots are made here; copy is O(n) in the size',
    }),
    fork_cost: Type.String({ description: 'the same in words' }),
    sizes: Type.Array(
      Type.Object({
        cpu_millis: Type.Integer(),
        memory_gbs: Type.Integer(),
        has_room: Type.Boolean({
          description: 'false: it is more than the machine has, and refused without force',
        }),
      }),
    ),
    capacity: Type.Optional(
      Type.Object(
        { cpu_millis: Type.Integer(), memory_bytes: Type.Integer() },
        {
          description:
            'what the machine has, or the largest node of the cluster; a larger size is refused ' +
            'without force; absent: it is not known, and no size is refused',
        },
      ),
    ),
    committed: Type.Optional(
      Type.Object(
        {
          servers: Type.Integer(),
          cpu_millis: Type.Integer(),
          memory_gbs: Type.Integer(),
          storage_gb: Type.Integer(),
          over: Type.Optional(
            Type.String({ description: 'what there is less of, in words; absent: nothing' }),
          ),
        },
        {
          description:
            'the sizes of all services of the region together, those of other projects and ' +
            'paused ones too; for keys of the operator project only',
        },
      ),
    ),
    service_types: Type.Array(
      Type.Object({
        service_type: StringEnum(SERVICE_TYPES),
        available: Type.Boolean(),
        version: Type.Optional(Type.String({ description: 'of PostgreSQL' })),
        note: Type.Optional(Type.String({ description: 'the edition of TimescaleDB' })),
        reason: Type.Optional(
          Type.String({
            description: 'why it is not available here, and the command that adds it',
          }),
        ),
        versions: Type.Array(
          Type.Object({
            pg_version: Type.String({ description: 'as a create asks for it' }),
            available: Type.Boolean(),
            version: Type.Optional(Type.String({ description: 'with the minor version' })),
            reason: Type.Optional(
              Type.String({
                description: 'why it is not available here, and the command that adds it',
              }),
            ),
          }),
          { description: 'the major versions of PostgreSQL that are installed here, newest first' },
        ),
      }),
    ),
    actions: Type.Array(
      Type.Object({
        action: StringEnum(REGIONAL_ACTIONS),
        available: Type.Boolean(),
        reason: Type.Optional(
          Type.String({ description: 'why it is not possible here, and what adds it' }),
        ),
      }),
      { description: 'the actions on services that a region may lack' },
    ),
    high_availability: Type.Object({
      available: Type.Boolean({
        description: 'whether services can have replicas that can take over',
      }),
      version: Type.Optional(Type.String({ description: 'of HAProxy' })),
      reason: Type.Optional(
        Type.String({ description: 'why it is not available here, and the command that adds it' }),
      ),
    }),
    pooler: Type.Object({
      available: Type.Boolean({ description: 'whether services can have a connection pooler' }),
      version: Type.Optional(Type.String({ description: 'of PgBouncer' })),
      reason: Type.Optional(
        Type.String({ description: 'why it is not available here, and the command that adds it' }),
      ),
    }),
    storage: Type.Object({
      method: StringEnum(STORAGE_METHODS, {
        description:
          'how storage_gb is enforced; measured: by measuring the space that a service takes',
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
export type RegionDocument = Type.Static<typeof RegionSchema>;

/** The result of a check: nothing to improve, something missing, or worth knowing. */
export const FINDING_STATES = ['ok', 'missing', 'note'] as const;

export const FindingSchema = Named(
  'Finding',
  Type.Object({
    what: Type.String({ description: 'the subject of the check' }),
    state: StringEnum(FINDING_STATES, {
      description:
        'missing: something is not available without it; note: it works, and could be better',
    }),
    found: Type.String(),
    remedy: Type.Optional(Type.String({ description: 'what adds or fixes it: a command, mostly' })),
  }),
);

/** One check of `howdah doctor`. */
export type Finding = Type.Static<typeof FindingSchema>;
