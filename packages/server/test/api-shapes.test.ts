/** Every call of the API as clients of Tiger Cloud use it: statuses, shapes, spellings, headers. */
import { execFile } from 'node:child_process';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findProgram } from '../src/engine/local/host/daemon.ts';
import { connectTo, install, type Answer, type Installation, type Service } from './harness.ts';
import { openMetadata } from './metadata.ts';

type Body = Record<string, unknown>;
type Records = Awaited<ReturnType<typeof openMetadata>>;

const pgbouncer = await findProgram('pgbouncer');
const haproxy = await findProgram('haproxy');

let cloud: Installation;
let metadata: Records;
let validate: (operationId: string, status: number, body: unknown) => void;
/** What was answered to each operation. */
const seen = new Set<string>();
/** Every body that came back, but those of create. */
const bodies: string[] = [];
const passwords: string[] = [];

beforeAll(async () => {
  cloud = await install();
  metadata = await openMetadata(cloud.home);
  validate = await loadSchemas();
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

// ── calls that are checked against the OpenAPI document ──────────────────────────────────────────────────────────

type Document = {
  paths: Record<
    string,
    Record<string, { operationId: string; responses: Record<string, { content?: object }> }>
  >;
};
const isDocument = (value: unknown): value is Document =>
  typeof value === 'object' && value !== null && 'paths' in value;
const pointer = (part: string) => part.replaceAll('~', '~0').replaceAll('/', '~1');
let routes: { method: string; pattern: RegExp; operationId: string }[];

async function loadSchemas() {
  const document: unknown = await (await fetch(`${cloud.apiUrl}/openapi.json`)).json();
  if (!isDocument(document)) throw new Error('no OpenAPI document');
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema(document, 'api');
  routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => ({
      method: method.toUpperCase(),
      pattern: new RegExp(`^${path.replaceAll(/\{[a-z_]+\}/g, '[^/?]+')}(\\?.*)?$`),
      operationId,
    })),
  );
  const places = new Map(
    Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(
        ([method, operation]) => [operation.operationId, { path, method, operation }] as const,
      ),
    ),
  );
  return (operationId: string, status: number, body: unknown): void => {
    const place = places.get(operationId);
    const response = place?.operation.responses[status];
    if (place === undefined || response === undefined)
      throw new Error(`${operationId} is not documented to answer ${status}`);
    if (response.content === undefined) {
      expect(body, `${operationId} ${status} has no body`).toBe('');
      return;
    }
    const check = ajv.compile({
      $ref: `api#/paths/${encodeURIComponent(pointer(place.path))}/${place.method}/responses/${status}/content/application~1json/schema`,
    });
    expect(
      check(body),
      `${operationId} ${status}: ${JSON.stringify(check.errors)} in ${JSON.stringify(body)}`,
    ).toBe(true);
  };
}

/** A call below the base URL, checked against the document. */
async function callApi(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer & { body: Body }> {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${cloud.key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  const parsed: unknown = text === '' ? '' : JSON.parse(text);
  const route = routes.find(
    (candidate) => candidate.method === method && candidate.pattern.test(path),
  );
  if (route === undefined) throw new Error(`${method} ${path} is not in the document`);
  validate(route.operationId, response.status, parsed);
  if (text !== '') expect(response.headers.get('content-type')).toMatch(/^application\/json\b/);
  expect(response.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  seen.add(`${route.operationId} ${response.status}`);
  if (!(['createService', 'forkService'].includes(route.operationId) && response.status === 202))
    bodies.push(text);
  return {
    status: response.status,
    headers: response.headers,
    body: isBody(parsed) ? parsed : { value: parsed },
  };
}
const isBody = (value: unknown): value is Body =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A call below the project. */
const call = (method: string, path: string, body?: unknown, headers?: Record<string, string>) =>
  callApi(method, `/projects/${cloud.projectId}${path}`, body, headers);

const operationOf = ({ headers }: Answer): string => headers.get('operation-id') ?? '';

async function create(
  body: Body,
): Promise<{ id: string; password: string; answer: Answer & { body: Body } }> {
  const answer = await call('POST', '/services', body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(202);
  const password = String(answer.body['initial_password']);
  passwords.push(password);
  return { id: String(answer.body['service_id']), password, answer };
}

/** Polls until a status shows; every status on the way must be one of `through`. */
async function reach(
  id: string,
  status: Service['status'],
  ...through: Service['status'][]
): Promise<Body> {
  for (;;) {
    const { body } = await call('GET', `/services/${id}`);
    if (body['status'] === status) return body;
    expect(through, `on the way to ${status}`).toContain(body['status']);
  }
}

async function remove(id: string): Promise<void> {
  expect((await call('DELETE', `/services/${id}`)).status).toBe(202);
  await expect
    .poll(async () => (await call('GET', `/services/${id}`)).status, { timeout: 60_000 })
    .toBe(404);
}

const SERVICE_KEYS =
  'created created_by endpoint ha_replicas metadata metrics name project_id read_replica_sets region_code resources service_id service_type status';

// ── a service's life ─────────────────────────────────────────────────────────────────────────────────────────────

test('create answers 202 with everything a client prints, and stays QUEUED until somebody works on it', async () => {
  const { id, password, answer } = await metadata.holdingReconciler(async () => {
    const created = await create({
      name: 'Größe 🐘',
      service_type: 'POSTGRES',
      environment_tag: 'PROD',
    });
    for (let again = 0; again < 3; again++)
      expect((await call('GET', `/services/${created.id}`)).body).toMatchObject({
        status: 'QUEUED',
        endpoint: created.answer.body['endpoint'],
      });
    for (const [action, body] of [
      ['start'],
      ['stop'],
      ['resize', { cpu_millis: 1000 }],
      ['enablePooler'],
      ['disablePooler'],
      ['setHA', { replica_count: 1 }],
      ['switchover'],
      ['drill', { kind: 'switchover' }],
      ['attachToVPC', { vpc_id: '1' }],
      ['detachFromVPC'],
      ['updatePassword', { password: 'long-enough' }],
    ] as const) {
      const refused = await call('POST', `/services/${created.id}/${action}`, body);
      expect(refused).toMatchObject({
        status: 400,
        body: { code: 'INVALID_STATE', message: expect.stringContaining('QUEUED') },
      });
    }
    return created;
  });
  const { body } = answer;
  expect(Object.keys(body).toSorted().join(' ')).toBe(
    [...SERVICE_KEYS.split(' '), 'initial_password'].toSorted().join(' '),
  );
  expect(body).toMatchObject({
    project_id: cloud.projectId,
    name: 'Größe 🐘',
    service_type: 'POSTGRES',
    status: 'QUEUED',
    region_code: 'local',
    endpoint: { host: '127.0.0.1', port: expect.any(Number) },
    ha_replicas: { replica_count: 0, sync_replica_count: 0 },
    metadata: { environment: 'PROD' },
    metrics: { memory_mb: null, milli_cpu: null, storage_mb: null },
    read_replica_sets: [],
    resources: [{ spec: { cpu_millis: 500, memory_gbs: 2, volume_type: expect.any(String) } }],
  });
  expect(id).toMatch(/^[a-z0-9]{10}$/);
  expect(password).toMatch(/^[A-Za-z0-9_-]{32}$/);
  expect(body['created']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/);
  const operation = await call('GET', `/operations/${operationOf(answer)}`);
  expect(operation.body).toMatchObject({
    kind: 'create',
    service_id: id,
    requested_by: cloud.key.split(':')[0],
  });

  const ready = await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect(Object.keys(ready).toSorted().join(' ')).toBe(SERVICE_KEYS);
  for (const key of ['service_id', 'endpoint', 'created', 'resources', 'name', 'metadata'])
    expect(ready[key]).toEqual(body[key]);
  const client = await connectTo(
    cloud,
    { endpoint: { host: '127.0.0.1', port: portOf(body) } },
    password,
  );
  await client.end();
  await expect
    .poll(async () => (await call('GET', `/services/${id}`)).body['metrics'], { timeout: 60_000 })
    .toEqual({
      memory_mb: expect.any(Number),
      milli_cpu: expect.any(Number),
      storage_mb: expect.any(Number),
    });
  expect((await call('GET', `/operations/${operationOf(answer)}`)).body).toMatchObject({
    status: 'succeeded',
    steps: expect.arrayContaining([
      expect.objectContaining({ name: 'clone template', finished: expect.any(String) }),
    ]),
  });
  await remove(id);
});

const portOf = (body: Body): number => {
  const endpoint = body['endpoint'];
  return isBody(endpoint) ? Number(endpoint['port']) : 0;
};

test('every change answers a transitional status at once, then only statuses on its way; the same change again is the same operation', async () => {
  const { id } = await create({ name: 'turns', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');

  const turns = [
    ['stop', 'PAUSING', 'PAUSED', 'start'],
    ['start', 'RESUMING', 'READY', 'stop'],
  ] as const;
  for (const [action, transitional, end, opposite] of turns) {
    await metadata.holdingReconciler(async () => {
      const first = await call('POST', `/services/${id}/${action}`);
      expect(first).toMatchObject({ status: 202, body: { status: transitional } });
      expect(operationOf(first)).toMatch(/^[a-z0-9]{10}$/);
      expect((await call('GET', `/services/${id}`)).body['status']).toBe(transitional);
      const again = await call('POST', `/services/${id}/${action}`);
      expect(again).toMatchObject({ status: 202, body: { status: transitional } });
      expect(operationOf(again)).toBe(operationOf(first));
      expect((await call('GET', `/operations/${operationOf(first)}`)).body).toMatchObject({
        status: 'queued',
        finished: null,
        kind: action,
      });
      const refusals: [string, unknown][] = [
        [opposite, undefined],
        ['resize', { cpu_millis: 2000 }],
        ['updatePassword', { password: 'long-enough' }],
      ];
      for (const [other, body] of refusals)
        expect(await call('POST', `/services/${id}/${other}`, body)).toMatchObject({
          status: 400,
          body: { code: 'INVALID_STATE', message: expect.stringContaining(transitional) },
        });
      expect(
        (await call('POST', `/services/${id}/rename`, { name: `while ${transitional}` })).body,
      ).toMatchObject({
        status: transitional,
      });
      expect(
        (await call('POST', `/services/${id}/setEnvironment`, { environment: 'PROD' })).status,
      ).toBe(200);
    });
    const done = await reach(id, end, transitional);
    expect(done).toMatchObject({
      name: `while ${transitional}`,
      metadata: { environment: 'PROD' },
    });
    if (end === 'PAUSED')
      expect(done['metrics']).toEqual({ memory_mb: null, milli_cpu: null, storage_mb: null });
    // What it is already is refused here, by the table.
    expect(await call('POST', `/services/${id}/${action}`)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_STATE' },
    });
  }

  await metadata.holdingReconciler(async () => {
    expect(
      await call('POST', `/services/${id}/resize`, { cpu_millis: '1000', memory_gbs: '4' }),
    ).toMatchObject({
      status: 202,
      body: { status: 'UPGRADING', resources: [{ spec: { cpu_millis: 1000, memory_gbs: 4 } }] },
    });
    for (const action of ['start', 'stop', 'resize'])
      expect(
        await call(
          'POST',
          `/services/${id}/${action}`,
          action === 'resize' ? { cpu_millis: 500 } : undefined,
        ),
      ).toMatchObject({
        status: 400,
        body: { code: 'INVALID_STATE', message: expect.stringContaining('UPGRADING') },
      });
  });
  await reach(id, 'READY', 'UPGRADING');

  await metadata.holdingReconciler(async () => {
    const first = await call('DELETE', `/services/${id}`);
    expect(first).toMatchObject({ status: 202, body: { value: '' } });
    expect((await call('GET', `/services/${id}`)).body['status']).toBe('DELETING');
    const again = await call('DELETE', `/services/${id}`);
    expect(again.status).toBe(202);
    expect(operationOf(again)).toBe(operationOf(first));
    for (const action of ['start', 'stop'])
      expect(await call('POST', `/services/${id}/${action}`)).toMatchObject({
        status: 400,
        body: { code: 'INVALID_STATE' },
      });
    for (const [action, body] of [
      ['rename', { name: 'late' }],
      ['setEnvironment', { environment: 'DEV' }],
      ['resize', { cpu_millis: 500 }],
      ['updatePassword', { password: 'long-enough' }],
    ] as const)
      expect(await call('POST', `/services/${id}/${action}`, body)).toMatchObject({
        status: 400,
        body: { code: 'INVALID_STATE' },
      });
  });
  await expect
    .poll(async () => (await call('GET', `/services/${id}`)).status, { timeout: 60_000 })
    .toBe(404);
  for (const [method, path, body] of [
    ['GET', '', undefined],
    ['DELETE', '', undefined],
    ['POST', '/start', undefined],
    ['POST', '/stop', undefined],
    ['POST', '/resize', { cpu_millis: 500 }],
    ['POST', '/enablePooler', undefined],
    ['POST', '/disablePooler', undefined],
    ['POST', '/setHA', { replica_count: 1 }],
    ['POST', '/switchover', undefined],
    ['POST', '/drill', { kind: 'switchover' }],
    ['POST', '/rename', { name: 'x' }],
    ['POST', '/setEnvironment', { environment: 'DEV' }],
    ['POST', '/updatePassword', { password: 'long-enough' }],
    ['GET', '/logs', undefined],
    ['GET', '/metrics/available-series', undefined],
    [
      'POST',
      '/metrics/series',
      { name: 'connections', from: '2026-01-01T00:00:00Z', to: '2026-01-02T00:00:00Z' },
    ],
  ] as const)
    expect(await call(method, `/services/${id}${path}`, body), path).toMatchObject({
      status: 404,
      body: {
        code: 'NOT_FOUND',
        message: expect.stringContaining('no service with that id exists'),
      },
    });
  // Its operations stay.
  const { body } = await call('GET', `/operations?service_id=${id}`);
  const kinds = (Array.isArray(body['value']) ? body['value'] : []).map(
    (operation: Body) => `${String(operation['kind'])} ${String(operation['status'])}`,
  );
  expect(kinds).toEqual([
    'delete succeeded',
    'resize succeeded',
    'setEnvironment succeeded',
    'rename succeeded',
    'start succeeded',
    'setEnvironment succeeded',
    'rename succeeded',
    'stop succeeded',
    'create succeeded',
  ]);
});

test('delete wins over what is under way, which then ends superseded', async () => {
  const { id, answer } = await metadata.holdingReconciler(async () => {
    const created = await create({ name: 'short', service_type: 'POSTGRES' });
    expect((await call('DELETE', `/services/${created.id}`)).status).toBe(202);
    return created;
  });
  await expect
    .poll(async () => (await call('GET', `/services/${id}`)).status, { timeout: 60_000 })
    .toBe(404);
  expect((await call('GET', `/operations/${operationOf(answer)}`)).body).toMatchObject({
    status: 'failed',
    error: 'superseded by delete',
  });
});

test('resize: strings or integers, one implies the other, the same size is no work, PAUSED stays PAUSED', async () => {
  const { id } = await create({
    name: 'sizes',
    service_type: 'POSTGRES',
    cpu_millis: 500,
    memory_gbs: '2',
  });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const before = (await cloud.operations(id)).length;
  for (const same of [
    { cpu_millis: '500', memory_gbs: '2' },
    { cpu_millis: 500 },
    { memory_gbs: 2 },
    { memory_gbs: '2' },
  ]) {
    const answer = await call('POST', `/services/${id}/resize`, same);
    expect(answer).toMatchObject({ status: 202, body: { status: 'READY' } });
    expect(operationOf(answer)).toBe('');
  }
  expect(await cloud.operations(id)).toHaveLength(before);
  for (const bad of [
    {},
    { cpu_millis: 'shared' },
    { cpu_millis: 'shared', memory_gbs: 'shared' },
    { cpu_millis: 600 },
    { cpu_millis: 500, memory_gbs: 4 },
  ]) {
    const answer = await call('POST', `/services/${id}/resize`, bad);
    expect(answer).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
  }
  expect(
    (await call('POST', `/services/${id}/resize`, { cpu_millis: 500, memory_gbs: 4 })).body[
      'message'
    ],
  ).toContain('500/2, 1000/4, 2000/8');

  await call('POST', `/services/${id}/stop`);
  await reach(id, 'PAUSED', 'PAUSING');
  const resized = await metadata.holdingReconciler(async () => {
    const answer = await call('POST', `/services/${id}/resize`, { memory_gbs: 8 });
    expect(answer).toMatchObject({
      status: 202,
      body: { status: 'PAUSED', resources: [{ spec: { cpu_millis: 2000, memory_gbs: 8 } }] },
    });
    expect((await call('GET', `/services/${id}`)).body['status']).toBe('PAUSED');
    return answer;
  });
  await expect
    .poll(async () => (await call('GET', `/operations/${operationOf(resized)}`)).body['status'], {
      timeout: 60_000,
    })
    .toBe('succeeded');
  expect((await call('GET', `/services/${id}`)).body).toMatchObject({
    status: 'PAUSED',
    resources: [{ spec: { cpu_millis: 2000 } }],
  });
  await remove(id);
});

test('a start that cannot be is UNSTABLE with its reason, allows what the table says, and heals by itself', async () => {
  const { id, answer } = await create({ name: 'in the way', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  await call('POST', `/services/${id}/stop`);
  await reach(id, 'PAUSED', 'PAUSING');
  const port = portOf(answer.body);
  const squatter = createServer().listen(port, '127.0.0.1');
  try {
    const started = await call('POST', `/services/${id}/start`);
    expect(started.body).toMatchObject({ status: 'RESUMING' });
    await reach(id, 'UNSTABLE', 'RESUMING');
    const operation = await call('GET', `/operations/${operationOf(started)}`);
    expect(operation.body).toMatchObject({
      status: 'running',
      error: expect.stringContaining(`port ${port}`),
    });
    expect(
      await call('POST', `/services/${id}/updatePassword`, { password: 'long-enough' }),
    ).toMatchObject({
      status: 400,
      body: { code: 'INVALID_STATE' },
    });
    const repaired = await call('POST', `/services/${id}/start`);
    expect(repaired).toMatchObject({ status: 202, body: { status: 'RESUMING' } });
    expect((await call('GET', `/operations/${operationOf(started)}`)).body).toMatchObject({
      status: 'failed',
      error: 'superseded by start',
    });
  } finally {
    await new Promise((resolve) => squatter.close(resolve));
  }
  await reach(id, 'READY', 'UNSTABLE', 'RESUMING');
  await remove(id);
});

test('a shared size has no numbers', async () => {
  const { id, answer } = await create({
    name: 'shared',
    service_type: 'POSTGRES',
    cpu_millis: 'shared',
    memory_gbs: 'shared',
  });
  expect(answer.body['resources']).toEqual([
    {
      id: expect.stringMatching(/^[a-z0-9]{10}$/),
      spec: { storage_gb: 10, volume_type: expect.any(String) },
    },
  ]);
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  await remove(id);
});

test('create refuses what it cannot keep', async () => {
  const refused: [Body, number, string, string][] = [
    [{}, 400, 'INVALID_REQUEST', 'name'],
    [{ name: '' }, 400, 'INVALID_REQUEST', 'name'],
    [{ name: 'x'.repeat(129) }, 400, 'INVALID_REQUEST', 'name'],
    [{ name: 'x', addons: ['ai'], service_type: 'VECTOR' }, 400, 'INVALID_REQUEST', 'service_type'],
    [{ name: 'x', addons: ['ai', 'ai'] }, 400, 'INVALID_REQUEST', 'addons'],
    [{ name: 'x', addons: ['sql'] }, 400, 'INVALID_REQUEST', 'time-series, ai'],
    [{ name: 'x', addons: 'ai' }, 400, 'INVALID_REQUEST', 'addons'],
    [{ name: 'x', service_type: 'MYSQL' }, 400, 'INVALID_REQUEST', 'TIMESCALEDB, POSTGRES, VECTOR'],
    [{ name: 'x', region_code: 'mars' }, 400, 'INVALID_REQUEST', 'local'],
    [{ name: 'x', environment_tag: 'TEST' }, 400, 'INVALID_REQUEST', 'DEV, PROD'],
    [{ name: 'x', cpu_millis: '500', memory_gbs: '4' }, 400, 'INVALID_REQUEST', '64000/256'],
    [{ name: 'x', cpu_millis: 'shared', memory_gbs: '2' }, 400, 'INVALID_REQUEST', 'shared/shared'],
    [{ name: 'x', replica_count: -1 }, 400, 'INVALID_REQUEST', 'replica_count'],
    [{ name: 'x', replica_count: 3 }, 400, 'INVALID_REQUEST', 'replica_count'],
    [{ name: 'x', nmae: 'y' }, 400, 'INVALID_REQUEST', 'nmae'],
    [{ name: 5 }, 400, 'INVALID_REQUEST', 'found 5'],
    [{ name: null }, 400, 'INVALID_REQUEST', 'name'],
  ];
  const before = (await cloud.operations()).length;
  for (const [body, status, code, part] of refused)
    expect(await call('POST', '/services', body), JSON.stringify(body)).toMatchObject({
      status,
      body: { code, message: expect.stringContaining(part) },
    });
  expect(await cloud.operations()).toHaveLength(before);
});

test('without a type: TIMESCALEDB where this region can, else POSTGRES; no add-ons: POSTGRES', async () => {
  const { body } = await callApi('GET', `/projects/${cloud.projectId}/regions`);
  const can = JSON.stringify(body).includes('"service_type":"TIMESCALEDB","available":true');
  const [none, empty] = await Promise.all([
    create({ name: 'default' }),
    create({ name: 'plain', addons: [] }),
  ]);
  expect(none.answer.body['service_type']).toBe(can ? 'TIMESCALEDB' : 'POSTGRES');
  expect(empty.answer.body['service_type']).toBe('POSTGRES');
  await Promise.all([remove(none.id), remove(empty.id)]);
});

// ── calls that take no body, and Content-Type ────────────────────────────────────────────────────────────────────

test('an empty body is no body, whatever Content-Type says of it', async () => {
  const { id } = await create({ name: 'empty', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect(
    (await call('POST', `/services/${id}/stop`, '', { 'Content-Type': 'application/json' })).status,
  ).toBe(202);
  await reach(id, 'PAUSED', 'PAUSING');
  expect(
    (
      await call('POST', `/services/${id}/start`, ' \n', {
        'Content-Type': 'application/json; charset=utf-8',
      })
    ).status,
  ).toBe(202);
  await reach(id, 'READY', 'RESUMING');
  expect(
    (await call('GET', `/services/${id}`, undefined, { 'Content-Type': 'application/json' }))
      .status,
  ).toBe(200);
  expect(
    (await call('DELETE', `/services/${id}`, '', { 'Content-Type': 'application/json' })).status,
  ).toBe(202);
  await expect
    .poll(async () => (await call('GET', `/services/${id}`)).status, { timeout: 60_000 })
    .toBe(404);
});

// ── the rest of a service's calls ────────────────────────────────────────────────────────────────────────────────

test('list, rename, setEnvironment, updatePassword', async () => {
  expect((await call('GET', '/services')).body['value']).toEqual([]);
  const one = await create({ name: 'one', service_type: 'POSTGRES' });
  const two = await create({ name: 'two', service_type: 'POSTGRES', cpu_millis: '1000' });
  await reach(one.id, 'READY', 'QUEUED', 'CONFIGURING');
  await reach(two.id, 'READY', 'QUEUED', 'CONFIGURING');
  // The first figures of a service may come between the one answer and the other.
  await expect
    .poll(async () => {
      const list = (await call('GET', '/services')).body['value'];
      const each = [
        (await call('GET', `/services/${one.id}`)).body,
        (await call('GET', `/services/${two.id}`)).body,
      ];
      return JSON.stringify(list) === JSON.stringify(each);
    })
    .toBe(true);

  const renamed = await call('POST', `/services/${one.id}/rename`, { name: '🐘'.repeat(128) });
  expect(renamed).toMatchObject({
    status: 200,
    body: { service_id: one.id, name: '🐘'.repeat(128), status: 'READY' },
  });
  for (const bad of [
    {},
    { name: '' },
    { name: '🐘'.repeat(129) },
    { name: 'a\nb' },
    { name: 'a', more: 1 },
  ])
    expect(await call('POST', `/services/${one.id}/rename`, bad)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST' },
    });

  const tagged = await call('POST', `/services/${one.id}/setEnvironment`, { environment: 'PROD' });
  expect(tagged).toMatchObject({ status: 200, body: { message: expect.stringContaining('PROD') } });
  expect((await call('GET', `/services/${one.id}`)).body['metadata']).toEqual({
    environment: 'PROD',
  });
  for (const bad of [
    {},
    { environment: 'prod' },
    { environment: 'STAGING' },
    { environment: ['PROD'] },
  ])
    expect(await call('POST', `/services/${one.id}/setEnvironment`, bad)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST' },
    });

  passwords.push('changed-by-the-api');
  const changed = await call('POST', `/services/${one.id}/updatePassword`, {
    password: 'changed-by-the-api',
  });
  expect(changed).toMatchObject({ status: 204, body: { value: '' } });
  expect((await call('GET', `/operations/${operationOf(changed)}`)).body).toMatchObject({
    kind: 'updatePassword',
    status: 'succeeded',
  });
  const bad = [
    '1234567',
    'x'.repeat(129),
    'with\u0000nul-in-it',
    'with\ttab-in-it',
    'with\u0085next-line',
    12345678,
    null,
    ['12345678'],
  ];
  for (const password of bad) {
    const refused = await call('POST', `/services/${one.id}/updatePassword`, { password });
    expect(refused).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining('password') },
    });
    if (typeof password === 'string') expect(refused.body['message']).not.toContain(password);
  }
  await Promise.all([remove(one.id), remove(two.id)]);
});

test.runIf(haproxy !== null)(
  'replicas are set, swapped and rehearsed with; each is accepted, CONFIGURING, then READY',
  async () => {
    const { id, answer } = await create({
      name: 'available',
      service_type: 'POSTGRES',
      replica_count: 0,
    });
    expect(answer.body).toMatchObject({ ha_replicas: { replica_count: 0, sync_replica_count: 0 } });
    await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
    for (const [action, body] of [
      ['setHA', { replica_count: 1 }],
      ['setHA', { sync_replica_count: 1 }],
      ['switchover'],
      ['drill', { kind: 'switchover' }],
    ] as const) {
      const changed = await call('POST', `/services/${id}/${action}`, body);
      expect(changed).toMatchObject({
        status: 202,
        body: { status: 'CONFIGURING', endpoint: answer.body['endpoint'] },
      });
      await reach(id, 'READY', 'CONFIGURING');
      expect((await call('GET', `/operations/${operationOf(changed)}`)).body).toMatchObject({
        kind: action,
        status: 'succeeded',
      });
    }
    expect((await call('GET', `/services/${id}`)).body).toMatchObject({
      ha_replicas: { replica_count: 1, sync_replica_count: 1 },
    });
    await remove(id);
  },
);

test('a pooler is enabled and disabled when that is answered; its endpoint is there while it is', async () => {
  const { id, answer } = await create({
    name: 'pooled',
    service_type: 'POSTGRES',
    enable_pooler: false,
  });
  expect(answer.body).not.toHaveProperty('connection_pooler');
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect(await call('POST', `/services/${id}/disablePooler`)).toMatchObject({
    status: 200,
    body: { message: expect.any(String) },
  });
  if (pgbouncer !== null) {
    const enabled = await call('POST', `/services/${id}/enablePooler`);
    expect(enabled).toMatchObject({ status: 200, body: { message: expect.any(String) } });
    expect((await call('GET', `/operations/${operationOf(enabled)}`)).body).toMatchObject({
      kind: 'enablePooler',
      status: 'succeeded',
    });
    expect((await call('GET', `/services/${id}`)).body).toMatchObject({
      status: 'READY',
      connection_pooler: { endpoint: { host: '127.0.0.1', port: expect.any(Number) } },
    });
    expect((await call('POST', `/services/${id}/disablePooler`)).status).toBe(200);
    expect((await call('GET', `/services/${id}`)).body).not.toHaveProperty('connection_pooler');
  }
  for (const bad of ['yes', 1, null])
    expect(await call('POST', '/services', { name: 'x', enable_pooler: bad })).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST' },
    });
  await remove(id);
});

test('a fork is answered like a create, with its parent; backups and restore have their shapes', async () => {
  const { id } = await create({ name: 'has a fork', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const { body: backups } = await call('GET', `/services/${id}/backups`);
  expect(backups).toMatchObject({
    window: { earliest: expect.any(String), days: 3 },
    snapshots: [{ kind: 'initial' }],
    problem: null,
  });
  const asked = await call('POST', `/services/${id}/backups/verify`);
  expect(asked).toMatchObject({
    status: 202,
    body: { message: expect.stringContaining(operationOf(asked)) },
  });
  await expect
    .poll(async () => (await call('GET', `/operations/${operationOf(asked)}`)).body, {
      timeout: 60_000,
    })
    .toMatchObject({ kind: 'verifyBackup', service_id: id, status: 'succeeded' });
  expect((await call('GET', `/services/${id}/backups`)).body).toMatchObject({
    last_verification: { succeeded: true },
  });
  const forked = await call('POST', `/services/${id}/forkService`, { fork_strategy: 'NOW' });
  expect(forked).toMatchObject({
    status: 202,
    body: {
      name: 'has a fork-fork',
      status: 'QUEUED',
      forked_from: { service_id: id, project_id: cloud.projectId, is_standby: false },
    },
  });
  const fork = String(forked.body['service_id']);
  passwords.push(String(forked.body['initial_password']));
  expect((await call('GET', `/operations/${operationOf(forked)}`)).body).toMatchObject({
    kind: 'fork',
  });
  const ready = await reach(fork, 'READY', 'QUEUED', 'CONFIGURING');
  expect(ready).not.toHaveProperty('initial_password');
  expect(ready['endpoint']).toEqual(forked.body['endpoint']);
  await remove(fork);
  const restored = await call('POST', `/services/${fork}/restore`);
  expect(restored).toMatchObject({
    status: 202,
    body: { status: 'RESUMING', endpoint: forked.body['endpoint'] },
  });
  await reach(fork, 'READY', 'RESUMING');
  await Promise.all([remove(id), remove(fork)]);
});

test('logs and series have their shapes, and refuse what is none of them', async () => {
  const { id } = await create({ name: 'measured', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const { body: logs } = await call('GET', `/services/${id}/logs`);
  expect(Object.keys(logs).toSorted()).toEqual(['entries', 'logs']);
  expect(logs['entries']).not.toEqual([]);
  for (const query of [
    'node=0',
    'since=2026-01-01T00:00:00Z',
    'since=2026-01-01T00:00:00.123456789%2B02:00',
    'until=2026-01-01T00:00:00+0200',
    'until=&since=&cursor=&node=',
    'search=a&search=b',
    'severities=error&severities=LOG',
  ])
    expect((await call('GET', `/services/${id}/logs?${query}`)).status, query).toBe(200);
  for (const [query, part] of [
    ['node=7', 'node'],
    ['since=yesterday', 'since'],
    ['until=2026-01-01', 'until'],
    ['until=2026-13-01T00:00:00Z', 'until'],
    ['cursor=xyz', 'cursor'],
    [`cursor=${'x'.repeat(201)}`, 'cursor'],
    [`search=${'x'.repeat(257)}`, 'search'],
  ] as const)
    expect(await call('GET', `/services/${id}/logs?${query}`), query).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining(part) },
    });

  const names = (await call('GET', `/services/${id}/metrics/available-series`)).body['value'];
  expect(names).toEqual([
    'cpu_millis',
    'memory_bytes',
    'storage_bytes',
    'connections',
    'transactions_per_second',
    'lag_bytes',
    'lag_seconds',
  ]);
  const span = { from: '2026-01-01T00:00:00Z', to: '2026-01-01T01:00:30Z' };
  for (const [query, points] of [
    [{ name: 'connections', ...span }, 61],
    [{ name: 'connections', ...span, bucket_seconds: 600, fn: 'max' }, 7],
    [
      {
        name: 'memory_bytes',
        from: span.from,
        to: '2026-01-01T00:10:00+00:00',
        filters: [{ key: 'node', value: '0' }],
      },
      10,
    ],
    [{ name: 'connections', ...span, bucket_seconds: 2_592_000 }, 1],
  ] as const) {
    const answer = await call('POST', `/services/${id}/metrics/series`, query);
    expect(answer.status).toBe(200);
    const [series]: unknown[] = Array.isArray(answer.body['value']) ? answer.body['value'] : [];
    expect(series).toMatchObject({ labels: { node: '0' }, data: expect.any(Array) });
    const data: unknown[] = isBody(series) && Array.isArray(series['data']) ? series['data'] : [];
    expect(data).toHaveLength(points);
    expect(data[0]).toEqual({ time: '2026-01-01T00:00:00.000Z', value: null });
  }
  expect(
    (
      await call('POST', `/services/${id}/metrics/series`, {
        name: 'connections',
        ...span,
        filters: [{ key: 'node', value: '1' }],
      })
    ).body,
  ).toEqual({
    value: [],
  });
  for (const [bad, part] of [
    [{}, 'name'],
    [{ name: 'nonsense', ...span }, 'cpu_millis, memory_bytes'],
    [{ name: 'connections', from: span.to, to: span.from }, 'from'],
    [{ name: 'connections', from: span.from, to: span.from }, 'from'],
    [{ name: 'connections', from: '2026-01-01T23:59:60Z', to: '2026-01-02T00:00:00Z' }, 'from'],
    [{ name: 'connections', ...span, bucket_seconds: 59 }, 'bucket_seconds'],
    [{ name: 'connections', ...span, bucket_seconds: 1e300 }, 'bucket_seconds'],
    [
      { name: 'connections', from: '2020-01-01T00:00:00Z', to: '2026-01-01T00:00:00Z' },
      'bucket_seconds',
    ],
    [{ name: 'connections', ...span, fn: 'median' }, 'avg, min, max'],
    [{ name: 'connections', from: 'x', to: 'y' }, 'date-time'],
  ] as const)
    expect(
      await call('POST', `/services/${id}/metrics/series`, bad),
      JSON.stringify(bad),
    ).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining(part) },
    });
  await remove(id);
});

// ── the installation ─────────────────────────────────────────────────────────────────────────────────────────────

test('auth/info in both spellings, by both schemes; projects; logout; analytics', async () => {
  const [publicKey = '', secret = ''] = cloud.key.split(':');
  const basic = `Basic ${Buffer.from(`${publicKey}:${secret}`).toString('base64')}`;
  for (const Authorization of [`Bearer ${cloud.key}`, basic]) {
    const { status, body } = await callApi('GET', '/auth/info', undefined, { Authorization });
    expect(status).toBe(200);
    expect(body).toMatchObject({
      type: 'apiKey',
      api_key: {
        public_key: publicKey,
        name: expect.any(String),
        created: expect.any(String),
        project: { id: cloud.projectId, name: expect.any(String), plan_type: expect.any(String) },
        issuing_user: {
          id: expect.any(String),
          name: expect.any(String),
          email: expect.stringMatching(/^[^@]+@[^@]+\.[a-z]+$/),
        },
      },
    });
    expect(body['apiKey']).toEqual(body['api_key']);
  }
  expect((await callApi('GET', '/projects')).body['value']).toEqual([
    { id: cloud.projectId, name: expect.any(String) },
  ]);
  expect((await callApi('POST', '/auth/logout')).status).toBe(204);
  for (const name of ['identify', 'track'])
    for (const body of [undefined, {}, { event: 'x', properties: { deep: [1] } }, ''])
      expect(await callApi('POST', `/analytics/${name}`, body)).toMatchObject({
        status: 200,
        body: { status: 'success' },
      });
  expect(bodies.join('')).not.toContain(secret);
});

test('projects and keys', async () => {
  const project = await callApi('POST', '/projects', {
    name: 'another',
    limits: { services: 1, memory_gbs: null },
  });
  expect(project).toMatchObject({
    status: 201,
    body: { name: 'another', operator: false, limits: { services: 1, memory_gbs: null } },
  });
  const at = (path: string) => `/projects/${String(project.body['id'])}${path}`;
  expect(await callApi('POST', at('/rename'), { name: 'renamed' })).toMatchObject({
    status: 200,
    body: { name: 'renamed' },
  });
  expect(await callApi('POST', at('/setLimits'), { cpu_millis: 4000 })).toMatchObject({
    status: 200,
    body: { limits: { services: 1, replica_sets: null, cpu_millis: 4000, memory_gbs: null } },
  });
  expect((await callApi('GET', at(''))).body).toMatchObject({
    name: 'renamed',
    used: { services: 0, replica_sets: 0, cpu_millis: 0, memory_gbs: 0 },
  });
  expect((await callApi('GET', '/projects?all=true')).body['value']).toHaveLength(2);
  const key = await callApi('POST', at('/keys'), {
    name: 'reader',
    role: 'viewer',
    expires_at: '2099-01-01T00:00:00+01:00',
  });
  expect(key).toMatchObject({
    status: 201,
    body: {
      role: 'viewer',
      expires_at: '2098-12-31T23:00:00.000Z',
      secret_key: expect.stringMatching(/^[\w-]{43}$/),
    },
  });
  const { secret_key: _, ...told } = key.body;
  expect((await callApi('GET', at('/keys'))).body['value']).toEqual([told]);
  const one = at(`/keys/${String(key.body['public_key'])}`);
  expect((await callApi('GET', one)).body).toEqual(told);
  expect((await callApi('DELETE', one)).status).toBe(204);
  expect((await callApi('GET', one)).body['revoked_at']).toEqual(expect.any(String));
});

test('regions say what can be had, and what cannot, why', async () => {
  const { body } = await callApi('GET', `/projects/${cloud.projectId}/regions`);
  expect(body['value']).toHaveLength(1);
  const [region]: Body[] = Array.isArray(body['value']) ? body['value'] : [];
  expect(region).toMatchObject({
    code: 'local',
    engine: 'local',
    limits_enforced: expect.any(Boolean),
  });
  expect(region).toMatchObject({
    clone_method: expect.stringMatching(/^(subvolume|reflink|copy)$/),
    fork_cost: expect.stringContaining('forks are'),
  });
  expect(region?.['sizes']).toHaveLength(9);
  const types = region?.['service_types'];
  expect(types).toHaveLength(3);
  for (const type of Array.isArray(types) ? types : []) {
    if (type.available === true) expect(type.version).toMatch(/^\d+\.\d+$/);
    else expect(type.reason).toContain('apt-get install');
  }
  expect(region?.['pooler']).toEqual(
    pgbouncer === null
      ? { available: false, reason: expect.stringContaining('apt-get install pgbouncer') }
      : { available: true, version: pgbouncer.version },
  );
});

test('doctor: the machine as the command line sees it', async () => {
  const { status, body } = await callApi('GET', '/doctor');
  expect(status).toBe(200);
  const found = body['value'];
  expect(found).toContainEqual({ what: 'Node', state: 'ok', found: process.version });
  expect(found).toContainEqual(
    pgbouncer === null
      ? {
          what: 'PgBouncer',
          state: 'missing',
          found: 'not installed',
          remedy: expect.stringContaining('apt-get install pgbouncer'),
        }
      : { what: 'PgBouncer', state: 'ok', found: `${pgbouncer.version}, ${pgbouncer.path}` },
  );
});

test('health, metrics and the CA need no key', async () => {
  const get = async (path: string) => {
    const response = await fetch(`http://127.0.0.1:${cloud.port}${path}`);
    return {
      status: response.status,
      type: response.headers.get('content-type'),
      text: await response.text(),
    };
  };
  expect(await get('/healthz')).toMatchObject({ status: 200, text: '{"status":"ok"}' });
  expect(await get('/readyz')).toMatchObject({ status: 200, text: '{"status":"ready"}' });
  const metrics = await get('/metrics');
  expect(metrics).toMatchObject({ status: 200, type: expect.stringMatching(/^text\/plain/) });
  expect(metrics.text).toMatch(/^howdah_services\{status="READY"\} \d+$/m);
  expect(metrics.text).toMatch(
    /^howdah_http_request_duration_seconds_count\{operation="createService",status="202"\} [1-9]\d*$/m,
  );
  expect(metrics.text).toMatch(/^process_cpu_seconds_total /m);
  const ca = await get('/public/api/v1/ca.pem');
  expect(ca).toMatchObject({ status: 200, text: await cloud.caPem() });
  expect(ca.text).toMatch(/^-----BEGIN CERTIFICATE-----\n/);
});

test('the document is valid OpenAPI 3.1', async () => {
  const result = await new Validator().validate(
    await (await fetch(`${cloud.apiUrl}/openapi.json`)).text(),
  );
  expect(result).toMatchObject({ valid: true });
});

test('the reference page comes from here alone', async () => {
  const page = await fetch(`${cloud.apiUrl}/reference`);
  expect(page.status).toBe(200);
  expect(page.headers.get('content-type')).toMatch(/^text\/html/);
  const html = await page.text();
  expect(html).toContain('/public/api/v1/openapi.json');
  expect(html.match(/(?:https?:)?\/\/[a-z0-9-]+\.[a-z]/gi) ?? []).toEqual([]);
  const scripts = [...html.matchAll(/<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"/g)].map(
    (match) => match[1] ?? '',
  );
  expect(scripts.length).toBeGreaterThan(0);
  for (const script of scripts) {
    const answer = await fetch(new URL(script, page.url));
    expect(answer.status, script).toBe(200);
    await answer.body?.cancel();
  }
});

test('VPCs and peerings, and a service that goes in and out', async () => {
  const make = (name: string, cidr: string) =>
    call('POST', '/vpcs', { name, cidr, region_code: 'local' });
  const [one, two] = [await make('one', '10.1.0.0/16'), await make('two', '10.2.0.0/16')];
  expect([one.status, two.status]).toEqual([201, 201]);
  const [id, other] = [String(one.body['id']), String(two.body['id'])];
  expect(one.body).toEqual({ id, name: 'one', cidr: '10.1.0.0/16', region_code: 'local' });
  expect((await call('GET', '/vpcs')).body['value']).toEqual([one.body, two.body]);
  expect((await call('GET', `/vpcs/${id}`)).body).toEqual(one.body);
  expect((await call('POST', `/vpcs/${id}/rename`, { name: 'first' })).body).toMatchObject({
    name: 'first',
    message: expect.any(String),
  });
  const asked = { peer_account_id: cloud.projectId, peer_region_code: 'local', peer_vpc_id: other };
  const peering = await call('POST', `/vpcs/${id}/peerings`, asked);
  expect(peering).toMatchObject({
    status: 201,
    body: { ...asked, status: 'active', provisioned_id: expect.any(String) },
  });
  const path = `/vpcs/${id}/peerings/${String(peering.body['id'])}`;
  expect((await call('GET', path)).body).toEqual(peering.body);
  expect((await call('GET', `/vpcs/${id}/peerings`)).body['value']).toEqual([peering.body]);
  expect((await call('DELETE', path)).status).toBe(204);

  const { id: service } = await create({ name: 'in and out', service_type: 'POSTGRES' });
  const { endpoint } = await reach(service, 'READY', 'QUEUED', 'CONFIGURING');
  const attached = await call('POST', `/services/${service}/attachToVPC`, { vpc_id: id });
  expect(attached).toMatchObject({ status: 202, body: { message: expect.stringContaining(id) } });
  const inside = await reach(service, 'READY', 'CONFIGURING');
  expect(inside).toMatchObject({ endpoint, vpc_endpoint: { vpc_id: id, port: portOf(inside) } });
  expect(inside['vpcEndpoint']).toEqual(inside['vpc_endpoint']);
  expect((await call('POST', `/services/${service}/detachFromVPC`, '')).status).toBe(202);
  expect(
    Object.keys(await reach(service, 'READY', 'CONFIGURING'))
      .toSorted()
      .join(' '),
  ).toBe(SERVICE_KEYS);
  await remove(service);
  for (const vpc of [id, other]) expect((await call('DELETE', `/vpcs/${vpc}`)).status).toBe(204);
});

// ── at the end ───────────────────────────────────────────────────────────────────────────────────────────────────

test('a statement that reads is answered in rows of text', async () => {
  const { id } = await create({ name: 'asked', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect(
    await call('POST', `/services/${id}/query`, {
      sql: 'select $1::int + 1 as n, null as nothing',
      parameters: ['41'],
    }),
  ).toMatchObject({
    status: 200,
    body: {
      columns: [
        { name: 'n', type: 'integer' },
        { name: 'nothing', type: 'text' },
      ],
      rows: [['42', null]],
      row_count: 1,
      truncated: false,
    },
  });
  await remove(id);
});

test('a service lists its members; once deleted it is among the deleted ones; a verification is cancelled', async () => {
  const { id } = await create({ name: 'listed', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect((await call('GET', `/services/${id}/members`)).body['value']).toMatchObject([
    { role: 'primary', state: 'running' },
  ]);
  const cancelled = await metadata.holdingReconciler(async () => {
    const verifying = await call('POST', `/services/${id}/backups/verify`);
    return call('POST', `/operations/${operationOf(verifying)}/cancel`);
  });
  expect(cancelled).toMatchObject({ status: 200, body: { status: 'failed' } });
  await remove(id);
  expect((await call('GET', '/deletedServices')).body['value']).toEqual(
    expect.arrayContaining([expect.objectContaining({ service_id: id })]),
  );
});

test('a session of the console begins with a key, or with a link that is used up by it', async () => {
  expect((await callApi('POST', '/auth/sessions')).headers.get('set-cookie')).toMatch(/HttpOnly/);
  const link = await callApi('POST', '/auth/links');
  const [, token] = /#(.+)$/.exec(String(link.body['path'])) ?? [];
  expect((await callApi('POST', '/auth/sessions/open', { token })).status).toBe(204);
  expect((await callApi('POST', '/auth/sessions/open', { token })).status).toBe(401);
});

test('webhooks and what was delivered to them; the audit log', async () => {
  const made = await call('POST', '/webhooks', { url: 'https://receiver.invalid/' });
  expect(made.status).toBe(201);
  const path = `/webhooks/${String(made.body['id'])}`;
  expect((await call('GET', '/webhooks')).body['value']).toHaveLength(1);
  expect((await call('POST', `${path}/test`)).status).toBe(200);
  const { id } = await create({ name: 'told of', service_type: 'POSTGRES' });
  const deliveries = async () =>
    [(await call('GET', `${path}/deliveries`)).body['value']].flat().filter(isBody);
  await expect.poll(deliveries, { timeout: 60_000 }).not.toEqual([]);
  const deliveryId = String((await deliveries())[0]?.['id']);
  expect((await call('POST', `${path}/deliveries/${deliveryId}/redeliver`)).status).toBe(202);
  expect((await call('DELETE', path)).status).toBe(204);
  expect((await call('GET', '/audit?limit=5')).body['value']).toHaveLength(5);
  await remove(id);
});

test.runIf(haproxy !== null)('a read replica set: its life', async () => {
  const { id } = await create({ name: 'read from', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const sets = `/services/${id}/replicaSets`;
  const made = await call('POST', sets, {
    name: 'readers',
    nodes: 1,
    cpu_millis: 500,
    memory_gbs: 2,
  });
  expect(made).toMatchObject({ status: 202, body: { name: 'readers', nodes: 1 } });
  const path = `${sets}/${String(made.body['id'])}`;
  const ready = () =>
    expect
      .poll(async () => (await call('GET', path)).body['status'], { timeout: 120_000 })
      .toBe('active');
  await ready();
  expect((await call('GET', sets)).body['value']).toHaveLength(1);
  expect((await call('POST', `${path}/setEnvironment`, { environment: 'PROD' })).status).toBe(200);
  if (pgbouncer !== null) expect((await call('POST', `${path}/enablePooler`)).status).toBe(200);
  await ready();
  expect((await call('POST', `${path}/disablePooler`)).status).toBe(200);
  await ready();
  expect((await call('POST', `${path}/resize`, { cpu_millis: 1000, memory_gbs: 4 })).status).toBe(
    202,
  );
  await ready();
  expect((await call('DELETE', path)).status).toBe(202);
  await expect.poll(async () => (await call('GET', path)).status, { timeout: 120_000 }).toBe(404);
  await remove(id);
});

/** What is answered by a stream, which events.test.ts and audit-log.test.ts read. */
const STREAMS = ['streamEvents', 'exportAudit'];
/** What only an installation with HAProxy answers well. */
const needsHaproxy = (id: string): boolean =>
  ['switchover', 'drill'].includes(id) || (id.includes('ReplicaSet') && id !== 'listReplicaSets');

test('every call of the document was made and answered as it says', () => {
  const successes = [...seen]
    .filter((entry) => / 20\d$/.test(entry))
    .map((entry) => entry.replace(/ .*/, ''));
  const possible = routes
    .map(({ operationId }) => operationId)
    .filter(
      (id) =>
        (pgbouncer !== null || !id.startsWith('enablePooler')) &&
        (haproxy !== null || !needsHaproxy(id)),
    )
    .filter((id) => !STREAMS.includes(id));
  expect(successes.toSorted()).toEqual(possible.toSorted());
});

test('no password is in any answer but that to create, nor in any file or record of the installation', async () => {
  expect(passwords.length).toBeGreaterThan(8);
  for (const password of passwords) {
    expect(bodies.join('\n')).not.toContain(password);
    const grep = promisify(execFile)('grep', ['-r', '-l', '-F', '-a', '-e', password, cloud.home]);
    // Code 1: found nothing.
    await expect(grep, 'found in a file').rejects.toMatchObject({ code: 1 });
  }
});
