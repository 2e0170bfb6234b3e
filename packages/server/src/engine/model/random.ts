/** Plausible numbers that follow from a seed: the same question has the same answer. */
import { createHash } from 'node:crypto';

/** A number from 0 up to, not including, 1. */
export function fraction(seed: string, ...question: readonly (string | number)[]): number {
  const digest = createHash('sha256')
    .update([seed, ...question].join('\n'))
    .digest();
  return digest.readUInt32BE(0) / 2 ** 32;
}

/** A whole number from the first bound to the second, both inclusive. */
export function between(
  [first, last]: readonly [number, number],
  seed: string,
  ...question: readonly (string | number)[]
): number {
  return first + Math.floor(fraction(seed, ...question) * (last - first + 1));
}
