import { expect, test } from 'vitest';
import { releasesBehind } from './minor-releases.ts';

const NOW = new Date('2026-11-29T12:00:00Z');

test('a version is behind by the releases of the schedule that it lacks', () => {
  expect(releasesBehind('18.4', NOW)).toEqual({ releases: 1, since: '2026-11-12' });
  expect(releasesBehind('18.0', NOW)).toEqual({ releases: 5, since: '2025-11-13' });
  expect(releasesBehind('17.6', NOW)).toEqual({ releases: 3, since: '2026-05-14' });
});

test('a version that may be the newest is behind by none', () => {
  expect(releasesBehind('18.5', NOW)).toBeNull();
  expect(releasesBehind('18.6', NOW)).toBeNull();
  // Released two months ago, with its first minor release this month.
  expect(releasesBehind('19.1', NOW)).toBeNull();
  expect(releasesBehind('20.0', NOW)).toBeNull();
});

test('the day of a release counts, and a version without a minor number is left alone', () => {
  expect(releasesBehind('18.4', new Date('2026-11-11T23:59:59Z'))).toBeNull();
  expect(releasesBehind('18.4', new Date('2026-11-12T00:00:00Z'))?.releases).toBe(1);
  expect(releasesBehind('19beta1', NOW)).toBeNull();
});
