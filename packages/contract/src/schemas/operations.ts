/** Schemas of operations. */
import { Type } from 'typebox';
import { Named, StringEnum } from '../schema.ts';
import { dateTime } from './parts.ts';
import { OPERATION_KINDS, OPERATION_STATUSES, STEP_OUTCOMES } from '../status.ts';

export const OperationStepSchema = Type.Object({
  name: Type.String(),
  started: dateTime('when it began'),
  finished: Type.Union([dateTime('when it ended'), Type.Null()]),
  outcome: StringEnum(STEP_OUTCOMES, {
    description:
      'failed: it did not work, and may be tried again as a further step; interrupted: it never ' +
      'ended, since another change came first or the operation was cancelled',
  }),
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
    not_carried: Type.Optional(
      Type.Array(Type.String(), {
        description: 'what its result does not have of the service, in words; absent: nothing',
      }),
    ),
    created: dateTime('when it was accepted'),
    finished: Type.Union([dateTime('when it ended'), Type.Null()]),
    remaining_seconds: Type.Optional(
      Type.Number({
        description:
          'about how long it will still take, from past ones of its kind; ' +
          'absent: ended, or unknown',
      }),
    ),
  }),
);

export type Operation = Type.Static<typeof OperationSchema>;
