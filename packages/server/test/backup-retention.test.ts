// @module-tag slow
/** Services whose backups a repository keeps for a time of their own. */
import { chmod, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Service } from './harness-caller.ts';
import { connectTo, install, makeHome, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { createLayout, findPgBackRest, run } from './probe.ts';
import { untilExpected } from './until.ts';

const pgBackRest = await findPgBackRest();

/** How far its clock is ahead when pgBackRest removes backups, once the file `later` exists. */
const LATER_DAYS = 3;
const CLOCK = `#include <time.h>
time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += ${LATER_DAYS * 86_400};
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
`;

/** A module of tcc asks for an executable stack, which glibc refuses. */
const COMPILE = `
if command -v cc >/dev/null; then cc -shared -fPIC -o "$1" "$2"
else tcc -shared -fPIC -o "$1" "$2" && patchelf --clear-execstack "$1"
fi`;

/** The directory of the program, of the repository, and of the list of removals. */
let place: string;
let cloud: Installation;

describe.runIf(pgBackRest !== null)('a repository of 30 days', () => {
  beforeAll(async () => {
    place = await makeHome();
    await wrap(pgBackRest?.program ?? '');
    const PATH = `${place}/bin:${process.env['PATH'] ?? ''}`;
    cloud = await install({ PATH });
    const path = join(place, 'repository');
    await mkdir(path);
    const added = await cloud.cli('repo', 'add', 'offsite', '--path', path, ...DAYS);
    expect(added).toMatchObject({ code: 0, stderr: '' });
  });
  afterAll(async () => {
    const problems = await cloud?.destroy();
    await rm(place, { recursive: true, force: true });
    expect(problems).toEqual([]);
  });

  test('loses what one day does not keep of one service, and keeps it of another', async () => {
    const [short, long] = [await made('short'), await made('long')];
    const set = await cloud.cli('backup', 'set-retention', 'short', '1');
    expect(set).toMatchObject({ code: 0, stdout: expect.stringContaining(': 1 day, set for') });
    const shown = await cloud.cli('backup', 'retention', 'long');
    expect(shown.stdout).toBe('in its region: 3 days\noffsite: 30 days\n');
    for (const name of ['short', 'long', 'short', 'long'])
      expect(await cloud.cli('backup', 'run', name, '--full')).toMatchObject({ code: 0 });
    // On a slow machine a service has had a first backup of itself by now.
    const before = await countBackups(long);
    expect(Math.min(before, await countBackups(short))).toBeGreaterThanOrEqual(2);

    await writeFile(join(place, 'later'), '');
    await restart();
    const removals = async () => (await readFile(join(place, 'removals'), 'utf8')).split('\n');
    await untilExpected('pgBackRest has expired backups of both services', async () =>
      expect(await removals()).toEqual(
        expect.arrayContaining([`${short.service_id} 1`, `${long.service_id} 30`]),
      ),
    );
    await untilExpected('one backup of the short retention is left', async () =>
      expect(await countBackups(short)).toBe(1),
    );
    expect(await countBackups(long)).toBeGreaterThanOrEqual(before);
  });

  test('restores a deleted service for its own retention, which is longer', async () => {
    const gone = await made('gone');
    const { service_id: id } = gone;
    expect(await cloud.cli('backup', 'set-retention', 'gone', '180')).toMatchObject({ code: 0 });
    expect(await cloud.cli('backup', 'run', 'gone')).toMatchObject({ code: 0 });
    // The WAL with its password may still be on the machine alone.
    const madeMs = Date.now();
    await untilExpected('the repository has all that was written', async () =>
      expect(await latestMs(gone)).toBeGreaterThan(madeMs),
    );
    expect(await cloud.cli('service', 'delete', 'gone', '--yes')).toMatchObject({ code: 0 });
    const metadata = await openMetadata(cloud.home);
    await sql`update services set deleted_at = now() - interval '25 hours', due_at = now()
      where id = ${id}`.execute(metadata.db);
    const { services } = createLayout(join(cloud.home, 'data'));
    await untilExpected('the data of the service is removed from this machine', async () =>
      expect(await readdir(services)).not.toContain(id),
    );
    await untilExpected('the deleted service has 180 days left', async () =>
      expect(await daysLeft(id)).toBe(180),
    );

    // 40 days pass, and the repository is tidied.
    await sql`update services set kept = kept || jsonb_build_object(
        'since', (kept ->> 'since')::timestamptz - interval '40 days',
        'until', (kept ->> 'until')::timestamptz - interval '40 days')
      where id = ${id}`.execute(metadata.db);
    await metadata.close();
    const restartedMs = Date.now();
    await restart();
    await untilExpected(
      'the repository has the data of the control plane after its restart',
      async () => expect(await controlSavedMs()).toBeGreaterThan(restartedMs),
    );
    expect(await daysLeft(id)).toBe(140);
    expect(await cloud.cli('service', 'restore', 'gone')).toMatchObject({ code: 0 });
    const client = await connectTo(cloud, await cloud.get(id), gone.initial_password);
    await client.end();
    // The service still has its retention.
    expect((await cloud.cli('backup', 'retention', 'gone')).stdout).toContain('offsite: 180 days');
  });
});

const DAYS = ['--retention-days', '30'];

const made = (name: string) => cloud.create({ name, service_type: 'POSTGRES' });

/** A pgBackRest that notes its removals, and makes them in the future once that has begun. */
async function wrap(program: string): Promise<void> {
  await mkdir(join(place, 'bin'));
  await writeFile(join(place, 'clock.c'), CLOCK);
  await run('sh', ['-c', COMPILE, 'sh', join(place, 'clock.so'), join(place, 'clock.c')]);
  await writeFile(join(place, 'removals'), '');
  await chmod(join(place, 'removals'), 0o666);
  const script = `#!/bin/sh
case " $* " in
*" expire "*)
  if [ -e ${place}/later ]; then
    echo "$PGBACKREST_STANZA $PGBACKREST_REPO1_RETENTION_FULL" >>${place}/removals
    export LD_PRELOAD=${place}/clock.so
  fi ;;
esac
exec ${program} "$@"
`;
  await writeFile(join(place, 'bin', 'pgbackrest'), script, { mode: 0o755 });
}

/** The first round after a start removes what is too old. */
async function restart(): Promise<void> {
  await cloud.stop('SIGTERM');
  await cloud.up();
}

async function offMachineOf({ service_id: id }: Service): Promise<object> {
  const { body } = await cloud.request('GET', `/services/${id}/backupStatus`);
  const [one]: unknown[] = [Reflect.get(Object(body), 'off_machine')].flat();
  return Object(one);
}

async function countBackups(service: Service): Promise<number> {
  return [Reflect.get(await offMachineOf(service), 'backups')].flat().length;
}

/** Up to when all commits of a service are in the repository. */
async function latestMs(service: Service): Promise<number> {
  return Date.parse(String(Reflect.get(await offMachineOf(service), 'latest') ?? 0));
}

/** For how many days a deleted service can be restored, rounded. */
async function daysLeft(id: string): Promise<number> {
  const { body } = await cloud.request('GET', '/deletedServices');
  const found = [body].flat().find((one) => Reflect.get(Object(one), 'service_id') === id);
  const until = Date.parse(String(Reflect.get(Object(found), 'restorable_until')));
  return Math.round((until - Date.now()) / 86_400_000);
}

/** When the repository got the data of the control plane: after it was tidied. */
async function controlSavedMs(): Promise<number> {
  const { stdout } = await cloud.cli('repo', 'show', 'offsite', '-o', 'json');
  const saved: unknown = Reflect.get(Object(JSON.parse(stdout)), 'control_saved');
  return typeof saved === 'string' ? Date.parse(saved) : 0;
}
