/** Removes the snapshots and the archived WAL that neither the window nor a repository needs. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { BackupPolicy } from '../../../config.ts';
import { removeTree } from '../host/clone.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { rename } from '../host/root-files.ts';
import { listEntries, removeEntry } from '../host/service-files.ts';
import { isWalFile } from '../postgres/wal-files.ts';
import { isKept, keptPointsNow } from './kept-points.ts';
import { chooseSnapshot, listSnapshots } from './snapshots.ts';

/**
 * Removes snapshots and archived WAL that no point inside the window needs. At least one snapshot
 * stays, and the points from before a growth.
 *
 * @param waiting WAL that stays for a repository
 */
export async function pruneBackups(
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
