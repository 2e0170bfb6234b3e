/**
 * How fast a server may write to its disk, and how long it may write faster for work of the control
 * plane that clients wait for (docs/decisions/0030-write-rate.md).
 */
import { writeFile } from 'node:fs/promises';
import type { Size } from '@howdah/contract';

/**
 * The rate at which a server may write to its disk, in bytes a second: without a limit, one
 * tenant's WAL makes every commit of the others wait. It follows from the CPU, as WAL does;
 * services that share the CPU get the least.
 */
export const writeBytesPerSecond = (size: Size): number =>
  Math.max(LEAST_WRITE_RATE, size === 'shared' ? 0 : (size.cpuMillis / 1000) * WRITE_RATE_PER_CPU);
export const LEAST_WRITE_RATE = 32 * 1024 ** 2;
const WRITE_RATE_PER_CPU = 64 * 1024 ** 2;

/**
 * The time that a server may write without a limit, in all: a hundredth of the time, saved up for
 * so long. A tenant that asks for one fork after the other gets no more.
 */
const LIFT_SAVED_MS = 10_000;
const LIFT_SHARE = 1 / 100;
/** A shorter time is of no use. */
const LEAST_LIFT_MS = 50;
/** A limit that could not be put back is tried again after this. */
const LOWER_AGAIN_MS = 1000;

/** The file of a cgroup that takes the rate. @param rate bytes a second; null: no limit */
export type RateFile = { path: string; line: (rate: number | null) => string };

/** A group whose rate was set by this process: after a restart it is set for each server again. */
type Group = {
  /** null: no limit. */
  rate: number | null;
  /** Work under way for which the limit is lifted, or was. */
  uses: number;
  /** Since when it is lifted, by performance.now(); null: it is not. */
  liftedMs: number | null;
  /** The time without a limit that is left, as of `countedMs`. */
  leftMs: number;
  countedMs: number;
  timer: NodeJS.Timeout | undefined;
  /** The last write to the file: two at once have no order. */
  written: Promise<void>;
};
const groups = new Map<string, Group>();

/** Writes a rate to the file. @throws an error of the kernel when it cannot limit the device */
export async function writeRate({ path, line }: RateFile, rate: number | null): Promise<void> {
  await writeFile(path, line(rate));
}

/** Sets the rate of a group; while its limit is lifted, the rate that it has afterwards. */
export async function setWriteRate(file: RateFile, rate: number | null): Promise<void> {
  const group = groups.get(file.path);
  if (group === undefined) {
    const countedMs = performance.now();
    const written = writeRate(file, rate);
    const saved = { leftMs: LIFT_SAVED_MS, countedMs, liftedMs: null, timer: undefined };
    groups.set(file.path, { rate, uses: 0, ...saved, written: written.catch(() => undefined) });
    return written;
  }
  group.rate = rate;
  if (group.liftedMs === null) await writeNext(file, group, rate);
}

/** Forgets a group that is removed. */
export function forgetWriteRate({ path }: RateFile): void {
  clearTimeout(groups.get(path)?.timer);
  groups.delete(path);
}

/**
 * Has a server write as fast as the disk can during some work, as long as it may.
 *
 * @param afterMs so much longer, which nobody waits for
 */
export async function withoutWriteLimit<T>(
  file: RateFile,
  work: () => Promise<T>,
  afterMs = 0,
): Promise<T> {
  const group = groups.get(file.path);
  if (group === undefined || group.rate === null) return work();
  group.uses += 1;
  if (group.uses === 1) await lift(file, group);
  try {
    return await work();
  } finally {
    if (afterMs === 0) await release(file, group);
    else setTimeout(() => void release(file, group), afterMs).unref();
  }
}

async function release(file: RateFile, group: Group): Promise<void> {
  group.uses -= 1;
  if (group.uses === 0) await lower(file, group);
}

async function lift(file: RateFile, group: Group): Promise<void> {
  const nowMs = performance.now();
  const saved = group.leftMs + (nowMs - group.countedMs) * LIFT_SHARE;
  group.leftMs = Math.min(LIFT_SAVED_MS, saved);
  group.countedMs = nowMs;
  if (group.leftMs < LEAST_LIFT_MS) return;
  group.liftedMs = nowMs;
  group.timer = setTimeout(() => void lower(file, group), group.leftMs).unref();
  // No work fails because of its rate.
  await writeNext(file, group, null).catch(() => undefined);
}

async function lower(file: RateFile, group: Group): Promise<void> {
  if (group.liftedMs === null) return;
  const nowMs = performance.now();
  group.leftMs = Math.max(0, group.leftMs - (nowMs - group.liftedMs));
  group.countedMs = nowMs;
  group.liftedMs = null;
  clearTimeout(group.timer);
  try {
    await writeNext(file, group, group.rate);
  } catch {
    // Without its limit it would slow down all others. A group that is gone has no server.
    if (groups.get(file.path) !== group || group.liftedMs !== null) return;
    group.liftedMs = performance.now();
    group.timer = setTimeout(() => void lower(file, group), LOWER_AGAIN_MS).unref();
  }
}

/** Writes after what is being written. */
async function writeNext(file: RateFile, group: Group, rate: number | null): Promise<void> {
  const written = group.written.then(() => writeRate(file, rate));
  group.written = written.catch(() => undefined);
  await written;
}
