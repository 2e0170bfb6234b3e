/** Schemas of logs, metrics and statements. */
import { Type } from 'typebox';
import { documented, Named, oldSpelling, StringEnum } from '../schema.ts';
import { closed, dateTime } from './parts.ts';
import { DATABASE_NAME } from '../types.ts';
import { SERIES_FUNCTIONS } from '../values.ts';

/** The session that wrote a line, as PostgreSQL's structured logs have it. */
const LogOriginSchema = Type.Object({
  process_id: Type.Optional(Type.Integer()),
  user_name: Type.Optional(Type.String()),
  database_name: Type.Optional(Type.String()),
  application_name: Type.Optional(Type.String()),
  client: Type.Optional(Type.String({ description: 'its address, or [local]' })),
  session_id: Type.Optional(Type.String()),
  session_line: Type.Optional(Type.Integer()),
  session_start: Type.Optional(Type.String()),
  command_tag: Type.Optional(Type.String()),
  error_code: Type.Optional(Type.String({ description: 'the SQLSTATE' })),
  backend_type: Type.Optional(Type.String()),
});

export type LogOrigin = Type.Static<typeof LogOriginSchema>;

export const LogEntrySchema = Type.Object({
  timestamp: Type.String(),
  message: Type.String(),
  severity: Type.String(),
  origin: Type.Optional(LogOriginSchema),
});

export type LogEntry = Type.Static<typeof LogEntrySchema>;

export const LogsSchema = Named(
  'ServiceLogs',
  Type.Object({
    logs: Type.Array(Type.String(), { description: 'one line an entry, newest first' }),
    entries: Type.Array(LogEntrySchema),
    last_cursor: Type.Optional(
      Type.String({
        description: 'pass it as cursor to get the next page; absent on the last page',
      }),
    ),
    lastCursor: Type.Optional(
      oldSpelling(Type.String({ description: 'the same, old spelling' }), 'LastCursorDeprecated'),
    ),
  }),
);

/** The series kept of every service, with their units in their names. */
export const SERIES_NAMES = [
  'cpu_millis',
  'cpu_guaranteed_millis',
  'cpu_beyond_millis', // used beyond what is guaranteed
  'cpu_wait_millis', // processes that waited for a processor
  'write_wait_millis', // of the time, in which the disk was shared out and its writes waited
  'memory_bytes',
  'storage_bytes',
  'connections',
  'transactions_per_second',
  'lag_bytes', // of those that follow
  'lag_seconds',
] as const;

export type SeriesName = (typeof SERIES_NAMES)[number];

/**
 * The series of Tiger Cloud that there is a measure for, by the names that its clients ask for. A
 * total is that of the size that the service has now: of memory the limit, which the shared size
 * has not, and of CPU the guarantee. Source: the descriptions of MetricsSeriesRequest in
 * openapi.yaml of github.com/timescale/tiger-cli. Its names for disk operations, queries and jobs
 * are missing: these are not sampled.
 */
export const TIGER_SERIES = {
  timescale_cloud_system_cpu_usage_millicores: 'cpu_millis',
  timescale_cloud_system_cpu_total_millicores: 'cpu_guaranteed_millis',
  timescale_cloud_system_memory_usage_bytes: 'memory_bytes',
  timescale_cloud_system_memory_total_bytes: 'memory_limit_bytes',
  timescale_cloud_system_disk_usage_bytes: 'storage_bytes',
  timescale_cloud_database_num_connections: 'connections',
} as const satisfies Record<string, SeriesName | 'memory_limit_bytes'>;

const ALL_SERIES = [...SERIES_NAMES, ...Object.keys(TIGER_SERIES)];

/** The same by the names that Tiger Cloud gives them. */
const tigerFunctions = SERIES_FUNCTIONS.map((fn) => fn.toUpperCase());

export const SeriesBody = Named(
  'SeriesQuery',
  Type.Object(
    {
      name: Type.String({
        maxLength: 64,
        ...documented({ pattern: `^(${ALL_SERIES.join('|')})$` }),
        description: 'one of available-series',
      }),
      from: dateTime('begin, inclusive'),
      to: dateTime('end, exclusive'),
      bucket_seconds: Type.Optional(
        Type.Integer({
          minimum: 60,
          maximum: 2_592_000,
          description:
            'default: a minute for up to an hour, an hour for up to 30 days, else a day; at most ' +
            'the 30 days for which samples are kept',
        }),
      ),
      // One enumeration with both would have the same constant twice in generated clients.
      fn: Type.Optional(
        Type.Union([StringEnum(SERIES_FUNCTIONS), StringEnum(tigerFunctions)], {
          default: 'last',
          description:
            `${SERIES_FUNCTIONS.join(', ')}, or in capitals as Tiger Cloud has them; increase: ` +
            'counted from zero after each decrease, rate: the same per second; min_total, ' +
            'max_total: of the sum over all servers',
        }),
      ),
      filters: Type.Optional(
        Type.Array(
          Type.Object(
            { key: Type.String({ maxLength: 64 }), value: Type.String({ maxLength: 128 }) },
            closed,
          ),
          { maxItems: 16 },
        ),
      ),
    },
    closed,
  ),
);

export type SeriesBody = Type.Static<typeof SeriesBody>;

export const SeriesSchema = Named(
  'Series',
  Type.Object({
    labels: Type.Record(Type.String(), Type.String(), {
      description: 'node: the number of the server; role: primary or replica, as it is now',
    }),
    data: Type.Array(
      Type.Object({
        time: dateTime('begin of the bucket'),
        value: Type.Union([Type.Number(), Type.Null()]),
      }),
    ),
  }),
);

export const SERIES_UNITS = [
  'millicores',
  'thousandths',
  'bytes',
  'connections',
  '1/s',
  'seconds',
] as const;

export type SeriesUnit = (typeof SERIES_UNITS)[number];

export const SeriesDetailsSchema = Named(
  'SeriesDetails',
  Type.Object({
    name: Type.String(),
    description: Type.String(),
    unit: StringEnum(SERIES_UNITS),
    labels: Type.Array(Type.String(), { description: 'by which series can be filtered' }),
    functions: Type.Array(StringEnum(SERIES_FUNCTIONS), {
      description: 'how values can be combined; also in capitals',
    }),
  }),
);

export type SeriesDetails = Type.Static<typeof SeriesDetailsSchema>;

/** The most rows of one answer, and the longest time that a statement may take. */
export const QUERY_MAX_ROWS = 10_000;

export const QUERY_MAX_TIMEOUT_MS = 60_000;

export const QueryBody = Named(
  'Query',
  Type.Object({
    sql: Type.String({
      minLength: 1,
      description: 'one statement that only reads; $1, $2, … are the parameters',
    }),
    database: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 63,
        default: DATABASE_NAME,
        description: 'the database of the service in which it runs',
      }),
    ),
    parameters: Type.Optional(
      Type.Array(Type.Union([Type.String(), Type.Null()]), {
        maxItems: 100,
        description: "PostgreSQL's text of each, or null",
      }),
    ),
    max_rows: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: QUERY_MAX_ROWS,
        default: 100,
        description: 'more rows than these are not answered',
      }),
    ),
    timeout_ms: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: QUERY_MAX_TIMEOUT_MS,
        default: 10_000,
        description: 'a statement that takes longer is ended',
      }),
    ),
  }),
);

export type QueryBody = Type.Static<typeof QueryBody>;

export const QueryResultSchema = Named(
  'QueryResult',
  Type.Object({
    columns: Type.Array(
      Type.Object({
        name: Type.String(),
        type: Type.String({ description: 'as PostgreSQL writes it: numeric(10,2)' }),
      }),
    ),
    rows: Type.Array(Type.Array(Type.Union([Type.String(), Type.Null()])), {
      description: "each value as PostgreSQL's text, or null",
    }),
    row_count: Type.Integer({ description: 'of the rows that are answered' }),
    truncated: Type.Boolean({
      description: 'whether there were more rows: more than max_rows, or more than 4 MiB',
    }),
    elapsed_ms: Type.Number({ description: 'from sending the statement to its last row' }),
  }),
);

export type QueryResult = Type.Static<typeof QueryResultSchema>;

export const FeedbackBody = Named(
  'Feedback',
  Type.Object({
    message: Type.String({ minLength: 1, maxLength: 8192, description: 'what the operator reads' }),
    source: Type.Optional(
      Type.String({ maxLength: 64, description: 'the program that it was written in: cli, mcp' }),
    ),
    version: Type.Optional(Type.String({ maxLength: 64, description: 'of this program' })),
    os: Type.Optional(Type.String({ maxLength: 64, description: 'that the program runs on' })),
  }),
);

export type FeedbackBody = Type.Static<typeof FeedbackBody>;

export const AnalyticsSchema = Named(
  'AnalyticsAnswer',
  Type.Object({ status: StringEnum(['success']) }),
);
