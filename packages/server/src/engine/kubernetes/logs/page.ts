/**
 * Pages of the server log of a service, newest entry first: the output of the container in the pod
 * of a server and of the container before it, as far as Kubernetes has them, and then what is kept.
 * A line is the same in both, so that a cursor is valid wherever its line is by now.
 */
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import { deflateRaw, inflateRaw } from 'node:zlib';
import type { LogEntry } from '@howdah/contract';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { BadCursor, type LogPage, type LogQuery } from '../../engine.ts';
import type { KeptLogs, KeptPart } from '../../records.ts';
import { throwUnavailable } from '../api/errors.ts';
import { linesIn, stampOf, type LogLine } from './lines.ts';
import { readOutput, type Extent, type LogSource, type Output, type Pod } from './pod-log.ts';

/** Read of an output for one page, from its end. */
const EXTENT: Extent = { lines: 10_000, bytes: 8 * 1024 * 1024 };
/** Kept lines that are read for one page; then it has a cursor, even if it is empty. */
const KEPT_BYTES_PER_PAGE = 4 * 1024 * 1024;
/** Characters of messages on one page; the last one may go beyond it. */
const SHOWN_PER_PAGE = 512 * 1024;
/** Parsed between two turns of the event loop. */
const LINES_PER_TURN = 500;
/** Kept parts that are read at a time: those of one service have a megabyte. */
const PARTS_AT_A_TIME = 100;
/** By how much the time of an entry may differ from the stamp of its line. */
const STAMPED_WITHIN_MS = 60_000;

/** The log of a server. @param pod that it has now; null: none */
type ServerLog = Readonly<{ id: string; server: number; pod: Pod | null }>;

type LogReach = Readonly<{ kube: LogSource; kept: KeptLogs }>;

/** @throws BadCursor, EngineUnavailable */
export async function readLog(
  { kube, kept }: LogReach,
  { id, server, pod }: ServerLog,
  query: LogQuery,
  signal: AbortSignal,
): Promise<LogPage> {
  const before = query.cursor === null ? null : parseCursor(query.cursor);
  const page = createPage(query, before);
  let oldest: string | null = null;
  // Every other pod of the server was before the one that it has.
  if (pod !== null && (before === null || before.pod === pod.tag)) {
    const read = (previous: boolean): Promise<Output> =>
      readOutput(kube, pod, {
        previous,
        since: query.sinceMs === null ? null : stampOf(query.sinceMs),
        extent: EXTENT,
        signal,
      }).catch(throwUnavailable);
    const output = await read(false);
    const live = await take(page, pod.tag, linesIn(output.text), null);
    if (live.isFull) return page.end(true);
    ({ oldest } = live);
    if (output.isWhole) {
      const earlier = await read(true);
      const taken = await take(page, pod.tag, linesIn(earlier.text), oldest);
      if (taken.isFull) return page.end(true);
      oldest = taken.oldest ?? oldest;
    }
  }
  // After the output: its lines may be kept meanwhile, and gone from the pod.
  const parts = await kept.list(id, server);
  const border = pod === null || oldest === null ? null : { pod: pod.tag, at: oldest };
  return takeKept(kept, page, partsOf(parts, { query, before, pod: pod?.tag ?? null, border }));
}

/**
 * @param below lines with this stamp and newer ones are left out. While Kubernetes waits before it
 *   starts a container again, both requests get the log of the one that has ended.
 */
async function take(
  page: Page,
  pod: string,
  lines: Iterable<LogLine>,
  below: string | null,
): Promise<{ isFull: boolean; oldest: string | null }> {
  let [oldest, read]: [string | null, number] = [null, 0];
  for (const line of lines) {
    read += 1;
    if (read % LINES_PER_TURN === 0) await setImmediate();
    if (below !== null && line.at >= below) continue;
    oldest = line.at;
    if (page.take(pod, line)) return { isFull: true, oldest };
  }
  return { isFull: false, oldest };
}

type PartsAsked = Readonly<{
  query: LogQuery;
  before: Position | null;
  /** That the server has; null: none. */
  pod: string | null;
  /** The oldest line that it still has; null: it was not read, or has none. */
  border: Readonly<{ pod: string; at: string }> | null;
}>;

/** `below`: lines with this stamp and newer ones are not on the page; null: all are. */
type PartAsked = KeptPart & Readonly<{ below: string | null }>;

/** The parts that have lines of a page, newest first. */
function partsOf(
  parts: readonly KeptPart[],
  { query: { sinceMs, untilMs }, before, pod: current, border }: PartsAsked,
): PartAsked[] {
  const begin = parts.findIndex(({ pod }) => pod === before?.pod);
  // The pod of a cursor had ended before anything of it was kept.
  const isUnknown = before !== null && begin === -1 && before.pod !== current;
  return parts
    .slice(Math.max(0, begin))
    .map((part) => {
      if (isUnknown) return { ...part, below: before.at };
      return { ...part, below: border?.pod === part.pod ? border.at : null };
    })
    .filter(
      ({ pod, from, until, below }) =>
        (below === null || from < below) &&
        (before?.pod !== pod || from <= before.at) &&
        (sinceMs === null || until >= stampOf(sinceMs - STAMPED_WITHIN_MS)) &&
        (untilMs === null || from <= stampOf(untilMs + STAMPED_WITHIN_MS)),
    );
}

async function takeKept(kept: KeptLogs, page: Page, parts: readonly PartAsked[]): Promise<LogPage> {
  let bytes = 0;
  for (let first = 0; first < parts.length; first += PARTS_AT_A_TIME) {
    const some = parts.slice(first, first + PARTS_AT_A_TIME);
    const read = await kept.read(some.map(({ id }) => id));
    for (const { id, pod, below } of some) {
      const found = read.get(id);
      if (found === undefined) continue;
      if (bytes >= KEPT_BYTES_PER_PAGE) return page.end(true);
      const part = await unpack(found);
      bytes += part.bytes;
      if ((await take(page, pod, part.lines, below)).isFull) return page.end(true);
    }
  }
  return page.end(false);
}

type Page = ReturnType<typeof createPage>;

function createPage(query: LogQuery, before: Position | null) {
  const entries: LogEntry[] = [];
  let shown = 0;
  let at: Position | null = null;
  return {
    /** Adds a line, if it is after the page before and wanted. @returns whether the page is full */
    take: (pod: string, line: LogLine): boolean => {
      const isSame = at?.pod === pod && at.at === line.at;
      at = { at: line.at, pod, nth: isSame && at !== null ? at.nth + 1 : 0 };
      if (before !== null && !isAfter(at, before)) return false;
      if (!isMatch(line.entry, query)) return false;
      entries.push(line.entry);
      shown += line.entry.message.length;
      return entries.length === query.limit || shown >= SHOWN_PER_PAGE;
    },
    end: (hasMore: boolean): LogPage => {
      const end = at ?? before;
      return { entries, cursor: hasMore && end !== null ? formatCursor(end) : null };
    },
  };
}

/** A line, by its stamp, its pod, and its number among those of that stamp, newest first. */
type Position = Readonly<{ at: string; pod: string; nth: number }>;

/** Pods follow each other: none is read that is newer than that of the page before. */
const isAfter = ({ at, pod, nth }: Position, before: Position): boolean =>
  pod === before.pod ? at < before.at || (at === before.at && nth > before.nth) : true;

const formatCursor = ({ at, nth, pod }: Position): string => `${at}.${nth}.${pod}`;

/** @throws BadCursor */
export function parseCursor(cursor: string): Position {
  const [, at, nth, pod] = /^(\d{19})\.(\d{1,6})\.([0-9a-f]{12})$/.exec(cursor) ?? [];
  if (at === undefined || nth === undefined || pod === undefined)
    throw new BadCursor('no cursor of this log');
  return { at, nth: Number(nth), pod };
}

function isMatch({ message, severity, timestamp }: LogEntry, query: LogQuery): boolean {
  const { sinceMs, untilMs, search, severities } = query;
  const ms = Date.parse(timestamp);
  const text = search.length === 0 ? '' : message.toLowerCase();
  return (
    (sinceMs === null || ms >= sinceMs) &&
    (untilMs === null || ms < untilMs) &&
    (severities.length === 0 || severities.includes(severity)) &&
    search.every((part) => text.includes(part.toLowerCase()))
  );
}

// Parts of kept logs: compressed JSON lines, the oldest first.

/** Kept of one server at a time, as JSON. The last line may go beyond it: 64 KiB, escaped. */
const PART_BYTES = 512 * 1024;
const MAX_BYTES = 1024 * 1024;

const deflate = promisify(deflateRaw);
const inflate = promisify(inflateRaw);

const KEPT_LINE = Type.Tuple([
  Type.String({ pattern: '^[0-9]{19}$' }),
  Type.Object({ timestamp: Type.String(), severity: Type.String(), message: Type.String() }),
]);

/** A part of the newest lines, as many as it holds; null: there are none. */
export async function pack(
  newestFirst: Iterable<LogLine>,
): Promise<(Omit<KeptPart, 'id' | 'pod'> & Readonly<{ lines: Buffer }>) | null> {
  const texts: string[] = [];
  let [from, until, bytes] = ['', '', 0];
  for (const { at, entry } of newestFirst) {
    const text = JSON.stringify([at, entry]);
    texts.push(text);
    until ||= at;
    from = at;
    bytes += Buffer.byteLength(text);
    if (bytes >= PART_BYTES) break;
    if (texts.length % LINES_PER_TURN === 0) await setImmediate();
  }
  if (texts.length === 0) return null;
  return { from, until, lines: await deflate(texts.toReversed().join('\n')) };
}

/** @returns the lines, newest first, and their bytes; a part that cannot be read has no lines */
export async function unpack(
  lines: Buffer,
): Promise<Readonly<{ lines: readonly LogLine[]; bytes: number }>> {
  try {
    const text = await inflate(lines, { maxOutputLength: MAX_BYTES });
    const read = text.toString('utf8').split('\n').flatMap(lineIn);
    return { lines: read.toReversed(), bytes: text.length };
  } catch {
    return { lines: [], bytes: MAX_BYTES };
  }
}

function lineIn(text: string): LogLine[] {
  const parsed: unknown = JSON.parse(text);
  if (!Value.Check(KEPT_LINE, parsed)) return [];
  const [at, entry] = parsed;
  return [{ at, entry }];
}
