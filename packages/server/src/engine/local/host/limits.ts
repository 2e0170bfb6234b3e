/**
 * Size limits through cgroups: version 2 where its controllers can be had, version 1 where the
 * machine still mounts that.
 */
import { randomBytes } from 'node:crypto';
import { access, constants, readdir, rmdir, stat, writeFile, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '@howdah/contract/thrown';
import { quotaOf, type Sized } from './cpu-bound.ts';
import type { Machine } from './machine-record.ts';
import {
  COPIES,
  diskOf,
  groupPaths,
  hasCpuQuota,
  joinGroups,
  makeGroup,
  makeRoots,
  rootsOf,
  writeCpuQuota,
  writeRateLimit,
  type Limits,
} from './groups.ts';
import { childrenOf, exists, isErrno, noneOf, readOrNull } from '../../../lib/processes.ts';
import { unescaped } from '../../../lib/mounts.ts';

const GIB = 1024 ** 3;
const MOUNT = '/sys/fs/cgroup';

/**
 * Finds out how sizes can be enforced, by making a group and removing it. The installation's own
 * group is made when its first server starts: many homes are only read, and their groups would
 * stay.
 *
 * @param data a path on the disk of the services
 */
export async function probeLimits(group: string, data: string): Promise<Limits> {
  const probe = `${PROBE}${randomBytes(4).toString('hex')}`;
  const disk = await findDisk(data);
  const attempts = [lookV2, lookV1].map((look) => async () => {
    const limitsWrites = await tryOut(await look(probe, disk));
    return look(group, limitsWrites ? disk : null);
  });
  return firstOf(attempts);
}
const PROBE = 'howdah-probe-';

/** The result of {@link probeLimits}, as far as it can be found without making a group. */
export async function foreseeLimits(group: string, data: string): Promise<Limits> {
  const disk = await findDisk(data);
  return firstOf([() => lookV2(group, disk), () => lookV1(group, disk)]);
}

/** The group of an installation's servers, where one has run. */
export async function findLimits(group: string, data: string): Promise<Limits> {
  const foreseen = await foreseeLimits(group, data);
  const roots = rootsOf(foreseen);
  return (await Promise.all(roots.map(exists))).some(Boolean)
    ? foreseen
    : { kind: 'none', why: 'no server has run since the last start' };
}

async function firstOf(attempts: (() => Promise<Limits>)[]): Promise<Limits> {
  const problems: string[] = [];
  for (const attempt of attempts) {
    try {
      return await attempt();
    } catch (error) {
      problems.push(messageOf(error));
    }
  }
  return { kind: 'none', why: problems.join('; ') };
}

/**
 * In words: what of the sizes is guaranteed, and why not.
 *
 * @param boundsCpu whether a size is a bound of the CPU too
 */
export function limitsNote(limits: Limits, boundsCpu: boolean): string {
  if (limits.kind === 'none')
    return `CPU and memory are not enforced, sizes only set PostgreSQL's settings: ${limits.why}`;
  const disk = diskOf(limits);
  const writes =
    disk === null
      ? '; how fast a service writes to its disk is not limited'
      : `; writes to the disk (${disk}) are shared out`;
  const cpu = boundsCpu ? 'CPU is shared out, at most the size,' : 'CPU is shared out';
  return `${cpu} and memory is limited by cgroup ${limits.kind}${writes}`;
}

/**
 * Holds a running server to its size. Its first process joins before the others are counted, so
 * that none is missed: the processes that it starts from then on are in the group from their start.
 *
 * Done when the server is ready, not before it starts: joining a group waits for all cores to pass
 * a quiet point, 10 ms each time, and half a core would double the time of the start. The memory
 * that it took until then stays uncounted.
 */
export async function enforceLimits(
  { limits, shares, boundsCpu }: Pick<Machine, 'limits' | 'shares' | 'boundsCpu'>,
  id: string,
  sized: Sized,
  postmaster: number,
): Promise<void> {
  const { size } = sized;
  await makeGroup(limits, id);
  await limitMemory(limits, id, size === 'shared' ? null : size.memoryGbs * GIB);
  await shares.add(id, size);
  await writeCpuQuota(limits, id, quotaOf(sized, boundsCpu));
  await joinGroups(limits, id, [postmaster]);
  await joinGroups(limits, id, await childrenOf(postmaster));
}

/** Whether the bound of a running server's CPU is the desired one, as far as it has a group. */
export function isCpuBoundCurrent(
  { limits, boundsCpu }: Pick<Machine, 'limits' | 'boundsCpu'>,
  id: string,
  sized: Sized,
): boolean {
  const wanted = quotaOf(sized, boundsCpu) !== null;
  return (hasCpuQuota(limits, id) ?? wanted) === wanted;
}

/** @param bytes null: there is no limit */
async function limitMemory(limits: Limits, id: string, bytes: number | null): Promise<void> {
  switch (limits.kind) {
    case 'none':
      return;
    case 'v2':
      return writeFile(join(limits.root, id, 'memory.max'), String(bytes ?? 'max'));
    case 'v1':
      return writeFile(join(limits.memory, id, 'memory.limit_in_bytes'), String(bytes ?? -1));
  }
}

/** Lets a server that is about to stop write as fast as the disk can, for its last checkpoint. */
export async function liftWriteLimit(limits: Limits, id: string): Promise<void> {
  await writeRateLimit(limits, id, null).catch(noneOf('ENOENT'));
}

/**
 * Takes a server's groups away. The kernel lets go of the last process a moment after it is gone.
 */
export async function removeLimits(limits: Limits, id: string): Promise<void> {
  for (const group of groupPaths(limits, id)) {
    for (let attempt = 0; ; attempt++) {
      try {
        await rmdir(group);
        break;
      } catch (error) {
        if (isErrno(error, 'ENOENT')) break;
        if (!isErrno(error, 'EBUSY') || attempt === 100) throw error;
        await sleep(5);
      }
    }
  }
}

/** Removes the parents of all servers' groups; those in use stay. */
export async function removeLimitsRoot(limits: Limits): Promise<void> {
  for (const id of [...(await groupIds(limits)), COPIES]) await removeLimits(limits, id);
  for (const root of rootsOf(limits)) await rmdir(root).catch(noneOf('ENOENT'));
}

/** Ids of all servers that have a group. */
export async function groupIds(limits: Limits): Promise<string[]> {
  const groups = new Set((await Promise.all(rootsOf(limits).map(groupsBelow))).flat());
  groups.delete(COPIES);
  return [...groups];
}

/** The groups in a group; none: it is not there. */
async function groupsBelow(parent: string): Promise<string[]> {
  const entries = (await readdir(parent, { withFileTypes: true }).catch(noneOf('ENOENT'))) ?? [];
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

/** A group of any installation on this machine. */
export type Group = { name: string; paths: string[]; hasProcess: boolean; changedMs: number };

/**
 * The groups of installations that have the same parent as ours. Changes nothing.
 *
 * @param data a path on the disk of the services
 */
export async function listGroups(data: string): Promise<Group[]> {
  const parents = rootsOf(await foreseeLimits('howdah', data)).map((root) => dirname(root));
  const found = new Map<string, string[]>();
  for (const parent of parents)
    for (const name of (await groupsBelow(parent)).filter((one) => ANY_NAME.test(one)))
      found.set(name, [...(found.get(name) ?? []), join(parent, name)]);
  return Promise.all([...found].map(([name, paths]) => describeGroup(name, paths)));
}
const ANY_NAME = /^howdah-(probe-)?[0-9a-f]{8}$/;

async function describeGroup(name: string, paths: string[]): Promise<Group> {
  const below = (
    await Promise.all(
      paths.map(async (path) => (await groupsBelow(path)).map((id) => join(path, id))),
    )
  ).flat();
  const processes = await Promise.all(
    [...paths, ...below].map((path) => readOrNull(join(path, 'cgroup.procs'))),
  );
  // A group that has just been removed does not count.
  const changed = await Promise.all(
    paths.map(async (path) => (await stat(path).catch(noneOf('ENOENT')))?.mtimeMs ?? Date.now()),
  );
  return {
    name,
    paths,
    hasProcess: processes.some((text) => text !== null && text !== ''),
    changedMs: Math.max(...changed),
  };
}

/**
 * Makes a group for a test, checks whether it can limit, and removes it.
 *
 * @returns whether it can limit writes to the disk
 */
async function tryOut(limits: Limits): Promise<boolean> {
  try {
    await makeRoots(limits);
    if (limits.kind === 'v1') {
      await access(join(limits.cpu, 'cpu.shares'), constants.W_OK);
      await access(join(limits.memory, 'memory.limit_in_bytes'), constants.W_OK);
    }
    // The kernel refuses devices that it cannot limit.
    if (diskOf(limits) === null) return false;
    return await writeRateLimit(limits, '.', 1024 ** 3).then(
      () => true,
      () => false,
    );
  } catch (error) {
    return limits.kind === 'v2' ? notDelegated(error) : noV1(error);
  } finally {
    for (const root of rootsOf(limits)) await rmdir(root).catch(noneOf('ENOENT'));
  }
}

async function lookV2(group: string, disk: string | null): Promise<Limits> {
  const controllers = await readOrNull(join(MOUNT, 'cgroup.controllers'));
  if (controllers === null) throw new Error('no cgroup v2 at /sys/fs/cgroup');
  // As root the group is at the top; else below the group that was delegated to this process, if
  // any.
  const own = /^0::(.*)$/m.exec((await readOrNull('/proc/self/cgroup')) ?? '')?.[1] ?? '/';
  const parent = process.getuid?.() === 0 ? MOUNT : join(MOUNT, delegatedGroup(own));
  await access(parent, constants.W_OK).catch(notDelegated);
  const hasIo = /\bio\b/.test((await readOrNull(join(parent, 'cgroup.controllers'))) ?? '');
  return { kind: 'v2', root: join(parent, group), disk: hasIo ? disk : null };
}

/**
 * The group that systemd delegated to this process. A group with processes cannot pass on
 * controllers (cgroups(7), "no internal processes"), so the process is in a subgroup of its unit
 * where its groups can be limited (DelegateSubgroup=).
 *
 * @param own the group of the process
 */
export const delegatedGroup = (own: string): string =>
  own === '/' || /\.(service|scope|slice)$/.test(own) ? own : dirname(own);

function notDelegated(error: unknown): never {
  const why = messageOf(error);
  throw new Error(
    `cgroup v2 is not delegated to this user (${why}); ` +
      'as root or in a systemd unit with Delegate=yes and DelegateSubgroup=control it is',
    {
      cause: error,
    },
  );
}

async function lookV1(group: string, disk: string | null): Promise<Limits> {
  const [cpu, memory, blkio] = [join(MOUNT, 'cpu'), join(MOUNT, 'memory'), join(MOUNT, 'blkio')];
  const cpuacct = join(MOUNT, 'cpuacct');
  for (const parent of [cpu, memory]) await access(parent, constants.W_OK).catch(noV1);
  const limitsWrites = disk !== null && (await exists(join(blkio, 'cgroup.procs')));
  return {
    kind: 'v1',
    cpu: join(cpu, group),
    cpuacct: (await exists(join(cpuacct, 'cgroup.procs'))) ? join(cpuacct, group) : null,
    memory: join(memory, group),
    blkio: limitsWrites ? { group: join(blkio, group), disk } : null,
  };
}

function noV1(error: unknown): never {
  throw new Error('no writable cgroup v1 either', { cause: error });
}

// Which block device a path is stored on, as cgroups name it.

/**
 * The disk (`major:minor`) that holds a path; null: none that the kernel can limit, such as memory,
 * an overlay or a network.
 *
 * @param path may be missing: then its nearest directory that is there
 */
async function findDisk(path: string): Promise<string | null> {
  const there = await realpath(path).catch(noneOf('ENOENT'));
  if (there === null) return dirname(path) === path ? null : findDisk(dirname(path));
  const { dev } = await stat(there, { bigint: true });
  const device = Number(majorOf(dev)) > 0 ? nameOf(dev) : await deviceOfMount(there);
  return device === null ? null : wholeDisk(device);
}

/** Limits apply to whole disks: the kernel refuses partitions. */
async function wholeDisk(device: string): Promise<string | null> {
  const entry = join('/sys/dev/block', device);
  const directory = await realpath(entry).catch(noneOf('ENOENT'));
  if (directory === null) return null;
  if ((await readOrNull(join(directory, 'partition'))) === null) return device;
  return (await readOrNull(join(dirname(directory), 'dev')))?.trim() ?? null;
}

/** The device of a file system that numbers its files by subvolume, as btrfs does. */
async function deviceOfMount(path: string): Promise<string | null> {
  const source = sourceOfMount((await readOrNull('/proc/self/mountinfo')) ?? '', path);
  const found = source === null ? null : await stat(source, { bigint: true }).catch(() => null);
  return found?.isBlockDevice() === true ? nameOf(found.rdev) : null;
}

/**
 * The source of the mount that a path is in, proc_pid_mountinfo(5): the last of those with the
 * longest mount point.
 *
 * @param mounts as /proc/self/mountinfo has them
 */
export function sourceOfMount(mounts: string, path: string): string | null {
  let best: { point: string; source: string } | null = null;
  for (const line of mounts.split('\n')) {
    const [fields = '', origin = ''] = line.split(' - ');
    const point = unescaped(fields.split(' ')[4] ?? '');
    const source = unescaped(origin.split(' ')[1] ?? '');
    const holds =
      point !== '' &&
      (path === point || path.startsWith(point.endsWith('/') ? point : `${point}/`));
    if (holds && (best === null || point.length >= best.point.length)) best = { point, source };
  }
  return best?.source ?? null;
}

/** As glibc's gnu_dev_major and gnu_dev_minor take a device number apart. */
const majorOf = (dev: bigint): bigint => ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & 0xfffff000n);
const minorOf = (dev: bigint): bigint => (dev & 0xffn) | ((dev >> 12n) & 0xffffff00n);
const nameOf = (dev: bigint): string => `${majorOf(dev)}:${minorOf(dev)}`;
