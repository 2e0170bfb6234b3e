import { expect, test } from 'vitest';
import { createAllowance } from './allowance.ts';

test('the allowance can be used at once; then each name waits for its own share', () => {
  let nowMs = 1_000_000;
  const allowance = createAllowance(60, 60_000, () => nowMs);
  for (let n = 0; n < 60; n++) {
    expect(allowance.waitMs('a')).toBe(0);
    allowance.spend('a');
  }
  expect(allowance.waitMs('a')).toBe(1000);
  expect(allowance.waitMs('b')).toBe(0);
  nowMs += 1000;
  expect(allowance.waitMs('a')).toBe(0);
  allowance.spend('a');
  expect(allowance.waitMs('a')).toBe(1000);
  nowMs -= 500_000;
  expect(allowance.waitMs('a')).toBeGreaterThan(0);
});

test('within any time no more is allowed than at once and by the time', () => {
  let nowMs = 0;
  const allowance = createAllowance(100, 1000, () => nowMs);
  let done = 0;
  for (; nowMs < 5000; nowMs++)
    for (let n = 0; n < 3; n++)
      if (allowance.waitMs('a') === 0) {
        allowance.spend('a');
        done++;
      }
  expect(done).toBeGreaterThanOrEqual(590);
  expect(done).toBeLessThanOrEqual(600);
});
