import { expect, test } from 'vitest';
import { isDue, listOutdated, problemOf } from './backups.ts';
import { backupState, type BackupState } from './service/backup-state.ts';

const DAY_MS = 86_400_000;
const POLICY = { snapshotEveryMs: DAY_MS, windowMs: 3 * DAY_MS };
const NOW_MS = 100 * DAY_MS;

/** A backup of so many days ago. */
const backup = (days: number, change: Partial<BackupState> = {}): BackupState => ({
  name: `b${days}`,
  namespace: 'howdah-p',
  askedMs: NOW_MS - days * DAY_MS,
  snapshot: `b${days}`,
  problem: null,
  ...change,
});
const failed = (days: number): BackupState => backup(days, { snapshot: null, problem: 'no room' });
const SECONDS = 1000 / DAY_MS;

test.each<[string, BackupState[], boolean]>([
  ['at first', [], true],
  ['after a day', [backup(1)], true],
  ['not before', [backup(0.9)], false],
  ['not while one is taken', [backup(2, { snapshot: null })], false],
  ['not right after a failure', [failed(30 * SECONDS), backup(2)], false],
  ['a minute after a failure', [failed(61 * SECONDS), backup(2)], true],
  ['not a minute after failures of ten', [failed(61 * SECONDS), failed(661 * SECONDS)], false],
  ['ten minutes after failures of ten', [failed(601 * SECONDS), failed(1201 * SECONDS)], true],
  ['an hour after failures of a day', [failed(0.05), failed(1), backup(9), failed(20)], true],
  ['not before that', [failed(0.04), failed(1), backup(9), failed(20)], false],
])('a snapshot is due: %s', (_, backups, due) => {
  expect(isDue(backups, NOW_MS, POLICY)).toBe(due);
});

test('snapshots of the window stay, with the newest one before it', () => {
  const outdated = (backups: BackupState[]) =>
    listOutdated(backups, NOW_MS, POLICY).map(({ name }) => name);
  expect(outdated([0, 1, 2, 3, 4, 5].map((days) => backup(days)))).toEqual(['b4', 'b5']);
  expect(outdated([backup(50)])).toEqual([]);
  expect(outdated([])).toEqual([]);
  // A failed one replaces none. The first of them says for how long they go on.
  const failures = [failed(0), failed(1), failed(2)];
  expect(outdated([...failures, backup(9), failed(10), backup(12)])).toEqual(['b12', 'b1', 'b10']);
  expect(outdated([backup(0), failed(1)])).toEqual(['b1']);
});

test('the last failure is a problem until a snapshot is taken', () => {
  expect(problemOf([failed(0), backup(1)])).toBe('no snapshot was taken: no room');
  expect(problemOf([backup(0), failed(1)])).toBeNull();
  expect(problemOf([])).toBeNull();
});

test('a backup has a snapshot once it is completed, and a reason once it has failed', () => {
  const metadata = {
    name: 's-a-1',
    namespace: 'howdah-p',
    uid: 'u',
    resourceVersion: '1',
    creationTimestamp: '2026-11-26T10:00:00Z',
  };
  const snapshotBackupStatus = {
    elements: [
      { name: 'wal', type: 'PG_WAL' },
      { name: 'data', type: 'PG_DATA' },
    ],
  };
  const found = (status: object) => {
    const { snapshot, problem } = backupState({ metadata, status });
    return { snapshot, problem };
  };
  expect(found({})).toEqual({ snapshot: null, problem: null });
  expect(found({ phase: 'finalizing', snapshotBackupStatus }).snapshot).toBeNull();
  expect(found({ phase: 'completed', snapshotBackupStatus }).snapshot).toBe('data');
  expect(found({ phase: 'failed', error: 'no room' }).problem).toBe('no room');
});
