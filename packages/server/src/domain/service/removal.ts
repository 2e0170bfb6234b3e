/** When a deleted service can no longer be restored, and when its data must be removed. */
import type { ServiceRow } from './row.ts';

/** Whether the time for a restore of a deleted service is over. */
export function isRestoreOver(
  { project_id: projectId, deleted_at: deletedAt, parent_id: parentId }: ServiceRow,
  restoreWindowMs: number,
): boolean {
  return (
    parentId === null &&
    projectId !== null &&
    deletedAt !== null &&
    Date.now() - deletedAt.getTime() >= restoreWindowMs
  );
}

/**
 * Whether the data of a deleted service must be removed now. Spares, sets and purged services have
 * no time for a restore.
 */
export function mustBeRemoved(
  { deleting, project_id: projectId, parent_id: parentId, purge }: ServiceRow,
  restoreWindowMs: number,
): boolean {
  return deleting && (projectId === null || parentId !== null || restoreWindowMs === 0 || purge);
}

/** The milliseconds until a deleted service is removed; null: it is not deleted. */
export function msUntilRemoval(
  { deleted_at: deletedAt }: ServiceRow,
  restoreWindowMs: number,
): number | null {
  return deletedAt === null
    ? null
    : Math.max(1000, deletedAt.getTime() + restoreWindowMs - Date.now());
}
