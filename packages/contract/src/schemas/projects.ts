/** Schemas of projects and their limits. */
import { Type } from 'typebox';
import { Named, Ref } from '../schema.ts';
import { RETENTION_DAYS } from '../values.ts';
import { closed, count, dateTime, limit, name } from './parts.ts';

export const ProjectSchema = Named(
  'Project',
  Type.Object({ id: Type.String(), name: Type.String() }),
);

export const ProjectLimitsSchema = Named(
  'ProjectLimits',
  Type.Object(
    {
      services: limit('services, including paused ones'),
      replica_sets: limit('read replica sets'),
      cpu_millis: limit('thousandths of a core of all services and their replicas together'),
      memory_gbs: limit('gigabytes of all services and their replicas together'),
      backup_retention_days: Type.Optional(
        Type.Union(
          [Type.Integer({ minimum: RETENTION_DAYS.min, maximum: RETENTION_DAYS.max }), Type.Null()],
          {
            description:
              'the longest backup retention of its own that a service may get, in days; services ' +
              `that have one keep it; null: ${RETENTION_DAYS.max}`,
          },
        ),
      ),
    },
    { ...closed, description: 'missing fields stay unchanged' },
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
    used: Type.Object(
      {
        services: count('services'),
        replica_sets: count('read replica sets'),
        cpu_millis: count('thousandths of a core, which are guaranteed'),
        memory_gbs: count('gigabytes'),
      },
      { description: 'the sizes of its services and their replicas together' },
    ),
    in_use: Type.Object(
      {
        cpu_millis: count('thousandths of a core'),
        cpu_beyond_millis: count('what of it is beyond the guarantees of the services'),
      },
      { description: 'of primaries and nodes of read replica sets, in the last minute' },
    ),
  }),
);

export type ProjectDetails = Type.Static<typeof ProjectDetailsSchema>;

export const CreateProjectBody = Named(
  'CreateProject',
  Type.Object({
    name: name('1 to 128 characters'),
    limits: Type.Optional(Ref(ProjectLimitsSchema)),
  }),
);

export type CreateProjectBody = Type.Static<typeof CreateProjectBody>;

export const RenameProjectBody = Named(
  'RenameProject',
  Type.Object({ name: name('1 to 128 characters') }),
);
