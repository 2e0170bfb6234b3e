/**
 * The script of a model engine: how long transitions take, which of them fail, and what happens to
 * services at which time. Pure: the engine applies it.
 */
import {
  SimulationScriptSchema,
  SIMULATED_TRANSITIONS,
  type ScriptEvent,
  type ScriptFailure,
  type SimulatedTransition,
} from '@howdah/contract';
import { Check, Errors } from 'typebox/value';
import { BadScript } from '../engine.ts';
import { between } from './random.ts';

/** The least and the most, in ms. */
type DelayMs = readonly [number, number];
/** A script that was checked. */
export type Script = Readonly<{
  clock: 'real' | 'manual';
  delaysMs: Readonly<Partial<Record<SimulatedTransition, DelayMs>>>;
  failures: readonly ScriptFailure[];
  events: readonly ScriptEvent[];
}>;

/** Nothing takes time, and nothing fails. */
export const EMPTY_SCRIPT: Script = { clock: 'real', delaysMs: {}, failures: [], events: [] };

/** Checks a script. @throws BadScript with each problem and its place */
export function parseScript(value: unknown): Script {
  if (!Check(SimulationScriptSchema, value)) {
    const found = Errors(SimulationScriptSchema, value).map(
      ({ instancePath, message }) => `script${instancePath.replaceAll('/', '.')}: ${message}`,
    );
    throw new BadScript([...new Set(found)].join('\n'));
  }
  const delaysMs: Partial<Record<SimulatedTransition, DelayMs>> = {};
  for (const name of SIMULATED_TRANSITIONS) {
    const delay = value.delays_ms?.[name];
    if (delay === undefined) continue;
    const [least = 0, most = least] = typeof delay === 'number' ? [delay] : delay;
    if (least > most)
      throw new BadScript(`script.delays_ms.${name}: found ${least}, ${most}; least first`);
    delaysMs[name] = [least, most];
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
  transition: SimulatedTransition;
  serviceId: string;
  number: number;
  /** The number of attempts before this one. */
  failed: number;
}>;

/** How long a transition takes. */
export function delayOf({ delaysMs }: Script, seed: string, attempt: Attempt): number {
  const delay = delaysMs[attempt.transition];
  if (delay === undefined) return 0;
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
