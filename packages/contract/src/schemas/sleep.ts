/** The sessions and other parts that keep a service awake. */
import { Type } from 'typebox';
import { dateTime } from './parts.ts';
import { Named, StringEnum } from '../schema.ts';

export const HOLDER_KINDS = [
  'session',
  'prepared_transaction',
  'replication_slot',
  'autovacuum',
  'worker',
] as const;

const textOrNull = (description: string) =>
  Type.Union([Type.String(), Type.Null()], { description });

export const AwakeSchema = Named(
  'Awake',
  Type.Object({
    auto_suspend_seconds: Type.Union([Type.Integer(), Type.Null()], {
      description: 'null: it never falls asleep',
    }),
    suspended: Type.Boolean({ description: 'whether it sleeps now' }),
    last_active_at: Type.Optional(
      dateTime('when a client last sent something; absent: one is connected, or it is not known'),
    ),
    held_by: Type.Array(
      Type.Object({
        kind: StringEnum(HOLDER_KINDS),
        name: Type.String({ description: 'of the application, transaction, slot or worker' }),
        user: textOrNull('the role'),
        database: textOrNull('the database'),
        address: textOrNull('of the client'),
        since: Type.Union([dateTime('since when'), Type.Null()]),
        state: textOrNull('what a session does, as pg_stat_activity has it'),
        listens: Type.Boolean({ description: 'whether its last statement was LISTEN' }),
      }),
      { description: 'what keeps it awake; empty: it sleeps, or waits for its time to be over' },
    ),
  }),
);

export type Awake = Type.Static<typeof AwakeSchema>;
