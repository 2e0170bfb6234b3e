/** The tests of a repository in a cloud: refused, used, away, recovered from. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from '../test/harness.ts';
import { hurried } from '../test/tuning.ts';
import {
  cloud,
  execute,
  place,
  setUp,
  switchWal,
  tearDown,
  type ServiceAccess,
} from '../test/repository-cloud.ts';
import type { CloudServer } from './cloud-server.ts';
import { loseMachine, repository, untilSafe } from './lost-machine.ts';
import { offMachineOf } from './off-machine.ts';
import { untilExpected } from '../test/until.ts';

const AWAY = /cannot be reached or does not answer; check its address/;

const PARTS = `create table parts as
  select md5(random()::text || n) as noise from generate_series(1, 500000) as n`;

/**
 * Registers the tests.
 *
 * @param start starts the server in a directory of its own
 * @param isSilenceTested whether backups are verified while it is away. It takes minutes, and does
 *   not depend on the type of a server.
 */
export function testCloud(
  start: (directory: string) => Promise<CloudServer>,
  { isSilenceTested = false } = {},
): void {
  let server: CloudServer;
  let service: ServiceAccess;
  beforeAll(async () => {
    await setUp({
      HOWDAH_SNAPSHOT_HOURS: '24',
      ...hurried({ repositoryTimeoutSeconds: 5, verifyAgainMs: 100 }),
    });
    const directory = join(place, 'server');
    await mkdir(directory);
    server = await start(directory);
  });
  afterAll(async () => {
    await server?.stop();
    await tearDown();
  });
  const state = () => offMachineOf(service);

  const testSilence = (): void =>
    test(
      'a server that does not answer says nothing of the backups that it has',
      { tags: 'slow' },
      async () => {
        const verify = () => cloud.cli('backup', 'verify', 'ledger', '--repository');
        expect(await verify()).toMatchObject({ code: 0 });
        const verified = (await state())?.last_verification;
        await server.stop();
        const { code, stderr } = await verify();
        expect(stderr).toMatch(AWAY);
        expect(code).not.toBe(0);
        expect((await state())?.last_verification).toEqual(verified);
        expect(verified).toMatchObject({ succeeded: true });
        await server.start();
        expect(await verify()).toMatchObject({ code: 0 });
      },
    );

  test('a repository that cannot be used is refused with the reason', async () => {
    const add = (more: Record<string, string>) =>
      cloud.cli('repo', 'add', 'offsite', ...server.options(more));
    for (const [more, reason] of server.wrong) {
      const { code, stderr } = await add(more);
      expect(stderr).toMatch(reason);
      expect(code).not.toBe(0);
    }
    await server.stop();
    expect((await add({})).stderr).toMatch(AWAY);
    await server.start();
    expect(await add({})).toMatchObject({ code: 0, stderr: '' });
    expect(await cloud.cli('repo', 'check', 'offsite')).toMatchObject({ code: 0 });
  });

  test('backups and WAL are sent, also after its server was away', async () => {
    service = await cloud.create({ name: 'ledger', service_type: 'POSTGRES' });
    await execute(service, 'create table ledger as select generate_series(1, 100000) as n');
    // pgBackRest sends what takes more than 4 MB, compressed, in parts.
    await execute(service, PARTS);
    await untilExpected('the full backup is in the repository', async () =>
      expect(await state()).toMatchObject({ problem: null, backups: [{ type: 'full' }] }),
    );
    await server.stop();
    await switchWal(service);
    await untilExpected('the service reports the lost repository', async () =>
      expect(await state()).toMatchObject({ problem: expect.stringMatching(AWAY) }),
    );
    await execute(service, 'insert into ledger values (100001)');
    await server.start();
    await switchWal(service);
    await untilExpected('no WAL waits for the repository', async () =>
      expect(await state()).toMatchObject({ problem: null, backlog_since: null }),
    );
    const backup = await cloud.cli('backup', 'run', 'ledger', '--full');
    expect(backup).toMatchObject({ code: 0 });
    await untilExpected('the repository has a second backup', async () =>
      expect((await state())?.backups.length).toBe(2),
    );
  });

  if (isSilenceTested) testSilence();

  test('a lost machine comes back', async () => {
    await execute(service, 'insert into ledger values (100002)');
    await untilSafe();
    const before = await repository();
    expect(await cloud.cli('recover', await loseMachine())).toMatchObject({ code: 0, stderr: '' });
    await cloud.up();
    const back = await cloud.until(service.service_id, 'READY');
    const client = await connectTo(cloud, back, service.initial_password);
    const { rows } = await client.query<{ n: number; last: number }>(
      'select count(*)::int as n, max(n) as last from ledger',
    );
    await client.end();
    expect(rows).toEqual([{ n: 100_002, last: 100_002 }]);
    expect(await repository()).toMatchObject({ location: before.location, problem: null });
  });
}
