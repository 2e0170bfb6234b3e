/** Leases: copies of a service that are taken for tests and returned after them. */
import { createClient, type Schemas } from '@howdah/client';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { callerOf } from './harness-caller.ts';
import { connectTo } from './harness.ts';
import {
  cloud,
  giveBack,
  inLease,
  listed,
  params,
  parentOf,
  setUp,
  take,
  tearDown,
  tidyUp,
  warmForks,
  type Lease,
} from './leases-cloud.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(tidyUp);
afterAll(tearDown);

const untilWarm = (count: number) =>
  until(`${count} forks are warm`, async () => {
    await cloud.round('warmForks');
    const warm = await warmForks();
    return warm.filter(({ reachable }) => reachable).length >= count ? warm : null;
  });

const untilGone = (id: string) =>
  until(
    `${id} is gone`,
    async () => (await cloud.request('GET', `/services/${id}`)).status === 404,
  );

test('leases have the data of their service and nothing of each other', async () => {
  const parent = await parentOf('orders');
  const [one, other] = await take(parent, { count: 2, ttl_seconds: 3600 });
  if (one === undefined || other === undefined) throw new Error('two leases were asked for');
  expect([one, other]).toMatchObject([
    { ready: true, from: parent.id, reset: 'server' },
    { ready: true, from: parent.id, reset: 'server' },
  ]);
  expect(Date.parse(one.expires_at ?? '')).toBeLessThanOrEqual(Date.now() + 3_600_000);
  await inLease(one, 'delete from items');
  await inLease(one, 'create role of_one');
  expect(await inLease(one, 'select count(*)::int from items')).toEqual([0]);
  expect(await inLease(other, 'select count(*)::int from items')).toEqual([100]);
  expect(await inLease(other, "select 1 from pg_roles where rolname = 'of_one'")).toEqual([]);
  await expect(
    inLease({ ...one, initial_password: other.initial_password ?? '' }, 'select 1'),
  ).rejects.toThrow('password');

  // No other answer has the password.
  const again = await cloud.request('GET', `/leases/${one.id}`);
  expect(again.body).toMatchObject({ id: one.id, ready: true });
  expect(JSON.stringify([again.body, await listed()])).not.toContain(one.initial_password);
  const { status, body } = await giveBack([one.id, other.id]);
  expect([status, body]).toMatchObject([202, { leases: [{ id: one.id }, { id: other.id }] }]);
  expect(await listed()).toEqual([]);
  await Promise.all([untilGone(one.id), untilGone(other.id)]);
  const { body: deleted } = await cloud.request('GET', '/deletedServices');
  expect(JSON.stringify(deleted)).not.toContain(one.id);
  // To return one twice does no harm, and to return what never was says so.
  expect(await giveBack([one.id])).toMatchObject({ status: 202, body: { leases: [] } });
  expect((await cloud.request('DELETE', `/leases/${one.id}`)).status).toBe(404);
});

test('a warm fork is taken, and never one that lacks a commit', async () => {
  const parent = await parentOf('warmed');
  const [first] = await take(parent);
  const [unseen] = await untilWarm(2);
  // Nobody sees them, and nobody gets at them.
  const { body: services } = await cloud.request('GET', '/services');
  expect(services).toHaveLength(2);
  expect((await cloud.request('GET', `/services/${unseen?.id}`)).status).toBe(404);
  // After a commit of autovacuum in a catalog, none of those that were warm is taken.
  const { before, second } = await until('a warm fork is taken', async () => {
    const warm = (await untilWarm(2)).map(({ id }) => id);
    const [taken] = await take(parent);
    if (taken === undefined) throw new Error('a lease was asked for');
    if (warm.includes(taken.id)) return { before: warm, second: taken };
    await giveBack([taken.id]);
    return null;
  });

  const change = await connectTo(cloud, await cloud.get(parent.id), parent.password);
  await change.query('alter table items add column price int');
  await change.end();
  const [third] = await take(parent);
  expect(before).not.toContain(third?.id);
  if (third === undefined) throw new Error('a lease was asked for');
  expect(await inLease(third, 'select count(price)::int from items')).toEqual([0]);
  const stale = new Set(before);
  await until('the forks from before are replaced', async () => {
    const warm = await untilWarm(2);
    return warm.every(({ id }) => !stale.has(id));
  });
  await giveBack([first, second, third].flatMap((lease) => lease?.id ?? []));
});

test('a lease ends by itself, or is extended by its runner', async () => {
  const parent = await parentOf('brief');
  const [kept, left] = await take(parent, { count: 2, ttl_seconds: 600 });
  if (kept === undefined || left === undefined) throw new Error('two leases were asked for');
  const extend = (ids: string[], ttl_seconds: number) =>
    cloud.request('POST', '/leases/extend', { lease_ids: ids, ttl_seconds });
  await extend([left.id], 1);
  await untilGone(left.id);
  const { status, body } = await extend([kept.id, left.id], 1200);
  expect([status, body]).toMatchObject([200, { leases: [{ id: kept.id }] }]);
  // The parent may go: its leases stay until their own end.
  expect((await cloud.request('DELETE', `/services/${parent.id}`)).status).toBe(202);
  await untilGone(parent.id);
  expect(await inLease(kept, 'select count(*)::int from items')).toEqual([100]);
  expect((await cloud.request('DELETE', `/leases/${kept.id}`)).status).toBe(202);
  const refused = await cloud.request('POST', '/leases', { from: parent.id });
  expect(refused.status).toBe(404);
});

test('twenty runners take at the same time, while the control plane is killed', async () => {
  const parent = await parentOf('crowded');
  const takeOnce = async (n: number): Promise<Lease> => {
    const headers = { 'Idempotency-Key': `runner-${n}-${parent.id}` };
    const ask = () => cloud.request('POST', '/leases', { from: parent.id }, headers);
    const { body } = await until(`runner ${n} has an answer`, async () => {
      const answer = await ask();
      return answer.status === 201 ? answer : null;
    });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked elsewhere
    const [lease] = (body as Schemas['Leases']).leases;
    if (lease === undefined) throw new Error('a lease was asked for');
    return lease;
  };
  const taking = Promise.all(Array.from({ length: 20 }, (_, n) => takeOnce(n)));
  await until('some are being made', async () => (await listed()).length > 5);
  await cloud.stop('SIGKILL');
  await cloud.up();
  const leases = await taking;
  expect(new Set(leases.map(({ id }) => id)).size).toBe(20);
  await untilExpected('all are ready', async () =>
    expect((await listed()).filter(({ ready }) => ready)).toHaveLength(20),
  );
  const counts = await Promise.all(
    leases.map((lease) => inLease(lease, 'select count(*)::int from items')),
  );
  expect(counts.flat()).toEqual(Array.from({ length: 20 }, () => 100));
  await giveBack(leases.map(({ id }) => id));
  await cloud.stop('SIGKILL');
  await cloud.up();
  await Promise.all(leases.map(({ id }) => untilGone(id)));
});

test('a developer does not return the lease of another key, which would be gone', async () => {
  const parent = await parentOf('shared');
  const [foreign] = await take(parent);
  const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
    params: params(),
    body: { name: 'developer', role: 'developer' },
  });
  const developer = callerOf({ ...cloud, key: `${data?.public_key}:${data?.secret_key}` });
  const lease_ids = [foreign?.id];
  expect(await developer.request('POST', '/leases/return', { lease_ids })).toMatchObject({
    status: 403,
    body: { message: expect.stringContaining('gone for good') },
  });
  expect(await cloud.request('POST', '/leases/return', { lease_ids })).toMatchObject({
    status: 202,
  });
});

test('a fork-only key takes leases within its bounds, and returns its own only', async () => {
  const parent = await parentOf('guarded');
  const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
    params: params(),
    body: {
      name: 'ci',
      role: 'developer',
      fork_only: true,
      max_service_ttl_seconds: 300,
      max_services: 2,
    },
  });
  const key = `${data?.public_key}:${data?.secret_key}`;
  const ci = {
    ...callerOf({ ...cloud, key }),
    client: createClient({ apiUrl: cloud.apiUrl, key }),
  };
  const ask = (body: object) => ci.request('POST', '/leases', { from: parent.id, ...body });
  expect((await ask({ ttl_seconds: 3600 })).status).toBe(403);
  expect(await ask({ count: 3 })).toMatchObject({
    status: 422,
    body: { details: { limit: 'max_services', allowed: 2, used: 0, wanted: 3 } },
  });
  const { body } = await ask({ count: 2 });
  expect(body).toMatchObject({ leases: [{ ready: true }, { ready: true }] });
  const own = (await listed()).map(({ id, expires_at: end }) => {
    expect(Date.parse(end ?? '')).toBeLessThanOrEqual(Date.now() + 300_000);
    return id;
  });
  const [foreign] = await take(parent);
  const refused = await ci.request('DELETE', `/leases/${foreign?.id}`);
  expect(refused).toMatchObject({
    status: 403,
    body: { message: expect.stringContaining('another key') },
  });
  const extension = { lease_ids: [foreign?.id], ttl_seconds: 200 };
  expect(await ci.request('POST', '/leases/extend', extension)).toMatchObject({
    status: 403,
    body: { message: expect.stringContaining('fork_only') },
  });
  const extended = { lease_ids: [foreign?.id], ttl_seconds: 60 };
  expect((await ci.request('POST', '/leases/extend', extended)).status).toBe(403);
  const tooLong = { lease_ids: own, ttl_seconds: 3600 };
  expect((await ci.request('POST', '/leases/extend', tooLong)).status).toBe(403);
  expect((await ci.request('POST', '/leases/return', { lease_ids: own })).status).toBe(202);
  await Promise.all(own.map(untilGone));
  // Refused calls are written a moment after their answers.
  await untilExpected('each call of the key has its entry', async () => {
    const path = `/audit?call=takeLeases&public_key=${data?.public_key}`;
    const { body: entries } = await cloud.request('GET', path);
    const statuses = Array.isArray(entries) ? entries.map(({ status }) => Number(status)) : [];
    expect(statuses.toSorted((a, b) => a - b)).toEqual([201, 201, 403, 422]);
  });
});

test('databases in a shared server have the data, and reach nothing of each other', async () => {
  const parent = await parentOf('shared');
  const [one, other] = await take(parent, { count: 2, reset: 'database', ttl_seconds: 3600 });
  if (one === undefined || other === undefined) throw new Error('two leases were asked for');
  expect([one, other]).toMatchObject([
    { ready: true, reset: 'database', service_id: other.service_id },
    { ready: true, reset: 'database', service_id: one.service_id },
  ]);
  await inLease(one, 'delete from items');
  await inLease(one, 'alter table items add column note text');
  expect(await inLease(other, 'select count(*)::int from items')).toEqual([100]);
  // Every role of a service reaches postgres, where nobody can keep anything.
  for (const database of [other.database, 'tsdb', 'template1', '_howdah_lease'])
    await expect(inLease({ ...one, database }, 'select 1'), database).rejects.toThrow();
  const superuser = 'select rolsuper or rolcreaterole or rolcreatedb from pg_roles';
  expect(await inLease(one, `${superuser} where rolname = current_user`)).toEqual([false]);
  await expect(inLease(one, 'set role tsdbadmin')).rejects.toThrow('permission denied');

  // The next one goes into the same server, until the service has another commit.
  const [third] = await take(parent, { reset: 'database' });
  expect(third?.service_id).toBe(one.service_id);
  const change = await connectTo(cloud, await cloud.get(parent.id), parent.password);
  await change.query('insert into items values (101)');
  await change.end();
  const [fourth] = await take(parent, { reset: 'database' });
  if (fourth === undefined) throw new Error('a lease was asked for');
  expect(fourth.service_id).not.toBe(one.service_id);
  expect(await inLease(fourth, 'select count(*)::int from items')).toEqual([101]);

  // Sessions do not keep a database from being dropped, nor does a crash in between.
  const { role: user, database, initial_password: password = '' } = one;
  const session = await connectTo(cloud, one, password, { user, database });
  await giveBack([one.id]);
  await cloud.stop('SIGKILL');
  await cloud.up();
  await until('the session is ended', () =>
    session.query('select 1').then(
      () => false,
      () => true,
    ),
  );
  await session.end().catch(() => undefined);
  await untilExpected('its role is gone', async () =>
    expect(await inLease(other, `select 1 from pg_roles where rolname = '${user}'`)).toEqual([]),
  );
  expect((await listed()).map(({ id }) => id)).not.toContain(one.id);
  await cloud.request('POST', '/leases/extend', { lease_ids: [other.id], ttl_seconds: 1 });
  await untilExpected('the database of the other ends by itself', async () =>
    expect((await listed()).map(({ id }) => id)).not.toContain(other.id),
  );
  expect(await cloud.get(one.service_id)).toMatchObject({ status: 'READY' });
});
