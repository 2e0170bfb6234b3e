import type { Schemas } from '@howdah/client';
import { Option, type Command } from 'commander';
import { setTimeout as sleep } from 'node:timers/promises';
import { given, verb, type Printing } from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findService, pathOf } from '../find.ts';
import { formatEntry, LINE_PREFIX, LOG_FORMATS, type LogFormat } from '../log-formats.ts';
import { momentIfGiven, MOMENTS } from '../moment.ts';
import { note, say, sayJson, showAs } from '../output.ts';

type Logs = Schemas['ServiceLogs'];
type Entry = Logs['entries'][number];
type Query = {
  search?: string;
  severities?: string;
  node?: string;
  since?: string;
  until?: string;
  cursor?: string;
};
type Options = Printing & {
  follow?: true;
  search?: string;
  severity?: string;
  node?: string;
  since?: string;
  until?: string;
  format?: LogFormat;
};

/** The interval of reads with --follow. */
const LOOK_MS = 1000;
/** How late a line may appear in the log. */
const OUT_OF_ORDER_MS = 10_000;

/** `howdah logs` */
export function addLogs(program: Command): void {
  addServiceLogs(program, 'howdah logs orders --follow --severity ERROR');
}

/** `howdah service logs`, the same. */
export function addServiceLogs(
  parent: Command,
  example = 'howdah service logs orders --search deadlock',
): void {
  verb(parent, 'logs <service>', {
    does: 'Print the newest 500 lines of a server log, oldest first; with --follow also new lines.',
    example,
    takes: ['output'],
  })
    .option('-f, --follow', 'print new lines until Ctrl-C; json and yaml print one entry each')
    .option('--search <text>', 'only lines that contain this text, in upper or lower case')
    .option('--severity <name>', 'only lines of this severity: LOG, WARNING, ERROR, FATAL, …')
    .option(
      '--node <number>',
      'the server log of this member; howdah service members shows the members',
    )
    .option('--since <time>', `only lines at or after it: ${MOMENTS}`)
    .option('--until <time>', 'only lines before it')
    .addOption(
      new Option(
        '--format <form>',
        'all lines as PostgreSQL writes them: for pgbadger (stderr, with a full prefix), or csv',
      ).choices(LOG_FORMATS),
    )
    .action(async (name: string, options: Options) => {
      if (options.follow === true && options.until !== undefined)
        throw new Failure('--follow and --until: give only one of them', 'usage');
      const connection = await connect();
      const { service_id: id } = await findService(connection, name);
      const query = {
        ...given('search', options.search),
        ...given('severities', options.severity),
        ...given('node', options.node),
        ...given('since', momentIfGiven('--since', options.since)),
        ...given('until', momentIfGiven('--until', options.until)),
      };
      if (options.format !== undefined) {
        if (options.follow === true)
          throw new Failure('--follow and --format: give only one of them', 'usage');
        return printAll(connection, id, query, options.format);
      }
      if (options.follow === true) {
        note('following the server log; Ctrl-C ends it');
        return followLogs(connection, id, query, options);
      }
      const page = await readPage(connection, id, query);
      await showAs(options.output, page, 'logs', () =>
        page.logs.toReversed().forEach((line) => say(line)),
      );
    });
}

/** Prints all lines, oldest first: the API has the newest first. */
async function printAll(
  connection: Connection,
  id: string,
  query: Query,
  format: LogFormat,
): Promise<void> {
  const { entries } = await readSince(connection, id, query);
  for (const entry of entries.toReversed()) say(formatEntry(format, entry));
  if (format === 'pgbadger') note(`pgbadger -f stderr --prefix '${LINE_PREFIX}' FILE`);
}

async function readPage(connection: Connection, id: string, query: Query): Promise<Logs> {
  const params = { ...pathOf(connection, id), query };
  return answered(
    connection.client.GET('/projects/{project_id}/services/{service_id}/logs', { params }),
  );
}

/**
 * Prints the existing lines, and then polls for new ones. Several processes write the log, so an
 * older line may appear after a newer one: each read goes back a little, and skips lines that were
 * printed before.
 */
async function followLogs(
  connection: Connection,
  id: string,
  query: Query,
  { output }: Printing,
): Promise<void> {
  let printed = new Map<string, number>();
  let page = await readPage(connection, id, query);
  const begun = page.entries.at(-1)?.timestamp ?? new Date().toISOString();
  let newest = begun;
  for (;;) {
    const seen = new Map<string, number>();
    for (const entry of page.entries.toReversed()) {
      const key = JSON.stringify(entry);
      const times = (seen.get(key) ?? 0) + 1;
      seen.set(key, times);
      if (times > (printed.get(key) ?? 0)) await showEntry(output, entry);
      if (entry.timestamp > newest) newest = entry.timestamp;
    }
    printed = seen;
    await sleep(LOOK_MS);
    const since = new Date(
      Math.max(Date.parse(newest) - OUT_OF_ORDER_MS, Date.parse(begun)),
    ).toISOString();
    page = await readSince(connection, id, { ...query, since });
  }
}

/** All pages of the newer lines. */
async function readSince(connection: Connection, id: string, query: Query): Promise<Logs> {
  const all = await readPage(connection, id, query);
  for (let cursor = all.last_cursor; cursor !== undefined;) {
    const older = await readPage(connection, id, { ...query, cursor });
    all.entries.push(...older.entries);
    cursor = older.last_cursor;
  }
  return all;
}

async function showEntry(output: Printing['output'], entry: Entry): Promise<void> {
  if (output === 'json') return sayJson(entry);
  if (output === 'yaml') say('---');
  await showAs(output, entry, 'entry', () =>
    say(`${entry.timestamp} ${entry.severity}: ${entry.message}`),
  );
}
