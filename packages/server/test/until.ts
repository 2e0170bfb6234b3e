/** The one way in which tests wait. */
import { inspect } from 'node:util';

/** A probe is tried again after a wait that doubles up to the second. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [1, 100];
/** The deadline is a last resort: no test measures time, and a slow machine must pass as well. */
const DEADLINE_MS = 600_000;
/** A value is shown up to this many characters. */
const SHOWN = 2000;

/** Thrown by a probe whose condition will never hold: the wait ends with it at once. */
export class Hopeless extends Error {}

/** A value that says "not yet". */
type NotYet = null | undefined | false;

/**
 * Waits until a probe holds: until it returns something else than false, null and undefined.
 * Expectations that a probe makes may fail meanwhile; so may other errors that it throws.
 *
 * @param what the condition, as "the standby follows"; a failure names it
 * @returns the value of the probe
 * @throws Error when it does not hold in time, with the last value or error of the probe; Hopeless
 */
export async function until<T>(
  what: string,
  probe: () => Promise<T> | T,
): Promise<Exclude<T, NotYet>> {
  const endMs = performance.now() + DEADLINE_MS;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    const seen = await tried(probe);
    if ('value' in seen && isThere(seen.value)) return seen.value;
    if ('error' in seen && seen.error instanceof Hopeless) throw seen.error;
    if (performance.now() > endMs) throw late(what, seen);
    await pause(pauseMs);
  }
}

/**
 * Waits until the expectations of a probe hold; see {@link until}.
 *
 * @example await untilExpected('no session is left', async () => expect(await count()).toBe(0));
 */
export async function untilExpected(what: string, probe: () => unknown): Promise<void> {
  await until(what, async () => {
    await probe();
    return true;
  });
}

/** Repeats an action for as long as a condition holds, such as a load beside a change. */
export async function during(condition: () => boolean, action: () => unknown): Promise<void> {
  while (condition()) {
    await action();
    await pause(1);
  }
}

/**
 * Lets a part of a test begin at another moment, for races whose moments are drawn from a seed. A
 * wait for an effect is {@link until}.
 */
export const atMoment = (afterMs: number): Promise<void> => pause(afterMs);

type Seen<T> = Readonly<{ value: T } | { error: unknown }>;

async function tried<T>(probe: () => Promise<T> | T): Promise<Seen<T>> {
  try {
    return { value: await probe() };
  } catch (error) {
    return { error };
  }
}

function isThere<T>(value: T): value is Exclude<T, NotYet> {
  return value !== null && value !== undefined && value !== false;
}

function late(what: string, seen: Seen<unknown>): Error {
  const last =
    'value' in seen ? inspect(seen.value, { depth: 6 }).slice(0, SHOWN) : String(seen.error);
  return new Error(`waited ${DEADLINE_MS / 1000} s until ${what}; last seen: ${last}`, {
    cause: 'error' in seen ? seen.error : undefined,
  });
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
