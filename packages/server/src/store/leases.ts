/**
 * Who is looking at which service: a lease with an expiry, taken in one statement and given back by comparison. There is nothing else
 * to queue, since a look takes no argument beyond the service (docs/decisions/0002-leases-not-jobs.md).
 */
import { sql } from 'kysely';
import { poke, type Db, type Tx } from './database.ts';
import { lockService, operationUnderWay, type Locked } from './services.ts';

/** The lease of a reconciler has passed to another: what it found out is old and must not be written. */
export class LeaseLost extends Error {}

/** How long a lease lasts without being renewed: what a dead reconciler costs. */
export const LEASE_MS = 10_000;

/** Ids of services that want a look now and that nobody is looking at. */
export async function dueServices(db: Db, limit: number): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where('due_at', '<=', sql<Date>`now()`)
    .where((where) => where.or([where('lease_until', 'is', null), where('lease_until', '<', sql<Date>`now()`)]))
    .orderBy('due_at')
    .limit(limit)
    .execute();
  return rows.map(({ id }) => id);
}

/** Everything that runs or is on its way wants a look: after a start of the control plane. */
export async function makeAllDue(db: Db): Promise<void> {
  await db
    .updateTable('services')
    .set({ due_at: sql<Date>`now()`, lease_token: null, lease_until: null })
    .where((where) => where.or([where('power', '=', 'running'), where('operation_id', 'is not', null), where('deleting', '=', true)]))
    .execute();
}

/**
 * Takes the lease of a service, whose row it locks: of two who try, one gets it.
 *
 * @returns null when somebody else has it, or the service is gone
 */
export async function claimService(tx: Tx, id: string, token: string): Promise<Locked | null> {
  const service = await tx
    .updateTable('services')
    .set({ lease_token: token, lease_until: sql<Date>`clock_timestamp() + ${`${LEASE_MS} ms`}::interval`, due_at: null })
    .where('id', '=', id)
    .where((where) => where.or([where('lease_until', 'is', null), where('lease_until', '<', sql<Date>`clock_timestamp()`)]))
    // Of a read replica set, the parent is locked first; see lockRow.
    .where((where) => where.or([where('parent_id', 'is', null), PARENT_IS_LOCKED]))
    .returningAll()
    .executeTakeFirst();
  return service === undefined ? null : { service, operation: await operationUnderWay(tx, service) };
}

const PARENT_IS_LOCKED = sql<boolean>`(select p.id from services p where p.id = services.parent_id for update) is not null`;

export async function renewLease(db: Db, id: string, token: string): Promise<void> {
  await db
    .updateTable('services')
    .set({ lease_until: sql<Date>`now() + ${`${LEASE_MS} ms`}::interval` })
    .where('id', '=', id)
    .where('lease_token', '=', token)
    .execute();
}

/** Gives the lease back. @param lookAgainMs when to look again; null: when poked */
export async function releaseService(db: Db | Tx, id: string, token: string, lookAgainMs: number | null): Promise<void> {
  const again = lookAgainMs === null ? null : `${lookAgainMs} ms`;
  await db
    .updateTable('services')
    // Somebody may have asked for a look in the meantime: the earlier of the two counts.
    .set({ lease_token: null, lease_until: null, due_at: sql<Date | null>`least(due_at, now() + ${again}::interval)` })
    .where('id', '=', id)
    .where('lease_token', '=', token)
    .execute();
}

/** The service under a lease, locked. @throws LeaseLost when the lease is somebody else's or the service is gone */
export async function lockLeased(tx: Tx, id: string, token: string): Promise<Locked> {
  const locked = await lockService(tx, id);
  if (locked === null || locked.service.lease_token !== token) throw new LeaseLost(`service ${id}: the lease is lost`);
  return locked;
}

/** Marks a service as wanting a look now and says so. */
export async function makeDue(tx: Tx, id: string): Promise<void> {
  await tx
    .updateTable('services')
    .set({ due_at: sql<Date>`now()` })
    .where('id', '=', id)
    .execute();
  await poke(tx, id);
}
