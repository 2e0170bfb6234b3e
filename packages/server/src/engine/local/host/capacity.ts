/** The processors and the memory that servers on this machine can have. */
import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Capacity } from '@howdah/contract';
import { readOrNull } from '../../../lib/processes.ts';

/** A container may have less than its machine. */
export async function measureCapacity(): Promise<Capacity> {
  const constrained = process.constrainedMemory();
  const memoryBytes = constrained > 0 ? Math.min(totalmem(), constrained) : totalmem();
  const cores = Math.min(availableParallelism(), (await coresOfContainer()) ?? Infinity);
  return { cpuMillis: Math.max(1, Math.round(cores * 1000)), memoryBytes };
}

/**
 * The processor time that the cgroup of a container allows, in cores; null: it has no limit. Inside
 * of a container, its own group is the root of the hierarchy.
 */
async function coresOfContainer(): Promise<number | null> {
  const own = '/sys/fs/cgroup';
  const v2 = coresOf(...((await readOrNull(join(own, 'cpu.max'))) ?? '').trim().split(' '));
  if (v2 !== null) return v2;
  const v1 = join(own, 'cpu');
  const [quota, period] = await Promise.all(
    ['cpu.cfs_quota_us', 'cpu.cfs_period_us'].map((name) => readOrNull(join(v1, name))),
  );
  return coresOf(quota?.trim(), period?.trim());
}

/** @param quota microseconds of each `period`; `max` or -1: there is no limit */
export function coresOf(quota = '', period = ''): number | null {
  if (!/^[1-9][0-9]{0,15}$/.test(quota) || !/^[1-9][0-9]{0,15}$/.test(period)) return null;
  return Number(quota) / Number(period);
}
