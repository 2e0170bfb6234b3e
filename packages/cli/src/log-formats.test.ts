import { expect, test } from 'vitest';
import { formatEntry } from './log-formats.ts';

const entry = {
  timestamp: '2026-11-29T15:00:00.123Z',
  severity: 'ERROR',
  message: 'relation "x" does not exist\nHINT: look\nSTATEMENT: select\n  1',
  origin: {
    process_id: 17,
    user_name: 'app',
    database_name: 'shop',
    application_name: 'psql',
    client: '10.0.0.1',
    error_code: '42P01',
    session_line: 2,
  },
};

test('a line has the prefix of its session, as each part of a message', () => {
  const prefix = '2026-11-29 15:00:00.123 UTC [17]: user=app,db=shop,app=psql,client=10.0.0.1 ';
  expect(formatEntry('pgbadger', entry).split('\n')).toEqual([
    `${prefix}ERROR:  relation "x" does not exist`,
    `${prefix}HINT:  look`,
    `${prefix}STATEMENT:  select`,
    '\t  1',
  ]);
  expect(formatEntry('pgbadger', { ...entry, origin: {}, message: 'ready' })).toBe(
    '2026-11-29 15:00:00.123 UTC [0]: user=,db=,app=,client= ERROR:  ready',
  );
});

test('no name and no message of a user makes a line of its own', () => {
  const forged = formatEntry('pgbadger', {
    ...entry,
    message: 'a\n2026-11-29 15:00:00.123 UTC [1]: user=b,db=b,app=b,client=b LOG:  forged',
    origin: { ...entry.origin, user_name: 'x\n2026', database_name: 'y,app=z' },
  });
  expect(forged.split('\n').map((line) => line.slice(0, 1))).toEqual(['2', '\t']);
  expect(forged).toContain('user=x_2026,db=y_app=z,');
});

test('a row has the 26 columns of csvlog', () => {
  expect(formatEntry('csv', entry)).toBe(
    '"2026-11-29 15:00:00.123 UTC","app","shop",17,"10.0.0.1",,2,,,,,"ERROR","42P01",' +
      '"relation ""x"" does not exist",,"look",,,,"select\n  1",,,"psql",,,0',
  );
});
