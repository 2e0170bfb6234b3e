/**
 * Values of the API's fields that clients choose from. They stand apart from the schemas: the
 * command line and the console import them without the schema library.
 */

/** Which state of the parent a fork begins with. */
export const FORK_STRATEGIES = ['NOW', 'LAST_SNAPSHOT', 'PITR'] as const;
export type ForkStrategy = (typeof FORK_STRATEGIES)[number];

/** Which state of its parent a fork is reset to; BEGINNING: the state that it was made with. */
export const RESET_TARGETS = ['NOW', 'BEGINNING', 'PITR'] as const;
export type ResetTarget = (typeof RESET_TARGETS)[number];

/** The kinds of drill: the death of the primary, or a planned change of it. */
export const DRILL_KINDS = ['failover', 'switchover'] as const;
export type DrillKind = (typeof DRILL_KINDS)[number];

/** The quantities that a project can have limits for. */
export const PROJECT_LIMITS = ['services', 'replica_sets', 'cpu_millis', 'memory_gbs'] as const;
export type ProjectLimit = (typeof PROJECT_LIMITS)[number];

/**
 * How the samples inside one bucket of a series are combined. rate: their increase per second;
 * min_total and max_total: the extremes of the sum over all servers, which is one series.
 */
export const SERIES_FUNCTIONS = [
  'last',
  'avg',
  'min',
  'max',
  'sum',
  'rate',
  'increase',
  'count',
  'min_total',
  'max_total',
  'p50',
  'p90',
  'p99',
] as const;
export type SeriesFunction = (typeof SERIES_FUNCTIONS)[number];

/**
 * Types of events. `operation.step` comes when a step begins and when it ends (`finished`), for
 * fast steps only at the end. In packages/server/migrations, 0009_events.sql, 0011_vpc_events.sql
 * and 0024_allow_lists.sql write the events; service.purged comes from store/services.ts,
 * service.expiring from store/expiry.ts; service.restore_at_risk and disk.reserve, which only the
 * operator's project gets, from store/events.ts.
 */
export const EVENT_TYPES = [
  'service.status',
  'service.warnings',
  'service.vpc',
  'service.restore_at_risk',
  'service.purged',
  'service.expiring',
  'operation.started',
  'operation.step',
  'operation.failing',
  'operation.finished',
  'disk.reserve',
  'vpc.status',
  'peering.status',
  'allow_list.status',
  'service.allow_list',
] as const;
export type EventType = (typeof EVENT_TYPES)[number];

/** Types of exporters. Howdah pushes the last two; Tiger Cloud does not have them. */
export const EXPORTER_TYPES = [
  'PROMETHEUS_METRICS',
  'PROMETHEUS_REMOTE_WRITE',
  'OTLP_METRICS',
] as const;
export type ExporterType = (typeof EXPORTER_TYPES)[number];

/** Types of Tiger Cloud that have nothing behind them here. */
export const REFUSED_EXPORTER_TYPES = [
  'DATADOG_METRICS',
  'CLOUDWATCH_METRICS',
  'CLOUDWATCH_LOGS',
  'AZURE_MONITOR_METRICS',
] as const;
export type RefusedExporterType = (typeof REFUSED_EXPORTER_TYPES)[number];

/** The kinds of storage that a repository may be in. */
export const REPOSITORY_TYPES = ['s3', 'azure', 'gcs', 'sftp', 'path'] as const;
export type RepositoryType = (typeof REPOSITORY_TYPES)[number];

/** How long backups are kept in a repository, in days. */
export const RETENTION_DAYS = { min: 1, max: 180, default: 14 } as const;

export const DELIVERY_STATUSES = ['pending', 'delivered', 'failed'] as const;
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number];

/** The kinds of destinations of alerts. */
export const DESTINATION_TYPES = ['smtp', 'slack', 'teams', 'pagerduty', 'webhook'] as const;
export type DestinationType = (typeof DESTINATION_TYPES)[number];

/** How a connection to a mail server is encrypted: from its begin, by STARTTLS, or not. */
export const SMTP_ENCRYPTIONS = ['tls', 'starttls', 'none'] as const;
export type SmtpEncryption = (typeof SMTP_ENCRYPTIONS)[number];

export const INCIDENT_STATUSES = ['open', 'resolved'] as const;
export type IncidentStatus = (typeof INCIDENT_STATUSES)[number];

export const AUDIT_OUTCOMES = ['allowed', 'refused'] as const;
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];

// The texts of networks, for the OpenAPI document. The server checks the networks.

const OCTET = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';

/** The values of an octet that has so many bits of a network: of 2 bits, 0, 64, 128 and 192. */
function begins(bits: number): string {
  if (bits === 8) return OCTET;
  // A list of 128 would be long.
  if (bits === 7) return '(25[024]|2[0-4][02468]|1[0-9][02468]|[1-9]?[02468])';
  const step = 2 ** (8 - bits);
  return `(${Array.from({ length: 2 ** bits }, (_, index) => index * step).join('|')})`;
}

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

const VPC_SIZES = [
  '0\\.0/16',
  ...range(1, 8).map((bits) => `${begins(bits)}\\.0/${16 + bits}`),
  ...range(1, 4).map((bits) => `${OCTET}\\.${begins(bits)}/${24 + bits}`),
];

const PRIVATE = `(10\\.${OCTET}|172\\.(1[6-9]|2[0-9]|3[01])|192\\.168)`;
/** A private network, from /16 to /28, without a bit beyond it: 10.1.0.0/16. */
export const VPC_CIDR_PATTERN = `^${PRIVATE}\\.(${VPC_SIZES.join('|')})$`;

export const IPV4 = `${OCTET}(\\.${OCTET}){3}`;

const GROUP = '[0-9A-Fa-f]{1,4}';
const groups = (most: number): string =>
  most === 0 ? '' : `(${GROUP}(:${GROUP}){0,${most - 1}})?`;
/** Eight groups; or so many before `::`, and at most seven altogether. */
const IPV6 = [
  `(${GROUP}:){7}${GROUP}`,
  `::${groups(7)}`,
  ...range(1, 7).map((count) => `(${GROUP}:){${count}}:${groups(7 - count)}`),
].join('|');
export const IPV6_IN_URL = `\\[(${IPV6})\\]`;

const SIZE_4 = '(3[0-2]|[12]?[0-9])';
const SIZE_6 = '(12[0-8]|1[01][0-9]|[1-9]?[0-9])';

/** A network, IPv4 or IPv6. That no bit is beyond it is not part of the pattern. */
export const NETWORK_PATTERN = `^(${IPV4}/${SIZE_4}|(${IPV6})/${SIZE_6})$`;

/**
 * The form of restore certificates, and of their page. A change of either takes another number.
 */
export const CERTIFICATE_FORMAT = 'howdah restore certificate 1';

/** The own part of each lease: a server, or a database in a server that leases share. */
export const LEASE_RESETS = ['server', 'database'] as const;
export type LeaseReset = (typeof LEASE_RESETS)[number];
