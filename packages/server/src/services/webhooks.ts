/** What can be asked of webhooks: make, see, delete, try, and deliver again. */
import {
  ApiError,
  isId,
  MAX_WEBHOOKS,
  type CreateWebhookBody,
  type Delivery,
  type Webhook,
  type WebhookTest,
} from '@howdah/contract';
import { randomBytes } from 'node:crypto';
import type { BlockList } from 'node:net';
import { deliver, whyNotReceiver } from '../events/receiver.ts';
import { UNREADABLE, type Sealer } from '../events/sealer.ts';
import { newId } from '../lib/ids.ts';
import type { Store } from '../store/database.ts';
import type { Db } from '../store/tables.ts';
import {
  countWebhooks,
  deleteWebhook,
  deliveryDocument,
  findWebhook,
  insertWebhook,
  redeliver,
  webhookDocument,
  type Attempt,
  type WebhookRow,
} from '../store/webhooks.ts';
import { amendAnswer, makeChange, type Caller, type Outcome } from './change.ts';

export function createWebhooks(store: Store, sealer: Sealer, allowed: BlockList) {
  const find = async (db: Db, projectId: string, id: string): Promise<WebhookRow> => {
    const found = isId(id) ? await findWebhook(db, projectId, id) : null;
    if (found !== null) return found;
    throw new ApiError(
      'NOT_FOUND',
      `no webhook with that id exists: ${JSON.stringify(id.slice(0, 64))}; GET /projects/{project_id}/webhooks lists them`,
    );
  };

  const create = async (caller: Caller, { url, types }: CreateWebhookBody): Promise<Outcome> => {
    const problem = await whyNotReceiver(url, allowed);
    if (problem !== null) throw new ApiError('INVALID_REQUEST', `url: ${problem}`);
    // The form of the specification: 24 to 64 bytes.
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    return makeChange(store, caller, async (tx) => {
      const count = await countWebhooks(tx, caller.projectId);
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
      return told({ ...webhookDocument(await insertWebhook(tx, made)), secret });
    });
  };

  const remove = (caller: Caller, id: string): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      await deleteWebhook(tx, (await find(tx, caller.projectId, id)).id);
      return { operationId: null };
    });

  /** One attempt with an event that tells of nothing, now. */
  const test = async (caller: Caller, id: string): Promise<Outcome> => {
    const begun = performance.now();
    const { url, secret } = await find(store.db, caller.projectId, id);
    // Kept under the Idempotency-Key for a client that repeats the call after a crash.
    await makeChange(store, caller, async () =>
      told(tested({ responseStatus: null, error: 'interrupted' }, begun)),
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
    const outcome = told(tested(attempt, begun));
    await amendAnswer(store, caller, outcome);
    return outcome;
  };

  const deliverAgain = (caller: Caller, id: string, deliveryId: string): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      const { id: webhookId } = await find(tx, caller.projectId, id);
      const begun = /^[0-9]{1,18}$/.test(deliveryId)
        ? await redeliver(tx, webhookId, deliveryId)
        : null;
      if (begun !== null) return told(deliveryDocument(begun));
      throw new ApiError(
        'NOT_FOUND',
        `no delivery with that id exists: ${JSON.stringify(deliveryId.slice(0, 64))}; GET …/deliveries lists them`,
      );
    });

  return {
    find: (projectId: string, id: string) => find(store.db, projectId, id),
    create,
    remove,
    test,
    deliverAgain,
  };
}
export type Webhooks = ReturnType<typeof createWebhooks>;

const told = (body: Webhook | Delivery | WebhookTest): Outcome => ({
  operationId: null,
  doc: JSON.stringify(body),
});

function tested({ responseStatus, error }: Attempt, begunMs: number): WebhookTest {
  return {
    delivered: error === null,
    response_status: responseStatus,
    error,
    elapsed_ms: Math.round(performance.now() - begunMs),
  };
}
