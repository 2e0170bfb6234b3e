/** Schemas of the simulated region: its script and its clock. */
import { Type } from 'typebox';
import { Named, StringEnum } from '../schema.ts';
import { closed, dateTime } from './parts.ts';

/** The kinds of transitions that a script can delay, and have fail. */
export const SIMULATED_TRANSITIONS = [
  'create',
  'fork',
  'start',
  'stop',
  'resize',
  'upgrade',
  'setHA',
  'readReplicaSet',
  'failover',
  'switchover',
  'drill',
  'pooler',
  'vpc',
  'delete',
  'snapshot',
  'verifyBackup',
] as const;
export type SimulatedTransition = (typeof SIMULATED_TRANSITIONS)[number];

const YEAR_SECONDS = 365 * 86_400;
const milliseconds = (description: string) =>
  Type.Integer({ minimum: 0, maximum: YEAR_SECONDS * 1000, description });

export const DelaySchema = Type.Union(
  [milliseconds('ms'), Type.Array(milliseconds('ms'), { minItems: 2, maxItems: 2 })],
  { description: 'how long it takes, in ms; two numbers: the least and the most' },
);
export type Delay = Type.Static<typeof DelaySchema>;

const FailureSchema = Type.Object(
  {
    on: StringEnum(SIMULATED_TRANSITIONS),
    reason: Type.String({ minLength: 1, maxLength: 500, description: 'the error of the step' }),
    nth: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 1_000_000,
        description: 'only the transition of this number, from 1, since the script was set',
      }),
    ),
    times: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 1_000_000,
        description: 'how many attempts fail; absent: all, until another script is set',
      }),
    ),
    service_id: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  },
  closed,
);
export type ScriptFailure = Type.Static<typeof FailureSchema>;

const ScriptEventSchema = Type.Object(
  {
    after_ms: Type.Optional(milliseconds('the time from setting the script; absent: at once')),
    service_id: Type.String({ minLength: 1, maxLength: 64 }),
    event: StringEnum(['kill', 'write'], {
      description: 'kill: a server dies; write: a client writes rows',
    }),
    node: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 1000,
        description: 'the server that dies; absent: the primary',
      }),
    ),
    rows: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  },
  closed,
);
export type ScriptEvent = Type.Static<typeof ScriptEventSchema>;

export const SimulationScriptSchema = Named(
  'SimulationScript',
  Type.Object(
    {
      clock: Type.Optional(
        StringEnum(['real', 'manual'], {
          description: 'real: time passes by itself; manual: only when it is advanced',
        }),
      ),
      delays_ms: Type.Optional(
        Type.Object(
          {
            create: Type.Optional(DelaySchema),
            fork: Type.Optional(DelaySchema),
            start: Type.Optional(DelaySchema),
            stop: Type.Optional(DelaySchema),
            resize: Type.Optional(DelaySchema),
            upgrade: Type.Optional(DelaySchema),
            setHA: Type.Optional(DelaySchema),
            readReplicaSet: Type.Optional(DelaySchema),
            failover: Type.Optional(DelaySchema),
            switchover: Type.Optional(DelaySchema),
            drill: Type.Optional(DelaySchema),
            pooler: Type.Optional(DelaySchema),
            vpc: Type.Optional(DelaySchema),
            delete: Type.Optional(DelaySchema),
            snapshot: Type.Optional(DelaySchema),
            verifyBackup: Type.Optional(DelaySchema),
          } satisfies Record<SimulatedTransition, unknown>,
          closed,
        ),
      ),
      failures: Type.Optional(Type.Array(FailureSchema, { maxItems: 100 })),
      events: Type.Optional(Type.Array(ScriptEventSchema, { maxItems: 1000 })),
    },
    closed,
  ),
);
export type SimulationScript = Type.Static<typeof SimulationScriptSchema>;

export const SimulationSchema = Named(
  'Simulation',
  Type.Object({
    now: dateTime('the time of the simulated region'),
    script: Type.Unsafe<SimulationScript>({ $ref: 'SimulationScript#' }),
  }),
);
export type Simulation = Type.Static<typeof SimulationSchema>;

export const AdvanceClockBody = Named(
  'AdvanceClock',
  Type.Object(
    {
      seconds: Type.Integer({
        minimum: 1,
        maximum: YEAR_SECONDS,
        description: 'how much time passes at once',
      }),
    },
    closed,
  ),
);
export type AdvanceClockBody = Type.Static<typeof AdvanceClockBody>;
