/** Backups: verifications, also interrupted ones, and the WAL archive. */
import { lstat, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, HOWDAH, install, makeHome } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import {
  asHowdah,
  askToVerify,
  backupsOf,
  cloud,
  execute,
  layout,
  operation,
  outcomeOf,
  pathsOf,
  scratch,
  type ServiceAccess,
  snapshotNow,
  VERIFIED,
  verify,
  setUp,
  tearDown,
} from './backups-cloud.ts';
import { findServer, instancePaths, run } from './probe.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(() => cloud.tidy());
afterAll(tearDown);

const PARTS = [
  'restore snapshot',
  'replay WAL',
  'compare catalogs',
  'check tables and indexes',
  'count rows',
  'check page checksums',
];

/** The server of a copy, if one runs. */
const copyOf = async (service: Service) =>
  findServer(instancePaths(join((await layout()).scratch, service.service_id)));

const named = (names: readonly string[]) =>
  names.map((name) => expect.objectContaining({ name, finished: expect.any(String) }));

describe('a backup is verified by restoring it', () => {
  test('right after the create, beside other operations; two requests are one', async () => {
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
    await untilExpected('the verification has succeeded', async () =>
      expect(await operation(id)).toMatchObject({
        kind: 'verifyBackup',
        status: 'succeeded',
        steps: named(PARTS),
      }),
    );
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

  test(
    'with data and indexes of all kinds, running and paused, and by the command line',
    { tags: 'slow' },
    async () => {
      const service = await cloud.create({ name: 'later', service_type: 'POSTGRES' });
      await execute(
        service,
        'create table t (n int primary key, words text[], long text)',
        'insert into t select n, array[n::text], repeat(md5(n::text), 200) ' +
          'from generate_series(1, 2000) n',
        'create index on t using gin (words)',
        'create index on t using brin (n)',
        'create index on t (upper(long))',
        'create unlogged table fleeting as select 1 as n',
        'create materialized view seen as select count(*) from t',
        // Settings that hinder a session which does not expect them.
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
      const listed = await cloud.cli('backup', 'status', 'later');
      expect(listed.stdout).toMatch(/scheduled .* MB .*, back in \d+\.\d s/);
      expect((await backupsOf(service)).snapshots[0]?.verification?.at).not.toBe(
        running.last_verification?.at,
      );
      expect((await cloud.get(service.service_id)).warnings).toBeUndefined();
    },
  );

  test('its certificate has the rows, and is verified without the installation', async () => {
    const service = await cloud.create({ name: 'certified', service_type: 'POSTGRES' });
    await execute(
      service,
      'create table t (n int primary key)',
      'insert into t select generate_series(1, 1234)',
      'delete from t where n <= 34',
      // The policies of a tenant have no part in the count.
      'create table hidden (n int)',
      'insert into hidden values (1), (2)',
      'alter table hidden enable row level security',
      'alter table hidden force row level security',
      // A function in an index must not run with the rights of a superuser.
      `create function peek() returns int immutable language plpgsql as $$
       begin
         if current_setting('is_superuser') = 'on' then raise 'superuser'; end if;
         return 1;
       end $$`,
      'create index on t ((n + peek()))',
      'create materialized view seen as select n from t limit 10',
      'create database other',
    );
    const id = await askToVerify(service);
    await untilExpected('the verification has succeeded', async () =>
      expect(await operation(id)).toMatchObject({ status: 'succeeded' }),
    );
    const shown = await cloud.cli('backup', 'certificate', 'certified', '--json');
    expect(shown.code, shown.stderr).toBe(0);
    const { snapshots } = await backupsOf(service);
    const { certificate } = JSON.parse(shown.stdout);
    expect(certificate).toMatchObject({
      service_id: service.service_id,
      service_name: 'certified',
      operation_id: id,
      backup: { place: 'snapshot', repository: null, label: snapshots[0]?.id },
      postgresql_version: expect.stringMatching(/^\d+\.\d+/),
      contents: { databases: 2, tables: 3, rows: 1212, uncounted_tables: 0 },
      pages: { pages: expect.any(Number), files: expect.any(Number) },
      rpo_seconds: 0,
      recovery_point: snapshots[0]?.verification?.recovery_point,
      rto_seconds: snapshots[0]?.verification?.recovery_seconds,
      checks: PARTS.map((name) => ({ name, detail: expect.any(String) })),
    });

    // Elsewhere: no installation, no key of the API.
    const auditor = await makeHome();
    const [json, page, keys] = ['c.json', 'c.pdf', 'keys.pem'].map((name) => join(auditor, name));
    const printed = await cloud.cli('backup', 'certificate-key');
    await writeFile(keys ?? '', printed.stdout);
    await writeFile(json ?? '', shown.stdout);
    await cloud.cli('backup', 'certificate', 'certified', '--pdf', page ?? '');
    const verifyFile = (file = '') =>
      run(process.execPath, [HOWDAH, 'backup', 'verify-certificate', file, '--key', keys ?? ''], {
        env: { HOWDAH_HOME: auditor },
      });
    for (const file of [json, page])
      expect(await verifyFile(file)).toContain(
        `verified: all of this was signed with the key ${certificate.key_id}`,
      );
    await writeFile(json ?? '', shown.stdout.replace('1212', '1213'));
    await expect(verifyFile(json)).rejects.toThrow('its signature is wrong');
    await rm(auditor, { recursive: true });
  });

  test(
    'a lost secrets.key makes another key for certificates, and the former one stays listed',
    { tags: 'slow' },
    async () => {
      const service = await cloud.create({ name: 'rekeyed', service_type: 'POSTGRES' });
      const keyOfNewest = async (): Promise<string> => {
        expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
        const { stdout } = await cloud.cli('backup', 'certificate', 'rekeyed', '--json');
        return JSON.parse(stdout).certificate.key_id;
      };
      const former = await keyOfNewest();
      expect(await keyOfNewest()).toBe(former);
      await cloud.stop('SIGTERM');
      await rm(join(cloud.home, 'secrets.key'));
      await cloud.up();
      const present = await keyOfNewest();
      expect(present).not.toBe(former);
      const { stdout } = await cloud.cli('backup', 'certificate-key', '-o', 'json');
      const listed = JSON.parse(stdout).map((key: object) => Reflect.get(key, 'key_id'));
      expect(listed).toEqual([present, former]);
    },
  );

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

  test('on a schedule, one at a time', { tags: 'slow' }, async () => {
    const own = await install({ HOWDAH_VERIFY_HOURS: '0.001', ...hurried() });
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
      await until(`${service.name} is verified twice`, () => verifiedTwice(service));
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

describe('a verification that is interrupted', () => {
  /**
   * A service whose verification does not end as long as this index is there: only a copy has no
   * workers.
   */
  const endless = async (name: string): Promise<ServiceAccess> => {
    const service = await cloud.create({ name, service_type: 'POSTGRES' });
    await execute(
      service,
      `create function slow(n int) returns int immutable language plpgsql as $$
       begin if current_setting('max_worker_processes') = '0' then perform pg_sleep(3600); end if;
         return n; end $$`,
      'create table t (n int)',
      'insert into t values (1)',
      'create index slowly on t (slow(n))',
    );
    return service;
  };

  const isChecking = async (id: string): Promise<void> =>
    untilExpected('the verification checks tables and indexes', async () =>
      expect((await operation(id)).steps.at(-1)).toMatchObject({
        name: 'check tables and indexes',
        finished: null,
      }),
    );

  test('by a stop or crash of the control plane begins again, leaves nothing', async () => {
    const service = await endless('resumed');
    const id = await askToVerify(service);
    await isChecking(id);
    await cloud.stop('SIGTERM');
    expect(await scratch()).toEqual([]);
    await cloud.up();
    await untilExpected('a copy is verified again', async () =>
      expect(await copyOf(service)).not.toBeNull(),
    );
    await isChecking(id);
    await cloud.stop('SIGKILL');
    expect(await scratch()).toEqual([service.service_id]);
    await execute(service, 'drop index slowly');
    await cloud.up();
    await untilExpected('the verification has succeeded', async () =>
      expect(await operation(id)).toMatchObject({ status: 'succeeded', steps: named(PARTS) }),
    );
    expect(await scratch()).toEqual([]);
    expect(await cloud.audit()).toEqual([]);
  });

  test('by a delete of the service fails and leaves nothing behind', async () => {
    const service = await endless('deleted');
    const id = await askToVerify(service);
    await isChecking(id);
    expect(await cloud.audit()).toEqual([]);
    await cloud.request('DELETE', `/services/${service.service_id}`);
    expect(await operation(id)).toMatchObject({ status: 'failed', error: 'superseded by delete' });
    await untilExpected('no copy is left', async () => expect(await scratch()).toEqual([]));
    await untilExpected('the service is deleted', async () =>
      expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
    );
  });

  test('by the death of its server fails with the reason; the service stays', async () => {
    const service = await endless('dies');
    const id = await askToVerify(service);
    await isChecking(id);
    const server = await copyOf(service);
    if (server === null) throw new Error('no copy runs');
    process.kill(server.postmaster.pid, 'SIGKILL');
    await untilExpected('the verification has failed', async () =>
      expect(await operation(id)).toMatchObject({
        status: 'failed',
        error: expect.stringContaining('check tables and indexes: '),
      }),
    );
    expect(await scratch()).toEqual([]);
    expect((await cloud.get(service.service_id)).status).toBe('READY');
  });
});

describe('the archive', () => {
  test('that cannot be written causes a warning until it can; writes continue', async () => {
    const service = await cloud.create({ name: 'blocked', service_type: 'POSTGRES' });
    const { archive } = await pathsOf(service);
    await execute(service, 'create table t (n int)');
    await rename(archive, `${archive}.away`);
    await writeFile(archive, 'in the way');
    await asHowdah(service, 'select pg_switch_wal()');
    await untilExpected('a warning says that the archive cannot be read', async () =>
      expect((await cloud.get(service.service_id)).warnings).toEqual([
        {
          code: 'ARCHIVE',
          message: expect.stringContaining('the WAL archive cannot be read: ENOTDIR'),
        },
      ]),
    );
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
    await untilExpected('the service has no warnings', async () =>
      expect((await cloud.get(service.service_id)).warnings).toBeUndefined(),
    );
    await untilExpected('the archive has two files', async () =>
      expect((await readdir(archive)).length).toBeGreaterThan(1),
    );
    expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
  });

  test('can be a link to another disk, and is removed with the service', async () => {
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
    await untilExpected('the linked archive has a file', async () =>
      expect((await readdir(join(disk, 'wal'))).length).toBeGreaterThan(0),
    );
    expect((await lstat(archive)).isSymbolicLink()).toBe(true);
    expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
    expect(await cloud.audit()).toEqual([]);
    await cloud.request('DELETE', `/services/${service.service_id}`);
    await untilExpected('the service is deleted', async () =>
      expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
    );
    expect(await readdir(disk)).toEqual([]);
    await rm(disk, { recursive: true });
  });
});
