/** The disk of the services, and the quotas of services. */

export type DiskUsage = {
  totalBytes: number;
  freeBytes: number;
  usedPercent: number;
};

/**
 * Whether the disk is full. Services that take more than an equal share may not grow then;
 * `scarce`: so little is left that no service may.
 */
export type DiskPressure = 'none' | 'full' | 'scarce';

export type StorageQuota = {
  /** The quota of each server. */
  quotaBytes: number;
  pressure: DiskPressure;
  /** Whether backups may be removed to make room: a requested fork may need one. */
  removes: boolean;
};
