import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chooseSnapshot } from './snapshots.ts';
import { copyWalFiles, parseHistory } from '../../postgres/data/wal-files.ts';
import { describeBackups, missingWal, reach, reachable, type Interval } from './window.ts';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import { commitAt, walFile } from '../../postgres/data/wal.testing.ts';

/** A snapshot from which all is reachable up to now, or up to a missing file. */
const from = (takenMs: number, latestMs: number, gap: string | null = null): Interval => ({
  takenMs,
  latestMs,
  gap,
});

test('a point in time is restored from the newest snapshot that is not later', () => {
  const [newer, older] = [{ takenMs: 50 }, { takenMs: 10 }];
  expect(chooseSnapshot([newer, older], 60)).toBe(newer);
  expect(chooseSnapshot([newer, older], 50)).toBe(newer);
  expect(chooseSnapshot([newer, older], 49)).toBe(older);
  expect(chooseSnapshot([newer, older], 9)).toBeNull();
});

describe('reachable', () => {
  test.each([
    ['of nothing, nothing', [], null, null, []],
    ['from one snapshot, up to now', [from(10, 90)], 10, 90, []],
    ['from one before a gap, up to it', [from(10, 40, 'A')], 10, 40, []],
    ['from many without a gap, everything', [from(50, 90), from(30, 90), from(10, 90)], 10, 90, []],
    [
      'before a gap, and from the next snapshot on',
      [from(50, 90), from(10, 40, 'A')],
      10,
      90,
      [[40, 50]],
    ],
    [
      'up to the gap by more than one snapshot',
      [from(50, 90), from(30, 40, 'A'), from(10, 40, 'A')],
      10,
      90,
      [[40, 50]],
    ],
    [
      'with a snapshot in the midst of what is lost',
      [from(50, 90), from(45, 45, 'A'), from(10, 40, 'A')],
      10,
      90,
      [
        [40, 45],
        [45, 50],
      ],
    ],
    [
      'across two gaps',
      [from(70, 90), from(50, 60, 'B'), from(10, 40, 'A')],
      10,
      90,
      [
        [40, 50],
        [60, 70],
      ],
    ],
    ['up to a gap after the newest', [from(50, 60, 'B'), from(10, 40, 'A')], 10, 60, [[40, 50]]],
    ['up to the very moment of the next snapshot', [from(50, 90), from(10, 50, 'A')], 10, 90, []],
    ['past the next snapshot', [from(50, 90), from(10, 55, 'A')], 10, 90, []],
    // The base of a moment is the newest snapshot before it: what an older one is said to reach is
    // no help.
    [
      'past a snapshot that reaches less',
      [from(50, 90), from(30, 30, 'B'), from(10, 55, 'A')],
      10,
      90,
      [[30, 50]],
    ],
    ['also where the clock was set back', [from(50, 50), from(10, 40)], 10, 50, []],
  ])('%s', (_, intervals, earliestMs, latestMs, gaps) => {
    const found = reachable(intervals);
    expect({
      ...found,
      gaps: found.gaps.map(({ afterMs, beforeMs }) => [afterMs, beforeMs]),
    }).toEqual({ earliestMs, latestMs, gaps });
  });

  test('is said of each gap, of the newest first, and of many gaps how many there are', () => {
    const at = (ms: number): string => new Date(ms).toISOString();
    expect(missingWal([])).toBeNull();
    expect(missingWal([from(50, 90), from(10, 90)])).toBeNull();
    expect(missingWal([from(10, 40, 'A')])).toBe(
      `WAL file A is missing from the archive: nothing after ${at(40)} can be reached from ` +
        'the snapshots before it',
    );
    const first =
      'WAL file A is missing from the archive: ' +
      `nothing between ${at(40)} and ${at(50)} can be reached`;
    const second =
      'WAL file B is missing from the archive: ' +
      `nothing between ${at(60)} and ${at(70)} can be reached`;
    expect(missingWal([from(50, 90), from(10, 40, 'A')])).toBe(first);
    expect(missingWal([from(70, 90), from(50, 60, 'B'), from(10, 40, 'A')])).toBe(
      `${second}; ${first}`,
    );
    expect(missingWal([from(50, 90), from(10, 55, 'A')])).toBe(
      'WAL file A is missing from the archive: the snapshots before it lead only to the next one',
    );
    const many = [90, 70, 50, 30, 10].map((ms) => from(ms, ms + 10, String(ms)));
    expect(missingWal(many)?.split('; ')).toEqual([
      expect.stringContaining(`WAL file 90 is missing from the archive: nothing after ${at(100)}`),
      expect.stringContaining(`nothing between ${at(80)} and ${at(90)} can be reached`),
      expect.stringContaining(`nothing between ${at(60)} and ${at(70)} can be reached`),
      '2 more gaps stand in the window of its backups',
    ]);
  });
});

describe('how far a snapshot leads', () => {
  const wal = (number: number): string =>
    `0000000100000000000000${number.toString(16).toUpperCase().padStart(2, '0')}`;
  let paths: InstancePaths;
  beforeEach(async () => {
    paths = instancePaths(await realpath(await mkdtemp(join(tmpdir(), 'hdb-'))));
    for (const path of [
      paths.archive,
      paths.snapshots,
      join(paths.data, 'pg_wal'),
      join(paths.data, 'global'),
    ])
      await mkdir(path, { recursive: true });
    await writeFile(join(paths.data, 'global', 'pg_control'), '');
  });
  afterEach(() => rm(paths.root, { recursive: true }));

  const snapshot = async (id: string, takenMs: number, first: number) => {
    const made = {
      id,
      kind: 'scheduled' as const,
      takenMs,
      firstWal: wal(first),
      walPosition: '0/0',
      storageBytes: 1,
    };
    await mkdir(join(paths.snapshots, id));
    await writeFile(join(paths.snapshots, id, 'snapshot.json'), JSON.stringify(made));
    return { ...made, template: null, systemIdentifier: null };
  };

  test('over files archived or in place, up to one in neither; alone and with others', async () => {
    const hourAgo = Math.floor(Date.now() / 1000) * 1000 - 3_600_000;
    const taken = await Promise.all(
      [0, 2, 4, 6].map((first, index) => snapshot(`s${index}`, hourAgo + index * 2000, first)),
    );
    for (const number of [0, 1, 2, 4, 5, 6]) await writeFile(join(paths.archive, wal(number)), '');
    const lastMs = hourAgo + 3000;
    await writeFile(
      join(paths.archive, wal(2)),
      walFile([commitAt(new Date(lastMs).toISOString())]),
    );
    for (const number of [6, 7, 8]) await writeFile(join(paths.data, 'pg_wal', wal(number)), '');
    const alone = await Promise.all(taken.map((each) => reach(paths, each)));
    expect(alone.map(({ gap, files }) => ({ gap, files }))).toEqual([
      { gap: wal(3), files: 3 },
      { gap: wal(3), files: 1 },
      { gap: null, files: 5 },
      { gap: null, files: 3 },
    ]);
    const { window } = await describeBackups(
      paths,
      { windowMs: 86_400_000, snapshotEveryMs: 1, verifyEveryMs: 1 },
      null,
    );
    const at = (ms = 0): string => new Date(ms).toISOString();
    expect(window).toEqual({
      earliest: at(hourAgo),
      latest: at(alone[3]?.latestMs),
      days: 1,
      gaps: [{ after: at(lastMs), before: at(hourAgo + 4000) }],
    });
  });

  test('up to the last commit before a gap, in whichever file that is', async () => {
    const hourAgo = Date.now() - 3_600_000;
    const alone = await snapshot('s0', hourAgo, 0);
    const commit = commitAt(new Date(hourAgo + 5).toISOString());
    for (const [number, records] of [[commit, commit], [commit], [], []].entries())
      await writeFile(join(paths.archive, wal(number)), walFile(records));
    await writeFile(join(paths.archive, wal(5)), walFile([commitAt(new Date().toISOString())]));
    expect(await reach(paths, alone)).toEqual({ gap: wal(4), latestMs: hourAgo + 5, files: 4 });
  });

  test('the window has a gap where a file that a snapshot begins with is missing', async () => {
    const hourAgo = Date.now() - 3_600_000;
    await snapshot('s0', hourAgo, 0);
    await snapshot('s1', hourAgo + 1000, 1);
    await writeFile(join(paths.archive, wal(1)), '');
    const { window } = await describeBackups(
      paths,
      { windowMs: 86_400_000, snapshotEveryMs: 1, verifyEveryMs: 1 },
      null,
    );
    expect(window.gaps).toEqual([
      { after: new Date(hourAgo).toISOString(), before: new Date(hourAgo + 1000).toISOString() },
    ]);
  });
});

test('a history that does not ascend is refused: its WAL files would form a circle', () => {
  expect(
    parseHistory('1\t0/3000000\tno recovery target specified\n2\t0/5000000\tthe same\n', 3),
  ).toEqual([
    { timeline: '00000001', nextBegins: '000000020000000000000003' },
    { timeline: '00000002', nextBegins: '000000030000000000000005' },
  ]);
  for (const text of [
    '2\t0/3000000\n1\t0/3000000\n',
    '1\t0/3000000\n1\t0/3000000\n',
    '3\t0/3000000\n',
    '9\t0/3000000\n',
  ])
    expect(parseHistory(text, 3)).toEqual([]);
});

test('names of WAL files that a server says become no paths elsewhere', async () => {
  const paths = instancePaths('/nowhere');
  const wal = '000000010000000000000001';
  await expect(copyWalFiles(null, paths, '../../../etc/shadow', wal, '/nowhere')).rejects.toThrow(
    'the server named no WAL files',
  );
  await expect(copyWalFiles(null, paths, wal, `${wal}/..`, '/nowhere')).rejects.toThrow(
    'the server named no WAL files',
  );
});
