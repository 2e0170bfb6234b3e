/**
 * Copying a directory tree as cheaply as the file system can: a btrfs subvolume snapshot, reflinks (XFS, btrfs), or bytes.
 * Which one is found out by trying, once, in the directory itself.
 */
import { constants, statSync } from 'node:fs';
import { chown, copyFile, mkdir, mkdtemp, readdir, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isErrno } from './processes.ts';
import { run } from './run.ts';

export type CloneMethod = 'subvolume' | 'reflink' | 'copy';

/** What a clone costs with each method; `howdah doctor` says it. */
export const CLONE_COST: Record<CloneMethod, string> = {
  subvolume: 'btrfs subvolume snapshots: a clone costs the same whatever its size',
  reflink: 'reflinks: a clone costs by the number of files, not by their size',
  copy: 'this file system cannot clone by reference: a clone is a full copy, O(n) in its size; XFS or btrfs would make it instant',
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
  else await mkdir(path, { recursive: true, mode: 0o700 });
}

/** What a clone leaves out, by paths relative to the top. */
export type Exclusions = {
  /** Directories whose contents stay behind; the directories themselves are there, empty. */
  contentsOf: readonly string[];
  files: readonly string[];
};
const NOTHING: Exclusions = { contentsOf: [], files: [] };

/**
 * Clones a tree into a directory that does not exist yet. Sockets and pipes are left out, and files that vanish meanwhile.
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
  if (method === 'subvolume') {
    await run('btrfs', ['subvolume', 'snapshot', from, to]);
    for (const directory of exclude.contentsOf) await emptyDirectory(join(to, directory));
    for (const file of exclude.files) await rm(join(to, file), { force: true });
    return;
  }
  const { directories, files } = await listTree(from, exclude);
  const mode = method === 'reflink' ? constants.COPYFILE_FICLONE_FORCE : constants.COPYFILE_FICLONE;
  const own = async (path: string) => (owner === null ? undefined : chown(path, owner.uid, owner.gid));
  for (const directory of ['', ...directories]) {
    await mkdir(join(to, directory), { mode: 0o700 });
    await own(join(to, directory));
  }
  const queue = files[Symbol.iterator]();
  const copyOne = async () => {
    for (const file of queue) {
      try {
        await copyFile(join(from, file), join(to, file), mode);
      } catch (error) {
        if (isErrno(error, 'ENOENT')) continue; // dropped by the running server
        throw error;
      }
      await own(join(to, file));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_FILES }, copyOne));
}

async function emptyDirectory(path: string): Promise<void> {
  for (const entry of await readdir(path)) await rm(join(path, entry), { recursive: true, force: true });
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

/** The `data` of each snapshot of an instance. */
async function snapshotData(path: string): Promise<string[]> {
  const entries = await readdir(join(path, 'snapshots')).catch(() => []);
  return entries.map((entry) => join(path, 'snapshots', entry, 'data'));
}

async function subvolumesBelow(path: string): Promise<string[]> {
  const found: string[] = [];
  // Subvolumes of ours are instance directories' `data` and templates: the first two levels.
  for (const candidate of [...(await snapshotData(path)), join(path, 'data'), path]) {
    const info = await stat(candidate, { bigint: true }).catch(() => null);
    if (info?.ino === SUBVOLUME_INODE && info.isDirectory()) found.push(candidate);
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
