/** Keeps the backups of services while they run: takes snapshots, prunes, and reports problems. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Warning } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import type { BackupPolicy } from '../../../config.ts';
import type { RepositorySource } from '../../../repository/source.ts';
import type { KeepRules } from '../../keep-rules.ts';
import { archiveProblem, reach } from './window.ts';
import {
  chooseKeptPoints,
  isKept,
  keptPointsNow,
  writeKeptPoints,
  type KeptPoints,
} from './kept-points.ts';
import { lastVerification, listSnapshots, type KeptSnapshot, chooseSnapshot } from './snapshots.ts';
import { takeSnapshot } from './running-clone.ts';
import { memberKey, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { readMarker } from '../host/marker.ts';
import { isWorthRelief, waitingWalBudget } from '../host/quota-rules.ts';
import { ownerOf } from '../host/users.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import { findServer } from '../postgres/server.ts';
import { WAL_FILE_BYTES, walFilesIn, isWalFile } from '../../postgres/data/wal-files.ts';
import { waitingWal } from '../repository/state.ts';
import { removeTree } from '../host/clone.ts';
import { rename } from '../host/root-files.ts';
import { listEntries, removeEntry } from '../../../lib/untrusted-files.ts';

/** Checkpoints write a little WAL even if no client does. */
const IDLE_WAL_BYTES = 8192;

/** Corrections of the clock are smaller than this, unless somebody sets it. */
const CLOCK_TOLERANCE_MS = 60_000;
const isFromFuture = ({ takenMs }: KeptSnapshot): boolean =>
  takenMs > Date.now() + CLOCK_TOLERANCE_MS;

/** The state of the backups of services. */
export type Keeper = {
  readonly machine: Machine;
  readonly monitor: Monitored;
  readonly policy: BackupPolicy;
  readonly repositories: Pick<RepositorySource, 'known'>;
  /** Why the last snapshot that was due could not be taken. */
  readonly snapshotProblems: Map<string, string>;
  /** Services whose snapshots are being taken or pruned. */
  readonly keeping: Set<string>;
  /** Services whose backups are being read: nothing of them may be removed. */
  readonly held: Set<string>;
  readonly pruning: Map<string, Promise<void>>;
  /**
   * Directories of services that are provisioned, and stay so: their markers need not be read
   * again.
   */
  provisioned: ReadonlySet<string>;
};

export function createKeeper(
  machine: Machine,
  monitor: Monitored,
  policy: BackupPolicy,
  repositories: Pick<RepositorySource, 'known'>,
): Keeper {
  return {
    machine,
    monitor,
    policy,
    repositories,
    snapshotProblems: new Map(),
    keeping: new Set(),
    held: new Set(),
    pruning: new Map(),
    provisioned: new Set(),
  };
}

/** Forks that are being made of a service: they may still need its archive and snapshots. */
export async function provisioningForksOf(keeper: Keeper, id: string): Promise<string[]> {
  const { layout } = keeper.machine;
  const entries = await readdir(layout.services);
  const read = async (entry: string) => ({
    entry,
    marker: await readMarker(layout.service(entry)),
  });
  const { provisioned } = keeper;
  const looked = await Promise.all(entries.filter((entry) => !provisioned.has(entry)).map(read));
  const provisionedNow = looked
    .filter(({ marker }) => marker?.provisioned === true)
    .map(({ entry }) => entry);
  keeper.provisioned = new Set([
    ...entries.filter((entry) => provisioned.has(entry)),
    ...provisionedNow,
  ]);
  return looked.flatMap(({ marker }) =>
    marker !== null && marker.parent === id && !marker.provisioned ? [marker.id] : [],
  );
}

/**
 * Takes a snapshot if one is due, and removes what the window no longer needs and no repository
 * waits for.
 *
 * @returns whether a snapshot was due and could not be taken: {@link backupWarnings} has the reason
 */
export async function keepBackups(
  keeper: Keeper,
  id: string,
  { removes, quotaBytes }: KeepRules,
): Promise<boolean> {
  const { keeping, snapshotProblems } = keeper;
  // One at a time: a second call would take an unfinished snapshot for an interrupted one.
  if (keeping.has(id)) return snapshotProblems.has(id);
  keeping.add(id);
  try {
    await tryDueSnapshot(keeper, id);
    if (removes) await prune(keeper, id, keeper.policy, waitingWalBudget(quotaBytes, false));
    return snapshotProblems.has(id);
  } finally {
    keeping.delete(id);
  }
}

/**
 * Takes a snapshot if one is due. A failure becomes a warning: pruning must go on, since it makes
 * room.
 */
async function tryDueSnapshot(keeper: Keeper, id: string): Promise<void> {
  const { machine, monitor, snapshotProblems } = keeper;
  const primary = machine.layout.primaryOf(id);
  const paths = machine.layout.member(id, primary);
  try {
    const [newest] = await listSnapshots(paths);
    if (newest === undefined || (await isDue(keeper, memberKey(id, primary), paths, newest)))
      await takeSnapshot(machine, ownerOf(machine, paths), paths);
    snapshotProblems.delete(id);
  } catch (error) {
    // Not a problem if the service was stopped or has another primary by now.
    if (
      (await findServer(paths)) === null ||
      machine.layout.primaryOf(id) !== primary ||
      !monitor.isConnected(memberKey(id, primary))
    )
      return;
    snapshotProblems.set(id, messageOf(error));
  }
}

/** Whether a service needs a new snapshot. @param key its primary */
export async function isDue(
  { monitor, policy }: Pick<Keeper, 'monitor' | 'policy'>,
  key: string,
  paths: InstancePaths,
  newest: KeptSnapshot,
): Promise<boolean> {
  // The clock was set back since: the date does not show when the next snapshot is due, and no
  // moment before it can be reached from this one.
  if (isFromFuture(newest)) return true;
  if (Date.now() - newest.takenMs >= policy.snapshotEveryMs)
    return hasWrittenSince(monitor, key, newest.walPosition);
  // Moments after a WAL gap can only be reached from a snapshot that was taken after it.
  return (await reach(paths, newest)).gap !== null;
}

async function hasWrittenSince(
  monitor: Monitored,
  key: string,
  walPosition: string,
): Promise<boolean> {
  if (walPosition === '') return true;
  const [row] = await monitor.query<{ written: boolean }>(
    key,
    'select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn) ' +
      `> ${IDLE_WAL_BYTES} as written`,
    [walPosition],
  );
  return row?.written === true;
}

async function prune(
  keeper: Keeper,
  id: string,
  window: Pick<BackupPolicy, 'windowMs'>,
  maxWaitingBytes: number,
): Promise<void> {
  const { machine, repositories, held, pruning } = keeper;
  if ((await provisioningForksOf(keeper, id)).length > 0 || held.has(id)) return;
  const paths = machine.layout.service(id);
  const done = waitingWal(paths, repositories.known(), maxWaitingBytes)
    .then((waiting) => pruneBackups(machine, paths, window, waiting))
    .finally(() => pruning.delete(id));
  pruning.set(id, done);
  await done;
}

/**
 * Makes room in the WAL archive: a new snapshot is taken, and what is before it is removed, but for
 * the points from before the growth, and the newest WAL that a repository waits for.
 *
 * @returns what stays; null: nothing was removed
 */
export async function relieveArchive(
  keeper: Keeper,
  id: string,
  { removes, quotaBytes }: KeepRules,
): Promise<KeptPoints | null> {
  const { machine, keeping, held, snapshotProblems } = keeper;
  const isBusy = keeping.has(id) || held.has(id);
  if (!removes || isBusy || (await provisioningForksOf(keeper, id)).length > 0) return null;
  const paths = machine.layout.member(id, machine.layout.primaryOf(id));
  const archived = [...(await walFilesIn(paths.archive))].toSorted();
  const before = await listSnapshots(paths);
  const earlier = await keptPointsNow(paths, before);
  const kept = earlier ?? chooseKeptPoints(before, archived, quotaBytes, Date.now());
  const removable = archived.filter((wal) => !isKept(wal, kept)).length * WAL_FILE_BYTES;
  if (kept === null || !isWorthRelief(removable, quotaBytes, earlier !== null)) return null;
  keeping.add(id);
  try {
    await takeSnapshot(machine, ownerOf(machine, paths), paths);
  } catch (error) {
    // Files that the newest existing snapshot does not need are removed all the same.
    snapshotProblems.set(id, messageOf(error));
  } finally {
    keeping.delete(id);
  }
  const [newest] = await listSnapshots(paths);
  const now = {
    ...kept,
    againWal: newest?.firstWal ?? null,
    count: kept.count + 1,
    lastMs: Date.now(),
  };
  // Before anything is removed: what a crash leaves behind is explained.
  await writeKeptPoints(paths, now);
  await prune(keeper, id, { windowMs: 0 }, waitingWalBudget(quotaBytes, true));
  return now;
}

/** Reads backups of a service while none of them is removed. */
export async function holdingBackups<T>(
  { held, pruning }: Keeper,
  id: string,
  read: () => Promise<T>,
): Promise<T> {
  held.add(id);
  try {
    // An error reaches the caller that prunes.
    await pruning.get(id)?.catch(() => undefined);
    return await read();
  } finally {
    held.delete(id);
  }
}

/** The problems of a service's backups, whether it runs or not. */
export async function backupWarnings(
  { machine, snapshotProblems }: Keeper,
  id: string,
): Promise<Warning[]> {
  const paths = machine.layout.member(id, machine.layout.primaryOf(id));
  const archive = await archiveProblem(paths);
  const snapshot = snapshotProblems.get(id);
  const snapshots = await listSnapshots(paths);
  const verification = lastVerification(snapshots);
  const ahead = snapshots.filter(isFromFuture);
  const warnings: Warning[] = [];
  if (archive !== null) warnings.push({ code: 'ARCHIVE', message: archive });
  if (snapshot !== undefined)
    warnings.push({
      code: 'SNAPSHOT',
      message: `no snapshot could be taken: ${snapshot}; it is tried again each minute`,
    });
  if (ahead.length > 0)
    warnings.push({
      code: 'SNAPSHOT',
      message:
        `${ahead.length} snapshots are dated in the future ` +
        `(${ahead.map(({ takenMs }) => new Date(takenMs).toISOString()).join(', ')}): the ` +
        'clock was set back. A new one is taken while the service runs; ' +
        'moments of the time when the clock was ahead may not be reachable. ' +
        'Keep the clock in time (timedatectl)',
    });
  if (verification?.problem !== undefined)
    warnings.push({
      code: 'VERIFICATION',
      message:
        `the backup could not be verified at ${verification.at}: ${verification.problem}; ` +
        `when it is fixed, verify it again (howdah backup verify ${id})`,
    });
  return warnings;
}

export function forgetBackups({ snapshotProblems }: Keeper, id: string): void {
  snapshotProblems.delete(id);
}

// Removes the snapshots and the archived WAL that neither the window nor a repository needs.

/**
 * Removes snapshots and archived WAL that no point inside the window needs. At least one snapshot
 * stays, and the points from before a growth.
 *
 * @param waiting WAL that stays for a repository
 */
async function pruneBackups(
  { cloneMethod }: Pick<Machine, 'cloneMethod'>,
  paths: InstancePaths,
  { windowMs }: Pick<BackupPolicy, 'windowMs'>,
  waiting: ReadonlySet<string>,
): Promise<void> {
  const snapshots = await listSnapshots(paths);
  const beginMs = Date.now() - windowMs;
  // The newest snapshot from before the window is what its earliest point is reached from.
  const base = chooseSnapshot(snapshots, beginMs);
  const older = base === null ? [] : snapshots.slice(snapshots.indexOf(base) + 1);
  const kept = await keptPointsNow(paths, snapshots);
  for (const { id } of older.filter((snapshot) => snapshot.id !== kept?.snapshot)) {
    // Renamed first: one that is half removed is never taken for whole.
    const going = join(paths.snapshots, `${id}.new`);
    await rename(join(paths.snapshots, id), going);
    await removeTree(going, cloneMethod);
  }
  for (const entry of await readdir(paths.snapshots)) {
    if (entry.endsWith('.new')) await removeTree(join(paths.snapshots, entry), cloneMethod);
  }
  const oldest = snapshots[snapshots.length - older.length - 1];
  if (oldest === undefined) return;
  for (const wal of await listEntries(paths.archive)) {
    // The last segment of a timeline is archived as partial when the next timeline begins, whose
    // own segment has it too.
    const isOlder = isWalFile(wal.replace(/\.partial$/, '')) && wal < oldest.firstWal;
    if (isOlder && !waiting.has(wal) && !isKept(wal, kept))
      await removeEntry(join(paths.archive, wal));
  }
}
