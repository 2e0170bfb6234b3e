/**
 * The last resort on a full disk: archived WAL is removed although it is needed, so that the
 * metadata database finds space. Without that database no service can be paused or purged, and the
 * disk would stay full. A service loses moments that it could be restored to, but none of its data.
 */
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Layout } from '../host/layout.ts';
import { diskUsage } from '../host/reserve.ts';
import { removeEntry } from '../../../lib/untrusted-files.ts';
import { noneOf } from '../../../lib/processes.ts';
import { isKept, keptPointsNow, type KeptPoints } from './kept-points.ts';
import { listSnapshots } from './snapshots.ts';
import { entriesOf, isWalFile, WAL_FILE_BYTES } from '../../postgres/data/wal-files.ts';

/** With less than this the metadata database may fail at any moment, in bytes. */
const LEAST_FREE_BYTES = 64e6;
/** How much is free afterwards: services go on writing until they are paused. */
const WANTED_FREE_BYTES = 256e6;
/** The archive of an idle service has a few segments, which free next to nothing. */
const LEAST_SEGMENTS = 8;

export type RemovedWal = { id: string; bytes: number };

/**
 * Removes archived WAL if the disk of the services is full.
 *
 * @param grown the services that grew since the disk became full, which give theirs first
 * @returns what was removed
 */
export async function removeWalOnFullDisk(
  layout: Layout,
  grown: ReadonlySet<string>,
): Promise<RemovedWal[]> {
  const { freeBytes } = await diskUsage(layout.services);
  if (freeBytes >= LEAST_FREE_BYTES) return [];
  const archives = await Promise.all(
    (await readdir(layout.services)).map((id) => look(layout, id)),
  );
  const chosen = chooseWal(archives, grown, WANTED_FREE_BYTES - freeBytes);
  for (const { directory, names } of chosen)
    for (const name of names) await removeEntry(join(directory, name));
  return chosen.map(({ id, names }) => ({ id, bytes: names.length * WAL_FILE_BYTES }));
}

/** The archived WAL of a service, oldest first, and which of it stays for as long as it can. */
export type Archive = {
  id: string;
  directory: string;
  names: readonly string[];
  kept: KeptPoints | null;
};

/**
 * The segments to remove: those of services that grew come first, the newest before others, so that
 * points from before the growth stay; then the oldest of the largest archives. Points in time after
 * a missing segment cannot be reached, so one archive gives all that it can before the next gives
 * anything.
 */
export function chooseWal(
  archives: readonly Archive[],
  grown: ReadonlySet<string>,
  neededBytes: number,
): Archive[] {
  const chosen: Archive[] = [];
  let missing = Math.ceil(neededBytes / WAL_FILE_BYTES);
  const order = archives
    .filter(({ names }) => names.length >= LEAST_SEGMENTS)
    .toSorted(
      (a, b) =>
        Number(grown.has(b.id)) - Number(grown.has(a.id)) || b.names.length - a.names.length,
    );
  for (const archive of order) {
    if (missing <= 0) break;
    const names = inOrder(archive, grown.has(archive.id)).slice(0, missing);
    chosen.push({ ...archive, names });
    missing -= names.length;
  }
  return chosen;
}

/** The segments of an archive in the order in which they go. */
function inOrder({ names, kept }: Archive, hasGrown: boolean): string[] {
  const order = hasGrown ? names.toReversed() : names;
  return order.toSorted((a, b) => Number(isKept(a, kept)) - Number(isKept(b, kept)));
}

/** An archive that the operator has put on another disk counts as empty. */
async function look(layout: Layout, id: string): Promise<Archive> {
  const paths = layout.service(id);
  const directory = paths.archive;
  const found = await lstat(directory).catch(noneOf('ENOENT', 'ENOTDIR'));
  const names = found?.isDirectory() === true ? await entriesOf(directory) : [];
  const kept = await keptPointsNow(paths, await listSnapshots(paths)).catch(() => null);
  return { id, directory, names: names.filter(isWalFile).toSorted(), kept };
}
