/**
 * Makes a data volume and moves the data directory into it, for `howdah store create`. `image.ts`
 * has the states that an interrupted creation leaves, and finishes it.
 */
import { chmod, mkdir, open, readdir, rename, constants, lstat, readlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Stats } from 'node:fs';
import { exists, noneOf } from '../../../lib/processes.ts';
import { run } from '../../../lib/run.ts';
import { runningServers } from '../postgres/server.ts';
import { probeCloneMethod } from './clone.ts';
import { runningDaemons } from './daemon.ts';
import {
  assertRoom,
  assertRoot,
  discardUnfinished,
  finish,
  GIB,
  gigabytes,
  megabytes,
  underLock,
  type ImagePaths,
} from './image.ts';
import { FLUSH_DEADLINE_MS, isMounted, mount, unmount, withDevice } from './loop.ts';
import { releaseReserve } from './reserve.ts';
import { bytesBelow } from './space.ts';

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

export const SMALLEST_STORE_BYTES = 2 * GIB;

/** Copying may take as long as it takes; a program that hangs for a day is beyond hope. */
const COPY_DEADLINE_MS = 86_400_000;

/**
 * Makes a store and moves what is in the data directory there. The control plane does not run.
 *
 * @param progress called with each part before it begins
 * @throws Error when databases run, there is a store already, the size does not fit, or this
 *   machine cannot have one
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
      `there is a store already: ${paths.image}; howdah store show shows it, ` +
        'howdah store resize makes it larger',
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
  // The copy must not go on alone: the next attempt begins with removing its target.
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
  const replicas = (
    await Promise.all(services.map((service) => below(join(service, 'members'))))
  ).flat();
  const instances = ['store', ...services, ...replicas, ...(await below('templates'))];
  const snapshots = (
    await Promise.all(instances.map((instance) => below(join(instance, 'snapshots'))))
  ).flat();
  for (const holder of [...instances, ...snapshots]) {
    if (!(await exists(join(from, holder, 'data')))) continue;
    await mkdir(join(to, holder), { recursive: true });
    await run('btrfs', ['subvolume', 'create', join(to, holder, 'data')]);
  }
}

/**
 * A data volume is of use on a disk that cannot clone; it takes the place of the data directory.
 */
async function assertOfUse({ data }: ImagePaths): Promise<void> {
  if (await isMounted(data))
    throw new Error(
      `${data} is a file system of its own, which cannot be put aside for a store: ` +
        'unmount it, or use a HOWDAH_HOME elsewhere',
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
        `${program} is not installed, and a store needs it: apt-get install ` +
          (programs.some((name) => name === program) ? debianPackage : 'mount'),
      );
    });
  }
}

async function assertSize(paths: ImagePaths, sizeBytes: number): Promise<void> {
  const usedBytes = (await exists(paths.data)) ? await bytesBelow(paths.data) : 0;
  // The copied data, a tenth more for the file system itself, and room to work in.
  const smallestBytes = Math.max(SMALLEST_STORE_BYTES, usedBytes * 1.1 + GIB);
  if (sizeBytes < smallestBytes) {
    throw new Error(
      `--size: found ${gigabytes(sizeBytes)}; ` +
        `allowed is ${gigabytes(Math.ceil(smallestBytes / GIB) * GIB)} or more: ` +
        `${paths.data} holds ${megabytes(usedBytes)}`,
    );
  }
  await assertRoom(paths, sizeBytes);
}

// Compares a copy with what was copied, before what was copied is given up.

/**
 * @throws Error naming the first path that is not the same, in kind, owner, mode, time of writing
 * or content
 */
export async function assertSameTree(from: string, to: string): Promise<void> {
  const visit = async (path: string): Promise<void> => {
    const [one, other] = [join(from, path), join(to, path)];
    const [before, after] = await Promise.all(
      [one, other].map((side) => lstat(side).catch(noneOf('ENOENT'))),
    );
    if (!before || !after || !(await areSame(one, before, other, after))) {
      throw new Error(
        `the copy of ${one} in the new store is not the same: ` +
          'nothing was changed, the data stays where it is; does somebody write there?',
      );
    }
    if (!before.isDirectory()) return;
    const entries = await Promise.all([readdir(one), readdir(other)]);
    for (const entry of new Set(entries.flat())) await visit(join(path, entry));
  };
  await visit('');
}

async function areSame(one: string, before: Stats, other: string, after: Stats): Promise<boolean> {
  if (before.mode !== after.mode || before.uid !== after.uid || before.gid !== after.gid)
    return false;
  if (before.isSymbolicLink()) return (await readlink(one)) === (await readlink(other));
  if (!before.isFile()) return true;
  return (
    before.size === after.size && before.mtimeMs === after.mtimeMs && haveSameBytes(one, other)
  );
}

async function haveSameBytes(one: string, other: string): Promise<boolean> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const files = await Promise.all([open(one, flags), open(other, flags)]);
  const [a, b] = [Buffer.alloc(1 << 20), Buffer.alloc(1 << 20)];
  try {
    for (;;) {
      const [left, right] = await Promise.all([files[0].read(a), files[1].read(b)]);
      if (
        left.bytesRead !== right.bytesRead ||
        a.compare(b, 0, right.bytesRead, 0, left.bytesRead) !== 0
      )
        return false;
      if (left.bytesRead === 0) return true;
    }
  } finally {
    for (const file of files) await file.close();
  }
}
