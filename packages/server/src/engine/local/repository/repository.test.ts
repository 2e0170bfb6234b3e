import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import { usedBytes } from '../../../lib/untrusted-files.ts';
import { commitAt, placed, walFile } from '../../postgres/data/wal.testing.ts';
import { dueBackup, newestSnapshot, directoriesBefore } from './backup.ts';
import { safeTo } from './ship.ts';
import {
  describeState,
  emptyState,
  pendingFiles,
  readState,
  writeState,
  type KnownBackup,
  type ShipState,
} from './state.ts';

let paths: InstancePaths;
beforeEach(async () => {
  paths = instancePaths(await mkdtemp(join(tmpdir(), 'howdah-')));
  await mkdir(paths.archive);
});
afterEach(() => rm(paths.root, { recursive: true }));

const wal = (timeline: number, n: number): string =>
  `0000000${timeline}00000000000000${n.toString(16).toUpperCase().padStart(2, '0')}`;

test('WAL is pushed in order, once, with histories, and none that no backup needs', async () => {
  const names = [wal(1, 1), wal(1, 2), wal(1, 3), '00000002.history', wal(2, 3), wal(2, 4)];
  const others = ['archtemp.x', `${wal(1, 4)}.partial`, `${wal(1, 2)}.00000028.backup`];
  for (const name of [...others, ...names.toReversed()])
    await writeFile(join(paths.archive, name), '');
  const state = emptyState('r', null);
  expect(await pendingFiles(paths, state)).toEqual(names);
  const backup = { label: 'x', snapshot: 's', takenMs: 1, type: 'full', storageBytes: 1 } as const;
  const known = { ...state, backups: [{ ...backup, firstWal: wal(1, 2) }] };
  expect(await pendingFiles(paths, known)).toEqual(names.slice(1));
  const pushed = { ...known, pushed: { '00000001': wal(1, 3), '00000002': wal(2, 3) } };
  expect(await pendingFiles(paths, pushed)).toEqual(['00000002.history', wal(2, 4)]);
  expect(await pendingFiles(paths, { ...pushed, histories: ['00000002.history'] })).toEqual([
    wal(2, 4),
  ]);
});

test('the first backup, one after a gap and one that was asked for are urgent', async () => {
  const HOUR_MS = 3_600_000;
  await mkdir(join(paths.snapshots, 'new'), { recursive: true });
  const taken = { takenMs: 2 * HOUR_MS, firstWal: wal(1, 9), walPosition: '0/9000000' };
  await writeFile(join(paths.snapshots, 'new', 'snapshot.json'), JSON.stringify(taken));
  const policy = { backupEveryMs: HOUR_MS, fullEveryMs: 24 * HOUR_MS };
  const none = emptyState('r', null);
  const backup = { label: 'x', snapshot: 's', type: 'full', storageBytes: 1 } as const;
  const before: ShipState = { ...none, backups: [{ ...backup, takenMs: 1, firstWal: wal(1, 2) }] };
  const cutOff: ShipState = { ...before, run: { first: wal(1, 5), last: wal(1, 6) } };
  expect(await dueBackup(paths, none, policy)).toMatchObject({ type: 'full', isUrgent: true });
  expect(await dueBackup(paths, before, policy)).toMatchObject({ type: 'incr', isUrgent: false });
  expect(await dueBackup(paths, cutOff, policy)).toMatchObject({ type: 'incr', isUrgent: true });
  expect(await newestSnapshot(paths, 'incr')).toMatchObject({ isUrgent: true });
});

test('WAL that was removed before it was pushed is a gap, also after a backup alone', async () => {
  const backup = { label: 'x', snapshot: 's', takenMs: 5, type: 'full', storageBytes: 1 } as const;
  const alone: ShipState = {
    ...emptyState('r', null),
    backups: [{ ...backup, firstWal: wal(1, 2) }],
  };
  const pushed: ShipState = {
    ...alone,
    run: { first: wal(1, 2), last: wal(1, 2) },
    pushed: { '00000001': wal(1, 2) },
  };
  const gapsWith = async (state: ShipState) => (await describeState(paths, state)).gaps;
  await writeFile(join(paths.archive, wal(1, 4)), '');
  expect(await gapsWith(alone)).toEqual([{ afterMs: 5, beforeMs: null }]);
  expect(await gapsWith(pushed)).toEqual([{ afterMs: 5, beforeMs: null }]);
  await writeFile(join(paths.archive, wal(1, 3)), '');
  expect(await gapsWith(pushed)).toEqual([]);
  await writeFile(join(paths.archive, wal(1, 2)), '');
  expect(await gapsWith(alone)).toEqual([]);
});

test('before any WAL was pushed, commits after the initial snapshot are not safe', async () => {
  const takenMs = Date.parse('2026-01-02T03:04:05Z');
  const later = (ms: number): Buffer => commitAt(new Date(takenMs + ms).toISOString());
  const inPlace = (n: number, records: Buffer[]): Promise<void> =>
    writeFile(join(paths.data, 'pg_wal', wal(1, n)), placed(walFile(records), n));
  const backup = { label: 'x', snapshot: 's', takenMs, type: 'full', storageBytes: 1 } as const;
  const known = { ...backup, firstWal: wal(1, 1), isInitial: true };
  const safe = (more: Partial<KnownBackup> = {}): Promise<number | null> =>
    safeTo(paths, paths.data, { ...emptyState('r', null), backups: [{ ...known, ...more }] });
  await mkdir(join(paths.data, 'pg_wal'), { recursive: true });
  await inPlace(1, [later(-9), later(0)]);
  const beforeMs = Date.now();
  expect(await safe()).toBeGreaterThan(beforeMs - 2000);
  expect(await safe({ isInitial: false })).toBeNull();
  await inPlace(1, [later(0), later(70), later(60)]);
  expect(await safe()).toBe(takenMs + 69);
  // Commits in the next file are unknown, and so are those of a file that was archived meanwhile.
  await inPlace(1, [later(0)]);
  await inPlace(2, [later(80)]);
  expect(await safe()).toBe(takenMs);
  await rm(join(paths.data, 'pg_wal', wal(1, 2)));
  await writeFile(join(paths.archive, wal(1, 1)), '');
  expect(await safe()).toBe(takenMs);
});

test('the state of another repository, or of another upgrade, does not count', async () => {
  await writeState(paths, emptyState('one', null));
  expect(await readState(paths, 'one')).toEqual(emptyState('one', null));
  expect(await readState(paths, 'two')).toBeNull();
  const marker = { id: 'a', installation: '18-system', provisioned: true };
  await writeFile(paths.marker, JSON.stringify({ ...marker, upgrade: 'later' }));
  expect(await readState(paths, 'one')).toBeNull();
  await writeState(paths, { ...emptyState('one', 'later'), safeToMs: 1 });
  expect((await readState(paths, 'one'))?.safeToMs).toBe(1);
  expect(await readState(paths, 'one', null)).toEqual(emptyState('one', null));
});

test('the end of a file that was left early is found', () => {
  const contents = Buffer.alloc(1024 ** 2);
  expect(usedBytes(contents)).toBe(0);
  contents[200_000] = 1;
  expect(usedBytes(contents)).toBe(262_144);
  contents[contents.length - 1] = 1;
  expect(usedBytes(contents)).toBe(contents.length);
});

test('a directory of WAL is removed when all of it is older than the oldest backup', () => {
  const directory = (high: number): string => `17-1/000000010000000${high}`;
  const files = [1, 2, 3].flatMap((high) => [
    `${directory(high)}/000000010000000${high}000000FF-${'a'.repeat(40)}.zst`,
    `${directory(high)}/000000010000000${high}00000001-${'b'.repeat(40)}.zst`,
  ]);
  const all = [...files, 'archive.info', '17-1/00000002.history'];
  expect(directoriesBefore('000000020000000300000002', all)).toEqual([directory(1), directory(2)]);
  expect(directoriesBefore('000000010000000100000000', all)).toEqual([]);
});
