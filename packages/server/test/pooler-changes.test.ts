/** A pooler while its service changes, and while processes die. */
import { stat } from 'node:fs/promises';
import { createServer, connect as connectSocket } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { connectTo } from './harness.ts';
import { openMetadata } from './metadata.ts';
import {
  askConsole,
  cloud,
  type Created,
  createPooled,
  pathsOf,
  pgbouncerOf,
  pidOf,
  poolerOf,
  post,
  test,
  through,
  untilLookedAt,
  setUp,
  tearDown,
} from './pooler-cloud.ts';
import { findDaemon, findServer, signal, waitUntilGone } from './probe.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(() => cloud.tidy());
afterAll(tearDown);

/** Whether something listens on a port. */
const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connectSocket(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.unref();
  });

test('enabling and disabling take effect at once and end no direct session', async () => {
  const service = await cloud.create({ name: 'switch', service_type: 'POSTGRES' });
  expect(service).not.toHaveProperty('connection_pooler');
  const direct = await connectTo(cloud, service, service.initial_password);
  const enabled = await post(service, 'enablePooler');
  expect(enabled).toMatchObject({
    status: 200,
    body: { message: 'the connection pooler is enabled' },
  });
  expect(enabled.headers.get('operation-id')).not.toBeNull();
  const first = await poolerOf(service);
  expect(first.endpoint.port).not.toBe(service.endpoint.port);
  const pooled = await through(service, 'tsdb');

  const again = await post(service, 'enablePooler');
  expect(again).toMatchObject({
    status: 200,
    body: { message: 'the connection pooler is enabled' },
  });
  expect(again.headers.get('operation-id')).toBeNull();

  const gone = new Promise((resolve) => pooled.once('end', resolve));
  expect(await post(service, 'disablePooler')).toMatchObject({
    status: 200,
    body: { message: 'the connection pooler is disabled' },
  });
  await gone;
  expect(await cloud.get(service.service_id)).not.toHaveProperty('connection_pooler');
  expect(await listens(first.endpoint.port)).toBe(false);
  expect(await post(service, 'disablePooler')).toMatchObject({ status: 200 });
  const { pooler, config } = await pathsOf(service);
  await expect(stat(pooler.root)).rejects.toThrow('ENOENT');
  await expect(stat(join(config, 'pgbouncer.ini'))).rejects.toThrow('ENOENT');
  // Nobody else gets the port meanwhile.
  const other = await createPooled('other');
  expect([other.endpoint.port, (await poolerOf(other)).endpoint.port]).not.toContain(
    first.endpoint.port,
  );

  expect((await post(service, 'enablePooler')).status).toBe(200);
  expect(await poolerOf(service)).toEqual(first);
  await (await through(service, 'tsdb')).end();
  expect(await pidOf(direct)).toBeGreaterThan(0);
  await direct.end();
  const kinds = (await cloud.operations(service.service_id)).map(({ kind, status, steps }) => [
    kind,
    status,
    ...steps.map(({ name }) => name),
  ]);
  expect(kinds.slice(0, 2)).toEqual([
    ['enablePooler', 'succeeded', 'start connection pooler'],
    ['disablePooler', 'succeeded', 'stop connection pooler'],
  ]);
});

test('the pooler of a paused service starts and stops with the service', async () => {
  const service = await cloud.create({ name: 'paused', service_type: 'POSTGRES' });
  expect((await post(service, 'stop')).status).toBe(202);
  await cloud.until(service.service_id, 'PAUSED');
  expect((await post(service, 'enablePooler')).status).toBe(200);
  expect((await cloud.get(service.service_id)).status).toBe('PAUSED');
  const { endpoint } = await poolerOf(service);
  expect(await listens(endpoint.port)).toBe(false);
  await post(service, 'start');
  await cloud.until(service.service_id, 'READY');
  await (await through(service, 'tsdb')).end();
  await post(service, 'stop');
  await cloud.until(service.service_id, 'PAUSED');
  expect(await listens(endpoint.port)).toBe(false);
  expect((await post(service, 'disablePooler')).status).toBe(200);
  await post(service, 'start');
  await cloud.until(service.service_id, 'READY');
  expect(await listens(endpoint.port)).toBe(false);
});

test('a change of the pooler is refused during another operation', async () => {
  const service = await cloud.create({ name: 'states', service_type: 'POSTGRES' });
  const metadata = await openMetadata(cloud.home);
  await metadata.holdingReconciler(async () => {
    await post(service, 'stop');
    for (const action of ['enablePooler', 'disablePooler'])
      expect(await post(service, action)).toMatchObject({
        status: 400,
        body: {
          code: 'INVALID_STATE',
          message: expect.stringContaining('a service that is PAUSING'),
        },
      });
  });
  await metadata.close();
  await cloud.until(service.service_id, 'PAUSED');
  expect(await cloud.request('POST', '/services/nosuchidxx/enablePooler')).toMatchObject({
    status: 404,
  });
});

test('a port that another program holds makes the service UNSTABLE until it is free', async () => {
  const service = await cloud.create({ name: 'held', service_type: 'POSTGRES' });
  await post(service, 'enablePooler');
  const { endpoint } = await poolerOf(service);
  await post(service, 'disablePooler');
  const holder = createServer();
  await new Promise<void>((resolve) => holder.listen(endpoint.port, '127.0.0.1', resolve));
  expect(await post(service, 'enablePooler')).toMatchObject({
    status: 200,
    body: { message: expect.stringContaining('not done yet') },
  });
  expect((await cloud.get(service.service_id)).status).toBe('UNSTABLE');
  const [operation] = await cloud.operations(service.service_id);
  expect(operation?.error).toContain(
    `port ${endpoint.port} of 127.0.0.1 is held by another program`,
  );
  await new Promise((resolve) => holder.close(resolve));
  await cloud.until(service.service_id, 'READY');
  await (await through(service, 'tsdb')).end();
});

test('a fork has no pooler, a delete ends it, and a restore starts it again', async () => {
  const service = await createPooled('parent');
  const { endpoint } = await poolerOf(service);
  const forked = await post(service, 'forkService', { fork_strategy: 'NOW' });
  expect(forked.status).toBe(202);
  expect(forked.body).not.toHaveProperty('connection_pooler');
  const { pooler } = await pathsOf(service);
  expect((await cloud.request('DELETE', `/services/${service.service_id}`)).status).toBe(202);
  await untilExpected('the service is deleted', async () =>
    expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
  );
  expect(await findDaemon(pooler)).toBeNull();
  expect(await listens(endpoint.port)).toBe(false);
  expect((await post(service, 'restore')).status).toBe(202);
  await cloud.until(service.service_id, 'READY');
  expect((await poolerOf(service)).endpoint).toEqual(endpoint);
  await (await through(service, 'tsdb')).end();
});

test('PgBouncer is started again after a signal killed or stopped it', async () => {
  const service = await createPooled('killed');
  const direct = await connectTo(cloud, service, service.initial_password);
  for (const name of ['SIGKILL', 'SIGSTOP'] as const) {
    const before = await pgbouncerOf(service);
    signal(before.pid, name);
    await pgbouncerOf(service, before);
    await untilExpected('the pooler accepts a session', async () =>
      (await through(service, 'tsdb')).end(),
    );
    expect(await waitUntilGone(before, 0)).toBe(true);
  }
  expect(await pidOf(direct)).toBeGreaterThan(0);
  await direct.end();
});

test(
  'PgBouncer outlives the control plane, which finds it again or starts it',
  { tags: 'slow' },
  async () => {
    const service = await createPooled('outlives');
    const session = await through(service, 'tsdb');
    const transaction = await through(service, 'tsdb_transaction');
    const before = await pgbouncerOf(service);
    await cloud.stop('SIGKILL');
    expect(await pidOf(session)).toBeGreaterThan(0);
    expect(await pidOf(transaction)).toBeGreaterThan(0);
    await cloud.up();
    await untilLookedAt(service);
    expect(await pidOf(session)).toBeGreaterThan(0);
    expect((await pgbouncerOf(service)).startTicks).toBe(before.startTicks);
    // The pooler is watched again.
    signal(before.pid, 'SIGKILL');
    const second = await pgbouncerOf(service, before);

    await cloud.stop('SIGTERM');
    signal(second.pid, 'SIGKILL');
    await until('PgBouncer is gone', () => waitUntilGone(second, 0));
    await cloud.up();
    await pgbouncerOf(service, second);
    await untilExpected('the pooler accepts a session', async () =>
      (await through(service, 'tsdb')).end(),
    );
    for (const client of [session, transaction]) await client.end().catch(() => undefined);
  },
);

/** Clients that each insert a row and commit, again and again, one transaction at a time. */
async function startLoad(service: Created, count: number) {
  const clients = await Promise.all(
    Array.from({ length: count }, () => through(service, 'tsdb_transaction')),
  );
  const counts = clients.map(() => 0);
  const errors: string[] = [];
  let going = true;
  const loops = clients.map(async (client, index) => {
    while (going) {
      try {
        await client.query('begin');
        await client.query('insert into written values ($1, $2)', [index, counts[index]]);
        await client.query('commit');
        counts[index] = (counts[index] ?? 0) + 1;
      } catch (error) {
        errors.push(String(error));
        return;
      }
    }
  });
  const total = () => counts.reduce((sum, each) => sum + each, 0);
  return {
    /** Waits until this many more transactions were committed, or one failed. */
    more: async (wanted: number): Promise<void> => {
      const end = total() + wanted;
      await until(
        `${wanted} more transactions are committed, or one has failed`,
        () => total() >= end || errors.length > 0,
      );
    },
    stop: async (): Promise<{ committed: number; errors: string[] }> => {
      going = false;
      await Promise.all(loops);
      for (const client of clients) await client.end().catch(() => undefined);
      return { committed: total(), errors };
    },
  };
}

test('a resize fails no transaction of the transaction pool, and changes its limits', async () => {
  const service = await createPooled('resized');
  const direct = await connectTo(cloud, service, service.initial_password);
  await direct.query('create table written (client int, n int)');
  await direct.end();
  const load = await startLoad(service, 8);
  for (const cpu_millis of [1000, 500]) {
    await load.more(50);
    expect((await post(service, 'resize', { cpu_millis })).status).toBe(202);
    await cloud.until(service.service_id, 'READY');
  }
  await load.more(50);
  const { committed, errors } = await load.stop();
  expect(errors).toEqual([]);
  const after = await through(service, 'tsdb');
  expect((await after.query('select count(*)::int as n from written')).rows).toEqual([
    { n: committed },
  ]);
  await after.end();
  await post(service, 'resize', { cpu_millis: 1000 });
  await cloud.until(service.service_id, 'READY');
  const limits = (await askConsole(service, 'show databases')).map(({ name, max_connections }) => [
    name,
    max_connections,
  ]);
  expect(limits).toContainEqual(['tsdb', 91]);
  expect(limits).toContainEqual(['tsdb_transaction', 92]);
});

test('a client that waits during a resize continues after the control plane died', async () => {
  const service = await createPooled('interrupted');
  const client = await through(service, 'tsdb_transaction');
  const blocker = await through(service, 'tsdb_transaction');
  // The transaction keeps the resize waiting for it, with the pools held.
  await blocker.query('begin');
  await post(service, 'resize', { cpu_millis: 1000 });
  await untilExpected('a pool is paused', async () =>
    expect(
      (await askConsole(service, 'show databases')).some(({ paused }) => Number(paused) === 1),
    ).toBe(true),
  );
  await cloud.stop('SIGKILL');
  await blocker.query('commit');
  const answer = pidOf(client);
  await cloud.up();
  expect(await answer).toBeGreaterThan(0);
  await cloud.until(service.service_id, 'READY');
  for (const each of [client, blocker]) await each.end();
});

test('a crash of PostgreSQL does not affect idle clients of the pool', async () => {
  const service = await createPooled('crashed');
  const idle = await through(service, 'tsdb_transaction');
  const pid = await pidOf(idle);
  const server = await findServer(await pathsOf(service));
  if (server === null) throw new Error('no server');
  signal(server.postmaster.pid, 'SIGKILL');
  await untilExpected('the service is repaired', async () =>
    expect((await cloud.operations(service.service_id))[0]?.kind).toBe('repair'),
  );
  await cloud.until(service.service_id, 'READY');
  expect(await pidOf(idle)).not.toBe(pid);
  await idle.end();
});

test('clients of the pool wait for a server that cannot start', { tags: 'slow' }, async () => {
  const service = await createPooled('waiting');
  const client = await through(service, 'tsdb_transaction');
  await cloud.stop('SIGTERM');
  const server = await findServer(await pathsOf(service));
  if (server === null) throw new Error('no server');
  signal(server.postmaster.pid, 'SIGKILL');
  await until('PostgreSQL is gone', () => waitUntilGone(server.postmaster, 0));
  const holder = createServer();
  await new Promise<void>((resolve) => holder.listen(service.endpoint.port, '127.0.0.1', resolve));
  await cloud.up();
  await untilExpected('both pools are paused', async () =>
    expect(
      (await askConsole(service, 'show databases')).filter(({ paused }) => Number(paused) === 1)
        .length,
    ).toBe(2),
  );
  const answer = pidOf(client);
  await untilExpected('the client waits in the pool', async () =>
    expect(
      (await askConsole(service, 'show pools')).some((pool) => Number(pool['cl_waiting']) > 0),
    ).toBe(true),
  );
  await new Promise((resolve) => holder.close(resolve));
  expect(await answer).toBeGreaterThan(0);
  await client.end();
});
