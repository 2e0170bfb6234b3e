/** The rate at which the disk of the data can be written: measured once, at the first start. */
import { join } from 'node:path';
import { isErrno, noneOf } from '../../../lib/processes.ts';
import type { Layout } from './layout.ts';
import { open, readFile, rm, writeFile } from './root-files.ts';

const CHUNK_BYTES = 8 * 1024 ** 2;
/** Long enough for some chunks on a slow disk, and not noticed in a first start. */
const MEASURED_MS = 250;
const MOST_BYTES = 256 * 1024 ** 2;
/** The rate of a disk that could not be measured, in bytes a second: an ordinary one of a cloud. */
const ASSUMED = 125e6;

const fileOf = (data: string): string => join(data, 'disk-rate');

/**
 * The rate that was measured, in bytes a second; null: it was not measured yet.
 *
 * @param data the data directory
 */
export async function readDiskRate(data: string): Promise<number | null> {
  const text = await readFile(fileOf(data), 'utf8').catch(noneOf('ENOENT'));
  const rate = Number(text ?? Number.NaN);
  return rate > 0 && Number.isFinite(rate) ? rate : null;
}

/** The rate of the disk in bytes a second; the first time it is measured. */
export async function measureDiskRate(layout: Layout): Promise<number> {
  const known = await readDiskRate(layout.root);
  if (known !== null) return known;
  const probe = join(layout.scratch, 'disk-rate');
  try {
    const rate = await measure(probe);
    await writeFile(fileOf(layout.root), `${Math.round(rate)}\n`);
    return rate;
  } catch (error) {
    if (isErrno(error, 'ENOSPC', 'EDQUOT')) return ASSUMED;
    throw error;
  } finally {
    await rm(probe, { force: true });
  }
}

/** Flushes each chunk, as commits do: what only reaches the page cache says nothing. */
async function measure(path: string): Promise<number> {
  // A disk that compresses must not be faster than it is with data.
  const chunk = Buffer.alloc(CHUNK_BYTES);
  for (let at = 0; at < chunk.length; at += 4) chunk.writeInt32LE((at * 2_654_435_761) | 0, at);
  const file = await open(path, 'wx', 0o600);
  try {
    const begunMs = performance.now();
    let bytes = 0;
    while (performance.now() - begunMs < MEASURED_MS && bytes < MOST_BYTES) {
      await file.write(chunk);
      await file.datasync();
      bytes += chunk.length;
    }
    return (bytes / (performance.now() - begunMs)) * 1000;
  } finally {
    await file.close();
  }
}
