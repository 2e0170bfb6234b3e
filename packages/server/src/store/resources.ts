/** The SQL that resources of a project have in common. */
import { sql } from 'kysely';
import type { Db, Tx } from './tables.ts';

/** The names of the locks of {@link lockAndCount}, by the tables. */
const LOCKS = {
  alert_destinations: 'howdah alert destinations',
  allow_lists: 'howdah allow lists',
  exporters: 'howdah exporters',
  webhooks: 'howdah webhooks',
} as const;

/** Locks the resources of a project against other creates, and counts them. */
export async function lockAndCount(
  tx: Tx,
  table: keyof typeof LOCKS,
  projectId: string,
): Promise<number> {
  const lock = sql`pg_advisory_xact_lock(hashtext(${LOCKS[table]}), hashtext(${projectId}))`;
  await sql`select ${lock}`.execute(tx);
  return countOfProject(tx, table, projectId);
}

/** The number of rows of a project; of VPCs with those that are being deleted. */
export async function countOfProject(
  tx: Tx,
  table: keyof typeof LOCKS | 'vpcs',
  projectId: string,
): Promise<number> {
  const { count } = await tx
    .selectFrom(table)
    .select(sql<number>`count(*)::int`.as('count'))
    .where('project_id', '=', projectId)
    .executeTakeFirstOrThrow();
  return count;
}

/**
 * Services that have an allow list or an exporter, and whether users still see them. Read replica
 * sets follow their service.
 */
export async function servicesWith(
  db: Db,
  column: 'allow_list_id' | 'metric_exporter_id',
  id: string,
): Promise<{ id: string; name: string; isListed: boolean }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'name', 'deleted_at', 'project_id'])
    .where(column, '=', id)
    .where('parent_id', 'is', null)
    .orderBy('id')
    .execute();
  return rows.map(({ id: serviceId, name, deleted_at, project_id }) => ({
    id: serviceId,
    name,
    isListed: deleted_at === null && project_id !== null,
  }));
}
