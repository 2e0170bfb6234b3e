/** A machine that is lost, and comes back from a real S3 server that others use too. */
import { createHash } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from '../test/harness.ts';
import { cloud, place, setUp, tearDown, type ServiceAccess } from '../test/repository-cloud.ts';
import { openLedger, type Ledger } from './ledger.ts';
import { loseMachine, repository, untilSafe } from './lost-machine.ts';
import { offMachineOf } from './off-machine.ts';
import { startS3, type S3Server } from './s3-server.ts';
import { untilExpected } from '../test/until.ts';

let server: S3Server;
let service: ServiceAccess;
beforeAll(async () => {
  await setUp({ HOWDAH_SNAPSHOT_HOURS: '24' });
  const directory = join(place, 's3');
  await mkdir(directory);
  server = await startS3(directory);
});
afterAll(async () => {
  await server?.stop();
  await tearDown();
});

/** The contents and times of the objects of another installation, by their names. */
async function othersObjects(): Promise<Map<string, string>> {
  const root = join(server.objects, OTHER);
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const found = await Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async ({ parentPath, name }) => {
        const path = join(parentPath, name);
        const hash = createHash('sha256').update(await readFile(path));
        return [path, `${(await stat(path)).mtimeMs} ${hash.digest('hex')}`] as const;
      }),
  );
  return new Map(found);
}

/** Another installation: its services have the same ids, and its path begins with ours. */
const OTHER = 'howdah-2';

/** The numbers in the ledger of the service, once it is there. */
async function numbers(): Promise<number[]> {
  const back = await cloud.until(service.service_id, 'READY');
  const client = await connectTo(cloud, back, service.initial_password);
  const { rows } = await client.query<{ n: number }>('select n from ledger order by n');
  await client.end();
  return rows.map(({ n }) => n);
}

let moment: Awaited<ReturnType<Ledger['moment']>>;

test('a lost machine comes back from S3 with every write from before the shown RPO', async () => {
  service = await cloud.create({ name: 'ledger', service_type: 'POSTGRES' });
  const added = await cloud.cli('repo', 'add', 'offsite', ...(await server.options()));
  expect(added).toMatchObject({ code: 0, stderr: '' });
  const ledger = await openLedger(cloud, service);
  await untilExpected('the repository has a service', async () =>
    expect((await repository()).services).toBe(1),
  );
  await cp(join(server.objects, 'howdah'), join(server.objects, OTHER), { recursive: true });
  const others = await othersObjects();
  expect(others.size).toBeGreaterThan(5);

  // Killed while a backup is transferred: the same operation begins again and ends.
  server.fail('slow');
  const asked = await cloud.request('POST', `/services/${service.service_id}/backups/run`, {
    full: true,
  });
  const operation = async () =>
    (await cloud.operations(service.service_id)).find(
      ({ id }) => id === asked.headers.get('Operation-Id'),
    );
  await untilExpected('the backup transfers data', async () =>
    expect((await operation())?.steps.at(-1)?.detail).toMatch(/ \d+ %/),
  );
  await cloud.stop('SIGKILL');
  server.fail('none');
  await cloud.up();
  await untilExpected('the backup has succeeded', async () =>
    expect(await operation()).toMatchObject({ status: 'succeeded' }),
  );

  await untilSafe();
  await ledger.goesOn();
  moment = await ledger.moment();
  await untilSafe();
  const shownMs = Date.now();
  const { behind_seconds: behind } = await repository();
  const newest = (await offMachineOf(service))?.backups[0]?.label;
  if (newest === undefined) throw new Error('there is no backup');
  const kit = await loseMachine();
  await ledger.stop();

  // The bucket has lost the newest backup too: an earlier one and the WAL since then are enough.
  await rm(join(server.objects, 'howdah', 'backup', service.service_id, newest), {
    recursive: true,
  });
  const recovered = await cloud.cli('recover', kit);
  expect(recovered).toMatchObject({ code: 0, stderr: '' });
  await cloud.up();
  const found = await numbers();
  const safe = ledger.acknowledged.filter(({ atMs }) => atMs <= shownMs - (behind ?? 0) * 1000);
  expect(safe.length).toBeGreaterThan(20);
  expect(found.length).toBeGreaterThanOrEqual(safe.length);
  // A prefix: nothing in the middle is missing.
  expect(found).toEqual(found.map((_, index) => index + 1));
  expect(await othersObjects()).toEqual(others);
});

test('a machine comes back from S3 as it was at a moment, others are untouched', async () => {
  const others = await othersObjects();
  const kit = await loseMachine();
  expect(await cloud.cli('recover', kit, '--at', moment.at)).toMatchObject({ code: 0 });
  await cloud.up();
  expect(await numbers()).toEqual(Array.from({ length: moment.n }, (_, index) => index + 1));
  expect(await cloud.cli('service', 'purge', 'ledger', '--confirm', 'ledger')).toMatchObject({
    code: 0,
  });
  expect(await othersObjects()).toEqual(others);
});
