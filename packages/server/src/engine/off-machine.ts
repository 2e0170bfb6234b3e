/** Backups of services in repositories, off the machine. */
import type { Verification } from '@howdah/contract';
import { secondsBetween, type RestoredBackup } from './restored-backup.ts';
import type { RunStep } from './run-step.ts';
import type { ForeignData, ServiceSpec } from './spec.ts';

/** The step of an operation that backs a service up. */
export const BACKUP_STEP = 'back up';

/** The result of restoring the newest backup in a repository. */
export type OffMachineVerification = Verification & {
  /** The size of the data that was restored. */
  dataBytes: number;
  begunMs: number;
  /** Every commit up to this moment was in the repository then; null: unknown. */
  safeToMs: number | null;
};

/** The most that a loss of the machine would have lost when a restore began; null: unknown. */
export function lostSecondsOf({
  recovery_point: point,
  safeToMs,
  begunMs,
}: Pick<OffMachineVerification, 'recovery_point' | 'safeToMs' | 'begunMs'>): number | null {
  if (point === null) return null;
  return secondsBetween(Math.max(Date.parse(point), safeToMs ?? 0), begunMs);
}

/** The backups of a service in a repository. */
export type OffMachineState = {
  /** Newest first. */
  backups: {
    label: string;
    takenMs: number;
    type: 'full' | 'incr';
    storageBytes: number;
    /** The time of the copy; undefined: unknown. */
    durationSeconds?: number | undefined;
  }[];
  /** The first moment that the service can be restored to; null: none yet. */
  earliestMs: number | null;
  /** Every commit up to this moment is in the repository; null: none yet. */
  safeToMs: number | null;
  /**
   * Times that cannot be restored, since WAL was removed before the repository had it; `beforeMs`:
   * the backup that ended it, null: none yet.
   */
  gaps: { afterMs: number; beforeMs: number | null }[];
  /** WAL that is not in it yet; `oldestMs`: when the oldest of it was archived. */
  backlog: { files: number; bytes: number; oldestMs: number | null };
  /** Why the last attempt failed; null: it did not. */
  problem: string | null;
  /** The last verification; null: there was none. */
  verification: OffMachineVerification | null;
};

/** A backup in a repository of another installation. */
export type ForeignBackup = {
  takenMs: number;
  /** The major version of PostgreSQL. */
  major: number;
  dataBytes: number;
};

/** The backups to take of a service: those that are due, or one in each repository. */
export type WantedBackup = 'due' | 'full' | 'incr';

/**
 * Backs a service up, beside {@link OffMachineBackups.ship}: its newest snapshot in each
 * repository, or in the way of its region. An interrupted backup leaves a repository as it was, but
 * for files that the next one uses.
 *
 * @throws the problem of a repository; what `signal` was aborted with
 */
export type BackUp = (
  id: string,
  wanted: WantedBackup,
  runStep: RunStep,
  signal: AbortSignal,
) => Promise<void>;

/** Backups in repositories, off this machine. */
export interface OffMachineBackups {
  /**
   * Sends WAL that each repository does not have yet of a service, and removes what is too old
   * there. A problem of a repository is in its state.
   *
   * @param retentionDays for how long each repository keeps its backups; null: as it says itself
   * @returns the state in each repository, by its id; whether there is more to send; and whether a
   *   backup is due
   */
  ship(
    id: string,
    retentionDays: number | null,
    signal: AbortSignal,
  ): Promise<{
    states: ReadonlyMap<string, OffMachineState>;
    more: boolean;
    isBackupDue: boolean;
  }>;
  /**
   * Restores the newest backup of a service from each repository, beside the service, checks and
   * removes it. The result is in the state.
   *
   * @returns problem: why one could not be restored; null: all could
   * @throws what `signal` was aborted with; Error when there is none
   */
  verify(
    spec: ServiceSpec,
    runStep: RunStep,
    signal: AbortSignal,
  ): Promise<{ problem: string | null; restored: readonly RestoredBackup[] }>;
  /** The state in each repository, by its id, as of the last call of ship. */
  describe(id: string): Promise<ReadonlyMap<string, OffMachineState>>;
  /**
   * The newest backup of data of another installation that is not later than a moment, in ms since
   * the epoch; null: there is none.
   *
   * @throws RepositoryProblem
   */
  findForeign(data: ForeignData, untilMs: number): Promise<ForeignBackup | null>;
}

/** The state in each repository; a region without repositories has none. */
export const statesInRepositories = async (
  offMachine: OffMachineBackups | null,
  id: string,
): Promise<ReadonlyMap<string, OffMachineState>> =>
  offMachine === null ? new Map() : offMachine.describe(id);
