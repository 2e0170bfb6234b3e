/** Size limits through cgroups: version 2 where its controllers can be had, version 1 where the machine still mounts that. */
import { access, constants, mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Size } from '@howdah/contract';
import { childrenOf, exists, isErrno, readOrNull } from './processes.ts';

/** How sizes are enforced here. */
export type Limits = { kind: 'v2'; root: string } | { kind: 'v1'; cpu: string; memory: string } | { kind: 'none'; why: string };

const GIB = 1024 ** 3;
/** The period in which a group may use its CPU time; the kernel's default. */
const PERIOD_US = 100_000;
const MOUNT = '/sys/fs/cgroup';

/** Finds out how sizes can be enforced, by making the group that all servers' groups stand below. */
export async function probeLimits(group: string): Promise<Limits> {
  return firstOf([async () => makeV2(await lookV2(group)), async () => makeV1(await lookV1(group))]);
}

/** What {@link probeLimits} would find, as far as can be told without making anything. */
export async function foreseeLimits(group: string): Promise<Limits> {
  return firstOf([async () => (await lookV2(group)).limits, () => lookV1(group)]);
}

/** The group that {@link probeLimits} made, where it did. */
export async function findLimits(group: string): Promise<Limits> {
  const foreseen = await foreseeLimits(group);
  const roots = rootsOf(foreseen);
  return (await Promise.all(roots.map(exists))).every(Boolean) ? foreseen : { kind: 'none', why: 'no server has run since the last start' };
}

async function firstOf(attempts: (() => Promise<Limits>)[]): Promise<Limits> {
  const problems: string[] = [];
  for (const attempt of attempts) {
    try {
      return await attempt();
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

/**
 * Holds a running server to its size. Its first process joins before the others are counted, so that none is missed: what it starts
 * from then on is in the group by birth.
 *
 * Done when the server is ready, not before it starts: joining a group waits for all cores to pass a quiet point, 10 ms each time,
 * and half a core would double the time of the start. What it took of memory until then stays uncounted.
 */
export async function enforceLimits(limits: Limits, id: string, size: Size, postmaster: number): Promise<void> {
  await setLimits(limits, id, size);
  await joinGroups(limits, id, [postmaster]);
  await joinGroups(limits, id, await childrenOf(postmaster));
}

async function setLimits(limits: Limits, id: string, size: Size): Promise<void> {
  const quotaUs = size === 'shared' ? null : Math.round((size.cpuMillis / 1000) * PERIOD_US);
  const memoryBytes = size === 'shared' ? null : size.memoryGbs * GIB;
  for (const group of groupsOf(limits, id)) await mkdir(group, { recursive: true });
  switch (limits.kind) {
    case 'none':
      return;
    case 'v2':
      await writeFile(join(limits.root, id, 'cpu.max'), `${quotaUs ?? 'max'} ${PERIOD_US}`);
      await writeFile(join(limits.root, id, 'memory.max'), String(memoryBytes ?? 'max'));
      return;
    case 'v1':
      await writeFile(join(limits.cpu, id, 'cpu.cfs_quota_us'), String(quotaUs ?? -1));
      await writeFile(join(limits.memory, id, 'memory.limit_in_bytes'), String(memoryBytes ?? -1));
  }
}

async function joinGroups(limits: Limits, id: string, pids: readonly number[]): Promise<void> {
  for (const group of groupsOf(limits, id)) {
    for (const pid of pids) {
      await writeFile(join(group, 'cgroup.procs'), String(pid)).catch((error: unknown) => {
        if (!isErrno(error, 'ESRCH')) throw error; // it has ended
      });
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
  for (const root of rootsOf(limits)) await rmdir(root);
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
  const entries = await Promise.all(rootsOf(limits).map((parent) => readdir(parent, { withFileTypes: true })));
  return [
    ...new Set(
      entries
        .flat()
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name),
    ),
  ];
}

/** The groups that all servers' groups stand below. */
function rootsOf(limits: Limits): string[] {
  switch (limits.kind) {
    case 'none':
      return [];
    case 'v2':
      return [limits.root];
    case 'v1':
      return [limits.cpu, limits.memory];
  }
}

const groupsOf = (limits: Limits, id: string): string[] => rootsOf(limits).map((root) => join(root, id));

type V2 = { parent: string; limits: Limits & { kind: 'v2' } };

async function lookV2(group: string): Promise<V2> {
  const controllers = await readOrNull(join(MOUNT, 'cgroup.controllers'));
  if (controllers === null) throw new Error('no cgroup v2 at /sys/fs/cgroup');
  // As root the group stands at the top; else below the group this process was delegated, if it was.
  const own = /^0::(.*)$/m.exec((await readOrNull('/proc/self/cgroup')) ?? '')?.[1] ?? '/';
  const parent = process.getuid?.() === 0 ? MOUNT : join(MOUNT, own);
  await access(parent, constants.W_OK).catch(notDelegated);
  return { parent, limits: { kind: 'v2', root: join(parent, group) } };
}

async function makeV2({ parent, limits }: V2): Promise<Limits> {
  try {
    await enable(parent);
    await mkdir(limits.root, { recursive: true });
    await enable(limits.root);
  } catch (error) {
    notDelegated(error);
  }
  return limits;
}

function notDelegated(error: unknown): never {
  const why = error instanceof Error ? error.message : String(error);
  throw new Error(`cgroup v2 is not delegated to this user (${why}); as root or in a systemd unit with Delegate=yes it is`, {
    cause: error,
  });
}

async function enable(group: string): Promise<void> {
  const enabled = (await readFile(join(group, 'cgroup.subtree_control'), 'utf8')).split(/\s+/);
  const wanted = ['cpu', 'memory'].filter((controller) => !enabled.includes(controller));
  if (wanted.length > 0) await writeFile(join(group, 'cgroup.subtree_control'), wanted.map((controller) => `+${controller}`).join(' '));
}

async function lookV1(group: string): Promise<Limits & { kind: 'v1' }> {
  const [cpu, memory] = [join(MOUNT, 'cpu'), join(MOUNT, 'memory')];
  for (const parent of [cpu, memory]) await access(parent, constants.W_OK).catch(noV1);
  return { kind: 'v1', cpu: join(cpu, group), memory: join(memory, group) };
}

async function makeV1(limits: Limits & { kind: 'v1' }): Promise<Limits> {
  try {
    await mkdir(limits.cpu, { recursive: true });
    await mkdir(limits.memory, { recursive: true });
    await access(join(limits.cpu, 'cpu.cfs_quota_us'), constants.W_OK);
    await access(join(limits.memory, 'memory.limit_in_bytes'), constants.W_OK);
  } catch (error) {
    noV1(error);
  }
  return limits;
}

function noV1(error: unknown): never {
  throw new Error('no writable cgroup v1 either', { cause: error });
}
