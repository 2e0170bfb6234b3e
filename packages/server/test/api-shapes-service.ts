/** Tests of api-shapes.test.ts: the other calls on a service. */
import { expect, test } from 'vitest';
import {
  call,
  callApi,
  cloud,
  create,
  haproxy,
  isBody,
  metadata,
  operationOf,
  passwords,
  pgbouncer,
  reach,
  remove,
} from './api-shapes-calls.ts';
import { untilExpected } from './until.ts';

test('a service has an end, which is set by setExpiry', async () => {
  const brief = await create({ name: 'brief', service_type: 'POSTGRES', ttl_seconds: 3600 });
  const path = `/services/${brief.id}/setExpiry`;
  const end = { expires_at: '2030-01-31T12:00:00.000Z', purge_on_expiry: true };
  expect(await call('POST', path, end)).toMatchObject({ status: 200, body: end });
  for (const bad of [
    {},
    { ttl_seconds: 0 },
    { ttl_seconds: '60' },
    { expires_at: 'soon' },
    { ttl_seconds: 60, expires_at: '2030-01-31T12:00:00Z' },
    { ttl: 60 },
  ])
    expect(await call('POST', path, bad)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST' },
    });
  await reach(brief.id, 'READY', 'QUEUED', 'CONFIGURING');
  await remove(brief.id);
});

test('a service falls asleep after the time that setAutoSuspend sets', async () => {
  const sleepy = await create({
    name: 'sleepy',
    service_type: 'POSTGRES',
    auto_suspend_seconds: 600,
  });
  await reach(sleepy.id, 'READY', 'QUEUED', 'CONFIGURING');
  expect(await call('GET', `/services/${sleepy.id}/awake`)).toMatchObject({
    status: 200,
    body: { auto_suspend_seconds: 600, suspended: false, held_by: [] },
  });
  const path = `/services/${sleepy.id}/setAutoSuspend`;
  expect(await call('POST', path, { auto_suspend_seconds: 900 })).toMatchObject({ status: 202 });
  for (const bad of [
    {},
    { auto_suspend_seconds: 4 },
    { auto_suspend_seconds: '60' },
    { after: 60 },
  ])
    expect(await call('POST', path, bad)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST' },
    });
  const refused = await call('POST', '/services', {
    name: 'with a pooler',
    service_type: 'POSTGRES',
    auto_suspend_seconds: 60,
    replica_count: 1,
  });
  expect([400, 422, 503]).toContain(refused.status);
  await remove(sleepy.id);
});

test('leases are taken, listed, extended and returned', async () => {
  const parent = await create({ name: 'leased', service_type: 'POSTGRES' });
  await reach(parent.id, 'READY', 'QUEUED', 'CONFIGURING');
  const of = { from: parent.id, count: 2, ttl_seconds: 600, reset: 'server' };
  const { status, body } = await call('POST', '/leases', of);
  expect(status).toBe(201);
  const leases = Array.isArray(body['leases']) ? body['leases'].filter(isBody) : [];
  expect(leases).toMatchObject([
    { from: parent.id, reset: 'server', database: 'tsdb', role: 'tsdbadmin' },
    { from: parent.id, reset: 'server', database: 'tsdb', role: 'tsdbadmin' },
  ]);
  passwords.push(...leases.map((lease) => String(lease['initial_password'])));
  const [one = '', other = ''] = leases.map((lease) => String(lease['id']));
  expect((await call('GET', `/leases/${one}`)).body).toMatchObject({ id: one, from: parent.id });
  expect((await call('GET', '/leases?limit=1')).headers.get('link')).toContain('cursor=');
  const longer = { lease_ids: [one, other], ttl_seconds: 900 };
  expect((await call('POST', '/leases/extend', longer)).status).toBe(200);
  for (const [path, bad] of [
    ['', { from: parent.id, count: 0 }],
    ['', { from: parent.id, count: 201 }],
    ['', { from: parent.id, reset: 'none' }],
    ['', { from: parent.id, ttl_seconds: 86_401 }],
    ['', { from: parent.id, size: 3 }],
    ['/extend', { lease_ids: [], ttl_seconds: 60 }],
    ['/return', { lease_ids: [one, one] }],
  ] as const)
    expect(await call('POST', `/leases${path}`, bad), JSON.stringify(bad)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST' },
    });
  expect((await call('DELETE', `/leases/${one}`)).status).toBe(202);
  expect((await call('POST', '/leases/return', { lease_ids: [other] })).status).toBe(202);
  await remove(parent.id);
  await untilExpected('the returned leases are gone', async () =>
    expect((await call('GET', '/services')).body['value']).toEqual([]),
  );
});

test('list, rename, setEnvironment and updatePassword refuse wrong values', async () => {
  expect((await call('GET', '/services')).body['value']).toEqual([]);
  const one = await create({ name: 'one', service_type: 'POSTGRES' });
  const two = await create({ name: 'two', service_type: 'POSTGRES', cpu_millis: '1000' });
  await reach(one.id, 'READY', 'QUEUED', 'CONFIGURING');
  await reach(two.id, 'READY', 'QUEUED', 'CONFIGURING');
  // The first figures of a service may come between the one answer and the other.
  await untilExpected('the list shows what the services themselves show', async () => {
    const list = (await call('GET', '/services')).body['value'];
    const each = [
      (await call('GET', `/services/${one.id}`)).body,
      (await call('GET', `/services/${two.id}`)).body,
    ];
    expect(JSON.stringify(list)).toBe(JSON.stringify(each));
  });

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
    { name: 'a', names: 1 },
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
  'setHA, switchover and drill are accepted, CONFIGURING, then READY',
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

test('a pooler is on or off when the answer comes, with an endpoint while on', async () => {
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

test('extensions are listed with their reasons, enabled and disabled', async () => {
  const { body: installed } = await call('GET', '/extensions');
  // There is one entry for each PostgreSQL of the machine.
  const entry = {
    region_code: 'local',
    postgres_version: expect.any(String),
    extensions: expect.any(Array),
  };
  expect(installed['value']).toContainEqual(expect.objectContaining(entry));
  const { id } = await create({ name: 'extended', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const path = `/services/${id}/extensions`;
  const stateOf = async (name: string) => {
    const { value } = (await call('GET', path)).body;
    return (Array.isArray(value) ? value : []).find(
      (one: object) => Reflect.get(one, 'name') === name,
    );
  };
  expect(await stateOf('pg_trgm')).toMatchObject({
    allowed: true,
    state: 'disabled',
    statement: 'CREATE EXTENSION pg_trgm',
    preload: false,
  });
  expect(await stateOf('dblink')).toMatchObject({ allowed: false, reason: expect.any(String) });
  for (const [name, code] of [
    ['dblink', 'UNAVAILABLE_HERE'],
    ['no_such_extension', 'UNAVAILABLE_HERE'],
    ['Robert"; drop', 'INVALID_REQUEST'],
  ])
    expect((await call('POST', path, { name })).body).toMatchObject({ code });
  const enabled = await call('POST', path, { name: 'pg_trgm' });
  expect(enabled).toMatchObject({ status: 202, body: { status: 'CONFIGURING' } });
  await reach(id, 'READY', 'CONFIGURING');
  expect((await call('GET', `/operations/${operationOf(enabled)}`)).body).toMatchObject({
    kind: 'enableExtension',
    status: 'succeeded',
    steps: [{ name: 'create extension' }],
  });
  expect(await stateOf('pg_trgm')).toMatchObject({ state: 'enabled', version: expect.any(String) });
  const again = await call('POST', path, { name: 'pg_trgm' });
  expect([again.status, again.headers.get('Operation-Id')]).toEqual([202, null]);
  expect((await call('DELETE', `${path}/plpgsql`)).status).toBe(400);
  expect((await call('DELETE', `${path}/no_such_extension`)).status).toBe(404);
  expect((await call('DELETE', `${path}/pg_trgm`)).status).toBe(202);
  await reach(id, 'READY', 'CONFIGURING');
  expect(await stateOf('pg_trgm')).toMatchObject({ state: 'disabled' });
  await remove(id);
});

test('a fork answers like a create, with its parent; backups match the document', async () => {
  const { id } = await create({ name: 'has a fork', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const { body: backups } = await call('GET', `/services/${id}/backupStatus`);
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
  await untilExpected('the verification has succeeded', async () =>
    expect((await call('GET', `/operations/${operationOf(asked)}`)).body).toMatchObject({
      kind: 'verifyBackup',
      service_id: id,
      status: 'succeeded',
    }),
  );
  expect((await call('GET', `/services/${id}/backupStatus`)).body).toMatchObject({
    last_verification: { succeeded: true },
  });
  const { body: certificates } = await call('GET', `/services/${id}/backups/certificates`);
  expect(certificates['value']).toMatchObject([
    { operation_id: operationOf(asked), backup: { place: 'snapshot' } },
  ]);
  const certificate = Object(certificates['value'])[0].certificate_id;
  const { body: signed } = await call('GET', `/services/${id}/backups/certificates/${certificate}`);
  const { body: keys } = await callApi('GET', '/certificate-keys');
  expect(Object(signed['certificate']).key_id).toBe(Object(keys['value'])[0].key_id);
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
  expect(await call('POST', `/services/${fork}/reset`, { target: 'NOW' })).toMatchObject({
    status: 202,
    body: { status: 'CONFIGURING', endpoint: forked.body['endpoint'] },
  });
  await reach(fork, 'READY', 'CONFIGURING');
  await remove(fork);
  const restored = await call('POST', `/services/${fork}/restore`);
  expect(restored).toMatchObject({
    status: 202,
    body: { status: 'RESUMING', endpoint: forked.body['endpoint'] },
  });
  await reach(fork, 'READY', 'RESUMING');

  await Promise.all([remove(id), remove(fork)]);
});

test('backups are listed as Tiger Cloud does; calls without effect are refused', async () => {
  const { id } = await create({ name: 'kept', service_type: 'POSTGRES', region_code: 'us-west-2' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const { body: status } = await call('GET', `/services/${id}/backupStatus`);
  const [snapshot]: unknown[] = Array.isArray(status['snapshots']) ? status['snapshots'] : [];
  const { id: label, taken } = Object(snapshot);
  expect((await call('GET', `/services/${id}/backups`)).body['value']).toEqual([
    {
      label,
      type: 'FULL',
      started_at: taken,
      finished_at: taken,
      duration_seconds: 0,
      size_bytes: expect.any(Number),
      regions: [{ region_code: 'us-west-2', status: 'FINISHED' }],
    },
  ]);
  const regions = `/services/${id}/backup-regions`;
  expect(await call('GET', regions)).toMatchObject({ status: 200, body: { value: [] } });
  for (const [method, path, body] of [
    ['POST', regions, { region_code: 'eu-central-1' }],
    ['DELETE', `${regions}/eu-central-1`, undefined],
  ] as const)
    expect(await call(method, path, body)).toMatchObject({
      status: 404,
      body: { message: expect.stringContaining('howdah repo add') },
    });
  for (const [method, path, part] of [
    ['POST', 'enableDataTiering', 'storage_gb'],
    ['GET', 'tags', 'setEnvironment'],
    ['PUT', 'tags', 'setEnvironment'],
  ] as const)
    expect(await cloud.request(method, `/services/${id}/${path}`), path).toMatchObject({
      status: 422,
      body: { code: 'UNAVAILABLE_HERE', message: expect.stringContaining(part) },
    });
  expect((await cloud.request('PUT', '/services/nosuchidxx/tags')).status).toBe(404);
  await remove(id);
});

test('logs return entries, and refuse wrong parameters', async () => {
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
  await remove(id);
});

test('a statement that reads returns rows of text', async () => {
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

test('members, deleted services and the cancelling of a verification answer', async () => {
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
  for (const list of ['/deletedServices', '/usage'])
    expect((await call('GET', list)).body['value']).toEqual(
      expect.arrayContaining([expect.objectContaining({ service_id: id })]),
    );
});

test.runIf(haproxy !== null)('a read replica set is created, changed and deleted', async () => {
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
    untilExpected('the set is active', async () =>
      expect((await call('GET', path)).body['status']).toBe('active'),
    );
  await ready();
  expect((await call('GET', sets)).body['value']).toHaveLength(1);
  expect((await call('POST', `${path}/setPurpose`, { purpose: 'lookups' })).status).toBe(200);
  await ready();
  expect((await call('POST', `${path}/setEnvironment`, { environment: 'PROD' })).status).toBe(200);
  if (pgbouncer !== null) expect((await call('POST', `${path}/enablePooler`)).status).toBe(200);
  await ready();
  expect((await call('POST', `${path}/disablePooler`)).status).toBe(200);
  await ready();
  const resized = await call('POST', `${path}/resize`, { cpu_millis: 1000, memory_gbs: 4 });
  expect(resized.status).toBe(202);
  await ready();
  expect((await call('DELETE', path)).status).toBe(202);
  await untilExpected('the set is deleted', async () =>
    expect((await call('GET', path)).status).toBe(404),
  );
  await remove(id);
});
