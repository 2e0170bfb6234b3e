/** Alerts as the API shows them. */
import {
  ALERT_RULE_NAMES,
  defaultOf,
  type AlertRule,
  type AlertRuleName,
  type Destination,
  type DestinationType,
  type Incident,
  type QuietHours,
} from '@howdah/contract';
import { ruleOf, type RuleSettings } from './conditions.ts';

/** The part of the configuration of a destination that answers may show. */
export type ShownConfig = Destination['config'];

/** The row of a destination, as far as its document needs it. */
type DestinationColumns = {
  id: string;
  name: string;
  type: DestinationType;
  config: ShownConfig;
  quiet_hours: QuietHours | null;
  created: Date;
  last_success: Date | null;
  last_error: string | null;
};

export function destinationDocument(row: DestinationColumns): Destination {
  const { id, name, type, config, last_error: error } = row;
  return {
    id,
    name,
    type,
    config,
    quiet_hours: row.quiet_hours,
    created: row.created.toISOString(),
    last_success: row.last_success?.toISOString() ?? null,
    ...(error === null ? {} : { warning: `the last message was not accepted: ${error}` }),
  };
}

/** All rules of a project, with what it has set. */
export const ruleDocuments = (settings: ReadonlyMap<AlertRuleName, RuleSettings>): AlertRule[] =>
  ALERT_RULE_NAMES.map((rule) => ruleDocument(rule, settings.get(rule) ?? null));

export function ruleDocument(rule: AlertRuleName, settings: RuleSettings | null): AlertRule {
  const { about, severity, threshold: figure, forMinutes } = defaultOf(rule);
  const { enabled, threshold, forMinutes: for_minutes } = ruleOf(rule, settings);
  return {
    rule,
    about,
    severity,
    enabled,
    threshold: figure === null ? null : threshold,
    unit: figure?.unit ?? null,
    for_minutes,
    default_threshold: figure?.value ?? null,
    default_for_minutes: forMinutes,
  };
}

/** The row of an incident that has opened, as far as its document needs it. */
export type IncidentColumns = {
  id: string;
  rule: AlertRuleName;
  service_id: string | null;
  about: string;
  message: string;
  opened: Date;
  resolved: Date | null;
};

export const incidentDocument = (row: IncidentColumns): Incident => ({
  id: row.id,
  rule: row.rule,
  severity: defaultOf(row.rule).severity,
  status: row.resolved === null ? 'open' : 'resolved',
  ...(row.service_id === null ? {} : { service_id: row.service_id }),
  about: row.about,
  message: row.message,
  opened: row.opened.toISOString(),
  resolved: row.resolved?.toISOString() ?? null,
});
