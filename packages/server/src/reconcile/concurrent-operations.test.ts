import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createBesideRounds, UNDER_WAY } from './concurrent-operations.ts';

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
  expect(await beside.run('one', work)).toBe(UNDER_WAY);
  expect(await beside.run('one', work)).toBe(UNDER_WAY);
  expect(ends).toHaveLength(1);
  ends[0]?.();
  await expect.poll(() => beside.run('one', work)).toBe(null);
  expect(ends).toHaveLength(1);
});

test('work that failed is done again by a later round', async () => {
  const beside = createBesideRounds(60_000);
  const fail = () => Promise.reject(new Error('a lock'));
  expect(await beside.run('one', fail)).toBe('a lock');
  expect(await beside.run('one', async () => undefined)).toBe(null);
});

test('a failure that no round waited for is not the answer of a later one', async () => {
  const { ends, work } = held();
  const beside = createBesideRounds(1);
  expect(await beside.run('one', work)).toBe(UNDER_WAY);
  ends[0]?.(new Error('a lock'));
  await sleep(0);
  expect(await beside.run('one', async () => undefined)).toBe(null);
});

test('work that was forgotten begins again, also if it was done', async () => {
  const { ends, work } = held();
  const beside = createBesideRounds(1);
  expect(await beside.run('one', work)).toBe(UNDER_WAY);
  ends[0]?.();
  beside.forget('one');
  expect(await beside.run('one', work)).toBe(UNDER_WAY);
  expect(ends).toHaveLength(2);
});
