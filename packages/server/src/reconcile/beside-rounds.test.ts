import { expect, test } from 'vitest';
import { createBesideRounds, UNDER_WAY } from './beside-rounds.ts';

/** Work that a test ends. */
function held() {
  const ends: ((problem?: Error) => void)[] = [];
  const work = () =>
    new Promise<void>((resolve, reject) =>
      ends.push((problem) => (problem === undefined ? resolve() : reject(problem))),
    );
  return { ends, work };
}

test('a round does not wait for long work, which goes on once at a time', async () => {
  const { ends, work } = held();
  const beside = createBesideRounds(1);
  expect(await beside('one', work)).toBe(UNDER_WAY);
  expect(await beside('one', work)).toBe(UNDER_WAY);
  expect(ends).toHaveLength(1);
  ends[0]?.();
  await expect.poll(() => beside('one', work)).toBe(null);
  expect(ends).toHaveLength(1);
});

test('work that failed is done again by a later round', async () => {
  const beside = createBesideRounds(60_000);
  const fail = () => Promise.reject(new Error('a lock'));
  expect(await beside('one', fail)).toBe('a lock');
  expect(await beside('one', async () => undefined)).toBe(null);
});
