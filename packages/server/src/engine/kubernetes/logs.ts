/**
 * The server log of a service: the output of the container of PostgreSQL in its pod, and of the
 * container before it, which has the reason why that ended. Kubernetes keeps both as long as the
 * pod, and of each the newest megabytes.
 */
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import type { LogEntry } from '@howdah/contract';
import { BadCursor, type LogPage, type LogQuery } from '../engine.ts';
import { KINDS, pathOf } from './api/kinds.ts';
import type { Kube } from './api/client.ts';
import { KubeError } from './api/errors.ts';
import { throwUnavailable } from './unavailable.ts';

/** Read of a log for one page, from its end. */
const LINES = 20_000;

const BAD_REQUEST = 400;

/** A line as the instance manager of CloudNativePG prints it for one of PostgreSQL. */
const LINE = Type.Object({
  record: Type.Object({
    log_time: Type.String(),
    error_severity: Type.String(),
    message: Type.String(),
  }),
});

type Timed = LogEntry & { readonly ms: number };

/** The entries of one container, newest first, and whether no earlier ones were left out. */
type Output = Readonly<{ entries: readonly Timed[]; isWhole: boolean }>;

/** One page of the log of a pod, newest entry first. @throws BadCursor, EngineUnavailable */
export async function readPodLog(
  kube: Pick<Kube, 'text'>,
  pod: { namespace: string; name: string },
  query: LogQuery,
): Promise<LogPage> {
  const before = query.cursor === null ? null : parseCursor(query.cursor);
  const read = async (options: Readonly<Record<string, string>>): Promise<Output> => {
    const parameters = new URLSearchParams({
      container: 'postgres',
      tailLines: String(LINES),
      ...(query.sinceMs === null ? {} : { sinceTime: new Date(query.sinceMs).toISOString() }),
      ...options,
    });
    const path = pathOf({ kind: KINDS.pod, ...pod }, 'log');
    const text = await kube.text(`${path}?${parameters.toString()}`);
    return { entries: entriesIn(text), isWhole: text.split('\n').length <= LINES };
  };
  try {
    const { entries, isWhole } = await read({});
    const page = pageOf(entries, query, before);
    // Without a gap.
    if (page.cursor !== null || !isWhole) return page;
    const { entries: earlier } = await read({ previous: 'true' }).catch(noneIfFirst);
    return isOlder(earlier, entries) ? pageOf([...entries, ...earlier], query, before) : page;
  } catch (error) {
    throwUnavailable(error);
  }
}

/**
 * Whether a log is of an earlier container. While Kubernetes waits before it starts one again, both
 * requests get the log of the one that has ended.
 */
const isOlder = ([newest]: readonly Timed[], entries: readonly Timed[]): boolean =>
  newest !== undefined && newest.ms < (entries.at(-1)?.ms ?? Infinity);

/** A container that is the first of its pod has none before it: Kubernetes refuses the request. */
function noneIfFirst(error: unknown): Output {
  if (error instanceof KubeError && error.status === BAD_REQUEST)
    return { entries: [], isWhole: true };
  throw error;
}

/** @param entries newest first @param before where the page before ended */
export function pageOf(
  entries: readonly Timed[],
  query: LogQuery,
  before: Position | null,
): LogPage {
  const page: LogEntry[] = [];
  let at: Position = { ms: Infinity, nth: 0 };
  for (const entry of entries) {
    at = entry.ms === at.ms ? { ms: at.ms, nth: at.nth + 1 } : { ms: entry.ms, nth: 0 };
    if (before !== null && !isAfter(at, before)) continue;
    if (!isMatch(entry, query)) continue;
    const { timestamp, message, severity } = entry;
    page.push({ timestamp, message, severity });
    if (page.length === query.limit) return { entries: page, cursor: `${at.ms}.${at.nth}` };
  }
  return { entries: page, cursor: null };
}

/** An entry, by its time and its number among those of that time, newest first. */
type Position = Readonly<{ ms: number; nth: number }>;

const isAfter = (at: Position, before: Position): boolean =>
  at.ms < before.ms || (at.ms === before.ms && at.nth > before.nth);

/** @throws BadCursor */
export function parseCursor(cursor: string): Position {
  const [, ms, nth] = /^(\d{1,15})\.(\d{1,6})$/.exec(cursor) ?? [];
  if (ms === undefined || nth === undefined) throw new BadCursor('no cursor of this log');
  return { ms: Number(ms), nth: Number(nth) };
}

/** The entries of PostgreSQL in the log of a pod, newest first. */
export function entriesIn(text: string): Timed[] {
  return text.split('\n').flatMap(entryIn).toReversed();
}

function entryIn(line: string): Timed[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    return []; // lines of other programs in the pod
  }
  if (!Value.Check(LINE, parsed)) return [];
  const { log_time: time, error_severity: severity, message } = parsed.record;
  // "2026-11-26 07:20:01.123 UTC": log_timezone is UTC.
  const ms = Date.parse(time.replace(/^(\S+) (\S+) UTC$/, '$1T$2Z'));
  if (Number.isNaN(ms)) return [];
  return [{ timestamp: new Date(ms).toISOString(), message, severity, ms }];
}

function isMatch({ message, severity, ms }: Timed, query: LogQuery): boolean {
  const { sinceMs, untilMs, search, severities } = query;
  const text = message.toLowerCase();
  return (
    (sinceMs === null || ms >= sinceMs) &&
    (untilMs === null || ms < untilMs) &&
    (severities.length === 0 || severities.includes(severity)) &&
    search.every((part) => text.includes(part.toLowerCase()))
  );
}
