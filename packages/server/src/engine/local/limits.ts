/** Size limits through cgroups: version 2 where its controllers can be had, version 1 where the machine still mounts that. */
import { access, constants, mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Size } from '@howdah/contract';
import { isErrno, readOrNull } from './processes.ts';

/** How sizes are enforced here. */
export type Limits = { kind: 'v2'; root: string } | { kind: 'v1'; cpu: string; memory: string } | { kind: 'none'; why: string };

const GIB = 1024 ** 3;
/** The period in which a group may use its CPU time; the kernel's default. */
const PERIOD_US = 100_000;
const MOUNT = '/sys/fs/cgroup';

/** Finds out how sizes can be enforced, by making the group that all servers' groups stand below. */
export async function probeLimits(group: string): Promise<Limits> {
  const problems: string[] = [];
  for (const attempt of [probeV2, probeV1]) {
    try {
      return await attempt(group);
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
    }
  }
  return { kind: 'none', why: problems.join('; ') };
}

/** In words: whether sizes are enforced, and why not. */
export function limitsNote(limits: Limits): string {
  switch (limits.kind) {
    case 'v2':
      return 'CPU and memory are enforced by cgroup v2';
    case 'v1':
      return 'CPU and memory are enforced by cgroup v1';
    case 'none':
      return `CPU and memory are not enforced, sizes only set PostgreSQL's settings: ${limits.why}`;
  }
}

/** Sets a server's limits and returns the files into which its pid must be written before it starts; none where nothing is enforced. */
export async function setLimits(limits: Limits, id: string, size: Size): Promise<string[]> {
  const quotaUs = size === 'shared' ? null : Math.round((size.cpuMillis / 1000) * PERIOD_US);
  const memoryBytes = size === 'shared' ? null : size.memoryGbs * GIB;
  switch (limits.kind) {
    case 'none':
      return [];
    case 'v2': {
      const group = join(limits.root, id);
      await mkdir(group, { recursive: true });
      await writeFile(join(group, 'cpu.max'), `${quotaUs ?? 'max'} ${PERIOD_US}`);
      await writeFile(join(group, 'memory.max'), String(memoryBytes ?? 'max'));
      return [join(group, 'cgroup.procs')];
    }
    case 'v1': {
      const cpu = join(limits.cpu, id);
      const memory = join(limits.memory, id);
      await mkdir(cpu, { recursive: true });
      await mkdir(memory, { recursive: true });
      await writeFile(join(cpu, 'cpu.cfs_quota_us'), String(quotaUs ?? -1));
      await writeFile(join(memory, 'memory.limit_in_bytes'), String(memoryBytes ?? -1));
      return [join(cpu, 'cgroup.procs'), join(memory, 'cgroup.procs')];
    }
  }
}

/** Takes a server's groups away. The kernel lets go of the last process a moment after it is gone. */
export async function removeLimits(limits: Limits, id: string): Promise<void> {
  for (const group of groupsOf(limits, id)) {
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

/** Takes the groups away that all servers' groups stand below; what is still in use stays. */
export async function removeLimitsRoot(limits: Limits): Promise<void> {
  for (const id of await groupIds(limits)) await removeLimits(limits, id);
  const roots = limits.kind === 'v2' ? [limits.root] : limits.kind === 'v1' ? [limits.cpu, limits.memory] : [];
  for (const root of roots) await rmdir(root);
}

/** Whether any group of a server is there still. */
export async function limitsPresent(limits: Limits, id: string): Promise<boolean> {
  for (const group of groupsOf(limits, id)) {
    if ((await readOrNull(join(group, 'cgroup.procs'))) !== null) return true;
  }
  return false;
}

/** Ids of all servers that have a group. */
export async function groupIds(limits: Limits): Promise<string[]> {
  const parents = limits.kind === 'v2' ? [limits.root] : limits.kind === 'v1' ? [limits.cpu, limits.memory] : [];
  const entries = await Promise.all(parents.map((parent) => readdir(parent, { withFileTypes: true })));
  return [
    ...new Set(
      entries
        .flat()
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name),
    ),
  ];
}

function groupsOf(limits: Limits, id: string): string[] {
  switch (limits.kind) {
    case 'none':
      return [];
    case 'v2':
      return [join(limits.root, id)];
    case 'v1':
      return [join(limits.cpu, id), join(limits.memory, id)];
  }
}

async function probeV2(group: string): Promise<Limits> {
  const controllers = await readOrNull(join(MOUNT, 'cgroup.controllers'));
  if (controllers === null) throw new Error('no cgroup v2 at /sys/fs/cgroup');
  // As root the group stands at the top; else below the group this process was delegated, if it was.
  const own = /^0::(.*)$/m.exec((await readOrNull('/proc/self/cgroup')) ?? '')?.[1] ?? '/';
  const parent = process.getuid?.() === 0 ? MOUNT : join(MOUNT, own);
  const root = join(parent, group);
  try {
    await enable(parent);
    await mkdir(root, { recursive: true });
    await enable(root);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`cgroup v2 is not delegated to this user (${why}); as root or in a systemd unit with Delegate=yes it is`, {
      cause: error,
    });
  }
  return { kind: 'v2', root };
}

async function enable(group: string): Promise<void> {
  const enabled = (await readFile(join(group, 'cgroup.subtree_control'), 'utf8')).split(/\s+/);
  const wanted = ['cpu', 'memory'].filter((controller) => !enabled.includes(controller));
  if (wanted.length > 0) await writeFile(join(group, 'cgroup.subtree_control'), wanted.map((controller) => `+${controller}`).join(' '));
}

async function probeV1(group: string): Promise<Limits> {
  const cpu = join(MOUNT, 'cpu', group);
  const memory = join(MOUNT, 'memory', group);
  try {
    await mkdir(cpu, { recursive: true });
    await mkdir(memory, { recursive: true });
    await access(join(cpu, 'cpu.cfs_quota_us'), constants.W_OK);
    await access(join(memory, 'memory.limit_in_bytes'), constants.W_OK);
  } catch (error) {
    throw new Error('no writable cgroup v1 either', { cause: error });
  }
  return { kind: 'v1', cpu, memory };
}
