/** When a disk is too full: for a warning, and for what takes more of it. */
import type { Warning } from '@howdah/contract';
import type { DiskUsage } from './engine/engine.ts';

/** From here on services warn of it. */
export const DISK_TIGHT_PERCENT = 85;
/** From here on the rest is kept for the services that are there: no forks, no copies of backups to prove them. */
export const DISK_FULL_PERCENT = 95;

/** What services warn of when the disk that they stand on runs full; null: there is room. */
export function diskWarning({ usedPercent, freeBytes, totalBytes, path }: DiskUsage): Warning | null {
  if (usedPercent < DISK_TIGHT_PERCENT) return null;
  const gb = (bytes: number) => (bytes / 1e9).toFixed(1);
  const figures = `the disk of ${path} is ${Math.floor(usedPercent)} % full (${gb(freeBytes)} of ${gb(totalBytes)} GB free)`;
  const mend = 'delete services, drop what is no longer needed, or shorten HOWDAH_BACKUP_DAYS';
  return {
    code: 'DISK',
    message:
      usedPercent < DISK_FULL_PERCENT
        ? `${figures}; from ${DISK_FULL_PERCENT} % on no forks are made: ${mend}`
        : `${figures}; no forks are made, and a server that finds no space for its WAL ends: ${mend} now`,
  };
}
