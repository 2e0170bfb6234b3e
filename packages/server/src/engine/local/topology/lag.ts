/** How far those who follow a primary are behind it, in bytes and in seconds. */
import type { ReadLagLimit } from '../../../config.ts';

/** Where the primary's log ended at a moment. */
export type Position = { atMs: number; lsn: bigint };

/** What one that follows had replayed, looked at after the last position, and until when it was seen to receive the log as it is written. */
export type Replayed = { lsn: bigint; streaming: boolean; streamedMs: number };

export type Lag = { bytes: number; seconds: number };

/** Positions older than this are forgotten: who is behind by more is behind by at least so much. */
const REMEMBERED_MS = 3_600_000;

export function remember(positions: readonly Position[], latest: Position): Position[] {
  return [...positions.filter(({ atMs }) => latest.atMs - atMs <= REMEMBERED_MS), latest];
}

/**
 * Not by the time of the last transaction, which is long ago wherever nobody writes: by when the primary's log ended where this one is now.
 * One that does not receive the log knows nothing of what was written since.
 */
export function lagOf(
  positions: readonly Position[],
  { lsn, streaming, streamedMs }: Replayed,
): Lag | null {
  const latest = positions.at(-1);
  const oldest = positions[0];
  if (latest === undefined || oldest === undefined) return null;
  const bytes = latest.lsn > lsn ? Number(latest.lsn - lsn) : 0;
  const reached = positions.findLast((position) => position.lsn <= lsn) ?? oldest;
  const currentMs = streaming
    ? reached.atMs
    : Math.min(reached.atMs, Math.max(streamedMs, oldest.atMs));
  return { bytes, seconds: (latest.atMs - currentMs) / 1000 };
}

export function isWithin({ bytes, seconds }: Lag, readLagLimit: ReadLagLimit): boolean {
  return bytes <= readLagLimit.bytes && seconds <= readLagLimit.seconds;
}
