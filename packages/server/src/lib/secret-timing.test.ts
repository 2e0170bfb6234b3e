/**
 * Whether the time of a key's check reveals where it is wrong: by statistics that a slow machine
 * does not disturb.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { expect, test } from 'vitest';
import { isSecret, sha256 } from './secret.ts';

/** Makes what is stored of a secret, and returns its check. */
type Store = (secret: string) => (presented: string) => boolean;

const PAIRS = 4000;
const CALLS = 40;
/** A bound that chance exceeds once in 10⁹ runs. */
const CHANCE = 6.1;

/**
 * Times the check of secrets that are wrong at their first and at their last byte, the two in turn
 * in an order thrown for each pair: whatever else the machine does meets both alike.
 *
 * @returns z: by how many standard deviations the one wrong at its last byte took longer more often
 * than in half of the pairs
 */
function timing(store: Store): { z: number; medianNs: number } {
  const differences: number[] = [];
  for (let pair = -PAIRS / 10; pair < PAIRS; pair++) {
    const secret = randomBytes(32);
    const check = store(secret.toString('base64url'));
    const [first, last] = [wrongAt(secret, 0), wrongAt(secret, 30)];
    const lastGoesFirst = randomInt(2) === 0;
    const early = timeOf(check, lastGoesFirst ? last : first);
    const late = timeOf(check, lastGoesFirst ? first : last);
    // The first ones are compiled while they run.
    if (pair >= 0) differences.push(lastGoesFirst ? early - late : late - early);
  }
  const told = differences.filter((difference) => difference !== 0);
  const longer = told.filter((difference) => difference > 0).length;
  const z = (longer - told.length / 2) / Math.sqrt(told.length / 4);
  return { z, medianNs: (differences.toSorted((a, b) => a - b)[PAIRS / 2] ?? 0) / CALLS };
}

function wrongAt(secret: Buffer, index: number): string {
  const wrong = Buffer.from(secret);
  wrong[index] = (wrong[index] ?? 0) ^ 0xff;
  return wrong.toString('base64url');
}

function timeOf(check: (presented: string) => boolean, presented: string): number {
  const begun = process.hrtime.bigint();
  let right = 0;
  for (let call = 0; call < CALLS; call++) right += Number(check(presented));
  expect(right).toBe(0);
  return Number(process.hrtime.bigint() - begun);
}

const told = ({ z, medianNs }: { z: number; medianNs: number }): string =>
  `z ${z.toFixed(1)}, median difference ${medianNs.toFixed(1)} ns`;

test('a key that is wrong at its last byte takes as long as one that is wrong at its first', () => {
  const found = timing((secret) => {
    const hash = sha256(secret);
    return (presented) => isSecret(presented, hash);
  });
  process.stdout.write(`key checks, last byte against first, ${PAIRS} pairs: ${told(found)}\n`);
  expect(Math.abs(found.z)).toBeLessThan(CHANCE);
}, 120_000);

test('a comparison that ends at the first difference is found out', () => {
  const found = timing((secret) => (presented) => {
    for (let index = 0; index < secret.length; index++)
      if (presented.charCodeAt(index) !== secret.charCodeAt(index)) return false;
    return true;
  });
  process.stdout.write(`a comparison that ends at the first difference: ${told(found)}\n`);
  expect(found.z).toBeGreaterThan(2 * CHANCE);
}, 120_000);
