/** When a deleted service can no longer be restored, and when its data must be removed. */
import type { ServiceRow } from './row.ts';

/** Whether the time for a restore of a deleted service is over. */
export function isRestoreOver(
  service: Pick<ServiceRow, 'project_id' | 'deleted_at' | 'parent_id' | 'kept'>,
  restoreWindowMs: number,
): boolean {
  const untilMs = restorableUntilMs(service, restoreWindowMs);
  return (
    service.parent_id === null &&
    service.project_id !== null &&
    untilMs !== null &&
    Date.now() >= untilMs
  );
}

/**
 * Until when a deleted service can be restored: from the data on this machine, or from a repository
 * when that was removed; null: it is not deleted.
 */
export function restorableUntilMs(
  { deleted_at: deletedAt, kept }: Pick<ServiceRow, 'deleted_at' | 'kept'>,
  restoreWindowMs: number,
): number | null {
  if (deletedAt === null) return null;
  return kept === null ? deletedAt.getTime() + restoreWindowMs : Date.parse(kept.until);
}

/**
 * Whether the data of a deleted service must be removed now. Spares, sets and purged services have
 * no time for a restore from this machine, nor do services whose backups are in a repository.
 */
export function mustBeRemoved(
  { deleting, project_id: projectId, parent_id: parentId, purge, kept }: ServiceRow,
  restoreWindowMs: number,
): boolean {
  const isOver = projectId === null || parentId !== null || restoreWindowMs === 0;
  return deleting && (isOver || purge || kept !== null);
}

/** The milliseconds until the time for a restore is over; null: the service is not deleted. */
export function msUntilRestoreIsOver(
  service: Pick<ServiceRow, 'deleted_at' | 'kept'>,
  restoreWindowMs: number,
): number | null {
  const untilMs = restorableUntilMs(service, restoreWindowMs);
  return untilMs === null ? null : Math.max(1000, untilMs - Date.now());
}
