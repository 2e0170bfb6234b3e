/** One attempt to send a message of alerts to a destination. */
import type { DestinationType } from '@howdah/contract';
import type { BlockList } from 'node:net';
import type { ShownConfig } from '../domain/alerts/document.ts';
import {
  pagerDutyEvents,
  slackBody,
  teamsBody,
  textOf,
  titleOf,
  webhookBody,
  type AlertMessage,
} from '../domain/alerts/messages.ts';
import { post, type Outgoing } from '../events/outgoing-request.ts';
import { deliver } from '../events/receiver.ts';
import type { DestinationSecrets } from './destination-secrets.ts';
import { sendMail } from './mail.ts';

const HEADERS = { 'Content-Type': 'application/json', 'User-Agent': 'Howdah-Alerts' };

/** The Events API of PagerDuty's first region. */
export const PAGERDUTY_URL = 'https://events.pagerduty.com/v2/enqueue';

/**
 * Sends a message.
 *
 * @param id of the message: the same for each attempt
 */
export async function sendAlert(
  { type, config }: { type: DestinationType; config: ShownConfig },
  secrets: DestinationSecrets,
  id: string,
  message: AlertMessage,
  allowed: BlockList,
): Promise<Outgoing> {
  const { url = '', password, routing_key: routingKey = '', signing_secret: signing } = secrets;
  const postJson = (to: string, body: object): Promise<Outgoing> =>
    post(to, HEADERS, JSON.stringify(body), allowed);
  switch (type) {
    case 'smtp':
      return sendMail(
        config,
        password,
        { id, subject: titleOf(message), text: textOf(message) },
        allowed,
      );
    case 'slack':
      return postJson(url, slackBody(message));
    case 'teams':
      return postJson(url, teamsBody(message));
    case 'webhook': {
      const body = JSON.stringify(webhookBody(message, id));
      return deliver(url, signing ?? '', { id, body }, allowed);
    }
    case 'pagerduty': {
      let outcome: Outgoing = { responseStatus: null, error: null };
      for (const event of pagerDutyEvents(message, id, routingKey)) {
        outcome = await postJson(config.url ?? PAGERDUTY_URL, event);
        if (outcome.error !== null) break;
      }
      return outcome;
    }
  }
}
