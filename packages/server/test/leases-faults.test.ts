/** Leases beside other changes of their service: networks, keys, resets, and too little room. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { callerOf } from './harness-caller.ts';
import { connectTo } from './harness.ts';
import {
  cloud,
  giveBack,
  inLease,
  listed,
  metadata,
  params,
  parentOf,
  setUp,
  take,
  tearDown,
  tidyUp,
  type Lease,
  type Parent,
} from './leases-cloud.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(tidyUp);
afterAll(tearDown);

/** Takes a database in a server that leases share. */
async function takeDatabase(parent: Parent, ttl_seconds = 600): Promise<Lease> {
  const [lease] = await take(parent, { reset: 'database', ttl_seconds });
  if (lease === undefined) throw new Error('a lease was asked for');
  expect(lease).toMatchObject({ ready: true, reset: 'database' });
  return lease;
}

async function runIn({ id, password }: Parent, ...statements: readonly string[]): Promise<void> {
  const client = await connectTo(cloud, await cloud.get(id), password);
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

const textOf = (body: unknown, field: string): string => String(Reflect.get(Object(body), field));

/** Asks for a change of a service, and waits until it is made. */
async function change({ id }: Parent, call: string, body: object): Promise<void> {
  const { status, body: answer } = await cloud.request('POST', `/services/${id}/${call}`, body);
  expect(status, JSON.stringify(answer)).toBe(202);
  await until(`${call} is done`, async () => {
    const [last] = await cloud.operations(id);
    return last?.finished != null;
  });
  await cloud.until(id, 'READY');
}

test('databases go into a server that is as private and large as their service now', async () => {
  const parent = await parentOf('private');
  const first = await takeDatabase(parent);
  const list = await cloud.request('POST', '/allow-lists', {
    description: 'this machine',
    cidr_blocks: ['127.0.0.0/8'],
  });
  const allow_list_id = textOf(list.body, 'allow_list_id');
  await change(parent, 'attachToAllowList', { allow_list_id });
  const listedOnly = await takeDatabase(parent);
  expect(listedOnly.service_id).not.toBe(first.service_id);
  expect(await cloud.get(listedOnly.service_id)).toMatchObject({ allow_list_id });
  expect((await takeDatabase(parent)).service_id).toBe(listedOnly.service_id);

  const { resources } = await cloud.get(parent.id);
  const storage_gb = (resources[0]?.spec.storage_gb ?? 0) + 1;
  await change(parent, 'resize', { storage_gb });
  const larger = await takeDatabase(parent);
  expect(larger.service_id).not.toBe(listedOnly.service_id);
  await change({ ...parent, id: larger.service_id }, 'resize', { storage_gb: storage_gb + 1 });
  expect((await takeDatabase(parent)).service_id).toBe(larger.service_id);
  await cloud.tidy();
  await untilExpected('the list is of no use', async () =>
    expect(await cloud.request('DELETE', `/allow-lists/${allow_list_id}`)).toMatchObject({
      status: 204,
    }),
  );
});

/** A caller with a key that is no admin key. */
async function developer() {
  const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
    params: params(),
    body: { name: 'developer', role: 'developer', max_service_ttl_seconds: 3600 },
  });
  return callerOf({ ...cloud, key: `${data?.public_key}:${data?.secret_key}` });
}

const endOf = async (id: string): Promise<number> => {
  const found = (await listed()).find((lease) => lease.id === id);
  return Date.parse(found?.expires_at ?? '');
};

test('a key extends its database in a server of another key, and ends no other', async () => {
  const parent = await parentOf('of two keys');
  const other = await takeDatabase(parent, 600);
  const { request } = await developer();
  const { body } = await request('POST', '/leases', {
    from: parent.id,
    reset: 'database',
    ttl_seconds: 60,
  });
  const [own] = await listed().then((all) => all.filter(({ id }) => id !== other.id));
  if (own === undefined) throw new Error(`no lease in ${JSON.stringify(body)}`);
  expect(own.service_id).toBe(other.service_id);
  const server = { ...parent, id: own.service_id };
  const extend = (id: string, ttl_seconds: number) =>
    request('POST', '/leases/extend', { lease_ids: [id], ttl_seconds });

  const before = await endOf(own.id);
  expect(await extend(own.id, 120)).toMatchObject({ status: 200, body: { leases: [{}] } });
  expect(await endOf(own.id)).toBeGreaterThan(before);
  // The server stays as long as its last lease.
  expect(await extend(own.id, 1200)).toMatchObject({ status: 200 });
  const ends = async () => (await cloud.get(server.id)).expires_at ?? null;
  expect(Date.parse((await ends()) ?? '')).toBe(await endOf(own.id));
  expect((await extend(own.id, 7200)).status).toBe(403);
  expect(await extend(other.id, 1)).toMatchObject({
    status: 403,
    body: { message: expect.stringContaining('another key') },
  });

  const endless = { expires_at: null };
  const changed = await cloud.request('POST', `/services/${server.id}/setExpiry`, endless);
  expect(changed.status).toBe(200);
  expect((await extend(own.id, 1800)).status).toBe(200);
  const asAdmin = { lease_ids: [own.id, other.id], ttl_seconds: 1800 };
  expect((await cloud.request('POST', '/leases/extend', asAdmin)).status).toBe(200);
  expect(await ends()).toBeNull();

  const reset = await request('POST', `/services/${server.id}/reset`, {});
  expect(reset).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('howdah lease return') },
  });
  expect(await inLease(other, 'select count(*)::int from items')).toEqual([100]);
  await giveBack([own.id, other.id]);
});

test('a lease has nothing from before a reset, if numbers of transactions come again', async () => {
  const parent = await parentOf('origin');
  const { status, body } = await cloud.request('POST', `/services/${parent.id}/forkService`, {
    fork_strategy: 'NOW',
  });
  expect(status).toBe(202);
  const fork = { id: textOf(body, 'service_id'), password: textOf(body, 'initial_password') };
  await cloud.until(fork.id, 'READY');
  // More transactions than the reset itself has.
  const burned = Array.from({ length: 100 }, () => 'select pg_current_xact_id()');
  await runIn(fork, 'delete from items', ...burned);
  const former = await takeDatabase(fork);
  expect(await inLease(former, 'select count(*)::int from items')).toEqual([0]);
  const { committed } = await metadata.db
    .selectFrom('leased_servers')
    .select('committed')
    .where('service_id', '=', former.service_id)
    .executeTakeFirstOrThrow();
  const snapshot = committed?.split(' ')[0];
  await change(fork, 'reset', {});

  const client = await connectTo(cloud, await cloud.get(fork.id), fork.password);
  await until('the numbers are as before the reset', async () => {
    await client.query('select pg_current_xact_id()');
    const { rows } = await client.query<{ now: string }>(
      'select pg_current_snapshot()::text as now',
    );
    return rows[0]?.now === snapshot;
  });
  await client.end();
  const later = await takeDatabase(fork);
  expect(later.service_id).not.toBe(former.service_id);
  expect(await inLease(later, 'select count(*)::int from items')).toEqual([100]);
});

test('databases that their server has no room for are refused, and say what has', async () => {
  const parent = await parentOf('large');
  await runIn(
    parent,
    'create unlogged table large with (fillfactor = 10, autovacuum_enabled = off) as ' +
      "select n, repeat('x', 700) as text from generate_series(1, 25000) as n",
  );
  await change(parent, 'resize', { storage_gb: 1 });
  const ask = (count: number) =>
    cloud.request('POST', '/leases', { from: parent.id, count, reset: 'database' });
  expect(await ask(4)).toMatchObject({
    status: 422,
    body: {
      message: expect.stringMatching(/lease take .*howdah service resize .* --storage-gb 2/),
      details: { limit: 'storage_gb', allowed: 1, wanted: 2 },
    },
  });
  expect(await listed()).toEqual([]);
  expect(await ask(1)).toMatchObject({ status: 201, body: { leases: [{ ready: true }] } });
  // With those that are there.
  expect(await ask(3)).toMatchObject({ status: 422, body: { details: { limit: 'storage_gb' } } });
});

test('texts that are no ids are no leases', async () => {
  for (const id of ['\u0000', 'a\u0000', '../leases', '']) {
    const extended = { lease_ids: [id], ttl_seconds: 60 };
    expect(await cloud.request('POST', '/leases/extend', extended)).toMatchObject({
      status: 200,
      body: { leases: [] },
    });
    expect(await giveBack([id])).toMatchObject({ status: 202, body: { leases: [] } });
  }
});
