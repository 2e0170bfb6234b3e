/**
 * Shares out the processors and the disk of this machine while its servers run: looks at what each
 * has used, and sets weights and limits by `share-out.ts`. Those of a control plane that has died
 * stay as they were last.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Size, SHARED_CPU_MILLIS } from '@howdah/contract';
import {
  COPIES,
  diskOf,
  joinGroups,
  type Limits,
  makeGroup,
  readThrottledUs,
  readCpuUs,
  writeWeight,
  groupPaths,
  readWritten,
  writeRateLimit,
} from './groups.ts';
import { partsOfKey } from './layout.ts';
import { noneOf, isErrno } from '../../../lib/processes.ts';

export type Shares = ReturnType<typeof createShares>;

/**
 * @param diskRate the rate of the disk, in bytes a second; null: writes are not limited here
 * @param cpuMillis the processors of the machine, in thousandths of one
 */
export function createShares(limits: Limits, diskRate: number | null, cpuMillis: number) {
  const disk = diskOf(limits);
  const cpu = limits.kind === 'none' ? null : createCpuShares(limits);
  const writes =
    disk === null || diskRate === null ? null : sharesOfDisk(disk, diskRate, cpuMillis);
  const add = async (id: string, guaranteed: number): Promise<void> => {
    await cpu?.add(id, guaranteed);
    await writes?.add(limits, id, guaranteed);
  };
  let copies: Promise<void> | null = null;
  const makeCopies = async (): Promise<void> => {
    await makeGroup(limits, COPIES);
    // Clients wait for copies, and tenants have no more of them than the engine makes at a time.
    await add(COPIES, cpuMillis);
  };
  return {
    /** The rate of the disk, in bytes a second; null: writes are not limited here. */
    diskRate: (): number | null => writes?.rate() ?? null,
    /** Gives a server that has just become ready its shares. Its group is there. */
    add: (id: string, size: Size): Promise<void> => add(id, guaranteedMillis(size)),
    remove: (id: string): void => {
      cpu?.remove(id);
      writes?.remove(limits, id);
    },
    /** Has a server write at full speed for a moment: a client waits for this work. */
    free: async (id: string): Promise<void> => writes?.free(limits, id),
    /** Has a program that copies files share the disk with the servers, and with other copies. */
    joinCopies: (pid: number): void => {
      copies ??= makeCopies();
      // A copy is made all the same.
      copies.then(() => joinGroups(limits, COPIES, [pid])).catch(() => (copies = null));
    },
    /** How long others had to be considered; null: nobody shares it out. */
    contention: (id: string) => ({
      cpu: cpu?.busy(id) ?? null,
      writes: writes?.held(limits, id) ?? null,
      throttledMs: (readThrottledUs(limits, id) ?? 0) / 1000,
    }),
    /** Looks at what was used since the last time. */
    shareOut: async (): Promise<void> => {
      await cpu?.shareOut();
      await writes?.shareOut();
    },
  };
}

// How the processors and the disk of a machine are shared by its servers, as pure functions. A size
// is a guarantee: a server may use what others leave idle
// (docs/decisions/0101-guarantees.md).

/** The part of the processors that a size guarantees, in thousandths of one. */
const guaranteedMillis = (size: Size): number =>
  size === 'shared' ? SHARED_CPU_MILLIS : size.cpuMillis;

/** Who uses more than is guaranteed while others wait weighs this part of its weight. */
const LOWERED = 1 / 10;
/** A use near its guarantee must not lower and raise a weight in turns. */
const ABOVE = 1.1;
const BELOW = 0.9;

/** The use of processors by a server since the last time, in thousandths of one. */
type CpuUse = { guaranteed: number; used: number; isLowered: boolean };

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
const isHungry = ({ rate, limit }: Writer): boolean => rate >= limit * HUNGRY;

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
type DiskUse = { rate: number; writeMs: number | null };

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
 * A rate that was seen is believed step by step: a disk may take zeros, or a burst, at a rate that it
 * has for nothing else.
 */
const MORE = 1.05;
/** Slower disks than this are not foreseen: a limit that fell too low would stay there. */
const LEAST_DISK_RATE = 16 * 1024 ** 2;

// How many services wanted the processors or the disk of a machine while another was held back.

/**
 * Counters since a server got its shares. `ms`: how long it was held back, or might have been;
 * `neighbourMs`: the number of other services that wanted the same, added up over this time.
 */
export type Contention = { ms: number; neighbourMs: number };

export const noContention = (): Contention => ({ ms: 0, neighbourMs: 0 });

/** @param keys of the servers that wanted the same, with or without this one */
export function addContention(
  counted: Contention,
  ms: number,
  keys: readonly string[],
  key: string,
): void {
  counted.ms += ms;
  counted.neighbourMs += ms * countServices(keys, partsOfKey(key).id);
}

/** Standbys are of the same service, and copies of files are of none. */
function countServices(keys: readonly string[], except: string): number {
  const ids = keys.filter((key) => key !== COPIES).map((key) => partsOfKey(key).id);
  return new Set(ids.filter((id) => id !== except)).size;
}

// The weights of servers among each other, by what each uses of the processors.

type Server = {
  guaranteed: number;
  isLowered: boolean;
  /** The processor time of the server at the last observation, in µs; null: there was none. */
  cpuUs: number | null;
  /** The rounds in which no processor was idle. */
  busy: Contention;
};

/** Time of all processors since the start of the machine, in ticks. */
type Ticks = { atMs: number; busy: number; all: number };

/** A use is judged by so long: a shorter one depends on chance. */
const WINDOW_MS = 1000;
/** A machine that is less busy has processors for all. */
const BUSY = 0.95;
/** Who uses so many thousandths of a processor is a neighbour whom others notice. */
const NOTABLE_MILLIS = 100;

export function createCpuShares(limits: Limits, read = readTicks) {
  const servers = new Map<string, Server>();
  let last: Ticks | null = null;

  const weigh = (id: string, { guaranteed, isLowered: low }: Server): Promise<void> =>
    writeWeight(limits, id, low ? guaranteed * LOWERED : guaranteed);

  /** The use of a server since the round before; null: it is not known. */
  const look = (id: string, server: Server, elapsedMs: number): number | null => {
    const cpuUs = readCpuUs(limits, id);
    const before = server.cpuUs;
    server.cpuUs = cpuUs;
    return cpuUs === null || before === null ? null : (cpuUs - before) / elapsedMs;
  };

  const judge = async (id: string, server: Server, used: number | null, isBusy: boolean) => {
    if (used === null) return;
    const will = isLowered({ ...server, used }, isBusy);
    if (will === server.isLowered) return;
    await weigh(id, { ...server, isLowered: will });
    server.isLowered = will;
  };

  return {
    /** @param guaranteed thousandths of a processor */
    add: async (id: string, guaranteed: number): Promise<void> => {
      const server = { guaranteed, isLowered: false, cpuUs: null, busy: noContention() };
      servers.set(id, server);
      await weigh(id, server);
    },
    remove: (id: string): void => void servers.delete(id),
    /** The rounds in which no processor was idle while a server ran; null: it has no share. */
    busy: (id: string): Contention | null => {
      const busy = servers.get(id)?.busy;
      return busy === undefined ? null : { ...busy };
    },
    /** Sets weights by what was used since the last time, once that is long enough ago. */
    shareOut: async (): Promise<void> => {
      const now = read();
      const before = last;
      if (before !== null && now.atMs - before.atMs < WINDOW_MS) return;
      last = now;
      if (before === null) return;
      const isBusy = now.busy - before.busy >= (now.all - before.all) * BUSY;
      const isEven = [...servers.values()].every((server) => !server.isLowered);
      if (!isBusy && isEven) {
        for (const server of servers.values()) server.cpuUs = null;
        return;
      }
      const elapsedMs = now.atMs - before.atMs;
      const looks = [...servers].map(([id, server]) => {
        return { id, server, used: look(id, server, elapsedMs) };
      });
      const using = looks.filter(({ used }) => used !== null && used >= NOTABLE_MILLIS);
      const keys = using.map(({ id }) => id);
      for (const { id, server, used } of looks) {
        if (isBusy && used !== null) addContention(server.busy, elapsedMs, keys, id);
        // A group that is gone has no server.
        await judge(id, server, used, isBusy).catch(noneOf('ENOENT', 'ENODEV'));
      }
    },
  };
}

/** proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal. */
function readTicks(): Ticks {
  const line = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? '';
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, one) => sum + one, 0);
  const idle = (ticks[3] ?? 0) + (ticks[4] ?? 0);
  return { atMs: performance.now(), busy: all - idle, all };
}

// The limits of what servers write to the disk of the data, by what each writes.

type WritingServer = {
  id: string;
  limits: Limits;
  guaranteed: number;
  /** The bytes a second that the kernel lets the server write. */
  limit: number;
  /** Until then, by the clock of the counters, its limit is only lowered for the sake of others. */
  freeUntilMs: number;
  /** The bytes that the server had written at the last observation; null: there was none. */
  written: number | null;
  /** When it was last seen to have written something, by the clock of the counters. */
  activeMs: number;
  /** The rounds in which its limit held it back. */
  held: Contention;
  /** The last write of its limit; never rejected. */
  lastWrite: Promise<void>;
};

/** Counters of the disk since the start of the machine. */
export type Counters = { atMs: number; writtenBytes: number; writes: number; writeMs: number };

/** For so long, work that clients wait for is not limited as a server at rest is. */
const FREE_MS = 1000;
/** For so long, a server that has written something counts as one that commits. */
const ACTIVE_MS = 5000;
/** Below this part of what may be written, no limit needs a change. */
const QUIET = 0.1;
/** A smaller change of a limit is not written. */
const NOTABLE = 0.05;

/** Regions of a machine may have the same disk. */
const shared = new Map<string, DiskShares>();
type DiskShares = ReturnType<typeof createDiskShares>;

/**
 * The shares of a disk.
 *
 * @param disk as `major:minor`
 * @param diskRate what it can write, in bytes a second
 * @param cpuMillis the processors of the machine, in thousandths of one
 */
function sharesOfDisk(disk: string, diskRate: number, cpuMillis: number): DiskShares {
  const found = shared.get(disk) ?? createDiskShares(() => readCounters(disk), diskRate, cpuMillis);
  shared.set(disk, found);
  return found;
}

/** @param read the counters of the disk; null: it is gone */
export function createDiskShares(read: () => Counters | null, diskRate: number, cpuMillis: number) {
  /** By their groups. */
  const servers = new Map<string, WritingServer>();
  let rate = diskRate;
  let last: Counters | null = null;
  const nowMs = (): number => read()?.atMs ?? 0;

  const look = async (use: DiskUse, atMs: number, seconds: number): Promise<void> => {
    const writers = [...servers.values()].map((server) => observe(server, atMs, seconds));
    const hungry = writers.filter(isHungry);
    const isWanted = hungry.length > 0;
    const writing = writers.filter((one) => isHungry(one) || one.rate >= budgetOf(rate) * QUIET);
    const keys = writing.map(({ id }) => id);
    for (const { id, held } of hungry) addContention(held, seconds * 1000, keys, id);
    const limits = shareRates(budgetOf(rate), cpuMillis, writers);
    for (const [index, { server }] of writers.entries()) {
      const limit = limits[index] ?? server.limit;
      const isKept = !isWanted && limit < server.limit && atMs < server.freeUntilMs;
      // A group that is gone has no server.
      if (!isKept && isNotable(server, limit))
        await setLimit(server, limit).catch(noneOf('ENOENT', 'ENODEV'));
    }
    rate = judgeDisk(rate, use, isWanted);
  };

  return {
    rate: (): number => rate,
    /** Sets the limit of a server that has just become ready: its first writes are not slowed. */
    add: async (limits: Limits, id: string, guaranteed: number): Promise<void> => {
      const server = {
        id,
        limits,
        guaranteed,
        limit: 0,
        freeUntilMs: nowMs() + FREE_MS,
        written: null,
        activeMs: -Infinity,
        held: noContention(),
        lastWrite: Promise.resolve(),
      };
      servers.set(keyOf(limits, id), server);
      await setLimit(server, budgetOf(rate));
    },
    remove: (limits: Limits, id: string): void => void servers.delete(keyOf(limits, id)),
    /** The rounds in which the limit of a server held it back; null: it has none. */
    held: (limits: Limits, id: string): Contention | null => {
      const held = servers.get(keyOf(limits, id))?.held;
      return held === undefined ? null : { ...held };
    },
    /** Has a server write at full speed for a moment; its part, if others write as well. */
    free: async (limits: Limits, id: string): Promise<void> => {
      const server = servers.get(keyOf(limits, id));
      if (server === undefined) return;
      server.freeUntilMs = nowMs() + FREE_MS;
      // No promotion or fork fails because of the limit, which the next round sets again.
      await setLimit(server, budgetOf(rate)).catch(() => undefined);
    },
    /** Sets limits by what was written since the last time. */
    shareOut: async (): Promise<void> => {
      const now = read();
      const before = last;
      last = now;
      if (now === null || before === null || now.atMs <= before.atMs) return;
      const seconds = (now.atMs - before.atMs) / 1000;
      const use = useBetween(before, now, seconds);
      const budget = budgetOf(rate);
      const isRested = [...servers.values()].every((one) => !isNotable(one, restingRate(budget)));
      if (use.rate >= budget * QUIET || !isRested) return look(use, now.atMs, seconds);
      for (const server of servers.values()) server.written = null;
    },
  };
}

/** Sets the limit of a server after the write before: two at once have no order. */
async function setLimit(server: WritingServer, limit: number): Promise<void> {
  const write = async (): Promise<void> => {
    await writeRateLimit(server.limits, server.id, limit);
    server.limit = limit;
  };
  const done = server.lastWrite.then(write);
  server.lastWrite = done.catch(() => undefined);
  await done;
}

/** A server as a writer, by the bytes that it has written since the last observation. */
function observe(server: WritingServer, atMs: number, seconds: number) {
  const written = readWritten(server.limits, server.id);
  const grown = written === null || server.written === null ? 0 : written - server.written;
  server.written = written;
  if (grown > 0) server.activeMs = atMs;
  const isActive = atMs - server.activeMs < ACTIVE_MS;
  return { server, ...server, rate: Math.max(0, grown / seconds), isActive };
}

const keyOf = (limits: Limits, id: string): string => groupPaths(limits, id).join();

const isNotable = (server: WritingServer, limit: number): boolean =>
  Math.abs(limit - server.limit) > server.limit * NOTABLE;

function useBetween(before: Counters, now: Counters, seconds: number): DiskUse {
  const writes = now.writes - before.writes;
  return {
    rate: (now.writtenBytes - before.writtenBytes) / seconds,
    writeMs: writes > 0 ? (now.writeMs - before.writeMs) / writes : null,
  };
}

/** The kernel's Documentation/block/stat.rst; sectors have 512 bytes. @returns null: it is gone */
function readCounters(disk: string): Counters | null {
  try {
    const text = readFileSync(join('/sys/dev/block', disk, 'stat'), 'utf8');
    const fields = text.trim().split(/\s+/).map(Number);
    const [writes = 0, , sectors = 0, writeMs = 0] = fields.slice(4);
    return { atMs: performance.now(), writtenBytes: sectors * 512, writes, writeMs };
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENODEV')) return null;
    throw error;
  }
}
