/** Forks whose parent changes, dies or is deleted meanwhile. */
import { existsSync } from 'node:fs';
import { readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createLayout, findServer, signal } from './probe.ts';
import {
  age,
  insert,
  latestOf,
  moment,
  namesIn,
  power,
  type ServiceAccess,
} from './service-access.ts';
import { COPIES_FILES } from './crash.ts';
import {
  askFork,
  clear,
  cloud,
  COPY,
  fork,
  gone,
  MIDDLE,
  newParent,
  pagesOf,
  remove,
  roleOf,
  testbed,
  turnPage,
  setUp,
  tearDown,
} from './forks-cloud.ts';
import { openMetadata } from './metadata.ts';
import { until } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

const kill = async ({ service_id }: ServiceAccess): Promise<void> => {
  const server = await findServer(createLayout(join(cloud.home, 'data')).service(service_id));
  signal(server?.postmaster.pid ?? 0, 'SIGKILL');
};

/** Waits until a delete has begun, and was tried often enough to do harm. */
const isBeingDeleted = async ({ service_id: id }: ServiceAccess): Promise<void> => {
  const metadata = await openMetadata(cloud.home);
  const versions = new Set<string>();
  // Each attempt updates the row of the operation.
  await until('the delete was tried twice', async () => {
    const { rows } = await sql<{ version: string; status: string }>`
      select xmin::text as version, status from operations
      where service_id = ${id} and kind = 'delete' and status <> 'queued'`.execute(metadata.db);
    for (const { version } of rows) versions.add(version);
    return versions.size > 2 || rows.some(({ status }) => status !== 'running');
  });
  await metadata.close();
};

const testInCopy = test.runIf(COPIES_FILES);

const canBeHeld = (effect: string): boolean => COPIES_FILES || effect !== COPY;

/** Every third moment is in every run. */
const tagsOf = (position: number): string[] => (position % 3 === 0 ? [] : ['slow']);

describe('a parent that changes while it is forked', () => {
  testInCopy(
    'a pause, a start and writes: the fork is of one moment',
    { tags: 'slow' },
    async () => {
      const parent = await newParent('wakes');
      await power(cloud, parent, 'stop');
      await testbed.holdAt(roleOf(parent), COPY, MIDDLE);
      const child = await askFork(parent, { fork_strategy: 'NOW' });
      await testbed.held();
      await power(cloud, parent, 'start');
      await turnPage(parent);
      await power(cloud, parent, 'stop');
      await testbed.release();
      await cloud.until(child.service_id, 'READY');
      expect(await pagesOf(child)).toHaveLength(1);
      await clear(child, parent);
    },
  );

  testInCopy(
    'a stop: the fork is made of the stopped data directory',
    { tags: 'slow' },
    async () => {
      const parent = await newParent('falls asleep');
      await testbed.holdAt(roleOf(parent), COPY, MIDDLE);
      const child = await askFork(parent, { fork_strategy: 'NOW' });
      await testbed.held();
      await turnPage(parent);
      await power(cloud, parent, 'stop');
      await testbed.release();
      await cloud.until(child.service_id, 'READY');
      expect(await pagesOf(child)).toEqual([1]);
      expect((await cloud.get(parent.service_id)).status).toBe('PAUSED');
      await clear(child, parent);
    },
  );

  testInCopy(
    'a crash: both become READY, and the fork is of one moment',
    { tags: 'slow' },
    async () => {
      const parent = await newParent('dies');
      await testbed.holdAt(roleOf(parent), COPY, MIDDLE);
      const child = await askFork(parent, { fork_strategy: 'NOW' });
      await testbed.held();
      await turnPage(parent);
      await kill(parent);
      await cloud.until(parent.service_id, 'UNSTABLE');
      await cloud.until(parent.service_id, 'READY');
      await testbed.release();
      await cloud.until(child.service_id, 'READY');
      expect(await pagesOf(child)).toEqual([1]);
      await clear(child, parent);
    },
  );

  testInCopy(
    'a resize: both become READY, and the fork is of one moment',
    { tags: 'slow' },
    async () => {
      const parent = await newParent('grows');
      await testbed.holdAt(roleOf(parent), COPY, MIDDLE);
      const child = await askFork(parent, { fork_strategy: 'NOW' });
      await testbed.held();
      await turnPage(parent);
      await cloud.request('POST', `/services/${parent.service_id}/resize`, { cpu_millis: '1000' });
      await cloud.until(parent.service_id, 'READY');
      await testbed.release();
      await cloud.until(child.service_id, 'READY');
      expect(await pagesOf(child)).toEqual([1]);
      await clear(child, parent);
    },
  );

  test('a pause at the point in time, then writes: the fork has none of them', async () => {
    const parent = await newParent('goes on');
    await insert(cloud, parent, 'before');
    await power(cloud, parent, 'stop');
    // The fork's recovery comes to the end of all there is; it is started a second time to go on
    // from there.
    await testbed.holdAt(roleOf(parent), 'rm services/new/pid', 2);
    const child = await askFork(parent, {
      fork_strategy: 'PITR',
      target_time: await latestOf(cloud, parent),
    });
    await testbed.held();
    await power(cloud, parent, 'start');
    await insert(cloud, parent, 'later');
    await testbed.release();
    await cloud.until(child.service_id, 'READY');
    expect(await namesIn(cloud, child)).toEqual(['before']);
    await clear(child, parent);
  });
});

test('a fork waits for a WAL segment that cannot be read yet, lacks nothing', async () => {
  const parent = await newParent('file away');
  const { archive, data, socket } = createLayout(join(cloud.home, 'data')).service(
    parent.service_id,
  );
  const control = new Client({
    host: socket,
    port: parent.endpoint.port,
    user: 'howdah',
    database: 'postgres',
  });
  await control.connect();
  const turnFile = async (): Promise<string> => {
    const { rows } = await control.query<{ wal: string }>(
      'select pg_walfile_name(pg_switch_wal()) as wal',
    );
    const wal = rows[0]?.wal ?? '';
    await until(`${wal} is archived`, () => existsSync(join(archive, wal)));
    return wal;
  };
  await insert(cloud, parent, 'one');
  await turnFile();
  await insert(cloud, parent, 'two');
  const wal = await turnFile();
  await insert(cloud, parent, 'three');
  const target_time = await moment(cloud, parent);
  await insert(cloud, parent, 'too late');
  await turnFile();
  // The segment is in the archive only.
  for (let n = 0; n < 2; n++) await control.query('checkpoint');
  await rm(join(data, 'pg_wal', wal), { force: true });
  await control.end();
  await testbed.holdAt(roleOf(parent), 'mkdir services/new.new/data/*', 1);
  const child = await askFork(parent, { fork_strategy: 'PITR', target_time });
  await testbed.held();
  await rename(join(archive, wal), join(data, '..', 'away'));
  await testbed.release();
  await until('the recovery ends early', async () =>
    JSON.stringify(await cloud.operations(child.service_id)).includes(
      'before configured recovery target',
    ),
  );
  await rename(join(data, '..', 'away'), join(archive, wal));
  await cloud.until(child.service_id, 'READY');
  expect(await namesIn(cloud, child)).toEqual(['one', 'two', 'three']);
  await clear(child, parent);
});

describe('a parent that is deleted while it is forked', () => {
  const moments = [
    ['NOW, running', 'NOW', COPY, MIDDLE, false],
    ['NOW, before anything of the fork is there', 'NOW', 'mkdir services/new.new', 1, false],
    ['NOW, paused', 'NOW', COPY, MIDDLE, true],
    ['LAST_SNAPSHOT', 'LAST_SNAPSHOT', COPY, MIDDLE, false],
    ['PITR, being cloned', 'PITR', COPY, MIDDLE, false],
    ['PITR, being recovered', 'PITR', 'rm services/new/pid', 1, false],
  ] as const;
  for (const [position, [name, strategy, effect, nth, paused]] of moments
    .filter(([, , of]) => canBeHeld(of))
    .entries())
    test(
      `${name}: stays until the fork is provisioned, which is complete`,
      { tags: tagsOf(position) },
      async () => {
        const parent = await newParent('leaves');
        await turnPage(parent);
        const pitr = strategy === 'PITR' ? { target_time: await moment(cloud, parent) } : {};
        if (paused) await power(cloud, parent, 'stop');
        await testbed.holdAt(roleOf(parent), effect, nth);
        const child = await askFork(parent, { fork_strategy: strategy, ...pitr });
        await testbed.held();
        await remove(parent);
        await isBeingDeleted(parent);
        await testbed.release();
        await cloud.until(child.service_id, 'READY');
        await gone(parent);
        expect(
          strategy === 'LAST_SNAPSHOT' ? await namesIn(cloud, child) : await pagesOf(child),
        ).toEqual(strategy === 'LAST_SNAPSHOT' ? [] : [1]);
        await clear(child);
      },
    );

  testInCopy(
    'a fork of a fork stays when its grandparent and its parent are deleted',
    { tags: 'slow' },
    async () => {
      const grandparent = await newParent('grandparent');
      await turnPage(grandparent);
      const parent = await fork(grandparent, { fork_strategy: 'NOW' });
      await testbed.holdAt(roleOf(parent), COPY, MIDDLE);
      const child = await askFork(parent, { fork_strategy: 'NOW' });
      await testbed.held();
      await remove(grandparent);
      await remove(parent);
      await gone(grandparent);
      await isBeingDeleted(parent);
      await testbed.release();
      await cloud.until(child.service_id, 'READY');
      await gone(parent);
      expect(await pagesOf(child)).toEqual([1]);
      await clear(child);
    },
  );
});

describe('snapshots that are pruned', () => {
  testInCopy('while a fork is made from one: the fork is complete', async () => {
    const parent = await newParent('prunes');
    const { snapshots } = createLayout(join(cloud.home, 'data')).service(parent.service_id);
    const whole = async () =>
      (await readdir(snapshots)).filter((name) => !name.endsWith('.new')).toSorted();
    const [initial = ''] = await whole();
    await age(join(snapshots, initial, 'snapshot.json'));
    await turnPage(parent);
    // Whenever it has become READY it is seen to: a snapshot is taken, where one is due.
    await power(cloud, parent, 'stop');
    await power(cloud, parent, 'start');
    await until('a snapshot is taken', async () => (await whole()).length === 2);
    const old = (await whole()).at(-1) ?? '';
    await testbed.holdAt(roleOf(parent), COPY, MIDDLE);
    const child = await askFork(parent, { fork_strategy: 'LAST_SNAPSHOT' });
    await testbed.held();
    // Both are out of the window now, and a third one is due.
    for (const name of await whole()) await age(join(snapshots, name, 'snapshot.json'));
    for (const name of await whole()) await age(join(snapshots, name, 'snapshot.json'));
    await turnPage(parent);
    await power(cloud, parent, 'stop');
    await power(cloud, parent, 'start');
    await until('a third snapshot is taken', async () => (await whole()).length === 3);
    expect(await whole()).toContain(old);
    await testbed.release();
    await cloud.until(child.service_id, 'READY');
    expect(await pagesOf(child)).toEqual([1]);
    await clear(child, parent);
  });
});

describe('a fork that is deleted while it is made', () => {
  const moments = [
    ['being cloned', COPY, MIDDLE],
    ['whole, not started', 'rm services/new/pid', 1],
    ['running, its password not set', 'writeFile services/new/howdah.json.new', 1],
  ] as const;
  for (const [position, [name, effect, nth]] of moments.filter(([, of]) => canBeHeld(of)).entries())
    test(
      `${name}: is removed, and its parent is not affected`,
      { tags: tagsOf(position) },
      async () => {
        const parent = await newParent('bereft');
        await testbed.holdAt(roleOf(parent), effect, nth);
        const child = await askFork(parent, { fork_strategy: 'NOW' });
        await testbed.held();
        await remove(child);
        await testbed.release();
        await gone(child);
        expect(
          (await readdir(join(cloud.home, 'data', 'services'))).filter((name) =>
            name.startsWith(child.service_id),
          ),
        ).toEqual([]);
        expect(await pagesOf(await fork(parent, { fork_strategy: 'NOW' }))).toEqual([0]);
        await clear(parent);
      },
    );
});

test('a fork whose files were not on the disk at a crash is recreated', async () => {
  const parent = await newParent('outlives');
  await insert(cloud, parent, 'kept');
  await testbed.holdAt(roleOf(parent), 'rm services/new/pid');
  const child = await askFork(parent, { fork_strategy: 'NOW' });
  await testbed.held();
  await cloud.stop('SIGKILL');
  await testbed.disarm();
  // The state after the power comes back: another boot, and names of files without their contents.
  const { data, marker } = createLayout(join(cloud.home, 'data')).service(child.service_id);
  await truncate(join(data, 'global', 'pg_control'));
  const note: unknown = JSON.parse(await readFile(marker, 'utf8'));
  await writeFile(marker, JSON.stringify({ ...Object(note), madeIn: 'the boot before' }));
  await cloud.up();
  await cloud.until(child.service_id, 'READY');
  expect(await namesIn(cloud, child)).toEqual(['kept']);
  const [operation] = await cloud.operations(child.service_id);
  expect(operation?.steps.map(({ name }) => name)).toContain('discard incomplete data');
  await clear(child, parent);
});
