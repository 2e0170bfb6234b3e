/** Messages about incidents, in the form of each kind of destination. */
import {
  defaultOf,
  type AlertRuleName,
  type DestinationType,
  type Severity,
} from '@howdah/contract';

/** opened and resolved are about one incident, summary about all of some quiet hours. */
export type MessageKind = 'opened' | 'resolved' | 'summary' | 'test';

/** An incident as messages have it. Times are ISO 8601. */
export type MessageIncident = {
  id: string;
  rule: AlertRuleName;
  severity: Severity;
  service_id: string | null;
  about: string;
  message: string;
  opened: string;
  /** null: it is open. */
  resolved: string | null;
};

/** A message as it is stored until it is sent. */
export type AlertMessage = {
  kind: MessageKind;
  project: { id: string; name: string };
  at: string;
  incidents: MessageIncident[];
};

/** A message that reports nothing. */
export const testMessage = (project: AlertMessage['project'], at: Date): AlertMessage => ({
  kind: 'test',
  project,
  at: at.toISOString(),
  incidents: [],
});

/**
 * One message in place of those that were held. An incident that opened and resolved meanwhile is
 * one line.
 */
export function summaryOf(held: readonly AlertMessage[], at: Date): AlertMessage | null {
  const [first] = held;
  if (first === undefined || held.length === 1) return first ?? null;
  const byId = new Map(held.flatMap(({ incidents }) => incidents.map((one) => [one.id, one])));
  return {
    kind: 'summary',
    project: first.project,
    at: at.toISOString(),
    incidents: [...byId.values()],
  };
}

const stateOf = ({ resolved, severity }: MessageIncident): string =>
  resolved === null ? severity : 'resolved';

/** A line for people: `critical: orders: unstable`. */
const lineOf = (one: MessageIncident): string => `${stateOf(one)}: ${one.about}: ${one.rule}`;

/** The subject of a mail, or the title of a card. */
export function titleOf({ kind, project, incidents }: AlertMessage): string {
  const [first] = incidents;
  if (kind === 'test' || first === undefined) return `[Howdah] ${project.name}: a test`;
  if (kind === 'summary')
    return `[Howdah] ${project.name}: incidents in quiet hours: ${incidents.length}`;
  return `[Howdah] ${project.name}: ${lineOf(first)}`;
}

/** The text of a mail, without the title. */
export function textOf({ kind, project, incidents }: AlertMessage): string {
  if (kind === 'test')
    return 'This is a test of a destination of alerts. Nothing has happened, and nothing is to do.';
  const parts = incidents.map((one) =>
    [
      lineOf(one),
      one.message,
      `opened ${one.opened}${one.resolved === null ? '' : `, resolved ${one.resolved}`}`,
      ...(one.service_id === null ? [] : [`service ${one.service_id}`]),
    ].join('\n'),
  );
  return [...parts, `project ${project.name} (${project.id})`].join('\n\n');
}

/** Slack reads `<`, `>` and `&` as its own marks, which could hide a link. */
const slackText = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

export const slackBody = (message: AlertMessage): object => ({
  text: slackText(`*${titleOf(message)}*\n${textOf(message)}`),
});

/** An Adaptive Card, which a workflow of Teams posts to its channel. */
export function teamsBody(message: AlertMessage): object {
  const block = (text: string, more: object = {}): object => ({
    type: 'TextBlock',
    // Cards read a subset of Markdown, which has links.
    text: text.replaceAll(/[[\]()*_`]/g, String.raw`\$&`),
    wrap: true,
    ...more,
  });
  return {
    type: 'message',
    attachments: [
      {
        contentType: 'application/vnd.microsoft.card.adaptive',
        contentUrl: null,
        content: {
          $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
          type: 'AdaptiveCard',
          version: '1.4',
          body: [
            block(titleOf(message), { weight: 'Bolder' }),
            ...textOf(message)
              .split('\n\n')
              .map((part) => block(part)),
          ],
        },
      },
    ],
  };
}

/** PagerDuty takes this many characters of a summary. */
const MAX_SUMMARY = 1024;

/**
 * Events of PagerDuty's Events API, version 2. A test triggers an incident of the lowest severity,
 * and resolves it.
 */
export function pagerDutyEvents(message: AlertMessage, id: string, routingKey: string): object[] {
  const event = (action: 'trigger' | 'resolve', key: string, more: object = {}): object => ({
    routing_key: routingKey,
    event_action: action,
    dedup_key: `howdah-${key}`,
    ...more,
  });
  const payload = (summary: string, source: string, severity: string, more: object): object => ({
    payload: { summary: summary.slice(0, MAX_SUMMARY), source, severity, ...more },
  });
  if (message.kind === 'test') {
    const about = payload(titleOf(message), message.project.name, 'info', {});
    return [event('trigger', id, about), event('resolve', id)];
  }
  return message.incidents.map((one) =>
    one.resolved === null
      ? event(
          'trigger',
          one.id,
          payload(`${one.about}: ${one.message}`, one.about, one.severity, {
            timestamp: one.opened,
            class: one.rule,
            custom_details: { project: message.project, service_id: one.service_id },
          }),
        )
      : event('resolve', one.id),
  );
}

/** The body of a webhook, in the form of the events of webhooks. */
export const webhookBody = (message: AlertMessage, id: string): object => ({
  id,
  type: `alert.${message.kind}`,
  timestamp: message.at,
  data: { project_id: message.project.id, incidents: message.incidents },
});

/**
 * Whether messages of quiet hours are sent as one. PagerDuty keeps incidents by their keys, so that
 * each event is its own.
 */
export const isSummarized = (type: DestinationType): boolean => type !== 'pagerduty';

/** Whether a message may pass quiet hours: it opens or resolves an incident of a critical rule. */
export const isCritical = (rule: AlertRuleName): boolean => defaultOf(rule).severity === 'critical';
