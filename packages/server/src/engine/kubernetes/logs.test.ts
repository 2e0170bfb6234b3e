import { expect, test } from 'vitest';
import type { LogQuery } from '../engine.ts';
import { entriesIn, pageOf, parseCursor } from './logs.ts';

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
