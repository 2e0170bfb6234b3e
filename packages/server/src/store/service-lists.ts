/** Lists of services for the background tasks, each by a named predicate. */
import { BESIDE_KINDS, type LiveStatus, type ServiceType, type Warning } from '@howdah/contract';
import { sql } from 'kysely';
import {
  isAwake,
  isDeleted,
  isIn,
  isListed,
  isMeantToRun,
  isNoReplicaSet,
  isOwned,
  isPassing,
  mustRun,
} from './predicates.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Db } from './tables.ts';

/**
 * The parents of forks that may not have copied their data yet, whatever operation they run by now.
 * The data of these parents must stay. A fork that is being reset copies it again.
 */
export async function listParentsOfUnfinishedForks(db: Db): Promise<Set<string>> {
  const rows = await db
    .selectFrom('operations')
    .innerJoin('services', 'services.id', 'operations.service_id')
    .select('services.origin')
    .where('operations.finished', 'is', null)
    .where('operations.kind', 'not in', [...BESIDE_KINDS, 'delete'])
    .where('services.origin', 'is not', null)
    .where((where) => {
      const made = where
        .selectFrom('operations as done')
        .select('done.id')
        .whereRef('done.service_id', '=', 'services.id')
        .where('done.status', '=', 'succeeded')
        .where('done.kind', 'in', [
          'fork',
          'start',
          'restart',
          'resize',
          'restore',
          'repair',
          'recover',
          'reset',
          'upgrade',
          'undoUpgrade',
          'move',
        ]);
      const isReset = sql<boolean>`services.upgrade -> 'reset' is not null`;
      return where.or([where.not(where.exists(made)), isReset]);
    })
    .execute();
  return new Set(rows.flatMap(({ origin }) => origin?.parent ?? []));
}

/** Services of a region that are READY and warn of something. */
export async function listServicesWithWarning(
  db: Db,
  region: string,
  code: Warning['code'],
): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where(isListed)
    .where('status', '=', 'READY')
    .where(sql<boolean>`warnings <> '[]'`)
    .where(sql<boolean>`warnings @> ${JSON.stringify([{ code }])}::jsonb`)
    .orderBy('id')
    .execute();
  return rows.map(({ id }) => id);
}

/** Services of a region whose major version is not recorded. */
export async function listWithoutMajor(db: Db, region: string): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where('pg_version', 'is', null)
    .execute();
  return rows.map(({ id }) => id);
}

/**
 * The storage quota of each service of a region that is meant to run, with read replica sets and
 * spares.
 */
export async function listStorageQuotas(
  db: Db,
  region: string,
): Promise<{ id: string; storageGb: number; hasOwner: boolean }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'storage_gb', 'project_id', 'parent_id'])
    .where(isIn(region))
    .where(isMeantToRun)
    .execute();
  return rows.map((row) => ({
    id: row.id,
    storageGb: row.storage_gb,
    hasOwner: row.project_id !== null && row.parent_id === null,
  }));
}

/** The storage quota of a service with backups, in gigabytes; null: it is gone, or has none. */
export async function readBackedUpStorageGb(db: Db, id: string): Promise<number | null> {
  const row = await db
    .selectFrom('services')
    .select('storage_gb')
    .where('id', '=', id)
    .where((where) => where.not(isPassing(where)))
    .executeTakeFirst();
  return row?.storage_gb ?? null;
}

/**
 * The restorable service of a region that was deleted first; null: there is none, or a purge is
 * under way.
 */
export async function findNextToPurge(
  db: Db,
  region: string,
): Promise<Pick<ServiceRow, 'id' | 'backup_retention_days'> | null> {
  const deleted = db
    .selectFrom('services')
    .where(isIn(region))
    .where(isDeleted)
    .select(['id', 'backup_retention_days'])
    .limit(1);
  const beingPurged = await deleted
    .where((where) => where.or([where('project_id', 'is', null), where('kept', 'is not', null)]))
    .executeTakeFirst();
  if (beingPurged !== undefined) return null;
  const row = await deleted.where(isOwned).orderBy('deleted_at').executeTakeFirst();
  return row ?? null;
}

const UNTIL = sql`(move ->> 'until')::timestamptz`;

/**
 * The service whose former server in a region has been kept for longest; null: there is none, or
 * deleted services come first, or a removal has begun within the last minute.
 */
export async function findNextSourceToRemove(db: Db, region: string): Promise<string | null> {
  const deleted = db.selectFrom('services').where(isIn(region)).where(isDeleted).select('id');
  if ((await deleted.limit(1).executeTakeFirst()) !== undefined) return null;
  const row = await db
    .selectFrom('services')
    .select(['id', sql<boolean>`${UNTIL} <= now()`.as('isOver')])
    .where('move', 'is not', null)
    .where(sql<boolean>`move ->> 'state' = 'kept' and move ->> 'from' = ${region}`)
    // The server of a source may not be removable: the next one has its turn.
    .where(sql<boolean>`${UNTIL} > now() - interval '1 minute'`)
    .orderBy(UNTIL)
    .limit(1)
    .executeTakeFirst();
  return row === undefined || row.isOver ? null : row.id;
}

/** How many services are in each status. */
export async function countServicesByStatus(
  db: Db,
): Promise<{ status: LiveStatus; count: number }[]> {
  return db
    .selectFrom('services')
    .select(['status', sql<number>`count(*)::int`.as('count')])
    .where(isListed)
    .groupBy('status')
    .execute();
}

/** Services of a region that must run, whether they do, and their warnings. */
export async function listServicesThatMustRun(
  db: Db,
  region: string,
): Promise<{ id: string; type: ServiceType; up: boolean; warnings: readonly Warning[] }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'service_type', 'status', 'warnings'])
    .where(isIn(region))
    .where(mustRun)
    .execute();
  return rows.map(({ id, service_type: type, status, warnings }) => ({
    id,
    type,
    up: status === 'READY',
    warnings,
  }));
}

/** Services of a region with replicas, and its read replica sets, that are meant to run. */
export async function listReplicatedServices(
  db: Db,
  region: string,
): Promise<{ id: string; isSet: boolean }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'parent_id'])
    .where(isIn(region))
    .where(isOwned)
    .where(isMeantToRun)
    .where((where) =>
      where.or([where('parent_id', 'is not', null), where('replica_count', '>', 0)]),
    )
    .execute();
  return rows.map(({ id, parent_id: parent }) => ({ id, isSet: parent !== null }));
}

/** Services of a region that were last seen to accept connections, spares among them. */
export async function listReachableServices(db: Db, region: string): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where('reachable', '=', true)
    .execute();
  return rows.map(({ id }) => id);
}

/** A service that may fall asleep now. */
export type MaySleep = Pick<ServiceRow, 'id'> & { afterMs: number };

/** Services of a region that are awake, may fall asleep, and of which nothing is asked. */
export async function listWhatMaySleep(db: Db, region: string): Promise<MaySleep[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'auto_suspend_seconds'])
    .where(isIn(region))
    .where(isListed)
    .where('auto_suspend_seconds', 'is not', null)
    .where(isAwake)
    .where('status', '=', 'READY')
    .where('operation_id', 'is', null)
    .execute();
  return rows.flatMap(({ id, auto_suspend_seconds: seconds }) =>
    seconds === null ? [] : [{ id, afterMs: seconds * 1000 }],
  );
}

/** Services of a region that were last seen asleep. */
export async function listSuspended(db: Db, region: string): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    // A sleeper that is set to `never` has an operation, which wakes it.
    .where('auto_suspend_seconds', 'is not', null)
    .where('suspended_at', 'is not', null)
    .execute();
  return rows.map(({ id }) => id);
}

/** Services of a region whose servers accept connections. */
export async function listAwakeServices(
  db: Db,
  region: string,
  sets: 'with sets' | 'without sets' = 'without sets',
): Promise<string[]> {
  let query = db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where(isOwned)
    .where('deleted_at', 'is', null)
    .where(isAwake)
    .where('status', '=', 'READY');
  if (sets === 'without sets') query = query.where(isNoReplicaSet);
  return (await query.execute()).map(({ id }) => id);
}

/** Services of a region that need not run, and have a warning of the disk. */
export async function listStoppedServicesWithDiskWarning(
  db: Db,
  region: string,
): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where(isOwned)
    .where('deleting', '=', false)
    .where('status', 'not in', ['READY', 'UNSTABLE'])
    // The first of the two conditions has an index.
    .where(sql<boolean>`warnings <> '[]'`)
    .where(sql<boolean>`warnings @> '[{"code": "DISK"}]'`)
    .execute();
  return rows.map(({ id }) => id);
}
