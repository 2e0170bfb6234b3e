/**
 * `howdah store`: the data of an installation moves into a file system of its own and loses
 * nothing, wherever the move is interrupted.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, stat, statfs, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOWDAH, install, makeHome, type Installation } from './harness.ts';
import {
  allPids,
  argumentsOf,
  cloneTree,
  exists,
  imagePaths,
  instancePaths,
  mountImage,
  readMarker,
  removeTree,
  run,
  unfinishedMove,
  unmount,
  writeMarker,
} from './probe.ts';
import {
  down,
  fork,
  GIB,
  makeTools,
  query,
  type ServiceAccess,
  spawned,
  stepsOf,
  storageOf,
  sweep,
  untilMade,
  whyNone,
} from './store-volume.ts';
import { until, untilExpected } from './until.ts';

const none = await whyNone();

if (none !== null) process.stderr.write(`store.test.ts is skipped: ${none}\n`);

describe.skipIf(none !== null)('a store of btrfs for an installation that has services', () => {
  let cloud: Installation;
  let running: ServiceAccess;
  let paused: ServiceAccess;
  let home: string;
  beforeAll(async () => {
    home = await makeHome();
    cloud = await install({ HOWDAH_HOME: home });
    running = await cloud.create({ name: 'runs', service_type: 'POSTGRES' });
    paused = await cloud.create({ name: 'sleeps', service_type: 'POSTGRES' });
    await query(
      cloud,
      running,
      'create table t as select n, md5(n::text) from generate_series(1, 100000) n',
    );
    await query(cloud, paused, 'create table t as select 1 as n');
    await cloud.request('POST', `/services/${paused.service_id}/stop`);
    await cloud.until(paused.service_id, 'PAUSED');
  });
  afterAll(async () => {
    try {
      expect(await cloud.destroy()).toEqual([]);
    } finally {
      await sweep(home);
    }
  });

  const create = () => cloud.cli('store', 'create', '--size', '4G');

  test('is refused with the remedy where it is not possible, and changes nothing', async () => {
    expect(await create()).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/control plane runs .*howdah down --databases/),
    });
    await cloud.stop('SIGTERM');
    expect(await create()).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/1 databases of .* are running: howdah down --databases/),
    });
    await down(cloud);
    expect(await cloud.cli('store', 'create', '--size', '1G')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/--size: found 1G; allowed is 2G or more: .* holds \d+ MB/),
    });
    expect(await cloud.cli('store', 'create', '--size', '9999T')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/the disk under .* has .* free/),
    });
    expect(await cloud.cli('store', 'create', '--size', '4')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('like 100G'),
    });
    expect(await cloud.cli('store', 'create', '--size', '4G', '--fs', 'zfs')).toMatchObject({
      code: 2,
    });
    expect(await cloud.cli('store', 'resize', '--size', '4G')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('has no store'),
    });
    const path = cloud.env['PATH'] ?? '';
    await mkdir(join(home, 'few-programs'));
    await symlink('/bin/sh', join(home, 'few-programs', 'sh'));
    cloud.env['PATH'] = join(home, 'few-programs');
    expect(await create()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('apt-get install btrfs-progs'),
    });
    cloud.env['PATH'] = path;
    expect(await unfinishedMove(imagePaths(join(home, 'data')))).toEqual([]);
    expect(await exists(join(home, 'data.img'))).toBe(false);
    await cloud.up();
  });

  test('is completed after kills at every program, without loss', { tags: 'slow' }, async () => {
    await down(cloud);
    const paths = imagePaths(join(home, 'data'));
    const programs = ['losetup', 'mkfs.btrfs', 'mount', 'umount', 'btrfs', 'setpriv', 'sync'];
    const tools = await makeTools(programs, home);
    const path = cloud.env['PATH'] ?? '';
    let written = 0;
    let [undecided, decided] = [0, 0];
    for (;;) {
      const killAt = (await exists(paths.checked)) ? ++decided : ++undecided;
      cloud.env['PATH'] = `${tools.directory}:${path}`;
      await tools.killAt(killAt);
      const { code, stderr } = await create();
      cloud.env['PATH'] = path;
      if (code === 0) break;
      expect([code, stderr]).toEqual([null, '']);
      // In between it may be used: what is written then is part of the next copy.
      if (killAt % 7 !== 0) continue;
      await cloud.up();
      expect(await unfinishedMove(paths)).toEqual([]);
      if (await exists(paths.image)) break;
      await cloud.until(running.service_id, 'READY');
      await query(cloud, running, `create table after_${++written} ()`);
      await down(cloud);
      await killInTheCopy(paths, written === 1);
    }
    expect(undecided).toBeGreaterThan(12);
    expect(decided).toBeGreaterThan(2);
    expect(written).toBeGreaterThan(0);
    expect(await unfinishedMove(paths)).toEqual([]);
    expect(await create()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is a store already'),
    });
    await cloud.up();
    await cloud.until(running.service_id, 'READY');
    expect(await query(cloud, running, 'select count(*)::int, sum(n)::text from t')).toEqual([
      { count: 100_000, sum: '5000050000' },
    ]);
    expect(
      await query(
        cloud,
        running,
        `select count(*)::int from pg_tables where tablename like 'after%'`,
      ),
    ).toEqual([{ count: written }]);
    expect((await cloud.get(paused.service_id)).status).toBe('PAUSED');
  });

  /**
   * Kills a creation while it copies, and sees its cp gone with it. @param halted whether to look
   * before who else may work there
   */
  const killInTheCopy = async (
    { staging }: { staging: string },
    halted: boolean,
  ): Promise<void> => {
    const child = spawn(process.execPath, [HOWDAH, 'store', 'create', '--size', '4G'], {
      env: cloud.env,
      stdio: 'ignore',
    });
    const ended = once(child, 'exit');
    const copied = join(staging, 'services', running.service_id, 'data', 'PG_VERSION');
    await untilMade(copied, child);
    expect(child.exitCode).toBeNull();
    if (halted) {
      child.kill('SIGSTOP');
      const atWork = {
        code: 1,
        stderr: expect.stringMatching(
          /howdah store create is at work here already \(process \d+\)/,
        ),
      };
      expect(await create()).toMatchObject(atWork);
      expect(await cloud.cli('up')).toMatchObject(atWork);
    }
    child.kill('SIGKILL');
    await ended;
    const copying = async () =>
      (await Promise.all((await allPids()).map(argumentsOf))).some(
        (args) => args.includes(staging) && args[0] === 'cp',
      );
    await untilExpected('no copy is under way', async () => expect(await copying()).toBe(false));
  };

  test(
    'forks are subvolume snapshots, of moved and of new services',
    { tags: 'slow' },
    async () => {
      const { data: regions } = await cloud.client.GET('/projects/{project_id}/regions', {
        params: { path: { project_id: cloud.projectId } },
      });
      expect(regions?.[0]).toMatchObject({
        clone_method: 'subvolume',
        fork_cost: expect.stringContaining('whatever the size'),
      });
      const now = await fork(cloud, running, 'NOW');
      expect(await stepsOf(cloud, now)).toMatch(
        /^clone parent: by subvolume of the running parent/,
      );
      expect(await query(cloud, now, 'select count(*)::int from t')).toEqual([{ count: 100_000 }]);
      const asleep = await fork(cloud, paused, 'NOW');
      expect(await stepsOf(cloud, asleep)).toMatch(
        /^clone parent: by subvolume of the paused parent/,
      );
      expect(await query(cloud, asleep, 'select n from t')).toEqual([{ n: 1 }]);
      const snapshot = await fork(cloud, paused, 'LAST_SNAPSHOT');
      expect(await stepsOf(cloud, snapshot)).toMatch(/^clone parent: snapshot of .*, by subvolume/);
      expect((await stat(join(home, 'data', 'services', running.service_id, 'data'))).ino).toBe(
        256,
      );
      await cloud.create({ name: 'new', service_type: 'POSTGRES' });
      // A directory from before btrfs-progs were there is no subvolume: it can be cloned into one.
      const [plain, clone] = [
        join(home, 'data', 'trash', 'plain'),
        join(home, 'data', 'trash', 'clone'),
      ];
      await mkdir(plain);
      await writeFile(join(plain, 'PG_VERSION'), '18');
      await cloneTree(
        plain,
        clone,
        { cloneMethod: 'subvolume', shares: { joinCopies: () => undefined } },
        null,
      );
      expect(await readFile(join(clone, 'PG_VERSION'), 'utf8')).toBe('18');
      expect((await stat(clone)).ino).toBe(256);
      for (const path of [plain, clone]) await removeTree(path, 'subvolume');
      const { owned_mb, shared_mb, total_mb } = await storageOf(cloud, now);
      expect(owned_mb + shared_mb).toBe(total_mb);
      expect(shared_mb).toBeGreaterThan(owned_mb);
      expect((await cloud.cli('backup', 'status', now.service_id)).stdout).toMatch(
        /data: \d+ MB, \d+ its own and \d+ shared/,
      );
      expect(await cloud.audit()).toEqual([]);
    },
  );

  test(
    'a scheduled snapshot begins with a checkpoint of its own, before which it needs no WAL',
    { tags: 'slow' },
    async () => {
      const newest = async () => {
        const { data } = await cloud.client.GET(
          '/projects/{project_id}/services/{service_id}/backupStatus',
          {
            params: { path: { project_id: cloud.projectId, service_id: running.service_id } },
          },
        );
        return data?.snapshots
          .map(({ taken }) => taken)
          .toSorted()
          .at(-1);
      };
      const [before, taken] = [
        await query(cloud, running, 'select pg_current_wal_insert_lsn()::text as lsn'),
        await newest(),
      ];
      await cloud.stop('SIGTERM');
      cloud.env['HOWDAH_SNAPSHOT_HOURS'] = '0.001';
      await cloud.up();
      await until('a newer snapshot is there', async () => (await newest()) !== taken);
      expect(
        await query(
          cloud,
          running,
          `select redo_lsn >= '${Object(before[0]).lsn}' as after from pg_control_checkpoint()`,
        ),
      ).toEqual([{ after: true }]);
      await cloud.stop('SIGTERM');
      delete cloud.env['HOWDAH_SNAPSHOT_HOURS'];
      await cloud.up();
    },
  );

  test(
    'grows while in use, is unmounted with the databases, and is mounted again by up',
    { tags: 'slow' },
    async () => {
      const before = await statfs(join(home, 'data'));
      expect(await cloud.cli('store', 'resize', '--size', '3G')).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('can only become larger'),
      });
      expect(await cloud.cli('store', 'resize', '--size', '5G')).toMatchObject({
        code: 0,
        stderr: '',
      });
      const after = await statfs(join(home, 'data'));
      expect((after.blocks - before.blocks) * after.bsize).toBe(GIB);
      expect((await cloud.cli('store', 'show')).stdout).toMatch(
        new RegExp(
          '^data +.*\nfile system +btrfs, 5G, .*\n' +
            String.raw`data volume +.*data\.img\non the disk +\S+ of at most 5G`,
        ),
      );
      await down(cloud);
      expect(await exists(join(home, 'data', 'services'))).toBe(false);
      expect((await cloud.cli('store', 'show')).stdout).toContain(
        'not mounted: howdah up mounts it',
      );
      expect((await cloud.cli('doctor')).stdout).toMatch(/is not mounted\n +howdah up mounts it/);
      expect(await run('losetup', ['--associated', join(home, 'data.img')])).toBe('');
      // A file where the volume belongs is somebody's: it is not hidden, not removed.
      await writeFile(join(home, 'data', 'foreign'), 'mine');
      await expect(cloud.up()).rejects.toThrow(
        /has to be mounted on .* in which there is foreign: move that away/,
      );
      await rm(join(home, 'data', 'foreign'));
      await cloud.up();
      await cloud.until(running.service_id, 'READY');
      expect(await query(cloud, running, 'select count(*)::int from t')).toEqual([
        { count: 100_000 },
      ]);
    },
  );
});

test.skipIf(none !== null)(
  'on XFS, made before the first start, forks are reflinks, and the shared bytes are reported',
  async () => {
    const home = await makeHome();
    try {
      const { stdout } = await spawned(['store', 'create', '--size', '3G', '--fs', 'xfs'], home);
      const steps = /make xfs in .*\n.*put it in place.*\nThe data is on the data volume now/;
      expect(stdout).toMatch(steps);
      const cloud = await install({ HOWDAH_HOME: home });
      const parent = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
      await query(
        cloud,
        parent,
        'create table t as select n, md5(n::text) from generate_series(1, 200000) n',
      );
      const child = await fork(cloud, parent, 'NOW');
      expect(await stepsOf(cloud, child)).toMatch(
        /^clone parent: by reflink of the running parent/,
      );
      const { owned_mb, shared_mb, total_mb } = await storageOf(cloud, child);
      expect(owned_mb + shared_mb).toBe(total_mb);
      expect(shared_mb).toBeGreaterThan(owned_mb);
      expect((await cloud.cli('store', 'show')).stdout).toMatch(/file system +xfs, /);
      expect(await cloud.cli('store', 'resize', '--size', '4G')).toMatchObject({
        code: 0,
        stderr: '',
      });
      expect((await cloud.cli('store', 'show')).stdout).toMatch(
        /file system +xfs, 3\.9G|file system +xfs, 4G/,
      );
      expect(await cloud.destroy()).toEqual([]);
    } finally {
      await sweep(home);
    }
  },
);

describe.runIf(none === null)('a power cut right after a service was provisioned', () => {
  test.each(['btrfs', 'xfs'])('%s: it is provisioned in the next boot as well', async (kind) => {
    const directory = await mkdtemp(join(tmpdir(), 'hd-power-'));
    const [image, later] = [join(directory, 'image'), join(directory, 'later')];
    const mounted = join(directory, 'mounted');
    const service = instancePaths(join(mounted, 'service'));
    const note = (provisioned: boolean) =>
      writeMarker(service, {
        id: 'abcdefghij',
        installation: '18-npm',
        provisioned,
        parent: null,
        began: null,
        madeIn: 'before',
        uid: null,
        userOf: null,
        recovery: null,
        upgrade: null,
        exchange: null,
      });
    try {
      await mkdir(mounted);
      await run('truncate', ['-s', '400M', image]);
      await run(`mkfs.${kind}`, ['-q', image]);
      await mountImage(image, mounted);
      await mkdir(service.root);
      await note(false);
      await run('sync', ['-f', mounted]);
      await note(true);
      // All that the disk holds at this moment, and nothing of what the kernel has still to write.
      await run('cp', ['--sparse=always', image, later]);
      await unmount(mounted);
      await mountImage(later, mounted);
      expect((await readMarker(service))?.provisioned).toBe(true);
    } finally {
      await unmount(mounted);
      await rm(directory, { recursive: true });
    }
  });
});
