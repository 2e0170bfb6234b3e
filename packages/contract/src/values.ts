/**
 * Values of the API's fields that clients choose from. They stand apart from the schemas: the command line and the
 * console import them without the schema library.
 */

/** Which state of the parent a fork begins with. */
export const FORK_STRATEGIES = ['NOW', 'LAST_SNAPSHOT', 'PITR'] as const;
export type ForkStrategy = (typeof FORK_STRATEGIES)[number];

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
 * Types of events. `operation.step` comes when a step begins and when it ends (`finished`), for fast
 * steps only at the end. In packages/server/migrations, 0009_events.sql, 0011_vpc_events.sql and
 * 0024_allow_lists.sql write the events; service.purged comes from store/services.ts;
 * service.restore_at_risk and disk.reserve, which only the operator's project gets, from
 * store/events.ts.
 */
export const EVENT_TYPES = [
  'service.status',
  'service.warnings',
  'service.vpc',
  'service.restore_at_risk',
  'service.purged',
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

export const AUDIT_OUTCOMES = ['allowed', 'refused'] as const;
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];
