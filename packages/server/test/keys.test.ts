/** Keys, projects and their limits, as an operator, an admin and an agent use them. */
import type { Schemas } from '@howdah/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { untilExpected } from './until.ts';

type Key = Schemas['Key'];

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
let service: Service;
beforeAll(async () => {
  cloud = await install();
  metadata = await openMetadata(cloud.home);
  service = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

/** A call below the base URL with some key. */
async function call(
  key: string,
  method: string,
  path: string,
  body?: object,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    body: text === '' ? '' : JSON.parse(text),
  };
}
const at = (path: string, projectId = cloud.projectId) => `/projects/${projectId}${path}`;
const fieldOf = (answer: Answer, name: string): string =>
  String(Reflect.get(Object(answer.body), name));

async function newKey(
  body: Schemas['CreateKey'],
  projectId = cloud.projectId,
): Promise<{ key: string; publicKey: string }> {
  const answer = await call(cloud.key, 'POST', at('/keys', projectId), body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  const publicKey = fieldOf(answer, 'public_key');
  return { publicKey, key: `${publicKey}:${fieldOf(answer, 'secret_key')}` };
}

const keysOf = async (projectId = cloud.projectId): Promise<Key[]> => {
  const { body } = await call(cloud.key, 'GET', at('/keys', projectId));
  return Array.isArray(body) ? body : [];
};

test('a key is made, used, shown without its secret, and revoked at once', async () => {
  const { key, publicKey } = await newKey({ name: 'for CI', role: 'developer' });
  expect((await call(key, 'GET', at('/services'))).status).toBe(200);
  const found = (await keysOf()).find(({ public_key }) => public_key === publicKey);
  expect(found).toEqual({
    public_key: publicKey,
    name: 'for CI',
    role: 'developer',
    dry_run_only: false,
    fork_only: false,
    created: expect.any(String),
    created_by: cloud.key.split(':')[0],
    expires_at: null,
    revoked_at: null,
    last_used: expect.any(String),
  });
  expect((await call(cloud.key, 'GET', at(`/keys/${publicKey}`))).body).toEqual(found);
  expect((await call(key, 'DELETE', at(`/keys/${publicKey}`))).status).toBe(403);
  expect((await call(cloud.key, 'DELETE', at(`/keys/${publicKey}`))).status).toBe(204);
  expect((await call(key, 'GET', at('/services'))).status).toBe(401);
  expect((await keysOf()).find(({ public_key }) => public_key === publicKey)?.revoked_at).toMatch(
    /Z$/,
  );
  // Again is no error, and changes nothing.
  const before = await keysOf();
  expect((await call(cloud.key, 'DELETE', at(`/keys/${publicKey}`))).status).toBe(204);
  expect(await keysOf()).toEqual(before);
});

test('an expiry is in the future, and then the key ends by itself', async () => {
  const past = await call(cloud.key, 'POST', at('/keys'), {
    name: 'x',
    role: 'viewer',
    expires_at: '2020-01-01T00:00:00Z',
  });
  expect(past).toMatchObject({
    status: 400,
    body: { code: 'INVALID_REQUEST', message: expect.stringContaining('expires_at') },
  });
  const { key, publicKey } = await newKey({
    name: 'short',
    role: 'viewer',
    expires_at: '2099-01-01T00:00:00Z',
  });
  expect((await call(key, 'GET', '/projects')).status).toBe(200);
  await metadata.db
    .updateTable('api_keys')
    .set({ expires_at: new Date(Date.now() - 1) })
    .where('public_key', '=', publicKey)
    .execute();
  expect((await call(key, 'GET', '/projects')).status).toBe(401);
});

test('the last admin key that does not expire stays', async () => {
  const project = await call(cloud.key, 'POST', '/projects', { name: 'lonely' });
  const projectId = fieldOf(project, 'id');
  const admin = await newKey({ name: 'only', role: 'admin' }, projectId);
  await newKey({ name: 'agent', role: 'admin', dry_run_only: true }, projectId);
  await newKey({ name: 'temporary', role: 'admin', expires_at: '2099-01-01T00:00:00Z' }, projectId);
  const refused = await call(admin.key, 'DELETE', at(`/keys/${admin.publicKey}`, projectId));
  expect(refused).toMatchObject({
    status: 409,
    body: { code: 'CONFLICT', message: expect.stringContaining('howdah key create') },
  });
  const second = await newKey({ name: 'second', role: 'admin' }, projectId);
  // If two revoke each other at the same time, one remains.
  const both = await Promise.all([
    call(admin.key, 'DELETE', at(`/keys/${second.publicKey}`, projectId)),
    call(second.key, 'DELETE', at(`/keys/${admin.publicKey}`, projectId)),
  ]);
  expect(both.filter(({ status }) => status === 204).length).toBe(1);
  expect(
    (await keysOf(projectId)).filter(
      ({ role, revoked_at, expires_at, dry_run_only }) =>
        role === 'admin' && revoked_at === null && expires_at === null && !dry_run_only,
    ),
  ).toHaveLength(1);
});

test('PROD is stopped, deleted and retagged by admins only', async () => {
  const { key } = await newKey({ name: 'developer', role: 'developer' });
  const admin = await newKey({ name: 'admin', role: 'admin' });
  const production = await cloud.create({
    name: 'production',
    service_type: 'POSTGRES',
    environment_tag: 'PROD',
  });
  const path = at(`/services/${production.service_id}`);
  for (const [method, target, body] of [
    ['POST', `${path}/stop`],
    ['POST', `${path}/setEnvironment`, { environment: 'DEV' }],
    ['POST', `${path}/setEnvironment?confirm=production`, { environment: 'DEV' }],
    ['DELETE', path],
    ['DELETE', `${path}?confirm=production`],
  ] as const)
    expect(await call(key, method, target, body)).toMatchObject({
      status: 403,
      body: { message: expect.stringContaining('PROD') },
    });
  expect((await cloud.get(production.service_id)).status).toBe('READY');
  // An admin too has to name it, unless a client of Tiger Cloud makes the call.
  for (const action of ['restart', 'restart?confirm=another', 'stop?confirm=another'])
    expect(await call(admin.key, 'POST', `${path}/${action}`)).toMatchObject({
      status: 400,
      body: { message: expect.stringMatching(/^confirm: .*"production"/) },
    });
  expect((await call(admin.key, 'POST', `${path}/stop`)).status).toBe(202);
  expect((await call(admin.key, 'DELETE', path)).status).toBe(202);
});

// ── dry runs and agents
// ──────────────────────────────────────────────────────────────────────────────────────────

const steps = (answer: Answer): unknown =>
  Reflect.get(Object(Reflect.get(Object(answer.body), 'operation')), 'steps');

/** Everything that was ever asked for in earnest. */
const asked = async (): Promise<string[]> => (await cloud.operations()).map(({ id }) => id);

test('a dry run tells the steps, and a refusal is the same as in earnest', async () => {
  const before = await asked();
  const path = `/services/${service.service_id}`;
  const create = await cloud.request('POST', '/services?dry_run=true', {
    name: 'x',
    service_type: 'POSTGRES',
  });
  expect(create).toMatchObject({
    status: 200,
    body: { dry_run: true, response_status: 202, operation: { kind: 'create', service_id: null } },
  });
  expect(create.headers.get('dry-run')).toBe('true');
  expect(steps(create)).toEqual(['clone template', 'start PostgreSQL', 'set password']);
  expect(JSON.stringify(create.body)).not.toContain('initial_password');
  const resize = await cloud.request('POST', `${path}/resize?dry_run=true`, { cpu_millis: '1000' });
  expect(resize.body).toMatchObject({
    response_status: 202,
    operation: { kind: 'resize', service_id: service.service_id },
  });
  expect(steps(resize)).toEqual(['stop PostgreSQL', 'write configuration', 'start PostgreSQL']);
  const stop = await cloud.request('POST', `${path}/stop?dry_run=true`);
  expect(steps(stop)).toEqual(['stop PostgreSQL']);
  expect(
    (await cloud.request('POST', `${path}/resize?dry_run=true`, { cpu_millis: '500' })).body,
  ).toMatchObject({ operation: null });
  for (const [method, target, body] of [
    ['POST', `${path}/start`, undefined],
    ['POST', `${path}/resize`, { cpu_millis: '7' }],
    ['POST', '/services/nosuchidxx/stop', undefined],
    ['POST', '/services', { name: '' }],
  ] as const) {
    const asked = await cloud.request(method, `${target}?dry_run=true`, body);
    const earnest = await cloud.request(method, target, body);
    expect({ ...Object(asked.body), request_id: '' }).toEqual({
      ...Object(earnest.body),
      request_id: '',
    });
    expect(asked.status).toBe(earnest.status);
  }
  for (const wrong of ['dry_run=1', 'dry_run', 'dry_run=TRUE', 'dry_run=true&dry_run=false'])
    expect((await cloud.request('POST', `${path}/stop?${wrong}`)).body).toMatchObject({
      code: 'INVALID_REQUEST',
      message: expect.stringContaining('dry_run'),
    });
  expect(await asked()).toEqual(before);
  expect((await cloud.get(service.service_id)).resources).toEqual(service.resources);
});

test('a dry run of a new password leaves the old one live', async () => {
  const { initial_password, ...made } = await cloud.create({
    name: 'password',
    service_type: 'POSTGRES',
  });
  const answer = await cloud.request(
    'POST',
    `/services/${made.service_id}/updatePassword?dry_run=true`,
    { password: 'never-live-1' },
  );
  expect(answer).toMatchObject({ status: 200, body: { response_status: 204 } });
  const client = await connectTo(cloud, made, initial_password);
  await client.end();
  await cloud.request('DELETE', `/services/${made.service_id}`);
});

test('a key for dry runs does nothing, whatever it asks for', async () => {
  const { key } = await newKey({ name: 'planner', role: 'admin', dry_run_only: true });
  const before = await asked();
  for (const query of ['', '?dry_run=true', '?dry_run=false']) {
    expect(
      (await call(key, 'DELETE', at(`/services/${service.service_id}${query}`))).body,
    ).toMatchObject({
      dry_run: true,
      operation: { kind: 'delete' },
    });
    expect(
      (await call(key, 'POST', at(`/keys${query}`), { name: 'x', role: 'admin' })).body,
    ).toMatchObject({
      dry_run: true,
      operation: null,
    });
  }
  expect(await asked()).toEqual(before);
  expect((await cloud.get(service.service_id)).status).toBe('READY');
});

test('a key for forks reads, forks, and changes nothing but its forks', async () => {
  const { key } = await newKey({ name: 'agent', role: 'developer', fork_only: true });
  const other = await newKey({ name: 'another agent', role: 'developer', fork_only: true });
  expect((await call(key, 'GET', at('/services'))).status).toBe(200);
  for (const [method, path, body] of [
    ['POST', '/services', { name: 'x' }],
    ['POST', `/services/${service.service_id}/stop`, undefined],
    ['POST', `/services/${service.service_id}/rename`, { name: 'x' }],
    ['DELETE', `/services/${service.service_id}`, undefined],
    ['POST', '/keys', { name: 'x', role: 'viewer' }],
  ] as const)
    expect((await call(key, method, at(path), body)).status, path).toBe(403);
  const fork = await call(key, 'POST', at(`/services/${service.service_id}/forkService`), {
    fork_strategy: 'NOW',
  });
  expect(fork.status, JSON.stringify(fork.body)).toBe(202);
  const id = fieldOf(fork, 'service_id');
  await cloud.until(id, 'READY');
  expect((await call(other.key, 'DELETE', at(`/services/${id}`))).status).toBe(403);
  expect((await call(key, 'POST', at(`/services/${id}/rename`), { name: 'mine' })).status).toBe(
    200,
  );
  expect((await call(key, 'POST', at(`/services/${id}/stop`))).status).toBe(202);
  expect((await call(key, 'DELETE', at(`/services/${id}`))).status).toBe(202);
});

// ── projects and limits
// ──────────────────────────────────────────────────────────────────────────────────────────

test('a project has what its limits allow, also when 20 calls come at once', async () => {
  const project = await call(cloud.key, 'POST', '/projects', {
    name: 'small',
    limits: { services: 2, cpu_millis: 1500 },
  });
  expect(project).toMatchObject({
    status: 201,
    body: { operator: false, limits: { services: 2, cpu_millis: 1500, memory_gbs: null } },
  });
  const projectId = fieldOf(project, 'id');
  const admin = await newKey({ name: 'admin', role: 'admin' }, projectId);
  const body = { name: 'one', service_type: 'POSTGRES' };
  const tooLarge = await call(admin.key, 'POST', at('/services?dry_run=true', projectId), {
    ...body,
    cpu_millis: '2000',
  });
  expect(tooLarge).toMatchObject({
    status: 422,
    body: {
      code: 'LIMIT_EXCEEDED',
      details: { limit: 'cpu_millis', allowed: 1500, used: 0, wanted: 2000 },
      message: expect.stringContaining('may have 1500'),
    },
  });
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => call(admin.key, 'POST', at('/services', projectId), body)),
  );
  expect(
    [202, 422].map((status) => answers.filter((answer) => answer.status === status).length),
  ).toEqual([2, 18]);
  expect((await call(admin.key, 'GET', at('', projectId))).body).toMatchObject({
    used: { services: 2, cpu_millis: 1000, memory_gbs: 4 },
  });
  // Nobody raises their own limits.
  expect(
    (await call(admin.key, 'POST', at('/setLimits', projectId), { services: 100 })).status,
  ).toBe(403);
  expect(
    (await call(cloud.key, 'POST', at('/setLimits', projectId), { services: null })).body,
  ).toMatchObject({
    limits: { services: null, cpu_millis: 1500 },
  });
  const ids = answers
    .filter(({ status }) => status === 202)
    .map((answer) => fieldOf(answer, 'service_id'));
  const statusOf = async (id: string) =>
    fieldOf(await call(admin.key, 'GET', at(`/services/${id}`, projectId)), 'status');
  for (const id of ids)
    await untilExpected(`service ${id} is READY`, async () =>
      expect(await statusOf(id)).toBe('READY'),
    );
  expect(
    (
      await call(admin.key, 'POST', at(`/services/${ids[0]}/resize`, projectId), {
        cpu_millis: '2000',
      })
    ).status,
  ).toBe(422);
  // A limit below what there is stops nothing that makes it less.
  await call(cloud.key, 'POST', at('/setLimits', projectId), {
    services: 0,
    cpu_millis: 0,
    memory_gbs: 0,
  });
  expect((await call(admin.key, 'POST', at(`/services/${ids[0]}/stop`, projectId))).status).toBe(
    202,
  );
  for (const id of ids)
    expect((await call(admin.key, 'DELETE', at(`/services/${id}`, projectId))).status).toBe(202);
  for (const id of ids)
    await untilExpected(`service ${id} is deleted`, async () =>
      expect((await call(admin.key, 'GET', at(`/services/${id}`, projectId))).status).toBe(404),
    );
  // Brought back, it counts again.
  expect((await call(admin.key, 'POST', at(`/services/${ids[0]}/restore`, projectId))).status).toBe(
    422,
  );
});

test('the same by the command line', { tags: 'slow' }, async () => {
  const made = await cloud.cli('project', 'create', '--name', 'by hand', '--services', '3');
  expect(made).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('howdah key create --project'),
  });
  const id = /^ID +([a-z0-9]{10})$/m.exec(made.stdout)?.[1] ?? '';
  expect(made.stdout).toMatch(/^SERVICES +0 of 3$/m);
  expect(
    (await cloud.cli('project', 'limits', id, '--services', 'none', '--memory-gbs', '8')).stdout,
  ).toMatch(/^SERVICES +0, no limit$[^]*^MEMORY GBS +0 of 8$/m);
  expect((await cloud.cli('project', 'rename', id, 'renamed')).code).toBe(0);
  expect((await cloud.cli('project', 'list', '--all')).stdout).toMatch(/^renamed$/m);
  const key =
    (await cloud.cli('key', 'create', '--project', id, '--name', 'ci', '--role', 'viewer')).stdout
      .trim()
      .split(/\s+/)
      .at(-1) ?? '';
  expect((await call(key, 'GET', at('', id))).body).toMatchObject({ name: 'renamed' });
  const publicKey = key.split(':')[0] ?? '';
  expect((await cloud.cli('key', 'list', '--project', id)).stdout).toContain(publicKey);
  expect((await cloud.cli('key', 'revoke', publicKey, '--project', id)).code).toBe(0);
  expect((await call(key, 'GET', at('', id))).status).toBe(401);
  expect((await cloud.cli('project', 'limits', id, '--services', 'many')).code).toBe(2);
});
