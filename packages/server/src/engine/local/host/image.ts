/**
 * The data volume of `howdah store`: a btrfs or XFS in a sparse file, mounted on the data
 * directory, for machines whose disk cannot clone by reference. Paths stay the same, so other
 * modules do not know of it.
 *
 * The files on the disk show how far a creation has come; it can be interrupted anywhere and
 * repeated. `data.img.new` is being filled, and the data directory is unchanged. `data.img.checked`
 * is a copy that was compared with the data directory; from there on there is no way back: the data
 * directory becomes `data.before-store`, the image is mounted in its place, `data.before-store` is
 * removed, and the image is renamed to `data.img`.
 */
import { constants } from 'node:fs';
import { mkdir, open, readdir, rename, rm, rmdir, stat, statfs, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { devicesOf, isMounted, mountImage, releaseDevices, unmount } from './loop.ts';
import { exists, findProcess, isErrno, noneOf, readOrNull } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';

export const GIB = 1024 ** 3;

export type ImagePaths = {
  /** The data directory, on which the image is mounted. */
  data: string;
  image: string;
  unfinished: string;
  checked: string;
  /** Where an unfinished image is mounted while it is filled. */
  staging: string;
  /** The data directory as it was before. */
  before: string;
  /** The process that is creating a data volume. */
  lock: string;
};

/** @param data the data directory; the image is beside it */
export function imagePaths(data: string): ImagePaths {
  const image = `${data}.img`;
  return {
    data,
    image,
    unfinished: `${image}.new`,
    checked: `${image}.checked`,
    staging: `${data}.new`,
    before: `${data}.before-store`,
    lock: `${image}.pid`,
  };
}

/** Removes what an interrupted creation has left; the data directory is unchanged. */
export async function discardUnfinished(paths: ImagePaths): Promise<void> {
  if (await isMounted(paths.staging)) await unmount(paths.staging);
  await rmdir(paths.staging).catch(noneOf('ENOENT'));
  if (!(await exists(paths.unfinished))) return;
  await releaseDevices(paths.unfinished);
  await rm(paths.unfinished);
}

/** Puts a checked copy in place. There is no way back, and each step can be repeated. */
export async function finish(paths: ImagePaths): Promise<void> {
  if (!(await isMounted(paths.data))) {
    if ((await exists(paths.data)) && !(await exists(paths.before)))
      await rename(paths.data, paths.before);
    await mkdir(paths.data, { recursive: true, mode: 0o711 });
    await mountImage(paths.checked, paths.data);
  }
  await rm(paths.before, { recursive: true, force: true });
  await rename(paths.checked, paths.image);
}

/** The paths where an unfinished creation has left something. */
export async function unfinishedMove({
  unfinished,
  checked,
  staging,
  before,
}: ImagePaths): Promise<string[]> {
  const candidates = [unfinished, checked, staging, before];
  const present = await Promise.all(candidates.map(exists));
  return candidates.filter((_, index) => present[index]);
}

/** The image is sparse: if the disk cannot hold all of it later, every database in it stops. */
export async function assertRoom({ image }: ImagePaths, growthBytes: number): Promise<void> {
  const freeBytes = await freeBytesBelow(dirname(image));
  if (growthBytes > freeBytes) {
    throw new Error(
      `--size: the disk under ${image} has ${gigabytes(freeBytes)} free, ` +
        `${gigabytes(growthBytes)} more are asked for; ` +
        'a store that its disk cannot hold ends in databases that stop: ' +
        'ask for less, or make room',
    );
  }
}

/** One creation at a time, and none while a control plane starts. */
export async function underLock({ lock }: ImagePaths, work: () => Promise<void>): Promise<void> {
  if ((await holderOf(lock)) === null) await rm(lock, { force: true });
  const self = await findProcess(process.pid);
  await writeFile(lock, `${process.pid} ${self?.startTicks ?? ''}`, { flag: 'wx' }).catch(
    async (error: unknown) => {
      if (isErrno(error, 'EEXIST')) throw busy((await holderOf(lock)) ?? 0);
      throw error;
    },
  );
  try {
    await work();
  } finally {
    await rm(lock, { force: true });
  }
}

const busy = (pid: number): Error =>
  new Error(`howdah store create is at work here already (process ${pid}): wait for it to end`);

/** The process that holds the lock; null: none, or it was killed. */
async function holderOf(lock: string): Promise<number | null> {
  const [pid, startTicks] = ((await readOrNull(lock)) ?? '').split(' ');
  const holder = pid === undefined || pid === '' ? null : await findProcess(Number(pid));
  return holder !== null && holder.startTicks === startTicks ? holder.pid : null;
}

/**
 * Mounts the volume of a data directory if it has one and it is not mounted: at every `howdah up`,
 * so that nothing has to be written to /etc/fstab. A creation that was interrupted is finished, or
 * its files are removed.
 */
export async function attachImage(paths: ImagePaths): Promise<void> {
  const holder = await holderOf(paths.lock);
  if (holder !== null) throw busy(holder);
  if ((await unfinishedMove(paths)).length > 0) {
    assertRoot(paths);
    await discardUnfinished(paths);
    if (await exists(paths.checked)) await finish(paths);
  }
  if (!(await exists(paths.image)) || (await isMounted(paths.data))) return;
  assertRoot(paths);
  await mkdir(paths.data, { recursive: true, mode: 0o711 });
  const inTheWay = await readdir(paths.data);
  if (inTheWay.length > 0) {
    throw new Error(
      `the store ${paths.image} has to be mounted on ${paths.data}, ` +
        `in which there is ${inTheWay.slice(0, 3).join(', ')}: move that away; ` +
        "the installation's data is in the store",
    );
  }
  await mountImage(paths.image, paths.data);
}

/** Unmounts the data volume, where there is one; the next `howdah up` mounts it again. */
export async function detachImage(paths: ImagePaths): Promise<void> {
  if (!(await exists(paths.image)) || !(await isMounted(paths.data))) return;
  await unmount(paths.data);
  await releaseDevices(paths.image);
}

export function assertRoot({ image }: ImagePaths): void {
  if (process.getuid?.() !== 0) throw new Error(`the store ${image} can only be mounted by root`);
}

/**
 * Makes a mounted store larger while it is in use.
 *
 * @throws Error when there is none, or the size does not fit
 */
export async function growImage(paths: ImagePaths, sizeBytes: number): Promise<void> {
  assertRoot(paths);
  if (!(await exists(paths.image)))
    throw new Error(`${paths.data} has no store: howdah store create makes one`);
  if (!(await isMounted(paths.data)))
    throw new Error(`the store ${paths.image} is not mounted: howdah up mounts it`);
  const { size, blocks } = await stat(paths.image);
  if (sizeBytes < size)
    throw new Error(
      `--size: found ${gigabytes(sizeBytes)}; the store has ${gigabytes(size)} and ` +
        'can only become larger',
    );
  await assertRoom(paths, sizeBytes - blocks * 512);
  const file = await open(paths.image, constants.O_WRONLY);
  try {
    await file.truncate(sizeBytes);
  } finally {
    await file.close();
  }
  for (const device of await devicesOf(paths.image))
    await run('losetup', ['--set-capacity', device]);
  if ((await fileSystemOf(paths.data)) === 'btrfs')
    await run('btrfs', ['filesystem', 'resize', 'max', paths.data]);
  else await run('xfs_growfs', [paths.data]);
}

/**
 * The volume of a data directory. The image is sparse: on the disk it takes fewer bytes than its
 * size.
 */
export type ImageFacts = {
  path: string;
  mounted: boolean;
  sizeBytes: number;
  diskBytes: number;
  diskFreeBytes: number;
};

/** The volume of a data directory; null: it has none. Changes nothing. */
export async function findImage(paths: ImagePaths): Promise<ImageFacts | null> {
  const found = await stat(paths.image).catch(noneOf('ENOENT', 'EACCES'));
  if (found === null) return null;
  return {
    path: paths.image,
    mounted: await isMounted(paths.data),
    sizeBytes: found.size,
    diskBytes: found.blocks * 512,
    diskFreeBytes: await freeBytesBelow(dirname(paths.image)),
  };
}

/**
 * The bytes that a data volume promises and the disk under it does not have; 0: it has them all.
 */
export function missingBytes({ sizeBytes, diskBytes, diskFreeBytes }: ImageFacts): number {
  return Math.max(0, sizeBytes - diskBytes - diskFreeBytes);
}

async function freeBytesBelow(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}

const FILE_SYSTEMS: Record<number, string> = {
  0x9123683e: 'btrfs',
  0x58465342: 'xfs',
  0xef53: 'ext4',
  0x01021994: 'tmpfs',
  0x794c7630: 'overlayfs',
};

/** The file system that a directory is on, by its name. */
export async function fileSystemOf(directory: string): Promise<string> {
  const { type } = await statfs(directory);
  return FILE_SYSTEMS[type] ?? `file system 0x${type.toString(16)}`;
}

/** Bytes as `--size` takes them. */
export const gigabytes = (bytes: number): string =>
  bytes > 0 && bytes < GIB
    ? `${Math.ceil(bytes / 1024 ** 2)}M`
    : `${(bytes / GIB).toFixed(1).replace(/\.0$/, '')}G`;
export const megabytes = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`;
