import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { AuditFacts } from '../store/audit-log.ts';
import { createAuditCounts } from './audit-counts.ts';

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

test('calls of one key are one entry whatever service they name; another operation, answer or key is another', () => {
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

test('callers without a valid key have a hundred entries, whatever keys and projects they make up', () => {
  const counts = createAuditCounts();
  let counted = 0;
  for (let n = 0; n < 5000; n++)
    if (counts.count(refused({ public_key: `HD${n}`, project_id: `p${n % 7}` }), false)) counted++;
  expect([counted, counts.takeNew().length]).toEqual([100, 100]);
  expect(counts.count(refused(), true)).toBe(true);
});
