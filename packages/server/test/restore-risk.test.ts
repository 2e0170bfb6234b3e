/** A disk that fills ends the time for a restore early: announced, and recorded afterwards. */
import { execFile } from 'node:child_process';
import { rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { followEvents } from '@howdah/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { loopDisksWork, makeLoopDisk, type LoopDisk } from './loop-disk.ts';
import { untilExpected } from './until.ts';

const run = promisify(execFile);
const DISK_MB = 1600;
const possible = await loopDisksWork();
if (!possible)
  process.stdout.write(
    'restore-risk.test.ts: skipped, since no loop device can be mounted here (it needs root)\n',
  );

describe.runIf(possible)('a deleted service on a disk that fills', () => {
  let cloud: Installation;
  let disk: LoopDisk;
  let service: Service;

  beforeAll(async () => {
    disk = await makeLoopDisk(DISK_MB);
    cloud = await install({ HOWDAH_HOME: join(disk.path, 'h'), HOWDAH_SPARES: '0' });
    service = await cloud.create({ name: 'orders', service_type: 'POSTGRES' });
    await cloud.until(service.service_id, 'READY');
  });
  afterAll(async () => {
    expect(await cloud.destroy()).toEqual([]);
    await disk.remove();
  });

  /** Fills the disk up to a part of it, whatever the services have written since the last time. */
  const fillTo = async (percent: number): Promise<void> => {
    const filler = join(disk.path, 'filler');
    await rm(filler, { force: true });
    const { blocks, bsize } = await statfs(disk.path);
    const bytes = Math.floor((blocks * bsize * percent) / 100 - (await disk.usedBytes()));
    await run('fallocate', ['-l', String(bytes), filler]);
  };
  /** The events about the time for a restore, oldest first. */
  const events = async () => {
    const found = [];
    for await (const { type, data } of followEvents({ ...cloud, after: '0', follow: false }))
      if (type === 'service.restore_at_risk' || type === 'service.purged')
        found.push({ type, data });
    return found;
  };
  const path = () => `/services/${service.service_id}`;
  const removeIt = async () => {
    const answer = await cloud.request('DELETE', path());
    await untilExpected('the service is deleted', async () =>
      expect((await cloud.request('GET', path())).status).toBe(404),
    );
    return answer;
  };
  const listed = async () => (await cloud.request('GET', '/deletedServices')).body;
  const round = () => cloud.round('storage');

  test('the answers to a delete and to its dry run say what ends the time early', async () => {
    const note = expect.stringMatching(
      /it for 24 hours; its data is gone earlier if the disk fills: from 90 %.* \d+ % full/,
    );
    const dry = await cloud.request('DELETE', `${path()}?dry_run=true`);
    expect(dry.body).toMatchObject({ note });
    const { body } = await removeIt();
    expect(body).toMatchObject({ service_id: service.service_id, restore_note: note });
    await round();
    expect(await listed()).toMatchObject([
      {
        restore_at_risk: false,
        restore_note: expect.stringContaining('earlier if the disk fills'),
      },
    ]);
    expect(await events()).toEqual([]);
  });

  test('from 85 % on, one event for each deletion says it, and so does the list', async () => {
    const reported = {
      type: 'service.restore_at_risk',
      data: {
        service_id: service.service_id,
        name: 'orders',
        purged_at_percent: 90,
        used_percent: expect.any(Number),
        restorable_until: expect.stringContaining('T'),
      },
    };
    // Without the test before, the service is there.
    if ((await cloud.request('GET', path())).status === 200) await removeIt();
    await fillTo(87);
    await round();
    await round();
    expect(await events()).toEqual([reported]);
    expect(await listed()).toMatchObject([{ restore_at_risk: true }]);
    const { stdout } = await cloud.cli('service', 'list-deleted');
    expect(stdout).toMatch(/orders.*earlier if the disk fills/);
    expect((await cloud.request('POST', `${path()}/restore`)).status).toBe(202);
    await cloud.until(service.service_id, 'READY');
    await fillTo(87);
    await round();
    expect(await events()).toEqual([reported]);
    await removeIt();
    await round();
    expect(await events()).toEqual([reported, reported]);
  });

  test('an early purge is an event, and an entry of the audit log', async () => {
    await fillTo(92);
    await untilExpected('the service is purged', async () => expect(await listed()).toEqual([]));
    expect((await events()).at(-1)).toMatchObject({
      type: 'service.purged',
      data: { service_id: service.service_id, reason: 'disk full' },
    });
    const { body } = await cloud.request('GET', '/audit?call=purgeOnFullDisk');
    expect(body).toMatchObject([
      { public_key: 'howdah', service_id: service.service_id, outcome: 'allowed' },
    ]);
  });
});
