// @module-tag slow
/** Upgrades to another major version of services that are backed up in a repository. */
import { mkdir, readdir, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newerMajor } from './crash-upgrade-scenes.ts';
import { install, makeHome, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import { OLDER_MAJOR, OLDER_PACKAGE, putPostgresql } from './npm-postgresql.ts';
import { createLayout, findPgBackRest, run } from './probe.ts';
import { insert, namesIn, type ServiceAccess } from './service-access.ts';
import { untilExpected } from './until.ts';

const pgBackRest = await findPgBackRest();
/** The version that data can be copied into; null: this machine has no pg_dump of a newer one. */
const newer = await newerMajor();

/** The place of the repository, and of a pgBackRest whose backups fail while a file is there. */
let away: string;
let cloud: Installation;
beforeAll(async () => {
  away = await makeHome();
  await mkdir(join(away, 'repository'));
  await mkdir(join(away, 'bin'));
  if (pgBackRest !== null)
    await writeFile(
      join(away, 'bin', 'pgbackrest'),
      `#!/bin/sh
case " $* " in
*" backup "*) [ ! -e ${away}/fails ] || { echo 'ERROR: [082]: no WAL' >&2; exit 82; } ;;
esac
exec ${pgBackRest.program} "$@"
`,
      { mode: 0o755 },
    );
  const home = await makeHome();
  await putOlder(home);
  const PATH = `${away}/bin:${process.env['PATH'] ?? ''}`;
  cloud = await install({ HOWDAH_HOME: home, PATH, ...hurried() });
});
afterAll(async () => {
  const problems = await cloud?.destroy();
  await rm(away, { recursive: true, force: true });
  expect(problems).toEqual([]);
});

async function putOlder(home: string): Promise<void> {
  await mkdir(join(home, 'data', 'postgres'), { recursive: true });
  await putPostgresql(OLDER_PACKAGE, join(home, 'data', 'postgres', 'older'));
}

/** The state of the service in the repository. */
async function offMachine(id: string): Promise<{ latestMs: number | null; backups: number }> {
  const { body } = await cloud.request('GET', `/services/${id}/backupStatus`);
  const [one]: unknown[] = [Reflect.get(Object(body), 'off_machine')].flat();
  const [latest, backups]: unknown[] = [
    Reflect.get(Object(one), 'latest'),
    Reflect.get(Object(one), 'backups'),
  ];
  return {
    latestMs: typeof latest === 'string' ? Date.parse(latest) : null,
    backups: Array.isArray(backups) ? backups.length : 0,
  };
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
    expect((await offMachine(id)).latestMs ?? 0).toBeGreaterThan(writtenMs),
  );
}

const upgrade = (...words: string[]) => cloud.cli('service', 'upgrade', 'orders', ...words);

/** The directories of WAL in the repository, by the stanza. */
async function archives(): Promise<Record<string, string[]>> {
  const top = join(away, 'repository', 'archive');
  const stanzas = await readdir(top);
  const listed = await Promise.all(
    stanzas.map(async (stanza) => {
      const entries = await readdir(join(top, stanza));
      return [stanza, entries.filter((entry) => !entry.startsWith('archive.info'))] as const;
    }),
  );
  // The upgrade that was lost has a stanza without WAL.
  return Object.fromEntries(listed.filter(([, entries]) => entries.length > 0));
}

/** Loses the machine, and rebuilds the installation from the repository. @returns what it says */
async function loseAndRecover(): Promise<string> {
  const shown = async () => (await cloud.cli('repo', 'show', 'offsite', '-o', 'json')).stdout;
  const saved = async () => /"control_saved": "(.*)"/.exec(await shown())?.[1] ?? '';
  const nowMs = Date.now();
  // A control plane that starts sends its data at once.
  await cloud.stop('SIGKILL');
  await cloud.up();
  await untilExpected('the metadata database is saved', async () =>
    expect(Date.parse((await saved()) || '0')).toBeGreaterThan(nowMs),
  );
  const kit = await cloud.cli('repo', 'kit', 'offsite');
  await writeFile(join(away, 'kit.json'), kit.stdout);
  await cloud.stop('SIGKILL');
  expect((await cloud.cli('down', '--databases')).code).toBe(0);
  for (const entry of await readdir(cloud.home))
    await rm(join(cloud.home, entry), { recursive: true, force: true });
  await putOlder(cloud.home);
  const recovered = await cloud.cli('recover', join(away, 'kit.json'));
  expect(recovered).toMatchObject({ code: 0, stderr: '' });
  await cloud.up();
  return recovered.stdout;
}

test('an upgraded service is undone, and recovered in either version', async () => {
  if (newer === null || pgBackRest === null) {
    const refused = await cloud.request('POST', '/services/none/upgrade', { pg_version: '99' });
    expect(refused.status).toBe(404);
    return;
  }
  const service = await cloud.create({
    name: 'orders',
    service_type: 'POSTGRES',
    pg_version: OLDER_MAJOR,
  });
  const id = service.service_id;
  const expectData = async (pg_version: string, names: string[]): Promise<void> => {
    const now = await cloud.until(id, 'READY');
    expect([now.pg_version, await namesIn(cloud, service)]).toEqual([pg_version, names]);
  };
  const added = await cloud.cli('repo', 'add', 'offsite', '--path', join(away, 'repository'));
  expect(added).toMatchObject({ code: 0, stderr: '' });
  await insert(cloud, service, 'older');
  await untilSafe(service);
  // The WAL of this row is not in the repository before the upgrade.
  await insert(cloud, service, 'last');

  // The control plane is killed while it copies, and while there is no backup of the copy yet.
  await writeFile(join(away, 'fails'), '');
  const asked = cloud.request('POST', `/services/${id}/upgrade`, { pg_version: newer });
  expect((await asked).status).toBe(202);
  const step = async () => (await cloud.operations(id))[0]?.steps.at(-1)?.name;
  await untilExpected('the upgrade copies data', async () =>
    expect(await step()).toMatch(/copy data/),
  );
  await cloud.stop('SIGKILL');
  await cloud.up();
  const upgraded = async () => (await cloud.operations(id)).find(({ kind }) => kind === 'upgrade');
  await untilExpected('the upgrade has succeeded', async () =>
    expect(await upgraded()).toMatchObject({ status: 'succeeded' }),
  );
  await expectData(newer, ['older', 'last']);
  const done = await upgraded();
  expect(done?.steps.map(({ detail }) => detail).join()).not.toContain('without the last WAL');
  await untilExpected('the repository has no backup of the new data', async () =>
    expect(await offMachine(id)).toEqual({ latestMs: null, backups: 0 }),
  );
  await insert(cloud, service, 'lost');
  expect(await loseAndRecover()).toContain(`with the PostgreSQL ${OLDER_MAJOR} of its backup`);
  await expectData(OLDER_MAJOR, ['older', 'last']);

  // Each data has a stanza of its own. An undo goes on with that of before.
  await rm(join(away, 'fails'));
  await untilSafe(service);
  const before = await offMachine(id);
  expect(before.backups).toBeGreaterThan(0);
  expect(await upgrade('--to', newer)).toMatchObject({ code: 0 });
  await insert(cloud, service, 'undone');
  await untilSafe(service);
  const stored = Object.values(await archives())
    .flat()
    .toSorted();
  expect(stored).toEqual([`${OLDER_MAJOR}-1`, `${newer}-1`]);
  expect(await upgrade('--undo', '--confirm', 'orders')).toMatchObject({ code: 0 });
  await expectData(OLDER_MAJOR, ['older', 'last']);
  expect((await offMachine(id)).backups).toBe(before.backups);
  await insert(cloud, service, 'again');
  await untilSafe(service);

  expect(await upgrade('--to', newer)).toMatchObject({ code: 0 });
  await insert(cloud, service, 'newest');
  await untilSafe(service);
  const verified = await cloud.cli('backup', 'verify', 'orders', '--repository');
  expect(verified).toMatchObject({ code: 0 });
  expect(await loseAndRecover()).not.toContain('of its backup');
  await expectData(newer, ['older', 'last', 'again', 'newest']);
  expect((await archives())[id]).toEqual([`${OLDER_MAJOR}-1`]);
  // The service's WAL goes on in the stanza of its data.
  await insert(cloud, service, 'on');
  await untilSafe(service);
});

test.runIf(newer !== null)('a linked archive stays on its disk', async () => {
  const made = { name: 'linked', service_type: 'POSTGRES', pg_version: OLDER_MAJOR } as const;
  const service = await cloud.create(made);
  const id = service.service_id;
  const { archive } = createLayout(join(cloud.home, 'data')).service(id);
  const disk = await makeHome();
  const change = async (path: string, status: Service['status'], body?: object): Promise<void> => {
    expect((await cloud.request('POST', `/services/${id}/${path}`, body)).status).toBe(202);
    await cloud.until(id, status);
  };
  await change('stop', 'PAUSED');
  await run('mv', [archive, join(disk, 'wal')]);
  await symlink(join(disk, 'wal'), archive);
  await change('start', 'READY');
  await insert(cloud, service, 'older');
  await change('upgrade', 'READY', { pg_version: newer });
  const beside = await readlink(archive);
  expect((await readdir(disk)).map((name) => join(disk, name)).toSorted()).toEqual(
    [beside, join(disk, 'wal')].toSorted(),
  );
  await insert(cloud, service, 'newer');
  await change('stop', 'PAUSED');
  // A shutdown archives the last WAL.
  expect(await readdir(beside)).not.toEqual([]);
  await change('start', 'READY');
  await change('upgrade', 'READY', { undo: true, confirm: 'linked' });
  expect(await readlink(archive)).toBe(join(disk, 'wal'));
  expect(await namesIn(cloud, service)).toEqual(['older']);
  await cloud.request('DELETE', `/services/${id}?purge=true`);
  await untilExpected('the disk for WAL is empty', async () =>
    expect(await readdir(disk)).toEqual([]),
  );
  await rm(disk, { recursive: true });
});
