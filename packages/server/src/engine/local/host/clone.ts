/**
 * Copying a directory tree as cheaply as the file system can: a btrfs subvolume snapshot, reflinks
 * (XFS, btrfs), or bytes. Which one is found out by trying, once, in the directory itself.
 */
import { randomBytes } from 'node:crypto';
import {
  chownSync,
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  lchownSync,
  openSync,
  readdirSync,
  readSync,
  writeFileSync,
  type Stats,
} from 'node:fs';
import {
  chmod,
  chown,
  copyFile,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  rename,
  rm,
  statfs,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CloneMethod } from '@howdah/contract';
import type { Layout } from './layout.ts';
import { isErrno } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';
import { emptyDirectory, removeEntry, type FileOwner } from '../../../lib/untrusted-files.ts';
import type { Shares } from './shares.ts';
import { Directory, pathOfOpen, UnsafeEntry, within } from '../../../lib/untrusted-directory.ts';

/** The cost of a fork with each method, as `howdah doctor` and the region show it. */
export const CLONE_COST: Record<CloneMethod, string> = {
  subvolume:
    'forks are btrfs snapshots: each takes the same time whatever the size, ' +
    'and no disk space until one of the two writes',
  reflink:
    'forks are reflinks: each takes time by the number of files, not by their size, ' +
    'and no disk space until one of the two writes',
  copy:
    'forks are full copies: their time and disk space grow with the data, ' +
    'because this file system cannot clone by reference; btrfs and XFS can',
};

/**
 * Files opened at the same time while a tree is copied: what keeps two cores busy without starving
 * the rest.
 */
const PARALLEL_FILES = 16;

/**
 * Finds out what the file system of a directory can do, by doing it. On a full disk it cannot be
 * tried, and a copy works everywhere.
 */
export async function probeCloneMethod(directory: string): Promise<CloneMethod> {
  try {
    return await tryToClone(directory);
  } catch (error) {
    if (isErrno(error, 'ENOSPC', 'EDQUOT')) return 'copy';
    throw error;
  }
}

async function tryToClone(directory: string): Promise<CloneMethod> {
  const probe = await mkdtemp(join(directory, '.probe-'));
  try {
    if (await makesSubvolumes(join(probe, 'volume'))) return 'subvolume';
    await writeFile(join(probe, 'a'), 'x');
    await copyFile(join(probe, 'a'), join(probe, 'b'), constants.COPYFILE_FICLONE_FORCE);
    return 'reflink';
  } catch (error) {
    if (isErrno(error, 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EXDEV', 'EINVAL', 'ENOTTY'))
      return 'copy';
    throw error;
  } finally {
    await rm(probe, { recursive: true, force: true });
  }
}

const BTRFS_MAGIC = 0x9123683e;

async function makesSubvolumes(path: string): Promise<boolean> {
  if ((await statfs(join(path, '..'))).type !== BTRFS_MAGIC || process.getuid?.() !== 0)
    return false;
  try {
    await run('btrfs', ['subvolume', 'create', path]);
    await run('btrfs', ['subvolume', 'delete', path]);
    return true;
  } catch {
    return false; // btrfs-progs are not installed: reflinks work without them
  }
}

/** Makes the directory that clones will be taken of: a subvolume where clones are snapshots. */
export async function makeCloneable(path: string, method: CloneMethod): Promise<void> {
  if (method === 'subvolume') await run('btrfs', ['subvolume', 'create', path]);
  else await mkdir(path);
  await chmod(path, 0o700);
}

/** The files that a clone leaves out, by paths relative to the top. */
export type Exclusions = {
  /** Directories whose contents are left out; the directories themselves are cloned, empty. */
  contentsOf: readonly string[];
  files: readonly string[];
  /**
   * Whether files may vanish meanwhile: a running server removes some. Elsewhere a missing file is
   * an error.
   */
  vanished: boolean;
};
const NOTHING: Exclusions = { contentsOf: [], files: [], vanished: false };

/** How trees are cloned on a machine, and the disk that copies share with servers. */
export type Cloning = { cloneMethod: CloneMethod; shares: Pick<Shares, 'joinCopies'> };

/**
 * Clones a tree into a directory that does not exist yet. Sockets and pipes are left out.
 *
 * The source may belong to a running server, whose user changes it meanwhile: see
 * untrusted-directory.ts. The clone is in a directory of root's. Its top is given to its owner
 * last, so that no other process can enter it before.
 *
 * @param owner the owner of the clone; null: this process' user
 * @throws UnsafeEntry when there is a link in it, or a file of another user
 */
export async function cloneTree(
  from: string,
  to: string,
  { cloneMethod: method, shares }: Cloning,
  owner: FileOwner | null,
  exclude = NOTHING,
): Promise<void> {
  if (method === 'subvolume' && (await isSubvolume(from))) {
    await run('btrfs', ['subvolume', 'snapshot', from, to]);
    await Promise.all([
      ...exclude.contentsOf.map((directory) => emptyDirectory(join(to, directory))),
      ...exclude.files.map((file) => removeEntry(join(to, file))),
    ]);
    if (owner !== null) await giveTree(to, owner);
    return;
  }
  const { directories, files } = await listTree(from, exclude);
  const mode = method === 'copy' ? constants.COPYFILE_FICLONE : constants.COPYFILE_FICLONE_FORCE;
  const own = async (path: string) =>
    owner === null ? undefined : chown(path, owner.uid, owner.gid);
  // A directory made before btrfs-progs were installed is no subvolume; its clone is one.
  await makeCloneable(to, method);
  // Never with its parents: a service that was deleted meanwhile must not come back as an empty
  // directory.
  for (const path of directories) await mkdir(join(to, path), { mode: 0o700 });
  const sources = openSources(from, files);
  const queue = files[Symbol.iterator]();
  let turnMs = performance.now();
  const copyOne = async () => {
    for (const file of queue) {
      const target = join(to, file.directory, file.name);
      try {
        await sources.use(file, (source) =>
          copyContents(source, target, method === 'copy', mode, shares),
        );
      } catch (error) {
        if (exclude.vanished && isErrno(error, 'ENOENT')) continue;
        throw error;
      }
      if (owner !== null) chownSync(target, owner.uid, owner.gid);
      if (performance.now() - turnMs < TURN_MS) continue;
      await nextTurn();
      turnMs = performance.now();
    }
  };
  try {
    await Promise.all(Array.from({ length: PARALLEL_FILES }, copyOne));
  } finally {
    sources.close();
  }
  for (const path of directories) await own(join(to, path));
  await own(to);
}

/**
 * Opens files of a tree one by one, and their directories once, as long as files of them are left.
 */
function openSources(top: string, files: readonly TreeFile[]) {
  const left = new Map<string, number>();
  for (const { directory } of files) left.set(directory, (left.get(directory) ?? 0) + 1);
  const opened = new Map<string, Directory>();
  const done = (directory: string): void => {
    const rest = (left.get(directory) ?? 1) - 1;
    left.set(directory, rest);
    if (rest > 0) return;
    opened.get(directory)?.close();
    opened.delete(directory);
  };
  return {
    use: async <T>(
      { directory, name }: TreeFile,
      work: (source: Source) => Promise<T>,
    ): Promise<T> => {
      try {
        let place = opened.get(directory);
        if (place === undefined)
          opened.set(directory, (place = Directory.open(join(top, directory))));
        const { fd, found } = place.openFile(name);
        try {
          return await work({ fd, found, path: pathOfOpen(fd, join(place.path, name)) });
        } finally {
          closeSync(fd);
        }
      } finally {
        done(directory);
      }
    },
    close: (): void => {
      for (const directory of opened.values()) directory.close();
      opened.clear();
    },
  };
}

type Source = { fd: number; path: string; found: Stats };

async function copyContents(
  source: Source,
  to: string,
  byBytes: boolean,
  mode: number,
  shares: Cloning['shares'],
): Promise<void> {
  const { size } = source.found;
  if (byBytes && size <= SMALL_FILE_BYTES) copySmall(source, to);
  else if (!byBytes || size < LARGE_FILE_BYTES || !(await copyPastCache(source, to, shares)))
    await copyFile(source.path, to, mode);
}

/** Copies a small file at once: through the thread pool it takes three times the CPU. */
function copySmall({ fd, found }: Source, to: string): void {
  const target = openSync(to, 'wx', found.mode & 0o777);
  try {
    let read: number;
    do {
      read = readSync(fd, SMALL, 0, SMALL.length, null);
      writeFileSync(target, SMALL.subarray(0, read));
    } while (read === SMALL.length);
    fchmodSync(target, found.mode & 0o777);
  } finally {
    closeSync(target);
  }
}
const SMALL_FILE_BYTES = 128 * 1024;
const SMALL = Buffer.allocUnsafe(SMALL_FILE_BYTES);
/** How long others may wait while files are copied at once. */
const TURN_MS = 5;

/**
 * Copies a large file without leaving the copy in memory, where it would push out what running
 * servers read: 1.7 times as fast to the disk besides (decision 0009).
 *
 * @returns false: it cannot be written so here
 */
async function copyPastCache(
  { fd, found }: Source,
  to: string,
  shares: Cloning['shares'],
): Promise<boolean> {
  try {
    await run('dd', [`of=${to}`, 'bs=1M', 'oflag=direct', 'status=none'], {
      deadlineMs: 600_000,
      input: fd,
      started: shares.joinCopies,
    });
  } catch {
    // The file system has no O_DIRECT; the ordinary way meets any other error again.
    return false;
  }
  await chmod(to, found.mode & 0o777);
  return true;
}
const LARGE_FILE_BYTES = 64e6;

/**
 * Gives a snapshot of a tree, which nobody else can reach yet, to its owner. Files that are there
 * under several names are all in it.
 */
async function giveTree(top: string, { uid, gid }: { uid: number; gid: number }): Promise<void> {
  const give = async (path: string): Promise<void> => {
    // In threads each would take five times the CPU; others get their turn between directories.
    lchownSync(path, uid, gid);
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (!entry.isDirectory()) lchownSync(join(path, entry.name), uid, gid);
      else await nextTurn().then(() => give(join(path, entry.name)));
    }
  };
  await give(top);
}

/** Removes a tree with its subvolumes. A missing tree is no error. */
export async function removeTree(path: string, method: CloneMethod): Promise<void> {
  if (method === 'subvolume') {
    for (const volume of await subvolumesBelow(path))
      await run('btrfs', ['subvolume', 'delete', volume]);
  }
  await removeEntry(path);
}

/** Inode number of the top of every btrfs subvolume. */
const SUBVOLUME_INODE = 256n;

/**
 * Takes a service's directory away, or one within it: renamed first, since one that is half removed
 * must never be taken for whole. The next start removes what a crash has left in the trash. A
 * missing directory is no error.
 */
export async function discard(
  { layout, cloneMethod }: { layout: Layout; cloneMethod: CloneMethod },
  id: string,
  path: string,
): Promise<void> {
  if (!existsSync(path)) return;
  const trash = join(layout.trash, `${id}-${randomBytes(4).toString('hex')}`);
  await rename(path, trash);
  await removeTree(trash, cloneMethod);
}

export async function isSubvolume(path: string): Promise<boolean> {
  const found = await lstat(path, { bigint: true }).catch(() => null);
  return found?.ino === SUBVOLUME_INODE && found.isDirectory();
}

/** The `data` of each snapshot of an instance. */
async function snapshotData(path: string): Promise<string[]> {
  const entries = await readdir(join(path, 'snapshots')).catch(() => []);
  return entries.map((entry) => join(path, 'snapshots', entry, 'data'));
}

/** The data directories that restores of a service have replaced; or those of one restore. */
async function asideData(path: string): Promise<string[]> {
  const aside = join(path, 'aside');
  const restores = (await readdir(aside).catch(() => [])).map((entry) => join(aside, entry));
  const inEach = await Promise.all(
    [...restores, path].map(async (restore) =>
      (await readdir(restore).catch(() => []))
        .filter((entry) => /^\d+$/.test(entry))
        .map((entry) => join(restore, entry)),
    ),
  );
  // An upgrade sets the snapshots aside too.
  const snapshots = await Promise.all(restores.map(snapshotData));
  return [...inEach, ...snapshots].flat();
}

async function subvolumesBelow(path: string): Promise<string[]> {
  const found: string[] = [];
  // Subvolumes of ours are instance directories' `data` and templates: the first two levels; and
  // below a service its other members.
  const numbers = await readdir(join(path, 'members')).catch(() => []);
  const instances = [...numbers.map((n) => join(path, 'members', n)), path];
  const data = instances.flatMap((instance) => [
    join(instance, 'data'),
    join(instance, 'data.new'),
  ]);
  const below = [...(await snapshotData(path)), ...(await asideData(path))];
  for (const candidate of [...below, ...data, path]) {
    if (await isSubvolume(candidate)) found.push(candidate);
  }
  return found;
}

type TreeFile = { directory: string; name: string };

/**
 * The contents of a tree, relative to its top; sockets and pipes are left out.
 *
 * @throws UnsafeEntry when there is a link in it: what it points to is not of the tree, and
 *   without it the tree lacks something
 */
async function listTree(
  top: string,
  exclude: Exclusions,
): Promise<{ directories: string[]; files: TreeFile[] }> {
  const directories: string[] = [];
  const files: TreeFile[] = [];
  const visit = async (place: Directory, relative: string): Promise<void> => {
    for (const entry of await place.entries()) {
      const path = relative === '' ? entry.name : `${relative}/${entry.name}`;
      if (exclude.files.includes(path)) continue;
      if (entry.isSymbolicLink())
        throw new UnsafeEntry(`${path} is a symbolic link; a data directory holds none`);
      if (entry.isFile()) files.push({ directory: relative, name: entry.name });
      if (!entry.isDirectory()) continue;
      directories.push(path);
      if (!exclude.contentsOf.includes(path))
        await within(place.openChild(entry.name), (child) => visit(child, path));
    }
  };
  await within(Directory.open(top), (place) => visit(place, ''));
  return { directories, files };
}
