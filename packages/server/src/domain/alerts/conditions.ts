/** Which conditions of alerts hold: a pure function of what the metadata database knows. */
import {
  ALERT_RULES,
  type AlertRuleName,
  type LiveStatus,
  type RuleDefault,
  type Warning,
} from '@howdah/contract';
import { maxConnectionsOf } from '../postgres/settings.ts';

/** A rule as a project has set it; null: as by default. */
export type RuleSettings = {
  enabled: boolean;
  threshold: number | null;
  for_minutes: number | null;
};

/** A rule as it counts in a project. */
export type Rule = { enabled: boolean; threshold: number; forMinutes: number };

/** @param settings null: the project has set nothing */
export function ruleOf(name: AlertRuleName, settings: RuleSettings | null): Rule {
  const { threshold, forMinutes }: RuleDefault = ALERT_RULES[name];
  return {
    enabled: settings?.enabled ?? true,
    // A rule without a figure never reads it.
    threshold: settings?.threshold ?? threshold?.value ?? 0,
    forMinutes: settings?.for_minutes ?? forMinutes,
  };
}

/** Returns the rule of a project. */
export type RuleOf = (projectId: string, name: AlertRuleName) => Rule;

/** A service, with its last sample. null: not measured, or never. */
export type ServiceFacts = {
  id: string;
  project_id: string;
  name: string;
  status: LiveStatus;
  warnings: readonly Warning[];
  /** null: the shared size. */
  memory_gbs: number | null;
  storage_gb: number;
  /** The data of the service, in megabytes. */
  storage_mb: number | null;
  /** The most connections of one of its servers. */
  connections: number | null;
  /** The largest lag of its replicas and of the nodes of its read replica sets. */
  lag_seconds: number | null;
  /** When its last failover ended. */
  failed_over: Date | null;
  /** Since when a backup to a repository is due. */
  backup_due: Date | null;
};

export type KeyFacts = { public_key: string; project_id: string; name: string; expires_at: Date };

/** All that is known. */
export type Facts = {
  now: Date;
  services: readonly ServiceFacts[];
  /** Keys that expire and are valid yet. */
  keys: readonly KeyFacts[];
  /** The project of the operator, which gets what belongs to no other; null: there is none. */
  operatorProject: string | null;
  /** The warnings of the disks of regions. */
  regions: readonly { code: string; message: string }[];
  /** When the certificate of the API expires; null: it has none, or Howdah renews it. */
  certificateExpires: Date | null;
};

/** A condition that holds. A rule and a subject have one incident at a time. */
export type Condition = {
  projectId: string;
  rule: AlertRuleName;
  /** The id of the service, the key or the region. */
  subject: string;
  serviceId: string | null;
  /** The name of the subject, as messages show it. */
  about: string;
  message: string;
};

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** All conditions that hold, of rules that are enabled. */
export function conditionsOf(facts: Facts, ruleIn: RuleOf): Condition[] {
  const all = [
    ...facts.services.flatMap((service) => conditionsOfService(service, facts, ruleIn)),
    ...facts.keys.flatMap((key) => conditionsOfKey(key, facts, ruleIn)),
    ...conditionsOfInstallation(facts, ruleIn),
  ];
  return all.filter(({ projectId, rule }) => ruleIn(projectId, rule).enabled);
}

/** Rules whose condition is a warning of the service, by its code. */
const BY_WARNING: readonly [AlertRuleName, Warning['code']][] = [
  ['replica_missing', 'REPLICA_MISSING'],
  ['archive', 'ARCHIVE'],
  ['verification', 'VERIFICATION'],
  ['memory', 'MEMORY'],
  ['region_away', 'REGION_AWAY'],
];

/** A rule and its message; null: its condition does not hold. */
type Judged = readonly [AlertRuleName, string | null];

function conditionsOfService(service: ServiceFacts, facts: Facts, ruleIn: RuleOf): Condition[] {
  const { id, project_id: projectId, name, warnings } = service;
  const thresholdOf = (rule: AlertRuleName): number => ruleIn(projectId, rule).threshold;
  const warned = (code: Warning['code']): string | null =>
    warnings.find((warning) => warning.code === code)?.message ?? null;
  const judged: Judged[] = [
    ['unstable', unstable(service)],
    ['failover', failover(service, facts.now, thresholdOf('failover'))],
    ['disk', filled(service, thresholdOf('disk')) ?? warned('STORAGE')],
    ['disk_full', filled(service, thresholdOf('disk_full'))],
    ['connections', connected(service, thresholdOf('connections'))],
    ['lag', behind(service, thresholdOf('lag'))],
    [
      'backup',
      warned('SNAPSHOT') ??
        warned('REPOSITORY') ??
        overdue(service, facts.now, thresholdOf('backup')),
    ],
    ...BY_WARNING.map(([rule, code]): Judged => [rule, warned(code)]),
  ];
  return judged.flatMap(([rule, message]) =>
    message === null ? [] : [{ projectId, rule, subject: id, serviceId: id, about: name, message }],
  );
}

const unstable = ({ id, status }: ServiceFacts): string | null =>
  status === 'UNSTABLE'
    ? `the service must accept connections and does not; howdah service get ${id} shows why`
    : null;

function failover(
  { id, failed_over: at }: ServiceFacts,
  now: Date,
  minutes: number,
): string | null {
  if (at === null || now.getTime() - at.getTime() >= minutes * 60_000) return null;
  return (
    `a failover ended at ${at.toISOString()}; ` +
    `howdah operation list --service ${id} --kind failover shows it`
  );
}

function filled(
  { id, storage_gb: quotaGb, storage_mb: usedMb }: ServiceFacts,
  threshold: number,
): string | null {
  if (usedMb === null) return null;
  const percent = usedMb / (quotaGb * 10);
  if (percent < threshold) return null;
  return (
    `the data takes ${Math.floor(percent)} % of storage_gb (${quotaGb} GB): delete some of it, ` +
    `or howdah service resize ${id} --storage-gb`
  );
}

function connected(
  { connections, memory_gbs: memoryGbs }: ServiceFacts,
  threshold: number,
): string | null {
  const most = maxConnectionsOf(memoryGbs);
  if (connections === null || connections < (most * threshold) / 100) return null;
  return (
    `a server has ${connections} of ${most} connections: use the pooler, or a larger size ` +
    '(howdah service enable-pooler)'
  );
}

function behind({ lag_seconds: seconds }: ServiceFacts, threshold: number): string | null {
  if (seconds === null || seconds < threshold) return null;
  return `a replica is ${Math.floor(seconds)} s behind; howdah metrics describe shows the series`;
}

/** A backup by schedule is tried until it works. */
function overdue({ id, backup_due: due }: ServiceFacts, now: Date, hours: number): string | null {
  const sinceMs = due === null ? 0 : now.getTime() - due.getTime();
  if (due === null || sinceMs < hours * HOUR_MS) return null;
  return (
    `a backup to a repository is due since ${due.toISOString()}, ` +
    `${Math.floor(sinceMs / HOUR_MS)} hours; howdah backup status ${id} shows why`
  );
}

function conditionsOfKey(
  { public_key: subject, project_id: projectId, name, expires_at: expires }: KeyFacts,
  { now }: Facts,
  ruleIn: RuleOf,
): Condition[] {
  const rule = 'key_expiring';
  if (daysUntil(expires, now) >= ruleIn(projectId, rule).threshold) return [];
  const message =
    `the key ${subject} expires at ${expires.toISOString()}; ` +
    'howdah key create makes one that takes its place';
  return [{ projectId, rule, subject, serviceId: null, about: `key ${name}`, message }];
}

/** Conditions of the installation, which its operator gets. */
function conditionsOfInstallation(
  { now, operatorProject: projectId, regions, certificateExpires: expires }: Facts,
  ruleIn: RuleOf,
): Condition[] {
  if (projectId === null) return [];
  const base = { projectId, serviceId: null };
  const disks = regions.map(({ code, message }): Condition => ({
    ...base,
    rule: 'region_disk',
    subject: code,
    about: `region ${code}`,
    message,
  }));
  const rule = 'certificate_expiring';
  if (expires === null || daysUntil(expires, now) >= ruleIn(projectId, rule).threshold)
    return disks;
  const message =
    `the certificate of the API expires at ${expires.toISOString()}; ` +
    'renew the files of HOWDAH_TLS_CERT and HOWDAH_TLS_KEY';
  return [...disks, { ...base, rule, subject: 'api', about: 'certificate of the API', message }];
}

const daysUntil = (moment: Date, now: Date): number => (moment.getTime() - now.getTime()) / DAY_MS;
