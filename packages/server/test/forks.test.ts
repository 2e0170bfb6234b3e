/**
 * Forks of now, of the last snapshot and of a point in time; backups and their window; restore of
 * what was deleted.
 */
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import type { Service } from './harness-caller.ts';
import {
  accessOf,
  backupsOf,
  cloud,
  fork,
  insert,
  loseFromArchive,
  namesIn,
  type ServiceAccess,
  withClient,
  setUp,
  tearDown,
  untilAfter,
} from './forks-data.ts';
import { createLayout, readMarker } from './probe.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(() => cloud.tidy());
afterAll(tearDown);

describe('a fork of now', () => {
  test('has data, roles and type of its parent, its own password and port', async () => {
    const parent = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
    await insert(parent, 'before');
    await withClient(parent, (client) =>
      client.query(
        `create role app login password 'app-password'; grant select on t to app; create sequence s;
           alter role app set work_mem = '5MB'`,
      ),
    );
    const child = await fork(parent, { fork_strategy: 'NOW' });
    expect(child).toMatchObject({
      name: 'parent-fork',
      service_type: 'POSTGRES',
      forked_from: {
        project_id: cloud.projectId,
        service_id: parent.service_id,
        is_standby: false,
      },
      resources: [{ spec: { cpu_millis: 500, memory_gbs: 2 } }],
      metadata: { environment: 'DEV' },
    });
    expect(child.endpoint.port).not.toBe(parent.endpoint.port);
    expect(await namesIn(child)).toEqual(['before']);
    await insert(parent, 'in the parent');
    await insert(child, 'in the child');
    expect(await namesIn(parent)).toEqual(['before', 'in the parent']);
    expect(await namesIn(child)).toEqual(['before', 'in the child']);
    const app = await connectTo(cloud, child, 'app-password', { user: 'app' });
    expect((await app.query('show work_mem')).rows).toEqual([{ work_mem: '5MB' }]);
    await app.end();
    await expect(connectTo(cloud, child, parent.initial_password)).rejects.toThrow(
      /password authentication failed/,
    );
    const [operation] = await cloud.operations(child.service_id);
    expect(operation).toMatchObject({ kind: 'fork', status: 'succeeded' });
    expect(operation?.steps.map(({ name }) => name)).toEqual([
      'clone parent',
      'start PostgreSQL',
      'set password',
    ]);
  });

  test(
    'accepts no sessions before it is provisioned, also not of users of its parent',
    { tags: 'slow' },
    async () => {
      const parent = await cloud.create({ name: 'open', service_type: 'POSTGRES' });
      await withClient(parent, (client) =>
        client.query(`create role early login password 'early-password'`),
      );
      const layout = createLayout(join(cloud.home, 'data'));
      const firstSeen = async (child: Service): Promise<boolean | undefined> => {
        for (;;) {
          const client = await connectTo(cloud, child, 'early-password', { user: 'early' }).catch(
            (error: unknown) => {
              // Not there yet, or closed; any other error is a defect.
              expect(String(error)).toMatch(
                new RegExp(
                  'ECONNREFUSED|ECONNRESET|Connection terminated|the database system is|' +
                    'no pg_hba.conf entry',
                ),
              );
              return null;
            },
          );
          if (client === null) continue;
          const provisioned = (await readMarker(layout.service(child.service_id)))?.provisioned;
          await client.end();
          return provisioned;
        }
      };
      for (let n = 0; n < 5; n++) {
        const answer = await cloud.request('POST', `/services/${parent.service_id}/forkService`, {
          fork_strategy: 'NOW',
        });
        const child = await cloud.get(accessOf(answer).service_id);
        expect(await firstSeen(child)).toBe(true);
        await cloud.until(child.service_id, 'READY');
      }
    },
  );

  test('a fork of a paused parent, with another size and name, can be forked again', async () => {
    const parent = await cloud.create({ name: 'sleeps', service_type: 'POSTGRES' });
    await insert(parent, 'asleep');
    await cloud.request('POST', `/services/${parent.service_id}/stop`);
    await cloud.until(parent.service_id, 'PAUSED');
    const child = await fork(parent, {
      fork_strategy: 'NOW',
      name: 'awake',
      cpu_millis: '1000',
      environment_tag: 'PROD',
    });
    expect(child).toMatchObject({
      name: 'awake',
      resources: [{ spec: { cpu_millis: 1000 } }],
      metadata: { environment: 'PROD' },
    });
    expect(await namesIn(child)).toEqual(['asleep']);
    const grandchild = await fork(child, { fork_strategy: 'LAST_SNAPSHOT' });
    expect(await namesIn(grandchild)).toEqual(['asleep']);
    expect((await cloud.get(parent.service_id)).status).toBe('PAUSED');
  });

  test('has what its parent committed without waiting for the disk', async () => {
    const parent = await cloud.create({ name: 'hasty', service_type: 'POSTGRES' });
    await insert(parent, 'slow');
    const child = await withClient(parent, async (client) => {
      await client.query(`set synchronous_commit = off; insert into t (name) values ('fast')`);
      return fork(parent, { fork_strategy: 'NOW' });
    });
    expect(await namesIn(child)).toEqual(['slow', 'fast']);
  });

  test(
    'does not fail a transaction of its parent, and is consistent in itself, ten times under load',
    { tags: 'slow' },
    async () => {
      const parent = await cloud.create({ name: 'busy', service_type: 'POSTGRES' });
      await withClient(parent, (client) =>
        client.query(
          `create table a (v bigint); create table b (v bigint); insert into a values (0);
             insert into b values (0)`,
        ),
      );
      let writing = true;
      const writes = withClient(parent, async (client) => {
        let count = 0;
        while (writing) {
          await client.query('begin; update a set v = v + 1; update b set v = v - 1; commit');
          count += 1;
        }
        return count;
      });
      const children: ServiceAccess[] = [];
      for (let round = 0; round < 5; round++) {
        children.push(
          ...(await Promise.all([
            fork(parent, { fork_strategy: 'NOW' }),
            fork(parent, { fork_strategy: 'NOW' }),
          ])),
        );
      }
      writing = false;
      expect(await writes).toBeGreaterThan(0);
      for (const child of children) {
        const sums = await withClient(
          child,
          async (client) =>
            (await client.query('select (select sum(v) from a) + (select sum(v) from b) as sum'))
              .rows,
        );
        expect(sums).toEqual([{ sum: '0' }]);
      }
      for (const { service_id } of [...children, parent])
        await cloud.request('DELETE', `/services/${service_id}`);
    },
  );
});

describe('a fork of the past', () => {
  test('LAST_SNAPSHOT works after the create, later it is the newest snapshot', async () => {
    const parent = await cloud.create({ name: 'snaps', service_type: 'POSTGRES' });
    const empty = await fork(parent, { fork_strategy: 'LAST_SNAPSHOT' });
    expect(
      (await withClient(empty, (client) => client.query("select to_regclass('t') as t"))).rows,
    ).toEqual([{ t: null }]);
    const { snapshots, problem } = await backupsOf(parent);
    // The next one may have been taken meanwhile.
    expect(snapshots.at(-1)).toMatchObject({ kind: 'initial' });
    expect(problem).toBe(null);
  });

  test('a point in time is exact to the transaction, also with a paused parent', async () => {
    const parent = await cloud.create({ name: 'times', service_type: 'POSTGRES' });
    const first = await insert(parent, 'one');
    await untilAfter(first);
    const second = await insert(parent, 'two');
    await untilAfter(second);
    await insert(parent, 'three');
    expect(
      await namesIn(await fork(parent, { fork_strategy: 'PITR', target_time: first })),
    ).toEqual(['one']);
    expect(
      await namesIn(await fork(parent, { fork_strategy: 'PITR', target_time: second })),
    ).toEqual(['one', 'two']);
    expect(
      await namesIn(
        await fork(parent, { fork_strategy: 'PITR', target_time: new Date().toISOString() }),
      ),
    ).toEqual(['one', 'two', 'three']);
    await cloud.request('POST', `/services/${parent.service_id}/stop`);
    await cloud.until(parent.service_id, 'PAUSED');
    const { window } = await backupsOf(parent);
    expect(
      await namesIn(
        await fork(parent, { fork_strategy: 'PITR', target_time: window.latest ?? '' }),
      ),
    ).toEqual(['one', 'two', 'three']);
    const child = await fork(parent, { fork_strategy: 'PITR', target_time: second });
    expect(await namesIn(child)).toEqual(['one', 'two']);
    // The fork has left its parent's history behind, and has one of its own, which begins with its
    // first snapshot.
    await untilExpected('the fork has a snapshot', async () =>
      expect((await backupsOf(child)).snapshots.length).toBeGreaterThan(0),
    );
    const later = await insert(child, 'its own');
    await untilAfter(later);
    await insert(child, 'too late');
    expect(await namesIn(await fork(child, { fork_strategy: 'PITR', target_time: later }))).toEqual(
      ['one', 'two', 'its own'],
    );
  });

  test('a target_time that is wrong or outside is refused with the window', async () => {
    const parent = await cloud.create({ name: 'bounds', service_type: 'POSTGRES' });
    const refused = async (body: object) => {
      const { status, body: answer } = await cloud.request(
        'POST',
        `/services/${parent.service_id}/forkService`,
        body,
      );
      expect(status).toBe(400);
      return JSON.stringify(answer);
    };
    const { window } = await backupsOf(parent);
    expect(await refused({ fork_strategy: 'PITR', target_time: '2001-01-01T00:00:00Z' })).toContain(
      `outside the window that can be reached: ${window.earliest} to `,
    );
    expect(await refused({ fork_strategy: 'PITR', target_time: '2101-01-01T00:00:00Z' })).toContain(
      'outside the window',
    );
    expect(await refused({ fork_strategy: 'PITR' })).toContain('target_time: found null');
    expect(await refused({ fork_strategy: 'PITR', target_time: 'yesterday' })).toContain(
      'target_time: found \\"yesterday\\"',
    );
    expect(await refused({ fork_strategy: 'NOW', target_time: '2026-01-01T00:00:00Z' })).toContain(
      'it goes with PITR only',
    );
    expect(await refused({ fork_strategy: 'LATER' })).toContain(
      'allowed: NOW, LAST_SNAPSHOT, PITR',
    );
    expect(await refused({ fork_strategy: 'NOW', cpu_millis: '7' })).toContain('allowed pairs');
  });

  test(
    'a moment in a WAL gap gives no fork, moments before and after it do',
    { tags: 'slow' },
    async () => {
      // A control plane sees to backups when it begins, and then not for a minute.
      const restart = async () => {
        await cloud.stop('SIGTERM');
        await cloud.up();
      };
      await restart();
      const parent = await cloud.create({ name: 'gap', service_type: 'POSTGRES' });
      const early = await insert(parent, 'before the gap');
      const files = ['file 0', 'file 1', 'file 2', 'file 3'];
      const lost = await loseFromArchive(parent, files);
      const { problem, window } = await backupsOf(parent);
      expect(problem).toContain(`WAL file ${lost} is missing from the archive`);
      const askFor = (ms: number) =>
        cloud.request('POST', `/services/${parent.service_id}/forkService`, {
          fork_strategy: 'PITR',
          target_time: new Date(ms).toISOString(),
        });
      const refused = (message: string) => ({
        status: 400,
        body: { code: 'INVALID_REQUEST', message: expect.stringContaining(message) },
      });
      // Not even a little after it, as a clock that is ahead would have it.
      for (const ms of [1, 60_000])
        expect(await askFor(Date.parse(window.latest ?? '') + ms)).toMatchObject(
          refused('outside the window'),
        );

      await restart();
      await untilExpected('a scheduled snapshot is taken', async () =>
        expect((await backupsOf(parent)).snapshots[0]?.kind).toBe('scheduled'),
      );
      const late = await insert(parent, 'after the gap');
      await untilAfter(late);
      await insert(parent, 'too late');
      expect(
        await namesIn(await fork(parent, { fork_strategy: 'PITR', target_time: late })),
      ).toEqual(['before the gap', ...files, 'after the gap']);
      expect(
        await namesIn(await fork(parent, { fork_strategy: 'PITR', target_time: early })),
      ).toEqual(['before the gap']);
      const seen = await backupsOf(parent);
      const { after = '', before = '' } = seen.window.gaps?.[0] ?? {};
      expect(Date.parse(after)).toBeGreaterThan(Date.parse(early));
      expect(Date.parse(before)).toBeLessThan(Date.parse(late));
      expect(seen.problem).toBe(
        `WAL file ${lost} is missing from the archive: ` +
          `nothing between ${after} and ${before} can be reached`,
      );
      const inside = (Date.parse(after) + Date.parse(before)) / 2;
      expect(await askFor(inside)).toMatchObject(
        refused(
          'is in a gap of the window: a WAL file is missing from the archive, ' +
            `and nothing between ${after} and ${before} can be reached; ` +
            `allowed: ${seen.window.earliest} to ${after}, ${before} to `,
        ),
      );
      expect(await askFor(Date.parse(seen.window.earliest ?? '') - 1)).toMatchObject(
        refused('outside the window'),
      );
      // Both ends of it can be reached.
      expect(
        await namesIn(await fork(parent, { fork_strategy: 'PITR', target_time: after })),
      ).toEqual(['before the gap', 'file 0']);
      expect(
        await namesIn(await fork(parent, { fork_strategy: 'PITR', target_time: before })),
      ).toEqual(['before the gap', ...files]);
    },
  );
});

describe('undelete', () => {
  test('a deleted service is gone, and comes back with id, data and password', async () => {
    const service = await cloud.create({ name: 'phoenix', service_type: 'POSTGRES' });
    await insert(service, 'ashes');
    expect(await cloud.request('POST', `/services/${service.service_id}/restore`)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_STATE' },
    });
    await cloud.request('DELETE', `/services/${service.service_id}`);
    await untilExpected('the service is deleted', async () =>
      expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
    );
    expect(JSON.stringify((await cloud.request('GET', '/services')).body)).not.toContain(
      service.service_id,
    );
    await expect(connectTo(cloud, service, service.initial_password)).rejects.toThrow(
      /ECONNREFUSED/,
    );
    expect(
      await cloud.request('POST', `/services/${service.service_id}/forkService`, {
        fork_strategy: 'NOW',
      }),
    ).toMatchObject({
      status: 404,
    });
    expect(await cloud.request('POST', `/services/${service.service_id}/restore`)).toMatchObject({
      status: 202,
      body: { status: 'RESUMING', endpoint: service.endpoint },
    });
    await cloud.until(service.service_id, 'READY');
    expect(await namesIn(service)).toEqual(['ashes']);
  });

  test('a deleted paused service comes back paused', async () => {
    const service = await cloud.create({ name: 'dormant', service_type: 'POSTGRES' });
    await cloud.request('POST', `/services/${service.service_id}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    await cloud.request('DELETE', `/services/${service.service_id}`);
    await untilExpected('the service is deleted', async () =>
      expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
    );
    await cloud.request('POST', `/services/${service.service_id}/restore`);
    expect((await cloud.until(service.service_id, 'PAUSED')).status).toBe('PAUSED');
  });
});
