import { expect, test } from 'vitest';
import { chooseKept } from './kept-backups.ts';

const NOW_MS = Date.parse('2026-01-01T00:00:00Z');
const SHORT = { id: 'short', retention_days: 7 };
const LONG = { id: 'long', retention_days: 30 };

test('a deleted service is restorable for the time of the repository that keeps it longest', () => {
  expect(chooseKept([SHORT, LONG], null, NOW_MS)).toEqual({
    repository: 'long',
    since: '2026-01-01T00:00:00.000Z',
    until: '2026-01-31T00:00:00.000Z',
    isRemoved: false,
  });
  expect(chooseKept([], null, NOW_MS)).toBeNull();
});

test.each([
  [1, '2026-01-02T00:00:00.000Z'],
  [90, '2026-04-01T00:00:00.000Z'],
])('a deleted service with a retention of %s days keeps that', (days, until) => {
  expect(chooseKept([SHORT, LONG], days, NOW_MS)).toMatchObject({ until });
  expect(chooseKept([], days, NOW_MS)).toBeNull();
});
