/** Backups of a service, as the objects of CloudNativePG say. All of it is input. */
import { type Verification, VerificationSchema } from '@howdah/contract';
import { Type, type Static } from 'typebox';
import { ASKED_OF, AWAITED, VERIFICATION, VERIFICATION_BEGUN } from '../names.ts';
import { METADATA } from '../api/kinds.ts';
import { Value } from 'typebox/value';

export const BACKUP_OBJECT = Type.Object({
  metadata: Type.Interface([METADATA], { creationTimestamp: Type.String() }),
  spec: Type.Optional(Type.Object({ method: Type.Optional(Type.String()) })),
  status: Type.Optional(
    Type.Object({
      phase: Type.Optional(Type.String()),
      error: Type.Optional(Type.String()),
      startedAt: Type.Optional(Type.String()),
      stoppedAt: Type.Optional(Type.String()),
      instanceID: Type.Optional(Type.Object({ podName: Type.Optional(Type.String()) })),
      snapshotBackupStatus: Type.Optional(
        Type.Object({
          elements: Type.Optional(
            Type.Array(Type.Object({ name: Type.String(), type: Type.String() })),
          ),
        }),
      ),
    }),
  ),
});
export type BackupObject = Static<typeof BACKUP_OBJECT>;

export type BackupState = Readonly<{
  /** In the object store of the region by the plugin, or on the storage of the cluster. */
  kind: 'base' | 'snapshot';
  name: string;
  namespace: string;
  /** When it was asked for. */
  askedMs: number;
  /** Whether it has all data. */
  isTaken: boolean;
  /** The snapshot of the volume; null: it is not taken. */
  snapshot: string | null;
  /** Why it has failed, in the words of the cluster; null: it has not. */
  problem: string | null;
  /** The backup's verification; null: there was none. */
  verification: Verification | null;
  /** When its last verification began, whatever became of it; null: there was none. */
  verifiedMs: number | null;
  /** When it was taken; null: it is not, or that is unknown. */
  takenMs: number | null;
}>;

/** Longest reason that users are shown. */
const MAX_LENGTH = 300;

export function backupState({ metadata, spec, status }: BackupObject): BackupState {
  const kind = spec?.method === 'plugin' ? 'base' : 'snapshot';
  const isCompleted = status?.phase === 'completed';
  const taken = status?.snapshotBackupStatus?.elements?.find(({ type }) => type === 'PG_DATA');
  const snapshot = isCompleted ? (taken?.name ?? null) : null;
  return {
    kind,
    name: metadata.name,
    namespace: metadata.namespace,
    askedMs: Date.parse(metadata.creationTimestamp),
    isTaken: kind === 'base' ? isCompleted : snapshot !== null,
    snapshot,
    problem: status?.phase === 'failed' ? (status.error ?? 'unknown').slice(0, MAX_LENGTH) : null,
    verification: readVerification(metadata.annotations?.[VERIFICATION]),
    verifiedMs: timeOf(metadata.annotations?.[VERIFICATION_BEGUN]),
    takenMs: isCompleted ? timeOf(status?.stoppedAt) : null,
  };
}

function timeOf(text: string | undefined): number | null {
  const ms = Date.parse(text ?? '');
  return Number.isNaN(ms) ? null : ms;
}

/** The backup of its running parent that a fork is made of. */
export type OriginBackup = Pick<BackupState, 'askedMs' | 'isTaken' | 'problem'> &
  Readonly<{
    /** Whether the step that takes it has not ended. */
    isAwaited: boolean;
  }>;

/**
 * CloudNativePG chooses the server when the backup begins, and in a switchover that is the next
 * primary. It may lack what the one of before had acknowledged when the fork was asked for.
 */
export function originBackupState(backup: BackupObject): OriginBackup {
  const state = backupState(backup);
  const { annotations } = backup.metadata;
  const isOfAnother = annotations?.[ASKED_OF] !== backup.status?.instanceID?.podName;
  return {
    ...state,
    isAwaited: annotations?.[AWAITED] !== undefined,
    problem: state.problem ?? (state.isTaken && isOfAnother ? OF_ANOTHER : null),
  };
}

const OF_ANOTHER = 'its primary has changed meanwhile';

/** Whether CloudNativePG is not at it any more. */
export const isEnded = ({ isTaken, problem }: BackupState): boolean => isTaken || problem !== null;

/** That of a small service ends within this time, and a snapshot begins after it. */
const SHORT_MS = 60_000;

/**
 * Whether a base backup is under way that may take hours: one backup is taken at a time. A snapshot
 * waits for one that has just begun, as the first one of a new service.
 */
export const isBusy = (backups: readonly BackupState[], nowMs: number): boolean =>
  backups.some(
    (backup) => backup.kind === 'base' && !isEnded(backup) && nowMs - backup.askedMs > SHORT_MS,
  );

/** @param backups newest first @returns null: none is taken */
export const newestSnapshot = (backups: readonly BackupState[]): string | null =>
  backups.find(({ snapshot }) => snapshot !== null)?.snapshot ?? null;

/** The result of a verification, of the annotation of its Backup; null: it has none. */
export function readVerification(text: string | undefined): Verification | null {
  if (text === undefined) return null;
  try {
    const parsed: unknown = JSON.parse(text);
    return Value.Check(VerificationSchema, parsed) ? parsed : null;
  } catch {
    return null;
  }
}
