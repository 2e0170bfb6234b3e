/**
 * How full a disk is, and the reserve: a file that holds space which is given up when the disk is
 * full, so that the metadata database and the control plane can go on. While there is space again
 * it is made again.
 */
import { stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { RESERVE_AGAIN_PERCENT, RESERVE_RELEASE_PERCENT } from '../../../domain/disk.ts';
import type { DiskUsage } from '../../engine.ts';
import { noneOf } from '../../../lib/processes.ts';
import { findImage, imagePaths } from './image.ts';
import type { Layout } from './layout.ts';
import { rm } from './root-files.ts';
import { run } from '../../../lib/run.ts';
import { TUNING } from '../../../lib/tuning.ts';

const SMALLEST_BYTES = 64 * 1024 ** 2;

/**
 * One percent of the disk, within bounds: enough WAL for the metadata database while services are
 * deleted.
 */
export function reserveBytes(totalBytes: number, maxBytes = TUNING.reserveMaxBytes): number {
  return Math.min(maxBytes, Math.max(SMALLEST_BYTES, Math.floor(totalBytes / 100)));
}

/** @param heldBytes what the reserve holds now; 0: there is none */
export function nextReserveStep(
  { usedPercent, totalBytes, freeBytes }: DiskSpace,
  heldBytes: number,
  maxBytes = TUNING.reserveMaxBytes,
): 'release' | 'make' | 'keep' {
  if (heldBytes > 0) return usedPercent >= RESERVE_RELEASE_PERCENT ? 'release' : 'keep';
  const percentWithReserve =
    ((totalBytes - freeBytes + reserveBytes(totalBytes, maxBytes)) / totalBytes) * 100;
  // Made at a higher percentage it would be given up at once.
  return percentWithReserve < RESERVE_AGAIN_PERCENT ? 'make' : 'keep';
}

type DiskSpace = Pick<DiskUsage, 'usedPercent' | 'totalBytes' | 'freeBytes'>;

/** How full the disk of a directory is, as df has it: of what is not reserved for root. */
export async function diskUsage(path: string): Promise<DiskUsage> {
  const { blocks, bavail, bfree, bsize } = await statfs(path);
  const usable = blocks - bfree + bavail;
  return {
    totalBytes: usable * bsize,
    freeBytes: bavail * bsize,
    usedPercent: usable === 0 ? 100 : ((usable - bavail) / usable) * 100,
  };
}

/**
 * The disk of the services, or the one that their image lies on when that is fuller: an image that
 * is half empty is no use on a disk that is full.
 */
export async function fullestDisk({ root, services }: Layout): Promise<DiskUsage> {
  const inside = await diskUsage(services);
  const image = await findImage(imagePaths(root));
  const outside = image === null ? inside : await diskUsage(dirname(image.path));
  return outside.usedPercent > inside.usedPercent ? outside : inside;
}

const reservePath = (directory: string): string => join(directory, 'reserve');

/** The size of the reserve of a data directory; 0: there is none. */
export async function heldReserve(directory: string): Promise<number> {
  const found = await stat(reservePath(directory)).catch(noneOf('ENOENT'));
  return found === null ? 0 : found.blocks * 512;
}

/**
 * Gives the reserve of a data directory up; the next start makes it again, for the disk that the
 * directory is on by then.
 */
export async function releaseReserve(directory: string): Promise<void> {
  await rm(reservePath(directory), { force: true });
}

/**
 * Gives the reserve of a data directory up, or makes it again, as the disk is.
 *
 * @param maxBytes the largest size of the reserve
 * @returns what was done, and what the reserve holds now
 */
export async function keepReserve(
  directory: string,
  maxBytes: number,
): Promise<{ did: 'released' | 'made' | null; heldBytes: number }> {
  const [space, heldBytes] = await Promise.all([diskUsage(directory), heldReserve(directory)]);
  switch (nextReserveStep(space, heldBytes, maxBytes)) {
    case 'keep':
      return { did: null, heldBytes };
    case 'release':
      await releaseReserve(directory);
      return { did: 'released', heldBytes: 0 };
    case 'make': {
      const bytes = reserveBytes(space.totalBytes, maxBytes);
      try {
        await run('fallocate', ['-l', String(bytes), reservePath(directory)]);
        return { did: 'made', heldBytes: bytes };
      } catch {
        // Without the program or its support in the file system there is no reserve; half of one
        // holds nothing for certain.
        await releaseReserve(directory);
        return { did: null, heldBytes: 0 };
      }
    }
  }
}
