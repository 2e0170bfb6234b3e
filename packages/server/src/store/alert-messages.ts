/** The SQL of messages of alerts: they are queued with their incident, and removed when sent. */
import type { AlertMessage } from '../domain/alerts/messages.ts';
import { sql } from 'kysely';
import type { DestinationRow } from './alerts.ts';
import type { Db, Tx } from './tables.ts';

/** After this time a message that could not be sent is of no use. */
const KEPT_DAYS = 7;
const PRUNE_BATCH = 1000;

/** The destinations of projects, and the names of those projects. */
export async function readDestinationsOf(
  tx: Tx,
  projectIds: readonly string[],
): Promise<(DestinationRow & { project_name: string })[]> {
  if (projectIds.length === 0) return [];
  return tx
    .selectFrom('alert_destinations')
    .innerJoin('projects', 'projects.id', 'alert_destinations.project_id')
    .selectAll('alert_destinations')
    .select('projects.name as project_name')
    .where('project_id', 'in', projectIds)
    .execute();
}

/** @param held whether it waits for the end of the quiet hours */
export async function queueMessage(
  tx: Tx,
  destinationId: string,
  message: AlertMessage,
  held: boolean,
): Promise<void> {
  await tx
    .insertInto('alert_messages')
    .values({ destination_id: destinationId, body: JSON.stringify(message), held })
    .execute();
}

/** Removes the held message about an incident. @returns whether there was one */
export async function dropHeld(
  tx: Tx,
  destinationId: string,
  incidentId: string,
): Promise<boolean> {
  const { numDeletedRows } = await tx
    .deleteFrom('alert_messages')
    .where('destination_id', '=', destinationId)
    .where('held', '=', true)
    .where(sql<boolean>`body #>> '{incidents,0,id}' = ${incidentId}`)
    .executeTakeFirst();
  return numDeletedRows > 0n;
}

/** Destinations that have messages which are due, or held. */
export async function listWaitingDestinations(
  db: Db,
): Promise<(DestinationRow & { has_held: boolean })[]> {
  const { rows } = await sql<DestinationRow & { has_held: boolean }>`
    select d.*, waiting.has_held
    from alert_destinations d join (
      select destination_id, bool_or(held) as has_held from alert_messages
      where held or next_at <= now() group by destination_id
    ) waiting on waiting.destination_id = d.id`.execute(db);
  return rows;
}

/**
 * Ends the wait of held messages.
 *
 * @param combine one message in place of all; null: each is sent
 */
export async function releaseHeld(
  db: Db,
  destinationId: string,
  combine: ((held: readonly AlertMessage[]) => AlertMessage | null) | null,
): Promise<void> {
  await db.transaction().execute(async (tx) => {
    if (combine === null) {
      await tx
        .updateTable('alert_messages')
        .set({ held: false })
        .where('destination_id', '=', destinationId)
        .where('held', '=', true)
        .execute();
      return;
    }
    const removed = await tx
      .deleteFrom('alert_messages')
      .where('destination_id', '=', destinationId)
      .where('held', '=', true)
      .returning(['id', 'body'])
      .execute();
    const inOrder = removed.toSorted((one, other) => Number(BigInt(one.id) - BigInt(other.id)));
    const message = combine(inOrder.map(({ body }) => body));
    if (message !== null) await queueMessage(tx, destinationId, message, false);
  });
}

export type DueMessage = { id: string; body: AlertMessage; attempts: number; created: Date };

/**
 * The next message of a destination. Those after it wait for it, so that no incident is resolved
 * before it is opened. null: none is due.
 */
export async function nextMessage(db: Db, destinationId: string): Promise<DueMessage | null> {
  const row = await db
    .selectFrom('alert_messages')
    .select(['id', 'body', 'attempts', 'created'])
    .select(sql<boolean>`next_at <= now()`.as('due'))
    .where('destination_id', '=', destinationId)
    .where('held', '=', false)
    .orderBy('id')
    .limit(1)
    .executeTakeFirst();
  return row?.due === true ? row : null;
}

/** Records that a message was accepted. */
export async function recordSent(db: Db, destinationId: string, id: string): Promise<void> {
  await db.transaction().execute(async (tx) => {
    await tx.deleteFrom('alert_messages').where('id', '=', id).execute();
    await recordOutcome(tx, destinationId, null);
  });
}

/** Records a failure. @param retryAfterMs when to try again; null: the message is given up */
export async function recordFailure(
  db: Db,
  destinationId: string,
  id: string,
  error: string,
  retryAfterMs: number | null,
): Promise<void> {
  await db.transaction().execute(async (tx) => {
    if (retryAfterMs === null) await tx.deleteFrom('alert_messages').where('id', '=', id).execute();
    else
      await tx
        .updateTable('alert_messages')
        .set({
          attempts: sql<number>`attempts + 1`,
          next_at: sql<Date>`clock_timestamp() + ${`${retryAfterMs} ms`}::interval`,
        })
        .where('id', '=', id)
        .execute();
    await recordOutcome(tx, destinationId, error);
  });
}

/** @param error null: the destination accepted a message */
export async function recordOutcome(
  db: Db,
  destinationId: string,
  error: string | null,
): Promise<void> {
  await db
    .updateTable('alert_destinations')
    .set(
      error === null ? { last_success: sql<Date>`now()`, last_error: null } : { last_error: error },
    )
    .where('id', '=', destinationId)
    .execute();
}

/** Removes messages that nobody accepted. @returns whether there may be more */
export async function pruneMessages(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from alert_messages where id = any (array(
      select id from alert_messages
      where created < now() - ${`${KEPT_DAYS} days`}::interval
      limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}
