/** Tests of api-shapes.test.ts: the statuses that a change goes through. */
import { createServer } from 'node:net';
import { expect, test } from 'vitest';
import {
  type Body,
  call,
  cloud,
  create,
  metadata,
  operationOf,
  portOf,
  reach,
  remove,
} from './api-shapes-calls.ts';
import { untilExpected } from './until.ts';

/** A stop, then a start: the status on the way, what is refused meanwhile, and what is not. */
async function expectTurns(id: string): Promise<void> {
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
        ['restart', undefined],
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
    if (end === 'PAUSED') {
      expect(done['metrics']).toEqual({ memory_mb: null, milli_cpu: null, storage_mb: null });
      const refused = expect.stringMatching(/^cannot restart a service that is PAUSED: .* start/);
      expect(await call('POST', `/services/${id}/restart`)).toMatchObject({
        status: 400,
        body: { code: 'INVALID_STATE', message: refused },
      });
    }
    // An action whose state is reached already is refused here, by the table.
    expect(await call('POST', `/services/${id}/${action}`)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_STATE' },
    });
  }
}

async function expectResize(id: string): Promise<void> {
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
}

/** The service is PROD. */
const CONFIRMED = new URLSearchParams({ confirm: 'while RESUMING' }).toString();

async function expectRestart(id: string): Promise<void> {
  await metadata.holdingReconciler(async () => {
    const first = await call('POST', `/services/${id}/restart?${CONFIRMED}`);
    expect(first).toMatchObject({ status: 202, body: { service_id: id, status: 'UPGRADING' } });
    expect((await call('GET', `/operations/${operationOf(first)}`)).body).toMatchObject({
      kind: 'restart',
      status: 'queued',
    });
    for (const action of ['restart', 'start', 'stop'])
      expect(await call('POST', `/services/${id}/${action}?${CONFIRMED}`), action).toMatchObject({
        status: 400,
        body: { code: 'INVALID_STATE', message: expect.stringContaining('UPGRADING') },
      });
  });
  await reach(id, 'READY', 'UPGRADING');
}

async function expectDelete(id: string): Promise<void> {
  await metadata.holdingReconciler(async () => {
    const first = await call('DELETE', `/services/${id}`);
    expect(first).toMatchObject({ status: 202, body: { service_id: id, status: 'DELETING' } });
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
      ['setExpiry', { ttl_seconds: 60 }],
      ['setAutoSuspend', { auto_suspend_seconds: 60 }],
      ['setEnvironment', { environment: 'DEV' }],
      ['resize', { cpu_millis: 500 }],
      ['updatePassword', { password: 'long-enough' }],
    ] as const)
      expect(await call('POST', `/services/${id}/${action}`, body)).toMatchObject({
        status: 400,
        body: { code: 'INVALID_STATE' },
      });
  });
  await untilExpected('the service is deleted', async () =>
    expect((await call('GET', `/services/${id}`)).status).toBe(404),
  );
}

/** Every call on a service, and a body that it takes. */
const CALLS_ON_A_SERVICE = [
  ['GET', '', undefined],
  ['DELETE', '', undefined],
  ['POST', '/start', undefined],
  ['POST', '/stop', undefined],
  ['POST', '/restart', undefined],
  ['POST', '/reset', { target: 'NOW' }],
  ['POST', '/resize', { cpu_millis: 500 }],
  ['POST', '/enablePooler', undefined],
  ['POST', '/disablePooler', undefined],
  ['POST', '/setHA', { replica_count: 1 }],
  ['POST', '/switchover', undefined],
  ['POST', '/drill', { kind: 'switchover' }],
  ['POST', '/rename', { name: 'x' }],
  ['POST', '/setExpiry', { ttl_seconds: 60 }],
  ['POST', '/setAutoSuspend', { auto_suspend_seconds: 60 }],
  ['GET', '/awake', undefined],
  ['POST', '/setEnvironment', { environment: 'DEV' }],
  ['POST', '/updatePassword', { password: 'long-enough' }],
  ['GET', '/logs', undefined],
  ['GET', '/metrics/available-series', undefined],
  [
    'POST',
    '/metrics/series',
    { name: 'connections', from: '2026-01-01T00:00:00Z', to: '2026-01-02T00:00:00Z' },
  ],
] as const;

async function expectGone(id: string): Promise<void> {
  for (const [method, path, body] of CALLS_ON_A_SERVICE)
    expect(await call(method, `/services/${id}${path}`, body), path).toMatchObject({
      status: 404,
      body: {
        code: 'NOT_FOUND',
        message: expect.stringContaining('no service with that id exists'),
      },
    });
}

test('every change returns its transitional status; repeated, it is the same one', async () => {
  const { id } = await create({ name: 'turns', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');

  await expectTurns(id);
  await expectResize(id);
  await expectRestart(id);
  await expectDelete(id);
  await expectGone(id);
  // The operations of a deleted service stay.
  const { body } = await call('GET', `/operations?service_id=${id}`);
  const kinds = (Array.isArray(body['value']) ? body['value'] : []).map(
    (operation: Body) => `${String(operation['kind'])} ${String(operation['status'])}`,
  );
  expect(kinds).toEqual([
    'delete succeeded',
    'restart succeeded',
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

test('a delete supersedes the operation that is under way', async () => {
  const { id, answer } = await metadata.holdingReconciler(async () => {
    const created = await create({ name: 'short', service_type: 'POSTGRES' });
    expect((await call('DELETE', `/services/${created.id}`)).status).toBe(202);
    return created;
  });
  await untilExpected('the service is deleted', async () =>
    expect((await call('GET', `/services/${id}`)).status).toBe(404),
  );
  expect((await call('GET', `/operations/${operationOf(answer)}`)).body).toMatchObject({
    status: 'failed',
    error: 'superseded by delete',
  });
});

test('a resize takes strings or integers; one size implies the other; PAUSED stays', async () => {
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
  await untilExpected('the resize has succeeded', async () =>
    expect((await call('GET', `/operations/${operationOf(resized)}`)).body['status']).toBe(
      'succeeded',
    ),
  );
  expect((await call('GET', `/services/${id}`)).body).toMatchObject({
    status: 'PAUSED',
    resources: [{ spec: { cpu_millis: 2000 } }],
  });
  await remove(id);
});

test('a start that fails makes the service UNSTABLE with the reason, succeeds later', async () => {
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
      status: 503,
      body: { code: 'UNAVAILABLE' },
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
