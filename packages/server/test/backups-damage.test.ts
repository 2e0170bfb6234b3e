/** Backups: damage that a verification finds, and a disk that runs full. */
import { open, readdir, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, type Installation, makeHome } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import {
  asHowdah,
  backupsOf,
  cloud,
  execute,
  outcomeOf,
  pathsOf,
  restart,
  scratch,
  snapshotNow,
  VERIFIED,
  verify,
  setUp,
  tearDown,
} from './backups-cloud.ts';
import { run } from './probe.ts';
import { during, untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(() => cloud.tidy());
afterAll(tearDown);

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

  const certificatesOf = async ({ service_id: id }: Service): Promise<unknown[]> =>
    Object((await cloud.request('GET', `/services/${id}/backups/certificates`)).body);

  const damaged = async (
    service: Service,
    path: string,
    at: number,
    reason: RegExp,
  ): Promise<void> => {
    await flip(path, at);
    const before = await certificatesOf(service);
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
    // A backup that cannot be restored has no certificate.
    expect(await certificatesOf(service)).toEqual(before);
    await flip(path, at);
  };

  /**
   * @returns a service with a fresh snapshot, and the paths of its table, index and control file
   */
  const snapshotted = async () => {
    const service = await cloud.create({ name: 'damaged', service_type: 'POSTGRES' });
    await execute(
      service,
      'create table t (n int primary key, words text[])',
      'insert into t select n, array[n::text] from generate_series(1, 5000) n',
      'create index by_word on t using gin (words)',
      // Pages that are vacuumed after the snapshot would be in the WAL whole, and a replay would
      // repair them.
      'alter table t set (autovacuum_enabled = off)',
    );
    const [files] = await execute(
      service,
      `select pg_relation_filepath('t') as table, pg_relation_filepath('by_word') as index`,
    );
    await snapshotNow(service);
    const [newest] = (await backupsOf(service)).snapshots;
    const data = join((await pathsOf(service)).snapshots, newest?.id ?? '', 'data');
    const table = join(data, String(files?.['table']));
    const index = join(data, String(files?.['index']));
    return { service, table, index, control: join(data, 'global', 'pg_control') };
  };
  const inSecondPage = 8192 + 8000;

  const expectRepaired = async (service: Service): Promise<void> => {
    const before = await certificatesOf(service);
    expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
    expect(await certificatesOf(service)).toHaveLength(before.length + 1);
    expect((await cloud.get(service.service_id)).warnings).toBeUndefined();
    expect((await backupsOf(service)).problem).toBeNull();
  };

  test('in a table; a repaired backup ends the warning', async () => {
    const { service, table } = await snapshotted();
    const reason = /check tables and indexes: .*invalid page in block 1/;
    await damaged(service, table, inSecondPage, reason);
    const listed = await cloud.cli('service', 'list');
    expect(listed.stderr).toContain(
      `warning ${service.name} VERIFICATION: the backup could not be verified`,
    );
    await expectRepaired(service);
  });

  test('in an index or the control file', { tags: 'slow' }, async () => {
    const { service, index, control } = await snapshotted();
    const inIndex = /check page checksums: page 1 of base.* is damaged/;
    await damaged(service, index, inSecondPage, inIndex);
    const inControlFile = /replay WAL: it does not recover: .*(checksum|control)/;
    await damaged(service, control, 40, inControlFile);
    await expectRepaired(service);
  });

  test(
    'in the WAL, or a missing segment; the next snapshot begins a new chain',
    { tags: 'slow' },
    async () => {
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
        const [row] = await execute(
          service,
          'select pg_walfile_name(pg_current_wal_lsn()) as file',
        );
        writtenInto.set(String(row?.['file']), [before, Date.now()]);
        await asHowdah(service, 'select pg_switch_wal()');
      }
      await untilExpected('four WAL files are archived', async () =>
        expect((await archived()).length).toBeGreaterThan(3),
      );
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
      await untilExpected('a scheduled snapshot is taken', async () =>
        expect((await backupsOf(service)).snapshots[0]?.kind).toBe('scheduled'),
      );
      expect(outcomeOf(await verify(service))).toEqual(VERIFIED);
      // The lost stretch still cannot be reached, and the window shows it.
      const [gap] = (await backupsOf(service)).window.gaps ?? [];
      const [begun, ended] = writtenInto.get(last) ?? [];
      expect(Date.parse(gap?.after ?? '')).toBeGreaterThanOrEqual(Number(begun));
      expect(Date.parse(gap?.after ?? '')).toBeLessThanOrEqual(Number(ended));
      const lostFor = `${reason}: nothing between ${gap?.after} and ${gap?.before} can be reached`;
      await untilExpected('the only warning is that of the WAL gap', async () =>
        expect((await cloud.get(service.service_id)).warnings).toEqual([
          expect.objectContaining({ code: 'ARCHIVE', message: lostFor }),
        ]),
      );
      const listed = await cloud.cli('backup', 'status', service.service_id);
      expect(listed.stdout).toContain(
        `except between ${gap?.after} and ${gap?.before}: ` +
          'a WAL segment is missing from the archive',
      );
      expect(listed.stderr).toContain(lostFor);
    },
  );
});

/**
 * Writes until a snapshot is due, which happens when enough WAL was written since the last one, and
 * does not find the space.
 *
 * @returns the end of the last write, which may wait for room
 */
async function untilSnapshotFails(
  full: Installation,
  service: Service & { initial_password: string },
): Promise<{ written: Promise<void> }> {
  const write = async (): Promise<void> => {
    const client = await connectTo(full, service, service.initial_password);
    try {
      await client.query("select pg_logical_emit_message(true, 'written', repeat('x', 20000))");
    } finally {
      await client.end();
    }
  };
  const failed = expect.objectContaining({
    code: 'SNAPSHOT',
    message: expect.stringContaining('no space left on'),
  });
  let hasFailed = false;
  const written = during(
    () => !hasFailed,
    async () => {
      // On a full disk its session may be ended, or wait.
      await write().catch(() => undefined);
      await full.round('snapshots');
    },
  );
  await untilExpected('a warning says that a snapshot finds no space', async () =>
    expect((await full.get(service.service_id)).warnings).toEqual(expect.arrayContaining([failed])),
  );
  hasFailed = true;
  return { written };
}

// A file system of its own is what can be filled without harm, and it takes root to mount one.
describe.runIf(process.getuid?.() === 0)('a disk that runs full', () => {
  test(
    'services warn at 85 % and at 95 %, also paused ones, until there is room again',
    { tags: 'slow' },
    async () => {
      const disk = await makeHome();
      await run('mount', ['-t', 'tmpfs', '-o', 'size=4g,mode=0755', 'howdah-test', disk]);
      const full = await install({
        HOWDAH_HOME: join(disk, 'home'),
        HOWDAH_SNAPSHOT_HOURS: '0.005',
        ...hurried(),
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
        const ofRegion = async () => {
          const params = { path: { project_id: full.projectId } };
          const { data } = await full.client.GET('/projects/{project_id}/regions', { params });
          return data?.[0]?.warnings;
        };
        const warned = (text: RegExp) => [
          expect.objectContaining({ code: 'DISK', message: expect.stringMatching(text) }),
        ];

        const ours = await used();
        // Templates that are still being made take some per cent more.
        await fill(88 - ours);
        await untilExpected('the region warns of a disk that is 85 % full', async () =>
          expect(await ofRegion()).toEqual(
            warned(
              new RegExp(
                '^the disk of the services is (8[5-9]|9[0-4]) % full .*' +
                  'from 95 % on no services and forks are made: delete',
              ),
            ),
          ),
        );
        await full.round('warnings');
        for (const service of [running, paused]) expect(await warnings(service)).toBeUndefined();
        await rm(join(disk, 'filler'));
        // A snapshot that is being taken at this moment takes some more.
        await fill(97 - (await used()));
        await untilExpected('the region warns of a disk that is 95 % full', async () =>
          expect(await ofRegion()).toEqual(
            warned(/ is 9[5-9] % full .*, no services and forks are made/),
          ),
        );
        expect(await verify(running, full)).toMatchObject({
          status: 'failed',
          error: expect.stringContaining('there is no space on the disk to restore it'),
        });
        expect(await warnings(running)).toEqual(
          expect.arrayContaining([expect.objectContaining({ code: 'VERIFICATION' })]),
        );
        const { written } = await untilSnapshotFails(full, running);

        await rm(join(disk, 'filler'));
        await written;
        expect(await verify(running, full)).toMatchObject({ status: 'succeeded' });
        for (const service of [running, paused])
          await untilExpected(`${service.name} has no warnings`, async () =>
            expect(await warnings(service)).toBeUndefined(),
          );
        expect(await ofRegion()).toBeUndefined();
      } finally {
        expect(await full.destroy()).toEqual([]);
        await run('umount', [disk]);
        await rm(disk, { recursive: true });
      }
    },
  );
});
