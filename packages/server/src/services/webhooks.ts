/** Calls on webhooks: create, read, delete, test, and deliver again. */
import { randomBytes } from 'node:crypto';
import type { BlockList } from 'node:net';
import {
  ApiError,
  isId,
  MAX_WEBHOOKS,
  type CreateWebhookBody,
  type Delivery,
  type Webhook,
  type WebhookTest,
} from '@howdah/contract';
import { deliver, UNREADABLE, whyNotReceiver } from '../events/receiver.ts';
import type { Sealer } from '../lib/sealer.ts';
import { newId } from '../lib/ids.ts';
import { lockAndCount } from '../store/resources.ts';
import type { Db } from '../store/tables.ts';
import {
  deleteWebhookRow,
  findWebhook,
  insertWebhook,
  redeliver,
  type Attempt,
  type WebhookRow,
} from '../store/webhooks.ts';
import { amendAnswer, answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';

/** The context of calls on webhooks. */
export type WebhookContext = ControlContext & {
  webhooks: {
    sealer: Sealer;
    /** Networks of receivers that are allowed although they are not public. */
    allowed: BlockList;
  };
};

/** @throws ApiError NOT_FOUND */
export async function readWebhook(db: Db, projectId: string, id: string): Promise<WebhookRow> {
  const found = isId(id) ? await findWebhook(db, projectId, id) : null;
  if (found !== null) return found;
  throw new ApiError(
    'NOT_FOUND',
    `no webhook with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/webhooks lists them',
  );
}

/** Creates a webhook. Its secret is in this answer only. */
export async function createWebhook(
  { store, webhooks: { sealer, allowed } }: WebhookContext,
  caller: Caller,
  { url, types }: CreateWebhookBody,
): Promise<Outcome> {
  const problem = await whyNotReceiver(url, allowed);
  if (problem !== null) throw new ApiError('INVALID_REQUEST', `url: ${problem}`);
  // The form of the specification: 24 to 64 bytes.
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  return makeChange(store, caller, async (tx) => {
    const count = await lockAndCount(tx, 'webhooks', caller.projectId);
    if (count >= MAX_WEBHOOKS)
      throw new ApiError(
        'LIMIT_EXCEEDED',
        `webhooks: the project has ${count}, of ${MAX_WEBHOOKS} that are allowed; delete one first`,
      );
    const made = {
      projectId: caller.projectId,
      url: new URL(url).href,
      types: types ?? [],
      secret: sealer.seal(secret),
    };
    return answerWith({ ...webhookDocument(await insertWebhook(tx, made)), secret });
  });
}

export function deleteWebhook(
  { store }: WebhookContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    await deleteWebhookRow(tx, (await readWebhook(tx, caller.projectId, id)).id);
    return { operationId: null };
  });
}

/** Attempts one delivery now, of an event that reports nothing. */
export async function testWebhook(
  { store, webhooks: { sealer, allowed } }: WebhookContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  const begun = performance.now();
  const { url, secret } = await readWebhook(store.db, caller.projectId, id);
  // Kept under the Idempotency-Key for a client that repeats the call after a crash.
  await makeChange(store, caller, async () =>
    answerWith(tested({ responseStatus: null, error: 'interrupted' }, begun)),
  );
  const event = {
    id: '0',
    type: 'webhook.test',
    timestamp: new Date().toISOString(),
    data: { webhook_id: id },
  };
  const message = { id: `test_${newId()}`, body: JSON.stringify(event) };
  const opened = sealer.open(secret);
  const attempt =
    opened === null
      ? { responseStatus: null, error: UNREADABLE }
      : await deliver(url, opened, message, allowed);
  const outcome = answerWith(tested(attempt, begun));
  await amendAnswer(store, caller, outcome);
  return outcome;
}

/** Begins a delivery again, with all its attempts. */
export function deliverAgain(
  { store }: WebhookContext,
  caller: Caller,
  id: string,
  deliveryId: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const { id: webhookId } = await readWebhook(tx, caller.projectId, id);
    const begun = /^[0-9]{1,18}$/.test(deliveryId)
      ? await redeliver(tx, webhookId, deliveryId)
      : null;
    if (begun !== null) return answerWith(deliveryDocument(begun));
    throw new ApiError(
      'NOT_FOUND',
      `no delivery with that id exists: ${JSON.stringify(deliveryId.slice(0, 64))}; ` +
        'GET …/deliveries lists them',
    );
  });
}

function tested({ responseStatus, error }: Attempt, begunMs: number): WebhookTest {
  return {
    delivered: error === null,
    response_status: responseStatus,
    error,
    elapsed_ms: Math.round(performance.now() - begunMs),
  };
}

// Webhooks and deliveries as the API answers them.

/** The row of a webhook, as far as its document needs it. */
type WebhookColumns = Pick<Webhook, 'id' | 'url' | 'types'> & { created: Date };

/** The row of a delivery, as far as its document needs it. */
type DeliveryColumns = Pick<
  Delivery,
  'id' | 'message_id' | 'type' | 'status' | 'attempts' | 'response_status' | 'error'
> & { created: Date; next_at: Date; finished: Date | null };

/** A webhook without its secret. */
export function webhookDocument(row: WebhookColumns): Webhook {
  return { id: row.id, url: row.url, types: row.types, created: row.created.toISOString() };
}

export function deliveryDocument(row: DeliveryColumns): Delivery {
  return {
    id: row.id,
    message_id: row.message_id,
    type: row.type,
    status: row.status,
    attempts: row.attempts,
    next_attempt: row.status === 'pending' ? row.next_at.toISOString() : null,
    response_status: row.response_status,
    error: row.error,
    created: row.created.toISOString(),
    finished: row.finished === null ? null : new Date(row.finished).toISOString(),
  };
}
