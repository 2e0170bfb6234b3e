/** The limits of a project. */
import { ApiError, PROJECT_LIMITS, type ProjectLimit, type Size } from '@howdah/contract';
import type { Tx } from '../store/tables.ts';
import { hasLimits, lockLimits, usageOf } from '../store/projects.ts';

/**
 * Refuses what exceeds the limits of a project. The caller adds it in the same transaction;
 * concurrent callers wait.
 *
 * @param more what the change adds
 * @throws ApiError LIMIT_EXCEEDED with what is allowed and what it would be
 */
export async function keepWithinLimits(
  tx: Tx,
  projectId: string,
  more: Partial<Record<ProjectLimit, number>>,
): Promise<void> {
  if (PROJECT_LIMITS.every((limit) => (more[limit] ?? 0) <= 0)) return;
  // Most projects have no limits, and their changes need not wait for each other.
  if (!(await hasLimits(tx, projectId))) return;
  const allowed = await lockLimits(tx, projectId);
  const used = await usageOf(tx, projectId);
  for (const limit of PROJECT_LIMITS) {
    const [most, added] = [allowed[limit], more[limit] ?? 0];
    if (most === null || added <= 0 || used[limit] + added <= most) continue;
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `${limit}: the project has ${used[limit]} and may have ${most}; ` +
        `this would make it ${used[limit] + added}. Delete or shrink what is not needed, ` +
        `or have the operator raise it: howdah project limits ${projectId} ` +
        `--${limit.replaceAll('_', '-')} ${used[limit] + added}`,
      { limit, allowed: most, used: used[limit], wanted: used[limit] + added },
    );
  }
}

/**
 * Refuses a backup retention that is longer than the project may have. Limits that are changed
 * meanwhile wait.
 *
 * @throws ApiError LIMIT_EXCEEDED
 */
export async function refuseLongRetention(tx: Tx, projectId: string, days: number): Promise<void> {
  const { backup_retention_days: most } = await lockLimits(tx, projectId);
  if (most === null || days <= most) return;
  throw new ApiError(
    'LIMIT_EXCEEDED',
    `retention_days: found ${days}; the project may keep backups for ${most} days at most. Take ` +
      'fewer days, or have the operator raise the limit: ' +
      `howdah project limits ${projectId} --backup-retention-days ${days}`,
    { limit: 'backup_retention_days', allowed: most, wanted: days },
  );
}

/** The weight of a number of servers of a size. */
export function weightOf(size: Size, servers: number): { cpu_millis: number; memory_gbs: number } {
  return size === 'shared'
    ? { cpu_millis: 0, memory_gbs: 0 }
    : { cpu_millis: size.cpuMillis * servers, memory_gbs: size.memoryGbs * servers };
}
