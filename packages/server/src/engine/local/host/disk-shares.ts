/** The limits of what servers write to the disk of the data, by what each writes. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isErrno, noneOf } from '../../../lib/processes.ts';
import { groupPaths, readWritten, writeRateLimit, type Limits } from './groups.ts';
import { addContention, noContention, type Contention } from './neighbours.ts';
import {
  budgetOf,
  isHungry,
  judgeDisk,
  restingRate,
  shareRates,
  type DiskUse,
} from './share-out.ts';

type Server = {
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
export type DiskShares = ReturnType<typeof createDiskShares>;

/**
 * The shares of a disk.
 *
 * @param disk as `major:minor`
 * @param diskRate what it can write, in bytes a second
 * @param cpuMillis the processors of the machine, in thousandths of one
 */
export function sharesOfDisk(disk: string, diskRate: number, cpuMillis: number): DiskShares {
  const found = shared.get(disk) ?? createDiskShares(() => readCounters(disk), diskRate, cpuMillis);
  shared.set(disk, found);
  return found;
}

/** @param read the counters of the disk; null: it is gone */
export function createDiskShares(read: () => Counters | null, diskRate: number, cpuMillis: number) {
  /** By their groups. */
  const servers = new Map<string, Server>();
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
async function setLimit(server: Server, limit: number): Promise<void> {
  const write = async (): Promise<void> => {
    await writeRateLimit(server.limits, server.id, limit);
    server.limit = limit;
  };
  const done = server.lastWrite.then(write);
  server.lastWrite = done.catch(() => undefined);
  await done;
}

/** A server as a writer, by the bytes that it has written since the last observation. */
function observe(server: Server, atMs: number, seconds: number) {
  const written = readWritten(server.limits, server.id);
  const grown = written === null || server.written === null ? 0 : written - server.written;
  server.written = written;
  if (grown > 0) server.activeMs = atMs;
  const isActive = atMs - server.activeMs < ACTIVE_MS;
  return { server, ...server, rate: Math.max(0, grown / seconds), isActive };
}

const keyOf = (limits: Limits, id: string): string => groupPaths(limits, id).join();

const isNotable = (server: Server, limit: number): boolean =>
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
