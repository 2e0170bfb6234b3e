/** One attempt to deliver a message to a webhook: signed as in Standard Webhooks. */
import type { BlockList } from 'node:net';
import { Webhook } from 'standardwebhooks';
import type { Attempt } from '../store/webhooks.ts';
import { post, whyNotUrl } from './outgoing-request.ts';

/** The error of a webhook whose secret was sealed with another key. */
export const UNREADABLE =
  'the secret of the webhook cannot be read: HOWDAH_HOME/secrets.key is not the file it ' +
  'was; recreate the webhook';

export type Message = { id: string; body: string };

/**
 * Sends a message.
 *
 * @param secret `whsec_…`
 * @returns error: null when the receiver answered 2xx
 */
export async function deliver(
  url: string,
  secret: string,
  message: Message,
  allowed: BlockList,
): Promise<Attempt> {
  const at = new Date();
  const headers = {
    'Content-Type': 'application/json',
    'User-Agent': 'Howdah-Webhooks',
    'webhook-id': message.id,
    'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
    'webhook-signature': new Webhook(secret).sign(message.id, at, message.body),
  };
  return post(url, headers, message.body, allowed);
}

/** Why a URL can never be delivered to; null: it may be possible. */
export function whyNotReceiver(text: string, allowed: BlockList): Promise<string | null> {
  return whyNotUrl(text, allowed, 'the signature shows who sends');
}
