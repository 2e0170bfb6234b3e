/**
 * How the processors and the disk of a machine are shared by its servers, as pure functions. A size
 * is a guarantee: a server may use what others leave idle
 * (docs/decisions/0101-guarantees.md).
 */
import { SHARED_CPU_MILLIS, type Size } from '@howdah/contract';

/** The part of the processors that a size guarantees, in thousandths of one. */
export const guaranteedMillis = (size: Size): number =>
  size === 'shared' ? SHARED_CPU_MILLIS : size.cpuMillis;

/** Who uses more than is guaranteed while others wait weighs this part of its weight. */
export const LOWERED = 1 / 10;
/** A use near its guarantee must not lower and raise a weight in turns. */
const ABOVE = 1.1;
const BELOW = 0.9;

/** The use of processors by a server since the last time, in thousandths of one. */
export type CpuUse = { guaranteed: number; used: number; isLowered: boolean };

/**
 * Whether a server has its lower weight: from when it uses more than its guarantee until it uses
 * less. On a machine with idle processors nobody waits.
 */
export function isLowered({ guaranteed, used, isLowered: was }: CpuUse, isBusy: boolean): boolean {
  return isBusy && used > guaranteed * (was ? BELOW : ABOVE);
}

/** The part of the disk's rate that is left for commits: with it, its queue stays short. */
const ROOM_FOR_COMMITS = 1 / 5;
/** A server that writes this part of its limit would write more. */
const HUNGRY = 0.8;
/** The part of all that a server may write which has written little. */
const AT_REST = 1 / 4;
/** A server that is not held up has so many times what it writes. */
const SLACK = 1.5;
/** By this factor a limit that was low grows in each round in which little is written. */
const GROWTH = 1.1;
/** The least limit, in bytes a second: below it a server gets nothing done. */
const LEAST_RATE = 1024 ** 2;

/** The rate at which the servers of a disk may write together, in bytes a second. */
export const budgetOf = (diskRate: number): number => diskRate * (1 - ROOM_FOR_COMMITS);

/** The limit of a server that has written little, in bytes a second. */
export const restingRate = (budget: number): number => budget * AT_REST;

/**
 * A server that writes; rates and limits in bytes a second. `isActive`: it has written something in
 * the last seconds, if only a commit.
 */
export type Writer = { guaranteed: number; rate: number; limit: number; isActive: boolean };

/** Whether a server would write more than its limit. */
export const isHungry = ({ rate, limit }: Writer): boolean => rate >= limit * HUNGRY;

/**
 * Shares out what may be written. A server that writes alone has all of it; while others write or
 * commit, it has its guarantee, and their commits hardly wait. A server that writes little may
 * begin with a quarter, so that its first commits do not wait; a limit that was low grows to this
 * in some ten seconds, so that bursts in turns gain nothing.
 *
 * @param budget the rate at which all of them may write together, in bytes a second
 * @param cpuMillis the processors of the machine, in thousandths: of these a guarantee is a part
 * @returns the new limit of each
 */
export function shareRates(
  budget: number,
  cpuMillis: number,
  writers: readonly Writer[],
): number[] {
  const active = writers.filter(({ isActive }) => isActive);
  const whole = active.reduce((sum, { guaranteed }) => sum + guaranteed, 0);
  return writers.map((writer) => {
    const isAlone = active.every((one) => one === writer);
    const part = isAlone ? budget : (budget * writer.guaranteed) / Math.max(cpuMillis, whole);
    if (isHungry(writer)) return Math.max(LEAST_RATE, part);
    const rested = Math.min(writer.limit * GROWTH, restingRate(budget));
    return Math.max(LEAST_RATE, Math.min(part, writer.rate * SLACK), rested);
  });
}

/** A mean write of this length says that the disk has more to do than it can. */
const LONG_WRITE_MS = 20;
const SHORT_WRITE_MS = 5;

/** The work of a disk since the last time. `writeMs`: the mean time of a write; null: none */
export type DiskUse = { rate: number; writeMs: number | null };

/**
 * The rate of a disk, in bytes a second, after another observation. A cloud's disks slow down when
 * their credit is used up, and a first measurement may have met other work: a rate that was seen is
 * possible, one at which writes take long is too high, and while they are short more is tried.
 *
 * @param wanted whether a server would write more than its limit
 */
export function judgeDisk(diskRate: number, { rate, writeMs }: DiskUse, wanted: boolean): number {
  if (writeMs === null) return diskRate;
  const isNear = rate > diskRate / 3;
  if (isNear && writeMs > LONG_WRITE_MS) return Math.max(rate, diskRate * 0.8, LEAST_DISK_RATE);
  if (rate > diskRate) return Math.min(rate, diskRate * MORE);
  return wanted && isNear && writeMs < SHORT_WRITE_MS ? diskRate * 1.01 : diskRate;
}
/**
 * A rate that was seen is believed step by step: a disk may take zeros, or a burst, at a rate that
 * it has for nothing else.
 */
const MORE = 1.05;
/** Slower disks than this are not foreseen: a limit that fell too low would stay there. */
const LEAST_DISK_RATE = 16 * 1024 ** 2;
