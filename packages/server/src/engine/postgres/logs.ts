/**
 * Reading a server's structured logs back, newest first, page by page, and taking the oldest away.
 */
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { FileHandle } from 'node:fs/promises';
import type { LogEntry, LogOrigin } from '@howdah/contract';
import { listEntries, removeEntry, statEntry, openFileOrNull } from '../../lib/untrusted-files.ts';
import { BadCursor, type LogPage, type LogQuery } from '../engine.ts';

/** Logs kept for a server: the newest files up to this many bytes. */
const KEPT_BYTES = 200e6;
/** By how much entries of several processes may stand out of order. */
const OUT_OF_ORDER_MS = 10_000;
/** Read for one page; a search that finds little in it hands out a cursor to go on from. */
const READ_BYTES_PER_PAGE = 16 * 1024 * 1024;
/** The same in lines, for a log of very short ones. */
const LINES_PER_PAGE = 200_000;
/**
 * Shown on one page: its answer is rendered in one turn of the event loop. The last line may go
 * beyond it.
 */
const SHOWN_BYTES_PER_PAGE = 512 * 1024;
/** Parsed between two turns of the event loop. */
const LINES_PER_TURN = 1000;

/** Where the next page begins: everything before this byte of this file, then the older files. */
type Position = { file: string; endByte: number };

/**
 * One page of a log.
 *
 * @param signal ends the work with its client
 */
export async function readLogs(
  directory: string,
  query: LogQuery,
  signal?: AbortSignal,
): Promise<LogPage> {
  const from = query.cursor === null ? null : parseCursor(query.cursor);
  const files = (await logFiles(directory))
    .toReversed()
    .filter((file) => from === null || file <= from.file);
  const isMatch = matcherOf(query);
  const budget: ReadBudget = { bytes: READ_BYTES_PER_PAGE };
  const entries: LogEntry[] = [];
  let [looked, shownBytes] = [0, 0];
  const pageEnd = (file: string, endByte: number): LogPage => {
    const more = endByte > 0 || file !== files.at(-1);
    return { entries, cursor: more ? formatCursor({ file, endByte }) : null };
  };
  for (const file of files) {
    const lines = linesBackwards(
      join(directory, file),
      from?.file === file ? from.endByte : null,
      budget,
      signal,
    );
    try {
      let next = await lines.next();
      for (; next.done !== true; next = await lines.next()) {
        const { value: line } = next;
        const entry = parseLine(line);
        if (
          entry !== null &&
          query.sinceMs !== null &&
          Date.parse(entry.timestamp) < query.sinceMs - OUT_OF_ORDER_MS
        )
          return { entries, cursor: null };
        if (entry !== null && isMatch(entry)) {
          entries.push(entry);
          shownBytes += line.line.length;
        }
        looked += 1;
        if (
          entries.length === query.limit ||
          shownBytes >= SHOWN_BYTES_PER_PAGE ||
          looked === LINES_PER_PAGE
        )
          return pageEnd(file, line.startByte);
        if (looked % LINES_PER_TURN === 0) await setImmediate();
      }
      if (next.value > 0 || budget.bytes <= 0) return pageEnd(file, next.value);
    } finally {
      await lines.return(0);
    }
  }
  return { entries, cursor: null };
}

/**
 * Takes the oldest log files away once all of them are larger than what is kept; the one being
 * written stays.
 */
export async function pruneLogs(directory: string, keptBytes = KEPT_BYTES): Promise<void> {
  let bytes = 0;
  for (const [index, file] of (await logFiles(directory)).toReversed().entries()) {
    bytes += statEntry(join(directory, file))?.size ?? 0;
    if (index > 0 && bytes > keptBytes) await removeEntry(join(directory, file));
  }
}

/** Oldest first: their names are times. */
async function logFiles(directory: string): Promise<string[]> {
  return (await listEntries(directory)).filter((name) => name.endsWith('.json')).toSorted();
}

/** A line of PostgreSQL's jsonlog as an entry; null for the line being written this moment. */
function parseLine({ line, bytes, isCut }: LogLine): LogEntry | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(
      isCut ? closeJson(line.toString('utf8').replace(/\uFFFD+$/, '')) : line.toString('utf8'),
    );
  } catch {
    return null;
  }
  if (typeof parsed !== 'object' || parsed === null) return null;
  const text = (key: string): string => {
    const value: unknown = Reflect.get(parsed, key);
    return typeof value === 'string' ? value : '';
  };
  const extra = (['detail', 'hint', 'statement'] as const).flatMap((key) =>
    text(key) === '' ? [] : [`${key.toUpperCase()}: ${text(key)}`],
  );
  const cut = isCut ? [`[cut after ${MAX_LINE_BYTES / 1024} KiB of at least ${bytes} bytes]`] : [];
  return {
    // "2026-11-20 18:27:01.123 UTC" → ISO 8601.
    timestamp: text('timestamp')
      .replace(' ', 'T')
      .replace(/ ?(UTC|GMT)$/, 'Z'),
    severity: text('error_severity'),
    message: [text('message'), ...extra, ...cut].join('\n'),
    origin: originIn(parsed),
  };
}

function originIn(parsed: object): LogOrigin {
  const text = (name: keyof LogOrigin, key: string): object => {
    const value: unknown = Reflect.get(parsed, key);
    return typeof value === 'string' && value !== '' ? { [name]: value } : {};
  };
  const number = (name: keyof LogOrigin, key: string): object => {
    const value: unknown = Reflect.get(parsed, key);
    return Number.isSafeInteger(value) ? { [name]: value } : {};
  };
  return {
    ...number('process_id', 'pid'),
    ...text('user_name', 'user'),
    ...text('database_name', 'dbname'),
    ...text('application_name', 'application_name'),
    ...text('client', 'remote_host'),
    ...text('session_id', 'session_id'),
    ...number('session_line', 'line_num'),
    ...text('session_start', 'session_start'),
    ...text('command_tag', 'ps'),
    ...text('error_code', 'state_code'),
    ...text('backend_type', 'backend_type'),
  };
}

/**
 * The beginning of a flat JSON object as a whole one: without a field that is not complete, but
 * with the beginning of a string.
 */
function closeJson(text: string): string {
  let complete = '{';
  // A field with a string that may be cut, or with a number.
  const field = /[{,]"(\w+)":(?:"([^"\\]*(?:\\.[^"\\]*)*)("?)|(-?\d+)(?=,))/y;
  for (let found = field.exec(text); found !== null; found = field.exec(text)) {
    const [, key = '', string, , number] = found;
    const value = number ?? `"${string?.replace(/\\u[0-9a-fA-F]{0,3}$/, '') ?? ''}"`;
    complete += `${complete === '{' ? '' : ','}"${key}":${value}`;
  }
  return `${complete}}`;
}

function matcherOf({
  sinceMs,
  untilMs,
  search,
  severities,
}: LogQuery): (entry: LogEntry) => boolean {
  const terms = search.map((term) => term.toLowerCase());
  return (entry) => {
    const atMs = Date.parse(entry.timestamp);
    const message = terms.length === 0 ? '' : entry.message.toLowerCase();
    return (
      (sinceMs === null || atMs >= sinceMs) &&
      (untilMs === null || atMs < untilMs) &&
      (severities.length === 0 || severities.includes(entry.severity)) &&
      terms.every((term) => message.includes(term))
    );
  };
}

function formatCursor({ file, endByte }: Position): string {
  return Buffer.from(`${endByte}:${file}`).toString('base64url');
}

function parseCursor(cursor: string): Position {
  const match = /^(\d{1,15}):([0-9T:-]+\.json)$/.exec(
    Buffer.from(cursor, 'base64url').toString('utf8'),
  );
  if (match?.[1] === undefined || match[2] === undefined)
    throw new BadCursor('cursor: not one that an earlier page handed out');
  return { endByte: Number(match[1]), file: match[2] };
}

// Reading the lines of a server log from its end to its begin: linear in time, bounded in memory,
// whatever a tenant wrote.

/**
 * A longer line is cut. Its begin is kept, which holds the time, the severity and the start of the
 * message.
 */
const MAX_LINE_BYTES = 64 * 1024;
/**
 * Read and parsed between two turns of the event loop; larger than a line, so that each chunk makes
 * progress.
 */
const CHUNK_BYTES = 128 * 1024;

/**
 * `bytes`: the length of the whole line, as far as it lies before the position where reading began.
 */
type LogLine = { line: Buffer; startByte: number; bytes: number; isCut: boolean };

/** The bytes that one call may still read; used up by {@link linesBackwards}. */
type ReadBudget = { bytes: number };

/**
 * The lines of a file that end before a byte, last first. Stops where the budget is used up, inside
 * a line if need be.
 *
 * @param before a position where an earlier call stopped; null: the end of the file
 * @returns where the next call begins; 0: everything was read
 * @throws the reason of `signal` once it is aborted
 */
export async function* linesBackwards(
  path: string,
  before: number | null,
  budget: ReadBudget,
  signal?: AbortSignal,
): AsyncGenerator<LogLine, number> {
  const file = await openFileOrNull(path);
  if (file === null) return 0;
  try {
    const { size } = await file.stat();
    let end = Math.min(before ?? size, size);
    let lineEnd = end;
    // An earlier call may have stopped inside a line: only the begin of that line is left.
    let isCut = before !== null && before < size && !(await isLineEnd(file, before));
    // The begin of the line that ends at `lineEnd`, as far as it is read: the bytes from `end` on.
    let text: Buffer = Buffer.alloc(0);
    while (end > 0 && budget.bytes > 0) {
      signal?.throwIfAborted();
      const start = Math.max(0, end - CHUNK_BYTES);
      const chunk = Buffer.alloc(end - start);
      await file.read(chunk, 0, chunk.length, start);
      budget.bytes -= chunk.length;
      end = start;
      text = Buffer.concat([chunk, text]);
      for (
        let newline = newlineBeforeLast(text);
        newline !== -1;
        newline = newlineBeforeLast(text)
      ) {
        const startByte = start + newline + 1;
        yield cutLine(text.subarray(newline + 1), startByte, lineEnd, isCut);
        [lineEnd, isCut] = [startByte, false];
        text = text.subarray(0, newline + 1);
      }
      // Kept no longer than what is shown: the next chunk copies it again.
      isCut ||= text.length > MAX_LINE_BYTES;
      text = text.subarray(0, MAX_LINE_BYTES);
    }
    if (end === 0 && text.length > 0) yield cutLine(text, 0, lineEnd, isCut);
    if (end === 0) return 0;
    // The next call reads a short line again, and of a long one what is shown of it at most.
    return Math.min(lineEnd, end + MAX_LINE_BYTES);
  } finally {
    await file.close();
  }
}

function cutLine(text: Buffer, startByte: number, endByte: number, wasCut: boolean): LogLine {
  const isCut = wasCut || text.length > MAX_LINE_BYTES;
  return {
    line: isCut ? text.subarray(0, MAX_LINE_BYTES) : text,
    startByte,
    bytes: endByte - startByte,
    isCut,
  };
}

/**
 * The newline that ends the line before the last one of a text; -1: the text is (part of) one line.
 */
function newlineBeforeLast(text: Buffer): number {
  return text.length < 2 ? -1 : text.lastIndexOf(10, text.length - 2);
}

async function isLineEnd(file: FileHandle, position: number): Promise<boolean> {
  if (position === 0) return true;
  const last = Buffer.alloc(1);
  await file.read(last, 0, 1, position - 1);
  return last[0] === 10;
}
