import type { Schemas } from '@howdah/client';
import { SERIES_FUNCTIONS, type SeriesFunction } from '@howdah/contract/values';
import { Option, type Command } from 'commander';
import { countOf, given, noun, verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findPath } from '../find.ts';
import { momentOf, MOMENTS } from '../moment.ts';
import { say, showAs, table } from '../output.ts';

const HOUR_MS = 3_600_000;

type QueryOptions = Printing & {
  from?: string;
  to?: string;
  bucketSeconds?: string;
  fn?: SeriesFunction;
  filter?: Filter[];
};
type Filter = { key: string; value: string };

export function addMetrics(program: Command): void {
  const metrics = noun(program, 'metrics', 'Show what services use, over time.');

  verb(metrics, 'list <service>', {
    does: 'List the series that are measured for a service.',
    example: 'howdah metrics list orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const path = await findPath(connection, name);
    const series = await answered(
      connection.client.GET(
        '/projects/{project_id}/services/{service_id}/metrics/available-series',
        path,
      ),
    );
    await showAs(output, series, 'series', () => series.forEach((one) => say(one)));
  });

  verb(metrics, 'describe <service>', {
    does: 'Describe the series: what is measured, and in which unit.',
    example: 'howdah metrics describe orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const found = await answered(
      connection.client.GET(
        '/projects/{project_id}/services/{service_id}/metrics/details',
        await findPath(connection, name),
      ),
    );
    await showAs(output, found, 'series', () =>
      table(
        ['SERIES', 'UNIT', 'MEASURES'],
        found.map((one) => [one.name, one.unit, one.description]),
      ),
    );
  });

  verb(metrics, 'query <service> <series>', {
    does: 'Show a series over a period; default: the last hour.',
    example: 'howdah metrics query orders connections --fn max --bucket-seconds 300',
    takes: ['output'],
  })
    .option('--from <time>', `${MOMENTS}; default: an hour before the end`)
    .option('--to <time>', 'default: now')
    .option('--bucket-seconds <number>', 'seconds for each value, 60 or more')
    .addOption(
      new Option('--fn <function>', 'how the values in a bucket are combined').choices(
        SERIES_FUNCTIONS,
      ),
    )
    .option('--filter <label=value>', 'only series with this label; may be repeated', addFilter)
    .action(async (name: string, series: string, options: QueryOptions) => {
      const connection = await connect();
      const to = momentOf('--to', options.to ?? 'now');
      const body = {
        name: series,
        from: options.from === undefined ? hourBefore(to) : momentOf('--from', options.from),
        to,
        ...given(
          'bucket_seconds',
          options.bucketSeconds === undefined
            ? undefined
            : countOf('--bucket-seconds', options.bucketSeconds),
        ),
        ...given('fn', options.fn),
        ...given('filters', options.filter),
      };
      const path = await findPath(connection, name);
      const found = await answered(
        connection.client.POST('/projects/{project_id}/services/{service_id}/metrics/series', {
          ...path,
          body,
        }),
      );
      await showAs(options.output, found, 'series', () => sayAll(series, found));
    });
}

/** A column for each series, a row for each time. */
function sayAll(name: string, all: readonly Schemas['Series'][]): void {
  const titles = all.map(
    ({ labels }) =>
      Object.entries(labels)
        .map(([key, value]) => `${key}=${value}`)
        .join(' ') || name,
  );
  const rows = (all[0]?.data ?? []).map(({ time }, at) => [
    time,
    ...all.map(({ data }) => String(data[at]?.value ?? '')),
  ]);
  table(['TIME', ...titles], rows);
}

function addFilter(text: string, before: Filter[] = []): Filter[] {
  const at = text.indexOf('=');
  if (at < 1) throw new Failure(`--filter: found ${text}; expected label=value`, 'usage');
  return [...before, { key: text.slice(0, at), value: text.slice(at + 1) }];
}

function hourBefore(to: string): string {
  const ms = Date.parse(to);
  // The API refuses an invalid date-time, and names the field.
  return Number.isNaN(ms) ? to : new Date(ms - HOUR_MS).toISOString();
}
