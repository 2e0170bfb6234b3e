/** How far standbys are behind their primary, in bytes and in seconds. */

/** Where the primary's WAL ended at a moment. */
export type Position = { atMs: number; lsn: bigint };

/**
 * How far a standby had replayed after the last position was read, and until when it was seen to
 * stream.
 */
type Replayed = { lsn: bigint; streaming: boolean; streamedMs: number };

export type Lag = Readonly<{ bytes: number; seconds: number }>;

/** The last measurement of a read replica node. */
export type NodeKnown = {
  takesWrites: boolean;
  paused: boolean;
  streaming: boolean;
  streamedMs: number;
  ahead: boolean;
  lag: Lag | null;
};

/** Positions older than this are forgotten: a larger lag is reported as at least this much. */
const REMEMBERED_MS = 3_600_000;

export function remember(positions: readonly Position[], latest: Position): Position[] {
  return [...positions.filter(({ atMs }) => latest.atMs - atMs <= REMEMBERED_MS), latest];
}

/**
 * The time since the primary's WAL ended where the standby is now. The time of the last transaction
 * would be misleading: without writes it is long ago. A standby that does not stream knows nothing
 * of what was written since.
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

/** Whether a lag is within a limit: both parts apply. */
export function isWithin({ bytes, seconds }: Lag, limit: Lag): boolean {
  return bytes <= limit.bytes && seconds <= limit.seconds;
}
