/** Services that are deleted by themselves, and keys that bound what they make. */
import { createClient, type Schemas } from '@howdah/client';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { callerOf, type Service } from './harness-caller.ts';
import type { Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { share } from './shared.ts';
import { until, untilExpected } from './until.ts';

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
beforeAll(async () => {
  cloud = await share();
  metadata = await openMetadata(cloud.home);
});
afterEach(() => cloud.tidy());
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

const HOUR_S = 3600;
const plain = (name: string, more: Partial<Schemas['CreateService']> = {}) => ({
  name,
  service_type: 'POSTGRES' as const,
  ...more,
});

const setExpiry = (id: string, body: object) =>
  cloud.request('POST', `/services/${id}/setExpiry`, body);

const untilGone = (id: string) =>
  until(
    `${id} is deleted`,
    async () => (await cloud.request('GET', `/services/${id}`)).status === 404,
  );

async function idsOf(path: string): Promise<string[]> {
  const { body } = await cloud.request('GET', path);
  const services: Service[] = Array.isArray(body) ? body : [];
  return services.map(({ service_id: id }) => id);
}

const secondsUntil = (iso: string | undefined): number =>
  (Date.parse(iso ?? '') - Date.now()) / 1000;

/** Another key of the project. */
async function keyWith(body: Partial<Schemas['CreateKey']>) {
  const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
    params: { path: { project_id: cloud.projectId } },
    body: { name: 'bound', role: 'developer', ...body },
  });
  const key = `${data?.public_key}:${data?.secret_key}`;
  return { ...callerOf({ ...cloud, key }), client: createClient({ apiUrl: cloud.apiUrl, key }) };
}

test('a service is announced and deleted at its end, and restored without one', async () => {
  const service = await cloud.create(plain('brief', { ttl_seconds: 8 * HOUR_S }));
  const { service_id: id } = service;
  expect(secondsUntil(service.expires_at)).toBeGreaterThan(7 * HOUR_S);
  const eventsOf = () =>
    metadata.db
      .selectFrom('events')
      .select('doc')
      .where('type', '=', 'service.expiring')
      .where('doc', 'like', `%${id}%`)
      .execute();
  await cloud.round('expiries');
  expect(await eventsOf()).toEqual([]);

  // The event is due now, as an hour before the end.
  const moment = new Date();
  const due = metadata.db.updateTable('services').where('id', '=', id);
  await due.set({ expiry_warning_at: moment }).execute();
  await cloud.round('expiries', 2);
  expect(await eventsOf()).toMatchObject([{ doc: expect.stringContaining('"brief"') }]);
  expect((await cloud.get(id)).status).toBe('READY');

  await setExpiry(id, { ttl_seconds: 1 });
  await untilGone(id);
  expect(await idsOf('/deletedServices')).toContain(id);
  const [operation] = await cloud.operations(id);
  expect(operation).toMatchObject({ kind: 'delete', requested_by: 'howdah' });
  const { body: audit } = await cloud.request('GET', `/audit?call=expireService&service_id=${id}`);
  expect(audit).toMatchObject([{ public_key: 'howdah', service_id: id }]);

  expect((await cloud.request('POST', `/services/${id}/restore`)).status).toBe(202);
  const restored = await cloud.until(id, 'READY');
  expect(restored.expires_at).toBeUndefined();
});

test('an expiry with a purge leaves nothing to restore, also of a paused service', async () => {
  const { service_id: id } = await cloud.create(plain('forgotten', { ttl_seconds: HOUR_S }));
  await cloud.request('POST', `/services/${id}/stop`);
  const { status } = await setExpiry(id, { ttl_seconds: 1, purge_on_expiry: true });
  expect(status).toBe(200);
  await untilGone(id);
  expect(await idsOf('/deletedServices')).not.toContain(id);
});

test('an end is moved and taken away before it comes, by API and command line', async () => {
  const { service_id: id } = await cloud.create(plain('longer', { ttl_seconds: HOUR_S }));
  const extended = await cloud.cli('service', 'extend', 'longer', '1d', '-o', 'json');
  expect(extended.code, extended.stderr).toBe(0);
  const seconds = secondsUntil((await cloud.get(id)).expires_at);
  expect(seconds).toBeGreaterThan(24 * HOUR_S);
  expect((await cloud.cli('service', 'set-expiry', 'longer', 'never')).code).toBe(0);
  expect((await cloud.get(id)).expires_at).toBeUndefined();
  const nothing = await cloud.cli('service', 'extend', 'longer', '1h');
  expect(nothing.stderr).toContain('howdah service set-expiry longer +1h');
  for (const body of [{}, { ttl_seconds: 0 }, { expires_at: '2020-01-31T12:00:00Z' }])
    expect((await setExpiry(id, body)).status).toBe(400);
});

test('a PROD service never expires: by its tag, by that of a set, or by its row', async () => {
  const refused = await cloud.request('POST', '/services', {
    ...plain('main'),
    environment_tag: 'PROD',
    ttl_seconds: HOUR_S,
  });
  expect(refused.body).toMatchObject({ message: expect.stringContaining('PROD') });
  const { service_id: id } = await cloud.create(plain('main', { ttl_seconds: HOUR_S }));
  await cloud.request('POST', `/services/${id}/setEnvironment`, { environment: 'PROD' });
  expect((await cloud.get(id)).expires_at).toBeUndefined();
  expect((await setExpiry(id, { ttl_seconds: 1 })).status).toBe(400);

  // As an older release or a hand in the database may have left it.
  const past = new Date(Date.now() - 1000);
  await metadata.db
    .updateTable('services')
    .set({ expires_at: past })
    .where('id', '=', id)
    .execute();
  await cloud.round('expiries');
  expect(await cloud.get(id)).toMatchObject({ status: 'READY' });
  expect((await cloud.get(id)).expires_at).toBeUndefined();
  await cloud.request('POST', `/services/${id}/setEnvironment?confirm=main`, {
    environment: 'DEV',
  });
});

test('a key bounds how many services it makes and how long they stay', async () => {
  const parent = await cloud.create(plain('parent'));
  const bound = await keyWith({
    fork_only: true,
    service_ttl_seconds: HOUR_S,
    max_service_ttl_seconds: 2 * HOUR_S,
    max_services: 1,
  });
  const fork = (body: object = {}) =>
    bound.request('POST', `/services/${parent.service_id}/forkService`, {
      fork_strategy: 'NOW',
      ...body,
    });
  expect((await fork({ ttl_seconds: 3 * HOUR_S })).status).toBe(403);
  const made = await fork();
  expect(made.status, JSON.stringify(made.body)).toBe(202);
  const id = (await idsOf('/services')).find((one) => one !== parent.service_id);
  if (id === undefined) throw new Error('the fork is not listed');
  await bound.until(id, 'READY');
  expect(secondsUntil((await cloud.get(id)).expires_at)).toBeLessThanOrEqual(HOUR_S);

  const second = await fork();
  expect(second).toMatchObject({
    status: 422,
    body: { details: { limit: 'max_services', allowed: 1, used: 1 } },
  });
  const path = `/services/${id}`;
  for (const [call, body] of [
    ['setExpiry', { expires_at: null }],
    ['setExpiry', { ttl_seconds: 3 * HOUR_S }],
    ['setEnvironment', { environment: 'PROD' }],
  ] as const)
    expect((await bound.request('POST', `${path}/${call}`, body)).status, call).toBe(403);
  // A service of another key is none of its business.
  const other = await bound.request('POST', `/services/${parent.service_id}/setExpiry`, {
    ttl_seconds: 1,
  });
  expect(other.status).toBe(403);

  await bound.request('DELETE', path);
  await untilGone(id);
  await untilExpected('the next fork is accepted', async () =>
    expect((await fork()).status).toBe(202),
  );
  const restored = await bound.request('POST', `${path}/restore`);
  expect(restored.status).not.toBe(202);
});

test('a key has its services fall asleep, but for PROD and those with a time', async () => {
  const key = await keyWith({ service_auto_suspend_seconds: 600 });
  const timeOf = async (path: string, body: object) => {
    const made = await key.request('POST', path, body);
    expect(made.status, JSON.stringify(made.body)).toBe(202);
    const { service_id: id, auto_suspend_seconds: seconds } = Object(made.body);
    await key.until(id, 'READY');
    return { id, seconds };
  };
  const sleeper = await timeOf('/services', plain('sleeper'));
  expect(sleeper.seconds).toBe(600);
  const fork = `/services/${sleeper.id}/forkService`;
  const now = { fork_strategy: 'NOW' };
  expect((await timeOf(fork, { ...now, auto_suspend_seconds: null })).seconds).toBeUndefined();
  expect((await timeOf(fork, { ...now, environment_tag: 'PROD' })).seconds).toBeUndefined();
});
