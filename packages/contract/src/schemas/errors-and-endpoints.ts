/** Schemas of errors, messages and endpoints. */
import { Type } from 'typebox';
import { ERROR_CODES } from '../errors.ts';
import { Named, Ref, StringEnum } from '../schema.ts';
import { ignored } from './parts.ts';

export const ErrorBody = Named(
  'Error',
  Type.Object({
    code: StringEnum(ERROR_CODES, { description: 'for programs' }),
    message: Type.String({
      description:
        'for people: names the field or thing, what was found, what is allowed and what fixes it',
    }),
    details: Type.Optional(Type.Object({}, { additionalProperties: true })),
    request_id: Type.String({ description: 'the control log has it too' }),
  }),
);

export const MessageBody = Named(
  'Message',
  Type.Object({ message: Type.Optional(Type.String()), ignored }),
);

export const EndpointSchema = Named(
  'Endpoint',
  Type.Object({ host: Type.String(), port: Type.Integer({ minimum: 1, maximum: 65535 }) }),
);

/** Where clients inside the VPC of a service connect. */
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
        Type.Integer({
          description: 'thousandths of a core, the guarantee; absent for a shared size',
        }),
      ),
      memory_gbs: Type.Optional(
        Type.Integer({ description: 'gigabytes, the limit; absent for a shared size' }),
      ),
      storage_gb: Type.Integer({
        description:
          'gigabytes that each server of it may take of the disk: ' +
          'data, WAL, temporary files and logs, the primary with the WAL archive; ' +
          'beyond it the service is read-only',
      }),
      cpu_bound: Type.Optional(
        Type.Boolean({
          description:
            'true: its servers never use more CPU than their size; false: they may although ' +
            'sizes are bounds in its region; absent: as its region has it',
        }),
      ),
      volume_type: Type.String(),
    }),
  }),
);
