/**
 * The rules of alerts and their defaults. The evaluation is `conditionsOf` of the server; the
 * command line and the console import this table without the schema library.
 */

/** Whether a message may pass quiet hours. */
export const SEVERITIES = ['critical', 'warning'] as const;
export type Severity = (typeof SEVERITIES)[number];

/** Units of thresholds, and their largest values. */
export const MAX_THRESHOLD = {
  percent: 100,
  seconds: 86_400,
  minutes: 1440,
  hours: 720,
  days: 365,
} as const;
export type ThresholdUnit = keyof typeof MAX_THRESHOLD;

/** The longest time that a condition must hold before its incident opens. */
export const MAX_FOR_MINUTES = 1440;

/** A rule as every project has it at first. */
export type RuleDefault = {
  severity: Severity;
  /** The condition of the rule, in words. */
  about: string;
  /** null: the condition has no figure. */
  threshold: { value: number; unit: ThresholdUnit } | null;
  /** How many minutes the condition must hold before an incident opens. */
  forMinutes: number;
};

export const ALERT_RULES = {
  unstable: {
    severity: 'critical',
    about: 'a service is UNSTABLE: it must accept connections and does not',
    threshold: null,
    forMinutes: 1,
  },
  failover: {
    severity: 'critical',
    about: 'a service has had a failover within the last minutes',
    threshold: { value: 15, unit: 'minutes' },
    forMinutes: 0,
  },
  disk: {
    severity: 'warning',
    about: 'the data of a service fills this part of its storage_gb, or the service warns of it',
    threshold: { value: 85, unit: 'percent' },
    forMinutes: 5,
  },
  disk_full: {
    severity: 'critical',
    about: 'the data of a service fills this part of its storage_gb: it is nearly read-only',
    threshold: { value: 95, unit: 'percent' },
    forMinutes: 0,
  },
  connections: {
    severity: 'warning',
    about: 'a server of a service has this part of the connections that it allows',
    threshold: { value: 80, unit: 'percent' },
    forMinutes: 5,
  },
  lag: {
    severity: 'warning',
    about: 'a replica, or a node of a read replica set, is this far behind',
    threshold: { value: 60, unit: 'seconds' },
    forMinutes: 5,
  },
  replica_missing: {
    severity: 'warning',
    about: 'a replica cannot take over, or a node of a read replica set gets no connections',
    threshold: null,
    forMinutes: 5,
  },
  archive: {
    severity: 'warning',
    about: 'WAL of a service cannot be archived, or the WAL archive has a gap',
    threshold: null,
    forMinutes: 5,
  },
  backup: {
    severity: 'warning',
    about:
      'a snapshot or a backup to a repository cannot be made, or a backup to a repository is ' +
      'due for this long',
    threshold: { value: 24, unit: 'hours' },
    forMinutes: 10,
  },
  verification: {
    severity: 'warning',
    about: 'the newest backup of a service could not be verified',
    threshold: null,
    forMinutes: 0,
  },
  memory: {
    severity: 'warning',
    about: 'the kernel ended processes of a service, since they used all memory of its size',
    threshold: null,
    forMinutes: 0,
  },
  region_away: {
    severity: 'critical',
    about: 'the cluster of a service on Kubernetes does not answer',
    threshold: null,
    forMinutes: 5,
  },
  region_disk: {
    severity: 'critical',
    about: 'the disk of a region is nearly full (project of the operator)',
    threshold: null,
    forMinutes: 0,
  },
  key_expiring: {
    severity: 'warning',
    about: 'a key of the project expires within this time',
    threshold: { value: 7, unit: 'days' },
    forMinutes: 0,
  },
  certificate_expiring: {
    severity: 'warning',
    about: 'the certificate of the API expires within this time (project of the operator)',
    threshold: { value: 14, unit: 'days' },
    forMinutes: 0,
  },
} as const satisfies Record<string, RuleDefault>;

export type AlertRuleName = keyof typeof ALERT_RULES;

const isRule = (name: string): name is AlertRuleName => name in ALERT_RULES;
export const ALERT_RULE_NAMES: readonly AlertRuleName[] = Object.keys(ALERT_RULES).filter(isRule);

/** The default of a rule, with the type that all rules share. */
export const defaultOf = (rule: AlertRuleName): RuleDefault => ALERT_RULES[rule];
