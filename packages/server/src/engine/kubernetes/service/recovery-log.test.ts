import { expect, test } from 'vitest';
import { damageIn } from './recovery-log.ts';

const FATAL = 'recovery ended before configured recovery target was reached';
const textOf = (...lines: readonly object[]): string =>
  lines.map((line) => `${JSON.stringify(line)}\n`).join('');

test.each([
  [
    'a record of PostgreSQL',
    { msg: 'record', record: { error_severity: 'FATAL', message: FATAL } },
  ],
  ['a line of PostgreSQL', { msg: `2026-11-28 20:00:00.123 UTC [7] FATAL:  ${FATAL}` }],
])('the damage is the last FATAL message: %s', (_, line) => {
  const before = { msg: 'record', record: { error_severity: 'FATAL', message: 'an earlier one' } };
  const after = { msg: 'Error while restoring a backup', error: 'exit status 1' };
  expect(damageIn(textOf({ msg: 'Starting' }, before, line, after)).damage).toBe(FATAL);
  expect(damageIn(`psql: FATAL:  ${FATAL}\nends\n`)).toEqual({ damage: FATAL, text: 'ends' });
});

test('the plugin names a file that is missing', () => {
  const file = '000000010000000000000009';
  const line = {
    msg: 'restore error',
    error: `object storage or file not found ${file}: WAL not found`,
  };
  expect(damageIn(textOf(line, { msg: 'ending' })).damage).toBe(
    `the archive has no WAL file ${file}`,
  );
});

test.each([
  ['another error', textOf({ msg: 'no backup', error: 'secret s3-key not found' })],
  ['a full volume', textOf({ msg: 'FATAL:  could not write: No space left on device' })],
  ['a quota', textOf({ msg: `FATAL:  ${FATAL}` }, { msg: 'Disk quota exceeded' })],
  ['a session that came too early', 'FATAL:  the database system is starting up\n'],
  [
    'a session that came too late',
    textOf({
      record: { error_severity: 'FATAL', message: 'the database system is shutting down' },
    }),
  ],
  ['no output', ''],
  ['no record', '{"msg": 7}\n'],
])('nothing is said of the archive by %s', (_, output) => {
  expect(damageIn(output).damage).toBe(null);
});

test('control characters of a tenant are not shown, and long texts are cut', () => {
  const line = { msg: `FATAL:  a\u001b[31m${'x'.repeat(1000)}` };
  const { damage } = damageIn(textOf(line));
  expect(damage).toMatch(/^a \[31mxx/);
  expect(damage).toHaveLength(500);
});
