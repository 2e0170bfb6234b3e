import { expect, test } from 'vitest';
import {
  archiveState,
  newestOf,
  windowOf,
  recordOf,
  archiveProblem,
  backlogOf,
  isArchived,
  needsMarker,
  partsOf,
  type Marker,
  type Progress,
  type Seen,
} from './archive-state.ts';

const MB = 1024 * 1024;
const NOW_MS = Date.parse('2026-11-27T10:00:00Z');
const file = (number: number, timeline = 1): string =>
  `0000000${timeline}00000000${number.toString(16).toUpperCase().padStart(8, '0')}`;
const SEEN: Seen = {
  file: file(9),
  nowMs: NOW_MS,
  snapshot: '800:800:',
  archivedFile: file(8),
  archivedMs: NOW_MS - 1000,
  failedMs: null,
  fileBytes: 16 * MB,
};
const MARKER: Marker = {
  atMs: NOW_MS - 60_000,
  madeMs: NOW_MS - 60_000,
  file: file(8),
  snapshot: '800:800:',
  isArchived: true,
};

test('files are counted beyond the lower half of their names', () => {
  expect(partsOf('0000000200000001000000FF', 16 * MB)).toEqual({
    timeline: '00000002',
    number: 511,
  });
  expect(partsOf('0000000200000001000000FF', 64 * MB)?.number).toBe(64 + 255);
  expect(partsOf(`${file(3)}.00000028.backup`, 16 * MB)?.number).toBe(3);
  for (const other of [null, '00000002.history', `${file(3)}.partial`, ''])
    expect(partsOf(other, 16 * MB)).toBeNull();
});

test('a marker is archived with its file, on its timeline', () => {
  const is = (archivedFile: string | null) => isArchived(MARKER, { ...SEEN, archivedFile });
  expect([file(7), file(8), file(9), file(9, 2), null].map(is)).toEqual([
    false,
    true,
    true,
    false,
    false,
  ]);
});

test('a marker follows writes of others, and never one that is not archived', () => {
  const needs = (last: Marker | null, seen: Seen, nowMs = NOW_MS, earliestMs = 0) =>
    needsMarker(last, { ...seen, nowMs }, earliestMs);
  expect(needsMarker(null, SEEN, null)).toBe(true);
  expect(needsMarker(MARKER, SEEN, null)).toBe(false);
  expect(needs(MARKER, SEEN)).toBe(false);
  const written = { ...SEEN, snapshot: '800:801:' };
  expect(needs(MARKER, written)).toBe(true);
  // A transaction that began before the marker has ended.
  expect(needs({ ...MARKER, snapshot: '799:800:799' }, SEEN)).toBe(true);
  expect(needs({ ...MARKER, isArchived: false }, written)).toBe(false);
  expect(needs(MARKER, SEEN, NOW_MS + 300_000)).toBe(true);
  // The first base backup has ended after it: without another one, the window is empty.
  expect(needs(MARKER, SEEN, NOW_MS, MARKER.atMs + 1)).toBe(true);
  expect(needs({ ...MARKER, isArchived: false }, SEEN, NOW_MS, NOW_MS)).toBe(false);
  expect(needs(MARKER, SEEN, NOW_MS, MARKER.atMs)).toBe(false);
  // After a failover, what the new primary has of it is not known.
  const after = { ...SEEN, file: file(9, 2) };
  expect(needs({ ...MARKER, isArchived: false }, after)).toBe(true);
});

test('a store that refuses is a problem until it takes a file, with what waits', () => {
  const problem = (seen: Seen) => archiveProblem({ toMs: NOW_MS, seen, why: null }, NOW_MS);
  expect(problem(SEEN)).toBeNull();
  const failing = { ...SEEN, file: file(12), failedMs: NOW_MS };
  expect(backlogOf(failing)).toBe(48 * MB);
  expect(problem(failing)).toContain('since 2026-11-27T09:59:59.000Z: 51 MB of WAL wait');
  expect(problem({ ...failing, archivedFile: null, archivedMs: null })).toContain(
    'has taken no WAL: WAL waits',
  );
  expect(problem({ ...failing, archivedMs: NOW_MS })).toBeNull();
});

test('an archive that is late, or not known, is a problem after ten minutes', () => {
  const after = (minutes: number, known: Partial<Progress>) =>
    archiveProblem({ toMs: NOW_MS, seen: SEEN, why: null, ...known }, NOW_MS + minutes * 60_000);
  const waiting = { ...SEEN, file: file(12) };
  expect(after(9.9, { seen: waiting })).toBeNull();
  expect(after(10, { seen: waiting })).toContain(
    'is late, and has all up to 2026-11-27T10:00:00.000Z only: 51 MB of WAL wait',
  );
  expect(after(9.9, { seen: null, why: 'no session' })).toBeNull();
  expect(after(10, { why: 'no session' })).toContain('not known whether its WAL is archived: no');
  expect(after(10, { seen: null })).toBeNull();
});

const STORE = {
  id: 'store12345',
  sinceMs: NOW_MS - 3_600_000,
  endpoint: 'https://s3.example.com',
  bucket: 'backups',
  region: 'eu',
  keyId: 'id',
  key: 'key',
  caPem: null,
};
type Data = Readonly<Record<string, string>>;

const metadata = { name: 's-a', namespace: 'howdah-p', uid: 'u', resourceVersion: '1' };
const state = (data: Data | undefined, window: object | null) =>
  archiveState(
    'a',
    { metadata, status: window === null ? {} : { serverRecoveryWindow: { 's-a': window } } },
    data === undefined ? undefined : { metadata, data },
  );

test('the window is from the oldest base backup to what is known to be archived', () => {
  const archived = recordOf(STORE.id, NOW_MS);
  const backups = {
    firstRecoverabilityPoint: '2026-11-27T09:30:00Z',
    lastSuccessfulBackupTime: '2026-11-27T09:45:00Z',
  };
  const found = windowOf(state(archived, backups), STORE);
  // Kubernetes has cut off what is less than a second.
  expect(found).toEqual({ earliestMs: Date.parse('2026-11-27T09:30:01Z'), latestMs: NOW_MS });
  const none: [Data | undefined, object | null][] = [
    [undefined, backups],
    [{ store: STORE.id }, backups],
    [{ store: STORE.id, to: 'never' }, backups],
    [recordOf('another', NOW_MS), backups],
    [archived, null],
    [archived, { firstRecoverabilityPoint: null, lastSuccessfulBackupTime: null }],
    // The window is of the place of before, also with a backup that had begun there.
    [archived, { ...backups, firstRecoverabilityPoint: '2026-11-27T08:59:59Z' }],
    [recordOf(STORE.id, NOW_MS - 3_000_000), backups],
  ];
  for (const [data, window] of none) expect(windowOf(state(data, window), STORE)).toBeNull();
  // A whole base backup comes back, whatever was recorded after it.
  const newest = (data: Data | undefined, window: object | null) =>
    newestOf(state(data, window), STORE);
  expect(newest(archived, backups)).toBe(NOW_MS);
  for (const data of [recordOf(STORE.id, NOW_MS - 3_000_000), undefined])
    expect(newest(data, backups)).toBe(Date.parse('2026-11-27T09:45:00Z'));
  expect(newest(archived, null)).toBeNull();
  const elsewhere = { ...backups, firstRecoverabilityPoint: '2026-11-27T08:59:59Z' };
  expect(newest(archived, elsewhere)).toBeNull();
  // An earlier release wrote it there.
  for (const [annotation, latestMs] of [
    [JSON.stringify({ store: STORE.id, toMs: NOW_MS }), NOW_MS],
    ['{', undefined],
  ] as const) {
    const annotations = { 'howdah.io/archived': annotation };
    const status = { serverRecoveryWindow: { 's-a': backups } };
    const old = archiveState('a', { metadata: { ...metadata, annotations }, status }, undefined);
    expect(windowOf(old, STORE)?.latestMs).toBe(latestMs);
  }
  expect(windowOf(state(archived, backups), null)).toBeNull();
});
