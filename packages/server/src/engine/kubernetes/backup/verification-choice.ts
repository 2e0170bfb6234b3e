/** The backup of a service that is verified next. Pure. */
import type { BackupState } from './state.ts';

/** @param toMs the moment up to which the archive is recovered; null: its snapshot is taken */
export type Verifiable = Readonly<{ backup: BackupState; toMs: number | null }>;

/** The moments that can be reached in the archive; null: none. `sinceMs`: it is used since then. */
export type Reachable = Readonly<{ latestMs: number; sinceMs: number }> | null;

/**
 * The newest snapshot or the archive, whichever was verified longer ago, with or without a result.
 *
 * @param backups newest first
 * @returns null: there is neither
 */
export function chooseVerified(
  backups: readonly BackupState[],
  archive: Reachable,
): Verifiable | null {
  const snapshot = backups.find((backup) => backup.snapshot !== null);
  const base =
    archive === null
      ? undefined
      : backups.find(
          ({ kind, askedMs, takenMs }) =>
            kind === 'base' &&
            takenMs !== null &&
            askedMs >= archive.sinceMs &&
            takenMs <= archive.latestMs,
        );
  const isBaseNext =
    base !== undefined &&
    (snapshot === undefined || verifiedMs(backups, 'base') < verifiedMs(backups, 'snapshot'));
  if (isBaseNext && archive !== null) return { backup: base, toMs: archive.latestMs };
  return snapshot === undefined ? null : { backup: snapshot, toMs: null };
}

/** When a verification of a kind began last; before all other times: never. */
const verifiedMs = (backups: readonly BackupState[], kind: BackupState['kind']): number =>
  Math.max(
    ...backups
      .filter((backup) => backup.kind === kind)
      .map((backup) => backup.verifiedMs ?? Number.NEGATIVE_INFINITY),
  );
