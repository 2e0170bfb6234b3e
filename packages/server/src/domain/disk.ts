/** The thresholds of a full disk: for warnings, and for work that would fill it further. */
import type { Warning } from '@howdah/contract';
import type { DiskPressure, DiskUsage } from '../engine/disk.ts';

/** From here on services have a warning. */
export const DISK_TIGHT_PERCENT = 85;
/** From here on deleted services are purged before the time for a restore is over, oldest first. */
export const PURGE_PERCENT = 90;
/** From here on the space is kept for existing services: no creates, no forks, no verifications. */
export const DISK_FULL_PERCENT = 95;
/**
 * From here on the reserve is released, and services that grow become read-only if they take more
 * than an equal share.
 */
export const RESERVE_RELEASE_PERCENT = 98;
/** Below this, with the reserve counted, the reserve is created again. */
export const RESERVE_AGAIN_PERCENT = 95;

/** With less than this on a full disk, no service may grow, in bytes. */
const SCARCE_BYTES = 128e6;

/** Whether the time for a restore of a deleted service may soon end early, and by what. */
export type RestoreRisk = Readonly<{ isHigh: boolean; note: string }>;

export function restoreRisk({ usedPercent }: DiskUsage): RestoreRisk {
  return {
    isHigh: usedPercent >= DISK_TIGHT_PERCENT,
    note:
      `earlier if the disk fills: from ${PURGE_PERCENT} % on, deleted services are removed from ` +
      'it, the oldest first, and those whose backups are in no repository are lost; it is ' +
      `${Math.floor(usedPercent)} % full`,
  };
}

const HOUR_MS = 3_600_000;

/**
 * For how long a service can be restored after its deletion, in words.
 *
 * @param restoreWindowMs 0: it cannot
 */
export function describeRestore(
  id: string,
  restoreWindowMs: number,
  risk: RestoreRisk | null,
): string {
  if (restoreWindowMs === 0)
    return 'nobody can restore it afterwards: HOWDAH_RESTORE_HOURS of this installation is 0';
  const hours = Math.round((restoreWindowMs / HOUR_MS) * 10) / 10;
  const time = `howdah service restore ${id} restores it for ${hours} hours`;
  return risk === null ? time : `${time}; its data is gone ${risk.note}`;
}

/** How full the disk counts; a disk that was full stays so until it is below 95 %. */
export function diskPressure(
  { usedPercent, freeBytes }: DiskUsage,
  before: DiskPressure,
): DiskPressure {
  const until = before === 'none' ? RESERVE_RELEASE_PERCENT : DISK_FULL_PERCENT;
  if (usedPercent < until) return 'none';
  return freeBytes < SCARCE_BYTES ? 'scarce' : 'full';
}

/** The warning of services when their disk runs full; null: there is space. */
export function diskWarning({ usedPercent, freeBytes, totalBytes }: DiskUsage): Warning | null {
  if (usedPercent < DISK_TIGHT_PERCENT) return null;
  const gb = (bytes: number) => (bytes / 1e9).toFixed(1);
  const figures =
    `the disk of the services is ${Math.floor(usedPercent)} % full ` +
    `(${gb(freeBytes)} of ${gb(totalBytes)} GB free)`;
  const remedy =
    'delete and purge services, drop what is no longer needed, or shorten HOWDAH_BACKUP_DAYS';
  return {
    code: 'DISK',
    message:
      `${figures}; ${consequence(usedPercent)}: ` +
      `${remedy}${usedPercent < DISK_FULL_PERCENT ? '' : ' now'}`,
  };
}

function consequence(usedPercent: number): string {
  if (usedPercent < PURGE_PERCENT)
    return (
      `from ${PURGE_PERCENT} % on deleted services are purged early, ` +
      `from ${DISK_FULL_PERCENT} % on no services and forks are made`
    );
  if (usedPercent < DISK_FULL_PERCENT)
    return (
      `deleted services are purged early, from ${DISK_FULL_PERCENT} % on no ` +
      'services and forks are made'
    );
  const refused = 'deleted services are purged early, no services and forks are made';
  return usedPercent < RESERVE_RELEASE_PERCENT
    ? `${refused}, and from ${RESERVE_RELEASE_PERCENT} % on services that grow become read-only`
    : `${refused}, services that grow become read-only, and a server that finds no ` +
        'space for its WAL ends';
}
