import { expect, test } from 'vitest';
import { readVerification } from './state.ts';
import { resultIn } from './verification-pod.ts';

const base64 = (text: string): string => Buffer.from(text).toString('base64');

test.each([
  [`restore ok ${base64('61 MB')}\n`, { state: 'ok', detail: '61 MB' }],
  // A line that is being written.
  ['restore ok', null],
  ['restore', null],
  ['', null],
  [`replay ok ${base64('restore ok')}\n`, null],
  [
    `restore failed ${base64('a\nb\u001b[31m\u202ec')}\n`,
    { state: 'failed', detail: 'a b [31m c' },
  ],
  [`restore failed ${base64('x'.repeat(900))}\n`, { state: 'failed', detail: 'x'.repeat(500) }],
  ['restore good MQ==', null],
  ['restore error \n', { state: 'error', detail: '' }],
])('the output %j has the result %j', (output, result) => {
  expect(resultIn(output, 'restore')).toEqual(result);
});

test('an annotation of a Backup that somebody else has written is no verification', () => {
  const verification = {
    at: '2026-01-01T00:00:00.000Z',
    succeeded: true,
    recovery_seconds: 1,
    recovery_point: '2026-01-01T00:00:00.000Z',
    checks: [{ name: 'restore snapshot', succeeded: true, detail: '61 MB' }],
  };
  expect(readVerification(JSON.stringify(verification))).toEqual(verification);
  for (const text of [undefined, '', '{', '[]', JSON.stringify({ ...verification, at: 5 })])
    expect(readVerification(text)).toBeNull();
});
