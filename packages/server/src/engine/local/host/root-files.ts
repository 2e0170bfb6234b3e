/**
 * Functions of node:fs that change files by their paths, for places that only root can change:
 * `services/ID` itself, the files directly in it or in its `config`, `snapshots`, `members`, and
 * the other directories of an installation. An import from here states that; elsewhere in the local
 * engine the linter refuses these functions. untrusted-files.ts is for files that a service's user
 * can write.
 */
import { chmod, mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

export {
  chmod,
  chown,
  copyFile,
  mkdir,
  open,
  readFile,
  rename,
  rm,
  rmdir,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';

/**
 * Gives others what the mode gives them, if we are root: an earlier start, or another program, may
 * have made the file or directory under a umask that closed it.
 */
export async function ensureMode(path: string, mode: number): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const found = (await stat(path)).mode & 0o7777;
  if ((found & mode) !== mode) await chmod(path, found | mode);
}

/** Makes a directory, with at least this mode. */
export async function ensureDirectory(path: string, mode: number): Promise<void> {
  await mkdir(path, { recursive: true, mode });
  await ensureMode(path, mode);
}

/** The same for each directory on the way from `top` to `below`. */
export async function ensureDirectories(top: string, below: string, mode: number): Promise<void> {
  let path = top;
  for (const name of below.split('/')) {
    path = join(path, name);
    await ensureDirectory(path, mode);
  }
}
