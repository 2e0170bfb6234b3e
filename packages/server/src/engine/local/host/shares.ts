/**
 * Shares out the processors and the disk of this machine while its servers run: looks at what each
 * has used, and sets weights and limits by `share-out.ts`. Those of a control plane that has died
 * stay as they were last.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Size } from '@howdah/contract';
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
import {
  guaranteedMillis,
  isLowered,
  LOWERED,
  budgetOf,
  isHungry,
  judgeDisk,
  restingRate,
  shareRates,
  type DiskUse,
} from './share-out.ts';
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
