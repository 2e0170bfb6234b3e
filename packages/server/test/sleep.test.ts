/** Services that fall asleep while nobody uses them, and are woken by the next client. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connect, createServer } from 'node:net';
import type { Schemas } from '@howdah/client';
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import { until, untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterEach(() => cloud.tidy());
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

type Made = Schemas['Service'] & { initial_password: string };

/** The shortest time: what is tested is what happens then. */
const AFTER_S = 5;

const make = (name: string, more: Partial<Schemas['CreateService']> = {}): Promise<Made> =>
  cloud.create({
    name,
    service_type: 'POSTGRES',
    cpu_millis: 'shared',
    memory_gbs: 'shared',
    auto_suspend_seconds: AFTER_S,
    ...more,
  });

const directoryOf = (id: string): string => join(cloud.home, 'data', 'services', id);
const readNumber = async (path: string): Promise<number> =>
  Number(await readFile(path, 'utf8').catch(() => '0'));
/** Without a server there is no pid file. */
const hasServer = (id: string): boolean => existsSync(join(directoryOf(id), 'pid'));

const untilAsleep = (id: string): Promise<unknown> =>
  until(`${id} sleeps`, async () => {
    await cloud.round('suspensions');
    return (await cloud.get(id)).suspended === true;
  });

const untilAwake = (id: string): Promise<unknown> =>
  until(`${id} is awake`, async () => (await cloud.get(id)).suspended !== true);

async function select<Row extends object>(made: Made, sql: string): Promise<Row[]> {
  const client = await connectTo(cloud, made, made.initial_password);
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}

const awakeOf = async (id: string): Promise<Schemas['Awake']> => {
  const path = { project_id: cloud.projectId, service_id: id };
  const { data } = await cloud.client.GET('/projects/{project_id}/services/{service_id}/awake', {
    params: { path },
  });
  if (data === undefined) throw new Error('no answer');
  return data;
};

const setAutoSuspend = (id: string, seconds: number | null) =>
  cloud.request('POST', `/services/${id}/setAutoSuspend`, { auto_suspend_seconds: seconds });

test('it falls asleep, is woken by a client, and keeps what was written', async () => {
  const made = await make('naps');
  const { service_id: id } = made;
  expect(made).toMatchObject({ auto_suspend_seconds: AFTER_S });
  await select(made, 'create table kept as select 1 as n');
  await untilAsleep(id);
  expect(hasServer(id)).toBe(false);
  expect(await cloud.get(id)).toMatchObject({ status: 'READY', suspended: true });
  expect((await cloud.get(id)).last_active_at).toBeDefined();
  expect(await awakeOf(id)).toMatchObject({ suspended: true, held_by: [] });
  expect(await select(made, 'select n from kept')).toEqual([{ n: 1 }]);
  await untilAwake(id);
  // Nothing was asked for: there is no operation but the create.
  expect((await cloud.operations(id)).map(({ kind }) => kind)).toEqual(['create']);
});

test('fifty clients at once are served by one start', async () => {
  const made = await make('crowd');
  await untilAsleep(made.service_id);
  const starts = await Promise.all(
    Array.from({ length: 50 }, () =>
      select<{ at: string }>(made, 'select pg_postmaster_start_time()::text as at'),
    ),
  );
  expect(new Set(starts.flat().map(({ at }) => at)).size).toBe(1);
});

/** Sends bytes to the endpoint, and waits for its end. */
async function send({ endpoint }: Made, bytes: Buffer): Promise<string> {
  const socket = connect(endpoint.port, endpoint.host);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk)).on('error', () => undefined);
  socket.end(bytes);
  await once(socket, 'close');
  return Buffer.concat(chunks).toString('latin1');
}

const CANCEL = Buffer.from('\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x01', 'latin1');
const PLAIN = Buffer.from('\0\0\0\x17\0\x03\0\0user\0tsdbadmin\0\0', 'latin1');

test('probes, a cancel and a client without TLS do not wake it', async () => {
  const made = await make('probed');
  await untilAsleep(made.service_id);
  for (const [bytes, answer] of [
    [Buffer.alloc(0), /^$/],
    [Buffer.from('GET / HTTP/1.1\r\n\r\n'), /^$/],
    [CANCEL, /^$/],
    [PLAIN, /TLS is required/],
  ] as const) {
    expect(await send(made, bytes)).toMatch(answer);
    // At once: a server that was woken in vain falls asleep again.
    expect(hasServer(made.service_id)).toBe(false);
  }
  await cloud.round('suspensions', 2);
  expect(hasServer(made.service_id)).toBe(false);
  expect(await cloud.get(made.service_id)).toMatchObject({ suspended: true });
});

/** A session that stays, as that of a pool whose owner wants it so. */
async function stay(made: Made, statement: string): Promise<Client> {
  const options = '-c idle_session_timeout=0 -c application_name=pool';
  const client = await connectTo(cloud, made, made.initial_password, { options });
  await client.query(statement);
  return client;
}

test('an idle session ends; one that its owner keeps holds it awake, and is named', async () => {
  const made = await make('held');
  const { service_id: id } = made;
  const idle = await connectTo(cloud, made, made.initial_password);
  const problem = new Promise((resolve) => idle.once('error', resolve));
  const listener = await stay(made, 'listen news');
  // idle_session_timeout
  expect(await problem).toMatchObject({ code: '57P05' });
  expect(await awakeOf(id)).toMatchObject({
    suspended: false,
    held_by: [{ kind: 'session', name: 'pool', user: 'tsdbadmin', listens: true, state: 'idle' }],
  });
  const { stdout } = await cloud.cli('service', 'awake', 'held');
  expect(stdout).toContain('session (LISTEN)');
  await listener.end();
  await untilAsleep(id);
});

test('a replication slot holds it awake', async () => {
  const made = await make('slotted');
  const { service_id: id } = made;
  await select(made, "select pg_create_logical_replication_slot('feed', 'pgoutput')");
  await until('its time is over', async () => {
    const { last_active_at: at } = await awakeOf(id);
    return at !== undefined && Date.parse(at) + AFTER_S * 1000 < Date.now();
  });
  await cloud.round('suspensions', 2);
  expect(await awakeOf(id)).toMatchObject({
    suspended: false,
    held_by: [{ kind: 'replication_slot', name: 'feed' }],
  });
  await select(made, "select pg_drop_replication_slot('feed')");
  await untilAsleep(id);
});

test('a query, a password and a change wake it; a fork does not need it', async () => {
  const made = await make('asked');
  const { service_id: id } = made;
  await untilAsleep(id);
  const sql = { sql: 'select 1 as one' };
  expect(await cloud.request('POST', `/services/${id}/query`, sql)).toMatchObject({ status: 200 });
  await untilAsleep(id);
  const password = 'a new password of 2026';
  const changed = await cloud.request('POST', `/services/${id}/updatePassword`, { password });
  expect(changed.status).toBeLessThan(300);
  const renewed = { ...made, initial_password: password };
  expect(await select(renewed, 'select 1 as one')).toEqual([{ one: 1 }]);
  await untilAsleep(id);
  const fork = { fork_strategy: 'NOW', name: 'asked-fork' };
  const { body } = await cloud.request('POST', `/services/${id}/forkService`, fork);
  expect(body).toMatchObject({ auto_suspend_seconds: AFTER_S });
  await untilExpected('the fork is ready', async () =>
    expect((await cloud.operations()).filter(({ kind }) => kind === 'fork')).toMatchObject([
      { status: 'succeeded' },
    ]),
  );
  await untilAsleep(id);
  await cloud.request('POST', `/services/${id}/resize`, { cpu_millis: 500, memory_gbs: 2 });
  await cloud.until(id, 'READY');
  expect(hasServer(id)).toBe(true);
  await untilAsleep(id);
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  await expect(select(renewed, 'select 1')).rejects.toThrow(/ECONNREFUSED/);
  await cloud.request('POST', `/services/${id}/start`);
  await cloud.until(id, 'READY');
  expect(await select(renewed, 'select 1 as one')).toEqual([{ one: 1 }]);
});

test('without a control plane it is woken, and the next one finds it awake', async () => {
  const made = await make('alone');
  const { service_id: id } = made;
  await untilAsleep(id);
  await cloud.stop('SIGKILL');
  expect(await select(made, 'select 1 as one')).toEqual([{ one: 1 }]);
  await cloud.up();
  await untilAwake(id);
  await untilAsleep(id);
  await cloud.stop('SIGTERM');
  await cloud.up();
  await cloud.round('deaths', 2);
  expect(await cloud.get(id)).toMatchObject({ status: 'READY', suspended: true });
  expect(hasServer(id)).toBe(false);
  expect((await cloud.operations(id)).map(({ kind }) => kind)).toEqual(['create']);
});

test('an activator that is killed comes back, and nobody is woken by that', async () => {
  const made = await make('guarded');
  const { service_id: id } = made;
  await untilAsleep(id);
  const pidFile = join(cloud.home, 'data', 'activator.pid');
  const before = await readNumber(pidFile);
  process.kill(before, 'SIGKILL');
  await until('another activator runs', async () => (await readNumber(pidFile)) !== before);
  await until('its endpoint is open', async () => (await send(made, PLAIN)).includes('TLS'));
  expect(hasServer(id)).toBe(false);
  expect(await select(made, 'select 1 as one')).toEqual([{ one: 1 }]);
});

test('a client reads that its server does not start, and the operator why', async () => {
  const made = await make('broken');
  const { service_id: id } = made;
  await untilAsleep(id);
  await cloud.stop('SIGKILL');
  const conf = await readFile(join(directoryOf(id), 'config', 'postgresql.conf'), 'utf8');
  const blocker = createServer().listen(Number(/^port = (\d+)$/m.exec(conf)?.[1]), '127.0.0.1');
  await once(blocker, 'listening');
  await expect(select(made, 'select 1')).rejects.toThrow(
    /this service slept, and it did not start$/,
  );
  await cloud.up();
  await untilExpected('the log says why', async () =>
    expect(await readFile(join(cloud.home, 'logs', 'control.log'), 'utf8')).toMatch(
      new RegExp(`"service":"${id}".*is held by another program`),
    ),
  );
  blocker.close();
  await once(blocker, 'close');
  await cloud.until(id, 'READY');
  expect(await select(made, 'select 1 as one')).toEqual([{ one: 1 }]);
});

test('the first time and never restart it; parts that need its server are refused', async () => {
  const made = await make('changes', { auto_suspend_seconds: null });
  const { service_id: id } = made;
  const dry = await cloud.request('POST', `/services/${id}/setAutoSuspend?dry_run=true`, {
    auto_suspend_seconds: AFTER_S,
  });
  expect((await setAutoSuspend(id, AFTER_S)).status).toBe(202);
  await cloud.until(id, 'READY');
  const [done] = await cloud.operations(id);
  expect(done?.steps?.map(({ name }) => name)).toContain('prepare endpoint');
  expect(dry.body).toMatchObject({ operation: { steps: done?.steps?.map(({ name }) => name) } });
  expect(await select(made, 'select 1 as one')).toEqual([{ one: 1 }]);
  for (const [path, body] of [
    ['enablePooler', undefined],
    ['setHA', { replica_count: 1 }],
    ['replicaSets', { name: 'set', nodes: 1, cpu_millis: 500, memory_gbs: 2 }],
  ] as const) {
    const refused = await cloud.request('POST', `/services/${id}/${path}`, body);
    expect([400, 409, 503], path).toContain(refused.status);
    expect(JSON.stringify(refused.body), path).toMatch(/may fall asleep|not installed/);
  }
  await untilAsleep(id);
  // Another time needs no step.
  expect((await setAutoSuspend(id, 3600)).status).toBe(202);
  expect(await cloud.get(id)).toMatchObject({ suspended: true, auto_suspend_seconds: 3600 });
  expect((await setAutoSuspend(id, null)).status).toBe(202);
  const awake = await cloud.until(id, 'READY');
  expect(awake.auto_suspend_seconds).toBeUndefined();
  const [row] = await select<{ address: string }>(
    made,
    "select current_setting('port') as address",
  );
  expect(row?.address).toBe(String(made.endpoint.port));
});

test('clients of other networks neither enter nor wake it', async () => {
  const made = await make('listed');
  const { service_id: id } = made;
  const list = await cloud.request('POST', '/allow-lists', {
    description: 'elsewhere',
    cidr_blocks: ['192.0.2.0/24'],
  });
  expect(list.status).toBe(201);
  const allow_list_id = String(Reflect.get(Object(list.body), 'allow_list_id'));
  const session = await stay(made, 'select 1');
  const ended = new Promise((resolve) => session.once('end', () => resolve(true)));
  await cloud.request('POST', `/services/${id}/attachToAllowList`, { allow_list_id });
  await cloud.until(id, 'READY');
  await ended;
  await untilAsleep(id);
  await expect(select(made, 'select 1')).rejects.toThrow();
  expect(hasServer(id)).toBe(false);
  const detached = await cloud.request('POST', `/services/${id}/detachFromAllowList`, {
    allow_list_id,
  });
  expect(detached.status).toBe(202);
  await cloud.until(id, 'READY');
  expect(await select(made, 'select 1 as one')).toEqual([{ one: 1 }]);
  await cloud.request('DELETE', `/allow-lists/${allow_list_id}`);
});

test('the usage of each service is listed with the reason, a page at a time', async () => {
  const [sleeper, deleted] = [await make('takes-disk'), await make('in-the-bin')];
  const { data: forked } = await cloud.client.POST(
    '/projects/{project_id}/services/{service_id}/forkService',
    {
      params: { path: { project_id: cloud.projectId, service_id: sleeper.service_id } },
      body: { fork_strategy: 'NOW', name: 'its-fork', auto_suspend_seconds: null },
    },
  );
  const fork = forked?.service_id ?? '';
  await cloud.until(fork, 'READY');
  await cloud.request('DELETE', `/services/${deleted.service_id}`);
  await untilAsleep(sleeper.service_id);

  const params = { path: { project_id: cloud.projectId } };
  const { data: all = [] } = await cloud.client.GET('/projects/{project_id}/usage', { params });
  const of = (id: string) => all.find(({ service_id: other }) => other === id);
  expect(of(sleeper.service_id)).toMatchObject({
    suspended: true,
    servers: 1,
    memory_mb: null,
    why: expect.stringContaining('disk only'),
  });
  const { own_mb: own, shared_mb: shared } = of(sleeper.service_id) ?? {};
  expect((own ?? 0) + (shared ?? 0)).toBeGreaterThan(5);
  expect(of(fork)).toMatchObject({
    forked_from: sleeper.service_id,
    key_name: expect.any(String),
    why: expect.stringContaining("howdah service set-expiry 'its-fork'"),
  });
  await until('it is deleted', async () => {
    const { data = [] } = await cloud.client.GET('/projects/{project_id}/usage', { params });
    return data.some(({ service_id: id, why }) => {
      return id === deleted.service_id && why.includes('howdah service purge');
    });
  });

  // Nobody reads of another project.
  const { data: other } = await cloud.client.POST('/projects', { body: { name: 'another' } });
  const path = { project_id: other?.id ?? '' };
  const { data: none } = await cloud.client.GET('/projects/{project_id}/usage', {
    params: { path },
  });
  expect(none).toEqual([]);

  const first = await cloud.request('GET', '/usage?limit=1');
  expect(first.body).toHaveLength(1);
  expect(first.headers.get('link')).toContain('rel="next"');
});
