/** Schemas of verifications of backups. */
import { Type } from 'typebox';
import { Named } from '../schema.ts';
import { count, dateTime, moment } from './parts.ts';

/** The result of restoring a snapshot to verify it; a file beside the snapshot holds the same. */
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

/** The newest backup in a repository, restored beside the service, checked and removed. */
export const OffMachineVerificationSchema = Named(
  'OffMachineVerification',
  Type.Object({
    ...VerificationSchema.properties,
    data_mb: count('megabytes of data that were restored'),
    recovery_seconds_per_gb: Type.Union([Type.Number(), Type.Null()], {
      description: 'recovery_seconds by the size of the data; null: it never accepted connections',
    }),
    lost_seconds: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
      description:
        'the most that a loss of the machine would have lost when the restore began; ' +
        'null: it did not recover',
    }),
  }),
);

export type OffMachineVerificationDocument = Type.Static<typeof OffMachineVerificationSchema>;
