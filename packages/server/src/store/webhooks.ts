/** The SQL of webhooks and their deliveries. */
import type { DeliveryStatus, EventType } from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import { newId } from '../lib/ids.ts';
import type { Db, Tables, Tx } from './tables.ts';
import { eventBounds } from './events.ts';

export type WebhookRow = Selectable<Tables['webhooks']>;
export type DeliveryRow = Selectable<Tables['deliveries']>;

/**
 * How long a control plane holds a webhook's deliveries without renewing the claim: the delay that
 * a dead one causes.
 */
const CLAIM = '30 seconds';
/** Events that one statement turns into deliveries. */
const FAN_OUT_BATCH = 500;
/** The most pending deliveries of a webhook: later events wait in their table. */
const MAX_PENDING = 1000;

/** Inserts a webhook, which begins with the next event. */
export async function insertWebhook(
  tx: Tx,
  webhook: { projectId: string; url: string; types: readonly EventType[]; secret: Buffer },
): Promise<WebhookRow> {
  const { last } = await eventBounds(tx);
  return tx
    .insertInto('webhooks')
    .values({
      id: newId(),
      project_id: webhook.projectId,
      url: webhook.url,
      types: [...webhook.types],
      secret: webhook.secret,
      fanned_out: last,
      lease_until: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** A project's webhooks, oldest first. There are few. */
export async function listWebhooks(db: Db, projectId: string): Promise<WebhookRow[]> {
  return db
    .selectFrom('webhooks')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

export async function findWebhook(
  db: Db,
  projectId: string,
  id: string,
): Promise<WebhookRow | null> {
  return (
    (await db
      .selectFrom('webhooks')
      .selectAll()
      .where('project_id', '=', projectId)
      .where('id', '=', id)
      .executeTakeFirst()) ?? null
  );
}

/** Deletes a webhook and its deliveries. */
export async function deleteWebhookRow(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('webhooks').where('id', '=', id).execute();
}

/** All webhooks, with whether they have something to deliver and no claim. */
export async function lookOverWebhooks(
  db: Db,
): Promise<{ id: string; projectId: string; due: boolean }[]> {
  const { rows } = await sql<{ id: string; projectId: string; due: boolean }>`
    select id, project_id as "projectId",
           coalesce(lease_until < now(), true)
           and (coalesce((select seq from events e where e.project_id = w.project_id
             order by seq desc limit 1) > w.fanned_out, false)
                or coalesce((select next_at from deliveries d where d.webhook_id = w.id
                  and d.status = 'pending' order by next_at limit 1) <= now(), false)) as due
    from webhooks w`.execute(db);
  return rows;
}

/** Takes the claim of a webhook; false: another control plane has it, or the webhook is gone. */
export async function claimWebhook(db: Db, id: string): Promise<boolean> {
  const claimed = await db
    .updateTable('webhooks')
    .set({ lease_until: sql<Date>`now() + ${CLAIM}::interval` })
    .where('id', '=', id)
    .where((where) =>
      where.or([where('lease_until', 'is', null), where('lease_until', '<', sql<Date>`now()`)]),
    )
    .executeTakeFirst();
  return claimed.numUpdatedRows > 0n;
}

export async function releaseWebhook(db: Db, id: string): Promise<void> {
  await db.updateTable('webhooks').set({ lease_until: null }).where('id', '=', id).execute();
}

/** Releases the webhooks of a control plane that has ended: only while there can be no other. */
export async function releaseAllWebhooks(db: Db): Promise<void> {
  await db
    .updateTable('webhooks')
    .set({ lease_until: null })
    .where('lease_until', 'is not', null)
    .execute();
}

/** Turns the next events into deliveries, each event once. @returns whether there may be more */
export async function fanOut(db: Db, id: string): Promise<boolean> {
  const { rows } = await sql<{ taken: number }>`
    with webhook as (
           select * from webhooks where id = ${id} and (
             select count(*) from (select from deliveries where webhook_id = ${id}
               and status = 'pending' limit ${sql.lit(MAX_PENDING)}) as pending
           ) < ${sql.lit(MAX_PENDING)} for update
         ),
         next as (
           select e.seq, e.type, e.doc from events e, webhook
           where e.project_id = webhook.project_id and e.seq > webhook.fanned_out
           order by e.seq limit ${FAN_OUT_BATCH}
         ),
         delivered as (
           insert into deliveries (webhook_id, message_id, type, body)
           select webhook.id, 'event_' || next.seq, next.type, next.doc from next, webhook
           where webhook.types = '{}' or next.type = any(webhook.types)
           order by next.seq
           on conflict do nothing
         ),
         noted as (update webhooks
           set fanned_out = greatest(fanned_out, (select max(seq) from next)) where id = ${id}
           and exists (select from next))
    select count(*)::int as taken from next`.execute(db);
  return rows[0]?.taken === FAN_OUT_BATCH;
}

/** A delivery and its URL. */
export type DueDelivery = DeliveryRow & Pick<WebhookRow, 'url' | 'secret'>;

/**
 * The next delivery and its URL; renews the claim. Null: nothing is due, or the webhook is gone.
 */
export async function nextDelivery(db: Db, webhookId: string): Promise<DueDelivery | null> {
  const { rows } = await sql<DueDelivery>`
    with renewed as (update webhooks set lease_until = now() + ${CLAIM}::interval
      where id = ${webhookId} returning url, secret)
    select d.*, renewed.url, renewed.secret from deliveries d, renewed
    where d.webhook_id = ${webhookId} and d.status = 'pending' and d.next_at <= now()
    order by d.next_at, d.id
    limit 1`.execute(db);
  return rows[0] ?? null;
}

export type Attempt = { responseStatus: number | null; error: string | null };

/** Records an attempt. @param retryAfterMs when to try again after a failure; null: never */
export async function recordAttempt(
  db: Db,
  id: string,
  attempt: Attempt,
  retryAfterMs: number | null,
): Promise<void> {
  const status: DeliveryStatus =
    attempt.error === null ? 'delivered' : retryAfterMs === null ? 'failed' : 'pending';
  await db
    .updateTable('deliveries')
    .set({
      status,
      attempts: sql<number>`attempts + 1`,
      response_status: attempt.responseStatus,
      error: attempt.error,
      next_at: sql<Date>`clock_timestamp() + ${`${retryAfterMs ?? 0} ms`}::interval`,
      finished: status === 'pending' ? null : sql<Date>`clock_timestamp()`,
    })
    .where('id', '=', id)
    .execute();
}

/** A page of a webhook's deliveries, newest first. */
export async function listDeliveries(
  db: Db,
  webhookId: string,
  status: DeliveryStatus | undefined,
  after: string | null,
  limit: number,
): Promise<DeliveryRow[]> {
  let query = db.selectFrom('deliveries').selectAll().where('webhook_id', '=', webhookId);
  if (status !== undefined) query = query.where('status', '=', status);
  // These conditions follow from the status; with them the planner uses the index.
  if (status === 'pending' || status === 'failed') query = query.where('status', '<>', 'delivered');
  if (after !== null) query = query.where('id', '<', after);
  return query.orderBy('id', 'desc').limit(limit).execute();
}

/** Begins a delivery again, with all its attempts. null: there is none with that id. */
export async function redeliver(
  db: Db,
  webhookId: string,
  id: string,
): Promise<DeliveryRow | null> {
  const row = await db
    .updateTable('deliveries')
    .set({ status: 'pending', attempts: 0, next_at: sql<Date>`now()`, finished: null })
    .where('webhook_id', '=', webhookId)
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirst();
  return row ?? null;
}
