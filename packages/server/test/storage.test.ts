/** Disk belongs to somebody: quotas, floods and a full disk, on a small disk of the test's own. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { followEvents } from '@howdah/client';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { loopDisksWork, makeLoopDisk, type LoopDisk } from './loop-disk.ts';
import { during, until, untilExpected } from './until.ts';

const run = promisify(execFile);
const DISK_MB = 2600;
/**
 * A service with 1 GB never takes the rest of the disk. How far it comes beyond its quota depends
 * on the speed of the machine.
 */
const MOST_BYTES = 2.2e9;
/** Floods go as fast as the machine writes: a limit only for what never ends. */
const TIMEOUT = { timeout: 1_200_000 };
const possible = await loopDisksWork();
if (!possible)
  process.stdout.write(
    'storage.test.ts: skipped, since no loop device can be mounted here (it needs root)\n',
  );

type Owned = Service & { initial_password: string };

describe.runIf(possible)('disk space', () => {
  let cloud: Installation;
  let tenant: Owned;
  let neighbour: Owned;
  let disk: LoopDisk;
  let home: string;

  beforeAll(async () => {
    disk = await makeLoopDisk(DISK_MB);
    home = join(disk.path, 'h');
    cloud = await install({ HOWDAH_HOME: home, HOWDAH_SNAPSHOT_HOURS: '24' });
    tenant = await cloud.create({ name: 'tenant', service_type: 'POSTGRES', storage_gb: 1 });
    neighbour = await cloud.create({ name: 'neighbour', service_type: 'POSTGRES' });
  });
  afterAll(async () => {
    expect(await cloud.destroy()).toEqual([]);
    await disk.remove();
  });

  const connected = async <T>(service: Owned, work: (client: Client) => Promise<T>): Promise<T> => {
    const client = await connectTo(cloud, service, service.initial_password);
    client.on('error', () => undefined);
    try {
      return await work(client);
    } finally {
      await client.end().catch(() => undefined);
    }
  };
  const rows = (service: Owned, sql: string) =>
    connected(service, async (client) => (await client.query(sql)).rows);
  const warningOf = async (service: Owned, code: string) =>
    (await cloud.get(service.service_id)).warnings?.find((warning) => warning.code === code)
      ?.message ?? '';
  /**
   * Files that vanish while they are counted make du fail after it printed the sum of the others.
   */
  const sizeOf = async (path: string, ...options: string[]): Promise<number> => {
    const { stdout } = await run('du', ['-s', ...options, path]).catch((error: unknown) => {
      if (error instanceof Error && 'stdout' in error && typeof error.stdout === 'string')
        return { stdout: error.stdout };
      throw error;
    });
    const [bytes] = stdout.split('\t');
    if (bytes === undefined || !/^\d+$/.test(bytes))
      throw new Error(`du printed no size of ${path}`);
    return Number(bytes);
  };
  const takenBy = ({ service_id: id }: Owned): Promise<number> =>
    sizeOf(join(home, 'data', 'services', id), '-B1', '--exclude=snapshots');
  /**
   * Runs a flood again and again until it is over. @returns what the service took at the most,
   * without snapshots
   */
  const flood = async (
    service: Owned,
    sql: string,
    isOver: () => Promise<boolean>,
  ): Promise<number> => {
    let [most, stopped] = [0, false];
    const writing = during(
      () => !stopped,
      () => rows(service, sql).catch(() => undefined),
    );
    try {
      await until(`this ends: ${sql}`, async () => {
        most = Math.max(most, await takenBy(service));
        return isOver();
      });
    } finally {
      stopped = true;
      await writing;
    }
    return most;
  };

  const startIfPaused = async (service: Owned): Promise<void> => {
    const { status } = await cloud.get(service.service_id);
    if (status !== 'PAUSED') return;
    expect(await warningOf(service, 'STORAGE')).toContain('was paused');
    await cloud.request('POST', `/services/${service.service_id}/start`);
  };

  /**
   * Repeats a statement until it succeeds. The quota may end its session, or pause the service:
   * then it is started again.
   */
  const untilDone = (service: Owned, sql: string): Promise<void> =>
    untilExpected(`this succeeds: ${sql}`, async () => {
      await startIfPaused(service);
      await rows(service, sql);
    });

  test('a quota bounds what a session may take, and its owner cannot change that', async () => {
    expect(tenant.resources[0]?.spec.storage_gb).toBe(1);
    expect(neighbour.resources[0]?.spec.storage_gb).toBe(10);
    expect(await rows(tenant, 'show temp_file_limit')).toEqual([{ temp_file_limit: '200MB' }]);
    await expect(rows(tenant, 'set temp_file_limit = -1')).rejects.toThrow('permission denied');
    await expect(rows(tenant, "alter role tsdbadmin set temp_file_limit = '-1'")).rejects.toThrow(
      'permission denied',
    );
    await expect(
      rows(tenant, 'select * from generate_series(1, 100000000) as n order by -n'),
    ).rejects.toThrow('temporary file size');
  });

  describe('files that take too much', () => {
    let small: Owned;
    const at = (...path: string[]) => join(home, 'data', 'services', small.service_id, ...path);
    /**
     * Has the files measured: those of a server that writes nothing seldom are. It writes slowly,
     * and starts a service that was paused: a slow machine takes long to make the room it needs.
     */
    const write = async (): Promise<void> => {
      await startIfPaused(small);
      await rows(
        small,
        `begin read write; drop table if exists written; create table written as
        select repeat('x', 1000) as line from generate_series(1, 3000); commit`,
      );
      await cloud.round('storage');
    };
    const seen = (what: string, text: string) =>
      until(what, async () => {
        await write();
        return (await warningOf(small, 'STORAGE')).includes(text);
      });
    beforeAll(async () => {
      small = await cloud.create({ name: 'small', service_type: 'POSTGRES', storage_gb: 1 });
    });
    afterAll(async () => {
      await cloud.request('DELETE', `/services/${small.service_id}?purge=true`);
      await until(
        'the service is purged',
        async () => (await cloud.request('GET', `/services/${small.service_id}`)).status === 404,
      );
    });

    test(
      'archived WAL counts to the quota, and is removed with its backups first',
      { tags: 'slow' },
      async () => {
        // A segment that the initial snapshot needs: others are removed before they are measured.
        const kept = async () => {
          const names = (await readdir(at('archive'))).filter((name) =>
            /^[0-9A-F]{24}$/.test(name),
          );
          return names.toSorted().at(-1);
        };
        const first = await kept();
        await until('another segment is archived', async () => {
          await write();
          return (await kept()) !== first;
        });
        const old = at('archive', (await kept()) ?? '');
        await run('fallocate', ['-l', '850M', old]);
        await seen('backups are removed', 'backups before');
        await until('the old segment is removed', async () => {
          await write();
          return !existsSync(old);
        });
        // A slow machine measures it beyond the quota before the snapshot is taken.
        await until('transactions are read-write', async () => {
          await write();
          const [setting] = await rows(small, 'show default_transaction_read_only');
          return setting?.['default_transaction_read_only'] === 'off';
        });
      },
    );

    test('data beyond the quota makes transactions read-only, until it is gone', async () => {
      const large = at('data', 'base', 'large');
      await run('fallocate', ['-l', '980M', large]);
      await seen('the service warns', 'transactions are read-only');
      await expect(rows(small, 'create table refused (n int)')).rejects.toThrow('read-only');
      await rm(large);
      await until('the service accepts writes again', async () => {
        await write();
        return (await rows(small, 'create table if not exists again (n int)')).length === 0;
      });
    });
  });

  test(
    'a tenant beyond its quota is warned, cannot grow further, cleans up, and is normal again',
    { ...TIMEOUT, tags: 'slow' },
    async () => {
      await rows(tenant, 'create unlogged table heap (line text)');
      const fill =
        'insert into heap select repeat(md5(n::text), 30) from generate_series(1, 50000) n';
      const most = await flood(tenant, fill, async () =>
        (await warningOf(tenant, 'STORAGE')).includes('transactions are read-only'),
      );
      expect(most).toBeLessThan(MOST_BYTES);
      await expect(rows(tenant, fill)).rejects.toThrow(/read-only transaction|terminat/);
      // A session that begins read-write transactions is ended, or the service is paused.
      const stubborn = `begin read write; ${fill}; commit`;
      let grown = 0;
      await until('the writes end', async () => {
        const isEnded = await rows(tenant, stubborn).then(
          () => false,
          (error: unknown) => /terminat/i.test(String(error)),
        );
        grown = Math.max(grown, await takenBy(tenant));
        return isEnded || (await cloud.get(tenant.service_id)).status !== 'READY';
      });
      expect(grown).toBeLessThan(MOST_BYTES);
      expect((await cloud.get(neighbour.service_id)).warnings ?? []).toEqual([]);
      await untilDone(tenant, 'begin read write; drop table if exists heap; commit');
      await untilDone(tenant, 'create table if not exists again (n int)');
      await until('the warning has ended', async () => (await warningOf(tenant, 'STORAGE')) === '');
    },
  );

  test('a flood of WAL stays within the quota', { ...TIMEOUT, tags: 'slow' }, async () => {
    const wal =
      "select pg_logical_emit_message(false, 'flood', repeat('x', 100000000)) " +
      'from generate_series(1, 5)';
    const isHeld = async () => {
      const warning = await warningOf(tenant, 'STORAGE');
      return (
        warning.includes('backups before') ||
        warning.includes('transactions are read-only') ||
        warning.includes('was paused')
      );
    };
    await flood(tenant, wal, isHeld);
    let most = 0;
    for (let n = 0; n < 10; n++) {
      await rows(tenant, wal).catch(() => cloud.round('storage'));
      most = Math.max(most, await takenBy(tenant));
    }
    expect(most).toBeLessThan(MOST_BYTES);
    await untilDone(tenant, 'create table if not exists after_wal (n int)');
  });

  test('a flood of the server log stays within a bound', TIMEOUT, async () => {
    const logs = () => sizeOf(join(home, 'data', 'services', tenant.service_id, 'logs'), '-b');
    const raise =
      "do $$ begin for n in 1..20000 loop raise log '%', repeat('x', 5000); end loop; end $$";
    let most = 0;
    const quiet = async (): Promise<boolean> => {
      most = Math.max(most, await logs());
      return (await warningOf(tenant, 'STORAGE')).includes('the server log grew');
    };
    await flood(tenant, raise, quiet);
    const atQuiet = await logs();
    for (let n = 0; n < 5; n++) await rows(tenant, raise);
    most = Math.max(most, await logs());
    expect(most).toBeLessThan(400e6);
    expect(await logs()).toBeLessThanOrEqual(atQuiet + 1e6);
  });

  describe('a full disk', () => {
    /** The states of the reserve that were reported. */
    const reserveStates = async (): Promise<unknown[]> => {
      const states: unknown[] = [];
      for await (const { type, data } of followEvents({ ...cloud, after: '0', follow: false }))
        if (type === 'disk.reserve') states.push(data['state']);
      return states;
    };
    /**
     * Writes as many zeros as there is space now, as root: what is released meanwhile stays free.
     */
    const fill = async (path: string): Promise<void> => {
      const { bsize, bfree } = await statfs(disk.path);
      const zeros = ['if=/dev/zero', 'bs=1M', 'iflag=count_bytes', `count=${bsize * bfree}`];
      // dd ends earlier where others write too.
      await run('dd', [...zeros, 'conv=fsync', `of=${path}`]).catch(() => null);
    };

    test(
      'ends nobody: reads, a restart, deletes and purges work, and afterwards all is as before',
      { ...TIMEOUT, tags: 'slow' },
      async () => {
        const filler = join(disk.path, 'filler');
        const gone = await cloud.create({ name: 'gone', service_type: 'POSTGRES' });
        const other = await cloud.create({
          name: 'other',
          service_type: 'POSTGRES',
          environment_tag: 'PROD',
        });
        await cloud.request('DELETE', `/services/${gone.service_id}`);
        const deleted = async () =>
          JSON.stringify((await cloud.request('GET', '/deletedServices')).body);
        await until('the service is listed as deleted', async () =>
          (await deleted()).includes(gone.service_id),
        );
        // The control plane is away when the disk becomes full, and so is the metadata database.
        await cloud.stop('SIGKILL');
        await run('kill', [
          '-9',
          (await readFile(join(home, 'data', 'store', 'pid'), 'utf8')).trim(),
        ]);
        await fill(filler);
        expect(await disk.usedPercent()).toBeGreaterThan(99.8);
        await cloud.up();
        expect((await cloud.request('GET', '/services')).status).toBe(200);
        expect(await rows(neighbour, 'select 1 as one')).toEqual([{ one: 1 }]);
        await until(
          'the release of the reserve is reported',
          async () => (await reserveStates())[0] === 'released',
        );
        // The deleted service gives its space up, and so does one that is purged.
        await until(
          'the deleted service is purged',
          async () => !(await deleted()).includes(gone.service_id),
        );
        // Otherwise its space would be given back after the disk was filled again.
        await until(
          'its data is removed',
          async () => !existsSync(join(home, 'data', 'services', gone.service_id)),
        );
        await rm(filler);
        await until(
          'the reserve is held again',
          async () => (await reserveStates()).at(-1) === 'held',
        );
        await fill(filler);
        await until(
          'the second release is reported',
          async () => (await reserveStates()).at(-1) === 'released',
        );
        expect((await cloud.request('POST', '/services', { name: 'more' })).status).toBe(422);
        expect(
          (await cloud.request('DELETE', `/services/${other.service_id}?purge=true`)).body,
        ).toMatchObject({ code: 'INVALID_REQUEST' });
        expect(
          (await cloud.request('DELETE', `/services/${other.service_id}?purge=true&confirm=other`))
            .status,
        ).toBe(202);
        await until(
          'the service is purged',
          async () => (await cloud.request('GET', `/services/${other.service_id}`)).status === 404,
        );
        expect((await cloud.request('POST', `/services/${other.service_id}/restore`)).status).toBe(
          404,
        );
        await rm(filler);
        await until(
          'the neighbour accepts writes again',
          async () => (await rows(neighbour, 'create table after_all (n int)')).length === 0,
        );
        await until(
          'the reserve is held once more',
          async () => (await reserveStates()).at(-1) === 'held',
        );
        expect((await cloud.cli('doctor')).stdout).toMatch(/reserve: present: \d+ MB/);
      },
    );
  });
});
