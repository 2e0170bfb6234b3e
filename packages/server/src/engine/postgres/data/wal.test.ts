import { describe, expect, test } from 'vitest';
import {
  ABORT,
  COMMIT,
  COMMIT_PREPARED,
  commitAt,
  MANAGER_OF_HEAPS,
  PAGE,
  placed,
  record,
  walFile,
} from './wal.testing.ts';
import { beginsInRecord, firstCommitMs, lastCommitMs } from './wal.ts';

const [one, two, three] = [
  '2026-01-31T12:00:00.001Z',
  '2026-01-31T12:00:00.002Z',
  '2026-01-31T12:00:00.003Z',
];
const other = record(MANAGER_OF_HEAPS, COMMIT, Buffer.alloc(100, 1));

/** A crash in the middle of a long record: the page after it begins again. */
function brokenOff(): Buffer {
  const made = walFile([commitAt(one), record(MANAGER_OF_HEAPS, 0, Buffer.alloc(20_000, 3))]);
  made.fill(0, PAGE);
  made.writeUInt16LE(0x8, PAGE + 2);
  commitAt(two).copy(made, PAGE + 24);
  return made;
}

describe('the last commit of a WAL file', () => {
  test.each<[string, Buffer, string | null]>([
    ['among other records', walFile([other, commitAt(one), other, commitAt(two), other]), two],
    ['is the latest by the clock', walFile([commitAt(three), commitAt(two)]), three],
    [
      'of a prepared transaction counts',
      walFile([commitAt(one), commitAt(two, COMMIT_PREPARED)]),
      two,
    ],
    ['is none that was rolled back', walFile([commitAt(one), commitAt(two, ABORT)]), one],
    ['with flags, of which only the kind counts', walFile([commitAt(two, 0x80)]), two],
    ['with much else in it', walFile([commitAt(two, COMMIT, 1000)]), two],
    [
      'of a transaction that came from elsewhere, or in another',
      walFile([commitAt(two, COMMIT, 0, [253, 1, 0, 252, 9, 0, 0, 0])]),
      two,
    ],
    ['after the rest of a record from the file before', walFile([commitAt(two)], 4, 9001), two],
    [
      'across the pages',
      walFile([record(MANAGER_OF_HEAPS, 0, Buffer.alloc(20_000, 3)), commitAt(two)]),
      two,
    ],
    [
      'where the log goes on in the next file',
      walFile([commitAt(one), record(MANAGER_OF_HEAPS, 0, Buffer.alloc(40_000, 3))]),
      one,
    ],
    ['after a record that broke off', brokenOff(), two],
    ['in whole ms, and not before it', walFile([commitAt('2026-01-31T12:00:00.001001Z')]), two],
    ['where there is none', walFile([other]), null],
    ['of a file that only goes on with a record', walFile([], 4, 100_000), null],
    ['of an empty file', Buffer.alloc(0), null],
  ])('%s', (_, contents, expected) => {
    const found = lastCommitMs(contents);
    expect(found === null ? null : new Date(found).toISOString()).toBe(expected);
  });
});

describe('the first commit in a WAL file', () => {
  const NAME = '000000010000000000000002';
  const early = commitAt('2026-01-02T03:04:05.678Z');
  const late = commitAt('2026-01-02T03:04:06.000Z');

  test('is found, not the last one', () => {
    const contents = placed(walFile([early, late]), 2);
    expect(firstCommitMs(contents, NAME)).toBe(Date.parse('2026-01-02T03:04:05.678Z'));
    const ms = Date.parse('2026-01-02T03:04:06.000Z');
    expect(firstCommitMs(contents, NAME, ms - 1)).toBe(ms);
    expect(firstCommitMs(contents, NAME, ms)).toBeNull();
    expect(beginsInRecord(contents)).toBe(false);
    expect(beginsInRecord(walFile([late], 4, 100))).toBe(true);
  });

  test('is none of a file that was recycled and is not written yet', () => {
    expect(firstCommitMs(placed(walFile([early]), 2, 0), NAME)).toBeNull();
    expect(firstCommitMs(placed(walFile([]), 2), NAME)).toBeNull();
  });
});
