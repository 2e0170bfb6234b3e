/** A full disk whose quotas are overcommitted: only a service that filled it is limited. */
import { execFile } from 'node:child_process';
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { loopDisksWork, makeLoopDisk, type LoopDisk } from './loop-disk.ts';
import { until } from './until.ts';

/** 2 % of it hold what both services write. Most of it is allocated, not written. */
const DISK_MB = 24_000;
const possible = await loopDisksWork();
if (!possible)
  process.stdout.write(
    'storage-share.test.ts: skipped, since no loop device can be mounted here (it needs root)\n',
  );

type Owned = Service & { initial_password: string };

describe.runIf(possible)('a full disk', () => {
  let cloud: Installation;
  let greedy: Owned;
  let neighbour: Owned;
  let disk: LoopDisk;
  let path: string;

  beforeAll(async () => {
    disk = await makeLoopDisk(DISK_MB);
    path = disk.path;
    cloud = await install({ HOWDAH_HOME: join(path, 'h'), HOWDAH_SNAPSHOT_HOURS: '24' });
    greedy = await cloud.create({ name: 'greedy', service_type: 'POSTGRES' });
    neighbour = await cloud.create({ name: 'neighbour', service_type: 'POSTGRES' });
  });
  afterAll(async () => {
    expect(await cloud.destroy()).toEqual([]);
    await disk.remove();
  });

  const ask = async (service: Owned, sql: string): Promise<void> => {
    const client = await connectTo(cloud, service, service.initial_password);
    client.on('error', () => undefined);
    try {
      await client.query(sql);
    } finally {
      await client.end().catch(() => undefined);
    }
  };
  /** Writes this much twice: as rows and as WAL. */
  const write = (
    service: Owned,
    table: string,
    megabytes: number,
    begin = 'begin',
  ): Promise<void> =>
    ask(
      service,
      `${begin};
       create table ${table} as
         select repeat(md5(n::text), 31) as line from generate_series(1, ${megabytes * 1000}) as n;
       commit`,
    );
  const warningsOf = async ({ service_id: id }: Owned): Promise<string> =>
    JSON.stringify((await cloud.get(id)).warnings ?? []);

  test(
    'limits the service that takes more than an equal share, not the one that takes less',
    { tags: 'slow', timeout: 1_200_000 },
    async () => {
      await write(greedy, 'large', 300);
      const { bsize, blocks, bavail } = await statfs(path);
      const fillBytes = bsize * (bavail - Math.floor(blocks * 0.018));
      await promisify(execFile)('fallocate', ['-l', `${fillBytes}`, join(path, 'filler')]);
      await until('the disk counts as full', async () =>
        (await warningsOf(neighbour)).includes('services that grow become read-only'),
      );
      // Twice as much as a service beyond its share may grow by, before it is read-only: 32 MB.
      await write(neighbour, 'small', 64);
      await until('the greedy service is read-only', async () => {
        if ((await warningsOf(greedy)).includes('transactions are read-only')) return true;
        await write(greedy, `more_${Date.now()}`, 10);
        return cloud.round('storage').then(() => false);
      });
      // By then, the neighbour has been measured again.
      await until('the greedy service is paused', async () => {
        if ((await warningsOf(greedy)).includes('was paused')) return true;
        await write(greedy, `even_more_${Date.now()}`, 10, 'begin read write');
        return cloud.round('storage').then(() => false);
      });
      expect(await warningsOf(neighbour)).not.toContain('STORAGE');
      await write(neighbour, 'smaller', 1);
    },
  );
});
