/** The SQL of operations that run beside all others of their service. */
import type { BesideKind } from '@howdah/contract';
import { sql } from 'kysely';
import type { OperationRow } from '../domain/operation.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { CANCELLED_BY, HOWDAH } from './operations.ts';
import type { Db } from './tables.ts';

/**
 * The unfinished operations of a kind that runs beside others in a region, oldest first. One of a
 * service that is gone belongs to every region, so that it ends.
 */
export async function listBeside(
  db: Db,
  region: string,
  kind: BesideKind,
): Promise<OperationRow[]> {
  return db
    .selectFrom('operations')
    .selectAll()
    .where('kind', '=', kind)
    .where('finished', 'is', null)
    .where((where) => {
      const elsewhere = where
        .selectFrom('services')
        .select('services.id')
        .whereRef('services.id', '=', 'operations.service_id')
        .where('services.region_code', '<>', region);
      return where.not(where.exists(elsewhere));
    })
    .orderBy('created')
    .execute();
}

/** Whether an operation of a kind on a service was cancelled within a time. */
export async function wasCancelled(
  db: Db,
  serviceId: string,
  kind: BesideKind,
  withinMs: number,
): Promise<boolean> {
  const found = await db
    .selectFrom('operations')
    .select('id')
    .where('service_id', '=', serviceId)
    .where('kind', '=', kind)
    .where('status', '=', 'failed')
    .where('error', 'like', `${CANCELLED_BY}%`)
    .where('finished', '>', sql<Date>`now() - ${`${withinMs} ms`}::interval`)
    .executeTakeFirst();
  return found !== undefined;
}

/**
 * How many operations of a kind somebody has asked for within a time, on a service and on those of
 * its project that are gone: it may be one of them that was made again.
 */
export async function countAsked(
  db: Db,
  { id, project_id: projectId }: Pick<ServiceRow, 'id' | 'project_id'>,
  kind: BesideKind,
  withinMs: number,
): Promise<number> {
  const { asked } = await db
    .selectFrom('operations')
    .select(sql<number>`count(*)::int`.as('asked'))
    .where('project_id', '=', projectId)
    .where((where) => {
      const others = where
        .selectFrom('services')
        .select('services.id')
        .whereRef('services.id', '=', 'operations.service_id')
        .where('services.id', '<>', id)
        .where('services.deleting', '=', false);
      return where.not(where.exists(others));
    })
    .where('kind', '=', kind)
    .where('requested_by', '<>', HOWDAH)
    .where('created', '>', sql<Date>`now() - ${`${withinMs} ms`}::interval`)
    .executeTakeFirstOrThrow();
  return asked;
}

/**
 * The running service of a region whose last verification, or creation, is the longest ago and
 * longer than this; null: none is due.
 *
 * @param of 'repository': of the backups in the repositories; null: of those on the machine
 */
export async function dueForVerification(
  db: Db,
  region: string,
  everyMs: number,
  of: 'repository' | null,
): Promise<string | null> {
  const { rows } = await sql<{ id: string }>`
    select s.id
    from services s
    cross join lateral (
      -- What was begun while the clock was ahead says nothing of when the next one is due.
      select coalesce(max(o.created), least(s.created, now())) as at from operations o
      where o.service_id = s.id and o.kind = 'verifyBackup' and (o.request is null) = ${of === null}
        and o.created < now() + interval '1 minute'
    ) as last
    where s.region_code = ${region} and s.project_id is not null and s.parent_id is null
      and s.deleted_at is null and s.status = 'READY'
      and last.at < now() - ${`${everyMs} ms`}::interval
    order by last.at
    limit 1`.execute(db);
  return rows[0]?.id ?? null;
}
