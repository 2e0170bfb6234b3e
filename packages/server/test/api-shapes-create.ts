/** Tests of api-shapes.test.ts: what a create answers and refuses. */
import { expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import {
  type Body,
  call,
  callApi,
  cloud,
  create,
  metadata,
  operationOf,
  passwords,
  portOf,
  reach,
  remove,
  SERVICE_KEYS,
} from './api-shapes-calls.ts';
import { untilExpected } from './until.ts';

/** Every change of a service that is QUEUED is refused, with that status. */
async function expectRefusedWhileQueued(id: string): Promise<void> {
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
    const refused = await call('POST', `/services/${id}/${action}`, body);
    expect(refused).toMatchObject({
      status: 400,
      body: { code: 'INVALID_STATE', message: expect.stringContaining('QUEUED') },
    });
  }
}

test('a create returns 202 with all fields, and stays QUEUED until it is reconciled', async () => {
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
    await expectRefusedWhileQueued(created.id);
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
  await untilExpected('the service has metrics', async () =>
    expect((await call('GET', `/services/${id}`)).body['metrics']).toEqual({
      memory_mb: expect.any(Number),
      milli_cpu: expect.any(Number),
      storage_mb: expect.any(Number),
    }),
  );
  expect((await call('GET', `/operations/${operationOf(answer)}`)).body).toMatchObject({
    status: 'succeeded',
    steps: expect.arrayContaining([
      expect.objectContaining({ name: 'clone template', finished: expect.any(String) }),
    ]),
  });
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

test('a create refuses values that are not allowed', async () => {
  const refused: [Body, number, string, string][] = [
    [{}, 400, 'INVALID_REQUEST', 'name'],
    [{ name: '' }, 400, 'INVALID_REQUEST', 'name'],
    [{ name: 'x'.repeat(129) }, 400, 'INVALID_REQUEST', 'name'],
    [{ name: 'x', addons: ['ai'], service_type: 'TIMESCALEDB' }, 400, 'INVALID_REQUEST', 'VECTOR'],
    [{ name: 'x', addons: [], service_type: 'VECTOR' }, 400, 'INVALID_REQUEST', 'make POSTGRES'],
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

test('the default type is TIMESCALEDB where available, else POSTGRES', async () => {
  const { body } = await callApi('GET', `/projects/${cloud.projectId}/regions`);
  const [first]: unknown[] = Array.isArray(body['value']) ? body['value'] : [];
  const can = JSON.stringify(first).includes('"service_type":"TIMESCALEDB","available":true');
  const [none, empty] = await Promise.all([
    create({ name: 'default' }),
    create({ name: 'plain', addons: [] }),
  ]);
  expect(none.answer.body['service_type']).toBe(can ? 'TIMESCALEDB' : 'POSTGRES');
  expect(empty.answer.body['service_type']).toBe('POSTGRES');
  await Promise.all([remove(none.id), remove(empty.id)]);
});

test('a type and add-ons that agree are accepted together', async () => {
  const plan = async (body: Body) =>
    call('POST', '/services?dry_run=true', { name: 'both', ...body });
  for (const body of [
    { service_type: 'POSTGRES', addons: [] },
    { service_type: 'TIMESCALEDB', addons: ['time-series'] },
    { service_type: 'TIMESCALEDB', addons: ['ai', 'time-series'] },
    { service_type: 'VECTOR', addons: ['ai'] },
  ])
    // The extension may be missing here.
    expect([200, 422], JSON.stringify(body)).toContain((await plan(body)).status);
  const { id, answer } = await create({ name: 'both', service_type: 'POSTGRES', addons: [] });
  expect(answer.body['service_type']).toBe('POSTGRES');
  await remove(id);
});

test('unknown fields of a create are ignored and named, also in the repeated answer', async () => {
  const body = { name: 'open', service_type: 'POSTGRES', engine: { version: 17 }, owner: null };
  const once = { 'Idempotency-Key': 'unknown-fields' };
  const first = await call('POST', '/services', body, once);
  expect(first).toMatchObject({ status: 202, body: { ignored: ['engine', 'owner'] } });
  expect(first.headers.get('warning')).toMatch(/^299 - ".*: engine, owner"$/);
  passwords.push(String(first.body['initial_password']));
  const again = await call('POST', '/services', body, once);
  expect([again.status, again.body]).toEqual([202, first.body]);
  expect(again.headers.get('warning')).toBe(first.headers.get('warning'));
  // The same key for another call: only an ignored field differs.
  const other = { ...body, engine: { version: 18 } };
  expect(await call('POST', '/services', other, once)).toMatchObject({ status: 409 });
  const id = String(first.body['service_id']);
  expect((await call('GET', `/services/${id}`)).body).not.toHaveProperty('ignored');
  for (const [path, fields, part] of [
    ['/services?strict=true', { owner: null }, 'owner: no such field; allowed: name'],
    ['/services', { regionCode: 'local' }, 'did you mean region_code?'],
    ['/services', { replica_counts: 1 }, 'did you mean replica_count?'],
    ['/services?strict=1', {}, 'strict'],
    ['/services?Dry_run=true', {}, 'dry_run'],
    ['/services?region=local', {}, 'no such query parameter'],
  ] as const)
    expect(await call('POST', path, { name: 'x', ...fields }), part).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining(part) },
    });
  await remove(id);
});

test('a region is answered by the name that it was asked for', async () => {
  const { body: listed } = await call('GET', '/regions');
  const [local, simulated]: unknown[] = Array.isArray(listed['value']) ? listed['value'] : [];
  expect(local).toMatchObject({ code: 'local', aliases: expect.arrayContaining(['us-east-1']) });
  expect(simulated).toMatchObject({ code: 'simulated', aliases: [] });
  const { id, answer } = await create({
    name: 'abroad',
    service_type: 'POSTGRES',
    region_code: 'us-east-1',
  });
  expect(answer.body['region_code']).toBe('us-east-1');
  const vpc = await call('POST', '/vpcs', {
    name: 'abroad',
    cidr: '10.66.0.0/24',
    region_code: 'eu-west-1',
  });
  expect(vpc).toMatchObject({ status: 201, body: { region_code: 'eu-west-1' } });
  const vpcPath = `/vpcs/${String(vpc.body['id'])}`;
  expect((await call('GET', vpcPath)).body).toEqual(vpc.body);
  const ready = await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  expect(ready['region_code']).toBe('us-east-1');
  for (const [region, status] of [
    ['local', 200],
    ['us-east-1', 200],
    ['sa-east-1', 200],
    ['simulated', 400],
    ['mars', 400],
  ] as const)
    expect(
      await call('POST', `/services/${id}/forkService?dry_run=true`, {
        fork_strategy: 'NOW',
        region_code: region,
      }),
      region,
    ).toMatchObject({ status });
  const fork = await call('POST', `/services/${id}/forkService`, {
    fork_strategy: 'NOW',
    region_code: 'local',
  });
  passwords.push(String(fork.body['initial_password']));
  expect(fork).toMatchObject({ status: 202, body: { region_code: 'us-east-1' } });
  const attached = await call('POST', `/services/${id}/attachToVPC`, { vpc_id: vpc.body['id'] });
  expect(attached.status, JSON.stringify(attached.body)).toBe(202);
  await reach(id, 'READY', 'CONFIGURING');
  await Promise.all([remove(id), remove(String(fork.body['service_id']))]);
  expect((await call('DELETE', vpcPath)).status).toBe(204);
});

test('a delete answers with the service as it is being deleted', async () => {
  const { id, answer } = await create({ name: 'gone', service_type: 'POSTGRES' });
  const deleted = await call('DELETE', `/services/${id}`);
  const { initial_password: _, metrics: _metrics, ...rest } = answer.body;
  expect(deleted).toMatchObject({ status: 202, body: { ...rest, status: 'DELETING' } });
  expect(operationOf(deleted)).not.toBe('');
  await untilExpected('the service is deleted', async () =>
    expect((await call('GET', `/services/${id}`)).status).toBe(404),
  );
  const purged = await call('DELETE', `/services/${id}?purge=true`);
  expect(purged).toMatchObject({ status: 202, body: { service_id: id } });
});

test('an empty body counts as no body, whatever its Content-Type', async () => {
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
  await untilExpected('the service is deleted', async () =>
    expect((await call('GET', `/services/${id}`)).status).toBe(404),
  );
});
