/** Whether a size has room on its machine, and what the sizes of all services take together. */
import { DEFAULT_SIZE, SERVICE_SIZES, type Capacity, type Size } from '@howdah/contract';
import type { Room } from '../../engine/engine.ts';

const GIB = 1024 ** 3;

/** The kernel keeps about so much of the memory that a machine is sold with for itself. */
const KERNEL_PART = 1 / 16;

/** The sizes of the services of a region together. */
export type Committed = Readonly<{
  servers: number;
  cpu_millis: number;
  memory_gbs: number;
  storage_gb: number;
}>;

/** Whether a server of a size has room. The smallest machine has room for the default size. */
export function hasRoom(size: Size, room: Room | null): boolean {
  if (room === null || size === 'shared' || isAtMost(size, DEFAULT_SIZE)) return true;
  const needed = size.memoryGbs * GIB * (room.isNode ? 1 : 1 - KERNEL_PART);
  return size.cpuMillis <= room.cpuMillis && needed <= room.memoryBytes;
}

const isAtMost = (size: Exclude<Size, 'shared'>, most: Size): boolean =>
  most === 'shared' || (size.cpuMillis <= most.cpuMillis && size.memoryGbs <= most.memoryGbs);

/** The largest size that has room. */
export function largestSize(room: Room): Exclude<Size, 'shared'> {
  return SERVICE_SIZES.findLast((size) => hasRoom(size, room)) ?? SERVICE_SIZES[0];
}

/** A capacity in words: `2 CPU and 23.4 GB of memory`. */
export function describeCapacity({ cpuMillis, memoryBytes }: Capacity): string {
  return `${inUnits(cpuMillis / 1000)} CPU and ${inUnits(memoryBytes / GIB)} GB of memory`;
}

const inUnits = (amount: number): string => String(Math.round(amount * 10) / 10);

/**
 * Why a size is refused; null: it has room.
 *
 * @param region the code of the region
 */
export function whyNoRoom(size: Size, room: Room | null, region: string): string | null {
  if (room === null || size === 'shared' || hasRoom(size, room)) return null;
  const { cpuMillis, memoryGbs } = largestSize(room);
  return (
    `cpu_millis, memory_gbs: ${size.cpuMillis}/${size.memoryGbs} is more than ${room.place} of ` +
    `the region ${region} has, ${describeCapacity(room)}. Choose ${cpuMillis}/${memoryGbs} or a ` +
    'smaller size, or use a larger machine; with force=true it is accepted, and its server may ' +
    'not start'
  );
}

/** Why a quota is refused; null: the disk could hold it. */
export function whyNoDisk(storageGb: number, totalBytes: number, region: string): string | null {
  const totalGb = Math.floor(totalBytes / 1e9);
  if (storageGb <= totalGb) return null;
  return (
    `storage_gb: ${storageGb} is more than the disk of the region ${region} has, ${totalGb} GB. ` +
    'Choose less, or use a larger disk; with force=true it is accepted, and the disk is full ' +
    'before the quota is reached'
  );
}

/**
 * What the sizes of all services together have more of than there is; null: they have room, all at
 * the same time.
 */
export function overcommitment(
  { cpu_millis: cpuMillis, memory_gbs: memoryGbs, storage_gb: storageGb }: Committed,
  { cpuMillis: cpu, memoryBytes }: Capacity,
  diskBytes: number,
): string | null {
  const parts = [
    { of: cpuMillis / 1000, has: cpu / 1000, unit: 'CPU' },
    { of: memoryGbs, has: memoryBytes / GIB, unit: 'GB of memory' },
    { of: storageGb, has: diskBytes / 1e9, unit: 'GB of disk' },
  ];
  const over = parts.filter(({ of, has }) => of > has);
  if (over.length === 0) return null;
  return over.map(({ of, has, unit }) => `${inUnits(of)} of ${inUnits(has)} ${unit}`).join(', ');
}
