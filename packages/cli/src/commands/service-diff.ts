/** `howdah service diff`: what one database has and another one has not. */
import type { Schemas } from '@howdah/client';
import type { SchemaDiff } from '@howdah/mcp/comparison';
import type { Command } from 'commander';
import { given, verb, type Printing } from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { findService, pathOf } from '../find.ts';
import { Failure } from '../exit.ts';
import { paint, say, showAs, table } from '../output.ts';

type Service = Schemas['Service'];
type Options = Printing & { counts?: true; database?: string; exitCode?: true };
type RowDiff = { table: string; from: number | null; to: number | null };
type Difference = { schema: SchemaDiff; rows: RowDiff[]; rows_are: 'counted' | 'estimated' };

/** Rows are counted within this time. */
const COUNT_MS = 60_000;

export function addDiff(service: Command): void {
  verb(service, 'diff <service> [other-service]', {
    does:
      'Show what the schema of a service has and that of another one has not, and tables with ' +
      'another number of rows. Without another one, a fork is compared with its parent.',
    example: 'howdah service diff try-indexes',
    takes: ['output'],
  })
    .option('--counts', 'count the rows; default: the estimates of the last ANALYZE')
    .option('--database <name>', 'this database of both; default: tsdb')
    .option('--exit-code', 'exit with 1 where there is a difference')
    .action(async (wanted: string, against: string | undefined, options: Options) => {
      const connection = await connect();
      const to = await findService(connection, wanted);
      const from = await findService(connection, against ?? parentOf(to));
      const difference = await compare(connection, from, to, options);
      await showAs(options.output, difference, 'diff', () => showDifference(from, to, difference));
      if (options.exitCode === true && !isSame(difference)) process.exitCode = 1;
    });
}

function parentOf({ name, forked_from: parent }: Service): string {
  if (parent !== undefined) return parent.service_id;
  throw new Failure(`${name} is no fork: name the service that it is compared with`, 'usage');
}

async function compare(
  connection: Connection,
  from: Service,
  to: Service,
  { counts, database }: Options,
): Promise<Difference> {
  // The statements are long, and no other command needs them.
  const { diffRows, diffSchemas, readContents } = await import('@howdah/mcp/comparison');
  const contentsOf = ({ name, service_id: id }: Service) =>
    readContents(
      name,
      (sql, max_rows) =>
        answered(
          connection.client.POST('/projects/{project_id}/services/{service_id}/query', {
            params: pathOf(connection, id),
            body: { sql, max_rows, timeout_ms: COUNT_MS, ...given('database', database) },
          }),
        ),
      counts === true,
    );
  const [before, after] = [await contentsOf(from), await contentsOf(to)];
  return {
    schema: diffSchemas(before.objects, after.objects),
    rows: diffRows(before.rows, after.rows),
    rows_are: counts === true ? 'counted' : 'estimated',
  };
}

/** An estimate that differs is no difference of the rows. */
const isSame = ({ schema, rows, rows_are: how }: Difference): boolean =>
  [schema.added, schema.removed, schema.changed, how === 'counted' ? rows : []].every(
    ({ length }) => length === 0,
  );

function showDifference(from: Service, to: Service, difference: Difference): void {
  const { schema, rows, rows_are: how } = difference;
  if (isSame(difference) && rows.length === 0) return say(`${to.name} has what ${from.name} has`);
  const line = (sign: string, { kind, name }: { kind: string; name: string }): string =>
    `${sign} ${kind} ${name}`;
  for (const one of schema.removed) {
    say(paint.red(line('-', one)));
    for (const part of one.parts ?? []) say(paint.red(`    ${part}`));
  }
  for (const one of schema.added) {
    say(paint.green(line('+', one)));
    for (const part of one.parts ?? [one.definition]) say(paint.green(`    ${part}`));
  }
  for (const one of schema.changed) {
    say(paint.yellow(line('~', one)));
    say(paint.red(`  - ${one.from}`));
    say(paint.green(`  + ${one.to}`));
  }
  if (rows.length === 0) return;
  const shown = (count: number | null): string => (count === null ? '?' : String(count));
  say();
  table(
    ['TABLE', `ROWS OF ${from.name}`, `ROWS OF ${to.name}`],
    rows.map((one) => [one.table, shown(one.from), shown(one.to)]),
  );
  if (how === 'estimated') say('Estimates of the last ANALYZE; --counts counts the rows.');
}
