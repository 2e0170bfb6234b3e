/**
 * A small disk for a test: an ext4 in a sparse file, mounted as root. Tests that fill a disk must
 * not fill the machine's.
 */
import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export type LoopDisk = {
  path: string;
  usedPercent: () => Promise<number>;
  usedBytes: () => Promise<number>;
  remove: () => Promise<void>;
};

/** @returns false where none can be mounted: not root, no mkfs.ext4, or no loop devices */
export async function loopDisksWork(): Promise<boolean> {
  if (process.getuid?.() !== 0) return false;
  try {
    await (await makeLoopDisk(8)).remove();
    return true;
  } catch {
    return false;
  }
}

/**
 * Belongs into a hook that has one to remove it: what a file makes while its tests are collected
 * stays behind when all of them are left out.
 */
export async function makeLoopDisk(megabytes: number): Promise<LoopDisk> {
  const top = await mkdtemp(join(tmpdir(), 'hd-disk-'));
  await chmod(top, 0o755);
  const [image, path] = [join(top, 'image'), join(top, 'd')];
  await mkdir(path);
  try {
    await run('truncate', ['-s', `${megabytes}M`, image]);
    // Nothing is kept back for root: it must find the disk as full as others do.
    await run('mkfs.ext4', ['-q', '-m', '0', image]);
    await run('mount', ['-o', 'loop', image, path]);
  } catch (error) {
    await rm(top, { recursive: true, force: true });
    throw error;
  }
  await chmod(path, 0o755);
  const space = async () => {
    // ext4 keeps some blocks for itself, which are free and nobody's.
    const { blocks, bavail, bsize } = await statfs(path);
    return { used: (blocks - bavail) * bsize, total: blocks * bsize };
  };
  return {
    path,
    usedBytes: async () => (await space()).used,
    usedPercent: async () => {
      const { used, total } = await space();
      return (used / total) * 100;
    },
    remove: async () => {
      await run('umount', [path]);
      await rm(top, { recursive: true, force: true });
    },
  };
}
