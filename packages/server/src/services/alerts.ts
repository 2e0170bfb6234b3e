/** Calls on alerts: destinations and rules. */
import { randomBytes } from 'node:crypto';
import {
  ApiError,
  defaultOf,
  inQuotes,
  isId,
  MAX_DESTINATIONS,
  MAX_THRESHOLD,
  type CreateDestinationBody,
  type DestinationConfig,
  type DestinationType,
  type QuietHours,
  type SetAlertRuleBody,
  type UpdateDestinationBody,
  type WebhookTest,
} from '@howdah/contract';
import type { BlockList } from 'node:net';
import { destinationDocument, ruleDocument, type ShownConfig } from '../domain/alerts/document.ts';
import { testMessage } from '../domain/alerts/messages.ts';
import { isTimeZone } from '../domain/alerts/quiet-hours.ts';
import { whyNotHost, whyNotUrl, type Outgoing } from '../events/outgoing-request.ts';
import {
  openDestination,
  sealDestination,
  UNREADABLE_DESTINATION,
  type DestinationSecrets,
} from '../export/destination-secrets.ts';
import { PAGERDUTY_URL, sendAlert } from '../export/destination.ts';
import { newId } from '../lib/ids.ts';
import { recordOutcome } from '../store/alert-messages.ts';
import {
  deleteDestinationRow,
  findDestination,
  insertDestination,
  readRules,
  updateDestinationRow,
  writeRule,
  type DestinationRow,
} from '../store/alerts.ts';
import { findProject } from '../store/projects.ts';
import { lockAndCount } from '../store/resources.ts';
import type { Db } from '../store/tables.ts';
import { amendAnswer, answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { WebhookContext } from './webhooks.ts';

/** @throws ApiError NOT_FOUND */
export async function findDestinationOrRefuse(
  db: Db,
  projectId: string,
  id: string,
): Promise<DestinationRow> {
  const found = isId(id) ? await findDestination(db, projectId, id) : null;
  if (found !== null) return found;
  throw destinationNotFound(id);
}

const destinationNotFound = (id: string): ApiError =>
  new ApiError(
    'NOT_FOUND',
    `no destination with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/alerts/destinations lists them',
  );

const invalid = (message: string): ApiError => new ApiError('INVALID_REQUEST', message);

// The configuration of each type: what answers may show, and what they may not.

type Checked = { shown: ShownConfig; secrets: DestinationSecrets };

/** The fields of the configuration that each type has, and those that it needs. */
const FIELDS: Record<DestinationType, { all: readonly Field[]; needed: readonly Field[] }> = {
  smtp: {
    all: ['host', 'port', 'encryption', 'username', 'password', 'from', 'to'],
    needed: ['host', 'from', 'to'],
  },
  slack: { all: ['url'], needed: ['url'] },
  teams: { all: ['url'], needed: ['url'] },
  pagerduty: { all: ['url', 'routing_key'], needed: [] },
  webhook: { all: ['url'], needed: ['url'] },
};
type Field = keyof DestinationConfig;

/**
 * Checks a configuration.
 *
 * @param kept the secrets that the destination has already; they go to the same place only
 */
async function configOrRefuse(
  type: DestinationType,
  config: DestinationConfig,
  allowed: BlockList,
  kept: DestinationSecrets,
): Promise<Checked> {
  const { all, needed } = FIELDS[type];
  const foreign = Object.keys(config).find((name) => !all.some((own) => own === name));
  if (foreign !== undefined)
    throw invalid(`config.${foreign}: the type ${type} takes ${all.join(', ')}`);
  const missing = needed.find((name) => config[name] === undefined);
  if (missing !== undefined)
    throw invalid(`config.${missing}: the type ${type} needs ${needed.join(', ')}`);
  switch (type) {
    case 'smtp':
      return mailOrRefuse(config, allowed, kept);
    case 'pagerduty': {
      const routingKey = config.routing_key ?? kept.routing_key;
      if (routingKey === undefined)
        throw invalid('config.routing_key: the type pagerduty needs it');
      const url = await urlOrRefuse(config.url ?? PAGERDUTY_URL, allowed);
      return { shown: { url }, secrets: { routing_key: routingKey } };
    }
    case 'slack':
    case 'teams':
    case 'webhook': {
      const url = await urlOrRefuse(config.url ?? '', allowed);
      const signing = kept.signing_secret;
      return {
        // The path of such a URL lets everybody send who knows it.
        shown: { url: new URL(url).origin },
        secrets: { url, ...(signing === undefined ? {} : { signing_secret: signing }) },
      };
    }
  }
}

async function mailOrRefuse(
  {
    host = '',
    port = 587,
    encryption = 'starttls',
    username,
    password,
    from,
    to,
  }: DestinationConfig,
  allowed: BlockList,
  kept: DestinationSecrets,
): Promise<Checked> {
  const problem = await whyNotHost(host, allowed);
  if (problem !== null) throw invalid(`config.host: ${problem}`);
  const known = password ?? kept.password;
  if (username === undefined && password !== undefined)
    throw invalid('config.username: missing; a password needs one');
  if (username !== undefined && known === undefined)
    throw invalid('config.password: missing; a username needs one');
  return {
    shown: {
      host,
      port,
      encryption,
      ...(username === undefined ? {} : { username }),
      ...(from === undefined ? {} : { from }),
      ...(to === undefined ? {} : { to }),
    },
    secrets: username === undefined || known === undefined ? {} : { password: known },
  };
}

async function urlOrRefuse(text: string, allowed: BlockList): Promise<string> {
  const problem = await whyNotUrl(text, allowed, 'the path can name who sends');
  if (problem !== null) throw invalid(`config.url: ${problem}`);
  return new URL(text).href;
}

function quietHoursOrRefuse(quiet: QuietHours | null): QuietHours | null {
  if (quiet === null || isTimeZone(quiet.time_zone)) return quiet;
  throw invalid(
    `quiet_hours.time_zone: found ${inQuotes(quiet.time_zone)}; allowed is a name of the IANA ` +
      'database of time zones, such as Europe/Berlin or UTC',
  );
}

// Changes.

/** Creates a destination. The secret of a webhook is in this answer only. */
export async function createDestination(
  { store, webhooks: { sealer, allowed } }: WebhookContext,
  caller: Caller,
  { name, type, config, quiet_hours: quiet }: CreateDestinationBody,
): Promise<Outcome> {
  // As that of other webhooks.
  const signing = `whsec_${randomBytes(32).toString('base64')}`;
  const made: DestinationSecrets = type === 'webhook' ? { signing_secret: signing } : {};
  const { shown, secrets } = await configOrRefuse(type, config, allowed, made);
  const settings = {
    name,
    config: shown,
    secret: sealDestination(sealer, secrets),
    quietHours: quietHoursOrRefuse(quiet ?? null),
  };
  return makeChange(store, caller, async (tx) => {
    const count = await lockAndCount(tx, 'alert_destinations', caller.projectId);
    if (count >= MAX_DESTINATIONS)
      throw new ApiError(
        'LIMIT_EXCEEDED',
        `destinations: the project has ${count}, of ${MAX_DESTINATIONS} that are allowed; ` +
          'delete one first',
      );
    const row = await insertDestination(tx, caller.projectId, type, settings);
    const document = destinationDocument(row);
    return answerWith(type === 'webhook' ? { ...document, secret: signing } : document);
  });
}

/** Changes a destination. Secrets that are left out stay, unless they would go to another place. */
export async function updateDestination(
  { store, webhooks: { sealer, allowed } }: WebhookContext,
  caller: Caller,
  id: string,
  { name, config, quiet_hours: quiet }: UpdateDestinationBody,
): Promise<Outcome> {
  const before = await findDestinationOrRefuse(store.db, caller.projectId, id);
  const checked =
    config === undefined
      ? null
      : await configOrRefuse(
          before.type,
          mergedConfig(before, config),
          allowed,
          secretsToKeep(before, config, openDestination(sealer, before.secret) ?? {}),
        );
  const settings = {
    name: name ?? before.name,
    config: checked?.shown ?? before.config,
    secret: checked === null ? before.secret : sealDestination(sealer, checked.secrets),
    quietHours: quiet === undefined ? before.quiet_hours : quietHoursOrRefuse(quiet),
  };
  return makeChange(store, caller, async (tx) => {
    const changed = await updateDestinationRow(tx, before.id, settings);
    if (changed === null) throw destinationNotFound(id);
    return answerWith(destinationDocument(changed));
  });
}

/** A given URL of a hook is whole; the one that is shown is not. */
const mergedConfig = (
  { type, config: before }: DestinationRow,
  config: DestinationConfig,
): DestinationConfig =>
  type === 'smtp' || type === 'pagerduty' ? { ...before, ...config } : config;

/** A secret must not be sent to a place that somebody else chooses. */
function secretsToKeep(
  { config: before }: DestinationRow,
  { host, port, encryption, url }: DestinationConfig,
  { password, routing_key: routingKey, signing_secret: signing }: DestinationSecrets,
): DestinationSecrets {
  const isElsewhere =
    (host ?? before.host) !== before.host ||
    (port ?? before.port) !== before.port ||
    (encryption ?? before.encryption) !== before.encryption ||
    (url ?? before.url) !== before.url;
  return {
    ...(isElsewhere || password === undefined ? {} : { password }),
    ...(isElsewhere || routingKey === undefined ? {} : { routing_key: routingKey }),
    // Only signatures leave with it.
    ...(signing === undefined ? {} : { signing_secret: signing }),
  };
}

export function deleteDestination(
  { store }: WebhookContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    await deleteDestinationRow(tx, (await findDestinationOrRefuse(tx, caller.projectId, id)).id);
    return { operationId: null };
  });
}

/** Sends a test message to a destination now, once. */
export async function testDestination(
  { store, webhooks: { sealer, allowed } }: WebhookContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  const begun = performance.now();
  const destination = await findDestinationOrRefuse(store.db, caller.projectId, id);
  // Kept under the Idempotency-Key for a client that repeats the call after a crash.
  await makeChange(store, caller, async () =>
    answerWith(tested({ responseStatus: null, error: 'interrupted' }, begun)),
  );
  const secrets = openDestination(sealer, destination.secret);
  const name = (await findProject(store.db, caller.projectId))?.name ?? '';
  const message = testMessage({ id: caller.projectId, name }, new Date());
  const attempt =
    secrets === null
      ? { responseStatus: null, error: UNREADABLE_DESTINATION }
      : await sendAlert(destination, secrets, `test_${newId()}`, message, allowed);
  await recordOutcome(store.db, destination.id, attempt.error);
  const outcome = answerWith(tested(attempt, begun));
  await amendAnswer(store, caller, outcome);
  return outcome;
}

const tested = ({ responseStatus, error }: Outgoing, begunMs: number): WebhookTest => ({
  delivered: error === null,
  response_status: responseStatus,
  error,
  elapsed_ms: Math.round(performance.now() - begunMs),
});

/** Sets a rule of the project. Fields that are left out stay as they are. */
export function setAlertRule(
  { store }: WebhookContext,
  caller: Caller,
  { rule, enabled, threshold, for_minutes: forMinutes }: SetAlertRuleBody,
): Promise<Outcome> {
  const { threshold: figure } = defaultOf(rule);
  if (threshold !== undefined && threshold !== null) {
    if (figure === null) throw invalid(`threshold: found ${threshold}; the rule ${rule} has none`);
    if (threshold > MAX_THRESHOLD[figure.unit])
      throw invalid(
        `threshold: found ${threshold}; allowed are 1 to ${MAX_THRESHOLD[figure.unit]} ` +
          figure.unit,
      );
  }
  return makeChange(store, caller, async (tx) => {
    const before = (await readRules(tx, caller.projectId)).get(rule);
    const settings = {
      enabled: enabled ?? before?.enabled ?? true,
      threshold: threshold === undefined ? (before?.threshold ?? null) : threshold,
      for_minutes: forMinutes === undefined ? (before?.for_minutes ?? null) : forMinutes,
    };
    await writeRule(tx, caller.projectId, rule, settings);
    return answerWith(ruleDocument(rule, settings));
  });
}
