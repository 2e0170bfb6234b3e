import { expect, test } from 'vitest';
import { reasonIn } from './follow.ts';

const line = (message: string, backend_type = 'walreceiver', error_severity = 'FATAL'): string =>
  JSON.stringify({
    level: 'info',
    record: { log_time: '', error_severity, message, backend_type },
  });

const GONE = 'requested WAL segment 0000 has already been removed';

test.each([
  [`could not receive data from WAL stream: ERROR:  ${GONE}`, 'walreceiver'],
  ["requested starting point 0/3 on timeline 1 is not in this server's history", 'walreceiver'],
  ['highest timeline 1 of the primary is behind recovery timeline 2', 'walreceiver'],
  ['new timeline 2 forked off from current database system timeline 1 before', 'startup'],
])('a node that says %j can never follow', (message, backend) => {
  const log = ['starting', line(message, backend), line('terminating', 'walreceiver')].join('\n');
  expect(reasonIn(log)).toContain(message.slice(0, 40));
});

test('sessions of users and other programs give no reason, nor does a primary that is away', () => {
  const away = 'could not connect to the primary server: connection refused';
  const log = [line(GONE, 'client backend', 'LOG'), GONE, '{', line(away)].join('\n');
  expect(reasonIn(log)).toBeNull();
});
