import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { backoffMs } from './backoff.ts';

test('the wait doubles from 0.5 s to 30 s', () => {
  expect([1, 2, 3, 4, 5, 6, 7, 8, 100, 1e6].map(backoffMs)).toEqual([
    500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000,
  ]);
});

test('a wait is positive, limited, and never shorter than the one before', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2 ** 31 - 1 }), (attempt) => {
      expect(backoffMs(attempt)).toBeGreaterThanOrEqual(500);
      expect(backoffMs(attempt)).toBeLessThanOrEqual(30_000);
      expect(backoffMs(attempt + 1)).toBeGreaterThanOrEqual(backoffMs(attempt));
    }),
  );
});
