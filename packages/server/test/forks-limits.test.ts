/** Many forks at once, deleted services that cannot be restored any more, and a full disk. */
import { readdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createLayout, findServer, run, signal } from './probe.ts';
import {
  age,
  accessOf,
  insert,
  isGone,
  moment,
  namesIn,
  power,
  type ServiceAccess,
} from './service-access.ts';
import { installCrashing } from './crash.ts';
import { makeHome, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import {
  askFork,
  clear,
  cloud,
  COPY,
  fork,
  MIDDLE,
  newParent,
  pagesOf,
  roleOf,
  turnPage,
  setUp,
  tearDown,
} from './forks-cloud.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

describe('many at once', () => {
  test(
    'twenty forks of one parent under writes, by each strategy, are of one moment each',
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
    'more forks than are reconciled at once, of a parent that hangs: all are provisioned',
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

describe('a service that can no longer be restored', () => {
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
    'is removed for good, gives its port to another service, and refuses a restore meanwhile',
    { tags: 'slow' },
    async () => {
      const mortal = await installCrashing({ HOWDAH_RESTORE_HOURS: String(END_MS / 3_600_000) });
      const { cloud: mortals } = mortal;
      try {
        const service = await mortals.create({ name: 'mortal', service_type: 'POSTGRES' });
        await insert(mortals, service, 'precious');
        const askRestore = () => mortals.request('POST', `/services/${service.service_id}/restore`);
        // A delete, a restore and another delete at once: the last one wins, and nothing is
        // incomplete.
        await mortals.request('DELETE', `/services/${service.service_id}`);
        await until('the service is deleted', () => isGone(mortals, service));
        await Promise.all([
          askRestore(),
          mortals.request('DELETE', `/services/${service.service_id}`),
          askRestore(),
        ]);
        await until('no operation is under way', async () =>
          (await mortals.operations()).every(({ finished }) => finished !== null),
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
          'the data of the service is removed',
          async () =>
            !(await readdir(join(mortals.home, 'data', 'services'))).includes(service.service_id),
        );
        await untilExpected('the integrity check finds nothing', async () =>
          expect(await mortals.audit()).toEqual([]),
        );
        expect((await askRestore()).status).toBe(404);
        // The service's data goes before its record, and the port with the record.
        await until(
          'the service is not recorded',
          async () => !(await isRecorded(mortals, service)),
        );
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
/** Fills a disk up to its last block. */
async function fillDisk(disk: string, filler: string): Promise<void> {
  const { bavail, bsize } = await statfs(disk);
  await run('dd', [
    'if=/dev/zero',
    `of=${filler}`,
    'bs=1M',
    `count=${Math.ceil((bavail * bsize) / 1e6)}`,
  ]).catch(() => undefined);
}

/**
 * The incomplete entries of a directory. Each further attempt recreates them, and removes them as
 * soon as there is no room.
 */
const incompleteIn = async (directory: string) =>
  (await readdir(directory)).filter((name) => name.endsWith('.new'));

async function problemOfBackups(cloud: Installation, service: ServiceAccess): Promise<unknown> {
  const { body } = await cloud.request('GET', `/services/${service.service_id}/backupStatus`);
  return typeof body === 'object' && body !== null && 'problem' in body ? body.problem : body;
}

describe.runIf(process.getuid?.() === 0)('a disk that runs full', () => {
  test(
    'during a fork or a snapshot: shown with the reason, nothing incomplete stays',
    { tags: 'slow' },
    async () => {
      const disk = await makeHome();
      await run('mount', ['-t', 'tmpfs', '-o', 'size=1500m,mode=0755', 'howdah-test', disk]);
      const small = await installCrashing({
        HOWDAH_HOME: join(disk, 'home'),
        HOWDAH_RESTORE_HOURS: '0',
      });
      const filler = join(disk, 'filler');
      const fill = () => fillDisk(disk, filler);
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
        await untilExpected('nothing incomplete is left of the fork', async () =>
          expect(await incompleteIn(services)).toEqual([]),
        );
        // There is nothing of it, as it must be.
        await untilExpected('the integrity check finds nothing', async () =>
          expect(await small.cloud.audit()).toEqual([]),
        );
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
        const problemOf = () => problemOfBackups(small.cloud, parent);
        await untilExpected('the backups show that there is no space', async () =>
          expect(await problemOf()).toMatch(/no snapshot could be taken: .*no space left/i),
        );
        await untilExpected('nothing incomplete is left of the snapshot', async () =>
          expect(await incompleteIn(snapshots)).toEqual([]),
        );
        await rm(filler);
        await power(small.cloud, parent, 'stop');
        await power(small.cloud, parent, 'start');
        await untilExpected('the backups have no problem', async () =>
          expect(await problemOf()).toBe(null),
        );
        expect(await readdir(snapshots)).toHaveLength(2);
        expect(await namesIn(small.cloud, parent)).toEqual(['kept']);
      } finally {
        await rm(filler, { force: true });
        // Soft: an error from before is reported, too.
        expect.soft(await small.destroy()).toEqual([]);
        await run('umount', [disk]);
        await rm(disk, { recursive: true });
      }
    },
  );
});
