/** Connection poolers: PgBouncer in front of a service, seen as its clients see it, and what becomes of it when something dies. */
import { readlink, rm, stat } from 'node:fs/promises';
import { createServer, connect as connectSocket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test as anyTest } from 'vitest';
import { findDaemon, findProgram } from '../src/engine/local/host/daemon.ts';
import { createLayout, type InstancePaths } from '../src/engine/local/host/layout.ts';
import { signal, waitUntilGone, type Process } from '../src/lib/processes.ts';
import { findServer } from '../src/engine/local/postgres/server.ts';
import { takeNextPort } from '../src/store/regions.ts';
import { connectTo, install, type Installation, type Service } from './harness.ts';
import { openMetadata } from './metadata.ts';

const installed = (await findProgram('pgbouncer')) !== null;
const test = anyTest.runIf(installed);

type Created = Service & { initial_password: string };

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

const post = (service: Service, action: string, body?: unknown) =>
  cloud.request('POST', `/services/${service.service_id}/${action}`, body);

const createPooled = (name: string): Promise<Created> =>
  cloud.create({ name, service_type: 'POSTGRES', enable_pooler: true });

/** The pooler of a service, as something to connect to. */
async function poolerOf(service: Service): Promise<Pick<Service, 'endpoint'>> {
  const { connection_pooler: pooler } = await cloud.get(service.service_id);
  if (pooler === undefined) throw new Error(`service ${service.service_id} has no pooler`);
  return pooler;
}

/** A connection through the pooler, TLS checked against our CA. */
const through = async (
  service: Created,
  database: 'tsdb' | 'tsdb_transaction',
  login: { user?: string; password?: string } = {},
) =>
  connectTo(cloud, await poolerOf(service), login.password ?? service.initial_password, {
    database,
    ...(login.user === undefined ? {} : { user: login.user }),
  });

const pathsOf = async ({ service_id: id }: Service): Promise<InstancePaths> => {
  const data = join(cloud.home, 'data');
  return createLayout(await readlink(data).catch(() => data)).service(id);
};

/** PgBouncer's process; waits until there is one other than `before`. */
async function pgbouncerOf(service: Service, before?: Process): Promise<Process> {
  const { pooler } = await pathsOf(service);
  for (;;) {
    const found = await findDaemon(pooler);
    if (found !== null && found.pid !== before?.pid) return found;
    await sleep(10);
  }
}

/** Asks the pooler's console, as root may. */
async function askConsole(service: Service, statement: string): Promise<Record<string, unknown>[]> {
  const { pooler } = await pathsOf(service);
  const client = new Client({
    host: pooler.root,
    port: (await poolerOf(service)).endpoint.port,
    user: 'howdah',
    database: 'pgbouncer',
  });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(statement)).rows;
  } finally {
    await client.end();
  }
}

const pidOf = async (client: Client): Promise<number> => {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid ?? 0;
};

/** Waits until the reconciler has looked at a service that is well, after `makeDue` or a start, and wants no further look soon. */
async function untilLookedAt({ service_id: id }: Service, makeDue = false): Promise<void> {
  const { db, close } = await openMetadata(cloud.home);
  if (makeDue)
    await db.updateTable('services').set({ due_at: new Date() }).where('id', '=', id).execute();
  for (;;) {
    const row = await db
      .selectFrom('services')
      .select(['lease_token', 'due_at'])
      .where('id', '=', id)
      .executeTakeFirstOrThrow();
    if (
      row.lease_token === null &&
      row.due_at !== null &&
      row.due_at.getTime() > Date.now() + 60_000
    )
      break;
    await sleep(20);
  }
  await close();
}

/** Whether something listens on a port. */
const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connectSocket(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.unref();
  });

anyTest.runIf(!installed)(
  'without PgBouncer a pooler is refused with the command that installs it',
  async () => {
    const missing = {
      status: 422,
      body: {
        code: 'UNAVAILABLE_HERE',
        message: expect.stringContaining('apt-get install pgbouncer'),
      },
    };
    expect(
      await cloud.request('POST', '/services', {
        name: 'none',
        service_type: 'POSTGRES',
        enable_pooler: true,
      }),
    ).toMatchObject(missing);
    const service = await cloud.create({
      name: 'none',
      service_type: 'POSTGRES',
      enable_pooler: false,
    });
    expect(await post(service, 'enablePooler')).toMatchObject(missing);
    expect(await post(service, 'disablePooler')).toMatchObject({ status: 200 });
    const regions = await cloud.request('GET', '/regions');
    expect(regions.body).toMatchObject([
      {
        pooler: { available: false, reason: expect.stringContaining('apt-get install pgbouncer') },
      },
    ]);
  },
);

// ── what clients see ─────────────────────────────────────────────────────────────────────────────────────────────

test('a create with a pooler names its endpoint; both pools work, by session and by transaction', async () => {
  const answer = await cloud.request('POST', '/services', {
    name: 'with pooler',
    service_type: 'POSTGRES',
    enable_pooler: true,
  });
  expect(answer).toMatchObject({
    status: 202,
    body: { connection_pooler: { endpoint: { host: '127.0.0.1' } } },
  });
  const service = await createPooled('pools');
  const direct = await connectTo(cloud, service, service.initial_password);

  const sessions = await Promise.all([through(service, 'tsdb'), through(service, 'tsdb')]);
  expect(new Set(await Promise.all(sessions.map(pidOf))).size).toBe(2);
  await sessions[0]?.query("set application_name = 'kept'");
  expect((await sessions[0]?.query('show application_name'))?.rows).toEqual([
    { application_name: 'kept' },
  ]);

  const one = await through(service, 'tsdb_transaction');
  const two = await through(service, 'tsdb_transaction');
  const shared = await pidOf(one);
  expect([await pidOf(two), await pidOf(one), await pidOf(two)]).toEqual([shared, shared, shared]);
  await one.query('begin');
  expect(await pidOf(two)).not.toBe(await pidOf(one));
  await one.query('commit');
  expect((await one.query('select current_user, current_database()')).rows).toEqual([
    { current_user: 'tsdbadmin', current_database: 'tsdb' },
  ]);
  for (const client of [direct, ...sessions, one, two]) await client.end();
});

test('only TLS, only with the right password, and our own roles not at all', async () => {
  const service = await createPooled('closed');
  const { endpoint } = await poolerOf(service);
  const plain = new Client({
    ...endpoint,
    user: 'tsdbadmin',
    database: 'tsdb',
    password: service.initial_password,
  });
  await expect(plain.connect()).rejects.toThrow(/SSL required/);
  await expect(through(service, 'tsdb', { password: 'wrong password' })).rejects.toThrow(
    /SASL authentication failed/,
  );
  for (const database of ['tsdb', 'tsdb_transaction'] as const) {
    await expect(through(service, database, { user: 'nobody' })).rejects.toThrow(
      /no such user|SASL authentication failed/,
    );
    for (const user of ['howdah', 'howdah_pooler'])
      await expect(through(service, database, { user }), user).rejects.toThrow(/login rejected/);
  }
  const consoleOverTcp = connectTo(cloud, { endpoint }, 'x', {
    user: 'howdah',
    database: 'pgbouncer',
  });
  await expect(consoleOverTcp).rejects.toThrow(/login rejected/);

  const admin = await through(service, 'tsdb');
  for (const [statement, refused] of [
    ["select * from pg_howdah.verifier('tsdbadmin')", /permission denied for function verifier/],
    [
      "create or replace function pg_howdah.verifier(name text) returns table (role text, verifier text) language sql as 'select 1, 2'",
      /permission denied/,
    ],
    ['drop function pg_howdah.verifier(text)', /must be owner/],
    ['drop schema pg_howdah cascade', /must be owner/],
    ['grant execute on all functions in schema pg_howdah to tsdbadmin', /permission denied/],
    ['set role howdah_pooler', /permission denied/],
    ['grant howdah_pooler to tsdbadmin', /permission denied/],
    ["alter role howdah_pooler password 'mine'", /permission denied/],
    ['drop role howdah_pooler', /permission denied/],
  ] as const)
    await expect(admin.query(statement), statement).rejects.toThrow(refused);
  await admin.end();
});

test('a role that a user made in the place of ours is not taken for it', async () => {
  const service = await cloud.create({ name: 'squatted', service_type: 'POSTGRES' });
  const admin = await connectTo(cloud, service, service.initial_password);
  await admin.query("create role howdah_pooler login password 'mine enough'");
  const answer = await post(service, 'enablePooler');
  expect(answer).toMatchObject({
    status: 200,
    body: { message: expect.stringContaining('not done yet') },
  });
  const [operation] = await cloud.operations(service.service_id);
  expect(operation?.error).toContain('drop role howdah_pooler');
  await admin.query('drop role howdah_pooler');
  await cloud.until(service.service_id, 'READY');
  await (await through(service, 'tsdb')).end();
  await admin.end();
});

test('settings that its owner gave the database do not reach our statements in it', async () => {
  const service = await cloud.create({ name: 'trapped', service_type: 'POSTGRES' });
  const admin = await connectTo(cloud, service, service.initial_password);
  await admin.query(`create function public.now() returns timestamptz language plpgsql as
    $$ begin raise exception 'a trap, as %', current_user; end $$`);
  await admin.query(
    `create view public.pg_authid as select rolname, 'x'::text as rolpassword from pg_roles`,
  );
  await admin.query('alter database tsdb set search_path = public, pg_catalog');
  await admin.query('alter database tsdb set role = tsdbadmin');
  await admin.query('alter database tsdb set default_transaction_read_only = on');
  expect(await post(service, 'enablePooler')).toMatchObject({
    status: 200,
    body: { message: 'the connection pooler is enabled' },
  });
  await admin.query('alter database tsdb reset role');
  const client = await through(service, 'tsdb_transaction');
  expect(await pidOf(client)).toBeGreaterThan(0);
  await client.end();
  await admin.end();
});

test('new roles and changed passwords work at once', async () => {
  const service = await createPooled('roles');
  const admin = await through(service, 'tsdb');
  await admin.query("create role app login password 'the first one'");
  for (const database of ['tsdb', 'tsdb_transaction'] as const)
    await (await through(service, database, { user: 'app', password: 'the first one' })).end();
  const before = await through(service, 'tsdb_transaction', {
    user: 'app',
    password: 'the first one',
  });
  await admin.query("alter role app password 'the second one'");
  await expect(
    through(service, 'tsdb_transaction', { user: 'app', password: 'the first one' }),
  ).rejects.toThrow(/SASL/);
  const after = await through(service, 'tsdb_transaction', {
    user: 'app',
    password: 'the second one',
  });
  expect((await after.query('select current_user')).rows).toEqual([{ current_user: 'app' }]);
  expect((await before.query('select current_user')).rows).toEqual([{ current_user: 'app' }]);

  const password = 'set through the API';
  expect((await post(service, 'updatePassword', { password })).status).toBe(204);
  await expect(through(service, 'tsdb')).rejects.toThrow(/SASL/);
  await (await through(service, 'tsdb', { password })).end();

  await admin.query("alter role app valid until '2020-01-01'");
  await expect(
    through(service, 'tsdb', { user: 'app', password: 'the second one' }),
  ).rejects.toThrow(/no such user|SASL/);
  for (const client of [admin, before, after]) await client.end();
});

test('both pools together leave 17 of the connections of a service', async () => {
  const service = await createPooled('limits');
  for (const [database, limit] of [
    ['tsdb_transaction', 42],
    ['tsdb', 41],
  ] as const) {
    const clients: Client[] = [];
    // One by one: each that gets a server connection keeps it.
    for (let n = 0; n < limit; n++) {
      const client = await through(service, database);
      await client.query('begin');
      clients.push(client);
    }
    const row = (await askConsole(service, 'show databases')).find(({ name }) => name === database);
    expect(row).toMatchObject({ max_connections: limit });
    const pids = await Promise.all(clients.map(pidOf));
    expect(new Set(pids).size).toBe(limit);
    // The next one waits, until another is done.
    let waits = true;
    const late = through(service, database).then(async (client) => {
      await client.query('begin');
      waits = false;
      return client;
    });
    await expect
      .poll(async () =>
        (await askConsole(service, 'show pools')).some((pool) => Number(pool['cl_waiting']) > 0),
      )
      .toBe(true);
    expect(waits).toBe(true);
    await clients.pop()?.end();
    clients.push(await late);
    for (const client of clients) await client.end();
  }
  const clientLimit = (await askConsole(service, 'show config')).find(
    ({ key }) => key === 'max_client_conn',
  );
  expect(clientLimit).toMatchObject({ value: '1660' });
});

// ── on and off ───────────────────────────────────────────────────────────────────────────────────────────────────

test('it is enabled and disabled at once, keeps its port, and sessions beside it stay', async () => {
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

test('of a paused service it takes effect at the start; a stop takes it along', async () => {
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

test('what is not allowed while something else is under way is refused', async () => {
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

test('a port that another program holds makes the service unstable, says so, and heals by itself', async () => {
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

test('forks have none; a delete leaves none, a restore brings it back', async () => {
  const service = await createPooled('parent');
  const { endpoint } = await poolerOf(service);
  const forked = await post(service, 'forkService', { fork_strategy: 'NOW' });
  expect(forked.status).toBe(202);
  expect(forked.body).not.toHaveProperty('connection_pooler');
  const { pooler } = await pathsOf(service);
  expect((await cloud.request('DELETE', `/services/${service.service_id}`)).status).toBe(202);
  await expect
    .poll(async () => (await cloud.request('GET', `/services/${service.service_id}`)).status, {
      timeout: 60_000,
    })
    .toBe(404);
  expect(await findDaemon(pooler)).toBeNull();
  expect(await listens(endpoint.port)).toBe(false);
  expect((await post(service, 'restore')).status).toBe(202);
  await cloud.until(service.service_id, 'READY');
  expect((await poolerOf(service)).endpoint).toEqual(endpoint);
  await (await through(service, 'tsdb')).end();
});

// ── what dies ────────────────────────────────────────────────────────────────────────────────────────────────────

test('PgBouncer killed or stopped by a signal is started again; sessions beside it do not notice', async () => {
  const service = await createPooled('killed');
  const direct = await connectTo(cloud, service, service.initial_password);
  for (const name of ['SIGKILL', 'SIGSTOP'] as const) {
    const before = await pgbouncerOf(service);
    signal(before.pid, name);
    await pgbouncerOf(service, before);
    await expect
      .poll(async () => (await through(service, 'tsdb')).end(), { timeout: 60_000 })
      .toBeUndefined();
    expect(await waitUntilGone(before, 0)).toBe(true);
  }
  expect(await pidOf(direct)).toBeGreaterThan(0);
  await direct.end();
});

test('it outlives the control plane, which finds it again, and starts it when it died meanwhile', async () => {
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
  // It is watched again.
  signal(before.pid, 'SIGKILL');
  const second = await pgbouncerOf(service, before);

  await cloud.stop('SIGTERM');
  signal(second.pid, 'SIGKILL');
  expect(await waitUntilGone(second, 5000)).toBe(true);
  await cloud.up();
  await pgbouncerOf(service, second);
  await expect
    .poll(async () => (await through(service, 'tsdb')).end(), { timeout: 60_000 })
    .toBeUndefined();
  for (const client of [session, transaction]) await client.end().catch(() => undefined);
});

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
      while (total() < end && errors.length === 0) await sleep(5);
    },
    stop: async (): Promise<{ committed: number; errors: string[] }> => {
      going = false;
      await Promise.all(loops);
      for (const client of clients) await client.end().catch(() => undefined);
      return { committed: total(), errors };
    },
  };
}

test('a resize fails no transaction of the pool by transaction, and changes its limits', async () => {
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

test('a client that waits through a resize whose control plane is killed goes on when it is back', async () => {
  const service = await createPooled('interrupted');
  const client = await through(service, 'tsdb_transaction');
  const blocker = await through(service, 'tsdb_transaction');
  // The transaction keeps the resize waiting for it, with the pools held.
  await blocker.query('begin');
  await post(service, 'resize', { cpu_millis: 1000 });
  await expect
    .poll(async () =>
      (await askConsole(service, 'show databases')).some(({ paused }) => Number(paused) === 1),
    )
    .toBe(true);
  await cloud.stop('SIGKILL');
  await blocker.query('commit');
  const answer = pidOf(client);
  await cloud.up();
  expect(await answer).toBeGreaterThan(0);
  await cloud.until(service.service_id, 'READY');
  for (const each of [client, blocker]) await each.end();
});

test('a crash of PostgreSQL costs idle clients of the pool nothing', async () => {
  const service = await createPooled('crashed');
  const idle = await through(service, 'tsdb_transaction');
  const pid = await pidOf(idle);
  const server = await findServer(await pathsOf(service));
  if (server === null) throw new Error('no server');
  signal(server.postmaster.pid, 'SIGKILL');
  await expect
    .poll(async () => (await cloud.operations(service.service_id))[0]?.kind, { timeout: 60_000 })
    .toBe('repair');
  await cloud.until(service.service_id, 'READY');
  expect(await pidOf(idle)).not.toBe(pid);
  await idle.end();
});

test('clients of the pool wait for a server that cannot start', async () => {
  const service = await createPooled('waiting');
  const client = await through(service, 'tsdb_transaction');
  await cloud.stop('SIGTERM');
  const server = await findServer(await pathsOf(service));
  if (server === null) throw new Error('no server');
  signal(server.postmaster.pid, 'SIGKILL');
  expect(await waitUntilGone(server.postmaster, 5000)).toBe(true);
  const holder = createServer();
  await new Promise<void>((resolve) => holder.listen(service.endpoint.port, '127.0.0.1', resolve));
  await cloud.up();
  await expect
    .poll(
      async () =>
        (await askConsole(service, 'show databases')).filter(({ paused }) => Number(paused) === 1)
          .length,
      {
        timeout: 60_000,
      },
    )
    .toBe(2);
  const answer = pidOf(client);
  await expect
    .poll(async () =>
      (await askConsole(service, 'show pools')).some((pool) => Number(pool['cl_waiting']) > 0),
    )
    .toBe(true);
  await new Promise((resolve) => holder.close(resolve));
  expect(await answer).toBeGreaterThan(0);
  await client.end();
});

test('a new certificate is taken up, and sessions stay', async () => {
  const service = await createPooled('renewed');
  const { config } = await pathsOf(service);
  const session = await through(service, 'tsdb');
  const before = fingerprintOf(session);
  const pid = await pidOf(session);
  await rm(join(config, 'server.crt'));
  await untilLookedAt(service, true);
  const after = await through(service, 'tsdb');
  expect(fingerprintOf(after)).not.toBe(before);
  await after.end();
  expect(await pidOf(session)).toBe(pid);
  await session.end();
});

/** Of the certificate that a client was shown, which it keeps after its end. */
function fingerprintOf(client: Client): string {
  const { stream } = client.connection;
  if (!(stream instanceof TLSSocket)) throw new Error('no TLS');
  return stream.getPeerX509Certificate()?.fingerprint256 ?? '';
}

test("nobody else is promised a pooler's port, not even while the pooler is disabled", async () => {
  const service = await createPooled('promised');
  const { endpoint } = await poolerOf(service);
  await post(service, 'disablePooler');
  const { db, close } = await openMetadata(cloud.home);
  const { region_code: region } = service;
  const ask = (ports: [number, number]) =>
    db.transaction().execute((tx) => takeNextPort(tx, region, ports, null));
  expect(await ask([endpoint.port, endpoint.port])).toBeNull();
  expect(await ask([service.endpoint.port, service.endpoint.port])).toBeNull();
  await db
    .updateTable('services')
    .set({ pooler_port: service.endpoint.port })
    .where('id', '=', service.service_id)
    .execute();
  const both = `port ${service.endpoint.port} is promised to service ${service.service_id} and to the pooler of service ${service.service_id}`;
  expect(await cloud.audit()).toContain(both);
  await db
    .updateTable('services')
    .set({ pooler_port: endpoint.port })
    .where('id', '=', service.service_id)
    .execute();
  await close();
});

// ── the audit ────────────────────────────────────────────────────────────────────────────────────────────────────

test('the audit misses a pooler that does not run, and finds one that nobody wants', async () => {
  const service = await createPooled('audited');
  const id = service.service_id;
  const { endpoint } = await poolerOf(service);
  expect(await cloud.audit()).toEqual([]);
  const metadata = await openMetadata(cloud.home);
  const set = async (pooler: boolean) => {
    await metadata.db.updateTable('services').set({ pooler }).where('id', '=', id).execute();
  };
  // The metadata database's database outlives the control plane, which would write the document again with the next figures.
  await cloud.stop('SIGKILL');
  await set(false);
  const problems = await cloud.audit();
  expect(problems).toContain(`service ${id} is READY without a pooler, and 1 of it run`);
  expect(problems).toContain(
    `something listens on port ${endpoint.port}, the pooler's of service ${id}, which must not run`,
  );
  expect(problems).toContain(`the document of service ${id} says another pooler than its record`);
  await set(true);
  const process = await pgbouncerOf(service);
  signal(process.pid, 'SIGKILL');
  expect(await waitUntilGone(process, 5000)).toBe(true);
  expect(await cloud.audit()).toEqual(
    expect.arrayContaining([
      `service ${id} is READY with a pooler, and 0 of it run`,
      `service ${id} is READY and nothing listens on its pooler's port ${endpoint.port}`,
    ]),
  );
  await cloud.up();
  await pgbouncerOf(service);
  await metadata.close();
  await expect.poll(() => cloud.audit(), { timeout: 60_000 }).toEqual([]);
});
