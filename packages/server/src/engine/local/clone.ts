/**
 * Copying a directory tree as cheaply as the file system can: a btrfs subvolume snapshot, reflinks (XFS, btrfs), or bytes.
 * Which one is found out by trying, once, in the directory itself.
 */
import { randomBytes } from 'node:crypto';
import { constants, existsSync, statSync } from 'node:fs';
import { chmod, chown, copyFile, mkdir, mkdtemp, readdir, rename, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CloneMethod } from '@howdah/contract';
import type { Machine } from './machine.ts';
import { isErrno } from './processes.ts';
import { run } from './run.ts';

/** What a fork costs with each method; `howdah doctor` and the region say it. */
export const CLONE_COST: Record<CloneMethod, string> = {
  subvolume: 'forks are btrfs snapshots: each takes the same time whatever the size, and no room until one of the two writes',
  reflink: 'forks are reflinks: each takes time by the number of files, not by their size, and no room until one of the two writes',
  copy: 'forks are full copies, O(n) in time and room, because this file system cannot clone by reference; btrfs and XFS can',
};

/** Files opened at the same time while a tree is copied: what keeps two cores busy without starving the rest. */
const PARALLEL_FILES = 16;

/** Finds out what the file system of a directory can do, by doing it. */
export async function probeCloneMethod(directory: string): Promise<CloneMethod> {
  const probe = await mkdtemp(join(directory, '.probe-'));
  try {
    if (await makesSubvolumes(join(probe, 'volume'))) return 'subvolume';
    await writeFile(join(probe, 'a'), 'x');
    await copyFile(join(probe, 'a'), join(probe, 'b'), constants.COPYFILE_FICLONE_FORCE);
    return 'reflink';
  } catch (error) {
    if (isErrno(error, 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EXDEV', 'EINVAL', 'ENOTTY')) return 'copy';
    throw error;
  } finally {
    await rm(probe, { recursive: true, force: true });
  }
}

const BTRFS_MAGIC = 0x9123683e;

async function makesSubvolumes(path: string): Promise<boolean> {
  if ((await statfs(join(path, '..'))).type !== BTRFS_MAGIC || process.getuid?.() !== 0) return false;
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

/** What a clone leaves out, by paths relative to the top. */
export type Exclusions = {
  /** Directories whose contents stay behind; the directories themselves are there, empty. */
  contentsOf: readonly string[];
  files: readonly string[];
  /** Whether files that vanish while it goes on stay behind as well: a running server drops some. Elsewhere one that is missing is lost. */
  vanished: boolean;
};
const NOTHING: Exclusions = { contentsOf: [], files: [], vanished: false };

/**
 * Clones a tree into a directory that does not exist yet. Sockets and pipes are left out.
 *
 * @param owner who owns the clone; null: this process' user
 */
export async function cloneTree(
  from: string,
  to: string,
  method: CloneMethod,
  owner: { uid: number; gid: number } | null,
  exclude = NOTHING,
): Promise<void> {
  if (method === 'subvolume' && (await isSubvolume(from))) {
    await run('btrfs', ['subvolume', 'snapshot', from, to]);
    await Promise.all([
      ...exclude.contentsOf.map((directory) => emptyDirectory(join(to, directory))),
      ...exclude.files.map((file) => rm(join(to, file), { force: true })),
    ]);
    return;
  }
  const { directories, files } = await listTree(from, exclude);
  const mode = method === 'copy' ? constants.COPYFILE_FICLONE : constants.COPYFILE_FICLONE_FORCE;
  const own = async (path: string) => (owner === null ? undefined : chown(path, owner.uid, owner.gid));
  // What was made before btrfs-progs were there is no subvolume; its clone is one.
  await makeCloneable(to, method);
  await own(to);
  for (const directory of directories) {
    // Never with its parents: a service that was deleted meanwhile must not come back as an empty directory.
    await mkdir(join(to, directory), { mode: 0o700 });
    await own(join(to, directory));
  }
  const queue = files[Symbol.iterator]();
  const copyOne = async () => {
    for (const file of queue) {
      try {
        if (method !== 'copy' || !(await copyPastCache(join(from, file), join(to, file))))
          await copyFile(join(from, file), join(to, file), mode);
      } catch (error) {
        if (exclude.vanished && isErrno(error, 'ENOENT')) continue;
        throw error;
      }
      await own(join(to, file));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_FILES }, copyOne));
}

/**
 * Copies a large file without leaving the copy in memory, where it would push out what running servers read: 1.7 times as fast to the
 * disk besides (decision 0009).
 *
 * @returns false: it is small, or cannot be written so here
 */
async function copyPastCache(from: string, to: string): Promise<boolean> {
  const { size, mode } = statSync(from); // in a thread it would cost more than it takes
  if (size < LARGE_FILE_BYTES) return false;
  try {
    await run('dd', [`if=${from}`, `of=${to}`, 'bs=1M', 'oflag=direct', 'status=none'], { deadlineMs: 600_000 });
  } catch {
    return false; // a file system without O_DIRECT; whatever else it is, the ordinary way meets it again
  }
  await chmod(to, mode);
  return true;
}
const LARGE_FILE_BYTES = 64e6;

async function emptyDirectory(path: string): Promise<void> {
  await Promise.all((await readdir(path)).map((entry) => rm(join(path, entry), { recursive: true, force: true })));
}

/** Takes a tree away, subvolumes among it. One that is not there is no error. */
export async function removeTree(path: string, method: CloneMethod): Promise<void> {
  if (method === 'subvolume') {
    for (const volume of await subvolumesBelow(path)) await run('btrfs', ['subvolume', 'delete', volume]);
  }
  await rm(path, { recursive: true, force: true, maxRetries: 3 });
}

/** Inode number of the top of every btrfs subvolume. */
const SUBVOLUME_INODE = 256n;

/**
 * Takes a service's directory away, or one within it: renamed first, since one that is half removed must never be taken for whole.
 * What a crash leaves in the trash goes at the next start. One that is not there is no error.
 */
export async function discard({ layout, cloneMethod }: Pick<Machine, 'layout' | 'cloneMethod'>, id: string, path: string): Promise<void> {
  if (!existsSync(path)) return;
  const trash = join(layout.trash, `${id}-${randomBytes(4).toString('hex')}`);
  await rename(path, trash);
  await removeTree(trash, cloneMethod);
}

export async function isSubvolume(path: string): Promise<boolean> {
  const found = await stat(path, { bigint: true }).catch(() => null);
  return found?.ino === SUBVOLUME_INODE && found.isDirectory();
}

/** The `data` of each snapshot of an instance. */
async function snapshotData(path: string): Promise<string[]> {
  const entries = await readdir(join(path, 'snapshots')).catch(() => []);
  return entries.map((entry) => join(path, 'snapshots', entry, 'data'));
}

async function subvolumesBelow(path: string): Promise<string[]> {
  const found: string[] = [];
  // Subvolumes of ours are instance directories' `data` and templates: the first two levels; and below a service its other members.
  const members = await readdir(join(path, 'members')).catch(() => []);
  const instances = [...members.map((n) => join(path, 'members', n)), path];
  const data = instances.flatMap((instance) => [join(instance, 'data'), join(instance, 'data.new')]);
  for (const candidate of [...(await snapshotData(path)), ...data, path]) {
    if (await isSubvolume(candidate)) found.push(candidate);
  }
  return found;
}

/** The bytes that a clone needs free on its file system, with a margin of a tenth. */
export async function assertSpaceFor(bytes: number, directory: string): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const freeBytes = bavail * bsize;
  if (freeBytes < bytes * 1.1) {
    const mb = (value: number) => `${Math.ceil(value / 1e6)} MB`;
    throw new Error(
      `no space left in ${directory}: ${mb(freeBytes)} free, ${mb(bytes * 1.1)} needed; delete services or make room on the disk`,
    );
  }
}

/** What a tree holds, relative to its top. */
export async function listTree(top: string, exclude = NOTHING): Promise<{ directories: string[]; files: string[] }> {
  const directories: string[] = [];
  const files: string[] = [];
  const visit = async (relative: string): Promise<void> => {
    for (const entry of await readdir(join(top, relative), { withFileTypes: true })) {
      const path = relative === '' ? entry.name : `${relative}/${entry.name}`;
      if (entry.isDirectory()) {
        directories.push(path);
        if (!exclude.contentsOf.includes(path)) await visit(path);
      } else if (entry.isFile() && !exclude.files.includes(path)) files.push(path);
    }
  };
  await visit('');
  return { directories, files };
}

/** Bytes on disk below a directory; files that vanish while it is walked count nothing. */
export async function bytesBelow(top: string): Promise<number> {
  const { files } = await listTree(top);
  let bytes = 0;
  for (const [index, file] of files.entries()) {
    // One by one in threads they take five times the CPU of the control plane (35 ms for a thousand files); others get their turn.
    if (index % 200 === 199) await nextTurn();
    bytes += (statSync(join(top, file), { throwIfNoEntry: false })?.blocks ?? 0) * 512;
  }
  return bytes;
}
