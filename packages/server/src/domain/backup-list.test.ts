import { expect, test } from 'vitest';
import { backupsIn } from './backup-list.ts';

const [OLD, MIDDLE, NEW] = ['2026-11-01', '2026-11-02', '2026-11-03'].map(
  (day) => `${day}T00:00:00.000Z`,
);

test('a copy of a snapshot is not listed twice; a backup without its snapshot is listed', () => {
  const stored = (taken: string | undefined, type: 'full' | 'incr') => ({
    label: `stored ${taken}`,
    takenMs: Date.parse(taken ?? ''),
    type,
    storageBytes: 5,
  });
  const listed = backupsIn(
    'local',
    [
      { id: 's3', taken: NEW ?? '', storage_mb: 2 },
      { id: 's2', taken: MIDDLE ?? '', storage_mb: 1 },
    ],
    [
      { name: 'offsite', backups: [stored(MIDDLE, 'incr'), stored(OLD, 'full')] },
      { name: 'second', backups: [{ ...stored(MIDDLE, 'full'), durationSeconds: 90 }] },
      { name: 'empty', backups: [] },
    ],
  );
  const places = listed.map(({ label, type, regions }) => [
    label,
    type,
    regions.map(({ region_code: code }) => code),
  ]);
  expect(places).toEqual([
    ['s3', 'FULL', ['local']],
    ['s2', 'FULL', ['local', 'offsite', 'second']],
    [`stored ${OLD}`, 'FULL', ['offsite']],
  ]);
  // The slowest copy: 90 s to the second repository.
  expect(listed[1]).toMatchObject({
    started_at: MIDDLE,
    finished_at: '2026-11-02T00:01:30.000Z',
    duration_seconds: 90,
  });
  expect(listed[0]).toEqual({
    label: 's3',
    type: 'FULL',
    started_at: NEW,
    finished_at: NEW,
    duration_seconds: 0,
    size_bytes: 2_000_000,
    regions: [{ region_code: 'local', status: 'FINISHED' }],
  });
});
