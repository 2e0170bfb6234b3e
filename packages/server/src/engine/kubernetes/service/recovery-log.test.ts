import { expect, test } from 'vitest';
import { lastError } from './recovery-log.ts';

const FATAL = 'recovery ended before configured recovery target was reached';

test.each([
  [
    'a record of PostgreSQL',
    { msg: 'record', record: { error_severity: 'FATAL', message: FATAL } },
  ],
  ['a line of PostgreSQL', { msg: `2026-11-28 20:00:00.123 UTC [7] FATAL:  ${FATAL}` }],
])('the reason is the last FATAL message: %s', (_, line) => {
  const after = { msg: 'Error while restoring a backup', error: 'exit status 1' };
  const text = [{ msg: 'Starting' }, line, after].map((one) => JSON.stringify(one)).join('\n');
  expect(lastError(`${text}\n`)).toContain(FATAL);
});

test('without one, the reason is the last error of CloudNativePG, or the last line', () => {
  const error = JSON.stringify({ msg: 'no backup', error: 'not found' });
  expect(lastError(`${error}\n{"msg":"ending"}\n`)).toBe('no backup: not found');
  expect(lastError('first\nlast\u0007one\n\n')).toBe('last one');
  expect(lastError('psql: FATAL:  no\nnothing\n')).toBe('FATAL:  no');
  expect(lastError('')).toBe('its pod has no output');
  expect(lastError('{"msg": 7}\n')).toBe('{"msg": 7}');
  expect(lastError('x'.repeat(1000))).toHaveLength(500);
});
