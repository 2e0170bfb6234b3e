/**
 * Opens and resolves incidents, and queues their messages in the same transaction: twice a minute,
 * from what the metadata database knows.
 */
import { defaultOf, type AlertRuleName } from '@howdah/contract';
import { conditionsOf, ruleOf, type Facts, type RuleOf } from '../domain/alerts/conditions.ts';
import { incidentChanges, type StoredIncident } from '../domain/alerts/incidents.ts';
import {
  isCritical,
  isSummarized,
  type AlertMessage,
  type MessageKind,
} from '../domain/alerts/messages.ts';
import { isQuiet } from '../domain/alerts/quiet-hours.ts';
import { diskWarning } from '../domain/disk.ts';
import type { Regions } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import { dropHeld, queueMessage, readDestinationsOf } from '../store/alert-messages.ts';
import {
  deleteIncidents,
  insertIncident,
  lockIncidents,
  readAllRules,
  readExpiringKeys,
  readInstallationFacts,
  readServiceFacts,
  updateIncidentMessage,
  updateIncidents,
  type DestinationRow,
} from '../store/alerts.ts';
import type { Store } from '../store/database.ts';
import type { Db, Tx } from '../store/tables.ts';

type AlertsOptions = Readonly<{
  store: Store;
  regions: Pick<Regions, 'all'>;
  log: Log;
  rounds: Rounds;
  /** When the certificate of the API expires; null: it has none, or Howdah renews it. */
  certificateExpires: () => Date | null;
}>;

export const createAlerts = (options: AlertsOptions) =>
  options.rounds.every('alerts', () => evaluate(options));

async function evaluate(options: AlertsOptions): Promise<void> {
  const { store } = options;
  const [facts, ruleIn] = [await readFacts(options), await readRuleIn(store.db)];
  const conditions = conditionsOf(facts, ruleIn);
  await store.db.transaction().execute(async (tx) => {
    const stored = await lockIncidents(tx);
    const changes = incidentChanges(facts.now, stored, conditions, ruleIn);
    const begun: StoredIncident[] = [];
    for (const { condition, opens } of changes.begun) {
      const made = await insertIncident(tx, condition, facts.now, opens);
      if (opens) begun.push(made);
    }
    const { now } = facts;
    const idsOf = (some: readonly StoredIncident[]): string[] => some.map(({ id }) => id);
    await updateIncidents(tx, idsOf(changes.opened), { opened: now });
    await updateIncidents(tx, changes.cleared, { cleared: now });
    await updateIncidents(tx, changes.held, { cleared: null });
    await updateIncidents(tx, idsOf(changes.resolved), { resolved: now });
    await deleteIncidents(tx, changes.forgotten);
    for (const { id, message } of changes.reworded) await updateIncidentMessage(tx, id, message);
    const opened = [...begun, ...changes.opened].map((one) => ({ ...one, opened: now }));
    const resolved = changes.resolved.map((one) => ({ ...one, resolved: now }));
    await announce(tx, now, [
      ...opened.map((incident) => ({ kind: 'opened' as const, incident })),
      ...resolved.map((incident) => ({ kind: 'resolved' as const, incident })),
    ]);
    report(options.log, opened, resolved);
  });
}

async function readFacts({ store, regions, certificateExpires }: AlertsOptions): Promise<Facts> {
  const disks = await Promise.all(
    regions.all.map(async ({ code, engine: { storage } }) => {
      // A region that does not answer is reported at its services.
      const usage = await storage.disk?.().catch(() => null);
      const warning = usage == null ? null : diskWarning(usage);
      return warning === null ? [] : [{ code, message: warning.message }];
    }),
  );
  return {
    ...(await readInstallationFacts(store.db)),
    services: await readServiceFacts(store.db),
    keys: await readExpiringKeys(store.db),
    regions: disks.flat(),
    certificateExpires: certificateExpires(),
  };
}

async function readRuleIn(db: Db): Promise<RuleOf> {
  const keyOf = (projectId: string, rule: AlertRuleName): string => `${projectId} ${rule}`;
  const set = new Map(
    (await readAllRules(db)).map((one) => [keyOf(one.project_id, one.rule), one]),
  );
  return (projectId, rule) => ruleOf(rule, set.get(keyOf(projectId, rule)) ?? null);
}

type News = { kind: 'opened' | 'resolved'; incident: StoredIncident };

/** Queues a message for each destination of the project. */
async function announce(tx: Tx, now: Date, news: readonly News[]): Promise<void> {
  const projects = [...new Set(news.map(({ incident }) => incident.project_id))];
  const destinations = await readDestinationsOf(tx, projects);
  for (const one of news)
    for (const destination of destinations)
      if (destination.project_id === one.incident.project_id)
        await announceTo(tx, now, destination, one);
}

async function announceTo(
  tx: Tx,
  now: Date,
  destination: DestinationRow & { project_name: string },
  { kind, incident }: News,
): Promise<void> {
  const { id, type, project_id: projectId, project_name: name, quiet_hours: quiet } = destination;
  const message = messageOf(kind, incident, { id: projectId, name }, now);
  // PagerDuty pages until it gets the end; an incident that it does not know needs none.
  const endsNow = kind === 'resolved' && !isSummarized(type);
  if (endsNow && (await dropHeld(tx, id, incident.id))) return;
  const passes = quiet?.critical_passes === true && isCritical(incident.rule);
  const held = quiet !== null && !passes && !endsNow && isQuiet(quiet, now);
  await queueMessage(tx, id, message, held);
}

const messageOf = (
  kind: MessageKind,
  { id, rule, service_id, about, message, opened, resolved }: StoredIncident,
  project: AlertMessage['project'],
  now: Date,
): AlertMessage => ({
  kind,
  project,
  at: now.toISOString(),
  incidents: [
    {
      id,
      rule,
      severity: defaultOf(rule).severity,
      service_id,
      about,
      message,
      opened: (opened ?? now).toISOString(),
      resolved: resolved?.toISOString() ?? null,
    },
  ],
});

function report(
  log: Log,
  opened: readonly StoredIncident[],
  resolved: readonly StoredIncident[],
): void {
  for (const { id, rule, subject, message } of opened)
    log.warn({ incident: id, rule, subject, reason: message }, 'an incident has opened');
  for (const { id, rule, subject } of resolved)
    log.info({ incident: id, rule, subject }, 'an incident is resolved');
}
