/** Read replica sets: what becomes of one when something dies, lags or accepts writes. */
import {
  afterAll,
  afterEach,
  beforeAll,
  describe as anyDescribe,
  expect,
  test as anyTest,
} from 'vitest';
import { mkdir, rm, rmdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { type Installation } from './harness.ts';
import {
  backendOf,
  killPrimary,
  layoutOf,
  postmasterOf,
  untilPrimary,
  untilRedundant,
  type ServiceAccess,
} from './ha-load.ts';
import { listens, untilHeld } from './ports.ts';
import { openMetadata } from './metadata.ts';
import {
  childrenOf,
  findDaemon,
  findProcess,
  findProgram,
  memberKey,
  nodeName,
  signal,
} from './probe.ts';
import {
  installForSets,
  accepted,
  pathOf,
  setsOf,
  untilSet,
  asked,
  createSet,
  read,
  write,
  once,
  portsOf,
  nodePaths,
  nodeOf,
  untilGone,
  untilServing,
  untilShown,
  nodesOf,
  startReaders,
  withTable,
  type Following,
  untilReplaced,
  untilStopped,
  promoteBehind,
  routesToWriter,
} from './sets.ts';
import { atMoment, until, untilExpected } from './until.ts';
// Without HAProxy there are no sets.
const installed = (await findProgram('haproxy')) !== null;
const describe = anyDescribe.runIf(installed);
const test = anyTest.runIf(installed);

let cloud: Installation;
beforeAll(async () => void (cloud = await installForSets()));
afterEach(() => cloud.tidy());
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

describe('a process dies', () => {
  test('a node: the others serve reads, and it is started again', async () => {
    const service = await withTable('node');
    const set = await createSet(service, 2);
    await untilShown(set, 1);
    for (const name of ['SIGKILL', 'SIGSTOP'] as const) {
      const pid = await nodeOf(set, 1);
      if (name === 'SIGSTOP') for (const child of await childrenOf(pid)) signal(child, name);
      signal(pid, name);
      const readers = startReaders(set, 1);
      await untilReplaced(set, pid);
      await untilServing(set, [1, 2]);
      await readers.more(5);
      const { refused } = await readers.stop();
      // A session that was on its way to the node ends with it.
      expect(refused.length, refused.join()).toBeLessThanOrEqual(1);
    }
    expect((await setsOf(service))[0]?.status).toBe('active');
  });

  test('all nodes at once: new connections wait', { tags: 'slow' }, async () => {
    const service = await withTable('all');
    const set = await createSet(service, 2);
    await untilShown(set, 1);
    const pids = await Promise.all([1, 2].map((n) => nodeOf(set, n)));
    const ports = await portsOf(set);
    for (const pid of pids) signal(pid, 'SIGKILL');
    // The port accepts connections until the last process of the server has ended; such connections
    // are lost.
    for (const port of ports)
      await until(`nothing listens on port ${port}`, async () => !(await listens(port)));
    // A connection is cut off with a node that is found dead, which may be twice. A gateway that
    // let none wait would refuse hundreds in the time that a node needs to start.
    let [rows, cut]: [unknown, number] = [null, 0];
    while (rows === null && cut <= 10 * pids.length)
      rows = await once(read(set), 'select n from t').catch(() => (cut++, null));
    expect(rows).toEqual([{ n: 1 }]);
    await untilServing(set, [1, 2]);
    await untilSet(set, 'active');
  });

  test('the gateway, killed or stopped by a signal: it is started again', async () => {
    const service = await withTable('gateway');
    const set = await createSet(service, 1);
    await untilShown(set, 1);
    for (const name of ['SIGKILL', 'SIGSTOP'] as const) {
      const gateway = await findDaemon(layoutOf(cloud).gateway(set.id));
      if (gateway === null) throw new Error('no gateway');
      signal(gateway.pid, name);
      await untilExpected('the gateway is replaced', async () =>
        expect((await findDaemon(layoutOf(cloud).gateway(set.id)))?.pid).not.toBe(gateway.pid),
      );
      await untilExpected('the set answers', async () =>
        expect(await once(read(set), 'select n from t').catch(() => [])).toEqual([{ n: 1 }]),
      );
    }
    await untilSet(set, 'active');
  });

  test(
    'the control plane: sessions stay, new ones are served, dead nodes start again',
    { tags: 'slow' },
    async () => {
      const service = await withTable('plane');
      const set = await createSet(service, 2);
      await untilShown(set, 1);
      const session = await read(set);
      const gateway = await findDaemon(layoutOf(cloud).gateway(set.id));
      await cloud.stop('SIGKILL');
      expect((await session.query('select n from t')).rows).toEqual([{ n: 1 }]);
      const pid = await nodeOf(set, 1);
      signal(pid, 'SIGKILL');
      await until('the node is gone', async () => (await findProcess(pid)) === null);
      // The one that is left answers, whichever is asked first.
      for (let attempt = 0; attempt < 6; attempt++)
        expect(await once(read(set), 'select n from t')).toEqual([{ n: 1 }]);
      await cloud.up();
      await untilServing(set, [1, 2]);
      expect(await findDaemon(layoutOf(cloud).gateway(set.id))).toMatchObject({
        pid: gateway?.pid,
      });
      await session.end().catch(() => undefined);
      await untilSet(set, 'active');
    },
  );

  test(
    'the control plane during the create of a set: the set is completed',
    { tags: 'slow' },
    async () => {
      const service = await withTable('created twice');
      for (const delayMs of [50, 300]) {
        const set = await asked(service, 2);
        await atMoment(delayMs);
        await cloud.stop('SIGKILL');
        await cloud.up();
        await untilSet(set, 'active');
        await untilShown(set, 1);
      }
    },
  );

  test(
    'the primary of a service with replicas: nodes follow the new primary, also after a switchover',
    { tags: 'slow' },
    async () => {
      const service = await withTable('failover', { replica_count: 1, sync_replica_count: 1 });
      const set = await createSet(service, 2);
      await untilShown(set, 1);
      const made = await Promise.all([1, 2].map((n) => nodeOf(set, n)));
      const readers = startReaders(set, 1);
      await killPrimary(cloud, service);
      await untilPrimary(cloud, service, 1);
      await untilRedundantBeside(service, 2);
      await once(write(service), 'insert into t values (2)');
      await untilShown(set, 2);
      accepted(await cloud.request('POST', `/services/${service.service_id}/switchover`));
      await cloud.until(service.service_id, 'READY');
      await once(write(service), 'insert into t values (3)');
      await untilShown(set, 3);
      await untilServing(set, [1, 2]);
      expect(await readers.stop()).toMatchObject({ refused: [] });
      // As they were: not one was recreated, or restarted.
      expect(await Promise.all([1, 2].map((n) => nodeOf(set, n)))).toEqual(made);
      await untilRedundantBeside(service, 2);
      const client = await write(service);
      const { rows } = await client.query<{ slot_name: string }>(
        'select slot_name from pg_replication_slots order by 1',
      );
      await client.end();
      expect(rows.map(({ slot_name }) => slot_name)).toEqual([
        'member_1',
        `node_${set.id}_1`,
        `node_${set.id}_2`,
      ]);
    },
  );

  test('no WAL is kept for a set that is deleted while its service sends to it', async () => {
    const service = await withTable('sends on');
    const set = await createSet(service, 1);
    await untilShown(set, 1);
    const sender = await backendOf(await postmasterOf(cloud, service, 0), 'walsender');
    signal(sender, 'SIGSTOP');
    expect((await cloud.request('DELETE', pathOf(set))).status).toBe(202);
    await untilStopped(set);
    await untilTriedTwice(set);
    signal(sender, 'SIGCONT');
    await untilGone(set);
    expect(await once(write(service), 'select slot_name from pg_replication_slots')).toEqual([]);
  });

  test(
    'the primary of a service without replicas: nodes serve reads meanwhile',
    { tags: 'slow' },
    async () => {
      const service = await withTable('alone');
      const set = await createSet(service, 1);
      await untilShown(set, 1);
      const readers = startReaders(set, 1);
      await killPrimary(cloud, service);
      await untilExpected('a repair of the service begins', async () =>
        expect((await cloud.operations(service.service_id))[0]?.kind).toBe('repair'),
      );
      await cloud.until(service.service_id, 'READY');
      await once(write(service), 'insert into t values (2)');
      await untilShown(set, 2);
      expect(await readers.stop()).toMatchObject({ refused: [] });
    },
  );
});

/** Waits until two more attempts to remove the rest of a set were made, or it is gone. */
async function untilTriedTwice({ id }: Following): Promise<void> {
  const { db, close } = await openMetadata(cloud.home);
  const row = db.selectFrom('services').select('due_at').where('id', '=', id);
  // Each attempt sets the time of the next one.
  const times = new Set<number>();
  await until('the set was tried to be removed twice', async () => {
    const found = await row.executeTakeFirst();
    if (found?.due_at != null) times.add(found.due_at.getTime());
    return found === undefined || times.size > 2;
  });
  await close();
}

/** Waits until a pair is whole, with so many nodes that follow it too. */
const untilRedundantBeside = async (service: ServiceAccess, nodes: number): Promise<void> =>
  untilRedundant(cloud, service, 1, 1, nodes);

describe('a node that accepts writes', () => {
  test('is ended and recreated; after that the endpoint routes to no writer', async () => {
    const service = await withTable('promoted');
    const set = await createSet(service, 1);
    await untilShown(set, 1);
    const before = await nodeOf(set, 1);
    await promoteBehind(set, cloud);
    await untilReplaced(set, before);
    await untilServing(set, [1]);
    for (let attempt = 0; attempt < 20; attempt++)
      expect(await routesToWriter(set, cloud)).toBe(false);
    await once(write(service), 'insert into t values (2)');
    await untilShown(set, 2);
    // And one whose files were changed while nothing ran is not even started.
    await cloud.stop('SIGTERM');
    const pid = await nodeOf(set, 1);
    signal(pid, 'SIGKILL');
    await until('the node is gone', async () => (await findProcess(pid)) === null);
    await rm(`${nodePaths(set, 1).data}/standby.signal`);
    await cloud.up();
    await untilServing(set, [1]);
    for (let attempt = 0; attempt < 20; attempt++)
      expect(await routesToWriter(set, cloud)).toBe(false);
    await untilShown(set, 2);
  });
});

test(
  'the integrity check finds a node or gateway that is missing, and one that must not run',
  { tags: 'slow' },
  async () => {
    const service = await withTable('audited');
    const set = await createSet(service, 1);
    expect(await cloud.audit()).toEqual([]);
    await cloud.stop('SIGKILL');
    const gateway = await findDaemon(layoutOf(cloud).gateway(set.id));
    if (gateway === null) throw new Error('no gateway');
    signal(gateway.pid, 'SIGKILL');
    signal(await nodeOf(set, 1), 'SIGKILL');
    await untilStopped(set);
    const findGateway = () => findDaemon(layoutOf(cloud).gateway(set.id));
    await until('the gateway is gone', async () => (await findGateway()) === null);
    expect(await cloud.audit()).toEqual(
      expect.arrayContaining([
        `read replica set ${set.id} is READY and 0 of its gateway run`,
        `server ${memberKey(set.id, 1)} of read replica set ${set.id} does not run`,
        `service ${set.id} is READY and nothing listens on its port ${set.endpoint.port}`,
      ]),
    );
    const { db, close } = await openMetadata(cloud.home);
    await db
      .updateTable('services')
      .set({ read_replica_sets: '[]' })
      .where('id', '=', service.service_id)
      .execute();
    expect(await cloud.audit()).toContain(
      `service ${service.service_id} shows other read replica sets than it has`,
    );
    const slot = join(
      layoutOf(cloud).member(service.service_id, 0).data,
      'pg_replslot',
      nodeName(set.id, 9),
    );
    await mkdir(slot);
    expect(await cloud.audit()).toContain(
      `server ${service.service_id} has a replication slot for ${nodeName(set.id, 9)}, ` +
        'which does not follow it',
    );
    await rmdir(slot);
    await cloud.up();
    await close();
    await untilServing(set, [1]);
    await untilExpected('the integrity check finds nothing', async () =>
      expect(await cloud.audit()).toEqual([]),
    );
  },
);

test('a missing replica is a warning of its service', async () => {
  const service = await withTable('warned');
  const set = await createSet(service, 1);
  const holder = createServer();
  const [node] = await nodesOf(set);
  await cloud.stop('SIGTERM');
  signal(await nodeOf(set, 1), 'SIGKILL');
  await untilStopped(set);
  await untilHeld(holder, node?.port.port ?? 0);
  await cloud.up();
  await untilExpected('the service warns of its missing node', async () =>
    expect((await cloud.get(service.service_id)).warnings ?? []).toEqual([
      {
        code: 'REPLICA_MISSING',
        message: expect.stringContaining(`node 1 of read replica set ${set.id}`),
      },
    ]),
  );
  await untilSet(set, 'error');
  await new Promise((resolve) => holder.close(resolve));
  await untilSet(set, 'active');
  await untilExpected('the service has no warning', async () =>
    expect((await cloud.get(service.service_id)).warnings ?? []).toEqual([]),
  );
});
