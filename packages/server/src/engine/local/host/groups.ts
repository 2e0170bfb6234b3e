/** The cgroups of servers, of both versions: where they are, and what their files say and take. */
import { readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { exists, isErrno } from '../../../lib/processes.ts';
import type { CpuQuota } from './cpu-bound.ts';

/**
 * How sizes are enforced here. `disk` is the block device of the data (`major:minor`) whose writes
 * are shared out; null: the kernel cannot limit writes to it, or the controller is not available to
 * this user. `cpuacct` of version 1 counts processor time; null: it is not there.
 */
export type Limits =
  | { kind: 'v2'; root: string; disk: string | null }
  | {
      kind: 'v1';
      cpu: string;
      cpuacct: string | null;
      memory: string;
      blkio: { group: string; disk: string } | null;
    }
  | { kind: 'none'; why: string };

/** The group of programs that copy files for services. No service has this id. */
export const COPIES = 'copies';

/** The parents of all servers' groups. */
export function rootsOf(limits: Limits): string[] {
  switch (limits.kind) {
    case 'none':
      return [];
    case 'v2':
      return [limits.root];
    case 'v1': {
      const others = [limits.cpuacct, limits.blkio?.group].filter((path) => path != null);
      return [limits.cpu, limits.memory, ...others];
    }
  }
}

/** The group of a server, in each hierarchy. */
export const groupPaths = (limits: Limits, id: string): string[] =>
  rootsOf(limits).map((root) => join(root, id));

/** Makes the group of a server. */
export async function makeGroup(limits: Limits, id: string): Promise<void> {
  await makeRoots(limits);
  for (const group of groupPaths(limits, id)) await mkdir(group, { recursive: true });
}

/** Puts processes into the group of a server; those that they start from then on are in it. */
export async function joinGroups(
  limits: Limits,
  id: string,
  pids: readonly number[],
): Promise<void> {
  for (const group of groupPaths(limits, id)) {
    for (const pid of pids) {
      await writeFile(join(group, 'cgroup.procs'), String(pid)).catch((error: unknown) => {
        if (!isErrno(error, 'ESRCH')) throw error; // it has ended
      });
    }
  }
}

/** Makes the parents of all servers' groups. */
export async function makeRoots(limits: Limits): Promise<void> {
  const controllers = [
    'cpu',
    'memory',
    ...(limits.kind === 'v2' && limits.disk !== null ? ['io'] : []),
  ];
  if (limits.kind === 'v2') await enable(dirname(limits.root), controllers);
  for (const root of rootsOf(limits)) await mkdir(root, { recursive: true });
  if (limits.kind === 'v2') await enable(limits.root, controllers);
}

async function enable(group: string, controllers: readonly string[]): Promise<void> {
  const enabled = (await readFile(join(group, 'cgroup.subtree_control'), 'utf8')).split(/\s+/);
  const wanted = controllers.filter((controller) => !enabled.includes(controller));
  if (wanted.length > 0)
    await writeFile(
      join(group, 'cgroup.subtree_control'),
      wanted.map((controller) => `+${controller}`).join(' '),
    );
}

/** The block device whose writes are shared out; null: none. */
export function diskOf(limits: Limits): string | null {
  switch (limits.kind) {
    case 'none':
      return null;
    case 'v2':
      return limits.disk;
    case 'v1':
      return limits.blkio?.disk ?? null;
  }
}

/**
 * Sets the weight of a group among those beside it. A group without a weight, and a process beside
 * groups, weigh as much as a whole processor's worth.
 *
 * @param cpuMillis its weight, in thousandths of a processor
 */
export async function writeWeight(limits: Limits, id: string, cpuMillis: number): Promise<void> {
  switch (limits.kind) {
    case 'none':
      return;
    case 'v2':
      return writeFile(
        join(limits.root, id, 'cpu.weight'),
        String(within(1, Math.round(cpuMillis / 10), 10_000)),
      );
    case 'v1':
      return writeFile(
        join(limits.cpu, id, 'cpu.shares'),
        String(within(2, Math.round((cpuMillis / 1000) * 1024), 262_144)),
      );
  }
}

const within = (least: number, value: number, most: number): number =>
  Math.max(least, Math.min(most, value));

/**
 * Bounds the processor time of a server, or lifts its bound.
 *
 * @param quota null: it may use all that idles
 * @throws Error when the kernel has no such quotas
 */
export async function writeCpuQuota(
  limits: Limits,
  id: string,
  quota: CpuQuota | null,
): Promise<void> {
  if (limits.kind === 'none') return;
  const [group, file] =
    limits.kind === 'v2' ? [limits.root, 'cpu.max'] : [limits.cpu, 'cpu.cfs_quota_us'];
  if (!(await exists(join(group, id, file)))) {
    if (quota === null) return;
    throw new Error(
      'the kernel cannot bound the CPU of a group (CONFIG_CFS_BANDWIDTH): set HOWDAH_CPU_BOUND ' +
        'to none, and resize services that have a bound of their own without it',
    );
  }
  if (limits.kind === 'v2') {
    const line = quota === null ? 'max' : `${quota.quotaUs} ${quota.periodUs}`;
    return writeFile(join(group, id, file), line);
  }
  // A period that is written first would be checked with the quota of before.
  await writeFile(join(group, id, file), '-1');
  if (quota === null) return;
  await writeFile(join(group, id, 'cpu.cfs_period_us'), String(quota.periodUs));
  await writeFile(join(group, id, file), String(quota.quotaUs));
}

/** Whether a server's processor time is bounded; null: it has no group, or the kernel no quotas. */
export function hasCpuQuota(limits: Limits, id: string): boolean | null {
  const text = textOfQuota(limits, id);
  return text === null ? null : !/^(max|-1)\b/.test(text);
}

function textOfQuota(limits: Limits, id: string): string | null {
  switch (limits.kind) {
    case 'none':
      return null;
    case 'v2':
      return textIn(join(limits.root, id, 'cpu.max'));
    case 'v1':
      return textIn(join(limits.cpu, id, 'cpu.cfs_quota_us'));
  }
}

/**
 * Limits how fast a server writes to the disk of the data.
 *
 * @param bytesPerSecond null: as fast as the disk
 * @throws an error of the kernel when it cannot limit the device
 */
export async function writeRateLimit(
  limits: Limits,
  id: string,
  bytesPerSecond: number | null,
): Promise<void> {
  const bytes = bytesPerSecond === null ? null : Math.round(bytesPerSecond);
  switch (limits.kind) {
    case 'none':
      return;
    case 'v2':
      if (limits.disk !== null)
        await writeFile(
          join(limits.root, id, 'io.max'),
          `${limits.disk} wbps=${bytes === null ? 'max' : bytes}`,
        );
      return;
    case 'v1':
      // Zero removes the limit.
      if (limits.blkio !== null)
        await writeFile(
          join(limits.blkio.group, id, 'blkio.throttle.write_bps_device'),
          `${limits.blkio.disk} ${bytes ?? 0}`,
        );
  }
}

/**
 * Processor time of a server since its group was made, in µs. Read synchronously: the kernel
 * answers from memory, and the thread pool would take ten times as long.
 *
 * @returns null: it has no group, or the kernel does not count
 */
export function readCpuUs(limits: Limits, id: string): number | null {
  switch (limits.kind) {
    case 'none':
      return null;
    case 'v2':
      return numberIn(join(limits.root, id, 'cpu.stat'), /^usage_usec (\d+)$/m);
    case 'v1': {
      if (limits.cpuacct === null) return null;
      const ns = numberIn(join(limits.cpuacct, id, 'cpuacct.usage'), /^(\d+)$/m);
      return ns === null ? null : ns / 1000;
    }
  }
}

/** How long the CPU quota of a server held it back, in µs; null: it has no group. */
export function readThrottledUs(limits: Limits, id: string): number | null {
  switch (limits.kind) {
    case 'none':
      return null;
    case 'v2':
      return numberIn(join(limits.root, id, 'cpu.stat'), /^throttled_usec (\d+)$/m);
    case 'v1': {
      const ns = numberIn(join(limits.cpu, id, 'cpu.stat'), /^throttled_time (\d+)$/m);
      return ns === null ? null : ns / 1000;
    }
  }
}

/** The bytes that a server has written to the disk of the data since its group was made. */
export function readWritten(limits: Limits, id: string): number | null {
  switch (limits.kind) {
    case 'none':
      return null;
    case 'v2': {
      if (limits.disk === null) return null;
      const line = new RegExp(`^${limits.disk} .*\\bwbytes=(\\d+)`, 'm');
      return numberIn(join(limits.root, id, 'io.stat'), line);
    }
    case 'v1': {
      if (limits.blkio === null) return null;
      const { group, disk } = limits.blkio;
      const path = join(group, id, 'blkio.throttle.io_service_bytes');
      return numberIn(path, new RegExp(`^${disk} Write (\\d+)$`, 'm'));
    }
  }
}

/**
 * The bytes of cached files that the kernel gives up first. Inside of a container, its own group is
 * the root of the hierarchy.
 */
export const readReclaimable = (): number =>
  numberIn('/sys/fs/cgroup/memory.stat', /^inactive_file (\d+)$/m) ??
  numberIn('/sys/fs/cgroup/memory/memory.stat', /^total_inactive_file (\d+)$/m) ??
  0;

function numberIn(path: string, pattern: RegExp): number | null {
  const found = pattern.exec(textIn(path) ?? '')?.[1];
  return found === undefined ? null : Number(found);
}

function textIn(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    // The server of the group has ended meanwhile.
    if (isErrno(error, 'ENOENT', 'ENODEV')) return null;
    throw error;
  }
}
