/**
 * Opens directories that another user of the operating system can write. On a machine with services
 * they are those below the directories of services: `data`, `run`, `logs`, `archive`, `pooler`,
 * `haproxy`, also those of members, copies and snapshots. `untrusted-files.ts` reads and writes
 * their files through this.
 *
 * The operating system user of a service can write there and may put anything under any name: a
 * link to a file of root's, a FIFO, a directory, a second name (hard link) of another user's file.
 * It may replace a directory by a link while the control plane, as root, works in it.
 *
 * - A directory is opened first, and its real path is compared with the requested one. All work is
 *   done through the open descriptor (`/proc/self/fd/N/name`, since Node has no openat): later
 *   changes of the path do not redirect it.
 * - A link is followed only if it is in a directory that only root can write, for example an
 *   operator's link `archive` to another disk. No other link is followed, at no place of a path.
 * - Files are opened with O_NOFOLLOW and O_NONBLOCK and examined after that: only regular files
 *   with one name, which belong to the owner of their directory, are read, copied or changed. New
 *   files are made with O_EXCL under a temporary name, are given to their owner through the
 *   descriptor, and are renamed. No owner or mode is ever changed by path.
 * - Contents are input: readers take a size limit.
 *
 * Directories that only root can write need none of this: `services/ID` itself, `config`,
 * `snapshots`, `snapshots/ID`, `members`, `templates`, `trash`, `scratch`, `precloned` and the
 * files directly in them. There node:fs is used as elsewhere, in the modules that `.oxlintrc.json`
 * lists. Files of the control plane (pid files, start logs, notes) are there, and not in
 * directories of the service's user.
 *
 * Without root there is no privilege to abuse: owners and second names are not examined. Without
 * /proc (not Linux) plain paths are used.
 */
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  openSync,
  readlinkSync,
  type Stats,
} from 'node:fs';
import { open, readdir, rmdir, unlink } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import pLimit from 'p-limit';
import { isErrno } from './processes.ts';

/**
 * An entry is not what belongs under its path, and is left alone. The message names the path
 * relative to its service.
 */
export class UnsafeEntry extends Error {}

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
/** Linux: only the place, no access to its content (open(2)); Node has no name for it. */
const O_PATH = 0o10000000;
export const HAS_PROC = process.platform === 'linux' && existsSync('/proc/self/fd');
/** Whether an attacker who misleads us gains something. */
const isPrivileged = (): boolean => process.geteuid?.() === 0;
const LINKS_MAX = 8;

/**
 * An open directory: work done through it happens in it, even if its path is now another directory.
 * To be closed.
 */
export class Directory {
  readonly path: string;
  readonly #fd: number | null;
  #found: Stats | undefined;

  private constructor(path: string, fd: number | null) {
    this.path = path;
    this.#fd = fd;
  }

  /**
   * @throws UnsafeEntry where a link is in the way; an error of the operating system where there is
   * no directory
   */
  static open(path: string): Directory {
    if (!HAS_PROC) return new Directory(path, null);
    let wanted = resolve(path);
    for (let links = 0; links <= LINKS_MAX; links++) {
      const fd = openPlace(wanted);
      if (fd !== null) {
        if (readlinkSync(`/proc/self/fd/${fd}`) === wanted) return new Directory(path, fd);
        closeSync(fd);
      }
      wanted = followTrustedLink(wanted);
    }
    throw new UnsafeEntry(`${shown(path)} changes while it is opened`);
  }

  /** A directory in this one. */
  openChild(name: string): Directory {
    const path = join(this.path, name);
    if (this.#fd === null) return new Directory(path, null);
    try {
      return new Directory(path, openSync(this.at(name), O_PATH | O_DIRECTORY | O_NOFOLLOW));
    } catch (error) {
      if (isErrno(error, 'ENOTDIR', 'ELOOP'))
        throw unsafe(path, lstatSync(this.at(name), { throwIfNoEntry: false }), 'a directory');
      throw error;
    }
  }

  /**
   * A path to an entry of this directory that changes of the directory's path do not redirect. Its
   * last part must not be followed.
   */
  at(name: string): string {
    return this.#fd === null ? join(this.path, name) : `/proc/self/fd/${this.#fd}/${name}`;
  }

  lstat(name: string): Stats | null {
    return lstatSync(this.at(name), { throwIfNoEntry: false }) ?? null;
  }

  async entries() {
    return readdir(this.at('.'), { withFileTypes: true });
  }

  /**
   * Opens a regular file without following or waiting for anything.
   *
   * @returns a descriptor, to be closed, and what was found by it
   */
  openFile(name: string, flags: number = O_RDONLY): { fd: number; found: Stats } {
    const path = join(this.path, name);
    let fd: number;
    try {
      fd = openSync(this.at(name), flags | O_NOFOLLOW | O_NONBLOCK);
    } catch (error) {
      // A link; a socket or a FIFO; a directory that was to be written.
      if (isErrno(error, 'ELOOP', 'ENXIO', 'EISDIR'))
        throw unsafe(path, this.lstat(name), 'a regular file');
      throw this.named(error);
    }
    try {
      const found = fstatSync(fd);
      this.assertPlain(name, found);
      return { fd, found };
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  openPipe(name: string): number {
    const path = join(this.path, name);
    if (this.lstat(name)?.isFIFO() !== true && this.lstat(name) !== null)
      throw unsafe(path, this.lstat(name), 'a FIFO');
    const fd = openSync(this.at(name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const found = fstatSync(fd);
    if (found.isFIFO()) return fd;
    closeSync(fd);
    throw unsafe(path, found, 'a FIFO');
  }

  openSocketPlace(name: string): { path: string; close: () => void } {
    const path = join(this.path, name);
    if (this.#fd === null) return { path, close: () => undefined };
    let fd: number;
    try {
      fd = openSync(this.at(name), O_PATH | O_NOFOLLOW);
    } catch (error) {
      throw this.named(error);
    }
    const [found, directory] = [fstatSync(fd), this.#stat()];
    if (
      found.isSocket() &&
      (!isPrivileged() || isPrivate(directory) || found.uid === directory.uid)
    )
      return { path: `/proc/self/fd/${fd}`, close: () => closeSync(fd) };
    closeSync(fd);
    throw unsafe(path, found, "a socket of its directory's owner");
  }

  /**
   * @throws UnsafeEntry when an entry is no regular file, or belongs to another user: root could
   * read through it what the directory's owner cannot
   */
  assertPlain(name: string, found: Stats): void {
    const path = join(this.path, name);
    if (!found.isFile()) throw unsafe(path, found, 'a regular file');
    if (!isPrivileged()) return;
    const directory = this.#stat();
    if (isPrivate(directory)) return;
    if (found.nlink > 1)
      throw new UnsafeEntry(
        `${shown(path)} has ${found.nlink} names (hard links); a file with one name belongs there`,
      );
    const isTheirs = directory.uid === 0 ? found.uid !== 0 : found.uid === directory.uid;
    if (!isTheirs)
      throw new UnsafeEntry(
        `${shown(path)} belongs to user ${found.uid}, not to the owner of its directory`,
      );
  }

  /** Removes an entry, whatever it is. A missing entry is no error. */
  async remove(name: string): Promise<void> {
    try {
      const isLarge = (this.lstat(name)?.size ?? 0) >= LARGE_FILE_BYTES;
      await (isLarge ? oneByOne(() => unlink(this.at(name))) : unlink(this.at(name)));
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return;
      if (this.lstat(name)?.isDirectory() !== true) throw this.named(error);
      await this.removeDirectory(name);
    }
  }

  async removeDirectory(name: string): Promise<void> {
    const child = this.openChild(name);
    try {
      await child.removeContents();
    } finally {
      child.close();
    }
    await rmdir(this.at(name)).catch((error: unknown) => {
      if (!isErrno(error, 'ENOENT')) throw this.named(error);
    });
  }

  async removeContents(): Promise<void> {
    const queue = (await this.entries())[Symbol.iterator]();
    const removeNext = async (): Promise<void> => {
      for (const entry of queue)
        await (entry.isDirectory() ? this.#removeListed(entry.name) : this.remove(entry.name));
    };
    await Promise.all(Array.from({ length: PARALLEL_REMOVALS }, removeNext));
  }

  /** Removes an entry that was listed as a directory; it may be something else by now, or gone. */
  async #removeListed(name: string): Promise<void> {
    if (this.lstat(name)?.isDirectory() === true) await this.removeDirectory(name);
    else await this.remove(name);
  }

  /** Brings the names in this directory to the disk. */
  async sync(): Promise<void> {
    const directory = await open(this.at('.'), O_RDONLY | O_DIRECTORY);
    try {
      await directory.sync();
    } catch (error) {
      // Not every file system can flush a directory (PostgreSQL source: src/common/file_utils.c).
      if (!isErrno(error, 'EINVAL', 'EBADF')) throw error;
    } finally {
      await directory.close();
    }
  }

  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
  }

  /** An error of the operating system with the path as others know it. */
  named(error: unknown): unknown {
    if (error instanceof Error)
      error.message = error.message.replaceAll(/\/proc\/self\/fd\/\d+/g, this.path);
    return error;
  }

  #stat(): Stats {
    return (this.#found ??= this.#fd === null ? lstatSync(this.path) : fstatSync(this.#fd));
  }
}

const PARALLEL_REMOVALS = 8;
/**
 * Files of this size are removed one at a time on the machine: while a disk frees many blocks at
 * once, commits wait (p99 40 instead of 80 ms).
 */
const LARGE_FILE_BYTES = 1024 ** 2;
const oneByOne = pLimit(1);

/** Opens the place of a directory; null: its last part is a link. */
function openPlace(path: string): number | null {
  try {
    return openSync(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  } catch (error) {
    if (
      isErrno(error, 'ENOTDIR', 'ELOOP') &&
      lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true
    )
      return null;
    throw error;
  }
}

/**
 * Replaces the first link in a path by its target.
 *
 * @throws UnsafeEntry when the link is in a directory that other users than root can write
 */
function followTrustedLink(path: string): string {
  const names = path.split('/').filter(Boolean);
  let here = openSync('/', O_PATH | O_DIRECTORY);
  try {
    for (const [index, name] of names.entries()) {
      const at = `/proc/self/fd/${here}/${name}`;
      if (lstatSync(at).isSymbolicLink()) {
        const above = `/${names.slice(0, index).join('/')}`;
        if (isPrivileged() && !isPrivate(fstatSync(here)))
          throw new UnsafeEntry(
            `${shown(join(above, name))} is a symbolic link; a directory belongs there`,
          );
        return resolve(above, readlinkSync(at), ...names.slice(index + 1));
      }
      const next = openSync(at, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      closeSync(here);
      here = next;
    }
    return path; // it was renamed while it was opened
  } finally {
    closeSync(here);
  }
}

/** Whether only root, or our own user, can write into a directory. */
function isPrivate({ uid, mode }: Stats): boolean {
  return (uid === 0 || uid === process.geteuid?.()) && (mode & 0o022) === 0;
}

export function unsafe(
  path: string,
  found: Stats | null | undefined,
  expected: string,
): UnsafeEntry {
  return new UnsafeEntry(`${shown(path)} is ${kindOf(found)}; ${expected} belongs there`);
}

function kindOf(found: Stats | null | undefined): string {
  if (!found) return 'gone';
  if (found.isSymbolicLink()) return 'a symbolic link';
  if (found.isDirectory()) return 'a directory';
  if (found.isFIFO()) return 'a FIFO';
  if (found.isSocket()) return 'a socket';
  return found.isFile() ? 'a regular file' : 'a device';
}

/** The end of a path: messages reach tenants, who must not learn paths of the machine. */
export function shown(path: string): string {
  return path.split('/').slice(-2).join('/');
}

/** Works in an open directory, and closes it. */
export async function within<T>(
  directory: Directory,
  work: (directory: Directory) => Promise<T>,
): Promise<T> {
  try {
    return await work(directory);
  } finally {
    directory.close();
  }
}

/** Opens the directory of a path, and closes it when the work in it is done. */
export async function inDirectory<T>(
  path: string,
  work: (directory: Directory, name: string) => Promise<T>,
): Promise<T> {
  const directory = Directory.open(dirname(path));
  try {
    return await work(directory, basename(path));
  } finally {
    directory.close();
  }
}

/**
 * A path that opens an open file once more, and no other file.
 *
 * @param path by which it was opened
 */
export function pathOfOpen(fd: number, path: string): string {
  return HAS_PROC ? `/proc/self/fd/${fd}` : path;
}
