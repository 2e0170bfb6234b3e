import type { OperationStep } from '@howdah/contract';
import { expect, test } from 'vitest';
import { begunStep, endOfStep, stepDocument, deadlineMs, remainingSeconds } from './operation.ts';

const AT = new Date('2026-11-29T12:00:00Z');
const under = { status: 'running', error: null, finished: null } as const;
const succeeded = { status: 'succeeded', error: null, finished: AT } as const;
const superseded = { status: 'failed', error: 'superseded by stop', finished: AT } as const;

const ended = (outcome: 'ok' | 'failed'): OperationStep => ({
  ...begunStep('start PostgreSQL'),
  ...endOfStep(outcome, 'no space left'),
});

test('a step that failed stays failed, whatever its operation says later', () => {
  for (const operation of [under, succeeded, superseded])
    for (const isLast of [true, false]) {
      expect(stepDocument(operation, ended('failed'), isLast).outcome).toBe('failed');
      expect(stepDocument(operation, ended('ok'), isLast).outcome).toBe('ok');
    }
});

test('a step without an end runs only while its operation does, and nothing followed it', () => {
  const open = begunStep('stop PostgreSQL');
  expect(stepDocument(under, open, true).outcome).toBe('running');
  expect(stepDocument(under, open, false).outcome).toBe('interrupted');
  expect(stepDocument(superseded, open, true).outcome).toBe('interrupted');
  expect(stepDocument(succeeded, open, true).outcome).toBe('ok');
});

test('a step of an older version failed if the error of its operation names it', () => {
  const { outcome: _, ...old } = ended('ok');
  const error = 'start PostgreSQL: no space left';
  expect(stepDocument({ ...under, error }, old, true).outcome).toBe('failed');
  expect(stepDocument({ ...under, error }, old, false).outcome).toBe('ok');
  expect(stepDocument(succeeded, old, true).outcome).toBe('ok');
});

test('a move may take longer, by the size of its volume, and not for ever', () => {
  expect(deadlineMs('resize', { storage_gb: 100 })).toBe(600_000);
  expect(deadlineMs('move', { storage_gb: 100 })).toBe(3_600_000);
});

test('the remaining time is estimated from past operations', () => {
  const past = { median: 2, longest: 5 };
  const rows: [number, number | null][] = [
    [0, 2],
    [0.55, 1.5],
    [2, 0],
    [2.5, 2.5],
    [5, 0],
    [5.1, null],
  ];
  for (const [elapsed, left] of rows)
    expect(remainingSeconds(past, elapsed), String(elapsed)).toBe(left);
  expect(remainingSeconds(null, 1)).toBeNull();
});
