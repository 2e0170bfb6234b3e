/** A repository on a real S3 server that refuses, fails, is slow or silent, and comes back. */
import { mkdir, readdir, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { hurried } from '../test/tuning.ts';
import {
  cloud,
  pathsOf,
  place,
  setUp,
  switchWal,
  tearDown,
  type ServiceAccess,
} from '../test/repository-cloud.ts';
import { openLedger, type Ledger } from './ledger.ts';
import { offMachineOf } from './off-machine.ts';
import { startS3, type Fault, type S3Server } from './s3-server.ts';
import { untilExpected } from '../test/until.ts';

let server: S3Server;
let service: ServiceAccess;
let ledger: Ledger;
beforeAll(async () => {
  await setUp({
    HOWDAH_SNAPSHOT_HOURS: '24',
    ...hurried({ repositoryTimeoutSeconds: 5, verifyAgainMs: 100 }),
  });
  const directory = join(place, 's3');
  await mkdir(directory);
  server = await startS3(directory);
  service = await cloud.create({ name: 'ledger', service_type: 'POSTGRES' });
  ledger = await openLedger(cloud, service);
});
afterAll(async () => {
  await ledger?.stop();
  await server?.stop();
  await tearDown();
});

const state = () => offMachineOf(service);

const warnings = async (): Promise<string> =>
  ((await cloud.get(service.service_id)).warnings ?? []).map(({ message }) => message).join();

test('a repository that cannot be used is refused with the reason', async () => {
  const wrong: [Record<string, string>, RegExp][] = [
    [{ bucket: 'none' }, /the bucket none does not exist; create it/],
    [{ region: 'elsewhere' }, /in another region/],
    [{ 'key-id': 'another' }, /refuses the credentials/],
  ];
  for (const [more, reason] of wrong) {
    const { code, stderr } = await cloud.cli(
      'repo',
      'add',
      'offsite',
      ...(await server.options(more)),
    );
    expect(stderr).toMatch(reason);
    expect(code).not.toBe(0);
  }
  const added = await cloud.cli('repo', 'add', 'offsite', ...(await server.options()));
  expect(added).toMatchObject({ code: 0, stderr: '' });
  await untilExpected('the full backup is in the repository', async () =>
    expect(await state()).toMatchObject({ problem: null, backups: [{ type: 'full' }] }),
  );
});

const EXPIRED = /certificate of its server is not valid for its name, has expired/;
const FULL = /it is full; make room there/;
const LOAD = /overloaded or fails at the moment; it is tried again/;
const FAULTS: [string, Fault, RegExp][] = [
  ['whose key was replaced', 'another key', /refuses the credentials.*; give it valid ones/],
  ['with an expired certificate', 'expired', EXPIRED],
  ['with a certificate of another authority', 'untrusted', EXPIRED],
  [
    'that finds the clock wrong',
    { status: 403, code: 'RequestTimeTooSkewed', refuses: 'all' },
    /the clock of this machine differs .*; set it/,
  ],
  ['over its quota', { status: 403, code: 'QuotaExceeded', refuses: 'writes' }, FULL],
  ['that is full', { status: 507, code: 'XMinioStorageFull', refuses: 'writes' }, FULL],
  ['that asks to slow down', { status: 503, code: 'SlowDown', refuses: 'all' }, LOAD],
  ['that is silent', 'silent', /cannot be reached or does not answer; check its address/],
];

for (const [position, [name, fault, reason]] of FAULTS.entries())
  test(
    `a repository ${name}: the reason is shown, writes go on, WAL follows later`,
    { tags: position % 2 === 0 ? [] : ['slow'] },
    async () => {
      await ledger.goesOn();
      server.fail(fault);
      try {
        const checked = cloud.cli('repo', 'check', 'offsite');
        await switchWal(service);
        await untilExpected('the service reports the fault', async () =>
          expect((await state())?.problem).toMatch(reason),
        );
        expect((await state())?.backlog_since).not.toBeNull();
        await ledger.goesOn();
        expect((await cloud.get(service.service_id)).status).toBe('READY');
        const { code, stderr } = await checked;
        expect(stderr).toMatch(reason);
        expect(code).not.toBe(0);
        await makeLate();
        await untilExpected('the service warns of the fault', async () =>
          expect(await warnings()).toMatch(reason),
        );
      } finally {
        server.fail('none');
      }
      await untilExpected('no WAL waits for the repository', async () =>
        expect(await state()).toMatchObject({ problem: null, backlog_since: null }),
      );
      await untilExpected('the service has no warning', async () =>
        expect(await warnings()).toBe(''),
      );
      expect(await cloud.cli('repo', 'check', 'offsite')).toMatchObject({ code: 0 });
    },
  );

/** WAL waits since longer ago than a service goes without a warning. */
async function makeLate(): Promise<void> {
  const then = new Date(Date.now() - 600_000);
  const { archive } = pathsOf(service);
  for (const name of await readdir(archive)) await utimes(join(archive, name), then, then);
}
