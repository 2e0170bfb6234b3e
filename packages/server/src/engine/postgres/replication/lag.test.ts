import { expect, test } from 'vitest';
import { isWithin, lagOf, remember, type Position } from './lag.ts';

/** The primary's log grew by 100 bytes a second, and by nothing in the last one. */
const POSITIONS: Position[] = [
  { atMs: 1000, lsn: 100n },
  { atMs: 2000, lsn: 200n },
  { atMs: 3000, lsn: 300n },
  { atMs: 4000, lsn: 300n },
];
const streaming = (lsn: bigint) => lagOf(POSITIONS, { lsn, streaming: true, streamedMs: 4000 });

test('a standby with all WAL has no lag, no matter how old the last write is', () => {
  expect(streaming(300n)).toEqual({ bytes: 0, seconds: 0 });
  expect(streaming(310n)).toEqual({ bytes: 0, seconds: 0 });
});

test('a lagging standby shows the state of the primary when its WAL ended there', () => {
  expect(streaming(299n)).toEqual({ bytes: 1, seconds: 2 });
  expect(streaming(150n)).toEqual({ bytes: 150, seconds: 3 });
  // By more than is remembered: by at least so much.
  expect(streaming(10n)).toEqual({ bytes: 290, seconds: 3 });
});

test('a standby that does not stream knows nothing of later writes', () => {
  expect(lagOf(POSITIONS, { lsn: 300n, streaming: false, streamedMs: 2500 })).toEqual({
    bytes: 0,
    seconds: 1.5,
  });
  expect(lagOf(POSITIONS, { lsn: 150n, streaming: false, streamedMs: 2500 })).toEqual({
    bytes: 150,
    seconds: 3,
  });
  expect(lagOf(POSITIONS, { lsn: 300n, streaming: false, streamedMs: 0 })).toEqual({
    bytes: 0,
    seconds: 3,
  });
});

test('there is no lag before the primary was asked', () => {
  expect(lagOf([], { lsn: 1n, streaming: false, streamedMs: 0 })).toBeNull();
});

test('positions are kept for an hour', () => {
  const later = remember(POSITIONS, { atMs: 3_602_500, lsn: 400n });
  expect(later.map(({ atMs }) => atMs)).toEqual([3000, 4000, 3_602_500]);
});

test('both limits count, and a lag at the limit is within it', () => {
  const limit = { bytes: 100, seconds: 2 };
  expect(isWithin({ bytes: 100, seconds: 2 }, limit)).toBe(true);
  expect(isWithin({ bytes: 101, seconds: 0 }, limit)).toBe(false);
  expect(isWithin({ bytes: 0, seconds: 2.1 }, limit)).toBe(false);
});
