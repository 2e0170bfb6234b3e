import { expect, test } from 'vitest';
import { ago, ahead, bytes, days, duration, roughly } from './format.ts';

const NOW_MS = Date.parse('2026-03-01T12:00:00Z');

test('clocks that differ give no negative duration, size or time', () => {
  expect([duration(-1), duration(-90_000), roughly(-3), bytes(-4096)]).toEqual([
    '0 ms',
    '0 ms',
    '0 s',
    '0 B',
  ]);
  expect(ago('2026-03-01T12:00:30Z', NOW_MS)).toBe('just now');
  expect(ahead('2026-03-01T11:59:00Z', NOW_MS)).toBe('in less than a minute');
});

test('times are relative, in the largest suitable unit', () => {
  expect(ago('2026-03-01T11:59:20Z', NOW_MS)).toBe('40 s ago');
  expect(ago('2026-03-01T11:57:00Z', NOW_MS)).toBe('3 min ago');
  expect(ahead('2026-03-02T11:00:00Z', NOW_MS)).toBe('in 23 h');
  expect(ahead('2026-03-08T12:00:00Z', NOW_MS)).toBe('in 7 days');
});

test('days are counted', () => {
  expect([1, 3, 0.25].map(days)).toEqual(['1 day', '3 days', '0.3 days']);
});
