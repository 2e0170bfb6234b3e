import { expect, test, vi } from 'vitest';
import { isRestoreOver, mustBeRemoved, msUntilRestoreIsOver } from './removal.ts';

const DAY_MS = 86_400_000;
const NOW = Date.parse('2026-11-27T10:00:00Z');
const KEPT = {
  repository: 'repository',
  since: '2026-11-20T10:00:00Z',
  until: '2026-11-28T10:00:00Z',
  isRemoved: true,
};
const DELETED = {
  deleting: true,
  project_id: 'project',
  parent_id: null,
  purge: false,
  kept: null,
  deleted_at: new Date(NOW - DAY_MS),
};

/** @param change of a deleted service @param windowMs for how long it can be restored */
const isRemoved = (change: object, windowMs = 7 * DAY_MS): boolean =>
  mustBeRemoved(Object({ ...DELETED, ...change }), windowMs);

test('the data of a deleted service stays for a restore', () => {
  expect(isRemoved({})).toBe(false);
});

test.each([
  ['a purged service', { purge: true }],
  ['a service whose backups are in a repository', { kept: KEPT }],
  ['a spare', { project_id: null }],
  ['a read replica set', { parent_id: 'service' }],
])('the data of %s is removed when it is deleted, and not before', (_, change) => {
  expect(isRemoved(change)).toBe(true);
  expect(isRemoved({ ...change, deleting: false })).toBe(false);
});

test('without a time for a restore data is removed at once', () => {
  expect(isRemoved({}, 0)).toBe(true);
});

test('the time for a restore ends by the window, or by the repository that has the backups', () => {
  vi.spyOn(Date, 'now').mockReturnValue(NOW);
  try {
    expect(isRestoreOver(DELETED, 2 * DAY_MS)).toBe(false);
    expect(msUntilRestoreIsOver(DELETED, 2 * DAY_MS)).toBe(DAY_MS);
    expect(isRestoreOver(DELETED, DAY_MS)).toBe(true);
    expect(isRestoreOver({ ...DELETED, kept: KEPT }, DAY_MS)).toBe(false);
    expect(isRestoreOver({ ...DELETED, deleted_at: null }, DAY_MS)).toBe(false);
    expect(isRestoreOver({ ...DELETED, parent_id: 'service' }, DAY_MS)).toBe(false);
    expect(isRestoreOver({ ...DELETED, project_id: null }, DAY_MS)).toBe(false);
    // A timer of less than a second would run again and again.
    expect(msUntilRestoreIsOver(DELETED, 0)).toBe(1000);
  } finally {
    vi.restoreAllMocks();
  }
});
