/**
 * The file systems that creates are measured on: that of the temporary directory and, as root, an
 * XFS and a btrfs in sparse files, which are made for the run and removed at its end.
 */
import { chmod, mkdir, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { atEnd } from './cleanup.ts';
import { has, run } from './run.ts';

export type FileSystem = { name: string; directory: string };

const IMAGE_BYTES = 64 * 1024 ** 3;

const KINDS = {
  xfs: { mkfs: 'mkfs.xfs', options: ['-q', '-m', 'reflink=1'], package: 'xfsprogs' },
  btrfs: { mkfs: 'mkfs.btrfs', options: ['-q'], package: 'btrfs-progs' },
} as const;
export type Loop = keyof typeof KINDS;

export function isLoop(name: string): name is Loop {
  return name in KINDS;
}

/** The file system of the temporary directory. */
export async function hereAsItIs(temp: string): Promise<FileSystem> {
  const directory = join(temp, 'here');
  await mkdir(directory, { recursive: true });
  const name = (await run('stat', ['-f', '-c', '%T', directory])).trim();
  return { name: name === 'ext2/ext3' ? 'ext4' : name, directory };
}

/**
 * Makes a file system in a file and mounts it.
 *
 * @returns the file system, or why there is none
 */
export async function loopFileSystem(temp: string, kind: Loop): Promise<FileSystem | string> {
  if (process.getuid?.() !== 0) return `${kind}: mounting a loop file takes root`;
  const { mkfs, options, package: packageName } = KINDS[kind];
  if (!(await has(mkfs))) return `${kind}: ${mkfs} is missing (apt-get install ${packageName})`;
  const image = join(temp, `${kind}.img`);
  const directory = join(temp, kind);
  await writeFile(image, '');
  await truncate(image, IMAGE_BYTES);
  await run(mkfs, [...options, image]);
  await mkdir(directory);
  const device = (await run('losetup', ['-f', '--show', '--direct-io=on', image])).trim();
  atEnd(async () => {
    await run('losetup', ['-d', device]);
    await rm(image);
  });
  await run('mount', ['-t', kind, '-o', 'noatime,discard', device, directory]);
  atEnd(async () => run('umount', [directory]));
  await chmod(directory, 0o755);
  return { name: kind, directory };
}
