import { expect, test } from 'vitest';
import type { LogQuery } from '../engine.ts';
import { KubeError } from './api/errors.ts';
import { entriesIn, pageOf, parseCursor, readPodLog } from './logs.ts';

const line = (time: string, message: string, severity = 'LOG'): string =>
  JSON.stringify({
    logger: 'postgres',
    record: { log_time: `2026-11-26 ${time} UTC`, error_severity: severity, message },
  });
const QUERY: LogQuery = {
  sinceMs: null,
  untilMs: null,
  cursor: null,
  search: [],
  severities: [],
  limit: 2,
};
const LOG = entriesIn(
  [
    line('10:00:00.001', 'first'),
    '{"logger":"instance-manager","msg":"no line of PostgreSQL"}',
    'no JSON',
    line('10:00:00.002', 'second'),
    line('10:00:00.002', 'third', 'ERROR'),
    line('10:00:00.002', 'fourth'),
    line('10:00:00.003', 'FIFTH', 'ERROR'),
    '',
  ].join('\n'),
);
const messages = (query: Partial<LogQuery>, before: string | null = null): string[] =>
  pageOf(LOG, { ...QUERY, ...query }, before === null ? null : parseCursor(before)).entries.map(
    ({ message }) => message,
  );

test('a log is read newest first, page by page, each entry once', () => {
  const read: string[] = [];
  let cursor: string | null = null;
  for (let pages = 0; pages < 4; pages += 1) {
    const page = pageOf(LOG, QUERY, cursor === null ? null : parseCursor(cursor));
    read.push(...page.entries.map(({ message }) => message));
    cursor = page.cursor;
    if (cursor === null) break;
  }
  expect(read).toEqual(['FIFTH', 'fourth', 'third', 'second', 'first']);
  expect(cursor).toBeNull();
});

test('a page has what is searched for', () => {
  expect(messages({ search: ['f', 'TH'] })).toEqual(['FIFTH', 'fourth']);
  expect(messages({ severities: ['ERROR'] })).toEqual(['FIFTH', 'third']);
  const atMs = Date.parse('2026-11-26T10:00:00.002Z');
  expect(messages({ sinceMs: atMs, untilMs: atMs + 1, limit: 9 })).toEqual([
    'fourth',
    'third',
    'second',
  ]);
});

test('another text is no cursor', () => {
  expect(() => parseCursor('1')).toThrow('no cursor');
});

const POD = { namespace: 'howdah-p', name: 's-a-1' };
/** A pod whose container was started again. @param previous the output before; null: it was not */
const kubeWith = (previous: (() => string) | null) => ({
  text: async (path: string): Promise<string> => {
    if (!path.includes('previous=true')) return line('10:00:01.000', 'started again');
    if (previous === null)
      throw new KubeError('previous terminated container not found', 400, 'BadRequest');
    return previous();
  },
});
const read = async (previous: (() => string) | null): Promise<string[]> => {
  const page = await readPodLog(kubeWith(previous), POD, QUERY);
  return page.entries.map(({ message }) => message);
};

test('the log goes on with that of the container before', async () => {
  expect(await read(() => line('10:00:00.000', 'out of memory'))).toEqual([
    'started again',
    'out of memory',
  ]);
  expect(await read(null)).toEqual(['started again']);
  // It waits for its next start: Kubernetes has one log only.
  expect(await read(() => line('10:00:01.000', 'started again'))).toEqual(['started again']);
});

test('a log whose earlier part cannot be read is no whole one', async () => {
  const away = () => {
    throw new KubeError('no answer', null, null);
  };
  await expect(read(away)).rejects.toThrow('does not answer');
});
