/** Webhooks and deliveries as the API answers them. */
import type { Delivery, Webhook } from '@howdah/contract';

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
