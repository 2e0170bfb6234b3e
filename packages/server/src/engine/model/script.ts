/**
 * The script of a model engine: how long transitions take, which of them fail, and what happens to
 * services at which time. Pure: the engine applies it.
 */
import { Type, type Static } from 'typebox';
import { Check, Errors } from 'typebox/value';
import { between } from './random.ts';

/** The kinds of transitions that a script can delay, and have fail. */
export const TRANSITIONS = [
  'create',
  'fork',
  'start',
  'stop',
  'resize',
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
export type Transition = (typeof TRANSITIONS)[number];

const DAY_MS = 86_400_000;
const closed = { additionalProperties: false } as const;
const delayMs = (description: string) =>
  Type.Integer({ minimum: 0, maximum: 365 * DAY_MS, description });
const transition = Type.Enum([...TRANSITIONS]);

const DelaySchema = Type.Union([
  delayMs('ms'),
  Type.Tuple([delayMs('the least, in ms'), delayMs('the most, in ms')]),
]);

const FailureSchema = Type.Object(
  {
    on: transition,
    reason: Type.String({ minLength: 1, maxLength: 500, description: 'the error of the step' }),
    nth: Type.Optional(
      Type.Integer({
        minimum: 1,
        description: 'only the transition of this number, from 1, since the script was set',
      }),
    ),
    times: Type.Optional(
      Type.Integer({
        minimum: 1,
        description: 'how many attempts fail; absent: all, until another script is set',
      }),
    ),
    service_id: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  },
  closed,
);

const EventSchema = Type.Object(
  {
    after_ms: Type.Optional(delayMs('the time from setting the script; absent: at once')),
    service_id: Type.String({ minLength: 1, maxLength: 64 }),
    event: Type.Union([Type.Literal('kill'), Type.Literal('write')], {
      description: 'kill: a server dies; write: a client writes rows',
    }),
    node: Type.Optional(
      Type.Integer({ minimum: 0, description: 'the server that dies; absent: the primary' }),
    ),
    rows: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  },
  closed,
);

export const ScriptSchema = Type.Object(
  {
    clock: Type.Optional(
      Type.Union([Type.Literal('real'), Type.Literal('manual')], {
        description: 'real: time passes by itself; manual: only when it is advanced',
      }),
    ),
    delays_ms: Type.Optional(
      Type.Object(
        Object.fromEntries(TRANSITIONS.map((name) => [name, Type.Optional(DelaySchema)])),
        closed,
      ),
    ),
    failures: Type.Optional(Type.Array(FailureSchema, { maxItems: 100 })),
    events: Type.Optional(Type.Array(EventSchema, { maxItems: 1000 })),
  },
  closed,
);

type Delay = Static<typeof DelaySchema>;
export type ScriptFailure = Static<typeof FailureSchema>;
export type ScriptEvent = Static<typeof EventSchema>;
/** A script that was checked. */
export type Script = Readonly<{
  clock: 'real' | 'manual';
  delaysMs: Readonly<Partial<Record<Transition, Delay>>>;
  failures: readonly ScriptFailure[];
  events: readonly ScriptEvent[];
}>;

/** Nothing takes time, and nothing fails. */
export const EMPTY_SCRIPT: Script = { clock: 'real', delaysMs: {}, failures: [], events: [] };

/** The script is not one; the message has a line for each problem. */
export class BadScript extends Error {}

/** Checks a script. @throws BadScript with each problem and its place */
export function parseScript(value: unknown): Script {
  if (!Check(ScriptSchema, value)) {
    const found = Errors(ScriptSchema, value).map(
      ({ instancePath, message }) => `script${instancePath.replaceAll('/', '.')}: ${message}`,
    );
    throw new BadScript([...new Set(found)].join('\n'));
  }
  const delaysMs: Partial<Record<Transition, Delay>> = {};
  for (const name of TRANSITIONS) {
    const delay: unknown = value.delays_ms === undefined ? undefined : value.delays_ms[name];
    if (!Check(DelaySchema, delay)) continue;
    if (typeof delay !== 'number' && delay[0] > delay[1])
      throw new BadScript(`script.delays_ms.${name}: found ${delay.join(', ')}; least first`);
    delaysMs[name] = delay;
  }
  for (const [index, { event, rows, node }] of (value.events ?? []).entries()) {
    if (event === 'write' ? node !== undefined : rows !== undefined)
      throw new BadScript(
        `script.events.${index}: ${event} has no ${event === 'write' ? 'node' : 'rows'}; remove it`,
      );
  }
  return {
    clock: value.clock ?? 'real',
    delaysMs,
    failures: value.failures ?? [],
    events: value.events ?? [],
  };
}

/** One transition of a service: its number among those of its kind since the script was set. */
export type Attempt = Readonly<{
  transition: Transition;
  serviceId: string;
  number: number;
  /** The number of attempts before this one. */
  failed: number;
}>;

/** How long a transition takes. */
export function delayOf({ delaysMs }: Script, seed: string, attempt: Attempt): number {
  const delay = delaysMs[attempt.transition] ?? 0;
  if (typeof delay === 'number') return delay;
  return between(delay, seed, 'delay', attempt.transition, attempt.serviceId, attempt.number);
}

/** Why an attempt fails; null: it does not. */
export function failureOf({ failures }: Script, attempt: Attempt): string | null {
  const failure = failures.find(
    ({ on, nth, times, service_id: serviceId }) =>
      on === attempt.transition &&
      (serviceId === undefined || serviceId === attempt.serviceId) &&
      (nth === undefined || nth === attempt.number) &&
      (times === undefined || attempt.failed < times),
  );
  return failure?.reason ?? null;
}
