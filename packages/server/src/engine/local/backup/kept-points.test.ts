import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  chooseKeptPoints,
  gaveWay,
  isKept,
  KEPT_MS,
  keptPointsNow,
  writeKeptPoints,
} from './kept-points.ts';

const HOUR_MS = 3_600_000;
const NOW_MS = 1_800_000_000_000;
const wal = (n: number): string => `00000001${n.toString(16).toUpperCase().padStart(16, '0')}`;
const snapshot = (hours: number, first: number) => ({
  id: `s${hours}`,
  takenMs: NOW_MS - hours * HOUR_MS,
  firstWal: wal(first),
});
const archived = Array.from({ length: 100 }, (_, n) => wal(n));

test('a snapshot from before the growth stays, with WAL up to a quarter of the quota', () => {
  // The youngest may have been taken during the growth.
  const kept = chooseKeptPoints(
    [snapshot(0.1, 60), snapshot(2, 10), snapshot(9, 0)],
    archived,
    1e9,
    NOW_MS,
  );
  expect(kept).toMatchObject({ snapshot: 's2', firstWal: wal(10), endWal: wal(24) });
  expect([9, 10, 23, 24].map((n) => isKept(wal(n), kept))).toEqual([false, true, true, false]);
  expect(kept?.untilMs).toBe(NOW_MS + KEPT_MS);
});

test('the oldest snapshot of a young service stays, and nothing where there is none', () => {
  expect(
    chooseKeptPoints([snapshot(0.2, 5), snapshot(0.5, 1)], archived, 1e9, NOW_MS),
  ).toMatchObject({ snapshot: 's0.5', firstWal: wal(1) });
  expect(chooseKeptPoints([], archived, 1e9, NOW_MS)).toBeNull();
});

test('WAL that gave way is no fault of the archive, other missing WAL is', () => {
  const chosen = chooseKeptPoints([snapshot(2, 10)], archived, 1e9, NOW_MS);
  const kept = chosen && { ...chosen, againWal: wal(90) };
  expect([23, 24, 89, 90].map((n) => gaveWay(wal(n), kept))).toEqual([false, true, true, false]);
  expect(gaveWay(wal(50), chosen)).toBe(false);
});

test('points stay for six hours, and while their snapshot exists', async () => {
  const root = await mkdtemp(join(tmpdir(), 'hdk-'));
  try {
    const paths = { snapshots: join(root, 'snapshots') };
    await mkdir(paths.snapshots);
    expect(await keptPointsNow(paths, [{ id: 's2' }])).toBeNull();
    const kept = chooseKeptPoints([snapshot(2, 10)], archived, 1e9, Date.now());
    if (kept === null) throw new Error('nothing was chosen');
    await writeKeptPoints(paths, kept);
    expect(await keptPointsNow(paths, [{ id: 's2' }])).toEqual(kept);
    expect(await keptPointsNow(paths, [{ id: 'other' }])).toBeNull();
    await writeKeptPoints(paths, { ...kept, untilMs: Date.now() - 1 });
    expect(await keptPointsNow(paths, [{ id: 's2' }])).toBeNull();
  } finally {
    await rm(root, { recursive: true });
  }
});
