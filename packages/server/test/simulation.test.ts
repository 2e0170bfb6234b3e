/** The simulated region, as somebody uses it to test a program that calls the API. */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install({ HOWDAH_SIMULATED_REGION: 'yes' });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});
const REGION = '/regions/simulated';

/** A call below the base URL, not below a project. */
async function call(method: string, path: string, body?: object, key = cloud.key) {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: await response.text() };
}
const script = async (value: object): Promise<void> => {
  expect(await call('PUT', `${REGION}/script`, value)).toMatchObject({ status: 200 });
};
/** Accepts a create in the simulated region. */
async function begin(name: string, more: object = {}): Promise<Service> {
  const { body } = await cloud.request('POST', '/services', {
    name,
    region_code: 'simulated',
    ...more,
  });
  return cloud.get(String(Reflect.get(Object(body), 'service_id')));
}
const statusOf = async ({ service_id: id }: Service) => (await cloud.get(id)).status;
const kindsOf = async ({ service_id: id }: Service) =>
  (await cloud.operations(id)).map(({ kind, status }) => `${kind} ${status}`);

test('the region is listed beside the real one, and is never the default', async () => {
  const { body } = await cloud.request('GET', '/regions');
  expect(body).toMatchObject([{ code: 'local' }, { code: 'simulated', engine: 'model' }]);
  expect(await cloud.create({ name: 'real', service_type: 'POSTGRES' })).toMatchObject({
    region_code: 'local',
  });
});

test('a service goes through its life without PostgreSQL, and says so', async () => {
  const service = await begin('simulated', { replica_count: 1, enable_pooler: true });
  expect(service.endpoint.host).toBe('simulated.invalid');
  const path = `/services/${service.service_id}`;
  await cloud.until(service.service_id, 'READY');
  expect(await cloud.request('POST', `${path}/query`, { sql: 'select 1' })).toMatchObject({
    status: 422,
    body: { message: expect.stringContaining('a simulated service has no PostgreSQL') },
  });
  await cloud.request('POST', `${path}/stop`);
  await cloud.until(service.service_id, 'PAUSED');
  await cloud.request('POST', `${path}/start`);
  await cloud.until(service.service_id, 'READY');
  for (const read of ['logs', 'backups', 'members'])
    expect(await cloud.request('GET', `${path}/${read}`)).toMatchObject({ status: 200 });
  await cloud.request('DELETE', `${path}?purge=true`);
  await untilExpected('the service is purged', async () =>
    expect((await cloud.request('GET', path)).status).toBe(404),
  );
});

test('an extension of an add-on cannot be disabled, whatever the type is called', async () => {
  const service = await begin('with both', { addons: ['time-series', 'ai'] });
  await cloud.until(service.service_id, 'READY');
  const path = `/services/${service.service_id}/extensions`;
  const { body } = await cloud.request('GET', path);
  const all = (Array.isArray(body) ? body : []).map((one: unknown) => Object(one));
  const kept = all.filter((one) => one.kept !== undefined).map(({ name }) => name);
  expect(kept).toEqual(['plpgsql', 'timescaledb', 'vector']);
  for (const { name } of all)
    expect((await cloud.request('DELETE', `${path}/${name}`)).status).toBe(
      kept.includes(name) ? 400 : 202,
    );
});

test('a fork has the version of its parent, or a newer one', async () => {
  const parent = await begin('of 17', { pg_version: '17' });
  await cloud.until(parent.service_id, 'READY');
  const path = `/services/${parent.service_id}/forkService`;
  const fork = (more: object) =>
    cloud.request('POST', path, { fork_strategy: 'NOW', pg_version: '18', ...more });
  const made = Object((await fork({})).body);
  expect(made).toMatchObject({ pg_version: '18' });
  await cloud.until(made.service_id, 'READY');
  expect(await cloud.get(made.service_id)).toMatchObject({ pg_version: '18' });
  for (const [more, message] of [
    [{ pg_version: '16' }, 'a fork has the version of its parent, 17, or a newer one'],
    [{ fork_strategy: 'PITR', target_time: new Date().toISOString() }, 'with the strategy PITR'],
  ] as const)
    expect(await fork(more)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(message) },
    });
  expect(await fork({ pg_version: '99' })).toMatchObject({
    status: 422,
    body: { message: expect.stringContaining('PostgreSQL 99 is not simulated') },
  });
});

test('each example of the document is a script', async () => {
  const page = await readFile(new URL('../../../docs/simulation.md', import.meta.url), 'utf8');
  const examples = [...page.matchAll(/^```json\n([^`]+)```$/gm)].map(([, json = '']) => json);
  expect(examples).toHaveLength(5);
  for (const example of examples) await script(JSON.parse(example));
  await script({});
});

test('howdah says that a service is simulated wherever it shows how to connect', async () => {
  const note = 'This service is simulated: no PostgreSQL answers at its endpoint.';
  const created = await cloud.cli('service', 'create', '--name', 'shown', '--region', 'simulated');
  expect(created).toMatchObject({ code: 0, stdout: expect.stringContaining(note) });
  const program = await cloud.cli('url', 'shown', '--for', 'pg');
  expect(program.stderr).toContain(note);
  const opened = await cloud.cli('psql', 'shown', '-c', 'select 1');
  expect(opened).toMatchObject({ code: 2, stderr: expect.stringContaining(`shown: ${note}`) });
});

test('the third create fails twice, and then succeeds', async () => {
  await script({
    failures: [{ on: 'create', nth: 3, times: 2, reason: 'no node has memory left' }],
  });
  const made = [await begin('first'), await begin('second')];
  for (const { service_id: id } of made) await cloud.until(id, 'READY');
  const third = await begin('third');
  await untilExpected('the third service is unstable', async () =>
    expect(await statusOf(third)).toBe('UNSTABLE'),
  );
  expect((await cloud.operations(third.service_id))[0]?.error).toContain('no node has memory left');
  await cloud.until(third.service_id, 'READY');
});

test('a fork of twenty minutes ends when the clock is advanced, also after a restart', async () => {
  await script({ clock: 'manual', delays_ms: { fork: 1_200_000 } });
  const parent = await begin('parent');
  await cloud.until(parent.service_id, 'READY');
  const { body } = await cloud.request('POST', `/services/${parent.service_id}/forkService`, {
    fork_strategy: 'NOW',
    name: 'fork',
  });
  const fork = String(Reflect.get(Object(body), 'service_id'));
  await untilExpected('the fork is being configured', async () =>
    expect((await cloud.get(fork)).status).toBe('CONFIGURING'),
  );
  await cloud.stop('SIGKILL');
  await cloud.up();
  expect((await cloud.get(fork)).status).not.toBe('READY');
  expect(await call('POST', `${REGION}/clock`, { seconds: 1200 })).toMatchObject({ status: 200 });
  await cloud.until(fork, 'READY');
  await script({});
});

test('a killed primary is replaced, and one without replicas repaired', async () => {
  const pair = await begin('pair', { replica_count: 1 });
  const single = await begin('single');
  for (const { service_id: id } of [pair, single]) await cloud.until(id, 'READY');
  await script({
    events: [pair, single].map(({ service_id }) => ({ service_id, event: 'kill' })),
  });
  await untilExpected('the pair has failed over', async () =>
    expect(await kindsOf(pair)).toContain('failover succeeded'),
  );
  await untilExpected('the single service is repaired', async () =>
    expect(await kindsOf(single)).toContain('repair succeeded'),
  );
});

test('only an admin key of the operator reads and sets the script, if it is one', async () => {
  const made = await cloud.request('POST', '/keys', { name: 'developer', role: 'developer' });
  const [publicKey, secret] = ['public_key', 'secret_key'].map((field) =>
    String(Reflect.get(Object(made.body), field)),
  );
  const developer = `${publicKey}:${secret}`;
  expect(await call('PUT', `${REGION}/script`, {}, developer)).toMatchObject({ status: 403 });
  // The script names services of all projects.
  expect(await call('GET', REGION, undefined, developer)).toMatchObject({ status: 403 });
  for (const wrong of [
    { delays_ms: { create: [5, 1] } },
    { delays_ms: { dance: 1 } },
    { events: [{ service_id: 'x', event: 'write', node: 1 }] },
  ])
    expect(await call('PUT', `${REGION}/script`, wrong)).toMatchObject({ status: 400 });
  expect(await call('GET', REGION)).toMatchObject({
    status: 200,
    body: expect.stringContaining('"events":'),
  });
  expect(await call('PUT', `${REGION}/script?dry_run=true`, {})).toMatchObject({ status: 200 });
  expect((await call('GET', REGION)).body).toContain('"events":');
});

test('without the region its services stay, and calls that need it say why', async () => {
  const service = await begin('left');
  await cloud.until(service.service_id, 'READY');
  await cloud.stop('SIGTERM');
  delete cloud.env['HOWDAH_SIMULATED_REGION'];
  await cloud.up();
  expect(await cloud.get(service.service_id)).toMatchObject({ status: 'READY' });
  expect(await cloud.request('GET', `/services/${service.service_id}/logs`)).toMatchObject({
    status: 503,
    body: { message: expect.stringContaining('simulated') },
  });
  expect(await call('GET', REGION)).toMatchObject({ status: 404 });
  await cloud.stop('SIGTERM');
  cloud.env['HOWDAH_SIMULATED_REGION'] = 'yes';
  await cloud.up();
  await cloud.request('POST', `/services/${service.service_id}/stop`);
  await cloud.until(service.service_id, 'PAUSED');
});
