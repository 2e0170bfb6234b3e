/** The room of a region: for a size on its machine, for a quota and for new data on its disk. */
import { ApiError, parseSize, type Size, type SizeInput } from '@howdah/contract';
import { DISK_FULL_PERCENT } from '../domain/disk.ts';
import { whyNoDisk, whyNoRoom } from '../domain/service/capacity.ts';
import type { DiskUsage, Engine } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import type { Caller } from './change.ts';

/** The size in a request. */
type AskedSize = { cpu_millis?: SizeInput; memory_gbs?: SizeInput };
type SizeRules = Parameters<typeof parseSize>[2];

/** @throws ApiError INVALID_REQUEST */
export function readSize(
  { cpu_millis: cpuMillis, memory_gbs: memoryGbs }: AskedSize,
  rules: SizeRules,
): Size {
  const parsed = parseSize(cpuMillis, memoryGbs, rules);
  if ('problem' in parsed) throw new ApiError('INVALID_REQUEST', parsed.problem);
  return parsed.size;
}

/**
 * The size of a new server. A size that is not in the request is a default, or that of a parent,
 * and is not refused for want of room.
 *
 * @throws ApiError INVALID_REQUEST; UNAVAILABLE_HERE when it has no room and is not forced
 */
export function sizeOrRefuse(
  region: Region,
  caller: Pick<Caller, 'force'>,
  asked: AskedSize,
  rules: SizeRules,
): Size {
  const size = readSize(asked, rules);
  const isAsked = asked.cpu_millis !== undefined || asked.memory_gbs !== undefined;
  if (isAsked) refuseWithoutRoom(region, caller, size);
  return size;
}

/** @throws ApiError UNAVAILABLE_HERE when a size has no room in a region and is not forced */
export function refuseWithoutRoom(
  { code, engine }: Region,
  { force }: Pick<Caller, 'force'>,
  size: Size,
): void {
  const why = force ? null : whyNoRoom(size, engine.capabilities.room, code);
  if (why !== null) throw new ApiError('UNAVAILABLE_HERE', why);
}

/**
 * Refuses a quota that the whole disk could not hold.
 *
 * @param asked the quota in a request; undefined: it has none
 * @throws ApiError UNAVAILABLE_HERE
 */
export async function refuseLargeQuota(
  { code, engine }: Region,
  { force }: Pick<Caller, 'force'>,
  asked: number | undefined,
): Promise<void> {
  if (asked === undefined || force) return;
  const usage = await readDisk(engine);
  const why = usage === null ? null : whyNoDisk(asked, usage.totalBytes, code);
  if (why !== null) throw new ApiError('UNAVAILABLE_HERE', why);
}

/** How full the disk of a region is; null: its services have none in common. */
export const readDisk = async ({ storage }: Pick<Engine, 'storage'>): Promise<DiskUsage | null> =>
  storage.disk === null ? null : storage.disk();

/**
 * Refuses new things on a nearly full disk, whose space existing services need.
 *
 * @param what is refused, in the plural
 */
export async function refuseFullDisk({ engine }: Region, what: string): Promise<void> {
  const usage = await readDisk(engine);
  if (usage === null || usage.usedPercent < DISK_FULL_PERCENT) return;
  const { usedPercent, freeBytes, totalBytes } = usage;
  const gb = (bytes: number) => (bytes / 1e9).toFixed(1);
  throw new ApiError(
    'LIMIT_EXCEEDED',
    `the disk of the services is ${usedPercent.toFixed(1)} % full ` +
      `(${gb(freeBytes)} of ${gb(totalBytes)} GB free); ` +
      `no ${what} are made from ${DISK_FULL_PERCENT} % on: ` +
      'purge services (howdah service purge NAME) or make space on it',
  );
}
