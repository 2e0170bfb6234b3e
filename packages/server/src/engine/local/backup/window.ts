/**
 * The window of the backups: which points in time can be restored, and which WAL files are missing
 * for others.
 */
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import type { BackupPolicy } from '../../../config.ts';
import type { LocalBackups } from '../../engine.ts';
import { bytesBelow } from '../host/space.ts';
import type { InstancePaths } from '../host/layout.ts';
import { readLogs } from '../../postgres/logs.ts';
import { isErrno } from '../../../lib/processes.ts';
import { findServer } from '../postgres/server.ts';
import { listEntries, readBytes, statEntry } from '../../../lib/untrusted-files.ts';
import { UnsafeEntry } from '../../../lib/untrusted-directory.ts';
import { lastCommitMs } from '../../postgres/data/wal.ts';
import {
  WAL_FILE_BYTES,
  timelineHistory,
  followingWalFile,
  onItsTimeline,
  walFilesIn,
  entriesOf,
} from '../../postgres/data/wal-files.ts';
import { gaveWay, keptPointsNow, readKeptPoints } from './kept-points.ts';
import { type Snapshot, lastVerification, listSnapshots } from './snapshots.ts';

/**
 * The backups of a service as the API shows them.
 *
 * @param problem of the backups; null: there is none
 */
export async function describeBackups(
  paths: InstancePaths,
  policy: BackupPolicy,
  problem: string | null,
): Promise<LocalBackups> {
  const snapshots = await listSnapshots(paths);
  const { earliestMs, latestMs, gaps } = reachable(await reaches(paths, snapshots));
  const [kept, ever] = [await keptPointsNow(paths, snapshots), await readKeptPoints(paths)];
  const last = lastVerification(snapshots);
  return {
    window: {
      earliest: earliestMs === null ? null : iso(earliestMs),
      latest: latestMs === null ? null : iso(latestMs),
      days: policy.windowMs / 86_400_000,
      ...(gaps.length === 0
        ? {}
        : {
            gaps: gaps.map(({ afterMs, beforeMs, gap }) => ({
              after: iso(afterMs),
              before: iso(beforeMs),
              ...(gaveWay(gap, ever) ? { because: 'storage' as const } : {}),
            })),
          }),
      ...(kept === null ? {} : { gave_way: { last: iso(kept.lastMs), until: iso(kept.untilMs) } }),
    },
    snapshots: snapshots.map(({ id, takenMs, kind, storageBytes, verification }) => ({
      id,
      taken: iso(takenMs),
      kind,
      storage_mb: Math.ceil(storageBytes / 1e6),
      ...(verification === null ? {} : { verification }),
    })),
    archive_mb: Math.ceil((await archiveBytes(paths)) / 1e6),
    ...(last === null ? {} : { last_verification: last }),
    problem,
  };
}

/** The archive may be on a disk that is not there at the moment. */
async function archiveBytes(paths: InstancePaths): Promise<number> {
  return bytesBelow(paths.archive).catch((error: unknown) => {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return 0;
    throw error;
  });
}

/**
 * How far a snapshot can be rolled forward: over so many WAL files, to now, or to where one is
 * missing.
 */
export type Reach = { gap: string | null; latestMs: number; files: number };

export async function reach(paths: InstancePaths, snapshot: Snapshot): Promise<Reach> {
  return (await readWal(paths))(snapshot);
}

/**
 * How far each of these snapshots can be rolled forward.
 *
 * @param snapshots newest first: in this order no WAL file is read twice
 */
async function reaches(paths: InstancePaths, snapshots: readonly Snapshot[]): Promise<Interval[]> {
  const reachOf = await readWal(paths);
  return Promise.all(
    snapshots.map(async (snapshot) => ({
      takenMs: snapshot.takenMs,
      ...(await reachOf(snapshot)),
    })),
  );
}

/**
 * Facts of complete WAL files, by their paths: these never change, and reading one takes some ten
 * ms.
 */
const lastCommits = new Map<string, number | null>();

/**
 * The last commit of a WAL file that others follow, in ms; null: there is none that can be read.
 */
async function lastCommitIn(path: string): Promise<number | null> {
  const known = lastCommits.get(path);
  if (known !== undefined) return known;
  const contents = await readBytes(path, WAL_FILE_BYTES).catch(() => null);
  if (contents === null) return null;
  const ms = lastCommitMs(contents);
  // A damaged file may say anything.
  const found = ms === null || ms > Date.now() + 1 ? null : ms;
  lastCommits.set(path, found);
  return found;
}

/** Reads the existing WAL files. @returns how far a snapshot can be rolled forward over them */
async function readWal(paths: InstancePaths): Promise<(snapshot: Snapshot) => Promise<Reach>> {
  // In this order: a file goes from here to the archive, and is missed in neither.
  const inPlace = await walFilesIn(join(paths.data, 'pg_wal'));
  const archived = await walFilesIn(paths.archive);
  const newest = [...archived, ...inPlace].toSorted().at(-1);
  const history = await timelineHistory(paths, newest ?? '');
  /** From a file on: which is the first that is missing, and how many there are before it. */
  type Run = { gap: string | null; files: number };
  const known = new Map<string, Run>();
  const runFrom = (first: string): Run => {
    let files = 0;
    for (let wal = first; wal <= (newest ?? first); wal = followingWalFile(wal, history), files++) {
      const rest = known.get(wal);
      if (rest !== undefined) return { gap: rest.gap, files: files + rest.files };
      // The file in place that is being written may be followed by recycled ones; a gap before an
      // archived one is a gap.
      if (!archived.has(wal) && !inPlace.has(wal)) return { gap: wal, files };
    }
    return { gap: null, files };
  };
  const pathOf = (wal: string): string =>
    join(archived.has(wal) ? paths.archive : join(paths.data, 'pg_wal'), wal);
  /**
   * The time of the last commit before a gap: a later moment may need what is lost. Null: there is
   * no commit from that file on.
   */
  const lastCommitBefore = async (gap: string, first: string): Promise<number | null> => {
    const files: string[] = [];
    for (let wal = first; wal < gap; wal = followingWalFile(wal, history)) files.push(wal);
    for (const wal of files.toReversed()) {
      const ms = await lastCommitIn(pathOf(wal));
      if (ms !== null) return ms;
    }
    return null;
  };
  const lastWrittenMs = async () =>
    (await findServer(paths)) === null
      ? (statEntry(join(paths.data, 'global', 'pg_control'))?.mtimeMs ?? 0)
      : Date.now();
  const isLost = statEntry(join(paths.data, 'global', 'pg_control')) === null;
  let endMs: Promise<number> | null = null;
  return async ({ firstWal, takenMs }) => {
    const first = onItsTimeline(firstWal, history);
    const run = runFrom(first);
    known.set(first, run);
    const { gap, files } = run;
    // Without data, the archive says what was written last.
    const end = gap ?? (isLost && newest !== undefined ? followingWalFile(newest, history) : null);
    const latestMs =
      end === null
        ? await (endMs ??= lastWrittenMs())
        : ((await lastCommitBefore(end, first)) ?? takenMs);
    return { gap, latestMs: Math.max(takenMs, latestMs), files };
  };
}

/** A snapshot's moment, and how far it can be rolled forward from there. */
export type Interval = Pick<Reach, 'gap' | 'latestMs'> & { takenMs: number };

/** A time of which nothing can be reached, for want of a WAL file. */
type Gap = { afterMs: number; beforeMs: number; gap: string };

/**
 * The moments that can be reached from snapshots. A moment is reached from the newest snapshot
 * before it, or from none: an older one lacks what that one lacks.
 *
 * @param intervals newest first
 * @returns gaps in the order of time; nulls where there is no snapshot
 */
export function reachable(intervals: readonly Interval[]): {
  earliestMs: number | null;
  latestMs: number | null;
  gaps: Gap[];
} {
  const gaps = intervals.flatMap(({ gap, latestMs }, index) => {
    const beforeMs = intervals[index - 1]?.takenMs ?? latestMs;
    return gap === null || latestMs >= beforeMs ? [] : [{ afterMs: latestMs, beforeMs, gap }];
  });
  return {
    earliestMs: intervals.at(-1)?.takenMs ?? null,
    latestMs: intervals[0]?.latestMs ?? null,
    gaps: gaps.toReversed(),
  };
}

/** The problem of a service's WAL archive; null: there is none. */
export async function archiveProblem(paths: InstancePaths): Promise<string | null> {
  if ((await entriesOf(paths.root)).length === 0) return null; // it is being made
  const unreadable = await listEntries(paths.archive).then(() => null, messageOf);
  const stays =
    'WAL stays in pg_wal meanwhile, which grows until this is fixed or the disk is full';
  if (unreadable !== null) return `the WAL archive cannot be read: ${unreadable}; ${stays}`;
  const unsafe = await listEntries(join(paths.data, 'pg_wal', 'archive_status')).then(
    () => null,
    (error: unknown) => (error instanceof UnsafeEntry ? error.message : null),
  );
  if (unsafe !== null) return `the WAL of the service cannot be read: ${unsafe}`;
  const waiting = await oldestWaiting(paths);
  if (waiting !== null && Date.now() - waiting.sinceMs > ARCHIVE_PATIENCE_MS) {
    const query = {
      sinceMs: waiting.sinceMs,
      untilMs: null,
      cursor: null,
      search: [paths.archive],
      severities: ['ERROR'],
      limit: 1,
    };
    const { entries } = await readLogs(paths.logs, query).catch(() => ({ entries: [] }));
    const reason = entries[0]?.message.split('\n')[0] ?? 'archiving does not keep up';
    return (
      `WAL file ${waiting.wal} has not been archived since ` +
      `${new Date(waiting.sinceMs).toISOString()}: ${reason}; ${stays}`
    );
  }
  const kept = await readKeptPoints(paths);
  const intervals = await reaches(paths, await listSnapshots(paths));
  return missingWal(intervals.filter(({ gap }) => gap === null || !gaveWay(gap, kept)));
}

/**
 * The moments that cannot be reached since WAL files are missing; null: there are none.
 *
 * @param intervals newest first
 */
export function missingWal(intervals: readonly Interval[]): string | null {
  const missing = (gap: string, what: string) =>
    `WAL file ${gap} is missing from the archive: ${what}`;
  const [newest] = intervals;
  const all = [
    ...(newest === undefined || newest.gap === null
      ? []
      : [
          missing(
            newest.gap,
            `nothing after ${iso(newest.latestMs)} can be reached from the snapshots before it`,
          ),
        ]),
    ...reachable(intervals)
      .gaps.toReversed()
      .map(({ gap, afterMs, beforeMs }) =>
        missing(gap, `nothing between ${iso(afterMs)} and ${iso(beforeMs)} can be reached`),
      ),
  ];
  const said = all.slice(0, GAPS_SAID);
  if (all.length > said.length)
    said.push(`${all.length - said.length} more gaps stand in the window of its backups`);
  if (said.length > 0) return said.join('; ');
  const gap = intervals.find((interval) => interval.gap !== null)?.gap;
  return gap === undefined || gap === null
    ? null
    : missing(gap, 'the snapshots before it lead only to the next one');
}

/** Beyond this number, only the count is given. */
const GAPS_SAID = 3;

/**
 * How long a WAL file may wait to be archived before it is said; PostgreSQL tries a few times
 * within seconds, then once a minute.
 */
const ARCHIVE_PATIENCE_MS = 15_000;

/** The WAL file that has waited the longest to be archived. */
async function oldestWaiting(
  paths: InstancePaths,
): Promise<{ wal: string; sinceMs: number } | null> {
  const directory = join(paths.data, 'pg_wal', 'archive_status');
  const [first] = (await entriesOf(directory)).filter((name) => name.endsWith('.ready')).toSorted();
  // The file may be archived at this moment.
  const noted = first === undefined ? null : statEntry(join(directory, first));
  return first === undefined || noted === null
    ? null
    : { wal: first.replace(/\.ready$/, ''), sinceMs: noted.mtimeMs };
}

const iso = (ms: number): string => new Date(ms).toISOString();
