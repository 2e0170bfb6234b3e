/** Backups that verify themselves, and warnings of what will become trouble. */
import {
  lstat,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createLayout, instancePaths } from '../src/engine/local/host/layout.ts';
import { run } from '../src/lib/run.ts';
import { findServer } from '../src/engine/local/postgres/server.ts';
import { connectTo, install, makeHome, type Installation, type Service } from './harness.ts';

let cloud: Installation;
beforeAll(async () => {
  // What is deleted is gone.
  cloud = await install({ HOWDAH_RESTORE_HOURS: '0' });
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

/** Longer than anything here takes to be seen. */
const SEEN = { timeout: 120_000, interval: 100 };
const PARTS = [
  'restore snapshot',
  'replay WAL',
  'compare catalogs',
  'check tables and indexes',
  'check page checksums',
];

type ServiceAccess = Service & { initial_password: string };

const layout = async () => createLayout(await realpath(join(cloud.home, 'data')));
const pathsOf = async (service: Service) => (await layout()).service(service.service_id);

async function execute(
  service: ServiceAccess,
  ...statements: string[]
): Promise<Record<string, unknown>[]> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    let rows: Record<string, unknown>[] = [];
    for (const statement of statements)
      rows = (await client.query<Record<string, unknown>>(statement)).rows;
    return rows;
  } finally {
    await client.end();
  }
}

/** As our own superuser. */
async function asHowdah(service: Service, statement: string): Promise<void> {
  const client = new Client({
    host: (await pathsOf(service)).socket,
    port: service.endpoint.port,
    user: 'howdah',
    database: 'tsdb',
  });
  await client.connect();
  await client.query(statement);
  await client.end();
}

async function backupsOf(service: Service, { client, projectId } = cloud) {
  const { data } = await client.GET('/projects/{project_id}/services/{service_id}/backups', {
    params: { path: { project_id: projectId, service_id: service.service_id } },
  });
  if (data === undefined) throw new Error('no backups');
  return data;
}

async function askToVerify(service: Service, { request } = cloud): Promise<string> {
  const answer = await request('POST', `/services/${service.service_id}/backups/verify`);
  expect(answer).toMatchObject({ status: 202, body: { message: expect.any(String) } });
  return answer.headers.get('Operation-Id') ?? '';
}

async function operation(id: string, { request } = cloud) {
  const { body } = await request('GET', `/operations/${id}`);
  if (typeof body !== 'object' || body === null || !('steps' in body) || !Array.isArray(body.steps))
    throw new Error(JSON.stringify(body));
  const steps: unknown[] = body.steps;
  return { ...body, steps };
}

/** Asks for a verification and waits for its end. */
async function verify(service: Service, on = cloud) {
  const id = await askToVerify(service, on);
  await expect.poll(() => operation(id, on), SEEN).toMatchObject({ finished: expect.any(String) });
  return operation(id, on);
}

/** How a verification ended, and why. */
const outcomeOf = (operation: object) => ({
  status: Reflect.get(operation, 'status'),
  error: Reflect.get(operation, 'error'),
});
const VERIFIED = { status: 'succeeded', error: undefined };

/** The server of a copy, if one runs. */
const copyOf = async (service: Service) =>
  findServer(instancePaths(join((await layout()).scratch, service.service_id)));

const named = (names: readonly string[]) =>
  names.map((name) => expect.objectContaining({ name, finished: expect.any(String) }));

/** Lets a snapshot be taken, and none after it: a control plane begins with seeing to backups. */
async function snapshotNow(service: Service): Promise<void> {
  const [newest] = (await backupsOf(service)).snapshots;
  const before = newest?.id;
  // Due after 3.6 s, and not before.
  await expect.poll(() => Date.now() - Date.parse(newest?.taken ?? ''), SEEN).toBeGreaterThan(3600);
  await restart({ HOWDAH_SNAPSHOT_HOURS: '0.001' });
  await expect.poll(async () => (await backupsOf(service)).snapshots[0]?.id, SEEN).not.toBe(before);
  await restart({ HOWDAH_SNAPSHOT_HOURS: '24' });
}

async function restart(settings: Record<string, string>): Promise<void> {
  await cloud.stop('SIGTERM');
  Object.assign(cloud.env, settings);
  await cloud.up();
}

/** What there is of copies. */
const scratch = async () => readdir((await layout()).scratch);

describe('a backup is verified by restoring it', () => {
  test('is possible right after the create and beside other operations; two requests are one operation', async () => {
    const service = await cloud.create({ name: 'new', service_type: 'POSTGRES' });
    expect((await backupsOf(service)).last_verification).toBeUndefined();
    await execute(
      service,
      'create table t (n int primary key)',
      'insert into t select generate_series(1, 1000)',
    );
    const begunMs = Date.now();
    const [id, again] = await Promise.all([askToVerify(service), askToVerify(service)]);
    expect(again).toBe(id);
    expect(await cloud.request('POST', `/services/${service.service_id}/stop`)).toMatchObject({
      status: 202,
    });
    await cloud.until(service.service_id, 'PAUSED');
    await expect
      .poll(() => operation(id), SEEN)
      .toMatchObject({ kind: 'verifyBackup', status: 'succeeded', steps: named(PARTS) });
    const { snapshots, last_verification: last, problem } = await backupsOf(service);
    expect(snapshots).toMatchObject([{ kind: 'initial', verification: last }]);
    expect(last).toMatchObject({
      succeeded: true,
      checks: PARTS.map((name) => ({ name, succeeded: true })),
    });
    expect(last?.recovery_seconds).toBeGreaterThan(0);
    expect(Date.parse(last?.recovery_point ?? '')).toBeLessThanOrEqual(Date.now());
    expect(Date.parse(last?.at ?? '')).toBeGreaterThanOrEqual(begunMs);
    expect(problem).toBeNull();
    expect(await scratch()).toEqual([]);
  });

  test('a later one with data and indexes of all kinds, running and paused; and the command line', async () => {
    const service = await cloud.create({ name: 'later', service_type: 'POSTGRES' });
    await execute(
      service,
      'create table t (n int primary key, words text[], long text)',
      `insert into t select n, array[n::text], repeat(md5(n::text), 200) from generate_series(1, 2000) n`,
      'create index on t using gin (words)',
      'create index on t using brin (n)',
      'create index on t (upper(long))',
      'create unlogged table fleeting as select 1 as n',
      'create materialized view seen as select count(*) from t',
      // What would be in the way of anybody who did not expect it.
      'alter database tsdb set default_transaction_read_only = on',
    );
    await snapshotNow(service);
    const asClient = await connectTo(cloud, service, service.initial_password);
    await asClient.query('set default_transaction_read_only = off');
    await asClient.query('insert into t values (-1)');
    const { rows } = await asClient.query<{ now: Date }>('select clock_timestamp() as now');
    await asClient.end();
    expect(await verify(service)).toMatchObject({ status: 'succeeded', steps: named(PARTS) });
    const running = await backupsOf(service);
    expect(running.snapshots[0]).toMatchObject({
      kind: 'scheduled',
      verification: { succeeded: true },
    });
    // All that was committed before it was asked for, and no later than now.
    expect(Date.parse(running.last_verification?.recovery_point ?? '')).toBeGreaterThanOrEqual(
      rows[0]?.now.getTime() ?? Infinity,
    );

    await cloud.request('POST', `/services/${service.service_id}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    const asked = await cloud.cli('backup', 'verify', 'later');
    expect(asked.code, asked.stderr).toBe(0);
    expect(
      asked.stderr.split('\n').flatMap((line) => /^✓ ([a-zA-Z ]+?) \d/.exec(line)?.[1] ?? []),
    ).toEqual(PARTS);
    expect(asked.stderr).toContain('not compared: the service does not run');
    const listed = await cloud.cli('backup', 'list', 'later');
    expect(listed.stdout).toMatch(/scheduled .* MB .*, back in \d+\.\d s/);
    expect((await backupsOf(service)).snapshots[0]?.verification?.at).not.toBe(
      running.last_verification?.at,
    );
    expect((await cloud.get(service.service_id)).warnings).toBeUndefined();
  });

  test('is refused where there is nothing to restore', async () => {
    const { body } = await cloud.request('POST', '/services', {
      name: 'too early',
      service_type: 'POSTGRES',
    });
    const id =
      typeof body === 'object' && body !== null && 'service_id' in body
        ? String(body.service_id)
        : '';
    await cloud.request('DELETE', `/services/${id}`);
    const answer = await cloud.request('POST', `/services/${id}/backups/verify`);
    expect([400, 404]).toContain(answer.status);
    expect(await cloud.request('POST', '/services/abcdefghij/backups/verify')).toMatchObject({
      status: 404,
    });
  });

  test('on a schedule, one after the other', { tags: 'slow' }, async () => {
    const own = await install({ HOWDAH_VERIFY_HOURS: '0.001' });
    const services = [
      await own.create({ name: 'one', service_type: 'POSTGRES' }),
      await own.create({ name: 'two', service_type: 'POSTGRES' }),
    ];
    const verifiedTwice = async (service: Service) =>
      (await own.operations(service.service_id)).filter(
        ({ kind, status, requested_by: by }) =>
          kind === 'verifyBackup' && status === 'succeeded' && by === 'howdah',
      ).length >= 2;
    for (const service of services)
      await expect.poll(() => verifiedTwice(service), SEEN).toBe(true);
    const all = (await own.operations()).filter(
      ({ kind, finished }) => kind === 'verifyBackup' && finished !== null,
    );
    const spans = all
      .flatMap(({ steps }) => [[steps[0]?.started ?? '', steps.at(-1)?.finished ?? '']])
      .toSorted(([a = ''], [b = '']) => a.localeCompare(b));
    for (const [index, [started = '']] of spans.entries())
      expect(started >= (spans[index - 1]?.[1] ?? '')).toBe(true);
    expect(await own.destroy()).toEqual([]);
  });
});

describe('a backup that is damaged is found', () => {
  /** Flips a byte; done twice, nothing has happened. */
  const flip = async (path: string, at: number): Promise<void> => {
    const file = await open(path, 'r+');
    const byte = Buffer.alloc(1);
    await file.read(byte, 0, 1, at);
    await file.write(Buffer.from([(byte[0] ?? 0) ^ 0xff]), 0, 1, at);
    await file.close();
  };

  /** Inside the first record of a WAL file, which begins after a header of 40 bytes. */
  const FIRST_RECORD_BYTE = 60;

  const damaged = async (
    service: Service,
    path: string,
    at: number,
    reason: RegExp,
  ): Promise<void> => {
    await flip(path, at);
    const failed = await verify(service);
    expect(failed).toMatchObject({ status: 'failed', error: expect.stringMatching(reason) });
    expect((await cloud.get(service.service_id)).warnings).toEqual([
      { code: 'VERIFICATION', message: expect.stringMatching(reason) },
    ]);
    const { last_verification: last, snapshots, problem } = await backupsOf(service);
    expect(last).toMatchObject({ succeeded: false, problem: expect.stringMatching(reason) });
    expect(last?.checks.at(-1)).toMatchObject({ succeeded: false });
    expect(snapshots[0]?.verification).toEqual(last);
    expect(problem).toMatch(reason);
    expect((await cloud.get(service.service_id)).status).toBe('READY');
    expect(await scratch()).toEqual([]);
    await flip(path, at);
  };

  test('in a page of a table, in one that no query reads, in the control file; and what is good again warns no more', async () => {
    const service = await cloud.create({ name: 'damaged', service_type: 'POSTGRES' });
    await execute(
      service,
      'create table t (n int primary key, words text[])',
      'insert into t select n, array[n::text] from generate_series(1, 5000) n',
      'create index by_word on t using gin (words)',
      // What is vacuumed after the snapshot would be in the WAL whole, and a replay would repair it.
      'alter table t set (autovacuum_enabled = off)',
    );
    const [files] = await execute(
      service,
      `select pg_relation_filepath('t') as table, pg_relation_filepath('by_word') as index`,
    );
    await snapshotNow(service);
    const [newest] = (await backupsOf(service)).snapshots;
    const data = join((await pathsOf(service)).snapshots, newest?.id ?? '', 'data');
    await damaged(
      service,
      join(data, String(files?.['table'])),
      8192 + 8000,
      /check tables and indexes: .*invalid page in block 1/,
    );
    const listed = await cloud.cli('service', 'list');
    expect(listed.stderr).toContain(
      `warning ${service.name} VERIFICATION: the backup could not be verified`,
    );
    await damaged(
      service,
      join(data, String(files?.['index'])),
      8192 + 8000,
      /check page checksums: page 1 of base.* is damaged/,
    );
    await damaged(
      service,
      join(data, 'global', 'pg_control'),
      40,
      /replay WAL: it does not recover: .*(checksum|control)/,
    );
    expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
    expect((await cloud.get(service.service_id)).warnings).toBeUndefined();
    expect((await backupsOf(service)).problem).toBeNull();
  });

  test('in the WAL, and where a file of it is missing: then the next snapshot begins again', async () => {
    const service = await cloud.create({ name: 'gap', service_type: 'POSTGRES' });
    const { archive, data } = await pathsOf(service);
    const archived = async () =>
      (await readdir(archive)).filter((name) => /^[0-9A-F]{24}$/.test(name)).toSorted();
    await execute(service, 'create table t (n int)');
    /** The moments before and after what was written into a file. */
    const writtenInto = new Map<string, [number, number]>();
    for (let file = 0; file < 4; file++) {
      const before = Date.now();
      await execute(service, `insert into t values (${file})`);
      const [row] = await execute(service, 'select pg_walfile_name(pg_current_wal_lsn()) as file');
      writtenInto.set(String(row?.['file']), [before, Date.now()]);
      await asHowdah(service, 'select pg_switch_wal()');
    }
    await expect.poll(async () => (await archived()).length, SEEN).toBeGreaterThan(3);
    const [, last = '', lost = ''] = await archived();
    // However late it was archived.
    await utimes(join(archive, last), Date.now() / 1000 + 3600, Date.now() / 1000 + 3600);
    await flip(join(archive, lost), FIRST_RECORD_BYTE);
    expect(await verify(service)).toMatchObject({
      status: 'failed',
      error: expect.stringMatching(/^replay WAL: it ends at .*WAL between the two is damaged$/),
    });
    await flip(join(archive, lost), FIRST_RECORD_BYTE);
    expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
    await rm(join(archive, lost));
    await rm(join(data, 'pg_wal', lost), { force: true });
    const reason = `WAL file ${lost} is missing from the archive`;
    expect(await verify(service)).toMatchObject({
      status: 'failed',
      error: expect.stringContaining(reason),
    });
    expect((await cloud.get(service.service_id)).warnings).toMatchObject([
      { code: 'ARCHIVE', message: expect.stringContaining(reason) },
      { code: 'VERIFICATION', message: expect.stringContaining(reason) },
    ]);
    await restart({});
    await expect
      .poll(async () => (await backupsOf(service)).snapshots[0]?.kind, SEEN)
      .toBe('scheduled');
    expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
    // What was lost cannot be reached still, and that is said.
    const [gap] = (await backupsOf(service)).window.gaps ?? [];
    const [begun, ended] = writtenInto.get(last) ?? [];
    expect(Date.parse(gap?.after ?? '')).toBeGreaterThanOrEqual(Number(begun));
    expect(Date.parse(gap?.after ?? '')).toBeLessThanOrEqual(Number(ended));
    const lostFor = `${reason}: nothing between ${gap?.after} and ${gap?.before} can be reached`;
    await expect
      .poll(async () => (await cloud.get(service.service_id)).warnings, SEEN)
      .toEqual([expect.objectContaining({ code: 'ARCHIVE', message: lostFor })]);
    const listed = await cloud.cli('backup', 'list', service.service_id);
    expect(listed.stdout).toContain(
      `but none between ${gap?.after} and ${gap?.before}: a WAL file is missing from the archive`,
    );
    expect(listed.stderr).toContain(lostFor);
  });
});

describe('a verification that is interrupted', () => {
  /** A service whose verification does not end as long as this index is there: only a copy has no workers. */
  const endless = async (name: string): Promise<ServiceAccess> => {
    const service = await cloud.create({ name, service_type: 'POSTGRES' });
    await execute(
      service,
      `create function slow(n int) returns int immutable language plpgsql as $$
       begin if current_setting('max_worker_processes') = '0' then perform pg_sleep(3600); end if; return n; end $$`,
      'create table t (n int)',
      'insert into t values (1)',
      'create index slowly on t (slow(n))',
    );
    return service;
  };

  const isChecking = async (id: string): Promise<void> =>
    expect
      .poll(async () => (await operation(id)).steps.at(-1), SEEN)
      .toMatchObject({ name: 'check tables and indexes', finished: null });

  test('by the end of the control plane, in order or not, is begun again, and nothing is left over', async () => {
    const service = await endless('resumed');
    const id = await askToVerify(service);
    await isChecking(id);
    await cloud.stop('SIGTERM');
    expect(await scratch()).toEqual([]);
    await cloud.up();
    await expect.poll(() => copyOf(service), SEEN).not.toBeNull();
    await isChecking(id);
    await cloud.stop('SIGKILL');
    expect(await scratch()).toEqual([service.service_id]);
    await execute(service, 'drop index slowly');
    await cloud.up();
    await expect
      .poll(() => operation(id), SEEN)
      .toMatchObject({ status: 'succeeded', steps: named(PARTS) });
    expect(await scratch()).toEqual([]);
    expect(await cloud.audit()).toEqual([]);
  });

  test('by a delete of the service has failed, and nothing is left over', async () => {
    const service = await endless('deleted');
    const id = await askToVerify(service);
    await isChecking(id);
    expect(await cloud.audit()).toEqual([]);
    await cloud.request('DELETE', `/services/${service.service_id}`);
    expect(await operation(id)).toMatchObject({ status: 'failed', error: 'superseded by delete' });
    await expect.poll(scratch, SEEN).toEqual([]);
    await expect
      .poll(
        async () => (await cloud.request('GET', `/services/${service.service_id}`)).status,
        SEEN,
      )
      .toBe(404);
  });

  test('by the death of its server has failed with the reason, and the service is what it was', async () => {
    const service = await endless('dies');
    const id = await askToVerify(service);
    await isChecking(id);
    const server = await copyOf(service);
    if (server === null) throw new Error('no copy runs');
    process.kill(server.postmaster.pid, 'SIGKILL');
    await expect
      .poll(() => operation(id), SEEN)
      .toMatchObject({
        status: 'failed',
        error: expect.stringContaining('check tables and indexes: '),
      });
    expect(await scratch()).toEqual([]);
    expect((await cloud.get(service.service_id)).status).toBe('READY');
  });
});

describe('the archive', () => {
  test(
    'that cannot be written warns within a minute, writes go on, and it heals',
    { tags: 'slow' },
    async () => {
      const service = await cloud.create({ name: 'blocked', service_type: 'POSTGRES' });
      const { archive } = await pathsOf(service);
      await execute(service, 'create table t (n int)');
      await rename(archive, `${archive}.away`);
      await writeFile(archive, 'in the way');
      await asHowdah(service, 'select pg_switch_wal()');
      await expect
        .poll(async () => (await cloud.get(service.service_id)).warnings, SEEN)
        .toEqual([
          {
            code: 'ARCHIVE',
            message: expect.stringContaining(`${archive} cannot be read: ENOTDIR`),
          },
        ]);
      expect(await readFile(join(cloud.home, 'logs', 'control.log'), 'utf8')).toContain(
        '"code":"ARCHIVE"',
      );
      expect((await backupsOf(service)).problem).toContain('cannot be read');
      await execute(service, 'insert into t values (1)');
      // A server that starts meanwhile starts.
      await cloud.request('POST', `/services/${service.service_id}/stop`);
      await cloud.until(service.service_id, 'PAUSED');
      await cloud.request('POST', `/services/${service.service_id}/start`);
      await cloud.until(service.service_id, 'READY');
      await execute(service, 'insert into t values (2)');
      await rm(archive);
      await rename(`${archive}.away`, archive);
      await asHowdah(service, 'select pg_switch_wal()');
      await expect
        .poll(async () => (await cloud.get(service.service_id)).warnings, SEEN)
        .toBeUndefined();
      await expect.poll(async () => (await readdir(archive)).length, SEEN).toBeGreaterThan(1);
      expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
    },
  );

  test('may be a link to another disk: it is written, read, and removed with the service', async () => {
    const service = await cloud.create({ name: 'linked', service_type: 'POSTGRES' });
    const { archive } = await pathsOf(service);
    const disk = await makeHome();
    await cloud.request('POST', `/services/${service.service_id}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    await run('mv', [archive, join(disk, 'wal')]);
    await symlink(join(disk, 'wal'), archive);
    await cloud.request('POST', `/services/${service.service_id}/start`);
    await cloud.until(service.service_id, 'READY');
    await execute(service, 'create table t (n int)');
    await asHowdah(service, 'select pg_switch_wal()');
    await expect
      .poll(async () => (await readdir(join(disk, 'wal'))).length, SEEN)
      .toBeGreaterThan(0);
    expect((await lstat(archive)).isSymbolicLink()).toBe(true);
    expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
    expect(await cloud.audit()).toEqual([]);
    await cloud.request('DELETE', `/services/${service.service_id}`);
    await expect
      .poll(
        async () => (await cloud.request('GET', `/services/${service.service_id}`)).status,
        SEEN,
      )
      .toBe(404);
    expect(await readdir(disk)).toEqual([]);
    await rm(disk, { recursive: true });
  });
});

// A file system of its own is what can be filled without harm, and it takes root to mount one.
describe.runIf(process.getuid?.() === 0)('a disk that runs full', () => {
  test(
    'is warned of at 85 and at 95 %, on paused services too; what does not fit is said, and it heals',
    { tags: 'slow' },
    async () => {
      const disk = await makeHome();
      await run('mount', ['-t', 'tmpfs', '-o', 'size=4g,mode=0755', 'howdah-test', disk]);
      const full = await install({
        HOWDAH_HOME: join(disk, 'home'),
        HOWDAH_SNAPSHOT_HOURS: '0.005',
      });
      try {
        const running = await full.create({ name: 'running', service_type: 'POSTGRES' });
        const paused = await full.create({ name: 'paused', service_type: 'POSTGRES' });
        await full.request('POST', `/services/${paused.service_id}/stop`);
        await full.until(paused.service_id, 'PAUSED');
        const fill = (percent: number) =>
          run('fallocate', [
            '-l',
            String(Math.round(4 * 1024 ** 3 * (percent / 100))),
            join(disk, 'filler'),
          ]);
        const used = async () =>
          Number(/(\d+)%/.exec(await run('df', ['--output=pcent', disk]))?.[1]);
        const warnings = async (service: Service) => (await full.get(service.service_id)).warnings;
        const warned = (text: RegExp) => [
          expect.objectContaining({ code: 'DISK', message: expect.stringMatching(text) }),
        ];

        const ours = await used();
        // Templates that are still being made take some per cent more.
        await fill(88 - ours);
        for (const service of [running, paused]) {
          await expect
            .poll(() => warnings(service), SEEN)
            .toEqual(
              warned(
                /^the disk of .* is (8[5-9]|9[0-4]) % full .*from 95 % on no services and forks are made: delete/,
              ),
            );
        }
        await rm(join(disk, 'filler'));
        // A snapshot that is being taken at this moment takes some more.
        await fill(97 - (await used()));
        for (const service of [running, paused]) {
          await expect
            .poll(() => warnings(service), SEEN)
            .toEqual(
              expect.arrayContaining(
                warned(/ is 9[5-9] % full .*, no services and forks are made/),
              ),
            );
        }
        expect(await verify(running, full)).toMatchObject({
          status: 'failed',
          error: expect.stringContaining('there is no room to restore it in'),
        });
        expect(await warnings(running)).toEqual(
          expect.arrayContaining([expect.objectContaining({ code: 'VERIFICATION' })]),
        );
        const client = await connectTo(full, running, running.initial_password);
        await client.query('create table t (n int)');
        await client.query('insert into t values (1)');
        await client.end();
        const snapshotFailed = expect.objectContaining({
          code: 'SNAPSHOT',
          message: expect.stringContaining('no space left in'),
        });
        await expect
          .poll(() => warnings(running), SEEN)
          .toEqual(expect.arrayContaining([snapshotFailed]));

        await rm(join(disk, 'filler'));
        expect(await verify(running, full)).toMatchObject({ status: 'succeeded' });
        for (const service of [running, paused])
          await expect.poll(() => warnings(service), SEEN).toBeUndefined();
      } finally {
        expect(await full.destroy()).toEqual([]);
        await run('umount', [disk]);
        await rm(disk, { recursive: true });
      }
    },
  );
});
