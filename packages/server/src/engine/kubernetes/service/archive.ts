/**
 * How far the WAL of a service is archived, and when a marker is written into it. Pure.
 *
 * PostgreSQL ends a recovery at a moment only if a later commit is in the archive. So the control
 * plane commits a marker now and then. Once the file with it is archived, every moment before it
 * can be reached. Nothing else says so: the time of a file is not that of its commits.
 */

/** The state of a server, as a session sees it. */
export type Seen = Readonly<{
  /** The WAL file that is being written. */
  file: string;
  /** Its clock; ms since the epoch. */
  nowMs: number;
  /** The transactions that have ended, which changes with each of them that has written. */
  snapshot: string;
  /** The newest file that the bucket has taken; null: none. */
  archivedFile: string | null;
  archivedMs: number | null;
  /** When the bucket last refused one; null: never. */
  failedMs: number | null;
  fileBytes: number;
}>;

/** A marker that was committed. */
export type Marker = Readonly<{
  /** Not later than its commit, by the clock of the server. */
  atMs: number;
  /** When it was made, by the clock of the control plane. */
  madeMs: number;
  /** The file that was written after its commit. */
  file: string;
  snapshot: string;
  isArchived: boolean;
}>;

/** Without writes of others, a marker is written this often. Its WAL file takes 16 kB. */
const IDLE_MS = 300_000;
/** A marker is in the bucket after a minute or two, if the bucket takes all that is written. */
const LATE_AFTER_MS = 600_000;

/** A file by its number, on its timeline; null: the name is another one. */
export function partsOf(file: string | null, bytes: number) {
  const [, timeline, high, low] =
    /^([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})(?:\.[0-9A-F]{8}\.backup)?$/.exec(file ?? '') ?? [];
  if (timeline === undefined || high === undefined || low === undefined) return null;
  const number = Number.parseInt(high, 16) * (2 ** 32 / bytes) + Number.parseInt(low, 16);
  return { timeline, number };
}

/** Whether the bucket has a marker, with all that was committed before. */
export function isArchived({ file }: Marker, { archivedFile, fileBytes }: Seen): boolean {
  const [wanted, found] = [partsOf(file, fileBytes), partsOf(archivedFile, fileBytes)];
  return (
    wanted !== null &&
    found !== null &&
    wanted.timeline === found.timeline &&
    found.number >= wanted.number
  );
}

/**
 * Whether a marker must be written now.
 *
 * @param earliestMs the first moment that a base backup reaches; null: there is none. Without a
 *   marker after it the window is empty
 */
export function needsMarker(last: Marker | null, seen: Seen, earliestMs: number | null): boolean {
  if (last === null) return true;
  // Another primary: what this one has of the marker is not known.
  if (last.file.slice(0, 8) !== seen.file.slice(0, 8)) return true;
  if (!last.isArchived) return false;
  if (earliestMs !== null && last.atMs < earliestMs) return true;
  return seen.snapshot !== last.snapshot || seen.nowMs - last.atMs >= IDLE_MS;
}

/** WAL that is on the volume of the service and not in the bucket, in bytes; null: unknown. */
export function backlogOf({ file, archivedFile, fileBytes }: Seen): number | null {
  const [now, archived] = [partsOf(file, fileBytes), partsOf(archivedFile, fileBytes)];
  if (now === null || archived === null) return null;
  return Math.max(0, now.number - archived.number - 1) * fileBytes;
}

const ASK = 'an administrator finds the reason with howdah region doctor';

/** How far an archive is known to be complete, by the clock of the control plane. */
export type Progress = Readonly<{
  /** All that was committed before is archived, as far as it was asked for. */
  toMs: number;
  /** The last answer of the server; null: it has not given one. */
  seen: Seen | null;
  /** Why it does not answer now; null: it does. */
  why: string | null;
}>;

/** Why WAL is not archived, in words for users; null: it is, or nothing is known yet. */
export function archiveProblem({ toMs, seen, why }: Progress, nowMs: number): string | null {
  const isLate = nowMs - toMs >= LATE_AFTER_MS;
  const since = new Date(toMs).toISOString();
  if (isLate && why !== null)
    return `since ${since} it is not known whether its WAL is archived: ${why}; ${ASK}`;
  if (seen === null) return null;
  const { failedMs, archivedMs } = seen;
  const isRefused = failedMs !== null && (archivedMs === null || archivedMs < failedMs);
  if (!isRefused && !isLate) return null;
  const bytes = backlogOf(seen);
  const backlog = bytes === null ? 'WAL waits' : `${Math.ceil(bytes / 1e6)} MB of WAL wait`;
  const last = archivedMs === null ? '' : ` since ${new Date(archivedMs).toISOString()}`;
  const what = isRefused ? `has taken no WAL${last}` : `is late, and has all up to ${since} only`;
  return (
    `the object store of the region ${what}: ${backlog} on its volume, and writes stop when that ` +
    `is full; ${ASK}`
  );
}
