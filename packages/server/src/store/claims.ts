/**
 * Which reconciler works on which service: a claim with an expiry, taken in one statement and
 * released by comparison. Nothing else is queued: to reconcile takes no argument beyond the service
 * (docs/decisions/0002-leases-not-jobs.md).
 */
import { sql } from 'kysely';
import { serviceNotification } from './events.ts';
import { isIn, isOnlyInRepository } from './predicates.ts';
import type { Db, Tx } from './tables.ts';
import type { OperationRow } from '../domain/operation.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { type LockedService, lockRow, operationUnderWay } from './services.ts';

/**
 * Another reconciler has the claim now: results of the former holder are
 * old and must not be written.
 */
export class ClaimLost extends Error {}

/** How long a claim lasts without being renewed: the delay that a dead reconciler causes. */
export const CLAIM_MS = 10_000;

/** Ids of services of a region that are due and have no claim, or one that has expired. */
export async function dueServices(db: Db, region: string, limit: number): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where((where) =>
      where.or([
        where.and([where('due_at', '<=', sql<Date>`now()`), where('lease_until', 'is', null)]),
        where('lease_until', '<', sql<Date>`now()`),
      ]),
    )
    .orderBy('due_at')
    .limit(limit)
    .execute();
  return rows.map(({ id }) => id);
}

/**
 * Makes every service of a region due that runs or has an operation: after a start of the control
 * plane.
 */
export async function makeAllDue(db: Db, region: string): Promise<void> {
  await db
    .updateTable('services')
    .set({ due_at: sql<Date>`now()`, lease_token: null, lease_until: null })
    .where('id', 'in', (from) =>
      from
        .selectFrom('services')
        .select('id')
        .where(isIn(region))
        .where((where) =>
          where.or([
            where('power', '=', 'running'),
            where('operation_id', 'is not', null),
            where('deleting', '=', true),
          ]),
        )
        // Deleted services are due when the time for their restore is over.
        .where((where) => where.not(isOnlyInRepository(where)))
        // As all who lock services with their sets: the first are reconciled already.
        .orderBy('parent_id', (order) => order.nullsFirst())
        .orderBy('id')
        .forUpdate(),
    )
    .execute();
}

/**
 * Takes the claim of a service and locks its row: only one of several callers gets it. The commit
 * does not wait for the disk: a claim that is lost in a crash is taken again.
 *
 * @param region of the caller: every reconciler is notified of every service
 * @param due `kept`: the holder does not reconcile; the service stays due when it was
 * @returns null: another reconciler has it, or the service is gone or in another region
 */
export async function claimService(
  tx: Tx,
  region: string,
  id: string,
  token: string,
  due: 'reconciled' | 'kept' = 'reconciled',
): Promise<ServiceRow | null> {
  const claimed = await tx
    .updateTable('services')
    .set({
      lease_token: token,
      lease_until: sql<Date>`clock_timestamp() + ${`${CLAIM_MS} ms`}::interval`,
      ...(due === 'kept' ? {} : { due_at: null }),
    })
    .where('id', '=', id)
    .where(isIn(region))
    .where((where) =>
      where.or([
        where('lease_until', 'is', null),
        where('lease_until', '<', sql<Date>`clock_timestamp()`),
      ]),
    )
    // The parent of a read replica set is locked first; see lockRow.
    .where((where) => where.or([where('parent_id', 'is', null), PARENT_IS_LOCKED]))
    .returningAll()
    .returning(NOT_FLUSHED)
    .executeTakeFirst();
  return claimed ?? null;
}

const NOT_FLUSHED = sql`set_config('synchronous_commit', 'off', true)`.as('not_flushed');

const PARENT_IS_LOCKED = sql<boolean>`(select p.id from services p
  where p.id = services.parent_id for update) is not null`;

export async function renewClaim(db: Db, id: string, token: string): Promise<void> {
  await db
    .updateTable('services')
    .set({ lease_until: sql<Date>`now() + ${`${CLAIM_MS} ms`}::interval` })
    .where('id', '=', id)
    .where('lease_token', '=', token)
    .execute();
}

/**
 * Releases the claim after an error.
 *
 * @param lookAgainMs when the service is due again
 */
export async function releaseService(
  db: Db,
  id: string,
  token: string,
  lookAgainMs: number,
): Promise<void> {
  await db
    .updateTable('services')
    .set({
      lease_token: null,
      lease_until: null,
      due_at: sql<Date | null>`least(due_at, now() + ${`${lookAgainMs} ms`}::interval)`,
    })
    .where('id', '=', id)
    .where('lease_token', '=', token)
    .execute();
}

/**
 * The change that releases the claim of a service that the transaction has locked. The service may
 * have been made due in the meantime: the earlier of the two times counts.
 *
 * @param lookAgainMs when the service is due again; null: when it is made due
 */
export function givenBack(
  { due_at: dueAt }: ServiceRow,
  lookAgainMs: number | null,
): ServiceChange {
  const again = lookAgainMs === null ? null : new Date(Date.now() + lookAgainMs);
  const earlier = dueAt === null || (again !== null && again < dueAt) ? again : dueAt;
  return { lease_token: null, lease_until: null, due_at: earlier };
}

/**
 * Locks a service whose claim the caller holds.
 *
 * @param known its unfinished operation when it was last read
 * @throws ClaimLost if another reconciler has the claim, or the service is gone
 */
export async function lockClaimed(
  tx: Tx,
  id: string,
  token: string,
  known: OperationRow | null,
): Promise<LockedService> {
  const service = await lockRow(tx, id);
  if (service === undefined || service.lease_token !== token)
    throw new ClaimLost(`service ${id}: the claim is lost`);
  return {
    service,
    operation: service.operation_id === known?.id ? known : await operationUnderWay(tx, service),
  };
}

/** Makes a service due now and notifies the reconcilers. */
export async function makeDue(tx: Tx, id: string): Promise<void> {
  await sql`with due as (update services set due_at = now() where id = ${id})
    ${serviceNotification(id)}`.execute(tx);
}
