/**
 * Reads and writes files in directories that another user of the operating system can change at any
 * time, as those of services. `untrusted-directory.ts` has the rules.
 */
import { closeSync, constants, readFileSync, type Stats } from 'node:fs';
import { copyFile, open, readdir, rename, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isErrno } from './processes.ts';
import {
  Directory,
  HAS_PROC,
  inDirectory,
  pathOfOpen,
  shown,
  unsafe,
  UnsafeEntry,
} from './untrusted-directory.ts';

/** A user and group of the operating system; null in its place: our own. */
export type FileOwner = { uid: number; gid: number };

const { O_RDONLY, O_RDWR, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
const IS_ROOT = process.getuid?.() === 0;
/** Larger files with unused space are not WAL. */
const SPARSE_MAX_BYTES = 64 * 1024 ** 2;
/** For text that is small when PostgreSQL or a daemon of ours wrote it. */
const TEXT_MAX_BYTES = 1024 ** 2;

// ── reading
// ─────────────────────────────────────────────────────────────────────────────────────────────────

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

/** Opens a pipe for reading, without waiting for a writer. @returns a descriptor */
export function openPipe(path: string): number {
  const directory = Directory.open(dirname(path));
  try {
    return directory.openPipe(basename(path));
  } finally {
    directory.close();
  }
}

/**
 * A path for connections to a Unix socket that a change of its name does not redirect; to be
 * closed.
 *
 * @throws UnsafeEntry when it is not a socket of its directory's owner
 */
export function openSocketPlace(path: string): { path: string; close: () => void } {
  const directory = Directory.open(dirname(path));
  try {
    return directory.openSocketPlace(basename(path));
  } finally {
    directory.close();
  }
}

/**
 * The contents of a regular file.
 *
 * @throws UnsafeEntry when it is another kind of file, or larger than this
 */
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
 * A small file's text; null where there is none. Read at once: through the thread pool it takes ten
 * times as long.
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

/** As {@link openFile}; null if there is no file, or something else in its place. */
export async function openFileOrNull(path: string): Promise<FileHandle | null> {
  return openFile(path).catch(missingOrUnsafe);
}

/** As {@link readText}; null also if something else is in the file's place. */
export function readTextIfSafe(path: string): string | null {
  try {
    return readText(path);
  } catch (error) {
    if (error instanceof UnsafeEntry) return null;
    throw error;
  }
}

/** For `catch`: null if the file is missing, or something else is in its place. */
export function missingOrUnsafe(error: unknown): null {
  if (error instanceof UnsafeEntry || isErrno(error, 'ENOENT', 'ENOTDIR')) return null;
  throw error;
}

/**
 * The entry under a path, links not followed; null: there is none.
 *
 * @throws UnsafeEntry when a link is in the way to it
 */
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

/** Whether there is an entry under a path, even a link that points to nothing. */
export function entryExists(path: string): boolean {
  return statEntry(path) !== null;
}

/** Whether there is a regular file under a path. */
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

// ── writing
// ─────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Writes a file completely or not at all, and flushes it. An entry of its name is replaced, not
 * followed.
 */
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

/**
 * Copies a file. The copy has its name only once it is complete.
 *
 * @param durable whether to flush it first
 */
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
          await copyContents(source, from, target, to);
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

/** Copies by reference if the file system can. The copy takes no more space than the file. */
async function copyContents(
  source: FileHandle,
  from: string,
  target: FileHandle,
  to: string,
): Promise<void> {
  const { size, blocks } = await source.stat();
  const isSparse = blocks * 512 < size && size <= SPARSE_MAX_BYTES;
  const { COPYFILE_FICLONE, COPYFILE_FICLONE_FORCE } = constants;
  const copy = (mode: number) =>
    copyFile(pathOfOpen(source.fd, from), pathOfOpen(target.fd, to), mode);
  if (HAS_PROC && !isSparse) return copy(COPYFILE_FICLONE);
  if (HAS_PROC && (await copy(COPYFILE_FICLONE_FORCE).then(isDone, notDone))) return;
  const contents = await source.readFile();
  await target.write(contents, 0, usedBytes(contents), 0);
  await target.truncate(contents.length);
}
const isDone = (): boolean => true;
const notDone = (): boolean => false;

/** Replaces an entry by a new file, which belongs to its owner before it has any content. */
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

/**
 * Removes an entry: a file, a link itself, or a directory with its contents. A missing one is no
 * error.
 */
export async function removeEntry(path: string): Promise<void> {
  try {
    await inDirectory(path, (directory, name) => directory.remove(name));
  } catch (error) {
    if (!isErrno(error, 'ENOENT', 'ENOTDIR')) throw error;
  }
}

/** Removes the contents of a directory. */
export async function emptyDirectory(path: string): Promise<void> {
  const directory = Directory.open(path);
  try {
    await directory.removeContents();
  } finally {
    directory.close();
  }
}

// Files that end in zeros: a WAL file that was left early does.

const ZEROS = Buffer.alloc(65_536);

/** How many bytes of a file are not zeros at its end, in steps of 64 KiB. */
export function usedBytes(contents: Buffer): number {
  let end = contents.length;
  while (end >= ZEROS.length && contents.subarray(end - ZEROS.length, end).equals(ZEROS))
    end -= ZEROS.length;
  return end;
}
