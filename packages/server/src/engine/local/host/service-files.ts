/**
 * File access below the directories of services: `data`, `run`, `logs`, `archive`, `pooler`, `haproxy`, also those of members, copies and
 * snapshots. The operating system user of a service can write there and may put anything under any name: a link to a file of root's, a FIFO, a directory,
 * a second name (hard link) of somebody else's file; or replace a directory by a link while the control plane, as root, works in it.
 *
 * - A directory is opened first, and its real path compared with the one that was asked for. Work goes on through the open descriptor
 *   (`/proc/self/fd/N/name`, since Node has no openat): nothing that happens to the path afterwards redirects it.
 * - A link is followed only where it stands in a directory that nobody but root can write, for example an operator's link `archive` to
 *   another disk. No other link is followed, in no place of a path.
 * - Files are opened with O_NOFOLLOW and O_NONBLOCK and examined after that: only regular files with one name, which belong to the owner of their
 *   directory, are read, copied or changed. New files are made with O_EXCL under a temporary name, are given to their owner through the
 *   descriptor and renamed. No owner or mode is ever changed by path.
 * - Contents are input: readers take a size limit.
 *
 * Directories that only root can write need none of this: `services/ID` itself, `config`, `snapshots`, `snapshots/ID`, `members`,
 * `templates`, `trash`, `scratch`, `precloned` and what stands directly in them. There node:fs is used as elsewhere, in the modules that
 * `.oxlintrc.json` lists. Files of the control plane (pid files, start logs, notes) stand there and not in directories of the service's user.
 *
 * Without root there is no privilege to abuse: owners and second names are not examined. Without /proc (not Linux) plain paths are used.
 */
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  type Stats,
} from 'node:fs';
import { copyFile, open, readdir, rename, rmdir, unlink, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { isErrno } from '../../../lib/processes.ts';

/** A user and group of the operating system; null in its place: our own. */
export type FileOwner = { uid: number; gid: number };

/** What stands under a path is not what belongs there, and is left alone. The message names the path relative to its service. */
export class UnsafeEntry extends Error {}

const { O_RDONLY, O_RDWR, O_WRONLY, O_CREAT, O_EXCL, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } =
  constants;
/** Linux: only the place, no access to what stands there (open(2)); Node has no name for it. */
const O_PATH = 0o10000000;
const IS_ROOT = process.getuid?.() === 0;
const HAS_PROC = process.platform === 'linux' && existsSync('/proc/self/fd');
/** Whether an attacker who misleads us gains something. */
const isPrivileged = (): boolean => process.geteuid?.() === 0;
const LINKS_MAX = 8;
/** For text that is small when PostgreSQL or a daemon of ours wrote it. */
const TEXT_MAX_BYTES = 1024 ** 2;

// ── directories ──────────────────────────────────────────────────────────────────────────────────────────────────

/** An open directory: what is done through it is done in it, wherever its path leads by now. To be closed. */
export class Directory {
  readonly path: string;
  readonly #fd: number | null;
  #found: Stats | undefined;

  private constructor(path: string, fd: number | null) {
    this.path = path;
    this.#fd = fd;
  }

  /** @throws UnsafeEntry where a link is in the way; an error of the operating system where there is no directory */
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

  /** A path to something in this directory, whatever becomes of the path of the directory. Its last part must not be followed. */
  at(name: string): string {
    return this.#fd === null ? join(this.path, name) : `/proc/self/fd/${this.#fd}/${name}`;
  }

  lstat(name: string): Stats | null {
    return lstatSync(this.at(name), { throwIfNoEntry: false }) ?? null;
  }

  async entries() {
    return readdir(this.at('.'), { withFileTypes: true });
  }

  /** Opens a regular file without following or waiting for anything. @returns a descriptor, to be closed, and what was found by it */
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

  /** @throws UnsafeEntry when an entry is no regular file, or somebody else's: root would reach through it what its directory's owner cannot */
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

  /** Removes an entry, whatever it is. One that is not there is no error. */
  async remove(name: string): Promise<void> {
    try {
      await unlink(this.at(name));
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

  /** What was listed as a directory; it may be something else by now, or gone. */
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
 * Replaces the first link in a path by what it points to.
 *
 * @throws UnsafeEntry when it stands in a directory that others than root can write
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

/** Whether nobody but root, or our own user, can put anything into a directory. */
function isPrivate({ uid, mode }: Stats): boolean {
  return (uid === 0 || uid === process.geteuid?.()) && (mode & 0o022) === 0;
}

function unsafe(path: string, found: Stats | null | undefined, expected: string): UnsafeEntry {
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

/** The end of a path: messages reach tenants, who are told no paths of the machine. */
function shown(path: string): string {
  return path.split('/').slice(-2).join('/');
}

/** Opens the directory of a path, and closes it when the work in it is done. */
async function inDirectory<T>(
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

/** A path by which an open file can be opened once more: it leads nowhere else. @param path by which it was opened */
export function pathOfOpen(fd: number, path: string): string {
  return HAS_PROC ? `/proc/self/fd/${fd}` : path;
}

// ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** Opens a regular file for reading. */
export async function openFile(path: string): Promise<FileHandle> {
  return openChecked(path, O_RDONLY);
}

/** Opens a regular file, to change it where it is. */
export async function openForEditing(path: string): Promise<FileHandle> {
  return openChecked(path, O_RDWR);
}

async function openChecked(path: string, flags: number): Promise<FileHandle> {
  return inDirectory(path, async (directory, name) => {
    const { fd } = directory.openFile(name, flags);
    try {
      // The same file once more, as Node's kind of descriptor.
      return await open(pathOfOpen(fd, path), flags);
    } finally {
      closeSync(fd);
    }
  });
}

/** Opens a pipe for reading, without waiting for anybody at the other end. @returns a descriptor */
export function openPipe(path: string): number {
  const directory = Directory.open(dirname(path));
  try {
    return directory.openPipe(basename(path));
  } finally {
    directory.close();
  }
}

/** A path by which a Unix socket can be connected to, whatever becomes of its name; to be closed. @throws UnsafeEntry when it is none of its owner's */
export function openSocketPlace(path: string): { path: string; close: () => void } {
  const directory = Directory.open(dirname(path));
  try {
    return directory.openSocketPlace(basename(path));
  } finally {
    directory.close();
  }
}

/** The contents of a regular file. @throws UnsafeEntry when it is none, or larger than this */
export async function readBytes(path: string, maxBytes: number): Promise<Buffer> {
  const file = await openFile(path);
  try {
    const { size } = await file.stat();
    assertSize(path, size, maxBytes);
    const contents = Buffer.alloc(size);
    const { bytesRead } = await file.read(contents, 0, size, 0);
    return contents.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/**
 * A small file's text; null where there is none. Read at once: through the thread pool it takes ten times as long.
 *
 * @throws UnsafeEntry when it is no regular file, or too large
 */
export function readText(path: string): string | null {
  let directory: Directory | null = null;
  let fd: number | null = null;
  try {
    directory = Directory.open(dirname(path));
    const opened = directory.openFile(basename(path));
    fd = opened.fd;
    assertSize(path, opened.found.size, TEXT_MAX_BYTES);
    return readFileSync(fd, 'utf8');
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES', 'EPERM')) return null;
    throw error;
  } finally {
    if (fd !== null) closeSync(fd);
    directory?.close();
  }
}

function assertSize(path: string, size: number, maxBytes: number): void {
  if (size > maxBytes)
    throw new UnsafeEntry(`${shown(path)} has ${size} bytes; at most ${maxBytes} belong there`);
}

/** As {@link openFile}; null where there is no file, or something else in its place. */
export async function openFileOrNull(path: string): Promise<FileHandle | null> {
  return openFile(path).catch(missingOrUnsafe);
}

/** As {@link readText}; null also where something else stands in the file's place. */
export function readTextIfSafe(path: string): string | null {
  try {
    return readText(path);
  } catch (error) {
    if (error instanceof UnsafeEntry) return null;
    throw error;
  }
}

/** For `catch`: null in the place of what is not there, or is not what belongs there. */
export function missingOrUnsafe(error: unknown): null {
  if (error instanceof UnsafeEntry || isErrno(error, 'ENOENT', 'ENOTDIR')) return null;
  throw error;
}

/** What stands under a path, not what it points to; null: nothing. @throws UnsafeEntry when a link is in the way to it */
export function statEntry(path: string): Stats | null {
  let directory: Directory;
  try {
    directory = Directory.open(dirname(path));
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES')) return null;
    throw error;
  }
  try {
    return directory.lstat(basename(path));
  } finally {
    directory.close();
  }
}

/** Whether anything stands under a path, be it a link that points to nothing. */
export function entryExists(path: string): boolean {
  return statEntry(path) !== null;
}

/** Whether a regular file stands under a path. */
export function isFile(path: string): boolean {
  return statEntry(path)?.isFile() === true;
}

/** The names in a directory. @throws an error of the operating system where there is none */
export async function listEntries(path: string): Promise<string[]> {
  const directory = Directory.open(path);
  try {
    return await readdir(directory.at('.'));
  } finally {
    directory.close();
  }
}

// ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** Writes a file, so that it is there whole or not at all, and on the disk. What stood under its name is replaced, not followed. */
export async function writeText(
  path: string,
  text: string,
  owner: FileOwner | null,
  mode = 0o600,
): Promise<void> {
  await inDirectory(path, (directory, name) =>
    replace(
      directory,
      name,
      owner,
      async (file) => {
        await file.writeFile(text);
        await file.chmod(mode);
        await file.sync();
      },
      true,
    ),
  );
}

/** Copies a file. Its copy has its name when it is whole. @param durable whether it is on the disk then */
export async function copyInto(
  from: string,
  to: string,
  owner: FileOwner | null,
  durable = false,
): Promise<void> {
  const source = await openFile(from);
  try {
    await inDirectory(to, (directory, name) =>
      replace(
        directory,
        name,
        owner,
        async (target) => {
          if (HAS_PROC)
            await copyFile(
              pathOfOpen(source.fd, from),
              pathOfOpen(target.fd, to),
              constants.COPYFILE_FICLONE,
            );
          else await target.writeFile(await source.readFile());
          // Neither the mode of the source nor its owner, which libuv copies from version 1.49 on.
          await target.chmod(0o600);
          if (IS_ROOT) await target.chown(owner?.uid ?? 0, owner?.gid ?? 0);
          if (durable) await target.sync();
        },
        durable,
      ),
    );
  } finally {
    await source.close();
  }
}

/** Puts a new file in the place of what stands under a name. It is the owner's before anything is in it. */
async function replace(
  directory: Directory,
  name: string,
  owner: FileOwner | null,
  fill: (file: FileHandle) => Promise<void>,
  durable: boolean,
): Promise<void> {
  const temporary = `${name}.new`;
  await directory.remove(temporary);
  try {
    const file = await open(
      directory.at(temporary),
      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
      0o600,
    );
    try {
      if (owner !== null) await file.chown(owner.uid, owner.gid);
      await fill(file);
    } finally {
      await file.close();
    }
    await rename(directory.at(temporary), directory.at(name));
  } catch (error) {
    await directory.remove(temporary);
    throw isErrno(error, 'EISDIR')
      ? unsafe(join(directory.path, name), directory.lstat(name), 'a regular file')
      : directory.named(error);
  }
  if (durable) await directory.sync();
}

/** Removes a file, or whatever stands under its name, links themselves and directories with all that is in them. None is no error. */
export async function removeEntry(path: string): Promise<void> {
  try {
    await inDirectory(path, (directory, name) => directory.remove(name));
  } catch (error) {
    if (!isErrno(error, 'ENOENT', 'ENOTDIR')) throw error;
  }
}

/** Removes all that is in a directory. */
export async function emptyDirectory(path: string): Promise<void> {
  const directory = Directory.open(path);
  try {
    await directory.removeContents();
  } finally {
    directory.close();
  }
}
