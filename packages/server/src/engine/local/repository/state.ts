/**
 * The part of a service that a repository has, in a file of root's in the directory of the service,
 * and the part that it lacks, by the archive. A lost file is made again from the repository, which
 * recognises WAL that is pushed again.
 */
import { join } from 'node:path';
import { writeDurably } from '../../../lib/durable-files.ts';
import { readOrNull } from '../../../lib/processes.ts';
import type { OffMachineVerification } from '../../off-machine.ts';
import type { InstancePaths } from '../host/layout.ts';
import { markerOf } from '../host/marker.ts';
import { statEntry } from '../../../lib/untrusted-files.ts';
import {
  entriesOf,
  followingWalFile,
  isHistory,
  isWalFile,
  timelineHistory,
} from '../../postgres/data/wal-files.ts';
import type { PgBackRest } from '../../../repository/repository.ts';
import type { Machine } from '../host/machine-record.ts';

/** A backup in a repository. */
type OffMachineBackup = {
  /** pgBackRest's name for it. */
  label: string;
  /** The id of the snapshot that was backed up. */
  snapshot: string;
  takenMs: number;
  type: 'full' | 'incr';
  /** The size of its addition to the repository. */
  storageBytes: number;
  /** The time of the copy; undefined: an older release did not note it. */
  durationSeconds?: number | undefined;
};

/**
 * A time of which a repository lacks WAL: nothing in it can be restored from there. It ends with
 * the next backup; `beforeMs` null: there is none yet.
 */
type OffMachineGap = { afterMs: number; beforeMs: number | null };

export type OffMachine = {
  /** Newest first. */
  backups: OffMachineBackup[];
  /** The window of points in time begins here; null: there is no backup. */
  earliestMs: number | null;
  /** Whatever was committed and acknowledged before is in the repository; null: unknown. */
  safeToMs: number | null;
  /** In the order of time. */
  gaps: OffMachineGap[];
  /** Archived WAL that is not in the repository yet. */
  backlog: { files: number; bytes: number; oldestMs: number | null };
  /** Why the last attempt failed, in words; null: it did not. */
  problem: string | null;
  /** The last verification; null: there was none. */
  verification: OffMachineVerification | null;
};

/**
 * A backup, and where the WAL begins that it needs. `isInitial`: its snapshot was recorded before
 * the server's first start; an older release did not note that.
 */
export type KnownBackup = OffMachineBackup & { firstWal: string; isInitial?: boolean | undefined };

/** The content of the file. */
export type ShipState = {
  repositoryId: string;
  /** The upgrade that has made the data of which this is the state; null: none has. */
  upgrade: string | null;
  backups: KnownBackup[];
  /** The last WAL file of each timeline that was pushed, by the timeline. */
  pushed: Record<string, string>;
  histories: string[];
  /** The newest WAL that was pushed without a gap; null: none was. */
  run: { first: string; last: string } | null;
  gaps: OffMachineGap[];
  /** The last commit in what was pushed. */
  lastCommitMs: number | null;
  safeToMs: number | null;
  /** Why the last attempt to send WAL, and the last backup, failed. */
  problem: string | null;
  backupProblem?: string | null;
  verification?: OffMachineVerification;
};

export const emptyState = (repositoryId: string, upgrade: string | null): ShipState => ({
  repositoryId,
  upgrade,
  backups: [],
  pushed: {},
  histories: [],
  run: null,
  gaps: [],
  lastCommitMs: null,
  safeToMs: null,
  problem: null,
});

/** An upgrade leaves the state of the former data as it was: an undo goes on with it. */
const fileOf = (
  { root }: InstancePaths,
  { repositoryId, upgrade }: Pick<ShipState, 'repositoryId' | 'upgrade'>,
): string => join(root, `off-machine.${repositoryId}${upgrade === null ? '' : `.${upgrade}`}.json`);

/** The upgrade that has made the data in place; null: none has. */
export const upgradeIn = (paths: InstancePaths): string | null => markerOf(paths)?.upgrade ?? null;

/**
 * The state of a service in a repository; null: none was written for this one.
 *
 * @param upgrade the upgrade that has made the data of it
 */
export async function readState(
  paths: InstancePaths,
  repositoryId: string,
  upgrade = upgradeIn(paths),
): Promise<ShipState | null> {
  const empty = emptyState(repositoryId, upgrade);
  const text = await readOrNull(fileOf(paths, empty));
  if (text === null) return null;
  // Written completely or not at all, by us; an older release noted no gaps.
  const state: ShipState = { ...empty, ...JSON.parse(text) };
  return state.repositoryId === repositoryId ? state : null;
}

export async function writeState(paths: InstancePaths, state: ShipState): Promise<void> {
  await writeDurably(fileOf(paths, state), JSON.stringify(state), 0o600);
}

/**
 * The archived files that the repository lacks, in the order in which they are pushed: those of a
 * timeline follow its history. Older ones than any backup needs are left out.
 */
export async function pendingFiles(
  { archive }: InstancePaths,
  state: ShipState,
): Promise<string[]> {
  const oldest = state.backups.at(-1)?.firstWal.slice(8) ?? '';
  return (await entriesOf(archive))
    .filter((name) =>
      isHistory(name)
        ? !state.histories.includes(name)
        : isWalFile(name) &&
          name > (state.pushed[name.slice(0, 8)] ?? '') &&
          name.slice(8) >= oldest,
    )
    .toSorted();
}

/**
 * Whether WAL is missing between what was pushed, or the newest backup if nothing was, and an
 * archived file.
 */
export async function isBeyondGap(
  paths: InstancePaths,
  { run, backups }: Pick<ShipState, 'run' | 'backups'>,
  wal: string,
): Promise<boolean> {
  const next =
    run === null
      ? backups[0]?.firstWal
      : followingWalFile(run.last, await timelineHistory(paths, wal));
  return next !== undefined && wal.slice(8) > next.slice(8);
}

/** Notes a gap after what was pushed; one that no backup has ended yet goes on. */
export function noteGap(state: ShipState): void {
  if (state.gaps.at(-1)?.beforeMs === null) return;
  const known = [state.safeToMs, state.lastCommitMs, state.backups[0]?.takenMs];
  const afterMs = Math.max(...known.map((ms) => ms ?? 0));
  state.gaps.push({ afterMs, beforeMs: null });
}

/** Ends a gap with the first backup after it, and forgets those before the first backup. */
export function endGaps(state: ShipState): void {
  const { backups, run } = state;
  const next = backups.findLast(
    ({ firstWal }) => run !== null && firstWal.slice(8) >= run.first.slice(8),
  );
  state.gaps = state.gaps
    .map(({ afterMs, beforeMs }) => ({
      afterMs,
      beforeMs: beforeMs ?? (next !== undefined && next.takenMs > afterMs ? next.takenMs : null),
    }))
    .filter(({ afterMs }) => afterMs >= (backups.at(-1)?.takenMs ?? 0));
}

/**
 * The archived WAL that repositories wait for, the newest first as far as it takes no more than so
 * many bytes. A repository without a backup has no use for older WAL than its first one needs.
 */
export async function waitingWal(
  paths: InstancePaths,
  repositoryIds: readonly string[],
  maxBytes: number,
): Promise<Set<string>> {
  const waiting = new Set<string>();
  for (const id of repositoryIds) {
    const state = await readState(paths, id);
    if (state === null || state.backups.length === 0) continue;
    for (const name of await pendingFiles(paths, state)) if (isWalFile(name)) waiting.add(name);
  }
  const kept = new Set<string>();
  let bytes = 0;
  for (const name of [...waiting].toSorted((a, b) => (a.slice(8) < b.slice(8) ? 1 : -1))) {
    bytes += (statEntry(join(paths.archive, name))?.blocks ?? 0) * 512;
    if (bytes > maxBytes) break;
    kept.add(name);
  }
  return kept;
}

/** The state as others see it. */
export async function describeState(paths: InstancePaths, before: ShipState): Promise<OffMachine> {
  const pending = await pendingFiles(paths, before);
  const state = { ...before, gaps: [...before.gaps] };
  const wal = pending.find(isWalFile);
  if (wal !== undefined && (await isBeyondGap(paths, state, wal))) noteGap(state);
  const found = pending.flatMap((name) => statEntry(join(paths.archive, name)) ?? []);
  return {
    backups: state.backups.map(({ label, snapshot, takenMs, type, storageBytes, ...more }) => ({
      label,
      snapshot,
      takenMs,
      type,
      storageBytes,
      durationSeconds: more.durationSeconds,
    })),
    earliestMs: state.backups.at(-1)?.takenMs ?? null,
    safeToMs: state.safeToMs,
    gaps: state.gaps,
    backlog: {
      files: found.length,
      bytes: found.reduce((sum, { blocks }) => sum + blocks * 512, 0),
      oldestMs: found.length === 0 ? null : Math.min(...found.map(({ mtimeMs }) => mtimeMs)),
    },
    problem: state.problem ?? state.backupProblem ?? null,
    verification: state.verification ?? null,
  };
}

/** The state as the last `ship` wrote it; null: this repository never had the service. */
export async function offMachine(
  { machine }: Pick<ShipContext, 'machine'>,
  id: string,
  repositoryId: string,
): Promise<OffMachine | null> {
  const paths = machine.layout.service(id);
  const state = await readState(paths, repositoryId);
  return state === null ? null : describeState(paths, state);
}

// The means of backups off the machine.

export type ShipContext = Readonly<{ machine: Machine; program: PgBackRest }>;

/** How often a service is backed up off the machine. */
export type ShipPolicy = {
  fullEveryMs: number;
  backupEveryMs: number;
};
