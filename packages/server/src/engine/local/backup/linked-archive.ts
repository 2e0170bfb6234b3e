/** WAL archives that the operator has put on other disks: each is a link to a directory there. */
import { lstatSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isErrno, noneOf } from '../../../lib/processes.ts';
import type { Owner } from '../host/users.ts';
import { chown, mkdir, rmdir, symlink } from '../host/root-files.ts';
import { entryExists, removeEntry } from '../../../lib/untrusted-files.ts';
import { entriesOf, isWalFile } from '../../postgres/data/wal-files.ts';

const isLink = (archive: string): boolean =>
  lstatSync(archive, { throwIfNoEntry: false })?.isSymbolicLink() === true;

/** Whether an archive is a link to a disk that is not there. */
export const isArchiveAway = async (archive: string): Promise<boolean> =>
  isLink(archive) &&
  (await realpath(archive).catch(noneOf('ENOENT', 'ENOTDIR', 'ELOOP', 'EIO'))) === null;

/**
 * Makes an archive beside a former one, if that is on another disk. An existing archive is kept.
 *
 * @param name of the directory on that disk
 */
export async function linkBeside(
  owner: Owner | null,
  former: string,
  archive: string,
  name: string,
): Promise<void> {
  if (!isLink(former) || entryExists(archive)) return;
  const directory = join(dirname(await realpath(former)), name);
  await mkdir(directory, { mode: 0o700 }).catch(noneOf('EEXIST'));
  if (owner !== null) await chown(directory, owner.uid, owner.gid);
  await symlink(directory, archive);
}

/**
 * Removes an archive that the operator has put on another disk: what PostgreSQL wrote there, and
 * the directory if it is then empty. An archive below the service's own directory is removed with
 * that.
 */
export async function removeLinkedArchive(archive: string): Promise<void> {
  if (!isLink(archive)) return;
  const target = await realpath(archive).catch(noneOf('ENOENT', 'ENOTDIR'));
  if (target === null) return; // a disk that is not there
  for (const name of await entriesOf(target)) {
    if (isWalFile(name.slice(0, 24)) || /^[0-9A-F]{8}\.history$|^archtemp\./.test(name))
      await removeEntry(join(target, name));
  }
  await rmdir(target).catch((error: unknown) => {
    if (!isErrno(error, 'ENOTEMPTY', 'EBUSY', 'ENOENT')) throw error;
  });
}
