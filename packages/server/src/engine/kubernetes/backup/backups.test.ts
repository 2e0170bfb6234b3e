import type { Away } from '../region/answers.ts';
import { expect, test } from 'vitest';
import { isDue, isStuck, listOutdated, problemOf, whyNotArchived } from './backups.ts';
import { backupState, type BackupState } from './state.ts';
import { SPEC, up } from '../cluster/decide.testing.ts';
import { desiredOf, type Desired } from '../cluster/desired-state.ts';

const DAY_MS = 86_400_000;
const POLICY = { snapshotEveryMs: DAY_MS, windowMs: 3 * DAY_MS };
const NOW_MS = 100 * DAY_MS;

/** A backup of so many days ago. */
const backup = (days: number, change: Partial<BackupState> = {}): BackupState => ({
  kind: 'snapshot',
  name: `b${days}`,
  namespace: 'howdah-p',
  askedMs: NOW_MS - days * DAY_MS,
  isTaken: true,
  snapshot: `b${days}`,
  problem: null,
  verification: null,
  verifiedMs: null,
  takenMs: null,
  ...change,
});
const failed = (days: number): BackupState =>
  backup(days, { isTaken: false, snapshot: null, problem: 'no room' });
const failedBase = (days: number): BackupState => ({ ...failed(days), kind: 'base' });
const running = (days: number): BackupState => backup(days, { isTaken: false, snapshot: null });
const SECONDS = 1000 / DAY_MS;
const HOURS = 1 / 24;

test.each<[string, BackupState[], boolean]>([
  ['at first', [], true],
  ['after a day', [backup(1)], true],
  ['not before', [backup(0.9)], false],
  ['not while one is taken', [running(0.99)], false],
  ['after one that does not end', [running(1), backup(2)], true],
  ['not right after a failure', [failed(30 * SECONDS), backup(2)], false],
  ['a minute after a failure', [failed(61 * SECONDS), backup(2)], true],
  ['not a minute after failures of ten', [failed(61 * SECONDS), failed(661 * SECONDS)], false],
  ['ten minutes after failures of ten', [failed(601 * SECONDS), failed(1201 * SECONDS)], true],
  ['an hour after failures of a day', [failed(0.05), failed(1), backup(9), failed(20)], true],
  ['not before that', [failed(0.04), failed(1), backup(9), failed(20)], false],
  [
    'a minute after a failed base backup',
    [failedBase(61 * SECONDS), backup(2, { kind: 'base', snapshot: null }), failedBase(20)],
    true,
  ],
])('a backup is due: %s', (_, backups, due) => {
  expect(isDue(backups, NOW_MS, DAY_MS)).toBe(due);
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
  expect(problemOf([failed(0), backup(1)], NOW_MS)).toBe('no snapshot was taken: no room');
  expect(problemOf([backup(0), failed(1)], NOW_MS)).toBeNull();
  expect(problemOf([], NOW_MS)).toBeNull();
});

test('a backup that does not end is a problem, and after a day it is stuck', () => {
  expect(problemOf([running(5 * HOURS), backup(1)], NOW_MS)).toBeNull();
  expect(problemOf([running(6 * HOURS), backup(1)], NOW_MS)).toBe(
    'no snapshot was taken: that of 1970-04-10T18:00:00.000Z has not ended, and is replaced ' +
      'after a day',
  );
  expect(
    [running(0.99), running(1), backup(2), failed(2)].map((one) => isStuck(one, NOW_MS)),
  ).toEqual([false, true, false, false]);
});

test('a service that is not archived says why, and a read replica set says nothing', () => {
  const store = { id: 's', sinceMs: 0, endpoint: '', bucket: '', region: '', keyId: '' };
  const whyNot = (desired: Desired, isSet = true, away: Away | null = null) =>
    whyNotArchived(
      {
        cache: {
          cluster: () => up(SPEC, { desired }).cluster,
          hasPlugin: () => true,
          backups: () => [failed(0), failedBase(1)],
        },
        answers: { away: () => away, ask: () => undefined },
        objectStore: () => (isSet ? { ...store, key: '', caPem: null } : null),
      },
      { problem: () => null },
      SPEC.id,
    );
  const desired = desiredOf(SPEC);
  expect(whyNot(desired)).toContain('restart it');
  // Nothing is known of its archive then.
  const away = { why: '', isClusterSeen: false, lastMs: null };
  expect(whyNot(desired, true, away)).toBeNull();
  expect(whyNot({ ...desired, archives: true }, true, away)).toBe(
    'its Kubernetes cluster does not answer, so it is not known how far it is archived',
  );
  expect(whyNot({ ...desired, archives: true })).toBe('no base backup was taken: no room');
  expect(whyNot({ ...desired, archives: true }, false)).toContain('cannot be read');
  expect(whyNot(desired, false)).toBeNull();
  expect(whyNot({ ...desired, running: false })).toBeNull();
  expect(whyNot({ ...desired, set: { parent: 'b', limits: {} } })).toBeNull();
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
