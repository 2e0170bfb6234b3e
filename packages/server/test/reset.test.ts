/** Resets of forks: the data of the parent comes back in their place. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import {
  cloud,
  fork,
  insert,
  namesIn,
  setUp,
  tearDown,
  untilAfter,
  withClient,
  type ServiceAccess,
} from './forks-data.ts';
import { createLayout, findProgram } from './probe.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(() => cloud.tidy());
afterAll(tearDown);

const hasGateways = (await findProgram('haproxy')) !== null;

const DONE = { kind: 'reset', status: 'succeeded' };

const ask = (service: ServiceAccess, body: object) =>
  cloud.request('POST', `/services/${service.service_id}/reset`, body);

/** Resets a fork and waits for the end of the operation. */
async function reset(service: ServiceAccess, body: object = {}) {
  const { status, body: answer } = await ask(service, body);
  expect(status, JSON.stringify(answer)).toBe(202);
  return ended(service);
}

async function ended(service: ServiceAccess) {
  await until('the reset has ended', async () => {
    const [operation] = await cloud.operations(service.service_id);
    return operation?.kind === 'reset' && operation.finished !== null;
  });
  const [operation] = await cloud.operations(service.service_id);
  if (operation === undefined) throw new Error('no operation');
  return operation;
}

const parentOf = async (name: string): Promise<ServiceAccess> => {
  const parent = await cloud.create({ name, service_type: 'POSTGRES' });
  await insert(parent, 'before');
  return parent;
};

const asideOf = async ({ service_id: id }: ServiceAccess): Promise<string[]> =>
  readdir(createLayout(join(cloud.home, 'data')).aside(id)).catch(() => []);

describe('a reset', () => {
  test('to now has the present data of the parent, at the same URL', async () => {
    const parent = await parentOf('origin');
    const child = await fork(parent, { fork_strategy: 'NOW', ttl_seconds: 86_400 });
    await insert(child, 'in the fork');
    await insert(parent, 'later');
    const client = await connectTo(cloud, child, child.initial_password);
    const operation = await reset(child);
    expect(operation).toMatchObject(DONE);
    await expect(client.query('select 1')).rejects.toThrow();
    expect(operation.steps.map(({ name }) => name)).toEqual([
      'clone parent, beside the service',
      'exchange data',
      'start PostgreSQL',
    ]);
    expect(operation.not_carried?.[0]).toContain('everything that was written to the fork');
    expect(await namesIn(child)).toEqual(['before', 'later']);
    const after = await cloud.get(child.service_id);
    expect(after).toMatchObject({
      status: 'READY',
      name: child.name,
      endpoint: child.endpoint,
      resources: child.resources,
      expires_at: child.expires_at,
    });
    expect(after.upgraded).toBeUndefined();
    await insert(child, 'again in the fork');
    expect(await namesIn(parent)).toEqual(['before', 'later']);
    await untilExpected('nothing of the former data is left', async () =>
      expect(await asideOf(child)).toEqual([]),
    );
    // Another time, over what the first one has made.
    expect(await reset(child, { target: 'NOW' })).toMatchObject(DONE);
    expect(await namesIn(child)).toEqual(['before', 'later']);
  });

  test('keeps the password that a user has set last, and no role of the fork', async () => {
    const parent = await parentOf('secret');
    const child = await fork(parent, { fork_strategy: 'NOW' });
    await withClient(child, (client) =>
      client.query("create role mine; alter role tsdbadmin password 'set by a statement'"),
    );
    const known = { ...child, initial_password: 'set by a statement' };
    expect(await reset(known)).toMatchObject(DONE);
    expect(await namesIn(known)).toEqual(['before']);
    await withClient(known, async (client) => {
      const { rows } = await client.query("select from pg_roles where rolname = 'mine'");
      expect(rows).toEqual([]);
    });
    await expect(connectTo(cloud, child, child.initial_password)).rejects.toThrow(/password/);
    await expect(connectTo(cloud, child, parent.initial_password)).rejects.toThrow(/password/);
  });

  test('to its beginning, also of a paused fork, has that state of the parent', async () => {
    const parent = await parentOf('history');
    await untilAfter(await insert(parent, 'at the beginning'));
    const child = await fork(parent, { fork_strategy: 'NOW' });
    await untilAfter(new Date().toISOString());
    await insert(parent, 'later');
    await insert(child, 'in the fork');
    await cloud.request('POST', `/services/${child.service_id}/stop`);
    await cloud.until(child.service_id, 'PAUSED');
    expect(await reset(child, { target: 'BEGINNING' })).toMatchObject(DONE);
    expect(await namesIn(child)).toEqual(['before', 'at the beginning']);
  });

  test('to a moment has that state of the parent, and a past of its own from then on', async () => {
    const parent = await parentOf('moments');
    const child = await fork(parent, { fork_strategy: 'NOW' });
    const moment = await insert(parent, 'at the moment');
    await untilAfter(moment);
    await insert(parent, 'after the moment');
    await insert(child, 'in the fork');
    const asked = { target: 'PITR', target_time: moment };
    expect(await reset(child, asked)).toMatchObject(DONE);
    expect(await namesIn(child)).toEqual(['before', 'at the moment']);
    await insert(child, 'after the reset');
    await cloud.round('snapshots');
    const grandchild = await fork(child, { fork_strategy: 'LAST_SNAPSHOT' });
    expect(await namesIn(grandchild)).toEqual(['before', 'at the moment', 'after the reset']);
  });

  test('goes on after the control plane was killed in the middle of it', async () => {
    const parent = await parentOf('killed');
    const child = await fork(parent, { fork_strategy: 'NOW' });
    await insert(child, 'in the fork');
    expect((await ask(child, {})).status).toBe(202);
    await until('its first step has begun', async () => {
      const [operation] = await cloud.operations(child.service_id);
      return operation?.kind === 'reset' && operation.status !== 'queued';
    });
    await cloud.stop('SIGKILL');
    await cloud.up();
    expect(await ended(child)).toMatchObject(DONE);
    expect(await namesIn(child)).toEqual(['before']);
  });

  test.skipIf(!hasGateways)('makes the standbys of a fork again', { tags: 'slow' }, async () => {
    const parent = await parentOf('highly');
    const child = await fork(parent, { fork_strategy: 'NOW' });
    await cloud.request('POST', `/services/${child.service_id}/setHA`, {
      replica_count: 1,
      sync_replica_count: 1,
    });
    await cloud.until(child.service_id, 'READY');
    await insert(child, 'in the fork');
    expect(await reset(child)).toMatchObject(DONE);
    await cloud.until(child.service_id, 'READY');
    expect(await namesIn(child)).toEqual(['before']);
    await insert(child, 'after the reset');
  });
});

describe('a reset that fails', () => {
  test('leaves the fork as it was, with the reason', async () => {
    const parent = await parentOf('broken');
    const moment = await insert(parent, 'reachable');
    await untilAfter(moment);
    await insert(parent, 'later');
    const child = await fork(parent, { fork_strategy: 'NOW' });
    await insert(child, 'in the fork');
    const layout = createLayout(join(cloud.home, 'data'));
    const { data } = layout.service(parent.service_id);
    await cloud.request('POST', `/services/${parent.service_id}/stop`);
    await cloud.until(parent.service_id, 'PAUSED');
    const control = join(data, 'global', 'pg_control');
    // No server starts on a clone of such data.
    const whole = await readFile(control);
    await writeFile(control, Buffer.alloc(whole.length));
    const operation = await reset(child);
    await writeFile(control, whole);
    expect(operation.status).toBe('failed');
    expect(operation.error).toMatch(/PostgreSQL/);
    await cloud.until(child.service_id, 'READY');
    expect(await namesIn(child)).toEqual(['before', 'reachable', 'later', 'in the fork']);
    expect(await reset(child)).toMatchObject(DONE);
    expect(await namesIn(child)).toEqual(['before', 'reachable', 'later']);
  });
});

test('a refused reset says why, and which command helps', async () => {
  const parent = await parentOf('refuser');
  const child = await fork(parent, { fork_strategy: 'NOW', storage_gb: 10 });
  const refusals: [ServiceAccess, object, RegExp][] = [
    [parent, {}, /it is no fork.*howdah service fork/],
    [child, { target: 'NOW', target_time: '2026-01-01T00:00:00Z' }, /goes with PITR only/],
    [child, { target: 'BEGINNING', target_time: '2026-01-01T00:00:00Z' }, /goes with PITR only/],
    [child, { target: 'PITR' }, /PITR takes a date-time/],
    [child, { target: 'PITR', target_time: '2020-01-01T00:00:00Z' }, /outside the window/],
    [child, { target: 'LAST_SNAPSHOT' }, /NOW, BEGINNING/],
    [child, { fork_strategy: 'PITR' }, /fork_strategy/],
  ];
  for (const [service, body, why] of refusals) {
    const { status, body: answer } = await ask(service, body);
    expect(status, JSON.stringify(body)).toBe(400);
    expect(JSON.stringify(answer)).toMatch(why);
  }
  await cloud.request('POST', `/services/${child.service_id}/setEnvironment`, {
    environment: 'PROD',
  });
  const unnamed = await ask(child, {});
  expect(unnamed).toMatchObject({ status: 400 });
  expect(JSON.stringify(unnamed.body)).toContain('a PROD service needs its name');
  expect(await reset(child, { confirm: child.name })).toMatchObject(DONE);
  await cloud.request('DELETE', `/services/${parent.service_id}`);
  await until('the parent is deleted', async () => {
    const { status } = await cloud.request('GET', `/services/${parent.service_id}`);
    return status === 404;
  });
  for (const target of ['NOW', 'BEGINNING']) {
    const { status, body } = await ask(child, { target, confirm: child.name });
    expect(status).toBe(400);
    expect(JSON.stringify(body)).toMatch(/was deleted; howdah service restore/);
  }
  await cloud.request('DELETE', `/services/${parent.service_id}?purge=true`);
  await until('the parent is gone', async () =>
    JSON.stringify((await ask(child, { confirm: child.name })).body).includes('gone for good'),
  );
});
