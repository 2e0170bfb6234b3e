/** A repository on a real SFTP server: refused, used, verified, away and back. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { hurried } from '../test/tuning.ts';
import { cloud, execute, place, setUp, switchWal, tearDown } from '../test/repository-cloud.ts';
import { offMachineOf } from './off-machine.ts';
import { startSftp, type SftpServer } from './sftp-server.ts';
import { untilExpected } from '../test/until.ts';

let server: SftpServer;
beforeAll(async () => {
  await setUp({
    HOWDAH_SNAPSHOT_HOURS: '24',
    ...hurried({ repositoryTimeoutSeconds: 5, verifyAgainMs: 100 }),
  });
  const directory = join(place, 'sftp');
  await mkdir(directory);
  server = await startSftp(directory);
});
afterAll(async () => {
  await server?.stop();
  await tearDown();
});

test('a service is restored from an SFTP server, which may be away meanwhile', async () => {
  const path = join(place, 'backups');
  await mkdir(path);
  const add = (more: Record<string, string>) =>
    cloud.cli('repo', 'add', 'offsite', ...server.options({ path, ...more }));
  const wrong: [Record<string, string>, RegExp][] = [
    [{ 'host-fingerprint': 'ab'.repeat(32) }, /has another key than the fingerprint/],
    [{ 'key-file': server.unknown }, /refuses the credentials/],
    [{ user: 'nobody' }, /does not let it write; give its user the right to/],
  ];
  for (const [more, reason] of wrong) {
    const { code, stderr } = await add(more);
    expect(stderr).toMatch(reason);
    expect(code).not.toBe(0);
  }
  expect(await add({})).toMatchObject({ code: 0, stderr: '' });

  const service = await cloud.create({ name: 'ledger', service_type: 'POSTGRES' });
  await execute(service, 'create table ledger (n integer)');
  const state = () => offMachineOf(service);
  await untilExpected('the full backup is in the repository', async () =>
    expect(await state()).toMatchObject({ problem: null, backups: [{ type: 'full' }] }),
  );
  await server.stop();
  await switchWal(service);
  await untilExpected('the service reports the lost repository', async () =>
    expect(await state()).toMatchObject({
      problem: expect.stringMatching(/cannot be reached or does not answer; check its address/),
    }),
  );
  await execute(service, 'insert into ledger values (1)');
  await server.start();
  await switchWal(service);
  await untilExpected('no WAL waits for the repository', async () =>
    expect(await state()).toMatchObject({ problem: null, backlog_since: null }),
  );
  const verified = await cloud.cli('backup', 'verify', 'ledger', '--repository');
  expect(verified.stderr).toContain('✓ check page checksums');
  expect(verified.code).toBe(0);
});
