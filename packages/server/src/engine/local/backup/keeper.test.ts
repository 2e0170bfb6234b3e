import { mkdir, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { describeBackups } from './window.ts';
import { listSnapshots } from './snapshots.ts';
import {
  backupWarnings,
  createKeeper,
  holdingBackups,
  isDue,
  keepBackups,
  relieveArchive,
} from './keeper.ts';
import { createLayout } from '../host/layout.ts';
import { bareMachine } from '../host/bare-machine.testing.ts';
import type { Machine } from '../host/machine-record.ts';
import { writeMarker } from '../host/marker.ts';
import { createServerMonitor } from '../postgres/server-monitor.ts';
import { commitAt, walFile } from '../../postgres/data/wal.testing.ts';
import { emptyState, endGaps, offMachine, writeState } from '../repository/state.ts';

const DAY_MS = 86_400_000;
const POLICY = { windowMs: 3 * DAY_MS, snapshotEveryMs: DAY_MS, verifyEveryMs: DAY_MS };
/** The number at the end of a WAL file's name. */
const wal = (number: number): string =>
  `0000000100000000000000${number.toString(16).toUpperCase().padStart(2, '0')}`;

let machine: Machine;
beforeEach(async () => {
  const layout = createLayout(await realpath(await mkdtemp(join(tmpdir(), 'hdk-'))));
  machine = bareMachine(layout);
  await mkdir(layout.services);
});
afterEach(() => rm(machine.layout.root, { recursive: true }));

/**
 * A paused service with snapshots of these ages, oldest first, each of which begins with a WAL file
 * of the same number.
 */
async function service(id: string, ages: readonly number[]) {
  const paths = machine.layout.service(id);
  for (const path of [paths.archive, paths.snapshots, join(paths.data, 'pg_wal')])
    await mkdir(path, { recursive: true });
  for (const [number, age] of ages.entries()) {
    await mkdir(join(paths.snapshots, `s${number}`));
    await writeFile(
      join(paths.snapshots, `s${number}`, 'snapshot.json'),
      JSON.stringify({
        kind: 'scheduled',
        takenMs: Date.now() - age * DAY_MS,
        firstWal: wal(number * 2),
        walPosition: '0/0',
        storageBytes: 1,
      }),
    );
  }
  for (let number = 0; number <= ages.length * 2; number++)
    await writeFile(join(paths.archive, wal(number)), '');
  await writeMarker(paths, {
    id,
    installation: '18-npm',
    provisioned: true,
    parent: null,
    began: null,
    madeIn: '',
    uid: null,
    userOf: null,
    recovery: null,
    upgrade: null,
    exchange: null,
  });
  return {
    snapshots: async () => (await readdir(paths.snapshots)).toSorted(),
    oldestWal: async () => (await readdir(paths.archive)).toSorted()[0],
  };
}

const KEEP = { removes: true, quotaBytes: 1e9 };

const newKeeper = (repositories: readonly string[] = []) =>
  createKeeper(
    machine,
    createServerMonitor(
      () => undefined,
      async () => false,
    ),
    POLICY,
    { known: () => repositories },
  );

test('all before the window is removed, but for the snapshot and WAL it begins with', async () => {
  const kept = await service('a', [9, 5, 2, 1]);
  await keepBackups(newKeeper(), 'a', KEEP);
  expect(await kept.snapshots()).toEqual(['s1', 's2', 's3']);
  expect(await kept.oldestWal()).toBe(wal(2));
});

test('with all inside the window, or one old snapshot, nothing needed is removed', async () => {
  const young = await service('young', [2, 1]);
  const old = await service('old', [400]);
  await keepBackups(newKeeper(), 'young', KEEP);
  await keepBackups(newKeeper(), 'old', KEEP);
  expect([await young.snapshots(), await young.oldestWal()]).toEqual([['s0', 's1'], wal(0)]);
  expect([await old.snapshots(), await old.oldestWal()]).toEqual([['s0'], wal(0)]);
});

test('the rest of an interrupted snapshot and WAL before the oldest one are removed', async () => {
  const kept = await service('a', [2]);
  const { snapshots, archive } = machine.layout.service('a');
  await mkdir(join(snapshots, 'half.new', 'data'), { recursive: true });
  await writeFile(join(archive, `00000000${wal(0).slice(8)}`), '');
  await keepBackups(newKeeper(), 'a', KEEP);
  expect(await kept.snapshots()).toEqual(['s0']);
  expect(await kept.oldestWal()).toBe(wal(0));
});

test('WAL that a repository lacks stays beyond the window, up to a part of the quota', async () => {
  const kept = await service('a', [9, 8, 7, 5, 1]);
  const paths = machine.layout.service('a');
  for (let number = 0; number <= 10; number++)
    await writeFile(join(paths.archive, wal(number)), Buffer.alloc(131_072, 1));
  const backup = { label: 'F', snapshot: 's0', type: 'full', storageBytes: 1 } as const;
  const state = {
    ...emptyState('offsite', null),
    backups: [{ ...backup, takenMs: 1000, firstWal: wal(0) }],
    pushed: { '00000001': wal(0) },
    run: { first: wal(0), last: wal(0) },
    lastCommitMs: 2000,
  };
  await writeState(paths, state);
  const gaps = async () => (await offMachine({ machine }, 'a', 'offsite'))?.gaps;
  const quotaBytes = 90 * 131_072;
  await keepBackups(newKeeper(['offsite']), 'a', { ...KEEP, quotaBytes });
  expect([await kept.oldestWal(), await gaps()]).toEqual([wal(1), []]);
  // Near its quota the service comes first; the WAL that is removed leaves a gap.
  await relieveArchive(newKeeper(['offsite']), 'a', { ...KEEP, quotaBytes });
  expect(await kept.oldestWal()).toBe(wal(7));
  expect(await gaps()).toEqual([{ afterMs: 2000, beforeMs: null }]);
  const shipped = { ...state, run: { first: wal(7), last: wal(9) } };
  shipped.gaps = [{ afterMs: 2000, beforeMs: null }];
  endGaps(shipped);
  expect(shipped.gaps).toEqual([{ afterMs: 2000, beforeMs: null }]);
  const later = { ...backup, takenMs: 3000, firstWal: wal(8) };
  shipped.backups = [{ ...later, takenMs: 4000 }, later, ...shipped.backups];
  endGaps(shipped);
  expect(shipped.gaps).toEqual([{ afterMs: 2000, beforeMs: 3000 }]);
  shipped.backups.pop();
  endGaps(shipped);
  expect(shipped.gaps).toEqual([]);
  // A repository that was removed waits for nothing.
  await keepBackups(newKeeper(), 'a', KEEP);
  expect(await kept.oldestWal()).toBe(wal(8));
});

test('a snapshot dated in the future is warned of; the newest one is so by its WAL', async () => {
  await service('a', [3, 1]);
  const paths = machine.layout.service('a');
  const write = async (id: string, days: number, walPosition: string) => {
    await mkdir(join(paths.snapshots, id));
    const snapshot = {
      kind: 'scheduled',
      takenMs: Date.now() + days * DAY_MS,
      firstWal: wal(4),
      walPosition,
      storageBytes: 1,
    };
    await writeFile(join(paths.snapshots, id, 'snapshot.json'), JSON.stringify(snapshot));
  };
  await mkdir(join(paths.data, 'global'));
  await writeFile(join(paths.data, 'global', 'pg_control'), '');
  await write('ahead', 10, '0/50');
  const keeper = newKeeper();
  const [ahead] = await listSnapshots(paths);
  if (ahead === undefined) throw new Error('no snapshot');
  expect(ahead.id).toBe('ahead');
  expect(await isDue(keeper, 'a', paths, ahead)).toBe(true);
  expect(await backupWarnings(keeper, 'a')).toContainEqual({
    code: 'SNAPSHOT',
    message: expect.stringContaining('the clock was set back'),
  });
  await write('after', -0.001, '0/60');
  const [after] = await listSnapshots(paths);
  expect(after?.id).toBe('after');
  if (after !== undefined) expect(await isDue(keeper, 'a', paths, after)).toBe(false);
});

test('a snapshot is due by its age, and after WAL that is missing', async () => {
  await service('a', [5, 2, 0.5]);
  const paths = machine.layout.service('a');
  const keeper = newKeeper();
  const [newest] = await listSnapshots(paths);
  if (newest === undefined) throw new Error('it has no snapshot');
  expect(await isDue(keeper, 'a', paths, newest)).toBe(false);
  // Whether an old one is due is asked of the server, which does not run.
  const old = { ...newest, takenMs: newest.takenMs - DAY_MS };
  await expect(isDue(keeper, 'a', paths, old)).rejects.toThrow('not running');
  await rm(join(paths.archive, wal(5)));
  expect(await isDue(keeper, 'a', paths, newest)).toBe(true);
});

test('nothing goes while a fork is made of it, also while its data is being cloned', async () => {
  const kept = await service('a', [9, 5, 1]);
  const keeper = newKeeper();
  const fork = {
    id: 'f',
    installation: '18-npm',
    provisioned: false,
    parent: 'a',
    began: null,
    madeIn: '',
    uid: null,
    userOf: null,
    recovery: null,
    upgrade: null,
    exchange: null,
  };
  for (const entry of ['f.new', 'f']) {
    const paths = machine.layout.service(entry);
    await mkdir(paths.root);
    await writeMarker(paths, fork);
    await keepBackups(keeper, 'a', KEEP);
    expect(await kept.snapshots()).toEqual(['s0', 's1', 's2']);
    await writeMarker(paths, { ...fork, provisioned: true });
  }
  await keepBackups(keeper, 'a', KEEP);
  expect(await kept.snapshots()).toEqual(['s1', 's2']);
});

test('nothing goes while a fork of it was asked for that has not begun', async () => {
  const kept = await service('a', [9, 5, 1]);
  const keeper = newKeeper();
  await keepBackups(keeper, 'a', { ...KEEP, removes: false });
  expect(await kept.snapshots()).toEqual(['s0', 's1', 's2']);
  await keepBackups(keeper, 'a', KEEP);
  expect(await kept.snapshots()).toEqual(['s1', 's2']);
});

test('nothing goes while a backup is read to verify it', async () => {
  const kept = await service('a', [9, 5, 1]);
  const keeper = newKeeper();
  await holdingBackups(keeper, 'a', () => keepBackups(keeper, 'a', KEEP));
  expect(await kept.snapshots()).toEqual(['s0', 's1', 's2']);
  await keepBackups(keeper, 'a', KEEP);
  expect(await kept.snapshots()).toEqual(['s1', 's2']);
});

test('a gap in the archive, no archive or a failed verification is warned of', async () => {
  await service('a', [9, 5, 1]);
  const { archive, snapshots } = machine.layout.service('a');
  const keeper = newKeeper();
  const server = machine.layout.service('a').data;
  await mkdir(join(server, 'global'));
  await writeFile(join(server, 'global', 'pg_control'), '');
  expect(await backupWarnings(keeper, 'a')).toEqual([]);
  await rm(join(archive, wal(3)));
  // The last commit before the gap was made between the two snapshots before the third.
  const lostMs = Date.now() - 4 * DAY_MS;
  await writeFile(join(archive, wal(2)), walFile([commitAt(new Date(lostMs).toISOString())]));
  const [, , third] = (
    await describeBackups(machine.layout.service('a'), POLICY, null)
  ).snapshots.toReversed();
  const lost = new Date(lostMs).toISOString();
  const gap = `nothing between ${lost} and ${third?.taken} can be reached`;
  expect(await backupWarnings(keeper, 'a')).toEqual([
    { code: 'ARCHIVE', message: `WAL file ${wal(3)} is missing from the archive: ${gap}` },
  ]);
  await rm(archive, { recursive: true });
  expect(await backupWarnings(keeper, 'a')).toEqual([
    { code: 'ARCHIVE', message: expect.stringContaining('the WAL archive cannot be read') },
  ]);
  await writeFile(
    join(snapshots, 's2', 'verification.json'),
    JSON.stringify({
      at: '2026-01-01T00:00:00Z',
      succeeded: false,
      checks: [],
      problem: 'replay WAL: it does not',
    }),
  );
  expect(await backupWarnings(keeper, 'a')).toMatchObject([
    { code: 'ARCHIVE' },
    { code: 'VERIFICATION', message: expect.stringContaining('it does not') },
  ]);
});

test('WAL of a growth gives way, and points from before it stay for six hours', async () => {
  const kept = await service('a', [2, 1, 0.01]);
  const paths = machine.layout.service('a');
  const walThere = async () => (await readdir(paths.archive)).toSorted();
  const relief = await relieveArchive(newKeeper(), 'a', { removes: true, quotaBytes: 80e6 });
  expect(relief).toMatchObject({ snapshot: 's1', endWal: wal(3), againWal: wal(4), count: 1 });
  expect(await kept.snapshots()).toEqual(['s1', 's2']);
  expect(await walThere()).toEqual([2, 4, 5, 6].map(wal));
  const { window } = await describeBackups(paths, POLICY, null);
  expect(window).toMatchObject({
    gaps: [{ because: 'storage' }],
    gave_way: { until: new Date(relief?.untilMs ?? 0).toISOString() },
  });
  expect(await backupWarnings(newKeeper(), 'a')).toEqual([]);
  // Within that time they stay, and it is the same event.
  const again = await relieveArchive(newKeeper(), 'a', { removes: true, quotaBytes: 80e6 });
  expect(again).toMatchObject({ id: relief?.id, snapshot: 's1', count: 2 });
  expect(await walThere()).toEqual([2, 4, 5, 6].map(wal));
});
