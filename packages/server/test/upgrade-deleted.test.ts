// @module-tag slow
/** An upgraded service is deleted, and comes back from the repository when its data is gone. */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newerMajor } from './crash-upgrade-scenes.ts';
import { install, makeHome, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import { openMetadata } from './metadata.ts';
import { OLDER_MAJOR, OLDER_PACKAGE, putPostgresql } from './npm-postgresql.ts';
import { createLayout, findPgBackRest } from './probe.ts';
import { insert, namesIn, type ServiceAccess } from './service-access.ts';
import { untilExpected } from './until.ts';

const pgBackRest = await findPgBackRest();
/** The version that data can be copied into; null: this machine has no pg_dump of a newer one. */
const newer = await newerMajor();

let repository: string;
let cloud: Installation;
beforeAll(async () => {
  repository = await makeHome();
  const home = await makeHome();
  const installations = join(home, 'data', 'postgres');
  await mkdir(installations, { recursive: true });
  await putPostgresql(OLDER_PACKAGE, join(installations, 'older'));
  cloud = await install({ HOWDAH_HOME: home, ...hurried() });
});
afterAll(async () => {
  const problems = await cloud?.destroy();
  await rm(repository, { recursive: true, force: true });
  expect(problems).toEqual([]);
});

/** The moment up to which the repository has all commits, in ms; 0: it has no backup yet. */
async function safeToMs(id: string): Promise<number> {
  const { body } = await cloud.request('GET', `/services/${id}/backupStatus`);
  const [one]: unknown[] = [Reflect.get(Object(body), 'off_machine')].flat();
  const latest: unknown = Reflect.get(Object(one), 'latest');
  return typeof latest === 'string' ? Date.parse(latest) : 0;
}

/** Waits until all that was written is in the repository, without the time that WAL may wait. */
async function untilSafe({ service_id: id, endpoint }: ServiceAccess): Promise<void> {
  const writtenMs = Date.now();
  const { socket: host } = createLayout(join(cloud.home, 'data')).service(id);
  const control = new Client({ host, port: endpoint.port, user: 'howdah', database: 'postgres' });
  await control.connect();
  await control.query("select pg_logical_emit_message(true, 'test', ''), pg_switch_wal()");
  await control.end();
  await untilExpected('the repository has all that was written', async () =>
    expect(await safeToMs(id)).toBeGreaterThan(writtenMs),
  );
}

const deleted = async () => (await cloud.request('GET', '/deletedServices')).body;

/** Ends the time in which a deleted service is restored from this machine: its data is removed. */
async function endRestoreTime(id: string): Promise<void> {
  const { db, close } = await openMetadata(cloud.home);
  await sql`update services set deleted_at = now() - interval '25 hours', due_at = now()
    where id = ${id}`.execute(db);
  await close();
  const fromRepository = { service_id: id, name: 'orders', repository: 'offsite' };
  await untilExpected('the deleted service is in the repository only', async () =>
    expect(await deleted()).toEqual([expect.objectContaining(fromRepository)]),
  );
  const { services } = createLayout(join(cloud.home, 'data'));
  await untilExpected('the data of the service is removed', async () =>
    expect(await readdir(services)).not.toContain(id),
  );
}

test.runIf(newer !== null && pgBackRest !== null)(
  'a deleted service has the rows from before and after its upgrade again, from the repository',
  async () => {
    const made = { name: 'orders', service_type: 'POSTGRES', pg_version: OLDER_MAJOR } as const;
    const service = await cloud.create(made);
    const id = service.service_id;
    const added = await cloud.cli('repo', 'add', 'offsite', '--path', repository);
    expect(added).toMatchObject({ code: 0, stderr: '' });
    await insert(cloud, service, 'before');
    await untilSafe(service);
    const upgraded = await cloud.cli('service', 'upgrade', 'orders', '--to', newer ?? '');
    expect(upgraded).toMatchObject({ code: 0 });
    await insert(cloud, service, 'after');
    await untilSafe(service);
    // The service's WAL is archived when it stops, and sent after that.
    await insert(cloud, service, 'last');
    expect(await cloud.cli('service', 'delete', 'orders', '--yes')).toMatchObject({ code: 0 });
    const { archive } = createLayout(join(cloud.home, 'data')).service(id);
    await untilExpected('the whole archive is sent', async () =>
      expect(await isAllSent(archive, id)).toBe(true),
    );
    await endRestoreTime(id);

    const plan = await cloud.cli('service', 'restore', 'orders', '--dry-run');
    expect(plan.stdout).toContain('its newest backup in the repository offsite comes back');
    expect(await cloud.cli('service', 'restore', 'orders')).toMatchObject({ code: 0 });
    expect(await cloud.get(id)).toMatchObject({ status: 'READY', pg_version: newer });
    expect(await namesIn(cloud, service)).toEqual(['before', 'after', 'last']);
    // The service's WAL goes on in the stanza of its data.
    await insert(cloud, service, 'again');
    await untilSafe(service);
    expect(await deleted()).toEqual([]);
  },
);

/** Whether the repository has the newest WAL file that a service has archived. */
async function isAllSent(archive: string, id: string): Promise<boolean> {
  const files = (await readdir(archive)).filter((name) => /^[0-9A-F]{24}$/.test(name));
  const last = files.toSorted().at(-1);
  const sent = await readdir(join(repository, 'archive'), { recursive: true });
  return sent.some((path) => path.startsWith(id) && path.includes(last ?? 'none'));
}
