import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { until, untilExpected } from './until.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** The message of a wait that fails, once its time is over. */
async function messageOf(wait: Promise<unknown>): Promise<string> {
  const failed = wait.then(
    () => 'it held',
    (error: unknown) => String(error),
  );
  await vi.advanceTimersByTimeAsync(700_000);
  return failed;
}

test('a wait ends with the first value that is there', async () => {
  const values = [null, false, undefined, 0];
  const seen = until('a number is there', () => values.shift());
  await vi.advanceTimersByTimeAsync(1000);
  expect(await seen).toBe(0);
});

test('a wait that fails names the condition and the last value or error', async () => {
  expect(await messageOf(until('the standby follows', () => false))).toBe(
    'Error: waited 600 s until the standby follows; last seen: false',
  );
  expect(await messageOf(untilExpected('no session is left', () => expect(2).toBe(0)))).toContain(
    'no session is left; last seen: AssertionError: expected 2 to be +0',
  );
});
