/**
 * What of a service is in the object store of its region. The base backups are in the status of its
 * ObjectStore, which the plugin writes from what it finds in the bucket. The moment up to which all
 * is archived is in a ConfigMap of ours. All of it is input.
 */
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { objectStoreName } from './manifests.ts';
import type { ObjectStore } from '../../object-store.ts';
import { METADATA } from '../api/kinds.ts';

const TIME = Type.Optional(Type.Union([Type.String(), Type.Null()]));

export const ARCHIVE_OBJECT = Type.Object({
  metadata: METADATA,
  status: Type.Optional(
    Type.Object({
      serverRecoveryWindow: Type.Optional(
        Type.Record(
          Type.String(),
          Type.Object({ firstRecoverabilityPoint: TIME, lastSuccessfulBackupTime: TIME }),
        ),
      ),
    }),
  ),
});
type ArchiveObject = Static<typeof ARCHIVE_OBJECT>;

export const ARCHIVE_RECORD = Type.Object({
  metadata: METADATA,
  data: Type.Optional(Type.Record(Type.String(), Type.String())),
});
export type ArchiveRecord = Static<typeof ARCHIVE_RECORD>;

export type ArchiveState = Readonly<{
  /** The bucket that has all up to a moment, by its id; null: nothing is known to be archived. */
  archived: Readonly<{ store: string; toMs: number }> | null;
  /** The end of the oldest base backup; null: there is none. */
  firstMs: number | null;
  /** When the last base backup was taken; null: there is none. */
  lastBackupMs: number | null;
}>;

/** @param record undefined: nothing is recorded yet */
export function archiveState(
  id: string,
  { metadata, status }: ArchiveObject,
  record: ArchiveRecord | undefined,
): ArchiveState {
  const window = status?.serverRecoveryWindow?.[objectStoreName(id)];
  return {
    archived: readArchived(record?.data) ?? readAnnotation(metadata.annotations?.[BEFORE]),
    firstMs: timeOf(window?.firstRecoverabilityPoint),
    lastBackupMs: timeOf(window?.lastSuccessfulBackupTime),
  };
}

/** The data of the ConfigMap. */
export const recordOf = (store: string, toMs: number): Readonly<Record<string, string>> => ({
  store,
  to: new Date(toMs).toISOString(),
});

function readArchived(data: ArchiveRecord['data']): ArchiveState['archived'] {
  const [store, toMs] = [data?.['store'], timeOf(data?.['to'])];
  return store === undefined || toMs === null ? null : { store, toMs };
}

/** Earlier releases wrote an annotation of the ObjectStore. It stays true. */
const BEFORE = 'howdah.io/archived';
const ANNOTATION = Type.Object({ store: Type.String(), toMs: Type.Number() });

function readAnnotation(text: string | undefined): ArchiveState['archived'] {
  try {
    const parsed: unknown = JSON.parse(text ?? 'null');
    return Value.Check(ANNOTATION, parsed) ? parsed : null;
  } catch {
    return null;
  }
}

function timeOf(text: string | null | undefined): number | null {
  const ms = Date.parse(text ?? '');
  return Number.isNaN(ms) ? null : ms;
}

/** Kubernetes cuts times off to seconds. */
const SECOND_MS = 1000;

/** The first moment that a base backup reaches; null: there is none. */
export function earliestOf(state: ArchiveState | null): number | null {
  const firstMs = state?.firstMs ?? null;
  return firstMs === null ? null : firstMs + SECOND_MS;
}

/**
 * The moments that a fork can be made of; null: none yet. It never goes by the condition
 * `ContinuousArchiving`, which is true without an archive (docs/cloudnativepg.md, fact 5).
 */
export function windowOf(
  state: ArchiveState | null,
  store: ObjectStore | null,
): Readonly<{ earliestMs: number; latestMs: number }> | null {
  if (state === null || store === null) return null;
  const { archived, firstMs } = state;
  const earliestMs = earliestOf(state);
  if (archived?.store !== store.id || firstMs === null || earliestMs === null) return null;
  // The status is still about the place of before.
  if (firstMs < store.sinceMs) return null;
  const latestMs = archived.toMs;
  return latestMs < earliestMs ? null : { earliestMs, latestMs };
}

/**
 * The newest moment that a recovery brings back for certain; null: none. A base backup is in the
 * bucket with the WAL of its time, also when its Cluster was deleted before more was recorded.
 */
export function newestOf(state: ArchiveState | null, store: ObjectStore | null): number | null {
  const window = windowOf(state, store);
  if (window !== null) return window.latestMs;
  const [firstMs, lastMs] = [state?.firstMs ?? null, state?.lastBackupMs ?? null];
  return store === null || firstMs === null || firstMs < store.sinceMs ? null : lastMs;
}

// How far the WAL of a service is archived, and when a marker is written into it. Pure.
//
// PostgreSQL ends a recovery at a moment only if a later commit is in the archive. So the control
// plane commits a marker now and then. Once the file with it is archived, every moment before it
// can be reached. Nothing else says so: the time of a file is not that of its commits.

/** The state of a server, as a session sees it. */
export type Seen = Readonly<{
  /** The WAL file that is being written. */
  file: string;
  /** The clock of the server; ms since the epoch. */
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
