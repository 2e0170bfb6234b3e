/**
 * High availability: a primary, a standby, a gateway or the control plane dies or hangs while a
 * load writes. Every acknowledged write is kept, and two instances never accept writes at once.
 */
import { existsSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { portOf } from '../test-repositories/probe.ts';
import { connectTo, install, preload, type Installation } from './harness.ts';
import {
  backendOf,
  killPrimary,
  layoutOf,
  postmasterOf,
  startSampler,
  untilPrimary,
  untilRedundant,
} from './ha-load.ts';
import {
  describe,
  test,
  whichOf,
  cloud,
  SEED,
  chance,
  pair,
  act,
  newest,
  underLoad,
  NOTHING_LOST,
  setUp,
  tearDown,
} from './ha-cloud.ts';
import {
  childrenOf,
  createServerMonitor,
  currentBoot,
  findDaemon,
  memberKey,
  signal,
} from './probe.ts';
import { atMoment, until, untilExpected } from './until.ts';

beforeAll(() => setUp());
afterEach(() => cloud.tidy());
afterAll(tearDown);

/** Failovers of every run; `npm run soak:failover` does more. */
const ROUNDS = 20;

describe('the primary of a pair is killed', () => {
  test(
    'again and again: the standby takes over without loss, the old primary follows',
    { tags: 'slow' },
    async () => {
      const service = await pair('killed');
      expect(service.ha_replicas).toEqual({ replica_count: 1, sync_replica_count: 1 });
      const gaps: number[] = [];
      const seen = await underLoad(service, async (load) => {
        for (let round = 0; round < ROUNDS; round++) {
          await untilRedundant(cloud, service, 1, 1);
          await atMoment(chance(round) * 100);
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

  test('a password that was changed before the failover is valid after it', async () => {
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

  test(
    'a second death within the cooldown restarts the primary in place',
    { tags: 'slow' },
    async () => {
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
          await until(
            'the primary runs again',
            async () => (await postmasterOf(rests, service, 1)) !== killed,
          );
          await load.goesOn();
          expect(layoutOf(rests).primaryOf(service.service_id)).toBe(1);
        },
        rests,
      );
      expect(seen).toMatchObject(NOTHING_LOST);
      await untilRedundant(rests, service, 1, 1);
      expect(await rests.destroy()).toEqual([]);
    },
  );
});

describe('a primary that hangs', () => {
  test('is ended before the standby takes over, and accepts no later write', async () => {
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
  const monitor = createServerMonitor(
    () => undefined,
    async () => {
      asked += 1;
      return frozen;
    },
  );
  try {
    const paths = layoutOf(cloud).member(service.service_id, 0);
    await monitor.connect('it', paths, await portOf(paths), { everyMs: 10, deadlineMs: 50 });
    await until('an answer is missing', () => monitor.silentMs('it') !== null);
    const before = asked;
    await until('the process was examined three more times', () => asked >= before + 3);
    expect(monitor.silentMs('it')).not.toBeNull();
    frozen = false;
    await until('the server answers again', () => monitor.silentMs('it') === null);
  } finally {
    monitor.close();
  }
});

describe('another process dies', () => {
  test('the synchronous standby: writes wait for it, and nothing fails over', async () => {
    const service = await pair('standby');
    const seen = await underLoad(service, async (load) => {
      const killed = await postmasterOf(cloud, service, 1);
      signal(killed, 'SIGKILL');
      await until(
        'the standby runs again',
        async () => (await postmasterOf(cloud, service, 1)) !== killed,
      );
      await load.goesOn();
    });
    expect(seen).toMatchObject(NOTHING_LOST);
    expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(0);
    expect(await newest(service, 'failover')).toBeUndefined();
    await untilRedundant(cloud, service, 1, 1);
  });

  test('primary and standby at once: no acknowledged write is lost', async () => {
    const service = await pair('both');
    const seen = await underLoad(service, async () => {
      const pids = [await postmasterOf(cloud, service, 0), await postmasterOf(cloud, service, 1)];
      for (const pid of pids) signal(pid, 'SIGKILL');
      await untilRedundant(cloud, service, 1, 1);
    });
    expect(seen).toMatchObject(NOTHING_LOST);
    await untilRedundant(cloud, service, 1, 1);
  });

  test('the gateway: it is started again and routes to the primary', async () => {
    const service = await pair('gateway');
    await act(service, 'switchover');
    const seen = await underLoad(service, async (load) => {
      const gateway = await findDaemon(layoutOf(cloud).gateway(service.service_id));
      if (gateway === null) throw new Error('no gateway');
      signal(gateway.pid, 'SIGKILL');
      await until('the gateway runs again', () =>
        findDaemon(layoutOf(cloud).gateway(service.service_id)),
      );
      await load.goesOn();
    });
    expect(seen).toMatchObject(NOTHING_LOST);
    expect(layoutOf(cloud).primaryOf(service.service_id)).toBe(1);
  });

  test(
    'the primary and then the control plane: the next control plane finds one writer',
    { tags: 'slow' },
    async () => {
      const service = await pair('plane');
      const seen = await underLoad(service, async (load) => {
        for (let round = 0; round < 4; round++) {
          await untilRedundant(cloud, service, 1, 1);
          const delayMs = chance(100 + round) * 90;
          await killPrimary(cloud, service);
          await atMoment(delayMs);
          await cloud.stop('SIGKILL');
          await cloud.up();
          await load.goesOn();
        }
      });
      expect(seen, `seed ${SEED}`).toMatchObject(NOTHING_LOST);
      await untilRedundant(cloud, service, 1, 1);
    },
  );

  test(
    'the machine, before a standby was on the disk: it is recreated; a dead one not',
    { tags: 'slow' },
    async () => {
      const service = await pair('power');
      const made = (await newest(service, 'create'))?.steps.map(({ name }) => name);
      expect(made).toContain('start PostgreSQL (member 0) and gateway');
      // Slots and files come with what they are for.
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
        await untilExpected('the note of the seeding is removed', () =>
          expect(existsSync(note)).toBe(false),
        );
        await untilRedundant(cloud, service, 1, 1);
        return (await whichOf(data)) !== made;
      };
      expect(await isRecreatedAfter('the boot before')).toBe(true);
      expect(await isRecreatedAfter(await currentBoot())).toBe(false);
    },
  );

  test('the primary while no control plane runs: the next control plane fails over', async () => {
    const service = await pair('alone');
    await cloud.stop('SIGKILL');
    await killPrimary(cloud, service);
    await cloud.up();
    await untilPrimary(cloud, service, 1);
    await untilRedundant(cloud, service, 1, 1);
  });
});

test('the integrity check finds a second writer', async () => {
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

test('a refused call says why', async () => {
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

// Each has an installation of its own, and waits much of the time.
describe.concurrent('planted defects are noticed', () => {
  const planted = (plant: string): Promise<Installation> =>
    install({
      HOWDAH_FAILOVER_COOLDOWN_SECONDS: '0',
      PLANT: plant,
      ...preload('planted.mjs'),
    });

  test('without fencing two instances accept writes', { tags: 'slow' }, async () => {
    const broken = await planted('no-fence');
    const service = await broken.create({
      name: 'planted',
      service_type: 'POSTGRES',
      replica_count: 1,
      sync_replica_count: 0,
    });
    const sampler = startSampler(broken, service);
    const postmaster = await postmasterOf(broken, service, 0);
    await until('the sampler has five samples', () => sampler.samples() >= 5);
    signal(postmaster, 'SIGSTOP');
    await untilPrimary(broken, service, 1);
    signal(postmaster, 'SIGCONT');
    await until('the sampler sees two writers', () => sampler.violations.length > 0);
    expect(await sampler.stop()).not.toEqual([]);
    await broken.destroy();
  });

  test.each(['wrong-standby', 'no-check'])(
    '%s: an acknowledged write is lost',
    { tags: 'slow' },
    async (plant) => {
      const broken = await planted(plant);
      const service = await broken.create({
        name: 'planted',
        service_type: 'POSTGRES',
        replica_count: 2,
        sync_replica_count: 1,
      });
      // Which of the two is asked first does not matter: the one that lags is the one that a wrong
      // choice takes.
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
      await until(
        'another member is the primary',
        () => layoutOf(broken).primaryOf(service.service_id) !== 0,
      );
      await broken.until(service.service_id, 'READY');
      const reader = await connectTo(broken, service, service.initial_password);
      expect((await reader.query("select to_regclass('bulk') as bulk")).rows).toEqual([
        { bulk: null },
      ]);
      await reader.end();
      await broken.destroy();
    },
  );
});
