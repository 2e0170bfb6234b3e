import { SERIES_NAMES } from '@howdah/contract';
import { Type } from 'typebox';
import { body, findService, pathOf, type Cloud } from '../cloud.ts';
import { addTool, closed, service, type ToolServer } from '../tool.ts';

/** The approximate number of points of a series. */
const POINTS = 60;

export function addObserveTools(server: ToolServer, cloud: Cloud): void {
  addGetLogs(server, cloud);
  addGetMetrics(server, cloud);
}

function addGetLogs(server: ToolServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'get_logs',
    {
      title: 'Read the server log of a service',
      description:
        "PostgreSQL's log, newest first. Free. Search for severities ERROR and FATAL first; " +
        'the log holds statements that failed.',
      kind: 'read',
      input: Type.Object(
        {
          service,
          search: Type.Optional(
            Type.Array(Type.String({ maxLength: 256 }), {
              maxItems: 20,
              description: 'lines must contain all of these',
            }),
          ),
          severities: Type.Optional(
            Type.Array(Type.String({ maxLength: 32 }), {
              maxItems: 20,
              description: 'LOG, WARNING, ERROR, FATAL, PANIC',
            }),
          ),
          since: Type.Optional(Type.String({ description: '2026-01-31T12:00:00Z' })),
          until: Type.Optional(Type.String()),
          limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 500, default: 50 })),
        },
        closed,
      ),
    },
    async ({ service: wanted, limit = 50, ...query }) => {
      const found = await findService(cloud, wanted);
      const { logs, last_cursor } = body(
        await client.GET('/projects/{project_id}/services/{service_id}/logs', {
          params: { path: pathOf(found), query },
        }),
      );
      const lines = logs.slice(0, limit);
      const more = logs.length > limit || last_cursor !== undefined;
      return {
        summary:
          `${lines.length} lines of ` +
          `${found.name}${more ? ', and there are older ones (until)' : ''}.`,
        data: { lines, more },
      };
    },
  );
}

function addGetMetrics(server: ToolServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'get_metrics',
    {
      title: 'What a service uses',
      description:
        'Recent use of cores, memory, disk, connections and transactions: ' +
        'for each series the last, minimum, mean and maximum of its averages; ' +
        `with name, its points too. Free. Series: ${SERIES_NAMES.join(', ')}.`,
      kind: 'read',
      input: Type.Object(
        {
          service,
          name: Type.Optional(
            Type.Enum([...SERIES_NAMES], { description: 'one series, with its points' }),
          ),
          minutes: Type.Optional(
            Type.Integer({
              minimum: 1,
              maximum: 43_200,
              default: 60,
              description: 'how far back; 30 days are kept',
            }),
          ),
        },
        closed,
      ),
    },
    async ({ service: wanted, name, minutes = 60 }) => {
      const found = await findService(cloud, wanted);
      const to = new Date();
      const from = new Date(to.getTime() - minutes * 60_000);
      const bucket_seconds = Math.max(60, Math.ceil(minutes / POINTS) * 60);
      const read = async (one: (typeof SERIES_NAMES)[number]) => {
        const series = body(
          await client.POST('/projects/{project_id}/services/{service_id}/metrics/series', {
            params: { path: pathOf(found) },
            body: {
              name: one,
              from: from.toISOString(),
              to: to.toISOString(),
              bucket_seconds,
              fn: 'avg',
            },
          }),
        );
        return series.map(({ labels, data }) => {
          const values = data.flatMap(({ value }) => (value === null ? [] : [value]));
          return {
            name: one,
            node: labels['node'] ?? '0',
            ...summaryOf(values),
            ...(name === undefined ? {} : { bucket_seconds, points: data }),
          };
        });
      };
      const series = (await Promise.all((name === undefined ? SERIES_NAMES : [name]).map(read)))
        .flat()
        .filter(({ samples }) => samples > 0);
      const words = series.map(
        ({ name: one, node, last }) =>
          `${one} ${last ?? '-'}${node === '0' ? '' : ` (node ${node})`}`,
      );
      return {
        summary: `${found.name}, last ${minutes} min: ${words.join(', ') || 'nothing measured'}.`,
        data: { series },
      };
    },
  );
}

function summaryOf(values: readonly number[]) {
  if (values.length === 0) return { samples: 0, last: null, min: null, mean: null, max: null };
  return {
    samples: values.length,
    last: values.at(-1) ?? null,
    min: Math.min(...values),
    mean: values.reduce((sum, value) => sum + value, 0) / values.length,
    max: Math.max(...values),
  };
}
