/** Size limits through cgroups: version 2 where its controllers can be had, version 1 where the machine still mounts that. */
import { randomBytes } from 'node:crypto';
import { access, constants, mkdir, readdir, readFile, rmdir, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Size } from '@howdah/contract';
import { childrenOf, exists, isErrno, noneOf, readOrNull } from './processes.ts';

/** How sizes are enforced here. */
export type Limits = { kind: 'v2'; root: string } | { kind: 'v1'; cpu: string; memory: string } | { kind: 'none'; why: string };

const GIB = 1024 ** 3;
/** The period in which a group may use its CPU time; the kernel's default. */
const PERIOD_US = 100_000;
const MOUNT = '/sys/fs/cgroup';

/**
 * Finds out how sizes can be enforced, by making a group and removing it. The installation's own group is made when its first server
 * starts: many homes are only looked at, and nobody would remove theirs.
 */
export async function probeLimits(group: string): Promise<Limits> {
  const probe = `${PROBE}${randomBytes(4).toString('hex')}`;
  const attempts = [lookV2, lookV1].map((look) => async () => {
    await tryOut(await look(probe));
    return look(group);
  });
  return firstOf(attempts);
}
const PROBE = 'howdah-probe-';

/** What {@link probeLimits} would find, as far as can be seen without making anything. */
export async function foreseeLimits(group: string): Promise<Limits> {
  return firstOf([() => lookV2(group), () => lookV1(group)]);
}

/** The group of an installation's servers, where one has run. */
export async function findLimits(group: string): Promise<Limits> {
  const foreseen = await foreseeLimits(group);
  const roots = rootsOf(foreseen);
  return (await Promise.all(roots.map(exists))).some(Boolean) ? foreseen : { kind: 'none', why: 'no server has run since the last start' };
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
  await makeRoots(limits);
  for (const group of groupPaths(limits, id)) await mkdir(group, { recursive: true });
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
  for (const group of groupPaths(limits, id)) {
    for (const pid of pids) {
      await writeFile(join(group, 'cgroup.procs'), String(pid)).catch((error: unknown) => {
        if (!isErrno(error, 'ESRCH')) throw error; // it has ended
      });
    }
  }
}

/** Takes a server's groups away. The kernel lets go of the last process a moment after it is gone. */
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

/** Takes the groups away that all servers' groups stand below; what is still in use stays. */
export async function removeLimitsRoot(limits: Limits): Promise<void> {
  for (const id of await groupIds(limits)) await removeLimits(limits, id);
  for (const root of rootsOf(limits)) await rmdir(root).catch(noneOf('ENOENT'));
}

/** Whether any group of a server is there still. */
export async function limitsPresent(limits: Limits, id: string): Promise<boolean> {
  for (const group of groupPaths(limits, id)) {
    if ((await readOrNull(join(group, 'cgroup.procs'))) !== null) return true;
  }
  return false;
}

/** Ids of all servers that have a group. */
export async function groupIds(limits: Limits): Promise<string[]> {
  return [...new Set((await Promise.all(rootsOf(limits).map(groupsBelow))).flat())];
}

/** The groups in a group; none: it is not there. */
async function groupsBelow(parent: string): Promise<string[]> {
  const entries = (await readdir(parent, { withFileTypes: true }).catch(noneOf('ENOENT'))) ?? [];
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

/** A group of any installation on this machine. */
export type Group = { name: string; paths: string[]; hasProcess: boolean; changedMs: number };

/** The groups of installations that stand where ours does. Changes nothing. */
export async function listGroups(): Promise<Group[]> {
  const parents = rootsOf(await foreseeLimits('howdah')).map((root) => dirname(root));
  const found = new Map<string, string[]>();
  for (const parent of parents)
    for (const name of (await groupsBelow(parent)).filter((one) => ANY_NAME.test(one)))
      found.set(name, [...(found.get(name) ?? []), join(parent, name)]);
  return Promise.all([...found].map(([name, paths]) => describeGroup(name, paths)));
}
const ANY_NAME = /^howdah-(probe-)?[0-9a-f]{8}$/;

async function describeGroup(name: string, paths: string[]): Promise<Group> {
  const below = (await Promise.all(paths.map(async (path) => (await groupsBelow(path)).map((id) => join(path, id))))).flat();
  const processes = await Promise.all([...paths, ...below].map((path) => readOrNull(join(path, 'cgroup.procs'))));
  // One that has just been removed is none that stays.
  const changed = await Promise.all(paths.map(async (path) => (await stat(path).catch(noneOf('ENOENT')))?.mtimeMs ?? Date.now()));
  return { name, paths, hasProcess: processes.some((text) => text !== null && text !== ''), changedMs: Math.max(...changed) };
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

/** The group of a server, in each hierarchy. */
export const groupPaths = (limits: Limits, id: string): string[] => rootsOf(limits).map((root) => join(root, id));

/** Makes the groups that all servers' groups stand below. */
async function makeRoots(limits: Limits): Promise<void> {
  if (limits.kind === 'v2') await enable(dirname(limits.root));
  for (const root of rootsOf(limits)) await mkdir(root, { recursive: true });
  if (limits.kind === 'v2') await enable(limits.root);
}

/** Makes a group that nobody else uses, looks whether it can limit, and removes it. */
async function tryOut(limits: Limits): Promise<void> {
  try {
    await makeRoots(limits);
    if (limits.kind !== 'v1') return;
    await access(join(limits.cpu, 'cpu.cfs_quota_us'), constants.W_OK);
    await access(join(limits.memory, 'memory.limit_in_bytes'), constants.W_OK);
  } catch (error) {
    if (limits.kind === 'v2') notDelegated(error);
    noV1(error);
  } finally {
    for (const root of rootsOf(limits)) await rmdir(root).catch(noneOf('ENOENT'));
  }
}

async function lookV2(group: string): Promise<Limits> {
  const controllers = await readOrNull(join(MOUNT, 'cgroup.controllers'));
  if (controllers === null) throw new Error('no cgroup v2 at /sys/fs/cgroup');
  // As root the group stands at the top; else below the group this process was delegated, if it was.
  const own = /^0::(.*)$/m.exec((await readOrNull('/proc/self/cgroup')) ?? '')?.[1] ?? '/';
  const parent = process.getuid?.() === 0 ? MOUNT : join(MOUNT, own);
  await access(parent, constants.W_OK).catch(notDelegated);
  return { kind: 'v2', root: join(parent, group) };
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

async function lookV1(group: string): Promise<Limits> {
  const [cpu, memory] = [join(MOUNT, 'cpu'), join(MOUNT, 'memory')];
  for (const parent of [cpu, memory]) await access(parent, constants.W_OK).catch(noV1);
  return { kind: 'v1', cpu: join(cpu, group), memory: join(memory, group) };
}

function noV1(error: unknown): never {
  throw new Error('no writable cgroup v1 either', { cause: error });
}
