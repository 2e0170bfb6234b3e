/** Read replica sets: changes of size, of their service and of nodes that lag; poolers. */
import type { Client } from 'pg';
import {
  afterAll,
  afterEach,
  beforeAll,
  describe as anyDescribe,
  expect,
  test as anyTest,
} from 'vitest';
import { readdir } from 'node:fs/promises';
import { connectTo, install, type Installation } from './harness.ts';
import { layoutOf } from './ha-load.ts';
import { openMetadata } from './metadata.ts';
import { findDaemon, findProgram, findServer, signal } from './probe.ts';
import {
  installForSets,
  accepted,
  pathOf,
  post,
  setsOf,
  untilSet,
  untilGone,
  asked,
  createSet,
  read,
  write,
  once,
  portsOf,
  nodePaths,
  nodeOf,
  untilServing,
  untilShown,
  nodesOf,
  startReaders,
  withTable,
  fallBehind,
  type Following,
} from './sets.ts';
import { atMoment, until, untilExpected } from './until.ts';

const pgbouncer = (await findProgram('pgbouncer')) !== null;

// Without HAProxy there are no sets.
const installed = (await findProgram('haproxy')) !== null;

const describe = anyDescribe.runIf(installed);

const test = anyTest.runIf(installed);

const testPooled = anyTest.runIf(installed && pgbouncer);

let cloud: Installation;

beforeAll(async () => {
  cloud = await installForSets();
});

afterEach(() => cloud.tidy());
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

describe('changes', () => {
  test.each([1, 2])('%i nodes get a new size one by one, and no read is refused', async (nodes) => {
    const service = await withTable(`resized ${nodes}`);
    const set = await createSet(service, nodes);
    await untilShown(set, 1);
    const pids = await Promise.all(
      Array.from({ length: nodes }, (_, index) => nodeOf(set, index + 1)),
    );
    const readers = startReaders(set, 2);
    await readers.more(10);
    for (const cpu_millis of ['1000', '500']) {
      const answer = await post(set, 'resize', { cpu_millis });
      expect(answer).toMatchObject({
        status: 202,
        body: { message: expect.stringContaining('one after the other') },
      });
      await untilSet(set, 'active');
    }
    await readers.more(10);
    expect(await readers.stop()).toMatchObject({ refused: [] });
    expect((await setsOf(service))[0]).toMatchObject({ cpu_millis: 500, memory_gbs: 2 });
    expect(await once(read(set), 'show shared_buffers')).toEqual([{ shared_buffers: '512MB' }]);
    for (const [index, pid] of pids.entries()) expect(await nodeOf(set, index + 1)).not.toBe(pid);
    const operation = (await cloud.operations(set.id)).find(({ kind }) => kind === 'resize');
    const restarts = operation?.steps.filter(({ name }) => name.startsWith('restart')) ?? [];
    expect(restarts.map(({ name }) => name)).toEqual(
      Array.from({ length: nodes }, (_, index) => `restart node ${index + 1}`),
    );
    await untilServing(
      set,
      Array.from({ length: nodes }, (_, index) => index + 1),
    );
  });

  test('a service that becomes larger resizes its smaller nodes', { tags: 'slow' }, async () => {
    const service = await withTable('larger');
    const set = await createSet(service, 2);
    await untilShown(set, 1);
    const readers = startReaders(set, 1);
    accepted(
      await cloud.request('POST', `/services/${service.service_id}/resize`, {
        cpu_millis: '1000',
      }),
    );
    await cloud.until(service.service_id, 'READY');
    await once(write(service), 'insert into t values (2)');
    await untilShown(set, 2);
    await untilServing(set, [1, 2]);
    await readers.more(5);
    expect(await readers.stop()).toMatchObject({ refused: [] });
    // As many connections as the primary, with the memory of its own size.
    expect(
      await once(
        read(set),
        "select current_setting('max_connections') " +
          "as connections, current_setting('shared_buffers') as buffers",
      ),
    ).toEqual([{ connections: '200', buffers: '512MB' }]);
    accepted(
      await cloud.request('POST', `/services/${service.service_id}/resize`, {
        cpu_millis: '500',
      }),
    );
    await cloud.until(service.service_id, 'READY');
    await once(write(service), 'insert into t values (3)');
    await untilShown(set, 3);
  });

  test('a set stops, starts and is restored with its service, on the same port', async () => {
    const service = await withTable('paused');
    const set = await createSet(service, 2);
    accepted(await cloud.request('POST', `/services/${service.service_id}/stop`));
    await cloud.until(service.service_id, 'PAUSED');
    for (const n of [1, 2]) expect(await findServer(nodePaths(set, n))).toBeNull();
    expect(await findDaemon(layoutOf(cloud).gateway(set.id))).toBeNull();
    expect((await cloud.get(set.id)).status).toBe('PAUSED');
    expect((await setsOf(service))[0]?.status).toBe('active');
    expect(await cloud.audit()).toEqual([]);
    accepted(await cloud.request('POST', `/services/${service.service_id}/start`));
    await cloud.until(service.service_id, 'READY');
    await cloud.until(set.id, 'READY');
    await untilServing(set, [1, 2]);
    expect(await once(read(set), 'select n from t')).toEqual([{ n: 1 }]);

    expect((await cloud.request('DELETE', `/services/${service.service_id}`)).status).toBe(202);
    await untilExpected('the service is deleted', async () =>
      expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
    );
    expect((await cloud.request('GET', `/services/${set.id}`)).status).toBe(404);
    for (const n of [1, 2]) expect(await findServer(nodePaths(set, n))).toBeNull();
    accepted(await cloud.request('POST', `/services/${service.service_id}/restore`));
    await cloud.until(service.service_id, 'READY');
    await cloud.until(set.id, 'READY');
    await untilServing(set, [1, 2]);
    expect(await once(read(set), 'select n from t')).toEqual([{ n: 1 }]);
  });

  test.each(['0', '0.0005'])(
    'a service that is removed for good removes its sets (HOWDAH_RESTORE_HOURS=%s)',
    { tags: 'slow' },
    async (hours) => {
      const on = await install({ HOWDAH_RESTORE_HOURS: hours });
      const service = await withTable('removed', {}, on);
      const set = await createSet(service, 2, on);
      expect((await on.request('DELETE', `/services/${service.service_id}`)).status).toBe(202);
      const { db, close } = await openMetadata(on.home);
      await untilExpected('no service is left', async () =>
        expect(await db.selectFrom('services').select('id').execute()).toEqual([]),
      );
      await close();
      expect((await on.request('GET', `/services/${set.id}`)).status).toBe(404);
      expect(await readdir(layoutOf(on).services)).toEqual([]);
      // Without a directory and without a process.
      expect(await on.destroy()).toEqual([]);
    },
  );

  test('a fork has no sets', async () => {
    const service = await withTable('parent');
    await createSet(service, 1);
    const answer = await cloud.request('POST', `/services/${service.service_id}/forkService`, {
      fork_strategy: 'NOW',
    });
    accepted(answer);
    expect(answer.body).toMatchObject({ read_replica_sets: [] });
    const { service_id: id, initial_password: password } = Object(answer.body);
    const child = await cloud.until(String(id), 'READY');
    expect(
      await once(
        connectTo(cloud, child, String(password)),
        'select count(*)::int as n from pg_replication_slots',
      ),
    ).toEqual([{ n: 0 }]);
  });

  test(
    'a set is deleted, or its service stopped, while it is being created',
    { tags: 'slow' },
    async () => {
      const service = await withTable('interrupted');
      await once(
        write(service),
        'create table bulk as select repeat(md5(g::text), 32) from generate_series(1, 30000) g',
      );
      for (const delayMs of [0, 150, 400]) {
        const set = await asked(service, 3);
        await atMoment(delayMs);
        expect((await cloud.request('DELETE', pathOf(set))).status).toBe(202);
        await untilGone(set);
        const created = (await cloud.operations(set.id)).find(({ kind }) => kind === 'create');
        expect(created?.error ?? 'superseded by delete').toBe('superseded by delete');
      }
      const set = await asked(service, 2);
      await atMoment(200);
      accepted(await cloud.request('POST', `/services/${service.service_id}/stop`));
      await cloud.until(service.service_id, 'PAUSED');
      for (const n of [1, 2]) expect(await findServer(nodePaths(set, n))).toBeNull();
      accepted(await cloud.request('POST', `/services/${service.service_id}/start`));
      await cloud.until(set.id, 'READY');
      await untilServing(set, [1, 2]);
    },
  );
});

describe('a node that lags', () => {
  test("gets no connections while it lags too much; each node's lag is shown", async () => {
    const service = await withTable('behind');
    const set = await createSet(service, 2);
    await untilShown(set, 1);
    expect((await portsOf(set)).size).toBe(2);
    const [, second] = (await nodesOf(set)).map(({ port }) => port.port);
    const release = await fallBehind(set);
    const detail = await untilServing(set, [2]);
    const [behind, current] = detail.node_states;
    expect(behind?.lag_bytes).toBeGreaterThan(4_194_304);
    expect(behind?.lag_seconds).toBeGreaterThan(0);
    expect(behind?.detail).toContain('too far behind: the limit is 4194304 bytes and 600 s');
    expect(current).toMatchObject({ node: 2, serving: true, detail: 'follows the primary' });
    expect(await portsOf(set)).toEqual(new Set([second]));
    await untilExpected('the set is active', async () =>
      expect((await setsOf(service))[0]?.status).toBe('active'),
    );
    await release();
    await untilServing(set, [1, 2]);
    expect((await portsOf(set)).size).toBe(2);
  });
});

/** Clients of a pooler read while each node gets another size, and not one read fails. */
async function expectReadsDuringResize(clients: readonly Client[], set: Following): Promise<void> {
  const errors: string[] = [];
  let going = true;
  let reads = 0;
  const loops = clients.map(async (client) => {
    while (going) {
      try {
        await client.query('select count(*) from t');
        reads += 1;
      } catch (error) {
        errors.push(String(error));
        return;
      }
    }
  });
  accepted(await post(set, 'resize', { cpu_millis: '500' }));
  await untilSet(set, 'active');
  const after = reads + 50;
  await until('50 more reads are answered', () => reads >= after || errors.length > 0);
  going = false;
  await Promise.all(loops);
  expect(errors).toEqual([]);
}

describe('a pooler before a set', () => {
  testPooled('connects to the nodes, bridges their resize, and keeps its port', async () => {
    const service = await withTable('pooled');
    const set = await createSet(service, 2);
    await untilShown(set, 1);
    expect(await post(set, 'enablePooler')).toMatchObject({
      status: 200,
      body: { message: 'the connection pooler is enabled' },
    });
    const [shown] = await setsOf(service);
    const endpoint = shown?.connection_pooler?.endpoint;
    if (endpoint === undefined) throw new Error('no pooler');
    expect((await cloud.get(set.id)).connection_pooler).toEqual({ endpoint });
    expect((await cloud.get(service.service_id)).connection_pooler).toBeUndefined();
    const through = (database: string) =>
      connectTo(cloud, { endpoint }, service.initial_password, { database });
    const clients = await Promise.all(Array.from({ length: 4 }, () => through('tsdb_transaction')));
    for (const client of clients) await client.query('begin');
    const ports = await Promise.all(
      clients.map(
        async (client) =>
          (
            await client.query<{ p: string }>(
              "select current_setting('port') as p, pg_is_in_recovery() as r",
            )
          ).rows[0],
      ),
    );
    expect(new Set(ports.map((row) => row?.p)).size).toBe(2);
    expect(ports).toEqual(ports.map((row) => ({ p: row?.p, r: true })));
    for (const client of clients) await client.query('commit');
    expect(await once(through('tsdb'), 'select n from t')).toEqual([{ n: 1 }]);
    // A role that was made a moment ago, and a wrong password.
    await once(write(service), "create role app login password 'made just now'");
    await untilExpected('the new role connects', async () =>
      expect(
        await once(
          connectTo(cloud, { endpoint }, 'made just now', { user: 'app' }),
          'select 1 as one',
        ).catch(() => []),
      ).toEqual([{ one: 1 }]),
    );
    await expect(connectTo(cloud, { endpoint }, 'wrong password')).rejects.toThrow(/SASL/);

    await expectReadsDuringResize(clients, set);
    for (const client of clients) await client.end();

    expect(await post(set, 'disablePooler')).toMatchObject({
      status: 200,
      body: { message: 'the connection pooler is disabled' },
    });
    expect((await setsOf(service))[0]?.connection_pooler).toBeUndefined();
    await expect(through('tsdb')).rejects.toThrow(/ECONNREFUSED/);
    await post(set, 'enablePooler');
    expect((await setsOf(service))[0]?.connection_pooler).toEqual({ endpoint });
    // With its service it stops and starts.
    await cloud.request('POST', `/services/${service.service_id}/stop`);
    await cloud.until(service.service_id, 'PAUSED');
    await expect(through('tsdb')).rejects.toThrow(/ECONNREFUSED/);
    expect(await cloud.audit()).toEqual([]);
    await cloud.request('POST', `/services/${service.service_id}/start`);
    await cloud.until(set.id, 'READY');
    expect(await once(through('tsdb'), 'select n from t')).toEqual([{ n: 1 }]);
  });

  testPooled('is started again after it was killed', async () => {
    const service = await withTable('pooler killed');
    const set = await createSet(service, 1);
    await post(set, 'enablePooler');
    const { pooler } = layoutOf(cloud).service(set.id);
    const before = await findDaemon(pooler);
    if (before === null) throw new Error('no pooler');
    signal(before.pid, 'SIGKILL');
    await untilExpected('the pooler is replaced', async () =>
      expect((await findDaemon(pooler))?.pid ?? before.pid).not.toBe(before.pid),
    );
    const endpoint = (await setsOf(service))[0]?.connection_pooler?.endpoint ?? set.endpoint;
    expect(endpoint).not.toEqual(set.endpoint);
    await untilExpected('the pooler answers from the set', async () =>
      expect(
        await once(
          connectTo(cloud, { endpoint }, service.initial_password),
          'select n from t',
        ).catch(() => []),
      ).toEqual([{ n: 1 }]),
    );
  });
});
