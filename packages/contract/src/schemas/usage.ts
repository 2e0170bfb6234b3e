/** Schemas of what the services of a project take of a machine. */
import { Type } from 'typebox';
import { Named, StringEnum } from '../schema.ts';
import { SERVICE_STATUSES } from '../status.ts';
import { ENVIRONMENTS } from '../types.ts';
import { dateTime } from './parts.ts';

export const ServiceUsageSchema = Named(
  'ServiceUsage',
  Type.Object({
    service_id: Type.String(),
    name: Type.String(),
    status: StringEnum(SERVICE_STATUSES),
    environment: StringEnum(ENVIRONMENTS),
    created: dateTime('when the create was accepted'),
    created_by: Type.Optional(Type.String({ description: 'public key of the caller who made it' })),
    key_name: Type.Optional(
      Type.String({ description: 'the name of that key; absent: the key is not kept any more' }),
    ),
    forked_from: Type.Optional(Type.String({ description: 'the service that it was forked from' })),
    read_replicas_of: Type.Optional(
      Type.String({ description: 'it is a read replica set, which follows this service' }),
    ),
    deleted: Type.Optional(dateTime('when it was deleted: its data is kept for a restore')),
    expires_at: Type.Optional(dateTime('when it is deleted; absent: it does not expire')),
    suspended: Type.Optional(
      Type.Boolean({ description: 'true: its server is stopped until the next client comes' }),
    ),
    servers: Type.Integer({
      description: 'with replicas and nodes, each of which has a copy of the data',
    }),
    milli_cpu: Type.Union([Type.Integer(), Type.Null()], {
      description: 'thousandths of a core in use; null while not running',
    }),
    memory_mb: Type.Union([Type.Integer(), Type.Null()], {
      description: 'megabytes in use; null while not running',
    }),
    own_mb: Type.Union([Type.Integer(), Type.Null()], {
      description:
        'megabytes of its data that would be free without it, those of its replicas and nodes ' +
        'too; null: not measured',
    }),
    shared_mb: Type.Union([Type.Integer(), Type.Null()], {
      description:
        'megabytes of its data that its snapshots, its forks, its parent or its template ' +
        'use too; null: not measured',
    }),
    backups_mb: Type.Union([Type.Integer(), Type.Null()], {
      description:
        'megabytes of its snapshots and of archived WAL; snapshots may share most of theirs with ' +
        'the data; null: not measured',
    }),
    why: Type.String({ description: 'why it takes this, and what would make it less' }),
  }),
);

export type ServiceUsage = Type.Static<typeof ServiceUsageSchema>;
