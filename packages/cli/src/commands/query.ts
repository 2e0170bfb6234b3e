import type { Command } from 'commander';
import { countOf, verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { findPath } from '../find.ts';
import { duration, note, showAs, table } from '../output.ts';

type QueryOptions = Printing & {
  database?: string;
  parameter?: string[];
  maxRows: string;
  timeoutMs: string;
};

export function addQuery(program: Command): void {
  verb(program, 'query <service> <sql>', {
    does: 'Run one read-only statement.',
    example: "howdah query orders 'select * from orders where id = $1' --parameter 42",
    takes: ['output'],
  })
    .option('--database <name>', 'the database of the service; default: tsdb')
    .option('--parameter <text...>', 'values of the parameters $1, $2, …, in order')
    .option('--max-rows <number>', 'maximum number of rows, up to 10000', '100')
    .option('--timeout-ms <number>', 'time limit in milliseconds, up to 60000', '10000')
    .action(async (name: string, sql: string, options: QueryOptions) => {
      const connection = await connect();
      const body = {
        sql,
        ...(options.database === undefined ? {} : { database: options.database }),
        parameters: options.parameter ?? [],
        max_rows: countOf('--max-rows', options.maxRows),
        timeout_ms: countOf('--timeout-ms', options.timeoutMs),
      };
      const path = await findPath(connection, name);
      const result = await answered(
        connection.client.POST('/projects/{project_id}/services/{service_id}/query', {
          ...path,
          body,
        }),
      );
      const { columns, rows, row_count: count, truncated, elapsed_ms: tookMs } = result;
      await showAs(options.output, result, 'query', () => {
        const titles = columns.map((column) => column.name);
        if (columns.length > 0)
          table(
            titles,
            rows.map((row) => row.map((value) => value ?? 'NULL')),
          );
        note(
          `${count} row${count === 1 ? '' : 's'} in ${duration(tookMs)}${truncated ? '; there are more (--max-rows)' : ''}`,
        );
      });
    });
}
