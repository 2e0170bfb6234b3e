import { expect, test } from 'vitest';
import { deadlineMs } from './deadline.ts';

test('a move may take longer, by the size of its volume, and not for ever', () => {
  expect(deadlineMs('resize', { storage_gb: 100 })).toBe(600_000);
  expect(deadlineMs('move', { storage_gb: 100 })).toBe(3_600_000);
});
