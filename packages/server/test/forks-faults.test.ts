/** Forks and snapshots while their parent, their disk or their own service is taken from under them: nothing is incomplete, lost or left over. */
import { existsSync } from 'node:fs';
import { readdir, readFile, rename, rm, statfs, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createLayout } from '../src/engine/local/host/layout.ts';
import { signal } from '../src/lib/processes.ts';
import { run } from '../src/lib/run.ts';
import { findServer } from '../src/engine/local/postgres/server.ts';
import {
  age,
  accessOf,
  insert,
  isGone,
  latestOf,
  moment,
  namesIn,
  power,
  withClient,
  type ServiceAccess,
} from './crash-scenes.ts';
import { COPIES_FILES, installCrashing, until, type Testbed } from './crash.ts';
import { makeHome, type Installation, type Service } from './harness.ts';
import { openMetadata } from './metadata.ts';

/** What is deleted here is gone as soon as nobody needs it. */
let testbed: Testbed;
let cloud: Testbed['cloud'];
beforeAll(async () => {
  testbed = await installCrashing({ HOWDAH_RESTORE_HOURS: '0' });
  ({ cloud } = testbed);
});
afterAll(async () => {
  expect(await testbed.destroy()).toEqual([]);
});

const newParent = async (name: string): Promise<ServiceAccess> => {
  const parent = await cloud.create({ name, service_type: 'POSTGRES' });
  await withClient(cloud, parent, (client) => client.query(makeLedger));
  return parent;
};

/** Asks for a fork without waiting for it. */
const askFork = async (parent: ServiceAccess, body: object): Promise<ServiceAccess> => {
  const { status, body: answer } = await cloud.request(
    'POST',
    `/services/${parent.service_id}/forkService`,
    body,
  );
  expect(status, JSON.stringify(answer)).toBe(202);
  return accessOf(answer);
};
const fork = async (parent: ServiceAccess, body: object): Promise<ServiceAccess> => {
  const child = await askFork(parent, body);
  await cloud.until(child.service_id, 'READY');
  return child;
};

const roleOf = (parent: ServiceAccess): Record<string, string> => ({
  [parent.service_id]: 'parent',
});
const remove = ({ service_id }: ServiceAccess) =>
  cloud.request('DELETE', `/services/${service_id}`);
const gone = (service: ServiceAccess) =>
  until(() => isGone(cloud, service), 'a delete does not end');
const kill = async ({ service_id }: ServiceAccess): Promise<void> => {
  const server = await findServer(createLayout(join(cloud.home, 'data')).service(service_id));
  signal(server?.postmaster.pid ?? 0, 'SIGKILL');
};
const clear = async (...services: ServiceAccess[]): Promise<void> => {
  for (const service of services) await remove(service);
  for (const service of services) await gone(service);
  expect(await cloud.audit()).toEqual([]);
};

/** Waits until something is under way, and long enough for it to do harm. */
const hasBegun = async ({ service_id: id }: ServiceAccess, kind: string): Promise<void> => {
  await until(
    async () =>
      (await cloud.operations(id)).some(
        (found) => found.kind === kind && found.status !== 'queued',
      ),
    `${kind} never begins`,
  );
  await sleep(500);
};

/** Many tables that one transaction changes together: a copy that is of no one moment shows two values or more. */
const TABLES = Array.from({ length: 60 }, (_, n) => `ledger_${n}`);
const makeLedger = TABLES.map((table) => `create table ${table} as select 0 as v`).join(';');
const turnPage = (parent: ServiceAccess): Promise<unknown> =>
  withClient(cloud, parent, (client) =>
    client.query(
      `begin; ${TABLES.map((table) => `update ${table} set v = v + 1`).join(';')}; commit`,
    ),
  );
const pagesOf = (service: ServiceAccess): Promise<number[]> =>
  withClient(cloud, service, async (client) => {
    const { rows } = await client.query<{ v: number }>(
      TABLES.map((table) => `select v from ${table}`).join(' union '),
    );
    return rows.map(({ v }) => v).toSorted((a, b) => a - b);
  });

const COPY = 'copyFile services/new.new/data/*';
/** About the middle: files up to 128 KiB are copied in one go, and some 30 of a service are larger. */
const MIDDLE = 15;
const testInCopy = test.runIf(COPIES_FILES);
const canBeHeld = (effect: string): boolean => COPIES_FILES || effect !== COPY;

describe('a parent that changes while it is forked', () => {
  testInCopy('paused, and started and written to: the fork is of one moment', async () => {
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
  });

  testInCopy('running, and stopped: the fork is made of what lies still then', async () => {
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
  });

  testInCopy(
    'running, and killed: both come to be READY, and the fork is of one moment',
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
    'running, and resized: both come to be READY, and the fork is of one moment',
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

  test('paused at the point in time, and started and written to before the fork has recovered: nothing later is in it', async () => {
    const parent = await newParent('goes on');
    await insert(cloud, parent, 'before');
    await power(cloud, parent, 'stop');
    // Its recovery comes to the end of all there is; it is started a second time to go on from there.
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

test('a file of the archive that cannot be read for a moment: the fork waits for it, and lacks nothing', async () => {
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
    await until(async () => existsSync(join(archive, wal)), `${wal} is not archived`);
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
  // It is in the archive only.
  for (let n = 0; n < 2; n++) await control.query('checkpoint');
  await rm(join(data, 'pg_wal', wal), { force: true });
  await control.end();
  await testbed.holdAt(roleOf(parent), 'mkdir services/new.new/data/*', 1);
  const child = await askFork(parent, { fork_strategy: 'PITR', target_time });
  await testbed.held();
  await rename(join(archive, wal), join(data, '..', 'away'));
  await testbed.release();
  await until(
    async () =>
      JSON.stringify(await cloud.operations(child.service_id)).includes(
        'before configured recovery target',
      ),
    'its recovery never ends early',
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
  test.each(moments.filter(([, , effect]) => canBeHeld(effect)))(
    '%s: stays until the fork is provisioned, which is complete',
    async (_, strategy, effect, nth, paused) => {
      const parent = await newParent('leaves');
      await turnPage(parent);
      const pitr = strategy === 'PITR' ? { target_time: await moment(cloud, parent) } : {};
      if (paused) await power(cloud, parent, 'stop');
      await testbed.holdAt(roleOf(parent), effect, nth);
      const child = await askFork(parent, { fork_strategy: strategy, ...pitr });
      await testbed.held();
      await remove(parent);
      await hasBegun(parent, 'delete');
      await testbed.release();
      await cloud.until(child.service_id, 'READY');
      await gone(parent);
      expect(
        strategy === 'LAST_SNAPSHOT' ? await namesIn(cloud, child) : await pagesOf(child),
      ).toEqual(strategy === 'LAST_SNAPSHOT' ? [] : [1]);
      await clear(child);
    },
  );

  testInCopy('a fork of a fork does not mind that its grandparent and its parent go', async () => {
    const grandparent = await newParent('grandparent');
    await turnPage(grandparent);
    const parent = await fork(grandparent, { fork_strategy: 'NOW' });
    await testbed.holdAt(roleOf(parent), COPY, MIDDLE);
    const child = await askFork(parent, { fork_strategy: 'NOW' });
    await testbed.held();
    await remove(grandparent);
    await remove(parent);
    await gone(grandparent);
    await hasBegun(parent, 'delete');
    await testbed.release();
    await cloud.until(child.service_id, 'READY');
    await gone(parent);
    expect(await pagesOf(child)).toEqual([1]);
    await clear(child);
  });
});

describe('snapshots that are pruned', () => {
  testInCopy('while a fork is being made of one: the fork is whole', async () => {
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
    await until(async () => (await whole()).length === 2, 'no snapshot is taken');
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
    await until(async () => (await whole()).length === 3, 'no third snapshot is taken');
    expect(await whole()).toContain(old);
    await testbed.release();
    await cloud.until(child.service_id, 'READY');
    expect(await pagesOf(child)).toEqual([1]);
    await clear(child, parent);
  });
});

describe('many at once', () => {
  test(
    'twenty forks of one parent under writes, of each strategy: each of one moment',
    { tags: 'slow' },
    async () => {
      const parent = await newParent('crowded');
      await turnPage(parent);
      const target_time = await moment(cloud, parent);
      let writing = true;
      const writes = (async () => {
        for (let count = 0; ; count++) {
          if (!writing) return count;
          await turnPage(parent);
        }
      })();
      const strategies = Array.from({ length: 20 }, (_, n) =>
        n % 5 === 3 ? { fork_strategy: 'PITR', target_time } : { fork_strategy: 'NOW' },
      );
      const children = await Promise.all(strategies.map((body) => fork(parent, body)));
      writing = false;
      expect(await writes).toBeGreaterThan(0);
      for (const [index, child] of children.entries()) {
        const pages = await pagesOf(child);
        expect(pages).toHaveLength(1);
        if (strategies[index]?.fork_strategy === 'PITR') expect(pages).toEqual([1]);
      }
      expect(new Set(children.map(({ endpoint }) => endpoint.port)).size).toBe(children.length);
      await clear(parent, ...children);
    },
  );

  test(
    'more forks than are looked at side by side, of a parent that hangs: it recovers, and they are provisioned',
    { tags: 'slow' },
    async () => {
      const parent = await newParent('hangs');
      const server = await findServer(
        createLayout(join(cloud.home, 'data')).service(parent.service_id),
      );
      signal(server?.postmaster.pid ?? 0, 'SIGSTOP');
      const children = await Promise.all(
        Array.from({ length: 9 }, () => askFork(parent, { fork_strategy: 'NOW' })),
      );
      for (const child of children) await cloud.until(child.service_id, 'READY');
      await cloud.until(parent.service_id, 'READY');
      await clear(parent, ...children);
    },
  );
});

describe('a fork that is deleted while it is made', () => {
  const moments = [
    ['being cloned', COPY, MIDDLE],
    ['whole, not started', 'rm services/new/pid', 1],
    ['running, its password not set', 'writeFile services/new/howdah.json.new', 1],
  ] as const;
  test.each(moments.filter(([, effect]) => canBeHeld(effect)))(
    '%s: is gone, and its parent notices nothing',
    async (_, effect, nth) => {
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

test('a fork that the machine went down with before its files were on the disk is recreated', async () => {
  const parent = await newParent('outlives');
  await insert(cloud, parent, 'kept');
  await testbed.holdAt(roleOf(parent), 'rm services/new/pid');
  const child = await askFork(parent, { fork_strategy: 'NOW' });
  await testbed.held();
  await cloud.stop('SIGKILL');
  await testbed.disarm();
  // What is left after the power comes back: another boot, names without what they stand for.
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

describe('a service whose time to be restored is over', () => {
  const END_MS = 3600;

  /** The next service, when it is this port's turn. */
  const nextAt = async (mortals: Installation, port: number): Promise<Service> => {
    const metadata = await openMetadata(mortals.home);
    await metadata.db
      .updateTable('regions')
      .set({ last_port: port - 1 })
      .execute();
    await metadata.close();
    return mortals.create({ name: 'next', service_type: 'POSTGRES' });
  };

  const isRecorded = async (mortals: Installation, { service_id }: Service): Promise<boolean> => {
    const metadata = await openMetadata(mortals.home);
    const row = await metadata.db
      .selectFrom('services')
      .select('id')
      .where('id', '=', service_id)
      .executeTakeFirst();
    await metadata.close();
    return row !== undefined;
  };

  test(
    "is gone for good, its port is somebody else's, and a restore that comes while it goes is refused",
    { tags: 'slow' },
    async () => {
      const mortal = await installCrashing({ HOWDAH_RESTORE_HOURS: String(END_MS / 3_600_000) });
      const { cloud: mortals } = mortal;
      try {
        const service = await mortals.create({ name: 'mortal', service_type: 'POSTGRES' });
        await insert(mortals, service, 'precious');
        const askRestore = () => mortals.request('POST', `/services/${service.service_id}/restore`);
        // A delete, a restore and another delete at once: the last one wins, and nothing is incomplete.
        await mortals.request('DELETE', `/services/${service.service_id}`);
        await until(() => isGone(mortals, service), 'a delete does not end');
        await Promise.all([
          askRestore(),
          mortals.request('DELETE', `/services/${service.service_id}`),
          askRestore(),
        ]);
        await until(
          async () => (await mortals.operations()).every(({ finished }) => finished !== null),
          'goes on for ever',
        );
        if (await isGone(mortals, service)) expect((await askRestore()).status).toBe(202);
        await mortals.until(service.service_id, 'READY');
        expect(await namesIn(mortals, service)).toEqual(['precious']);

        await mortal.holdAt({ [service.service_id]: 'it' }, 'rename services/it → trash/it');
        await mortals.request('DELETE', `/services/${service.service_id}`);
        await mortal.held();
        expect((await askRestore()).status).toBe(404);
        const taken = await nextAt(mortals, service.endpoint.port);
        expect(taken.endpoint.port).not.toBe(service.endpoint.port);
        await mortal.release();
        await until(
          async () =>
            !(await readdir(join(mortals.home, 'data', 'services'))).includes(service.service_id),
          'its data stays',
        );
        await expect.poll(() => mortals.audit(), { timeout: 60_000 }).toEqual([]);
        expect((await askRestore()).status).toBe(404);
        // Its data goes before its record, and the port with the record.
        await until(async () => !(await isRecorded(mortals, service)), 'its record stays');
        expect((await nextAt(mortals, service.endpoint.port)).endpoint.port).toBe(
          service.endpoint.port,
        );
      } finally {
        expect(await mortal.destroy()).toEqual([]);
      }
    },
  );
});

// A file system of its own is what can be filled without harm, and it takes root to mount one.
describe.runIf(process.getuid?.() === 0)('a disk that runs full', () => {
  test(
    'in the middle of a fork, and of a snapshot: the reason is said, nothing half made stays, and both go on once there is room',
    { tags: 'slow' },
    async () => {
      const disk = await makeHome();
      await run('mount', ['-t', 'tmpfs', '-o', 'size=1500m,mode=0755', 'howdah-test', disk]);
      const small = await installCrashing({
        HOWDAH_HOME: join(disk, 'home'),
        HOWDAH_RESTORE_HOURS: '0',
      });
      const filler = join(disk, 'filler');
      // Each further attempt recreates it, and takes it away as soon as there is no room.
      const halfMadeIn = async (directory: string) =>
        (await readdir(directory)).filter((name) => name.endsWith('.new'));
      const PATIENTLY = { timeout: 60_000 };
      const fill = async (): Promise<void> => {
        const { bavail, bsize } = await statfs(disk);
        await run('dd', [
          'if=/dev/zero',
          `of=${filler}`,
          'bs=1M',
          `count=${Math.ceil((bavail * bsize) / 1e6)}`,
        ]).catch(() => undefined);
      };
      try {
        const parent = await small.cloud.create({ name: 'fills', service_type: 'POSTGRES' });
        await insert(small.cloud, parent, 'kept');
        const { services, service } = createLayout(join(small.cloud.home, 'data'));
        await small.holdAt(roleOf(parent), COPY, MIDDLE);
        const { body } = await small.cloud.request(
          'POST',
          `/services/${parent.service_id}/forkService`,
          { fork_strategy: 'LAST_SNAPSHOT' },
        );
        const child = accessOf(body);
        await small.held();
        await fill();
        await small.release();
        await small.cloud.until(child.service_id, 'UNSTABLE');
        const [operation] = await small.cloud.operations(child.service_id);
        expect(operation?.error).toMatch(/clone parent: .*no space left/i);
        await expect.poll(() => halfMadeIn(services), PATIENTLY).toEqual([]);
        // There is nothing of it, as it must be.
        await expect.poll(() => small.cloud.audit(), PATIENTLY).toEqual([]);
        await rm(filler);
        await small.cloud.until(child.service_id, 'READY');

        const { snapshots } = service(parent.service_id);
        const [initial = ''] = await readdir(snapshots);
        await age(join(snapshots, initial, 'snapshot.json'));
        await power(small.cloud, parent, 'stop');
        await small.holdAt(
          roleOf(parent),
          'copyFile services/parent/snapshots/TIME.new/data/*',
          MIDDLE,
        );
        await power(small.cloud, parent, 'start');
        await small.held();
        await fill();
        await small.release();
        const problemOf = async () => {
          const { body: backups } = await small.cloud.request(
            'GET',
            `/services/${parent.service_id}/backups`,
          );
          return typeof backups === 'object' && backups !== null && 'problem' in backups
            ? backups.problem
            : backups;
        };
        await expect
          .poll(problemOf, PATIENTLY)
          .toMatch(/no snapshot could be taken: .*no space left/i);
        await expect.poll(() => halfMadeIn(snapshots), PATIENTLY).toEqual([]);
        await rm(filler);
        await power(small.cloud, parent, 'stop');
        await power(small.cloud, parent, 'start');
        await expect.poll(problemOf, PATIENTLY).toBe(null);
        expect(await readdir(snapshots)).toHaveLength(2);
        expect(await namesIn(small.cloud, parent)).toEqual(['kept']);
      } finally {
        await rm(filler, { force: true });
        // Soft: what went wrong before is told, too.
        expect.soft(await small.destroy()).toEqual([]);
        await run('umount', [disk]);
        await rm(disk, { recursive: true });
      }
    },
  );
});
