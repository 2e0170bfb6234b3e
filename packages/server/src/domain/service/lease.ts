/**
 * How many forks of a service are kept warm for its next leases. The leases of the last minutes
 * decide, and the room on the machine: nobody has to set it.
 */
import { LEASE_TTL_SECONDS } from '@howdah/contract';
import { DISK_FULL_PERCENT } from '../disk.ts';
import type { KeyBounds } from './lifetime.ts';

/** The most warm forks of a service. */
const MOST_WARM = 16;
/** A runner with one lease at a time takes the next while the one before is replaced. */
const LEAST_WARM = 2;
/** So long after the last lease of a service, nothing is kept warm for the next one. */
const IDLE_MS = 15 * 60_000;

/** Memory of a warm server: its first process, a dozen others, and our session. */
const SERVER_BYTES = 40 * 1024 ** 2;
/** The part of the memory, and of the ports, that is left to services of users. */
const LEFT_PART = 0.2;

/** The leases of a service. */
export type LeaseDemand = Readonly<{
  /** The most at a time. */
  peak: number;
  /** When the last one was taken. */
  takenMs: number;
}>;

/** The state of the machine. */
export type LeaseRoom = Readonly<{
  freeMemoryBytes: number;
  memoryBytes: number;
  freePorts: number;
  ports: number;
  /** null: the services have no disk in common. */
  diskUsedPercent: number | null;
}>;

/** Whether the leases of a service have ended so long ago that none is expected. */
export const isIdle = ({ takenMs }: LeaseDemand, nowMs: number): boolean =>
  nowMs - takenMs >= IDLE_MS;

/** How many forks of a service are to be warm, if the machine has the room. */
export const warmFor = (demand: LeaseDemand, nowMs: number): number =>
  isIdle(demand, nowMs) ? 0 : Math.min(MOST_WARM, Math.max(LEAST_WARM, demand.peak));

/**
 * How many more warm forks a machine has room for. A negative number: so many must go, since
 * services of users need what they have.
 */
export function roomForWarm(room: LeaseRoom): number {
  const { freeMemoryBytes, memoryBytes, freePorts, ports, diskUsedPercent } = room;
  if (diskUsedPercent !== null && diskUsedPercent >= DISK_FULL_PERCENT) return -Infinity;
  const byMemory = Math.floor((freeMemoryBytes - memoryBytes * LEFT_PART) / SERVER_BYTES);
  const byPorts = Math.floor(freePorts - ports * LEFT_PART);
  return Math.min(byMemory, byPorts);
}

/**
 * The disk space of a server with so many databases that are leases, in gigabytes: the database
 * that it has as a fork, and the copy that all others are made of, are beside them.
 */
export const storageGbOfDatabases = (count: number, databaseGb: number): number =>
  (count + 2) * databaseGb;

/** The lifetime of a lease that is taken without one, within the bounds of its key. */
export const defaultLeaseTtl = ({ serviceTtlSeconds, maxTtlSeconds }: KeyBounds): number =>
  Math.min(LEASE_TTL_SECONDS, serviceTtlSeconds ?? Infinity, maxTtlSeconds ?? Infinity);
