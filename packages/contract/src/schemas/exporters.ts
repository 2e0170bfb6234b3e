/** Schemas of exporters: receivers of the metrics of services. */
import { Type } from 'typebox';
import { Named, oldSpelling, StringEnum } from '../schema.ts';
import { VISIBLE_PATTERN } from '../text.ts';
import { EXPORTER_TYPES, REFUSED_EXPORTER_TYPES } from '../values.ts';
import { dateTime, httpUrl, ignored, moment, name, regionCode } from './parts.ts';

const text = (maxLength: number, description: string) =>
  Type.String({ minLength: 1, maxLength, pattern: VISIBLE_PATTERN, description });

const enablePgMetrics = Type.Boolean({
  description: 'kept for clients of Tiger Cloud; statistics of tables are not sampled',
});

const includePgMetrics = oldSpelling(
  Type.Boolean({ description: 'the same, old spelling' }),
  'IncludePgMetricsDeprecated',
);

export const exporterId = (description: string) => Type.String({ format: 'uuid', description });

export const ExporterConfigSchema = Type.Object({
  endpoint: Type.Optional(
    Type.String({ description: 'PROMETHEUS_METRICS: the URL that a Prometheus scrapes' }),
  ),
  url: Type.Optional(Type.String({ description: 'where samples are pushed to' })),
  username: Type.Optional(Type.String()),
  header_names: Type.Optional(
    Type.Array(Type.String(), { description: 'OTLP_METRICS: the headers that are sent' }),
  ),
  enable_pg_metrics: Type.Optional(enablePgMetrics),
  include_pg_metrics: Type.Optional(includePgMetrics),
});

export const ExporterSchema = Named(
  'Exporter',
  Type.Object({
    exporter_id: exporterId('of this exporter'),
    project_id: Type.String(),
    name: Type.String(),
    type: StringEnum(EXPORTER_TYPES),
    region_code: Type.String(),
    created: dateTime('when it was created'),
    config: ExporterConfigSchema,
    last_success: Type.Optional(
      moment('when a receiver last accepted samples; null: never. Absent where they are scraped'),
    ),
    warning: Type.Optional(
      Type.String({ description: 'why samples are not accepted now, and what fixes it' }),
    ),
    ignored,
  }),
);

export type Exporter = Type.Static<typeof ExporterSchema>;

const config = Type.Object(
  {
    url: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 2048,
        pattern: VISIBLE_PATTERN,
        ...httpUrl,
        description:
          'PROMETHEUS_REMOTE_WRITE, OTLP_METRICS: http or https, without user and password',
      }),
    ),
    username: Type.Optional(text(128, 'for Basic authentication, without a colon')),
    password: Type.Optional(text(256, 'for Basic authentication; no answer shows it')),
    bearer_token: Type.Optional(
      text(4096, 'PROMETHEUS_REMOTE_WRITE: in place of username and password; no answer shows it'),
    ),
    headers: Type.Optional(
      Type.Record(Type.String(), Type.String({ maxLength: 4096 }), {
        maxProperties: 16,
        description: 'OTLP_METRICS: further headers; no answer shows their values',
      }),
    ),
    enable_pg_metrics: Type.Optional(enablePgMetrics),
    include_pg_metrics: Type.Optional(includePgMetrics),
  },
  { description: 'what the type needs' },
);

export type ExporterConfig = Type.Static<typeof config>;

const type = StringEnum([...EXPORTER_TYPES, ...REFUSED_EXPORTER_TYPES], {
  description: `${EXPORTER_TYPES.join(', ')}; the others are refused with what to use instead`,
});

export const CreateExporterBody = Named(
  'CreateExporter',
  Type.Object({
    name: name('1 to 128 characters'),
    type,
    region_code: regionCode('of its services'),
    config,
  }),
);

export type CreateExporterBody = Type.Static<typeof CreateExporterBody>;

export const UpdateExporterBody = Named(
  'UpdateExporter',
  Type.Object({
    name: Type.Optional(name('1 to 128 characters')),
    type: Type.Optional(type),
    config: Type.Optional(config),
  }),
);

export type UpdateExporterBody = Type.Static<typeof UpdateExporterBody>;

export const ExporterInputBody = Named(
  'ServiceExporterInput',
  Type.Object({ exporter_id: text(64, 'the exporter') }),
);
