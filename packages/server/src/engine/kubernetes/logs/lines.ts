/**
 * The lines of PostgreSQL in the output of a container. A tenant writes their messages, so each is
 * input. Kubernetes stamps each line when the container writes it, and a line is known by its
 * stamp: PostgreSQL's own times repeat, and are out of order.
 */
import { createHash } from 'node:crypto';
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import type { LogEntry, LogOrigin } from '@howdah/contract';

/** Characters of a message that are kept and shown. */
export const MAX_MESSAGE = 64 * 1024;

/** A line as the instance manager of CloudNativePG prints it for one of PostgreSQL. */
const LINE = Type.Object({
  record: Type.Object({
    log_time: Type.String({ maxLength: 100 }),
    error_severity: Type.String({ maxLength: 20 }),
    message: Type.String(),
    process_id: Type.Optional(Type.String({ pattern: '^[0-9]{1,10}$' })),
    user_name: Type.Optional(Type.String()),
    database_name: Type.Optional(Type.String()),
    application_name: Type.Optional(Type.String()),
    connection_from: Type.Optional(Type.String()),
    session_id: Type.Optional(Type.String()),
    session_line_num: Type.Optional(Type.String({ pattern: '^[0-9]{1,15}$' })),
    session_start_time: Type.Optional(Type.String()),
    command_tag: Type.Optional(Type.String()),
    sql_state_code: Type.Optional(Type.String()),
    backend_type: Type.Optional(Type.String()),
  }),
});
type Record = Static<typeof LINE>['record'];

/** `at`: its stamp; ns since the epoch, with 19 digits, so that texts compare as numbers do. */
export type LogLine = Readonly<{ at: string; entry: LogEntry }>;

/** The lines of PostgreSQL in an output with stamps, newest first. */
export function* linesIn(output: string): Generator<LogLine> {
  for (const raw of wholeLines(output).toReversed()) {
    const line = lineIn(raw);
    if (line !== null) yield line;
  }
}

/** The last piece is being written, was cut, or is empty. */
const wholeLines = (output: string): string[] => output.split('\n').slice(0, -1);

/** The stamp of the first line, of any program; null: there is none. */
export const firstStamp = (output: string): string | null => stampIn(output)?.at ?? null;

/** The stamp of the last line, of any program; null: there is none. */
export function lastStamp(output: string): string | null {
  const end = output.lastIndexOf('\n');
  return end === -1 ? null : firstStamp(output.slice(output.lastIndexOf('\n', end - 1) + 1));
}

function lineIn(raw: string): LogLine | null {
  const stamp = stampIn(raw);
  if (stamp === null) return null;
  let parsed: unknown;
  try {
    parsed = JSON.parse(raw.slice(stamp.end));
  } catch {
    return null; // of another program in the pod
  }
  if (!Value.Check(LINE, parsed)) return null;
  const { log_time: time, error_severity: severity, message } = parsed.record;
  // "2026-11-26 07:20:01.123 UTC": log_timezone is UTC.
  const ms = Date.parse(time.replace(/^(\S+) (\S+) UTC$/, '$1T$2Z'));
  if (Number.isNaN(ms)) return null;
  const timestamp = new Date(ms).toISOString();
  const origin = originIn(parsed.record);
  return { at: stamp.at, entry: { timestamp, severity, message: cut(message), origin } };
}

/** The session of a line: CloudNativePG has the columns of csvlog as texts. */
function originIn(record: Record): LogOrigin {
  const { process_id: pid, session_line_num: line, connection_from: from } = record;
  const texts = {
    user_name: record.user_name,
    database_name: record.database_name,
    application_name: record.application_name,
    client: from?.replace(/:\d+$/, ''),
    session_id: record.session_id,
    session_start: record.session_start_time,
    command_tag: record.command_tag,
    error_code: record.sql_state_code,
    backend_type: record.backend_type,
  };
  return {
    ...(pid === undefined ? {} : { process_id: Number(pid) }),
    ...(line === undefined ? {} : { session_line: Number(line) }),
    ...Object.fromEntries(Object.entries(texts).filter(([, text]) => (text ?? '') !== '')),
  };
}

const cut = (message: string): string =>
  message.length <= MAX_MESSAGE
    ? message
    : `${message.slice(0, MAX_MESSAGE)}\n[cut after ${MAX_MESSAGE / 1024} KiB]`;

const STAMP = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) /;
const SECOND_DIGITS = 10;

function stampIn(raw: string): { at: string; end: number } | null {
  const [whole, time, fraction = '', zone] = STAMP.exec(raw.slice(0, MAX_STAMP)) ?? [];
  if (whole === undefined) return null;
  const seconds = String(Date.parse(`${time}${zone}`) / 1000);
  if (!/^\d+$/.test(seconds) || seconds.length !== SECOND_DIGITS) return null;
  return { at: `${seconds}${fraction.padEnd(9, '0')}`, end: whole.length };
}

const MAX_STAMP = 40;

/** The stamp of a moment; ms since the epoch. */
export const stampOf = (ms: number): string =>
  `${String(Math.min(Math.max(0, Math.floor(ms)), MAX_MS)).padStart(13, '0')}000000`;
/** The last one with 13 digits, in the year 2286. */
const MAX_MS = 9_999_999_999_999;

/** The second of a stamp, as a time of the API of Kubernetes. */
export const secondOf = (at: string): string =>
  new Date(Number(at.slice(0, SECOND_DIGITS)) * 1000).toISOString();

/** The name of a pod in kept logs and cursors. @param uid of the pod */
export const podTag = (uid: string): string =>
  createHash('sha256').update(uid).digest('hex').slice(0, 12);
