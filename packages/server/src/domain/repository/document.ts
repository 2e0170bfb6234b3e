/** A repository as the API shows it. */
import type {
  OffMachineDocument,
  OffMachineVerificationDocument,
  RepositoryDocument,
} from '@howdah/contract';
import {
  lostSecondsOf,
  type OffMachineState,
  type OffMachineVerification,
} from '../../engine/off-machine.ts';

/** The row of a repository, as far as its document needs it. */
type RepositoryColumns = Pick<
  RepositoryDocument,
  'id' | 'name' | 'type' | 'location' | 'retention_days'
> & { created: Date; control_saved: Date | null; control_problem: string | null };

/** The use of a repository, as the regions know it. */
export type RepositoryUse = {
  /** The services whose backups it has. */
  services: number;
  /** The services that have none in it yet. */
  waiting: number;
  /** The moment of the newest backup; null: it has none. */
  lastBackupMs: number | null;
  /** The size of all backups. */
  backupBytes: number;
  /** The age of the oldest change that it does not have; null: unknown. */
  behindMs: number | null;
  /** WAL that it does not have yet. */
  backlogBytes: number;
  /** Why a service could not be sent; null: all could. */
  problem: string | null;
};

/** A repository without its credentials. */
export function repositoryDocument(row: RepositoryColumns, use: RepositoryUse): RepositoryDocument {
  return {
    id: row.id,
    name: row.name,
    type: row.type,
    location: row.location,
    retention_days: row.retention_days,
    created: row.created.toISOString(),
    control_saved: row.control_saved?.toISOString() ?? null,
    services: use.services,
    waiting_services: use.waiting,
    last_backup: momentOf(use.lastBackupMs),
    backups_mb: Math.ceil(use.backupBytes / 1e6),
    // Rounded up: less would promise writes that are not there.
    behind_seconds: use.behindMs === null ? null : Math.ceil(use.behindMs / 1000),
    backlog_mb: Math.ceil(use.backlogBytes / 1e6),
    problem: row.control_problem ?? use.problem,
  };
}

/**
 * The backups of a service in a repository.
 *
 * @param ownDays for how long each repository keeps them; null: as it says itself
 */
export function offMachineDocument(
  { name, retention_days: days }: Pick<RepositoryColumns, 'name' | 'retention_days'>,
  ownDays: number | null,
  state: OffMachineState,
): OffMachineDocument {
  return {
    repository: name,
    retention_days: ownDays ?? days,
    earliest: momentOf(state.earliestMs),
    latest: momentOf(state.safeToMs),
    backups: state.backups.map(({ label, takenMs, type, storageBytes }) => ({
      label,
      taken: new Date(takenMs).toISOString(),
      type: type === 'full' ? 'full' : 'incremental',
      storage_mb: Math.ceil(storageBytes / 1e6),
    })),
    ...(state.gaps.length === 0
      ? {}
      : {
          gaps: state.gaps.map(({ afterMs, beforeMs }) => ({
            after: new Date(afterMs).toISOString(),
            before: momentOf(beforeMs),
          })),
        }),
    backlog_mb: Math.ceil(state.backlog.bytes / 1e6),
    backlog_since: momentOf(state.backlog.oldestMs),
    ...(state.verification === null
      ? {}
      : { last_verification: verificationDocument(state.verification) }),
    problem: state.problem,
  };
}

function verificationDocument(found: OffMachineVerification): OffMachineVerificationDocument {
  const { dataBytes, begunMs: _begun, safeToMs: _safe, ...verification } = found;
  const { recovery_seconds: seconds } = verification;
  return {
    ...verification,
    data_mb: Math.ceil(dataBytes / 1e6),
    recovery_seconds_per_gb:
      seconds === null || dataBytes === 0 ? null : seconds / (dataBytes / 1e9),
    lost_seconds: lostSecondsOf(found),
  };
}

const momentOf = (ms: number | null): string | null =>
  ms === null ? null : new Date(ms).toISOString();
