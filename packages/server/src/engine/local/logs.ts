/** Reading a server's structured logs back, newest first, page by page, and taking the oldest away. */
import { open, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { LogEntry } from '@howdah/contract';
import { BadCursor, type LogPage, type LogQuery } from '../engine.ts';

/** Logs kept for a server: the newest files up to this many bytes. */
const KEPT_BYTES = 200e6;
/** By how much entries of several processes may stand out of order. */
const OUT_OF_ORDER_MS = 10_000;
const CHUNK_BYTES = 256 * 1024;
/** Lines looked at for one page; a search that finds little in them hands out a cursor to go on from. */
const LINES_PER_PAGE = 200_000;

/** Where the next page begins: everything before this byte of this file, then the older files. */
type Position = { file: string; endByte: number };

export async function readLogs(directory: string, query: LogQuery): Promise<LogPage> {
  const files = (await logFiles(directory)).toReversed();
  const from = query.cursor === null ? null : parseCursor(query.cursor);
  const entries: LogEntry[] = [];
  let looked = 0;
  for (const file of files) {
    if (from !== null && file > from.file) continue;
    for await (const { line, startByte } of linesBackwards(join(directory, file), from?.file === file ? from.endByte : null)) {
      const entry = parseLine(line);
      looked += 1;
      if (entry !== null && query.sinceMs !== null && Date.parse(entry.timestamp) < query.sinceMs - OUT_OF_ORDER_MS)
        return { entries, cursor: null };
      if (entry !== null && matches(entry, query)) entries.push(entry);
      if (entries.length === query.limit || looked === LINES_PER_PAGE) {
        const more = startByte > 0 || file !== files.at(-1);
        return { entries, cursor: more ? formatCursor({ file, endByte: startByte }) : null };
      }
    }
  }
  return { entries, cursor: null };
}

/** Takes the oldest log files away once all of them are larger than what is kept; the one being written stays. */
export async function pruneLogs(directory: string): Promise<void> {
  let bytes = 0;
  for (const [index, file] of (await logFiles(directory)).toReversed().entries()) {
    bytes += (await stat(join(directory, file))).size;
    if (index > 0 && bytes > KEPT_BYTES) await rm(join(directory, file), { force: true });
  }
}

/** Oldest first: their names are times. */
async function logFiles(directory: string): Promise<string[]> {
  return (await readdir(directory)).filter((name) => name.endsWith('.json')).toSorted();
}

async function* linesBackwards(path: string, before: number | null): AsyncGenerator<{ line: string; startByte: number }> {
  const file = await open(path, 'r');
  try {
    let end = before ?? (await file.stat()).size;
    let rest: Buffer = Buffer.alloc(0); // the begin of a line whose end is known: the bytes from `end` to its newline
    while (end > 0) {
      const start = Math.max(0, end - CHUNK_BYTES);
      const chunk = Buffer.alloc(end - start);
      await file.read(chunk, 0, chunk.length, start);
      let text: Buffer = Buffer.concat([chunk, rest]);
      for (let newline = text.lastIndexOf(10, text.length - 2); newline !== -1; newline = text.lastIndexOf(10, text.length - 2)) {
        yield { line: text.subarray(newline + 1).toString('utf8'), startByte: start + newline + 1 };
        text = text.subarray(0, newline + 1);
      }
      rest = text;
      end = start;
    }
    if (rest.length > 0) yield { line: rest.toString('utf8'), startByte: 0 };
  } finally {
    await file.close();
  }
}

/** A line of PostgreSQL's jsonlog as an entry; null for the line being written this moment. */
function parseLine(line: string): LogEntry | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
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
  return {
    // "2026-11-20 18:27:01.123 UTC" → ISO 8601.
    timestamp: text('timestamp')
      .replace(' ', 'T')
      .replace(/ ?(UTC|GMT)$/, 'Z'),
    severity: text('error_severity'),
    message: [text('message'), ...extra].join('\n'),
  };
}

function matches(entry: LogEntry, { sinceMs, untilMs, search, severities }: LogQuery): boolean {
  const atMs = Date.parse(entry.timestamp);
  const message = entry.message.toLowerCase();
  return (
    (sinceMs === null || atMs >= sinceMs) &&
    (untilMs === null || atMs < untilMs) &&
    (severities.length === 0 || severities.includes(entry.severity)) &&
    search.every((term) => message.includes(term.toLowerCase()))
  );
}

function formatCursor({ file, endByte }: Position): string {
  return Buffer.from(`${endByte}:${file}`).toString('base64url');
}

function parseCursor(cursor: string): Position {
  const match = /^(\d{1,15}):([0-9T:-]+\.json)$/.exec(Buffer.from(cursor, 'base64url').toString('utf8'));
  if (match?.[1] === undefined || match[2] === undefined) throw new BadCursor('cursor: not one that an earlier page handed out');
  return { endByte: Number(match[1]), file: match[2] };
}
