/**
 * The store that `howdah store create` makes: a btrfs or XFS of our own in a sparse file, mounted on the data directory, for machines
 * whose disk cannot clone by reference. Paths stay what they were, so that those who work in the directory need not know of it.
 *
 * What there is on the disk says how far a creation has come; each may be interrupted anywhere and made again:
 * `data.img.new` is being filled and the data directory untouched; `data.img.checked` holds a copy that was compared with it, and from
 * there on there is only forward: the data directory becomes `data.before-store`, the image is mounted in its place, what was
 * before is removed, and the image gets its name, `data.img`.
 */
import { constants } from 'node:fs';
import {
  chmod,
  mkdir,
  open,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  statfs,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { bytesBelow, probeCloneMethod } from './clone.ts';
import { runningDaemons } from './daemon.ts';
import {
  devicesOf,
  FLUSH_DEADLINE_MS,
  isMounted,
  mount,
  mountImage,
  releaseDevices,
  unmount,
  withDevice,
} from './loop.ts';
import { exists, findProcess, isErrno, noneOf, readOrNull } from '../../../lib/processes.ts';
import { releaseReserve } from './reserve.ts';
import { run } from '../../../lib/run.ts';
import { assertSameTree } from './same-tree.ts';
import { runningServers } from '../postgres/server.ts';

export type StoreFileSystem = 'btrfs' | 'xfs';

/** How each is made, whatever the device held before, and the package that brings the programs. */
const MAKE = {
  btrfs: {
    command: ['mkfs.btrfs', '--quiet', '--force'],
    programs: ['mkfs.btrfs', 'btrfs'],
    debianPackage: 'btrfs-progs',
  },
  xfs: {
    command: ['mkfs.xfs', '-q', '-f', '-m', 'reflink=1'],
    programs: ['mkfs.xfs', 'xfs_growfs'],
    debianPackage: 'xfsprogs',
  },
} as const satisfies Record<
  StoreFileSystem,
  { command: readonly string[]; programs: readonly string[]; debianPackage: string }
>;

const GIB = 1024 ** 3;
export const SMALLEST_STORE_BYTES = 2 * GIB;

/** Copying may take as long as it takes; a program that hangs for a day is beyond hope. */
const COPY_DEADLINE_MS = 86_400_000;

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
  /** Who is creating a store. */
  lock: string;
};

/** @param data the data directory; the image stands beside it */
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

// ── making ───────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Makes a store and moves what is in the data directory there. The control plane does not run.
 *
 * @param progress called with each part before it begins
 * @throws Error when databases run, there is a store already, the size does not fit, or this machine cannot have one
 */
export async function createImage(
  paths: ImagePaths,
  sizeBytes: number,
  fileSystem: StoreFileSystem,
  progress: (part: string) => void,
): Promise<void> {
  assertRoot(paths);
  if (await exists(paths.image)) {
    throw new Error(
      `there is a store already: ${paths.image}; howdah store show shows it, howdah store resize makes it larger`,
    );
  }
  await underLock(paths, async () => {
    await discardUnfinished(paths);
    if (!(await exists(paths.checked))) {
      await assertOfUse(paths);
      await assertStopped(paths);
      await assertPrograms(fileSystem);
      await releaseReserve(paths.data);
      await assertSize(paths, sizeBytes);
      await fill(paths, sizeBytes, fileSystem, progress);
    }
    progress('put it in place');
    await finish(paths);
  });
}

async function fill(
  paths: ImagePaths,
  sizeBytes: number,
  fileSystem: StoreFileSystem,
  progress: (part: string) => void,
): Promise<void> {
  const [program, ...options] = MAKE[fileSystem].command;
  try {
    await writeSparse(paths.unfinished, sizeBytes);
    await mkdir(paths.staging, { recursive: true });
    await withDevice(paths.unfinished, async (device) => {
      progress(`make ${fileSystem} in ${paths.image}`);
      await run(program, [...options, device]);
      await mount(device, paths.staging);
      await chmod(paths.staging, 0o711);
      if (await exists(paths.data)) await copy(paths, device, fileSystem, progress);
      await unmount(paths.staging);
    });
    await run('sync', [paths.unfinished, dirname(paths.unfinished)], {
      deadlineMs: FLUSH_DEADLINE_MS,
    });
    await assertStopped(paths);
    await rename(paths.unfinished, paths.checked);
    await run('sync', [dirname(paths.checked)]);
  } finally {
    await discardUnfinished(paths);
  }
}

async function copy(
  paths: ImagePaths,
  device: string,
  fileSystem: StoreFileSystem,
  progress: (part: string) => void,
): Promise<void> {
  progress(`copy ${megabytes(await bytesBelow(paths.data))} from ${paths.data}`);
  if (fileSystem === 'btrfs') await makeSubvolumes(paths.data, paths.staging);
  // It must not go on alone: the next attempt begins with removing what it writes to.
  await run(
    'setpriv',
    ['--pdeathsig', 'KILL', '--', 'cp', '--archive', `${paths.data}/.`, paths.staging],
    {
      deadlineMs: COPY_DEADLINE_MS,
    },
  );
  // Mounted again, so that what is compared comes from the image and not from memory.
  await unmount(paths.staging);
  await mount(device, paths.staging);
  progress('compare the copy with what was copied');
  await assertSameTree(paths.data, paths.staging);
}

/** Removes what a creation that was interrupted has left; the data directory is what it was. */
async function discardUnfinished(paths: ImagePaths): Promise<void> {
  if (await isMounted(paths.staging)) await unmount(paths.staging);
  await rmdir(paths.staging).catch(noneOf('ENOENT'));
  if (!(await exists(paths.unfinished))) return;
  await releaseDevices(paths.unfinished);
  await rm(paths.unfinished);
}

/** From a checked copy on there is no way back, and each step of the way on may be taken again. */
async function finish(paths: ImagePaths): Promise<void> {
  if (!(await isMounted(paths.data))) {
    if ((await exists(paths.data)) && !(await exists(paths.before)))
      await rename(paths.data, paths.before);
    await mkdir(paths.data, { recursive: true, mode: 0o711 });
    await mountImage(paths.checked, paths.data);
  }
  await rm(paths.before, { recursive: true, force: true });
  await rename(paths.checked, paths.image);
}

/** Where an unfinished creation has left something. */
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

async function writeSparse(path: string, sizeBytes: number): Promise<void> {
  const file = await open(path, 'w', 0o600);
  try {
    await file.truncate(sizeBytes);
  } finally {
    await file.close();
  }
}

/**
 * Data directories become subvolumes, so that they can be cloned as such: those of services and
 * their other members, of snapshots, of templates and of the metadata database.
 */
async function makeSubvolumes(from: string, to: string): Promise<void> {
  const below = async (path: string) =>
    ((await readdir(join(from, path)).catch(noneOf('ENOENT', 'ENOTDIR'))) ?? []).map((entry) =>
      join(path, entry),
    );
  const services = await below('services');
  const members = (
    await Promise.all(services.map((service) => below(join(service, 'members'))))
  ).flat();
  const instances = ['store', ...services, ...members, ...(await below('templates'))];
  const snapshots = (
    await Promise.all(instances.map((instance) => below(join(instance, 'snapshots'))))
  ).flat();
  for (const holder of [...instances, ...snapshots]) {
    if (!(await exists(join(from, holder, 'data')))) continue;
    await mkdir(join(to, holder), { recursive: true });
    await run('btrfs', ['subvolume', 'create', join(to, holder, 'data')]);
  }
}

// ── what is asked for before ─────────────────────────────────────────────────────────────────────────────────────

/** A store is for a disk that cannot clone, and stands where the data directory does. */
async function assertOfUse({ data }: ImagePaths): Promise<void> {
  if (await isMounted(data))
    throw new Error(
      `${data} is a file system of its own, which cannot be put aside for a store: unmount it, or use a HOWDAH_HOME elsewhere`,
    );
  if ((await probeCloneMethod(dirname(data))) !== 'copy')
    throw new Error(
      `${dirname(data)} is on a file system that clones by reference: a store would only be slower`,
    );
}

async function assertStopped({ data }: ImagePaths): Promise<void> {
  const below = (directory: string): boolean => directory.startsWith(`${data}/`);
  const servers = (await runningServers()).filter(below);
  const daemons = (await runningDaemons()).filter(({ root }) => below(root));
  if (servers.length + daemons.length === 0) return;
  const what =
    servers.length > 0
      ? `${servers.length} databases`
      : `${daemons.length} programs beside the databases`;
  throw new Error(`${what} of ${data} are running: howdah down --databases stops them`);
}

async function assertPrograms(fileSystem: StoreFileSystem): Promise<void> {
  const { programs, debianPackage } = MAKE[fileSystem];
  for (const program of [...programs, 'losetup', 'mount']) {
    await run('sh', ['-c', 'command -v "$1"', 'sh', program]).catch(() => {
      throw new Error(
        `${program} is not installed, and a store needs it: apt-get install ${programs.some((name) => name === program) ? debianPackage : 'mount'}`,
      );
    });
  }
}

async function assertSize(paths: ImagePaths, sizeBytes: number): Promise<void> {
  const usedBytes = (await exists(paths.data)) ? await bytesBelow(paths.data) : 0;
  // What is copied, as much as a tenth for the file system's own, and room to work in.
  const smallestBytes = Math.max(SMALLEST_STORE_BYTES, usedBytes * 1.1 + GIB);
  if (sizeBytes < smallestBytes) {
    throw new Error(
      `--size: found ${gigabytes(sizeBytes)}; allowed is ${gigabytes(Math.ceil(smallestBytes / GIB) * GIB)} or more: ${paths.data} holds ${megabytes(usedBytes)}`,
    );
  }
  await assertRoom(paths, sizeBytes);
}

/** The image is sparse: what it takes of the disk later must be there, or every database in it stops when it is not. */
async function assertRoom({ image }: ImagePaths, growthBytes: number): Promise<void> {
  const freeBytes = await freeBytesBelow(dirname(image));
  if (growthBytes > freeBytes) {
    throw new Error(
      `--size: the disk under ${image} has ${gigabytes(freeBytes)} free, ${gigabytes(growthBytes)} more are asked for; a store that its disk cannot hold ends in databases that stop: ask for less, or make room`,
    );
  }
}

/** One creation at a time, and none while a control plane starts. */
async function underLock({ lock }: ImagePaths, work: () => Promise<void>): Promise<void> {
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

/** The process that holds the lock; null: nobody, or one that was killed. */
async function holderOf(lock: string): Promise<number | null> {
  const [pid, startTicks] = ((await readOrNull(lock)) ?? '').split(' ');
  const holder = pid === undefined || pid === '' ? null : await findProcess(Number(pid));
  return holder !== null && holder.startTicks === startTicks ? holder.pid : null;
}

// ── mounting ─────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Mounts the store of a data directory if it has one and it is not mounted: at every `howdah up`, so that nothing has to be written
 * to /etc/fstab. A creation that was interrupted is finished, or what it left removed.
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
      `the store ${paths.image} has to be mounted on ${paths.data}, in which there is ${inTheWay.slice(0, 3).join(', ')}: move that away; the installation's data is in the store`,
    );
  }
  await mountImage(paths.image, paths.data);
}

/** Unmounts the store, where there is one; it comes back with the next `howdah up`. */
export async function detachImage(paths: ImagePaths): Promise<void> {
  if (!(await exists(paths.image)) || !(await isMounted(paths.data))) return;
  await unmount(paths.data);
  await releaseDevices(paths.image);
}

function assertRoot({ image }: ImagePaths): void {
  if (process.getuid?.() !== 0)
    throw new Error(`the store ${image} takes root, who alone can mount it`);
}

// ── growing and showing ──────────────────────────────────────────────────────────────────────────────────────────

/** Makes a mounted store larger while it is in use. @throws Error when there is none, or the size does not fit */
export async function growImage(paths: ImagePaths, sizeBytes: number): Promise<void> {
  assertRoot(paths);
  if (!(await exists(paths.image)))
    throw new Error(`${paths.data} has no store: howdah store create makes one`);
  if (!(await isMounted(paths.data)))
    throw new Error(`the store ${paths.image} is not mounted: howdah up mounts it`);
  const { size, blocks } = await stat(paths.image);
  if (sizeBytes < size)
    throw new Error(
      `--size: found ${gigabytes(sizeBytes)}; the store has ${gigabytes(size)} and can only become larger`,
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

/** The store of a data directory. Bytes of the image on the disk are fewer than its size: it is sparse. */
export type ImageFacts = {
  path: string;
  mounted: boolean;
  sizeBytes: number;
  diskBytes: number;
  diskFreeBytes: number;
};

/** The store of a data directory; null: it has none. Changes nothing. */
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

/** What a store may still take of the disk under it, and cannot; 0: it can have all that it promises. */
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
const megabytes = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`;
