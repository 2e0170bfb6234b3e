/** Schemas of leases: databases that are taken for a test and returned after it. */
import { Type } from 'typebox';
import { Named, Ref, StringEnum } from '../schema.ts';
import { EndpointSchema } from './errors-and-endpoints.ts';
import { LEASE_RESETS } from '../values.ts';
import { closed, dateTime } from './parts.ts';

/** The most leases of one call. */
export const MAX_LEASES = 200;
/** The lifetime of a lease that is taken without one, in seconds. */
export const LEASE_TTL_SECONDS = 600;

/** The longest time until a lease ends, in seconds: a day, and each extension begins it again. */
export const MAX_LEASE_TTL_SECONDS = 86_400;

export const LeaseSchema = Named(
  'Lease',
  Type.Object({
    id: Type.String(),
    project_id: Type.String(),
    from: Type.String({ description: 'the service whose data it has' }),
    reset: StringEnum(LEASE_RESETS),
    service_id: Type.String({ description: 'the service that it is, or that its database is in' }),
    endpoint: Ref(EndpointSchema),
    database: Type.String(),
    role: Type.String({ description: 'the role to log in as' }),
    ready: Type.Boolean({ description: 'whether it accepts connections' }),
    problem: Type.Optional(Type.String({ description: 'why it is not ready yet' })),
    created: dateTime('when it was taken'),
    created_by: Type.Optional(Type.String({ description: 'the public half of the key' })),
    expires_at: Type.Optional(
      dateTime('when it is returned by itself; absent: its service was given no end'),
    ),
    initial_password: Type.Optional(
      Type.String({ description: 'in the answer to the call that takes it only' }),
    ),
  }),
);

export type Lease = Type.Static<typeof LeaseSchema>;

export const LeasesSchema = Named('Leases', Type.Object({ leases: Type.Array(Ref(LeaseSchema)) }));

const leaseTtl = (description: string) =>
  Type.Integer({ minimum: 1, maximum: MAX_LEASE_TTL_SECONDS, description });

const leaseIds = Type.Array(Type.String({ maxLength: 64 }), {
  minItems: 1,
  maxItems: MAX_LEASES,
  uniqueItems: true,
  description: `1 to ${MAX_LEASES} ids of leases`,
});

export const TakeLeasesBody = Named(
  'TakeLeases',
  Type.Object(
    {
      from: Type.String({ maxLength: 64, description: 'the id of the service to take copies of' }),
      count: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: MAX_LEASES,
          default: 1,
          description: `how many, 1 to ${MAX_LEASES}`,
        }),
      ),
      ttl_seconds: Type.Optional(
        leaseTtl(
          'each is returned so many seconds after it was taken, or last extended; default: ' +
            `${LEASE_TTL_SECONDS}, or less where the key allows no more`,
        ),
      ),
      reset: Type.Optional(
        StringEnum(LEASE_RESETS, {
          default: 'server',
          description:
            'server: each lease is a server of its own; database: a database of its own, in a ' +
            'server that leases of the same service share',
        }),
      ),
    },
    closed,
  ),
);

export type TakeLeasesBody = Type.Static<typeof TakeLeasesBody>;

export const ExtendLeasesBody = Named(
  'ExtendLeases',
  Type.Object(
    {
      lease_ids: leaseIds,
      ttl_seconds: leaseTtl('each is returned so many seconds from now'),
    },
    closed,
  ),
);

export type ExtendLeasesBody = Type.Static<typeof ExtendLeasesBody>;

export const ReturnLeasesBody = Named('ReturnLeases', Type.Object({ lease_ids: leaseIds }, closed));

export type ReturnLeasesBody = Type.Static<typeof ReturnLeasesBody>;
