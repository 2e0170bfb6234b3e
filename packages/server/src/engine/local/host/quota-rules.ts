/** The rules of quotas, as pure functions of what was measured; quota.ts measures and enforces. */
import type { Warning } from '@howdah/contract';
import type { DiskPressure, Relief } from '../../engine.ts';

/** From this part of the quota on a service warns. */
const NEAR = 0.9;
/** Archived WAL up to this part of the quota does not give way to the service. */
const ARCHIVE = 0.1;
/** WAL that a repository waits for stays up to this part of the quota. */
const WAITING_WAL = 0.25;
/** Below this part it may write again. */
const AGAIN = 0.95;
/**
 * How far above its limit a server that is read-only may grow before its sessions are ended, and
 * twice as far before it is paused.
 */
const MARGIN = 0.1;
const SMALLEST_MARGIN_BYTES = 64e6;
/** The same while the disk is full: a tenth of a large service would be more than what is left. */
const FROZEN_MARGIN_BYTES = 16e6;
/** Statistics and checkpoints write a little; more than this between two measurements is growth. */
const GROWTH_BYTES = 4e6;

/** While the disk is full, a server may grow by this much, whatever its quota. */
export const FROZEN_GROWTH_BYTES = 32e6;

/**
 * The limit of a server: its quota, or less while the disk is full. A server that takes no more
 * than an equal share of what all take is not what filled the disk; it may grow up to that share,
 * until too little is left for anybody.
 *
 * @param frozenBytes its size when the disk became full; null: the disk is not full
 * @param sizes of all servers, in bytes
 */
export function limitOf({
  quotaBytes,
  frozenBytes,
  pressure,
  sizes,
}: {
  quotaBytes: number;
  frozenBytes: number | null;
  pressure: DiskPressure;
  sizes: readonly number[];
}): number {
  if (frozenBytes === null) return quotaBytes;
  const grownBytes = frozenBytes + FROZEN_GROWTH_BYTES;
  const shareBytes = sizes.reduce((sum, size) => sum + size, 0) / sizes.length;
  const allowedBytes = pressure === 'scarce' ? grownBytes : Math.max(grownBytes, shareBytes);
  return Math.min(quotaBytes, allowedBytes);
}

export type QuotaFacts = {
  usedBytes: number;
  /** The quota, or less while the disk is full. */
  limitBytes: number;
  /** Whether the disk is full. */
  frozen: boolean;
  /** At the previous measurement; null: the server or the control plane has just started. */
  beforeBytes: number | null;
  /** The least since then. */
  leastBytes: number;
  isReadOnly: boolean;
};

export type QuotaStep = {
  /**
   * Whether transactions begin read-only. A session may set that off again, to drop what it needs
   * no more.
   */
  isReadOnly: boolean;
  ends: 'nobody' | 'writers' | 'all';
  /** Whether nothing else has helped, and the service is paused. */
  stops: boolean;
};

/** The measures against a server that takes this much. */
export function quotaStep({
  usedBytes,
  limitBytes,
  frozen,
  beforeBytes,
  leastBytes,
  isReadOnly,
}: QuotaFacts): QuotaStep {
  const isOver = usedBytes > limitBytes;
  const marginBytes = frozen
    ? FROZEN_MARGIN_BYTES
    : Math.max(SMALLEST_MARGIN_BYTES, limitBytes * MARGIN);
  const grows = beforeBytes !== null && usedBytes > beforeBytes + GROWTH_BYTES;
  const isFarOver = usedBytes > limitBytes + marginBytes;
  // A server that was started again for a cleanup writes WAL for it.
  const hasGrown = usedBytes > leastBytes + marginBytes / 2;
  return {
    isReadOnly: isOver || (isReadOnly && usedBytes > limitBytes * AGAIN),
    ends: grows && isFarOver ? 'all' : isOver && !isReadOnly ? 'writers' : 'nobody',
    stops: grows && isReadOnly && hasGrown && usedBytes > limitBytes + 2 * marginBytes,
  };
}

/**
 * Whether archived WAL is to give way to the service: near the quota, and a good part of it is
 * archive.
 */
export function exceeded({
  usedBytes,
  archiveBytes,
  quotaBytes,
}: {
  usedBytes: number;
  archiveBytes: number;
  quotaBytes: number;
}): boolean {
  return usedBytes > quotaBytes * NEAR && archiveBytes > quotaBytes * ARCHIVE;
}

/**
 * Whether archived WAL that may go is enough for a new snapshot; less of it is, while points from
 * before a growth stay.
 */
export const isWorthRelief = (
  removableBytes: number,
  quotaBytes: number,
  hasKeptPoints: boolean,
): boolean => removableBytes > (quotaBytes * ARCHIVE) / (hasKeptPoints ? 2 : 1);

/**
 * How much WAL stays for a repository that does not have it yet. Near the quota it is less, so that
 * a dead repository makes no service read-only: half of the archive that does not give way.
 */
export const waitingWalBudget = (quotaBytes: number, isNear: boolean): number =>
  quotaBytes * (isNear ? ARCHIVE / 2 : WAITING_WAL);

/** Server logs that are kept of a service: a fiftieth of its quota, 20 to 200 MB. */
export function logBudget(quotaBytes: number): number {
  return Math.min(200e6, Math.max(20e6, quotaBytes / 50));
}

/** Settings that a server has while it takes too much; empty: none. */
export function quotaFile({
  isReadOnly,
  isQuiet,
}: {
  isReadOnly: boolean;
  isQuiet: boolean;
}): string {
  if (!isReadOnly && !isQuiet) return '';
  const lines = [
    ...(isReadOnly ? ['default_transaction_read_only = on'] : []),
    // Only a superuser may set these.
    ...(isQuiet
      ? [
          'log_min_messages = panic',
          'log_min_error_statement = panic',
          'log_min_duration_statement = -1',
        ]
      : []),
  ];
  return `# Written by Howdah while the service takes too much of the disk.\n${lines.join('\n')}\n`;
}

export type StorageFacts = {
  usedBytes: number;
  quotaBytes: number;
  isReadOnly: boolean;
  frozen: boolean;
  isQuiet: boolean;
  stops: boolean;
  /** The last time that archived WAL gave way; null: it never did. */
  relief: Relief | null;
};

/** The storage warning of a service; null: none. */
export function storageWarning(facts: StorageFacts): Warning | null {
  const { usedBytes, quotaBytes, isReadOnly, frozen, isQuiet, stops, relief } = facts;
  const gb = (bytes: number) => (bytes / 1e9).toFixed(2);
  const figures = `${gb(usedBytes)} of ${gb(quotaBytes)} GB (storage_gb) are used`;
  const remedy =
    'resize it to more storage_gb (howdah service resize NAME --storage-gb ' +
    `${Math.ceil((usedBytes / 1e9) * 1.25)}), or drop data`;
  const how = '"begin read write" begins a transaction that can drop, truncate or delete';
  const cause =
    frozen && usedBytes <= quotaBytes ? 'the disk of the installation is full' : figures;
  const parts = [
    ...(stops
      ? [`${cause}, and it grew on: the service was paused; ${remedy} after it is started again`]
      : []),
    ...(!stops && isReadOnly
      ? [
          `${cause}: transactions are read-only, and sessions that write on are ` +
            `ended; ${remedy} (${how})`,
        ]
      : []),
    ...(!isReadOnly && usedBytes > quotaBytes * NEAR
      ? [`${figures}; beyond that it becomes read-only: ${remedy}`]
      : []),
    ...(isQuiet
      ? [
          'the server log grew by more than 20 MB within seconds: ' +
            'for a minute only the worst messages are logged',
        ]
      : []),
    ...(relief !== null && Date.now() < relief.untilMs
      ? [
          `moments before ${iso(relief.lastMs)} cannot all be restored any more, ` +
            'since archived WAL counts and gave way (howdah backup status); ' +
            `those from before the growth stay until ${iso(relief.untilMs)}: ` +
            'fork one of them until then if the growth was no intention, ' +
            'and set a new password; a larger storage_gb keeps more',
        ]
      : []),
  ];
  return parts.length === 0 ? null : { code: 'STORAGE', message: parts.join('; ') };
}

const iso = (ms: number): string => new Date(ms).toISOString();
