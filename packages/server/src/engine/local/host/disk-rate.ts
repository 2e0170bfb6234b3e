/** The rate at which the disk of the data can be written: measured once, at the first start. */
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { isErrno, noneOf } from '../../../lib/processes.ts';
import type { Layout } from './layout.ts';
import { mkdir, open, readFile, rm, writeFile } from './root-files.ts';

const CHUNK_BYTES = 4 * 1024 ** 2;
/** Long enough for some chunks on a slow disk, and not noticed in a first start. */
const MEASURED_MS = 300;
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
  // Servers that run already must not meet a full disk.
  const { bavail, bsize } = await statfs(layout.root);
  if (bavail * bsize < 4 * MOST_BYTES) return ASSUMED;
  const probe = join(layout.scratch, 'disk-rate');
  try {
    await mkdir(probe, { recursive: true });
    const rate = await measure(probe);
    await writeFile(fileOf(layout.root), `${Math.round(rate)}\n`);
    return rate;
  } catch (error) {
    if (isErrno(error, 'ENOSPC', 'EDQUOT')) return ASSUMED;
    throw error;
  } finally {
    await rm(probe, { recursive: true, force: true });
  }
}

/** Some files at a time: one writer waits for its flushes most of the time. */
async function measure(directory: string): Promise<number> {
  // A disk that compresses must not be faster than it is with data.
  const chunk = Buffer.alloc(CHUNK_BYTES);
  for (let at = 0; at < chunk.length; at += 4) chunk.writeInt32LE((at * 2_654_435_761) | 0, at);
  const begunMs = performance.now();
  const write = async (path: string): Promise<number> => {
    const file = await open(path, 'w', 0o600);
    try {
      let bytes = 0;
      while (performance.now() - begunMs < MEASURED_MS && bytes < MOST_BYTES / WRITERS) {
        // Flushed, as commits are: the page cache says nothing about the disk.
        await file.write(chunk, 0, chunk.length, bytes);
        await file.datasync();
        bytes += chunk.length;
      }
      return bytes;
    } finally {
      await file.close();
    }
  };
  const written = await Promise.all(
    Array.from({ length: WRITERS }, (_, n) => write(join(directory, String(n)))),
  );
  const seconds = (performance.now() - begunMs) / 1000;
  return written.reduce((sum, bytes) => sum + bytes, 0) / seconds;
}
const WRITERS = 3;
