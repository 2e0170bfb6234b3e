import { expect, test } from 'vitest';
import { createFlush } from './flush.ts';

/** Flushes that the test ends itself. */
function flushing() {
  const ends: ((error?: Error) => void)[] = [];
  const flush = createFlush(
    () =>
      new Promise<void>((resolve, reject) =>
        ends.push((error) => (error === undefined ? resolve() : reject(error))),
      ),
  );
  return { flush, ends };
}
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

test('callers during a flush share the next one, and wait until it has ended', async () => {
  const { flush, ends } = flushing();
  const told: string[] = [];
  const asked = ['a', 'b', 'c'].map((name) => flush().then(() => told.push(name)));
  expect(ends).toHaveLength(1);
  ends[0]?.();
  await turn();
  expect(told).toEqual(['a']);
  expect(ends).toHaveLength(2);
  const late = flush().then(() => told.push('late'));
  ends[1]?.();
  await turn();
  expect(told).toEqual(['a', 'b', 'c']);
  expect(ends).toHaveLength(3);
  ends[2]?.();
  await Promise.all([...asked, late]);
  expect(told).toEqual(['a', 'b', 'c', 'late']);
});

test('a failed flush is an error of its callers, and the next one is still made', async () => {
  const { flush, ends } = flushing();
  const first = flush();
  const second = flush();
  ends[0]?.(new Error('no disk'));
  await expect(first).rejects.toThrow('no disk');
  await turn();
  ends[1]?.();
  await second;
  const third = flush();
  ends[2]?.();
  await third;
  expect(ends).toHaveLength(3);
});
