import { expect, test } from 'vitest';
import { judgeBackup } from './base-backup.ts';
import { decideCopy, type CopySeen } from './decide.ts';
import { databaseSql, serviceSql } from './converge.ts';
import { inOneLine } from '../postgres/single-user.ts';

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

test('the output of a base backup says how far it is, and why it has ended', () => {
  const progress = '  1024/4096 kB (25%), 0/1 tablespace (…/data.new/base/1)\n';
  expect(judgeBackup(true, progress)).toEqual({
    kind: 'running',
    doneBytes: 1_048_576,
    totalBytes: 4_194_304,
  });
  expect(judgeBackup(true, '')).toMatchObject({ kind: 'running', totalBytes: 0 });
  const completed = 'pg_basebackup: base backup completed\n';
  expect(judgeBackup(false, `${progress}${completed}`)).toEqual({ kind: 'done', bytes: 1_048_576 });
  expect(judgeBackup(false, progress)).toMatchObject({ reason: 'it was interrupted' });
  // A text of the server does not complete it.
  const error = 'pg_basebackup: error: could not connect: FATAL: no';
  expect(judgeBackup(false, `${completed}${error}\n${progress}`)).toEqual({
    kind: 'failed',
    reason: 'could not connect: FATAL: no',
  });
});

test('single-user mode gets each statement in a line', () => {
  for (const line of [...serviceSql(), ...databaseSql()])
    expect(inOneLine(line)).toMatch(
      /^(do|select|create|insert|delete|alter|grant|revoke|update) \S/i,
    );
});
