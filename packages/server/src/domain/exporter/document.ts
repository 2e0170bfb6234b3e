/** Exporters as the API answers them. */
import type { Exporter, ExporterType } from '@howdah/contract';

/** All of the configuration of an exporter that answers may show. */
export type PublicConfig = {
  url?: string;
  username?: string;
  header_names?: string[];
  enable_pg_metrics?: boolean;
};

type ExporterColumns = {
  id: string;
  project_id: string;
  name: string;
  type: ExporterType;
  region_code: string;
  region_alias: string | null;
  created: Date;
  config: PublicConfig;
  last_success: Date | null;
  last_error: string | null;
};

/** The path at which Prometheus scrapes an exporter. */
export const scrapePath = (id: string): string => `/exporters/${id}/metrics`;

/** @param origin of the API as the caller reaches it: https://howdah.example.com:8080 */
export function exporterDocument(row: ExporterColumns, origin: string): Exporter {
  const { enable_pg_metrics: enabled } = row.config;
  const isScraped = row.type === 'PROMETHEUS_METRICS';
  return {
    exporter_id: row.id,
    project_id: row.project_id,
    name: row.name,
    type: row.type,
    region_code: row.region_alias ?? row.region_code,
    created: row.created.toISOString(),
    config: {
      ...row.config,
      ...(enabled === undefined ? {} : { include_pg_metrics: enabled }),
      ...(isScraped ? { endpoint: `${origin}${scrapePath(row.id)}` } : {}),
    },
    ...(isScraped ? {} : { last_success: row.last_success?.toISOString() ?? null }),
    ...(row.last_error === null
      ? {}
      : {
          warning:
            `the last samples were not accepted: ${row.last_error}; ` +
            'samples of the last hour are pushed again',
        }),
  };
}
