/** The SQL of leases that are databases in a server which they share. */
import { sql } from 'kysely';
import type { ServiceRow } from '../domain/service/row.ts';
import { MAY_BE_SHARED } from './leased-servers.ts';
import { isIn } from './predicates.ts';
import type { Db, Tx } from './tables.ts';

export type NewLeasedDatabase = Readonly<{
  id: string;
  serviceId: string;
  database: string;
  role: string;
  verifier: string;
  createdBy: string;
  expiresAt: Date;
}>;

/** Records databases that are to be made, and notifies who makes them. */
export async function insertLeasedDatabases(
  tx: Tx,
  made: readonly NewLeasedDatabase[],
): Promise<void> {
  const rows = made.map(({ serviceId, createdBy, expiresAt, ...row }) => ({
    ...row,
    service_id: serviceId,
    created_by: createdBy,
    expires_at: expiresAt,
  }));
  await tx.insertInto('leased_databases').values(rows).execute();
  await notifyLeases(tx);
}

const notifyLeases = (tx: Tx) => sql`select pg_notify('howdah_leases', '')`.execute(tx);

/**
 * Locks the shared server of a service that has all that was committed there, and is as private;
 * null: there is none. Callers have locked the service.
 */
export async function lockShared(
  tx: Tx,
  parentId: string,
  committed: string,
): Promise<ServiceRow | null> {
  const row = await tx
    .selectFrom('services')
    .innerJoin('leased_servers', 'leased_servers.service_id', 'services.id')
    .selectAll('services')
    .where('services.project_id', 'is not', null)
    .where('services.deleting', '=', false)
    .where('services.power', '=', 'running')
    // An end that is due cannot be put off.
    .where(sql<boolean>`services.expires_at > now() + interval '10 seconds'`)
    .where('leased_servers.parent_id', '=', parentId)
    .where('leased_servers.is_shared', '=', true)
    .where('leased_servers.committed', '=', committed)
    .where(MAY_BE_SHARED)
    .orderBy('services.created', 'desc')
    .limit(1)
    .forUpdate('services')
    .executeTakeFirst();
  return row ?? null;
}

/** How many databases of a shared server are leased, or are still there. */
export async function countLeasedDatabases(tx: Tx, serviceId: string): Promise<number> {
  const { count } = await tx
    .selectFrom('leased_databases')
    .select(sql<number>`count(*)::int`.as('count'))
    .where('service_id', '=', serviceId)
    .executeTakeFirstOrThrow();
  return count;
}

/** Sets the end of databases. */
export async function extendLeasedDatabases(
  tx: Tx,
  ids: readonly string[],
  expiresAt: Date,
): Promise<void> {
  if (ids.length === 0) return;
  await tx
    .updateTable('leased_databases')
    .set({ expires_at: expiresAt })
    .where('id', 'in', ids)
    .execute();
}

/** Has databases dropped. */
export async function returnLeasedDatabases(tx: Tx, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await tx
    .updateTable('leased_databases')
    .set({ state: 'returned' })
    .where('id', 'in', ids)
    .execute();
  await notifyLeases(tx);
}

/** A database that must be made, or dropped. */
export type DueDatabase = Readonly<{
  id: string;
  serviceId: string;
  database: string;
  role: string;
  verifier: string;
}>;

const IS_OVER = sql<boolean>`(state = 'returned' or leased_databases.expires_at <= now())`;

/** The databases of servers of a region that run, which are to be made or dropped. */
export async function listDueDatabases(db: Db, region: string): Promise<DueDatabase[]> {
  return db
    .selectFrom('services')
    .innerJoin('leased_databases', 'leased_databases.service_id', 'services.id')
    .select(['leased_databases.id', 'service_id as serviceId', 'database', 'role', 'verifier'])
    .where(isIn(region))
    .where('services.status', '=', 'READY')
    .where((where) => where.or([where('state', '=', 'asked'), IS_OVER]))
    .orderBy('leased_databases.created')
    .execute();
}

/**
 * Decides what must be done with a database, right before it is done: since the database was
 * listed, its end may have been put off. After `drop` that is no longer possible.
 *
 * @returns null: nothing
 */
export async function claimDueDatabase(db: Db, id: string): Promise<'make' | 'drop' | null> {
  const over = await db
    .updateTable('leased_databases')
    .set({ state: 'returned' })
    .where('id', '=', id)
    .where(IS_OVER)
    .returning('id')
    .executeTakeFirst();
  if (over !== undefined) return 'drop';
  const asked = await db
    .selectFrom('leased_databases')
    .select('id')
    .where('id', '=', id)
    .where('state', '=', 'asked')
    .executeTakeFirst();
  return asked === undefined ? null : 'make';
}

/** Records that a database is there, or why it is not. A returned database stays returned. */
export async function noteLeasedDatabase(
  db: Db,
  id: string,
  problem: string | null,
): Promise<void> {
  await db
    .updateTable('leased_databases')
    .set(problem === null ? { state: 'ready', problem } : { problem })
    .where('id', '=', id)
    .where('state', '=', 'asked')
    .execute();
}

/** Forgets a database that was dropped. */
export async function deleteLeasedDatabase(db: Db, id: string): Promise<void> {
  await db.deleteFrom('leased_databases').where('id', '=', id).execute();
}
