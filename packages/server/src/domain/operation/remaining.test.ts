import { expect, test } from 'vitest';
import { remainingSeconds } from './remaining.ts';

test('the remaining time is estimated from past operations', () => {
  const past = { median: 2, longest: 5 };
  const rows: [number, number | null][] = [
    [0, 2],
    [0.55, 1.5],
    [2, 0],
    [2.5, 2.5],
    [5, 0],
    [5.1, null],
  ];
  for (const [elapsed, left] of rows)
    expect(remainingSeconds(past, elapsed), String(elapsed)).toBe(left);
  expect(remainingSeconds(null, 1)).toBeNull();
});
