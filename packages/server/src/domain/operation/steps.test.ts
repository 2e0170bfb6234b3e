import type { OperationStep } from '@howdah/contract';
import { expect, test } from 'vitest';
import { begunStep, endOfStep, stepDocument } from './steps.ts';

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
