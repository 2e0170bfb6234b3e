/** The order of the API's checks: who may do what, and what the refusals say. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  at,
  bearer,
  cloud,
  expectError,
  json,
  vpc,
  metadata,
  newKey,
  newProject,
  ofTarget,
  ofVpc,
  send,
  service,
  setUp,
  tearDown,
} from './api-requests.ts';
import type { Answer } from './harness-caller.ts';
import { newId } from './probe.ts';

beforeAll(setUp);
afterAll(tearDown);

// ── order of checks
// ──────────────────────────────────────────────────────────────────────────────────────────────

test('first the key, then the project, the resource, the body and the state', async () => {
  const other = await newProject();
  const paused = await cloud.create({ name: 'paused', service_type: 'POSTGRES' });
  await cloud.request('POST', `/services/${paused.service_id}/stop`);
  await cloud.until(paused.service_id, 'PAUSED');
  const broken = '{"sql": 5';
  const call = (headers: Record<string, string>, project: string, id: string, body: string) =>
    send('POST', `/projects/${project}/services/${id}/query`, { ...json, ...headers }, body);
  expectError(await call({}, other, 'nosuchidxx', broken), 401);
  expectError(await call(bearer('HDno:key'), other, 'nosuchidxx', broken), 401);
  expectError(await call(bearer(cloud.key), other, 'nosuchidxx', broken), 403);
  expectError(
    await call(bearer(cloud.key), cloud.projectId, 'nosuchidxx', broken),
    404,
    'no service with that id exists',
  );
  expectError(
    await call(bearer(cloud.key), cloud.projectId, paused.service_id, broken),
    400,
    'JSON',
  );
  expectError(
    await call(bearer(cloud.key), cloud.projectId, paused.service_id, '{"sql":5}'),
    400,
    'sql',
  );
  const state = await call(
    bearer(cloud.key),
    cloud.projectId,
    paused.service_id,
    '{"sql":"select 1"}',
  );
  expectError(state, 400, 'PAUSED');
  expect(state.body).toMatchObject({ code: 'INVALID_STATE' });
  // A body too large or of another type is the body's matter too.
  expectError(
    await send(
      'POST',
      `/projects/${other}/services`,
      { ...bearer(cloud.key), ...json },
      'x'.repeat(70_000),
    ),
    403,
  );
  expectError(
    await send(
      'POST',
      at('/services/nosuchidxx/rename'),
      { ...bearer(cloud.key), 'Content-Type': 'text/plain' },
      'x',
    ),
    404,
  );
  expect(await cloud.request('DELETE', `/services/${paused.service_id}`)).toMatchObject({
    status: 202,
  });
});

const said = ({ body }: Answer) => ({ ...Object(body), request_id: '' });

test('another project looks the same whether or not it exists', async () => {
  const there = await send('GET', `/projects/${await newProject()}/services`, bearer(cloud.key));
  const notThere = await send('GET', `/projects/${newId()}/services`, bearer(cloud.key));
  expectError(there, 403);
  expect(said(there)).toEqual(said(notThere));
});

test('no valid key: 401 with a challenge, the same for each reason', async () => {
  const [publicKey = '', secret = ''] = cloud.key.split(':');
  const expired = await newKey({ expiresAt: new Date(Date.now() - 1000) });
  const revoked = await newKey({});
  expect((await send('GET', '/projects', bearer(revoked))).status).toBe(200);
  await metadata.db
    .updateTable('api_keys')
    .set({ revoked_at: new Date() })
    .where('public_key', '=', revoked.split(':')[0] ?? '')
    .execute();
  const refused = [
    expired,
    revoked,
    `${publicKey}:${secret}x`,
    `${publicKey}:`,
    `${newId()}:${secret}`,
    `${secret}:${publicKey}`,
  ];
  const reasons = new Set<string>();
  for (const key of refused) {
    const answer = await send('GET', '/projects', bearer(key));
    expectError(answer, 401);
    expect(answer.headers.get('www-authenticate')).toContain('Bearer');
    reasons.add(String(Reflect.get(Object(answer.body), 'message')));
    expectError(
      await send('GET', '/projects', {
        Authorization: `Basic ${Buffer.from(key).toString('base64')}`,
      }),
      401,
    );
  }
  expect(reasons.size).toBe(1);
  for (const Authorization of [
    '',
    'Bearer',
    'Bearer x',
    `Token ${cloud.key}`,
    cloud.key,
    `Basic ${cloud.key}`,
    `Bearer ${cloud.key} ${cloud.key}`,
    'Basic AAAA',
  ])
    expectError(await send('GET', '/projects', { Authorization }), 401);
  expect(
    (
      await send(
        'GET',
        '/projects',
        bearer(await newKey({ expiresAt: new Date(Date.now() + 600_000) })),
      )
    ).status,
  ).toBe(200);
});

test('keys note when they were used', async () => {
  const key = await newKey({});
  await send('GET', '/projects', bearer(key));
  const row = await metadata.db
    .selectFrom('api_keys')
    .select('last_used')
    .where('public_key', '=', key.split(':')[0] ?? '')
    .executeTakeFirstOrThrow();
  expect(row.last_used).toBeInstanceOf(Date);
});

test('a viewer reads and changes nothing', async () => {
  const viewer = bearer(await newKey({ role: 'viewer' }));
  const series = JSON.stringify({
    name: 'connections',
    from: '2026-01-01T00:00:00Z',
    to: '2026-01-01T01:00:00Z',
  });
  for (const path of [
    '/projects',
    '/auth/info',
    at('/services'),
    ofTarget(''),
    ofTarget('/logs'),
    at('/operations'),
    at('/regions'),
    at('/vpcs'),
    ofVpc(''),
    ofVpc('/peerings'),
  ])
    expect((await send('GET', path, viewer)).status, path).toBe(200);
  expect(
    (await send('POST', ofTarget('/metrics/series'), { ...viewer, ...json }, series)).status,
  ).toBe(200);
  expect((await send('POST', '/auth/logout', viewer)).status).toBe(204);
  expect((await send('POST', '/analytics/track', viewer)).status).toBe(200);
  const before = (await cloud.operations()).length;
  for (const [method, path] of [
    ['POST', at('/services')],
    ['DELETE', ofTarget('')],
    ['POST', at('/vpcs')],
    ['DELETE', ofVpc('')],
    ['POST', ofVpc('/rename')],
    ['POST', ofVpc('/peerings')],
    ...[
      'start',
      'stop',
      'restart',
      'reset',
      'resize',
      'enablePooler',
      'disablePooler',
      'setHA',
      'switchover',
      'drill',
      'attachToVPC',
      'detachFromVPC',
      'attachToAllowList',
      'detachFromAllowList',
      'updatePassword',
      'setEnvironment',
      'rename',
      'setExpiry',
      'setAutoSuspend',
      'backups/verify',
    ].map((action) => ['POST', ofTarget(`/${action}`)] as const),
  ] as const)
    expectError(await send(method, path, viewer), 403, 'viewer');
  expect(await cloud.operations()).toHaveLength(before);
});

test('a developer neither deletes a PROD service nor makes it DEV', async () => {
  const developer = { ...bearer(await newKey({ role: 'developer' })), ...json };
  const { service_id: id } = await cloud.create({ name: 'production', service_type: 'POSTGRES' });
  const post = (action: string, body: object) =>
    send('POST', at(`/services/${id}/${action}`), developer, JSON.stringify(body));
  expect((await post('rename', { name: 'p' })).status).toBe(200);
  expect((await post('setEnvironment', { environment: 'PROD' })).status).toBe(200);
  expectError(await send('DELETE', at(`/services/${id}`), developer), 403, 'PROD', 'admin');
  expect((await cloud.get(id)).status).toBe('READY');
  expectError(await post('setEnvironment', { environment: 'DEV' }), 403, 'PROD', 'admin');
  expectError(await send('DELETE', at(`/services/${id}`), developer), 403, 'PROD', 'admin');
});

test('a key of another project finds nothing of this one, by any path', async () => {
  const other = await newProject();
  const another = { ...bearer(await newKey({ projectId: other })), ...json };
  const operation = (await cloud.operations(service.service_id))[0]?.id ?? '';
  for (const path of [
    at('/services'),
    ofTarget(''),
    at('/operations'),
    at(`/operations/${operation}`),
    at('/regions'),
    at('/vpcs'),
    ofVpc(''),
  ])
    expectError(await send('GET', path, another), 403);
  for (const path of ['', '/peerings'])
    expectError(await send('GET', `/projects/${other}/vpcs/${vpc}${path}`, another), 404);
  for (const path of ['/rename', '/peerings'])
    expectError(await send('POST', `/projects/${other}/vpcs/${vpc}${path}`, another, '{}'), 404);
  expectError(await send('DELETE', `/projects/${other}/vpcs/${vpc}`, another), 404);
  const own = (path: string) => `/projects/${other}${path}`;
  for (const path of ['', '/logs', '/metrics/available-series'])
    expectError(await send('GET', own(`/services/${service.service_id}${path}`), another), 404);
  expectError(await send('GET', own(`/operations/${operation}`), another), 404);
  expect(
    (await send('GET', own(`/operations?service_id=${service.service_id}`), another)).body,
  ).toEqual([]);
  expect((await send('GET', own('/services'), another)).body).toEqual([]);
  expect((await send('GET', '/projects', another)).body).toEqual([{ id: other, name: 'another' }]);
  for (const action of [
    'start',
    'stop',
    'rename',
    'restart',
    'reset',
    'resize',
    'enablePooler',
    'disablePooler',
    'setHA',
    'switchover',
    'drill',
    'attachToVPC',
    'detachFromVPC',
    'updatePassword',
    'setEnvironment',
    'setExpiry',
    'setAutoSuspend',
  ])
    expectError(
      await send('POST', own(`/services/${service.service_id}/${action}`), another, '{}'),
      404,
    );
  expectError(await send('DELETE', own(`/services/${service.service_id}`), another), 404);
  expect((await cloud.get(service.service_id)).status).toBe('READY');
});

test('no request above ended in an internal error', async () => {
  const { stdout } = await cloud.cli('status');
  expect(stdout).toContain('The control plane runs');
  const metrics = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  expect(metrics.match(/status="5\d\d"/g) ?? []).toEqual([]);
});
