/** Files that are complete, and have their name, after a crash of the machine. */
import { open, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isErrno } from './processes.ts';

/**
 * Writes a file so that it exists completely or not at all, and is on the disk when this returns.
 */
export async function writeDurably(path: string, text: string, mode = 0o666): Promise<void> {
  await writeFile(`${path}.new`, text, { mode, flush: true });
  await renameDurably(`${path}.new`, path);
}

/**
 * Renames a file that is on the disk already, within its directory. Without the flush of the
 * directory, a crash of the machine may restore the old name, while files that were removed because
 * of the rename stay removed.
 */
export async function renameDurably(from: string, to: string): Promise<void> {
  await rename(from, to);
  const directory = await open(dirname(to));
  try {
    await directory.sync();
  } catch (error) {
    // Not every file system can flush a directory (PostgreSQL source: src/common/file_utils.c);
    // nothing more can be done on it.
    if (!isErrno(error, 'EINVAL', 'EBADF')) throw error;
  } finally {
    await directory.close();
  }
}
