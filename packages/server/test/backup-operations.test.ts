/** Backups off the machine as operations: by schedule, on request, cancelled and failing. */
import { chmod, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql, type RawBuilder } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Service } from './harness-caller.ts';
import { connectTo, install, makeHome, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { createLayout, findPgBackRest } from './probe.ts';
import { accessOf } from './service-access.ts';
import { until, untilExpected } from './until.ts';

const pgBackRest = await findPgBackRest();

/** The backups of pgBackRest fail, or hang, while a file of this name exists in it. */
let behaviour: string;
let cloud: Installation;
beforeAll(async () => {
  behaviour = await makeHome();
  if (pgBackRest !== null) await wrap(pgBackRest.program);
  const PATH = `${behaviour}/bin:${process.env['PATH'] ?? ''}`;
  cloud = await install({ PATH });
});
afterAll(async () => {
  const problems = await cloud?.destroy();
  await rm(behaviour, { recursive: true, force: true });
  expect(problems).toEqual([]);
});

const NO_ANSWER = "ERROR: [042]: timeout after 15000ms waiting for read from 'offsite:443'";

/** The next time that these are run, a server ends an answer early, as a busy one may do. */
async function failOnce(...commands: string[]): Promise<void> {
  const once = join(behaviour, 'once');
  await mkdir(once);
  // pgBackRest has a user of its own.
  await chmod(once, 0o777);
  for (const command of commands) await mkdir(join(once, command));
}

async function wrap(program: string): Promise<void> {
  await mkdir(join(behaviour, 'bin'));
  const script = `#!/bin/sh
case " $* " in
*" backup "*)
  [ ! -e ${behaviour}/fails ] || { echo 'ERROR: [082]: no WAL' >&2; exit 82; }
  [ ! -e ${behaviour}/hangs ] || exec sleep 3600 ;;
*" restore "*)
  ! rmdir ${behaviour}/once/restore 2>/dev/null || { echo "${NO_ANSWER}" >&2; exit 42; } ;;
*" archive-get "*)
  ! rmdir ${behaviour}/once/archive-get 2>/dev/null || { echo "${NO_ANSWER}" >&2; exit 42; } ;;
esac
exec ${program} "$@"
`;
  await writeFile(join(behaviour, 'bin', 'pgbackrest'), script, { mode: 0o755 });
}

/** The repository of the tests. */
async function addRepository(): Promise<void> {
  const path = join(behaviour, 'repository');
  await mkdir(path, { recursive: true });
  const { stdout } = await cloud.cli('repo', 'list');
  if (stdout.includes('offsite')) return;
  const added = await cloud.cli('repo', 'add', 'offsite', '--path', path);
  expect(added).toMatchObject({ code: 0, stderr: '' });
}

/** The backups of a service in the repository. */
async function offMachine(id: string): Promise<unknown> {
  const { body } = await cloud.request('GET', `/services/${id}/backupStatus`);
  const [one]: unknown[] = [Reflect.get(Object(body), 'off_machine')].flat();
  return one;
}

/** The operations that back a service up, the newest first. */
const runsOf = async (id: string) =>
  (await cloud.operations(id)).filter(({ kind }) => kind === 'runBackup');

const behave = (how: 'fails' | 'hangs') => writeFile(join(behaviour, how), '');
const recoverFrom = (how: 'fails' | 'hangs') => rm(join(behaviour, how));

test(
  'a backup is an operation: cancelled, retried, and going on after a crash',
  { tags: 'slow' },
  async () => {
    const { service_id: id } = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
    const ask = (full = false) => cloud.request('POST', `/services/${id}/backups/run`, { full });
    const refused = await ask();
    expect(refused).toMatchObject({ status: 422, body: { code: 'UNAVAILABLE_HERE' } });
    const remedy = pgBackRest === null ? 'apt-get install pgbackrest' : 'howdah repo add';
    expect(refused.body).toMatchObject({ message: expect.stringContaining(remedy) });
    if (pgBackRest === null) return;

    const newest = async () => (await runsOf(id))[0];
    const soon = (what: string, expected: object) =>
      untilExpected(what, async () => expect(await newest()).toMatchObject(expected));
    const cancel = async () =>
      cloud.request('POST', `/operations/${(await newest())?.id ?? ''}/cancel`);

    // By schedule: the first one is due at once. It fails, and is tried again.
    await behave('fails');
    await addRepository();
    const reason = /^the repository offsite cannot take a backup/;
    await soon('a scheduled backup has failed', {
      requested_by: 'howdah',
      status: 'running',
      error: expect.stringMatching(reason),
      steps: [{ name: 'back up', detail: expect.stringMatching(reason) }],
    });
    expect((await cloud.get(id)).status).toBe('READY');
    expect(await cancel()).toMatchObject({
      status: 200,
      body: { status: 'failed', error: expect.stringMatching(/^cancelled by /) },
    });

    // On request: it ends with its first failure, and the others are as if it had not been.
    const failed = await cloud.cli('backup', 'run', 'kept');
    expect(failed.code).not.toBe(0);
    expect(failed.stderr).toContain('the repository offsite cannot take a backup');
    await recoverFrom('fails');
    const done = await cloud.cli('backup', 'run', 'kept');
    expect(done).toMatchObject({ code: 0, stdout: 'backed up\n' });
    await soon('the backup has succeeded', {
      status: 'succeeded',
      steps: [
        { name: 'back up', detail: expect.stringMatching(/^offsite: .* backup of .*Z, \d+ MB/) },
      ],
    });

    await behave('hangs');
    const hanging = await ask(true);
    expect(hanging).toMatchObject({ status: 202 });
    await soon('the backup runs', { status: 'running', steps: [{ finished: null }] });
    // While it runs, another call names it.
    expect((await ask()).headers.get('Operation-Id')).toBe((await newest())?.id);
    expect(await cancel()).toMatchObject({ status: 200, body: { status: 'failed' } });

    // A crash: the same operation begins again.
    const again = await ask(true);
    await soon('the backup runs', { status: 'running', steps: [{ finished: null }] });
    await cloud.stop('SIGKILL');
    await recoverFrom('hangs');
    await cloud.up();
    await soon('the interrupted backup has succeeded', {
      id: again.headers.get('Operation-Id'),
      status: 'succeeded',
      steps: [{ detail: expect.stringContaining('offsite: full backup of') }],
    });
    await untilExpected('two full backups are off the machine', async () =>
      expect(await offMachine(id)).toMatchObject({
        problem: null,
        latest: expect.any(String),
        backups: [{ type: 'full' }, { type: 'full' }],
      }),
    );
    // None by schedule came after the cancelled one.
    expect((await runsOf(id)).filter(({ requested_by: by }) => by === 'howdah')).toHaveLength(1);
    // A tenant cannot fill the repository: with the four of before, these are ten.
    await behave('hangs');
    expect(await askUntilRefused(ask, cancel)).toEqual([202, 202, 202, 202, 202, 202, 422]);
    await recoverFrom('hangs');
    await expectCountWithDeleted(id);
  },
);

/**
 * Backups that were asked for of a service that is deleted count for another one, and only then.
 */
async function expectCountWithDeleted(id: string): Promise<void> {
  const other = await cloud.create({ name: 'other', service_type: 'POSTGRES' });
  expect(await cloud.cli('backup', 'run', 'other')).toMatchObject({ code: 0 });
  expect((await cloud.request('DELETE', `/services/${id}`)).status).toBe(202);
  const more = await cloud.request('POST', `/services/${other.service_id}/backups/run`, {});
  expect(more).toMatchObject({ status: 422, body: { code: 'LIMIT_EXCEEDED' } });
  // The service can be restored once its processes have stopped.
  const restore = async () => (await cloud.request('POST', `/services/${id}/restore`)).status;
  await untilExpected('the service can be restored', async () => expect(await restore()).toBe(202));
}

/** Asks for backups, and cancels them. @returns the statuses of the answers */
async function askUntilRefused(
  ask: (full: boolean) => Promise<{ status: number; body: unknown }>,
  cancel: () => Promise<unknown>,
): Promise<number[]> {
  const answers: number[] = [];
  while (answers.length < 10 && !answers.includes(422)) {
    const { status, body } = await ask(true);
    answers.push(status);
    if (status === 422) expect(body).toMatchObject({ code: 'LIMIT_EXCEEDED' });
    else expect(await cancel()).toMatchObject({ status: 200 });
  }
  return answers;
}

/** Changes one byte in the middle of the largest file below a directory. */
async function damage(directory: string): Promise<void> {
  const names = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = await Promise.all(
    names
      .filter((entry) => entry.isFile())
      .map(async ({ parentPath, name }) => {
        const path = join(parentPath, name);
        return { path, size: (await stat(path)).size };
      }),
  );
  const [largest] = files.toSorted((a, b) => b.size - a.size);
  if (largest === undefined) throw new Error(`${directory} has no files`);
  const contents = await readFile(largest.path);
  const at = Math.floor(contents.length / 2);
  contents.writeUInt8(contents.readUInt8(at) ^ 1, at);
  await writeFile(largest.path, contents);
}

/** Forks a service as it was when its table had one row, which this machine has no snapshot of. */
async function forkPast({ service_id: id, created }: Service, between: Date): Promise<void> {
  const { snapshots } = createLayout(join(cloud.home, 'data')).service(id);
  for (const name of await readdir(snapshots)) await rm(join(snapshots, name), { recursive: true });
  const ask = (at: Date) =>
    cloud.request('POST', `/services/${id}/forkService`, {
      name: 'past',
      fork_strategy: 'PITR',
      target_time: at.toISOString(),
    });
  const early = await ask(new Date(Date.parse(created) - 60_000));
  expect(early).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
  const { status, body } = await ask(between);
  expect(status).toBe(202);
  const fork = accessOf(body);
  await cloud.until(fork.service_id, 'READY');
  const [made] = await cloud.operations(fork.service_id);
  expect(made?.steps.map(({ detail }) => detail).join()).toContain('from offsite in ');
  const client = await connectTo(cloud, fork, fork.initial_password);
  expect((await client.query('select n from kept')).rows).toEqual([{ n: 1 }]);
  await client.end();
}

/** Whether the newest WAL file in the archive of a service was sent. */
async function isAllShipped(id: string): Promise<boolean> {
  const { archive, root } = createLayout(join(cloud.home, 'data')).service(id);
  const last = (await readdir(archive)).filter((name) => /^[0-9A-F]{24}$/.test(name)).toSorted();
  const file = (await readdir(root)).find((name) => name.startsWith('off-machine.'));
  const state: unknown = JSON.parse(await readFile(join(root, file ?? ''), 'utf8'));
  return Object.values(Object(Reflect.get(Object(state), 'pushed'))).includes(last.at(-1));
}

test.runIf(pgBackRest !== null)(
  'a deleted service comes back from the repository after its data was removed',
  { tags: 'slow' },
  async () => {
    const service = await cloud.create({ name: 'gone', service_type: 'POSTGRES' });
    const { service_id: id, endpoint } = service;
    await addRepository();
    expect(await cloud.cli('backup', 'run', 'gone')).toMatchObject({ code: 0 });
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table last_words as select 1 as n');
    await client.end();
    expect(await cloud.cli('service', 'delete', 'gone', '--yes')).toMatchObject({ code: 0 });
    // The service's last WAL is archived when it stops, and sent after that.
    await until('all WAL of the service is in the repository', () => isAllShipped(id));

    const metadata = await openMetadata(cloud.home);
    const listed = async () => (await cloud.request('GET', '/deletedServices')).body;
    const endTime = async (change: RawBuilder<unknown>): Promise<void> => {
      await change.execute(metadata.db);
      await sql`update services set due_at = now() where id = ${id}`.execute(metadata.db);
    };
    const removeData = async (): Promise<void> => {
      await endTime(
        sql`update services set deleted_at = now() - interval '25 hours' where id = ${id}`,
      );
      await untilExpected('the deleted service is listed with its repository', async () =>
        expect(await listed()).toEqual([
          expect.objectContaining({ service_id: id, name: 'gone', repository: 'offsite' }),
        ]),
      );
      const { services } = createLayout(join(cloud.home, 'data'));
      await untilExpected('the data of the service is removed from this machine', async () =>
        expect(await readdir(services)).not.toContain(id),
      );
    };
    await removeData();
    // Somebody else has its port now.
    const { db } = metadata;
    await db
      .updateTable('regions')
      .set({ last_port: endpoint.port - 1 })
      .execute();
    const other = await cloud.create({ name: 'neighbour', service_type: 'POSTGRES' });
    expect(other.endpoint.port).toBe(endpoint.port);
    const plan = await cloud.cli('service', 'restore', 'gone', '--dry-run');
    expect(plan.stdout).toContain('its newest backup in the repository offsite comes back');
    expect(await cloud.cli('service', 'restore', 'gone')).toMatchObject({ code: 0 });
    const back = await cloud.get(id);
    expect(back).toMatchObject({ status: 'READY', name: 'gone' });
    expect(back.endpoint.port).not.toBe(endpoint.port);
    const again = await connectTo(cloud, back, service.initial_password);
    expect((await again.query('table last_words')).rows).toEqual([{ n: 1 }]);
    await again.end();
    expect(await listed()).toEqual([]);

    // The new state gets there too. After the time there the service cannot be restored.
    expect(await cloud.cli('backup', 'run', id)).toMatchObject({ code: 0 });
    expect(await cloud.cli('service', 'delete', id, '--yes')).toMatchObject({ code: 0 });
    await removeData();
    await endTime(
      sql`update services set kept = jsonb_set(kept, '{until}', to_jsonb(now())) where id = ${id}`,
    );
    expect(await cloud.request('POST', `/services/${id}/restore`)).toMatchObject({ status: 404 });
    await untilExpected('no deleted service is listed', async () =>
      expect(await listed()).toEqual([]),
    );
    await metadata.close();
    const purged = await cloud.cli('service', 'purge', 'neighbour', '--confirm', 'neighbour');
    expect(purged).toMatchObject({ code: 0 });
  },
);

test.runIf(pgBackRest !== null)(
  'a repository is verified by restoring from it, and a damaged backup is a warning with a remedy',
  { tags: 'slow' },
  async () => {
    const service = await cloud.create({ name: 'checked', service_type: 'POSTGRES' });
    const { service_id: id } = service;
    await addRepository();
    const backUp = async () =>
      expect(await cloud.cli('backup', 'run', 'checked', '--full')).toMatchObject({ code: 0 });
    const verify = () => cloud.cli('backup', 'verify', 'checked', '--repository');
    await backUp();
    // An idle server finishes no WAL file, or few: its backup has what it wrote.
    const latestMs = async () =>
      Date.parse(String(Reflect.get(Object(await offMachine(id)), 'latest')));
    await untilExpected('the repository has the service as it was after its create', async () =>
      expect(await latestMs()).toBeGreaterThan(Date.parse(service.created)),
    );
    const idle = { code: 0, stderr: expect.stringMatching(/\d WAL files to replay/) };
    expect(await verify()).toMatchObject(idle);
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table kept as select 1 as n');
    const { rows } = await client.query<{ between: Date }>('select clock_timestamp() as between');
    await client.query('insert into kept values (2)');
    await client.end();
    // In less than checkpoint_timeout, for which the checkpointer of a new server would sleep.
    const writtenMs = Date.now();
    await untilExpected('the repository has all that was written', async () =>
      expect(await latestMs()).toBeGreaterThan(writtenMs),
    );
    const verified = await verify();
    expect(verified).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('fetch from the repository'),
    });
    const certified = await cloud.cli('backup', 'certificate', 'checked', '--json');
    expect(JSON.parse(certified.stdout).certificate).toMatchObject({
      backup: { place: 'repository', label: expect.stringMatching(/^\d{8}-\d{6}F/) },
      rpo_seconds: expect.any(Number),
    });
    expect(verified.stdout).toMatch(
      /^offsite: verified .*: back in [\d.]+ s \([\d.]+ s per GB\), \d+ s would have been lost\n$/,
    );
    expect(await offMachine(id)).toMatchObject({
      last_verification: {
        succeeded: true,
        recovery_point: expect.any(String),
        checks: [
          { name: 'fetch from the repository' },
          { name: 'restore snapshot' },
          { name: 'replay WAL' },
          { name: 'check tables and indexes' },
          { name: 'count rows' },
          { name: 'check page checksums' },
        ],
      },
    });

    await failOnce('restore', 'archive-get');
    expect(await verify()).toMatchObject({ code: 0 });
    expect(await readdir(join(behaviour, 'once'))).toEqual([]);

    await damage(join(behaviour, 'repository', 'backup', id));
    const red = await verify();
    expect(red.code).not.toBe(0);
    expect(red.stderr).toContain('offsite: fetch from the repository: ');
    expect(red.stderr).not.toContain(cloud.home);
    const warnings = async () => (await cloud.get(id)).warnings ?? [];
    expect(await warnings()).toEqual([
      { code: 'VERIFICATION', message: expect.stringContaining(`howdah backup run ${id} --full`) },
    ]);
    expect((await cloud.get(id)).status).toBe('READY');

    await backUp();
    expect(await verify()).toMatchObject({ code: 0 });
    expect(await warnings()).toEqual([]);
    await forkPast(service, rows[0]?.between ?? new Date());
  },
);
