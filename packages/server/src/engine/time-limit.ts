/** A time limit for work in several parts, such as sessions in all databases of a tenant. */
import { EngineUnavailable } from './engine.ts';

/** @param mostMs of the next part @returns the ms that it has @throws EngineUnavailable */
export type Within = (mostMs: number) => number;

/**
 * Gives each part of some work the rest of its time.
 *
 * @returns throws EngineUnavailable when no time is left
 */
export function withinTime(limitMs: number, now: () => number): Within {
  const endMs = now() + limitMs;
  return (mostMs) => {
    const leftMs = Math.ceil(endMs - now());
    if (leftMs > 0) return Math.min(leftMs, mostMs);
    throw new EngineUnavailable(
      `its databases took longer than ${limitMs / 1000} s; drop those that are not needed, end ` +
        'sessions that hold locks there, or try again when it has less to do',
    );
  };
}
