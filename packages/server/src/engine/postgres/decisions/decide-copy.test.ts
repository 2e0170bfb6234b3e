import { expect, test } from 'vitest';
import { decideCopy, type CopySeen } from './decide-copy.ts';

const PREPARED: CopySeen = {
  isService: false,
  isTaken: false,
  directory: 'ours',
  becoming: 'none',
  data: 'absent',
  backup: { kind: 'none' },
  excess: null,
  mayConnect: true,
  server: null,
  notStartable: null,
};
const FOLLOWING: CopySeen = { ...PREPARED, data: 'standby', server: { isCurrent: true } };
const kindOf = (seen: CopySeen): string => decideCopy(seen).kind;

test('a copy is made by a base backup, and follows', () => {
  expect(kindOf(PREPARED)).toBe('begin');
  const running = { kind: 'running', doneBytes: 1, totalBytes: 2 } as const;
  expect(kindOf({ ...PREPARED, backup: running })).toBe('wait');
  expect(kindOf({ ...PREPARED, backup: running, excess: 'too large' })).toBe('giveUp');
  expect(kindOf({ ...PREPARED, backup: { kind: 'failed', reason: 'cut' } })).toBe('giveUp');
  expect(kindOf({ ...PREPARED, backup: { kind: 'done', bytes: 2 } })).toBe('complete');
  expect(kindOf({ ...FOLLOWING, server: null })).toBe('start');
  expect(kindOf({ ...FOLLOWING, server: { isCurrent: false } })).toBe('restart');
  expect(kindOf(FOLLOWING)).toBe('settled');
});

test('a copy is promoted only by the spec of its service, and never follows again', () => {
  const service = { ...FOLLOWING, isService: true, mayConnect: false };
  expect(kindOf(service)).toBe('promote');
  expect(kindOf({ ...service, becoming: 'begun', data: 'other', server: null })).toBe('promote');
  expect(kindOf({ ...service, becoming: 'done', data: 'other', server: null })).toBe('rename');
  expect(kindOf({ ...service, data: 'absent', server: null })).toBe('refuse');
  expect(kindOf({ ...service, data: 'other' })).toBe('refuse');
  expect(kindOf({ ...FOLLOWING, becoming: 'begun' })).toBe('refuse');
});

test('data of a service is neither copied to nor replaced', () => {
  for (const isService of [true, false])
    for (const seen of [PREPARED, FOLLOWING])
      expect(kindOf({ ...seen, isService, isTaken: true })).toBe('refuse');
  expect(kindOf({ ...FOLLOWING, directory: 'foreign' })).toBe('refuse');
  expect(kindOf({ ...PREPARED, directory: 'absent' })).toBe('refuse');
  expect(kindOf({ ...FOLLOWING, mayConnect: false })).toBe('refuse');
});
