/** High availability: what dies, hangs or is moved while a load writes; what was acknowledged is there, and never do two accept writes. */
import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rename, stat, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, describe as anyDescribe, expect, test as anyTest } from 'vitest';
import { portOf } from '../src/engine/local/backup/take.ts';
import { findDaemon, findProgram } from '../src/engine/local/host/daemon.ts';
import { memberKey } from '../src/engine/local/host/layout.ts';
import { currentBoot } from '../src/engine/local/host/marker.ts';
import { createMonitor } from '../src/engine/local/postgres/monitor.ts';
import { childrenOf, signal } from '../src/lib/processes.ts';
import { memberName, waitedForOf } from '../src/engine/local/postgres/replication.ts';
import { confOf } from '../src/engine/local/topology/standbys.ts';
import { COPIES_FILES, installCrashing } from './crash.ts';
import { verificationOf } from './crash-scenes.ts';
import { connectTo, install, type Answer, type Installation } from './harness.ts';
import {
  backendOf,
  killPrimary,
  layoutOf,
  postmasterOf,
  startLoad,
  startSampler,
  untilConnected,
  untilPrimary,
  untilRedundant,
  type ServiceAccess,
} from './ha-load.ts';

const pgbouncer = (await findProgram('pgbouncer')) !== null;
// Without HAProxy there are no replicas.
const installed = (await findProgram('haproxy')) !== null;
const describe = anyDescribe.runIf(installed);
const test = anyTest.runIf(installed);

/** Which directory stands at a path. The tops of all subvolumes of btrfs have one number, each on a device of its own. */
const whichOf = async (path: string): Promise<string> => {
  const { dev, ino } = await stat(path);
  return `${dev} ${ino}`;
};

let cloud: Installation;
beforeAll(async () => {
  cloud = await install({ HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0', HOWDAH_SNAPSHOT_HOURS: '0.005' });
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

/** Failovers of every run; `npm run soak:failover` does more. */
const ROUNDS = 20;
const SEED = Number(process.env['SEED'] ?? randomInt(2 ** 31));
/** A number from 0 to below 1 that follows from the seed and what it is for. */
const chance = (what: number): number => (((SEED + what * 2_654_435_761) >>> 0) % 1000) / 1000;

const pair = (name: string, sync = 1, replicas = 1): Promise<ServiceAccess> =>
  cloud.create({
    name,
    service_type: 'POSTGRES',
    replica_count: replicas,
    sync_replica_count: sync,
  });

const accepted = ({ status, body }: Answer): void => expect(status, JSON.stringify(body)).toBe(202);

async function act(service: ServiceAccess, action: string, body?: object): Promise<void> {
  accepted(await cloud.request('POST', `/services/${service.service_id}/${action}`, body));
  await cloud.until(service.service_id, 'READY');
}

const newest = async (service: ServiceAccess, kind: string) =>
  (await cloud.operations(service.service_id)).find((operation) => operation.kind === kind);

/** Runs something under a load and a sampler, and returns what the load saw. */
async function underLoad(
  service: ServiceAccess,
  work: (load: Awaited<ReturnType<typeof startLoad>>) => Promise<void>,
  on = cloud,
) {
  const load = await startLoad(on, service);
  const sampler = startSampler(on, service);
  await load.goesOn();
  await work(load);
  await load.goesOn();
  const violations = await sampler.stop();
  const lost = await load.stop();
  return { lost, violations, acknowledged: load.acknowledged.length, refused: load.refused };
}

const NOTHING_LOST = { lost: [], violations: [] };

describe('the primary of a pair is killed', () => {
  test(
    'again and again: the other takes over, nothing acknowledged is lost, and the old one follows',
    { tags: 'slow' },
    async () => {
      const service = await pair('killed');
      expect(service.ha_replicas).toEqual({ replica_count: 1, sync_replica_count: 1 });
      const gaps: number[] = [];
      const seen = await underLoad(service, async (load) => {
        for (let round = 0; round < ROUNDS; round++) {
          await untilRedundant(cloud, service, 1, 1);
          await sleep(chance(round) * 100);
          const killedMs = performance.now();
          const before = await killPrimary(cloud, service);
          await untilPrimary(cloud, service, 1 - before);
          await load.goesOn();
          gaps.push(Math.round(load.longestGapMs(killedMs)));
        }
      });
      console.log(
        `seed ${SEED}: write gaps ${gaps.join(', ')} ms; ${seen.acknowledged} acknowledged`,
      );
      expect(seen).toMatchObject(NOTHING_LOST);
      const operation = await newest(service, 'failover');
      expect(operation).toMatchObject({ requested_by: 'howdah', status: 'succeeded' });
      expect(operation?.steps.map(({ name }) => name)).toEqual(['fence', 'promote']);
      await untilRedundant(cloud, service, 1, 1);
    },
  );

  test('a password that was changed before is the new one after', async () => {
    const service = await pair('password');
    const password = 'changed-just-before';
    expect(
      (await cloud.request('POST', `/services/${service.service_id}/updatePassword`, { password }))
        .status,
    ).toBe(204);
    await killPrimary(cloud, service);
    await untilPrimary(cloud, service, 1);
    await untilRedundant(cloud, service, 1, 1);
    await (await connectTo(cloud, service, password)).end();
  });

  test('a second time within the rest: it is restarted in place', async () => {
    const rests = await install();
    const service = await rests.create({
      name: 'rests',
      service_type: 'POSTGRES',
      replica_count: 1,
      sync_replica_count: 1,
    });
    const seen = await underLoad(
      service,
      async (load) => {
        await killPrimary(rests, service);
        await untilPrimary(rests, service, 1);
        await untilRedundant(rests, service, 1, 1);
        const killed = await postmasterOf(rests, service, 1);
        await killPrimary(rests, service);
        while ((await postmasterOf(rests, service, 1).catch(() => killed)) === killed)
          await sleep(20);
        await load.goesOn();
        expect(layoutOf(rests).primaryOf(service.service_id)).toBe(1);
      },
      rests,
    );
    expect(seen).toMatchObject(NOTHING_LOST);
    await untilRedundant(rests, service, 1, 1);
    expect(await rests.destroy()).toEqual([]);
  });
});

describe('a primary that hangs', () => {
  test('is ended before the other takes over, and not one of its writes is accepted when it is let go on', async () => {
    const service = await pair('hangs');
    const old = await connectTo(cloud, service, service.initial_password);
    await old.query('create table late (n int)');
    const late: string[] = [];
    const seen = await underLoad(service, async () => {
      const postmaster = await postmasterOf(cloud, service, 0);
      const all = [postmaster, ...(await childrenOf(postmaster))];
      for (const pid of all) signal(pid, 'SIGSTOP');
      const write = old.query('insert into late values (1)').then(
        () => late.push('accepted'),
        () => late.push('broken'),
      );
      await untilPrimary(cloud, service, 1);
      for (const pid of all) signal(pid, 'SIGCONT');
      await write;
    });
    expect(seen).toMatchObject(NOTHING_LOST);
    expect(late).toEqual(['broken']);
    const client = await connectTo(cloud, service, service.initial_password);
    expect((await client.query('select n from late')).rows).toEqual([]);
    await client.end();
    await untilRedundant(cloud, service, 1, 1);
  });
});

test('a server whose first process was stopped and goes on answers again', async () => {
  const service = await pair('paused by somebody');
  let [frozen, asked] = [true, 0];
  const monitor = createMonitor(
    () => undefined,
    async () => {
      asked += 1;
      return frozen;
    },
  );
  try {
    const paths = layoutOf(cloud).member(service.service_id, 0);
    await monitor.connect('it', paths, await portOf(paths), { everyMs: 10, deadlineMs: 50 });
    while (monitor.silentMs('it') === null) await sleep(5);
    const before = asked;
    while (asked < before + 3) await sleep(5);
    expect(monitor.silentMs('it')).not.toBeNull();
    frozen = false;
    while (monitor.silentMs('it') !== null) await sleep(5);
  } finally {
    monitor.close();
  }
});

describe('what else dies', () => {
  test('the synchronous standby: writes wait for it, and nothing fails over', async () => {
    const service = await pair('standby');
    const seen = await underLoad(service, async (load) => {
      const killed = await postmasterOf(cloud, service, 1);
      signal(killed, 'SIGKILL');
      while ((await postmasterOf(cloud, service, 1).catch(() => killed)) === killed)
        await sleep(20);
      await load.goesOn();
    });
    expect(seen).toMatchObject(NOTHING_LOST);
    expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(0);
    expect(await newest(service, 'failover')).toBeUndefined();
    await untilRedundant(cloud, service, 1, 1);
  });

  test('both at once', async () => {
    const service = await pair('both');
    const seen = await underLoad(service, async () => {
      const pids = [await postmasterOf(cloud, service, 0), await postmasterOf(cloud, service, 1)];
      for (const pid of pids) signal(pid, 'SIGKILL');
      await untilRedundant(cloud, service, 1, 1);
    });
    expect(seen).toMatchObject(NOTHING_LOST);
    await untilRedundant(cloud, service, 1, 1);
  });

  test('the gateway: it is started again, and routes to the primary, whichever member that is', async () => {
    const service = await pair('gateway');
    await act(service, 'switchover');
    const seen = await underLoad(service, async (load) => {
      const gateway = await findDaemon(layoutOf(cloud).gateway(service.service_id));
      if (gateway === null) throw new Error('no gateway');
      signal(gateway.pid, 'SIGKILL');
      while ((await findDaemon(layoutOf(cloud).gateway(service.service_id))) === null)
        await sleep(20);
      await load.goesOn();
    });
    expect(seen).toMatchObject(NOTHING_LOST);
    expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(1);
  });

  test('the primary and, some moments later, the control plane: the next one finds one writer', async () => {
    const service = await pair('plane');
    const seen = await underLoad(service, async (load) => {
      for (let round = 0; round < 4; round++) {
        await untilRedundant(cloud, service, 1, 1);
        const delayMs = chance(100 + round) * 90;
        await killPrimary(cloud, service);
        await sleep(delayMs);
        await cloud.stop('SIGKILL');
        await cloud.up();
        await load.goesOn();
      }
    });
    expect(seen, `seed ${SEED}`).toMatchObject(NOTHING_LOST);
    await untilRedundant(cloud, service, 1, 1);
  });

  test('the machine, before what a standby was made of was on the disk: it is recreated; a standby that only died is not', async () => {
    const service = await pair('power');
    const made = (await newest(service, 'create'))?.steps.map(({ name }) => name);
    expect(made).toContain('start PostgreSQL (member 0) and gateway');
    // They come with what they are for.
    expect(made).not.toContain('configure replication slots');
    expect(made).not.toContain('write configuration (member 0)');
    const { root, data } = layoutOf(cloud).member(service.service_id, 1);
    const note = join(root, 'seeded');
    expect(existsSync(note)).toBe(false);
    const isRecreatedAfter = async (boot: string): Promise<boolean> => {
      const made = await whichOf(data);
      await cloud.stop('SIGKILL');
      await writeFile(note, boot);
      signal(await postmasterOf(cloud, service, 1), 'SIGKILL');
      await cloud.up();
      await expect.poll(() => existsSync(note), { timeout: 30_000 }).toBe(false);
      await untilRedundant(cloud, service, 1, 1);
      return (await whichOf(data)) !== made;
    };
    expect(await isRecreatedAfter('the boot before')).toBe(true);
    expect(await isRecreatedAfter(await currentBoot())).toBe(false);
  });

  test('the primary while no control plane is there: the next one fails over', async () => {
    const service = await pair('alone');
    await cloud.stop('SIGKILL');
    await killPrimary(cloud, service);
    await cloud.up();
    await untilPrimary(cloud, service, 1);
    await untilRedundant(cloud, service, 1, 1);
  });
});

/** Stops what receives the log of a member, which goes on to look as if it followed. @returns lets it go on */
async function holdBack(service: ServiceAccess, n: number): Promise<() => void> {
  const receiver = await backendOf(await postmasterOf(cloud, service, n), 'walreceiver');
  signal(receiver, 'SIGSTOP');
  return () => signal(receiver, 'SIGCONT');
}

describe('a replica that is behind', () => {
  /** More than the buffers of a connection hold. */
  const FILL = "insert into t select repeat('x', 1000) from generate_series(1, 5000)";

  test('does not take over while the one that acknowledged a write is gone', async () => {
    const service = await pair('behind', 1, 2);
    await untilRedundant(cloud, service, 2, 1);
    const letGoOn = await holdBack(service, 1);
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table t (name text)');
    await client.query(FILL);
    await client.query("insert into t values ('acknowledged')");
    await client.end();
    const { layout, port } = {
      layout: layoutOf(cloud),
      port: await portOf(layoutOf(cloud).member(service.service_id, 2)),
    };
    // Gone for as long as another program has its port.
    const squatter = createServer();
    signal(await postmasterOf(cloud, service, 2), 'SIGKILL');
    while (!(await listens(squatter, port))) await killIfThere(service, 2);
    const primary = layout.member(service.service_id, 0);
    while (waitedForOf(await confOf(primary)).now.members.includes(2)) await sleep(5);
    await sleep(100);
    expect(await killPrimary(cloud, service)).toBe(0);
    // One that was chosen all the same waits for what was stopped.
    const timer = setTimeout(letGoOn, 3000);
    const again = await untilConnected(cloud, service);
    clearTimeout(timer);
    letGoOn();
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

  /** What the primary of a service says, asked by us. */
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

  /** A pair whose replica was killed, and that nobody looks after. `made`: which data it has, another one once it is recreated. */
  const leftBehind = async (name: string) => {
    const service = await pair(name, 0);
    await untilRedundant(cloud, service, 1, 0);
    const { data } = layoutOf(cloud).member(service.service_id, 1);
    const made = await whichOf(data);
    await cloud.stop('SIGKILL');
    signal(await postmasterOf(cloud, service, 1), 'SIGKILL');
    return { service, data, made };
  };

  test('and catches up for long is left to it', { tags: 'slow' }, async () => {
    const { service, data, made } = await leftBehind('late');
    const sending = () =>
      askPrimary<{ state: string }>(cloud, service, 'select state from pg_stat_replication');
    await fillLog(cloud, service, 700);
    let up = cloud.up();
    for (;;) {
      const state = (await sending())[0]?.state;
      if (state === 'catchup') break;
      if (state === 'streaming') {
        // It was faster than this test looked: it is left behind again.
        await up;
        await cloud.stop('SIGKILL');
        signal(await postmasterOf(cloud, service, 1), 'SIGKILL');
        await fillLog(cloud, service, 700);
        up = cloud.up();
      }
      await sleep(5);
    }
    const letGoOn = await holdBack(service, 1);
    await up;
    // Longer than one that follows nobody is left alone.
    await sleep(20_000);
    expect(await sending()).toEqual([{ state: 'catchup' }]);
    letGoOn();
    await untilRedundant(cloud, service, 1, 0);
    expect(await whichOf(data)).toBe(made);
  });

  test('and lacks what its primary no longer has is recreated', async () => {
    const { service, data, made } = await leftBehind('gone');
    // A slot that was made later, as on a member that has taken over: nothing says that the log is lost.
    const slot = memberName(1);
    const drop = `select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '${slot}' and not active`;
    while ((await askPrimary(cloud, service, drop)).length === 0) await sleep(20);
    for (let n = 0; n < 2; n++) {
      await fillLog(cloud, service, 100);
      await askPrimary(cloud, service, 'checkpoint');
    }
    await askPrimary(cloud, service, `select pg_create_physical_replication_slot('${slot}', true)`);
    await cloud.up();
    await expect.poll(() => whichOf(data).catch(() => made), { timeout: 120_000 }).not.toBe(made);
    await untilRedundant(cloud, service, 1, 0);
  });

  const FILES = 'copyFile services/it/members/1/data.new';
  const testInCopy = anyTest.runIf(installed && COPIES_FILES);
  testInCopy.for([
    ['of its files', `${FILES}/*`, 15],
    ['of the log', `${FILES}/pg_wal/WAL.new`, 1],
  ] as const)(
    'after a copy %s that took longer than the primary keeps its log for is not made once more',
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

  test('holds up writes, and a new password no longer than the API can wait', async () => {
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

  test('is not what a drill kills the primary for', async () => {
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
    await expect
      .poll(() => newest(service, 'drill'), { timeout: 60_000 })
      .toMatchObject({
        status: 'failed',
        error: expect.stringMatching(
          /nothing was killed, for nobody could take over: member 1 lacks more than/,
        ),
      });
    expect(await postmasterOf(cloud, service, 0)).toBe(before);
    letGoOn();
    await expect.poll(() => rolesOf(service), { timeout: 60_000 }).not.toContain('_howdah_probe');
    await untilRedundant(cloud, service, 1, 0);
  });

  const killIfThere = async (service: ServiceAccess, n: number): Promise<void> => {
    const there = await postmasterOf(cloud, service, n).catch(() => null);
    if (there !== null) signal(there, 'SIGKILL');
    await sleep(1);
  };
});

const listens = (server: Server, port: number): Promise<boolean> =>
  new Promise((resolve) => {
    server.once('error', () => resolve(false)).once('listening', () => resolve(true));
    server.listen(port, '127.0.0.1');
  });

/** The roles that a service's primary knows. */
async function rolesOf(service: ServiceAccess): Promise<string[]> {
  const client = await untilConnected(cloud, service);
  try {
    return (
      await client.query<{ name: string }>('select rolname as name from pg_roles where rolcanlogin')
    ).rows.map(({ name }) => name);
  } finally {
    await client.end();
  }
}

describe('asynchronous replicas', () => {
  /** Keeps a standby from receiving while more is written than its connection holds, then kills the primary. */
  async function killWhileBehind(service: ServiceAccess, megabytes: number): Promise<void> {
    const receiver = await backendOf(await postmasterOf(cloud, service, 1), 'walreceiver');
    signal(receiver, 'SIGSTOP');
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query(
      `create table bulk as select repeat(md5(g::text), 32) from generate_series(1, ${megabytes * 1000}) g`,
    );
    await client.end();
    await killPrimary(cloud, service);
    signal(receiver, 'SIGCONT');
  }

  test('one that lacks less takes over, and the operation says what may be lost', async () => {
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
    await expect
      .poll(() => newest(service, 'failover'), { timeout: 60_000 })
      .toMatchObject({
        status: 'succeeded',
        steps: [
          { name: 'fence' },
          {
            name: 'promote',
            detail: expect.stringMatching(
              /^member 1: \d+ bytes of the log may be lost, [0-9A-F]+\/[0-9A-F]+ to [0-9A-F]+\/[0-9A-F]+$/,
            ),
          },
        ],
      });
    await untilRedundant(cloud, service, 1, 0);
  });

  test('one that lacks more than the limit is not promoted: the primary is restarted, and nothing is lost', async () => {
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
      /nobody takes over: member 1 lacks more than 1048576 bytes of the log, from [0-9A-F]+\/[0-9A-F]+ on/,
    );
  });
});

describe('moves', () => {
  test('a switchover loses nothing, even with asynchronous replication, and new connections wait for its end', async () => {
    const service = await pair('swapped', 0);
    const seen = await underLoad(service, async (load) => {
      for (let round = 0; round < 3; round++) {
        const begunMs = performance.now();
        await act(service, 'switchover');
        await load.goesOn();
        console.log(`switchover: write gap ${Math.round(load.longestGapMs(begunMs))} ms`);
      }
    });
    expect(seen).toMatchObject({ ...NOTHING_LOST, refused: [] });
    expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(1);
    // As it is: not recreated.
    const made = (await newest(service, 'switchover'))?.steps.map(
      ({ name, detail }) => `${name}: ${detail}`,
    );
    expect(made?.filter((step) => step.startsWith('clone'))).toEqual([]);
  });

  test(
    'counts change under load; only the first replica costs sessions, once',
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

  test('a new size: the standbys first, then they are swapped; back in place', async () => {
    const service = await pair('sizes', 1, 2);
    const seen = await underLoad(service, async () => {
      await act(service, 'resize', { cpu_millis: '1000' });
      await act(service, 'resize', { cpu_millis: '500' });
    });
    expect(seen).toMatchObject({ ...NOTHING_LOST, refused: [] });
    await untilRedundant(cloud, service, 2, 1);
  });

  test('stopped and started, deleted and restored: with its replicas, on the same port', async () => {
    const service = await pair('paused', 1, 2);
    await act(service, 'switchover');
    accepted(await cloud.request('POST', `/services/${service.service_id}/stop`));
    await cloud.until(service.service_id, 'PAUSED');
    expect(await cloud.audit()).toEqual([]);
    await act(service, 'start');
    await untilRedundant(cloud, service, 2, 1);
    expect((await cloud.request('DELETE', `/services/${service.service_id}`)).status).toBe(202);
    while ((await cloud.request('GET', `/services/${service.service_id}`)).status !== 404)
      await sleep(20);
    await act(service, 'restore');
    await untilRedundant(cloud, service, 2, 1);
    await (await connectTo(cloud, service, service.initial_password)).end();
  });
});

describe('a drill', () => {
  test.each(['switchover', 'failover'])(
    '%s: says for how long writes were not possible, and that none was lost',
    async (kind) => {
      const service = await pair(`drill ${kind}`);
      await act(service, 'drill', { kind });
      expect(
        (await newest(service, 'drill'))?.steps.find(({ name }) => name === 'drill')?.detail,
      ).toMatch(/^write gap \d+ ms; 0 of \d+ acknowledged probes lost$/);
      expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(1);
      const client = await connectTo(cloud, service, service.initial_password);
      const left = await client.query(
        "select (select count(*) from pg_namespace where nspname = '_howdah') + (select count(*) from pg_roles where rolname = '_howdah_probe' and rolcanlogin) as n",
      );
      expect(left.rows).toEqual([{ n: '0' }]);
      await client.end();
    },
  );

  test('that is interrupted has failed, and leaves nothing behind', { tags: 'slow' }, async () => {
    const service = await pair('interrupted');
    await untilRedundant(cloud, service, 1, 1);
    accepted(
      await cloud.request('POST', `/services/${service.service_id}/drill`, { kind: 'switchover' }),
    );
    while (!(await rolesOf(service)).includes('_howdah_probe')) await sleep(5);
    await cloud.stop('SIGKILL');
    await cloud.up();
    await expect
      .poll(() => newest(service, 'drill'), { timeout: 60_000 })
      .toMatchObject({ status: 'failed', error: expect.stringContaining('interrupted') });
    await expect.poll(() => rolesOf(service), { timeout: 60_000 }).not.toContain('_howdah_probe');
    await untilRedundant(cloud, service, 1, 1);
  });

  test('of a PROD service kills only with its name', { tags: 'slow' }, async () => {
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

describe('a failover while something else is under way', () => {
  /** Kills the primary some moments after a change was asked for, and waits until all is as it was asked for. */
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
      await sleep(chance(what) * 600);
      await killPrimary(cloud, service);
      await untilRedundant(cloud, service, replicas, sync);
    });
    expect(seen, `seed ${SEED}`).toMatchObject(NOTHING_LOST);
  };

  test('more replicas', { tags: 'slow' }, async () => {
    const service = await pair('growing');
    await killedDuring(200, service, 'setHA', { replica_count: 2 }, 2, 1);
  });

  test('a new size', { tags: 'slow' }, async () => {
    const service = await pair('resizing');
    await killedDuring(201, service, 'resize', { cpu_millis: '1000' }, 1, 1);
    expect((await cloud.get(service.service_id)).resources[0]?.spec.cpu_millis).toBe(1000);
  });

  test('a switchover', { tags: 'slow' }, async () => {
    const service = await pair('swapping', 1, 2);
    await killedDuring(202, service, 'switchover', {}, 2, 1);
  });

  test('a read replica set, which follows the new primary', async () => {
    const service = await pair('followed');
    const seen = await underLoad(service, async () => {
      const { status, body } = await cloud.request(
        'POST',
        `/services/${service.service_id}/replicaSets`,
        {
          name: 'readers',
          nodes: 1,
          cpu_millis: 250,
          memory_gbs: 1,
        },
      );
      expect(status, JSON.stringify(body)).toBe(202);
      await sleep(chance(204) * 600);
      await killPrimary(cloud, service);
      await untilRedundant(cloud, service, 1, 1);
      const sets = async () => (await cloud.get(service.service_id)).read_replica_sets;
      await expect.poll(sets, { timeout: 60_000 }).toMatchObject([{ status: 'active' }]);
      const [set] = await sets();
      if (set === undefined) throw new Error('no set');
      const writer = await untilConnected(cloud, service);
      await writer.query('create table seen_by_readers as select 1 as n');
      await writer.end();
      const reader = await connectTo(cloud, set, service.initial_password);
      await expect
        .poll(
          () =>
            reader
              .query("select to_regclass('seen_by_readers') is not null as there")
              .then(({ rows }) => rows),
          {
            timeout: 60_000,
          },
        )
        .toEqual([{ there: true }]);
      await reader.end();
    });
    expect(seen, `seed ${SEED}`).toMatchObject(NOTHING_LOST);
  });

  test('a verification of its backup, which says nothing false', { tags: 'slow' }, async () => {
    const service = await pair('verified');
    const verifying = verificationOf(cloud, service);
    await sleep(chance(205) * 2000);
    await killPrimary(cloud, service);
    const { status, error } = await verifying;
    if (status !== 'succeeded')
      expect(error).toContain('ceased to be the primary meanwhile: ask for it again');
    await untilRedundant(cloud, service, 1, 1);
    expect(JSON.stringify((await cloud.get(service.service_id)).warnings ?? [])).not.toContain(
      'VERIFICATION',
    );
    expect(await verificationOf(cloud, service)).toEqual({ status: 'succeeded', error: undefined });
  });

  test('a fork, which is whole all the same', { tags: 'slow' }, async () => {
    const service = await pair('forking');
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query('create table bulk as select g from generate_series(1, 100000) g');
    await client.end();
    const answer = await cloud.request('POST', `/services/${service.service_id}/forkService`, {
      fork_strategy: 'NOW',
    });
    accepted(answer);
    await sleep(chance(203) * 300);
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
  test('forks of now and of a point in time before and after it, and a verification', async () => {
    const service = await pair('backed up');
    const client = await connectTo(cloud, service, service.initial_password);
    await client.query("create table t (name text); insert into t values ('before')");
    const { rows } = await client.query<{ now: string }>(
      `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
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
        `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
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
      (await cloud.request('GET', `/services/${service.service_id}/backups`)).body,
    ).toMatchObject({ problem: null });
    expect(await verificationOf(cloud, service)).toEqual({ status: 'succeeded', error: undefined });
    // With the primary of now, which is not the first member any more.
    const { checks } = Object(
      (await cloud.request('GET', `/services/${service.service_id}/backups`)).body,
    ).last_verification;
    expect(checks).toContainEqual({
      name: 'compare catalogs',
      succeeded: true,
      detail: expect.stringMatching(/^\d+ rows, the same as in the service$/),
    });
  });
});

test('the audit tells of one that would accept writes and is not the primary', async () => {
  const service = await pair('two heads');
  await untilRedundant(cloud, service, 1, 1);
  // The metadata database go on, and nobody repairs it.
  await cloud.stop('SIGKILL');
  const signalFile = join(layoutOf(cloud).member(service.service_id, 1).data, 'standby.signal');
  await rename(signalFile, `${signalFile}.away`);
  const [first, second] = [0, 1].map((n) => memberKey(service.service_id, n));
  expect(await cloud.audit()).toContain(
    `server ${second} accepts writes, where only the primary, ${first}, may`,
  );
  await rename(`${signalFile}.away`, signalFile);
  expect((await cloud.audit()).filter((text) => text.includes('accepts writes'))).toEqual([]);
  await cloud.up();
});

test('what is refused says why', async () => {
  const service = await cloud.create({ name: 'refused', service_type: 'POSTGRES' });
  const refused = async (action: string, body: object | undefined, text: string): Promise<void> => {
    const answer = await cloud.request('POST', `/services/${service.service_id}/${action}`, body);
    expect({ status: answer.status, body: answer.body }).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(text) },
    });
  };
  await refused(
    'setHA',
    { replica_count: 1, sync_replica_count: 2 },
    'sync_replica_count: found 2 of 1 replicas',
  );
  await refused('setHA', { replica_count: 3 }, 'replica_count');
  await refused('setHA', {}, 'both missing');
  await refused('switchover', undefined, 'without replicas');
  await refused('drill', { kind: 'switchover' }, 'without replicas');
  await refused('drill', { kind: 'fire' }, 'kind');
  const same = await cloud.request('POST', `/services/${service.service_id}/setHA`, {
    replica_count: 0,
  });
  expect(same.status).toBe(202);
  expect(same.headers.get('Operation-Id')).toBeNull();
});

describe('planted defects are noticed', () => {
  const planted = (plant: string): Promise<Installation> =>
    install({
      HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0',
      PLANT: plant,
      NODE_OPTIONS: `--import ${fileURLToPath(new URL('planted.mjs', import.meta.url))}`,
    });

  test('no fence: two accept writes', async () => {
    const broken = await planted('no-fence');
    const service = await broken.create({
      name: 'planted',
      service_type: 'POSTGRES',
      replica_count: 1,
      sync_replica_count: 0,
    });
    const sampler = startSampler(broken, service);
    const postmaster = await postmasterOf(broken, service, 0);
    while (sampler.samples() < 5) await sleep(20);
    signal(postmaster, 'SIGSTOP');
    while (layoutOf(broken).primaryOf(service.service_id) === 0) await sleep(20);
    signal(postmaster, 'SIGCONT');
    while (sampler.violations.length === 0) await sleep(20);
    expect(await sampler.stop()).not.toEqual([]);
    await broken.destroy();
  });

  test.each(['wrong-standby', 'no-check'])('%s: what was acknowledged is lost', async (plant) => {
    const broken = await planted(plant);
    const service = await broken.create({
      name: 'planted',
      service_type: 'POSTGRES',
      replica_count: 2,
      sync_replica_count: 1,
    });
    // Which of the two is asked first does not matter: the one that lags is the one that a wrong choice takes.
    const behind = plant === 'no-check' ? 1 : 2;
    const receiver = await backendOf(await postmasterOf(broken, service, behind), 'walreceiver');
    signal(receiver, 'SIGSTOP');
    const client = await connectTo(broken, service, service.initial_password);
    await client.query(
      'create table bulk as select repeat(md5(g::text), 32) from generate_series(1, 20000) g',
    );
    await client.end();
    await killPrimary(broken, service);
    signal(receiver, 'SIGCONT');
    while (layoutOf(broken).primaryOf(service.service_id) === 0) await sleep(20);
    await broken.until(service.service_id, 'READY');
    const reader = await connectTo(broken, service, service.initial_password);
    expect((await reader.query("select to_regclass('bulk') as bulk")).rows).toEqual([
      { bulk: null },
    ]);
    await reader.end();
    await broken.destroy();
  });
});
