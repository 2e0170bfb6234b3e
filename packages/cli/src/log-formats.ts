/** Entries of a server log in the forms that PostgreSQL writes, for programs that read those. */
import type { Schemas } from '@howdah/client';

type Entry = Schemas['ServiceLogs']['entries'][number];

export const LOG_FORMATS = ['pgbadger', 'csv'] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

/** The log_line_prefix of the lines. */
export const LINE_PREFIX = '%m [%p]: user=%u,db=%d,app=%a,client=%h ';

export const formatEntry = (format: LogFormat, entry: Entry): string =>
  format === 'csv' ? csvLine(entry) : stderrLines(entry);

/** "2026-11-29T15:00:00.123Z" as `%m`. */
const moment = (timestamp: string): string => timestamp.replace('T', ' ').replace(/Z$/, ' UTC');

/** Names are those of users: a line that is written must have one meaning. */
const name = (text = ''): string => text.replaceAll(/[\p{Cc},]/gu, '_');

/** A message and its further parts, each with its keyword. */
function partsOf({ severity, message }: Entry): [keyword: string, text: string][] {
  const [first = '', ...more] = message.split(/\n(?=(?:DETAIL|HINT|STATEMENT): )/);
  return [
    [severity, first],
    ...more.map((part): [string, string] => {
      const end = part.indexOf(': ');
      return [part.slice(0, end), part.slice(end + 2)];
    }),
  ];
}

/** As log_destination = stderr writes it: the lines of a text after its first begin with a tab. */
function stderrLines(entry: Entry): string {
  const { process_id: pid = 0, client, ...origin } = entry.origin ?? {};
  const prefix =
    `${moment(entry.timestamp)} [${pid}]: user=${name(origin.user_name)},` +
    `db=${name(origin.database_name)},app=${name(origin.application_name)},client=${name(client)} `;
  return partsOf(entry)
    .map(([keyword, text]) => `${prefix}${keyword}:  ${text.replaceAll(/\r?\n|\r/g, '\n\t')}`)
    .join('\n');
}

/** As log_destination = csvlog writes it; columns that are not known are empty. */
function csvLine(entry: Entry): string {
  const { origin = {} } = entry;
  const parts = new Map(partsOf(entry).slice(1));
  const columns: (string | number | undefined)[] = [
    moment(entry.timestamp),
    origin.user_name,
    origin.database_name,
    origin.process_id,
    origin.client,
    origin.session_id,
    origin.session_line,
    origin.command_tag,
    origin.session_start,
    undefined, // virtual transaction
    undefined, // transaction
    entry.severity,
    origin.error_code,
    partsOf(entry)[0]?.[1],
    parts.get('DETAIL'),
    parts.get('HINT'),
    undefined, // internal query
    undefined, // its position
    undefined, // context
    parts.get('STATEMENT'),
    undefined, // its position
    undefined, // location
    origin.application_name,
    origin.backend_type,
    undefined, // leader
    0, // query id
  ];
  return columns
    .map((value) =>
      typeof value === 'string' ? `"${value.replaceAll('"', '""')}"` : (value ?? ''),
    )
    .join(',');
}
