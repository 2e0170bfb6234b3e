/** Schemas of logs, metrics and statements. */
import { Type } from 'typebox';
import { Named, StringEnum } from '../schema.ts';
import { closed, dateTime } from './parts.ts';
import { SERIES_FUNCTIONS } from '../values.ts';

export const LogEntrySchema = Type.Object({
  timestamp: Type.String(),
  message: Type.String(),
  severity: Type.String(),
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
    lastCursor: Type.Optional(Type.String({ description: 'the same, old spelling' })),
  }),
);

/** The series kept of every service, with their units in their names. */
export const SERIES_NAMES = [
  'cpu_millis',
  'memory_bytes',
  'storage_bytes',
  'connections',
  'transactions_per_second',
  'lag_bytes', // of those that follow
  'lag_seconds',
] as const;

export type SeriesName = (typeof SERIES_NAMES)[number];

export const SeriesBody = Named(
  'SeriesQuery',
  Type.Object(
    {
      name: Type.String({ maxLength: 64, description: 'one of available-series' }),
      from: dateTime('begin, inclusive'),
      to: dateTime('end, exclusive'),
      bucket_seconds: Type.Optional(
        Type.Integer({
          minimum: 60,
          maximum: 2_592_000,
          description: 'default 60; at most the 30 days for which samples are kept',
        }),
      ),
      fn: Type.Optional(StringEnum(SERIES_FUNCTIONS, { default: 'avg' })),
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
    labels: Type.Record(Type.String(), Type.String()),
    data: Type.Array(
      Type.Object({
        time: dateTime('begin of the bucket'),
        value: Type.Union([Type.Number(), Type.Null()]),
      }),
    ),
  }),
);

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

export const AnalyticsSchema = Named(
  'AnalyticsAnswer',
  Type.Object({ status: StringEnum(['success']) }),
);
