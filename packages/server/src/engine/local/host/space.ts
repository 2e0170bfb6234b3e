/** The disk space that directories take, and whether there is room for more. */
import { statfs } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Backups, CloneMethod } from '@howdah/contract';
import { isErrno } from '../../../lib/processes.ts';
import { Directory, UnsafeEntry, within } from '../../../lib/untrusted-directory.ts';
import { run } from '../../../lib/run.ts';
import type { FileOwner } from '../../../lib/untrusted-files.ts';

/** @throws Error when a file system has less free than these bytes and a tenth */
export async function assertSpaceFor(bytes: number, directory: string): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const freeBytes = bavail * bsize;
  if (freeBytes < bytes * 1.1) {
    const mb = (value: number) => `${Math.ceil(value / 1e6)} MB`;
    throw new Error(
      `no space left on the disk of the services: ${mb(freeBytes)} free, ` +
        `${mb(bytes * 1.1)} needed; delete services or make space on it`,
    );
  }
}

/**
 * Bytes on disk below a directory, links not followed. Entries that vanish meanwhile do not count.
 */
export async function bytesBelow(top: string): Promise<number> {
  let [bytes, looked] = [0, 0];
  const visit = async (place: Directory): Promise<void> => {
    for (const entry of await place.entries()) {
      // Synchronous: in threads it takes five times the CPU (35 ms for a thousand files). Other
      // work gets its turn.
      if (looked++ % 200 === 199) await nextTurn();
      if (entry.isFile()) bytes += (place.lstat(entry.name)?.blocks ?? 0) * 512;
      else if (entry.isDirectory()) await visitChild(place, entry.name);
    }
  };
  const visitChild = async (place: Directory, name: string): Promise<void> => {
    let child: Directory;
    try {
      child = place.openChild(name);
    } catch (error) {
      if (error instanceof UnsafeEntry || isErrno(error, 'ENOENT')) return;
      throw error;
    }
    await within(child, visit);
  };
  await within(Directory.open(top), visit);
  return bytes;
}

// The disk space of a data directory: how much is its own, and how much it shares with its clones
// or its source.

type Storage = Backups['storage'];

/**
 * Sums the extents of all files, and the shared ones; a large database may have millions. Data that
 * btrfs keeps inline is given in bytes, not in blocks, and is negligible. Files that vanish do not
 * count.
 */
const SUM_EXTENTS = `command -v filefrag >&2 || exit 1
find "$1" -type f -exec nice -n 19 filefrag -v {} + 2>/dev/null | nice -n 19 awk -F '[.: ]+' '
  /^File size of .* blocks? of [0-9]+ bytes\\)$/ { block = $(NF - 1) }
  /^ *[0-9]+:/ && !/inline/ { total += $7 * block; if (/shared/) shared += $7 * block }
  END { printf "%.0f %.0f", total, total - shared }'`;

/**
 * Measuring walks every extent: it is worth at most this part of a processor, and not worth
 * repeating sooner than this.
 */
const SHARE_OF_CPU = 0.02;
const FRESH_FOR_MS = 30_000;

/** Measures data directories, each again only when the last figures are old enough. */
export function createStorageMeter(method: CloneMethod) {
  const known = new Map<string, { until: number; figures: Promise<Storage> }>();

  /**
   * @returns null where it cannot be measured: without filefrag (e2fsprogs), or when there is too
   *   much to walk in a minute
   */
  const measure = (data: string, owner: FileOwner | null): Promise<Storage> => {
    const last = known.get(data);
    if (last !== undefined && Date.now() < last.until) return last.figures;
    const begunMs = Date.now();
    const figures = measureStorage(data, owner, method)
      .catch(() => null)
      .finally(() => {
        entry.until = Date.now() + Math.max(FRESH_FOR_MS, (Date.now() - begunMs) / SHARE_OF_CPU);
      });
    const entry = { until: Infinity, figures };
    known.set(data, entry);
    return figures;
  };
  return { measure, forget: (data: string): void => void known.delete(data) };
}

async function measureStorage(
  data: string,
  owner: FileOwner | null,
  method: CloneMethod,
): Promise<Storage> {
  if (method === 'copy') {
    const total_mb = Math.ceil((await bytesBelow(data)) / 1e6);
    return { total_mb, owned_mb: total_mb, shared_mb: 0 };
  }
  // By path, through what its user can change: with no more rights than that.
  const user = owner === null ? {} : { uid: owner.uid, gid: owner.gid };
  const [total, owned] = (await run('sh', ['-c', SUM_EXTENTS, 'sh', data], user))
    .split(' ')
    .map((bytes) => Math.ceil(Number(bytes) / 1e6));
  return total === undefined || owned === undefined
    ? null
    : { total_mb: total, owned_mb: owned, shared_mb: total - owned };
}
