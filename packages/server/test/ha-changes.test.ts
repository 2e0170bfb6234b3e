/**
 * High availability: planned changes of the primary, drills, and failovers during other changes.
 */
import { afterAll, afterEach, beforeAll, expect, test as anyTest } from 'vitest';
import { findProgram } from './probe.ts';
import { verificationOf } from './service-access.ts';
import { connectTo } from './harness.ts';
import {
  killPrimary,
  layoutOf,
  untilConnected,
  untilPrimary,
  untilRedundant,
  type ServiceAccess,
} from './ha-load.ts';
import {
  describe,
  test,
  cloud,
  SEED,
  chance,
  pair,
  accepted,
  act,
  newest,
  underLoad,
  NOTHING_LOST,
  rolesOf,
  setUp,
  tearDown,
} from './ha-cloud.ts';
import { atMoment, until, untilExpected } from './until.ts';

// Snapshots are taken while primaries change.
beforeAll(() => setUp({ HOWDAH_SNAPSHOT_HOURS: '0.005' }));
afterEach(() => cloud.tidy());
afterAll(tearDown);

const pgbouncer = (await findProgram('pgbouncer')) !== null;

describe('planned changes', () => {
  test('a switchover loses no write, also asynchronous; new connections wait', async () => {
    const service = await pair('swapped', 0);
    const slotsOf = async () => {
      const client = await connectTo(cloud, service, service.initial_password);
      const { rows } = await client.query<{ name: string }>(
        "select slot_name as name from pg_replication_slots where slot_type = 'logical'",
      );
      await client.end();
      return rows.map(({ name }) => name);
    };
    const owner = await connectTo(cloud, service, service.initial_password);
    await owner.query("select pg_create_logical_replication_slot('cdc', 'test_decoding')");
    await owner.end();
    const clones: string[][] = [];
    const details: string[] = [];
    const seen = await underLoad(service, async (load) => {
      for (let round = 0; round < 3; round++) {
        const begunMs = performance.now();
        await act(service, 'switchover');
        const steps = (await newest(service, 'switchover'))?.steps ?? [];
        clones.push(steps.flatMap(({ name }) => (name.startsWith('clone') ? [name] : [])));
        details.push(steps.map(({ detail }) => detail ?? '').join('\n'));
        // After the second one its server is the primary again.
        expect(await slotsOf()).toEqual([]);
        await load.goesOn();
        console.log(`switchover: write gap ${Math.round(load.longestGapMs(begunMs))} ms`);
      }
    });
    expect(seen).toMatchObject({ ...NOTHING_LOST, refused: [] });
    expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(1);
    expect(details[0]).toContain('were removed: cdc');
    // The former primary follows as it is; a slow machine may not give it the time once.
    expect(clones).toContainEqual([]);
  });

  test(
    'replica counts change under load, and only the first replica ends sessions',
    { tags: 'slow' },
    async () => {
      const service = await cloud.create({ name: 'counts', service_type: 'POSTGRES' });
      await act(service, 'setHA', { replica_count: 1 });
      const client = await connectTo(cloud, service, service.initial_password);
      const seen = await underLoad(service, async () => {
        for (const [replica_count, sync_replica_count] of [
          [2, 1],
          [2, 2],
          [1, 1],
          [2, 0],
          [0, 0],
          [1, 1],
        ] as const) {
          await act(service, 'setHA', { replica_count, sync_replica_count });
          expect((await cloud.get(service.service_id)).ha_replicas).toEqual({
            replica_count,
            sync_replica_count,
          });
        }
      });
      expect(seen).toMatchObject({ ...NOTHING_LOST, refused: [] });
      // The same session all the time.
      expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
      await client.end();
    },
  );

  test('a resize restarts the standbys, switches over, restarts the primary', async () => {
    const service = await pair('sizes', 1, 2);
    const seen = await underLoad(service, async () => {
      await act(service, 'resize', { cpu_millis: '1000' });
      await act(service, 'resize', { cpu_millis: '500' });
    });
    expect(seen).toMatchObject({ ...NOTHING_LOST, refused: [] });
    await untilRedundant(cloud, service, 2, 1);
  });

  test(
    'a stop, a start, a delete and a restore keep replicas and port',
    { tags: 'slow' },
    async () => {
      const service = await pair('paused', 1, 2);
      await act(service, 'switchover');
      accepted(await cloud.request('POST', `/services/${service.service_id}/stop`));
      await cloud.until(service.service_id, 'PAUSED');
      expect(await cloud.audit()).toEqual([]);
      await act(service, 'start');
      await untilRedundant(cloud, service, 2, 1);
      expect((await cloud.request('DELETE', `/services/${service.service_id}`)).status).toBe(202);
      await untilExpected('the service is deleted', async () =>
        expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
      );
      await act(service, 'restore');
      await untilRedundant(cloud, service, 2, 1);
      await (await connectTo(cloud, service, service.initial_password)).end();
    },
  );
});

describe('a drill', () => {
  test.each(['switchover', 'failover'])(
    '%s: reports the write gap, and that no write was lost',
    async (kind) => {
      const service = await pair(`drill ${kind}`);
      await act(service, 'drill', { kind });
      expect(
        (await newest(service, 'drill'))?.steps.find(({ name }) => name === 'drill')?.detail,
      ).toMatch(/^write gap \d+ ms; 0 of \d+ acknowledged probes lost$/);
      expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(1);
      const client = await connectTo(cloud, service, service.initial_password);
      const left = await client.query(
        "select (select count(*) from pg_namespace where nspname = '_howdah') + " +
          "(select count(*) from pg_roles where rolname = '_howdah_probe' " +
          'and rolcanlogin) as n',
      );
      expect(left.rows).toEqual([{ n: '0' }]);
      await client.end();
    },
  );

  test('an interrupted drill fails and leaves nothing behind', { tags: 'slow' }, async () => {
    const service = await pair('interrupted');
    await untilRedundant(cloud, service, 1, 1);
    accepted(
      await cloud.request('POST', `/services/${service.service_id}/drill`, { kind: 'switchover' }),
    );
    await until('the drill has made its role', async () =>
      (await rolesOf(service)).includes('_howdah_probe'),
    );
    await cloud.stop('SIGKILL');
    await cloud.up();
    await untilExpected('the drill has failed', async () =>
      expect(await newest(service, 'drill')).toMatchObject({
        status: 'failed',
        error: expect.stringContaining('interrupted'),
      }),
    );
    await untilExpected('the role of the drill is dropped', async () =>
      expect(await rolesOf(service)).not.toContain('_howdah_probe'),
    );
    await untilRedundant(cloud, service, 1, 1);
  });

  test('a failover drill of a PROD service needs its name', { tags: 'slow' }, async () => {
    const service = await cloud.create({
      name: 'prod',
      service_type: 'POSTGRES',
      replica_count: 1,
      environment_tag: 'PROD',
    });
    const { status, body } = await cloud.request('POST', `/services/${service.service_id}/drill`, {
      kind: 'failover',
      confirm: 'prd',
    });
    expect({ status, body }).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining('confirm') },
    });
    await act(service, 'drill', { kind: 'failover', confirm: 'prod' });
  });
});

describe('a pooler before members', () => {
  anyTest.runIf(pgbouncer)(
    'bridges a switchover, and connects to the new primary after a failover',
    async () => {
      const service = await cloud.create({
        name: 'pooled pair',
        service_type: 'POSTGRES',
        replica_count: 1,
        sync_replica_count: 1,
        enable_pooler: true,
      });
      const { connection_pooler: pooler } = service;
      if (pooler === undefined) throw new Error('no pooler');
      const client = await connectTo(cloud, pooler, service.initial_password, {
        database: 'tsdb_transaction',
      });
      await client.query('create table t (n int)');
      let stopping = false;
      const writes = (async () => {
        let count = 0;
        for (; !stopping; count++) await client.query('insert into t values ($1)', [count]);
        return count;
      })();
      await act(service, 'switchover');
      stopping = true;
      // Not one of them failed, and each is there.
      const count = await writes;
      expect((await client.query('select count(*)::int as n from t')).rows).toEqual([{ n: count }]);
      await killPrimary(cloud, service);
      await untilPrimary(cloud, service, 0);
      await untilRedundant(cloud, service, 1, 1);
      const again = await connectTo(cloud, pooler, service.initial_password, {
        database: 'tsdb_transaction',
      });
      expect((await again.query('select count(*)::int as n from t')).rows).toEqual([{ n: count }]);
      await again.end();
      await client.end().catch(() => undefined);
    },
  );
});

describe('a failover during another change', () => {
  /**
   * Kills the primary some moments after a change was asked for, and waits until all is as it was
   * asked for.
   */
  const killedDuring = async (
    what: number,
    service: ServiceAccess,
    action: string,
    body: object,
    replicas: number,
    sync: number,
  ) => {
    const seen = await underLoad(service, async () => {
      accepted(await cloud.request('POST', `/services/${service.service_id}/${action}`, body));
      await atMoment(chance(what) * 600);
      await killPrimary(cloud, service);
      await untilRedundant(cloud, service, replicas, sync);
    });
    expect(seen, `seed ${SEED}`).toMatchObject(NOTHING_LOST);
  };

  test('a new replica count is reached', { tags: 'slow' }, async () => {
    const service = await pair('growing');
    await killedDuring(200, service, 'setHA', { replica_count: 2 }, 2, 1);
  });

  test('a new size is reached', { tags: 'slow' }, async () => {
    const service = await pair('resizing');
    await killedDuring(201, service, 'resize', { cpu_millis: '1000' }, 1, 1);
    expect((await cloud.get(service.service_id)).resources[0]?.spec.cpu_millis).toBe(1000);
  });

  test('a switchover ends with all replicas', { tags: 'slow' }, async () => {
    const service = await pair('swapping', 1, 2);
    await killedDuring(202, service, 'switchover', {}, 2, 1);
  });

  test('a read replica set follows the new primary', { tags: 'slow' }, async () => {
    const service = await pair('followed');
    const seen = await underLoad(service, async () => {
      const readers = { name: 'readers', nodes: 1, cpu_millis: 250, memory_gbs: 1 };
      accepted(await cloud.request('POST', `/services/${service.service_id}/replicaSets`, readers));
      await atMoment(chance(204) * 600);
      await killPrimary(cloud, service);
      await untilRedundant(cloud, service, 1, 1);
      const sets = async () => (await cloud.get(service.service_id)).read_replica_sets;
      await untilExpected('the set is active', async () =>
        expect(await sets()).toMatchObject([{ status: 'active' }]),
      );
      const [set] = await sets();
      if (set === undefined) throw new Error('no set');
      const writer = await untilConnected(cloud, service);
      await writer.query('create table seen_by_readers as select 1 as n');
      await writer.end();
      const reader = await connectTo(cloud, set, service.initial_password);
      await untilExpected('the set has the table', async () =>
        expect(
          await reader
            .query("select to_regclass('seen_by_readers') is not null as there")
            .then(({ rows }) => rows),
        ).toEqual([{ there: true }]),
      );
      await reader.end();
    });
    expect(seen, `seed ${SEED}`).toMatchObject(NOTHING_LOST);
  });

  test(
    'a verification of the backup succeeds, or fails with the reason',
    { tags: 'slow' },
    async () => {
      const service = await pair('verified');
      const verifying = verificationOf(cloud, service);
      await atMoment(chance(205) * 2000);
      await killPrimary(cloud, service);
      const { status, error } = await verifying;
      if (status !== 'succeeded')
        expect(error).toContain('is no longer the primary: verify the backup again');
      await untilRedundant(cloud, service, 1, 1);
      expect(JSON.stringify((await cloud.get(service.service_id)).warnings ?? [])).not.toContain(
        'VERIFICATION',
      );
      expect(await verificationOf(cloud, service)).toEqual({
        status: 'succeeded',
        error: undefined,
      });
    },
  );

  test('a fork is complete', { tags: 'slow' }, async () => {
    const service = await pair('forking');
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table bulk as select g from generate_series(1, 100000) g');
    await client.end();
    const answer = await cloud.request('POST', `/services/${service.service_id}/forkService`, {
      fork_strategy: 'NOW',
    });
    accepted(answer);
    await atMoment(chance(203) * 300);
    await killPrimary(cloud, service);
    const { service_id, initial_password } = Object(answer.body);
    const child = await cloud.until(String(service_id), 'READY');
    const reader = await connectTo(cloud, child, String(initial_password));
    expect((await reader.query('select count(*)::int as n from bulk')).rows).toEqual([
      { n: 100_000 },
    ]);
    await reader.end();
    await untilRedundant(cloud, service, 1, 1);
  });
});

describe('backups after a failover', () => {
  test(
    'forks of now and of points in time around it have their data, and verify',
    { tags: 'slow' },
    async () => {
      const service = await pair('backed up');
      const client = await connectTo(cloud, service, service.initial_password);
      await client.query("create table t (name text); insert into t values ('before')");
      const { rows } = await client.query<{ now: string }>(
        "select to_char(clock_timestamp() at time zone 'UTC', " +
          `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
      );
      await client.query('select pg_sleep(0.01)');
      await client.query("insert into t values ('not archived yet')");
      await client.end().catch(() => undefined);
      await killPrimary(cloud, service);
      await untilRedundant(cloud, service, 1, 1);
      const again = await connectTo(cloud, service, service.initial_password);
      await again.query("insert into t values ('after')");
      const after = (
        await again.query<{ now: string }>(
          "select to_char(clock_timestamp() at time zone 'UTC', " +
            `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
        )
      ).rows[0]?.now;
      await again.end();
      const all = ['before', 'not archived yet', 'after'];
      for (const [fork, expected] of [
        [{ fork_strategy: 'NOW' }, all],
        [{ fork_strategy: 'PITR', target_time: rows[0]?.now }, ['before']],
        [{ fork_strategy: 'PITR', target_time: after }, all],
      ] as const) {
        const answer = await cloud.request(
          'POST',
          `/services/${service.service_id}/forkService`,
          fork,
        );
        accepted(answer);
        const { service_id, initial_password } = Object(answer.body);
        const child = await cloud.until(String(service_id), 'READY');
        expect(child.ha_replicas).toEqual({ replica_count: 0, sync_replica_count: 0 });
        const reader = await connectTo(cloud, child, String(initial_password));
        expect(
          (await reader.query<{ name: string }>('select name from t')).rows.map(({ name }) => name),
          JSON.stringify(fork),
        ).toEqual(expected);
        await reader.end();
      }
      expect(
        (await cloud.request('GET', `/services/${service.service_id}/backupStatus`)).body,
      ).toMatchObject({ problem: null });
      expect(await verificationOf(cloud, service)).toEqual({
        status: 'succeeded',
        error: undefined,
      });
      // With the primary of now, which is not the first member any more.
      const { checks } = Object(
        (await cloud.request('GET', `/services/${service.service_id}/backupStatus`)).body,
      ).last_verification;
      expect(checks).toContainEqual({
        name: 'compare catalogs',
        succeeded: true,
        detail: expect.stringMatching(/^\d+ rows, the same as in the service$/),
      });
    },
  );
});
