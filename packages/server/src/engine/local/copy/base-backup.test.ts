import { expect, test } from 'vitest';
import { judgeBackup } from './base-backup.ts';

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
