/**
 * High availability: a standby that lags behind its primary, with synchronous and asynchronous
 * replication.
 */
import { createServer, type Server } from 'node:net';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, expect, test as anyTest } from 'vitest';
import { portOf } from '../test-repositories/probe.ts';
import { COPIES_FILES, installCrashing } from './crash.ts';
import { connectTo, type Installation } from './harness.ts';
import {
  backendOf,
  killPrimary,
  layoutOf,
  postmasterOf,
  untilConnected,
  untilPrimary,
  untilRedundant,
  type ServiceAccess,
} from './ha-load.ts';
import {
  installed,
  describe,
  test,
  whichOf,
  cloud,
  pair,
  accepted,
  newest,
  rolesOf,
  setUp,
  tearDown,
} from './ha-cloud.ts';
import {
  confOf,
  findServer,
  type InstancePaths,
  memberName,
  signal,
  waitedForOf,
  waitUntilGone,
} from './probe.ts';
import { during, until, untilExpected } from './until.ts';

/** A position in the WAL, as PostgreSQL writes it. */
const LSN = '[0-9A-F]+/[0-9A-F]+';

beforeAll(() => setUp());
afterEach(() => cloud.tidy());
afterAll(tearDown);

/**
 * Stops what receives the log of a member, which goes on to look as if it followed. @returns lets
 * it go on
 */
async function holdBack(service: ServiceAccess, n: number): Promise<() => void> {
  const receiver = await backendOf(await postmasterOf(cloud, service, n), 'walreceiver');
  signal(receiver, 'SIGSTOP');
  return () => signal(receiver, 'SIGCONT');
}

describe('a replica that lags', () => {
  /** More than the buffers of a connection hold. */
  const FILL = "insert into t select repeat('x', 1000) from generate_series(1, 5000)";

  test('does not take over while the replica that acknowledged a write is away', async () => {
    const service = await pair('behind', 1, 2);
    await untilRedundant(cloud, service, 2, 1);
    const letGoOn = await holdBack(service, 1);
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table t (name text)');
    await client.query(FILL);
    await client.query("insert into t values ('acknowledged')");
    await client.end();
    const layout = layoutOf(cloud);
    const squatter = await keepDown(layout.member(service.service_id, 2));
    const primary = layout.member(service.service_id, 0);
    await until(
      'the primary no longer waits for member 2',
      async () => !waitedForOf(await confOf(primary)).now.members.includes(2),
    );
    await cloud.round('followers', 2);
    expect(await killPrimary(cloud, service)).toBe(0);
    // A standby that was chosen all the same waits for the stopped process.
    let isBack = false;
    const rescue = during(
      () => !isBack && layout.primaryOf(service.service_id) === 0,
      () => undefined,
    ).then(letGoOn);
    const again = await untilConnected(cloud, service).finally(() => (isBack = true));
    await rescue;
    expect((await again.query("select name from t where name = 'acknowledged'")).rows).toEqual([
      { name: 'acknowledged' },
    ]);
    await again.end();
    expect(layout.primaryOf(service.service_id)).toBe(0);
    await new Promise((resolve) => squatter.close(resolve));
    await untilRedundant(cloud, service, 2, 1);
  });

  /** Writes so much to the log of a primary, and not one table. */
  const fillLog = async (
    on: Installation,
    service: ServiceAccess,
    megabytes: number,
  ): Promise<void> => {
    const client = await connectTo(on, service, service.initial_password);
    for (let written = 0; written < megabytes; written += 10)
      await client.query("select pg_logical_emit_message(false, 'filler', repeat('x', 10000000))");
    await client.end();
  };

  /** Runs a statement on the primary of a service, in a session of ours. */
  const askPrimary = async <Row extends object>(
    on: Installation,
    service: ServiceAccess,
    question: string,
  ): Promise<Row[]> => {
    const paths = layoutOf(on).member(service.service_id, 0);
    const client = new Client({
      host: paths.socket,
      port: await portOf(paths),
      user: 'howdah',
      database: 'postgres',
    });
    await client.connect();
    const { rows } = await client.query<Row>(question);
    await client.end();
    return rows;
  };

  /**
   * A pair whose replica was killed, and that nobody looks after. `made`: which data it has,
   * another one once it is recreated.
   */
  const leftBehind = async (name: string) => {
    const service = await pair(name, 0);
    await untilRedundant(cloud, service, 1, 0);
    const { data } = layoutOf(cloud).member(service.service_id, 1);
    const made = await whichOf(data);
    await cloud.stop('SIGKILL');
    signal(await postmasterOf(cloud, service, 1), 'SIGKILL');
    return { service, data, made };
  };

  test('is not recreated while it catches up', { tags: 'slow' }, async () => {
    const { service, data, made } = await leftBehind('late');
    const sending = () =>
      askPrimary<{ state: string }>(cloud, service, 'select state from pg_stat_replication');
    await fillLog(cloud, service, 700);
    let up = cloud.up();
    await until('the standby catches up', async () => {
      const state = (await sending())[0]?.state;
      if (state === 'streaming') {
        // The standby was faster than this test looked: it is left behind again.
        await up;
        await cloud.stop('SIGKILL');
        signal(await postmasterOf(cloud, service, 1), 'SIGKILL');
        await fillLog(cloud, service, 700);
        up = cloud.up();
      }
      return state === 'catchup';
    });
    const letGoOn = await holdBack(service, 1);
    await up;
    // Each begins 2 s after the one before: a standby that follows nobody is recreated after 30 s.
    const before = await followerRounds();
    await until(
      'eighteen more rounds of followers',
      async () => (await followerRounds()) >= before + 18,
    );
    expect(await sending()).toEqual([{ state: 'catchup' }]);
    letGoOn();
    await untilRedundant(cloud, service, 1, 0);
    expect(await whichOf(data)).toBe(made);
  });

  test(
    'is recreated if the primary no longer has the WAL that it lacks',
    { tags: 'slow' },
    async () => {
      const { service, data, made } = await leftBehind('gone');
      // A slot that was made later, as on a member that has taken over: nothing says that the log
      // is lost.
      const slot = memberName(1);
      const drop =
        'select pg_drop_replication_slot(slot_name) from pg_replication_slots ' +
        `where slot_name = '${slot}' and not active`;
      await until(
        'the slot is dropped',
        async () => (await askPrimary(cloud, service, drop)).length > 0,
      );
      for (let n = 0; n < 2; n++) {
        await fillLog(cloud, service, 100);
        await askPrimary(cloud, service, 'checkpoint');
      }
      await askPrimary(
        cloud,
        service,
        `select pg_create_physical_replication_slot('${slot}', true)`,
      );
      await cloud.up();
      await untilExpected('member 1 has another data directory', async () =>
        expect(await whichOf(data)).not.toBe(made),
      );
      await untilRedundant(cloud, service, 1, 0);
    },
  );

  const FILES = 'copyFile services/it/members/1/data.new';
  const testInCopy = anyTest.runIf(installed && COPIES_FILES);
  testInCopy.for([
    ['of its files', `${FILES}/*`, 15],
    ['of the log', `${FILES}/pg_wal/WAL.new`, 1],
  ] as const)(
    'is copied once, also if a copy %s takes longer than the primary keeps its WAL',
    { tags: 'slow' },
    async ([, effect, nth]) => {
      const testbed = await installCrashing();
      const on = testbed.cloud;
      const service = await on.create({
        name: 'long copy',
        service_type: 'POSTGRES',
        cpu_millis: 'shared',
        memory_gbs: 'shared',
      });
      await testbed.holdAt({ [service.service_id]: 'it' }, effect, nth);
      accepted(
        await on.request('POST', `/services/${service.service_id}/setHA`, { replica_count: 1 }),
      );
      await testbed.held();
      await fillLog(on, service, 1300);
      await askPrimary(on, service, 'checkpoint');
      expect(await askPrimary(on, service, 'select wal_status from pg_replication_slots')).toEqual([
        { wal_status: 'lost' },
      ]);
      await testbed.release();
      await untilRedundant(on, service, 1, 0);
      const steps = (await on.operations(service.service_id)).flatMap(
        (operation) => operation.steps,
      );
      expect(
        steps.filter(({ detail }) => detail?.startsWith('by ') === true && detail.includes(' in ')),
      ).toHaveLength(1);
      expect(await testbed.destroy()).toEqual([]);
    },
  );

  test('delays writes, and a new password no longer than the API can wait', async () => {
    const service = await pair('slow');
    await untilRedundant(cloud, service, 1, 1);
    const letGoOn = await holdBack(service, 1);
    const password = 'not-waited-for-any-longer';
    expect(
      (await cloud.request('POST', `/services/${service.service_id}/updatePassword`, { password }))
        .status,
    ).toBe(204);
    letGoOn();
    await (await connectTo(cloud, service, password)).end();
  });

  test('keeps a failover drill from killing the primary', async () => {
    const service = await pair('no drill', 0);
    await untilRedundant(cloud, service, 1, 0);
    const letGoOn = await holdBack(service, 1);
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table t (name text)');
    await client.query(FILL);
    await client.end();
    const before = await postmasterOf(cloud, service, 0);
    accepted(
      await cloud.request('POST', `/services/${service.service_id}/drill`, { kind: 'failover' }),
    );
    await untilExpected('the drill has failed', async () =>
      expect(await newest(service, 'drill')).toMatchObject({
        status: 'failed',
        error: expect.stringMatching(
          /nothing was killed, since no standby can take over: member 1 lacks more than/,
        ),
      }),
    );
    expect(await postmasterOf(cloud, service, 0)).toBe(before);
    letGoOn();
    await untilExpected('the role of the drill is dropped', async () =>
      expect(await rolesOf(service)).not.toContain('_howdah_probe'),
    );
    await untilRedundant(cloud, service, 1, 0);
  });

  /** How many rounds have asked the primaries for their followers. */
  const followerRounds = async (): Promise<number> => {
    const metrics = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
    return Number(/^howdah_round_runs\{round="followers"\} (\d+)$/m.exec(metrics)?.[1]);
  };

  /**
   * Kills a server and takes its port. @returns what listens there: the server is down until its
   * end
   */
  const keepDown = async (paths: InstancePaths): Promise<Server> => {
    const port = await portOf(paths);
    const squatter = createServer();
    await until('the port of the server is taken', async () => {
      const server = await findServer(paths);
      if (server !== null) {
        signal(server.postmaster.pid, 'SIGKILL');
        await until('the server is gone', () => waitUntilGone(server.postmaster, 0));
      }
      return listens(squatter, port);
    });
    return squatter;
  };
});

const listens = (server: Server, port: number): Promise<boolean> =>
  new Promise((resolve) => {
    server.once('error', () => resolve(false)).once('listening', () => resolve(true));
    server.listen(port, '127.0.0.1');
  });

describe('asynchronous replicas', () => {
  /**
   * Keeps a standby from receiving while more is written than its connection holds, then kills the
   * primary.
   */
  async function killWhileBehind(service: ServiceAccess, megabytes: number): Promise<void> {
    const receiver = await backendOf(await postmasterOf(cloud, service, 1), 'walreceiver');
    signal(receiver, 'SIGSTOP');
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query(
      'create table bulk as select repeat(md5(g::text), 32) ' +
        `from generate_series(1, ${megabytes * 1000}) g`,
    );
    await client.end();
    await killPrimary(cloud, service);
    signal(receiver, 'SIGCONT');
  }

  test(
    'a replica within the lag limit takes over, and the operation says what may be lost',
    { tags: 'slow' },
    async () => {
      const service = await pair('lossy', 0);
      await untilRedundant(cloud, service, 1, 0);
      const letGoOn = await holdBack(service, 1);
      const client = await connectTo(cloud, service, service.initial_password);
      // More than the buffers of a connection hold, and less than a megabyte.
      await client.query("create table t as select repeat('x', 1000) from generate_series(1, 600)");
      await client.end();
      await killPrimary(cloud, service);
      await untilPrimary(cloud, service, 1);
      letGoOn();
      await untilExpected('the failover has succeeded', async () =>
        expect(await newest(service, 'failover')).toMatchObject({
          status: 'succeeded',
          steps: [
            { name: 'fence' },
            {
              name: 'promote',
              detail: expect.stringMatching(
                new RegExp(String.raw`^member 1: \d+ bytes of WAL may be lost, ${LSN} to ${LSN}$`),
              ),
            },
          ],
        }),
      );
      await untilRedundant(cloud, service, 1, 0);
    },
  );

  test('a replica beyond the lag limit is not promoted: nothing is lost', async () => {
    const service = await pair('behind', 0);
    await killWhileBehind(service, 20);
    await untilRedundant(cloud, service, 1, 0);
    expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(0);
    const client = await connectTo(cloud, service, service.initial_password);
    expect((await client.query('select count(*)::int as n from bulk')).rows).toEqual([
      { n: 20_000 },
    ]);
    await client.end();
    const steps =
      (await newest(service, 'failover'))?.steps ?? (await newest(service, 'repair'))?.steps ?? [];
    expect(steps.map(({ detail }) => detail).join()).toMatch(
      new RegExp(
        `nobody takes over: member 1 lacks more than 1048576 bytes of WAL, from ${LSN} on`,
      ),
    );
  });
});
