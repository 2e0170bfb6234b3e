import { randomUUID } from 'node:crypto';
import { expect, test, afterEach, beforeEach, vi } from 'vitest';
import * as fc from 'fast-check';
import type { AuditFacts } from '../store/audit-log.ts';
import { createAuditCounts, createDropLog, parseAuthorization } from './audit-log.ts';
import { sha256 } from '../lib/secret.ts';

const refused = (more: Partial<AuditFacts> = {}): AuditFacts => ({
  project_id: 'p',
  public_key: 'HDa',
  address: '127.0.0.1',
  call: 'stopService',
  method: 'POST',
  path: '/x',
  service_id: null,
  operation_id: null,
  status: 403,
  code: 'FORBIDDEN',
  request_id: randomUUID(),
  ...more,
});

test('refused calls of one key share an entry; another operation, answer or key does not', () => {
  const counts = createAuditCounts();
  for (let n = 0; n < 1000; n++)
    expect(counts.count(refused({ service_id: `made-up-${n}`, path: `/${n}` }), true)).toBe(true);
  for (const more of [
    { call: 'deleteService' },
    { code: 'NOT_FOUND' as const, status: 404 },
    { public_key: 'HDb' },
  ])
    counts.count(refused(more), true);
  expect(
    counts.takeNew().map(({ count, call, code, public_key }) => [count, call, code, public_key]),
  ).toEqual([
    [1000, 'stopService', 'FORBIDDEN', 'HDa'],
    [1, 'deleteService', 'FORBIDDEN', 'HDa'],
    [1, 'stopService', 'NOT_FOUND', 'HDa'],
    [1, 'stopService', 'FORBIDDEN', 'HDb'],
  ]);
  expect([counts.takeNew(), counts.takeCounts()]).toEqual([[], []]);
});

test('a call after its entry was written raises its count, until the window is over', () => {
  let nowMs = 1_000_000;
  const counts = createAuditCounts(() => nowMs);
  const [first, second, third] = [refused(), refused(), refused()];
  counts.count(first, true);
  expect(counts.takeNew()).toMatchObject([
    { request_id: first.request_id, count: 1, last_at: null },
  ]);
  nowMs += 599_999;
  counts.count(second, true);
  nowMs += 1;
  counts.count(third, true);
  expect(counts.takeCounts()).toEqual([
    { requestId: first.request_id, count: 2, lastAt: new Date(1_599_999) },
  ]);
  expect(counts.takeNew()).toMatchObject([{ request_id: third.request_id, count: 1 }]);
});

test('statements on each service are an entry of their own', () => {
  const counts = createAuditCounts();
  for (const service of ['a', 'b', 'a'])
    counts.count(
      refused({ call: 'queryService', status: 200, code: null, service_id: service }),
      true,
    );
  expect(counts.takeNew().map(({ service_id, count }) => [service_id, count])).toEqual([
    ['a', 2],
    ['b', 1],
  ]);
});

test('callers without a valid key have a hundred entries, whatever they make up', () => {
  const counts = createAuditCounts();
  let counted = 0;
  for (let n = 0; n < 5000; n++)
    if (counts.count(refused({ public_key: `HD${n}`, project_id: `p${n % 7}` }), false)) counted++;
  expect([counted, counts.takeNew().length]).toEqual([100, 100]);
  expect(counts.count(refused(), true)).toBe(true);
});

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('dropped requests are logged in one line a minute, with their count', () => {
  const warn = vi.fn();
  const drops = createDropLog({ warn }, 'dropped');
  for (let ms = 0; ms < 180_000; ms += 100) {
    for (let n = 0; n < 170; n++) drops.count();
    vi.advanceTimersByTime(100);
  }
  drops.close();
  expect(warn.mock.calls.length).toBeLessThanOrEqual(4);
  expect(warn.mock.calls.reduce((sum: number, [{ dropped }]) => sum + Number(dropped), 0)).toBe(
    170 * 1800,
  );
  vi.advanceTimersByTime(600_000);
  drops.close();
  expect(warn.mock.calls.length).toBeLessThanOrEqual(4);
});

const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;

test('Bearer takes the key in one piece, Basic its two halves', () => {
  const key = { publicKey: 'HDabc_-9', secretKey: 's3cr:et' };
  for (const header of [
    'Bearer HDabc_-9:s3cr:et',
    'bearer HDabc_-9:s3cr:et',
    'BEARER   HDabc_-9:s3cr:et  ',
    basic('HDabc_-9:s3cr:et'),
  ])
    expect(parseAuthorization(header), header).toEqual(key);
  expect(parseAuthorization(basic('HDabc_-9:s3cr:et').replace('Basic', 'basic'))).toEqual(key);
  expect(parseAuthorization('Bearer a:')).toEqual({ publicKey: 'a', secretKey: '' });
});

test('a header without a valid key has no key', () => {
  const none = [
    undefined,
    '',
    'Bearer',
    'Bearer ',
    'Bearer :secret',
    'Bearer nocolon',
    'Bearer a b:c',
    'Bearera:b',
    'Token a:b',
    'Digest a:b',
    basic('nocolon'),
    basic(':secret'),
    basic('a\0b:c'),
    basic("x' or '1'='1:c"),
    'Basic !!!!',
    `Bearer ${'a'.repeat(65)}:b`,
    'Bearer ä:b',
  ];
  for (const header of none) expect(parseAuthorization(header), String(header)).toBeNull();
});

test('no header makes it throw, and what it finds is safe to look for', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.string({ unit: 'binary' }).map(basic),
        fc.string().map((text) => `Bearer ${text}`),
      ),
      (header) => {
        const parsed = parseAuthorization(header);
        if (parsed !== null) expect(parsed.publicKey).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
      },
    ),
  );
});

test('a secret is stored as its SHA-256', () => {
  expect(sha256('abc').toString('hex')).toBe(
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
});
