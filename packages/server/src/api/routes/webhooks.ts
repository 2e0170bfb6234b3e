import {
  CreateWebhookBody,
  DELIVERY_STATUSES,
  DeliverySchema,
  Ref,
  StringEnum,
  WebhookSchema,
  WebhookTestSchema,
} from '@howdah/contract';
import { Type } from 'typebox';
import {
  deliveryDocument,
  webhookDocument,
  createWebhook,
  deleteWebhook,
  deliverAgain,
  readWebhook,
  testWebhook,
} from '../../services/webhooks.ts';
import { listDeliveries, listWebhooks } from '../../store/webhooks.ts';
import type { ApiContext, App } from '../context.ts';
import { answer, callerOf } from '../change-requests.ts';
import { pageOf, paging, sendList } from '../paging.ts';
import { ofProject, resourceSchemas } from './schemas.ts';

const WEBHOOKS = '/projects/:project_id/webhooks';
const WEBHOOK = `${WEBHOOKS}/:webhook_id`;
const ofWebhook = Type.Object({ project_id: Type.String(), webhook_id: Type.String() });
const webhooks = resourceSchemas({
  tag: 'webhooks',
  ofMany: ofProject,
  ofOne: ofWebhook,
  document: WebhookSchema,
});

export function webhookRoutes(api: App, context: ApiContext): void {
  const { store } = context;
  api.get(
    WEBHOOKS,
    webhooks.list('listWebhooks', 'List the webhooks, oldest first'),
    async (request) => (await listWebhooks(store.db, request.key.project_id)).map(webhookDocument),
  );

  api.post(
    WEBHOOKS,
    webhooks.create(
      CreateWebhookBody,
      'createWebhook',
      'Have events delivered to a URL',
      'Each event is a POST of its JSON, signed as in Standard Webhooks with the secret in ' +
        'this answer, which no other answer contains. ' +
        'It is attempted eight times over 28 hours until the receiver answers 2xx; ' +
        'redirects are not followed.',
    ),
    async (request, reply) =>
      answer(reply, await createWebhook(context, callerOf(request), request.body)),
  );

  api.delete(
    WEBHOOK,
    webhooks.delete('deleteWebhook', 'Delete a webhook and its pending deliveries'),
    async (request, reply) =>
      answer(reply, await deleteWebhook(context, callerOf(request), request.params.webhook_id)),
  );

  api.post(
    `${WEBHOOK}/test`,
    {
      schema: {
        operationId: 'testWebhook',
        summary: 'Deliver an event of the type webhook.test now, once',
        tags: ['webhooks'],
        params: ofWebhook,
        response: { 200: Ref(WebhookTestSchema) },
      },
    },
    async (request, reply) =>
      answer(reply, await testWebhook(context, callerOf(request), request.params.webhook_id)),
  );

  api.get(
    `${WEBHOOK}/deliveries`,
    {
      schema: {
        operationId: 'listDeliveries',
        summary: 'List deliveries, newest first',
        description:
          'The deliveries of the last 7 days. ' +
          'Those with the status failed are not attempted again.',
        tags: ['webhooks'],
        params: ofWebhook,
        querystring: Type.Object({
          ...paging('number'),
          status: Type.Optional(StringEnum(DELIVERY_STATUSES)),
        }),
        response: { 200: Type.Array(Ref(DeliverySchema)) },
      },
    },
    async (request, reply) => {
      const { id } = await readWebhook(store.db, request.key.project_id, request.params.webhook_id);
      return sendList(request, reply, 'number', async (after, limit) =>
        pageOf(
          await listDeliveries(store.db, id, request.query.status, after, limit + 1),
          limit,
          deliveryDocument,
          (row) => row.id,
        ),
      );
    },
  );

  api.post(
    `${WEBHOOK}/deliveries/:delivery_id/redeliver`,
    {
      schema: {
        operationId: 'redeliver',
        summary: 'Repeat a delivery, with all its attempts',
        tags: ['webhooks'],
        params: Type.Object({
          project_id: Type.String(),
          webhook_id: Type.String(),
          delivery_id: Type.String(),
        }),
        response: { 202: Ref(DeliverySchema) },
      },
    },
    async (request, reply) => {
      const { webhook_id: id, delivery_id: deliveryId } = request.params;
      return answer(reply, await deliverAgain(context, callerOf(request), id, deliveryId));
    },
  );
}
