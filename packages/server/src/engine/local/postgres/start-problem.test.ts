import { expect, test } from 'vitest';
import { reasonOf, wantOf, withRemedy } from './start-problem.ts';

/** As PostgreSQL 18 writes them on Linux, with the part of the remedy that names the command. */
const CASES: readonly (readonly [message: string, command: string])[] = [
  ['could not map anonymous shared memory: Cannot allocate memory', 'howdah service resize'],
  ['could not create shared memory segment: Invalid argument', 'sysctl -w kernel.shmmax'],
  ['could not create shared memory segment: No space left on device', 'kernel.shmall'],
  [
    'could not resize shared memory segment "/PostgreSQL.2816312986" to 1048576 bytes: ' +
      'No space left on device',
    '/dev/shm',
  ],
  ['could not create semaphores: No space left on device', 'sysctl -w kernel.sem'],
  ['insufficient file descriptors available to start server process', 'LimitNOFILE'],
  ['could not open file "global/pg_filenode.map": Too many open files', 'ulimit -n'],
  ['could not open file "base/1": Too many open files in system', 'sysctl -w fs.file-max'],
  ['could not fork worker process: Resource temporarily unavailable', 'TasksMax'],
  ['could not fork background worker process: Cannot allocate memory', 'howdah service resize'],
  ['could not write lock file "postmaster.pid": No space left on device', 'df -h'],
  ['could not create file "pg_wal/xlogtemp.7": Disk quota exceeded', 'df -h'],
  ['startup process (PID 4242) was terminated by signal 9: Killed', 'journalctl -k'],
  ['out of memory', 'howdah service resize'],
];

test.each(CASES)(
  'a start that fails with "%s" names the command that cures it',
  (text, command) => {
    for (const before of ['', '2026-11-29 19:38:48.123 UTC [77] FATAL:  '])
      expect(withRemedy(`${before}${text}`)).toContain(command);
  },
);

test('the hint distinguishes too few huge pages from too little memory', () => {
  const message = 'FATAL:  could not map anonymous shared memory: Cannot allocate memory';
  const hint =
    "HINT:  This error usually means that PostgreSQL's request exceeded available memory, swap " +
    'space, or huge pages. huge_pages = on';
  expect(withRemedy(message)).toContain('free -h');
  expect(withRemedy(message, `${message}\n${hint}`)).toContain('vm.nr_hugepages');
});

test('text of a tenant in a message is no cause, and gets into no remedy', () => {
  const forged = 'could not create semaphores: No space left on device';
  for (const message of [
    `FATAL:  database "${forged}" does not exist`,
    `FATAL:  role "x: ${forged}`,
    `FATAL:  ${'x'.repeat(300)} FATAL:  ${forged}`,
    `no pg_hba.conf entry for host "h", user "${forged}"`,
    `FATAL:  unrecognized configuration parameter "a"\n${forged}`,
  ])
    expect(wantOf(message), message).toBeNull();
  const named = 'could not open file "base/$(reboot)/x": Too many open files';
  expect(wantOf(named)?.remedy).not.toContain('reboot');
});

test('a long message takes time that is linear in its length', () => {
  const hostile = 'could not create '.repeat(200_000);
  expect(withRemedy(hostile)).toBe(hostile);
});

test('an error of the operating system at a step has its remedy as well', () => {
  const error = (code: string, syscall: string) =>
    Object.assign(new Error(`${code}: ${syscall}`), { code, syscall });
  expect(reasonOf(error('ENOSPC', 'write'))).toContain('df -h');
  expect(reasonOf(error('EMFILE', 'open'))).toContain('LimitNOFILE');
  expect(reasonOf(error('EAGAIN', 'spawn postgres'))).toContain('TasksMax');
  expect(reasonOf(error('EAGAIN', 'read'))).toBe('EAGAIN: read');
  expect(reasonOf(error('ENOSPC', 'watch'))).toBe('ENOSPC: watch');
  expect(reasonOf(error('ENOENT', 'open'))).toBe('ENOENT: open');
});

test('a message of a statement is recognised as one of a start is', () => {
  const message = 'could not extend file "base/16384/2619": No space left on device';
  expect(reasonOf(Object.assign(new Error(message), { code: '53100' }))).toContain('df -h');
});
