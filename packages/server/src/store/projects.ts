/** The SQL of projects: their limits and their usage. */
import {
  PROJECT_LIMITS,
  SHARED_CPU_MILLIS,
  type ProjectDetails,
  type ProjectLimit,
  type ProjectLimits,
} from '@howdah/contract';
import type { Db, Tables, Tx } from './tables.ts';
import { sql, type Selectable } from 'kysely';

/**
 * @param operator whether its admin keys manage projects; one project of an installation is this
 */
export async function insertProject(
  db: Db,
  project: { id: string; name: string; operator?: boolean; limits?: ProjectLimits },
): Promise<void> {
  const { id, name, operator = false, limits = {} } = project;
  await db
    .insertInto('projects')
    .values({ id, name, operator, ...limitColumns(limits) })
    .execute();
}

/** The project whose admin keys manage all projects; null: the metadata database is new. */
export async function findOperatorProject(db: Db): Promise<string | null> {
  const found = await db
    .selectFrom('projects')
    .select('id')
    .orderBy('operator', 'desc')
    .orderBy('created')
    .limit(1)
    .executeTakeFirst();
  return found?.id ?? null;
}

/** The number of projects; at most `most` are counted. */
export async function countProjects(tx: Tx, most: number): Promise<number> {
  const { rows } = await sql<{
    count: number;
  }>`select count(*)::int as count from (select from projects limit ${most}) as projects`.execute(
    tx,
  );
  return rows[0]?.count ?? 0;
}

export async function changeProject(
  tx: Tx,
  id: string,
  change: { name?: string; limits?: ProjectLimits },
): Promise<void> {
  const columns = {
    ...(change.name === undefined ? {} : { name: change.name }),
    ...limitColumns(change.limits ?? {}),
  };
  if (Object.keys(columns).length > 0)
    await tx.updateTable('projects').set(columns).where('id', '=', id).execute();
}

/** Every project, oldest first. */
export async function listProjects(db: Db): Promise<{ id: string; name: string }[]> {
  return db
    .selectFrom('projects')
    .select(['id', 'name'])
    .orderBy('created')
    .orderBy('id')
    .execute();
}

/** @returns null: there is no such project */
export async function findProject(db: Db, id: string): Promise<ProjectDetails | null> {
  const row = await db.selectFrom('projects').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) return null;
  const { name, created, operator } = row;
  return {
    id,
    name,
    created: created.toISOString(),
    operator,
    limits: limitsOf(row),
    used: await usageOf(db, id),
    in_use: await inUse(db, id),
  };
}

/** Whether the number of its things is limited. */
export async function hasLimits(db: Db, id: string): Promise<boolean> {
  const row = await db
    .selectFrom('projects')
    .select(
      sql<boolean>`coalesce(max_services, max_replica_sets, max_cpu_millis, max_memory_gbs)
        is not null`.as('limited'),
    )
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.limited === true;
}

/**
 * Locks the limits of a project until the transaction ends: changes of limits, and of the things
 * that they count, run one after the other.
 */
export async function lockLimits(tx: Tx, id: string): Promise<Required<ProjectLimits>> {
  const row = await tx
    .selectFrom('projects')
    .selectAll()
    .where('id', '=', id)
    .forNoKeyUpdate()
    .executeTakeFirstOrThrow();
  return limitsOf(row);
}

/** The usage of a project. */
export async function usageOf(db: Db, id: string): Promise<Record<ProjectLimit, number>> {
  const row = await db
    .selectFrom('project_usage')
    .select(PROJECT_LIMITS)
    .where('project_id', '=', id)
    .executeTakeFirst();
  return row ?? { services: 0, replica_sets: 0, cpu_millis: 0, memory_gbs: 0 };
}

/** The use by the services of a project; a set is measured as the sum over its nodes. */
async function inUse(db: Db, id: string): Promise<ProjectDetails['in_use']> {
  const guaranteed = sql`coalesce(cpu_millis, ${sql.lit(SHARED_CPU_MILLIS)}) *
    case when parent_id is null then 1 else nodes end`;
  const row = await db
    .selectFrom('services')
    .select([
      sql<number>`coalesce(sum(milli_cpu), 0)::int`.as('cpu_millis'),
      sql<number>`coalesce(sum(greatest(0, milli_cpu - ${guaranteed})), 0)::int`.as(
        'cpu_beyond_millis',
      ),
    ])
    .where('project_id', '=', id)
    .executeTakeFirstOrThrow();
  return row;
}

function limitsOf(row: Selectable<Tables['projects']>): Required<ProjectLimits> {
  return {
    services: row.max_services,
    replica_sets: row.max_replica_sets,
    cpu_millis: row.max_cpu_millis,
    memory_gbs: row.max_memory_gbs,
    backup_retention_days: row.max_backup_retention_days,
  };
}

function limitColumns(limits: ProjectLimits) {
  const { backup_retention_days: days } = limits;
  return {
    ...(limits.services === undefined ? {} : { max_services: limits.services }),
    ...(limits.replica_sets === undefined ? {} : { max_replica_sets: limits.replica_sets }),
    ...(limits.cpu_millis === undefined ? {} : { max_cpu_millis: limits.cpu_millis }),
    ...(limits.memory_gbs === undefined ? {} : { max_memory_gbs: limits.memory_gbs }),
    ...(days === undefined ? {} : { max_backup_retention_days: days }),
  };
}
