import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Failure } from './exit.ts';
import {
  dateAndDistance,
  distance,
  momentOf,
  relative,
  secondsOf,
  showTimesInFull,
} from './moment.ts';
import { duration } from './output.ts';

const NOW = Date.parse('2026-01-31T12:00:00.000Z');

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test.each([
  ['now', '2026-01-31T12:00:00.000Z'],
  ['yesterday', '2026-01-30T12:00:00.000Z'],
  ['-5m', '2026-01-31T11:55:00.000Z'],
  ['-90s', '2026-01-31T11:58:30.000Z'],
  ['-1d12h', '2026-01-30T00:00:00.000Z'],
  ['+1w', '2026-02-07T12:00:00.000Z'],
  // The API reads date-times, and refuses invalid ones with the name of the field.
  ['2026-01-31T11:00:00.123456+01:00', '2026-01-31T11:00:00.123456+01:00'],
])('--at %s', (text, moment) => {
  expect(momentOf('--at', text, NOW)).toBe(moment);
});

test.each(['', '5m', '-5', '-5x', 'tomorrow-ish', '31.1.2026', '-999999999w'])(
  '--at %s is refused',
  (text) => {
    expect(() => momentOf('--at', text, NOW)).toThrow(`--at: found ${text}; `);
  },
);

test.each([
  ['2026-01-31T12:00:00.400Z', 'now'],
  ['2026-01-31T11:59:59.000Z', '1 second ago'],
  ['2026-01-31T11:55:01.000Z', '4 minutes ago'],
  ['2026-01-31T09:00:00.000Z', '3 hours ago'],
  ['2026-02-03T12:00:00.000Z', 'in 3 days'],
  ['2025-12-01T12:00:00.000Z', '2025-12-01T12:00:00.000Z'],
])('%s is %s', (dateTime, words) => {
  expect(distance(dateTime, NOW)).toBe(words);
});

test('a date-time is shown with its distance', () => {
  vi.setSystemTime(NOW);
  expect(dateAndDistance('2026-01-31T11:00:00Z')).toBe('2026-01-31T11:00:00Z (1 hour ago)');
  expect(dateAndDistance('2020-01-01T00:00:00Z')).toBe('2020-01-01T00:00:00Z');
});

test('with --time iso every time is a date-time', async () => {
  vi.setSystemTime(NOW);
  const [near, far] = ['2026-01-31T11:00:00Z', '2020-01-01T00:00:00Z'];
  expect(relative(near)).toBe('1 hour ago');
  showTimesInFull();
  for (const time of [near, far])
    expect([relative(time), dateAndDistance(time)]).toEqual([time, time]);
});

test('no duration is negative, even if two clocks disagree', () => {
  expect(duration(-3)).toBe('0 ms');
  expect(duration(1500)).toBe('1.5 s');
});

test('a length of time is read in seconds, and anything else is refused', () => {
  expect(secondsOf('time', '20m')).toBe(1200);
  expect(secondsOf('time', '1d12h')).toBe(129_600);
  for (const text of ['', '20', '20x', '-5m', '+5m', 'now'])
    expect(() => secondsOf('time', text), text).toThrow(Failure);
});
