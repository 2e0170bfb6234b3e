/** Tests of api-shapes.test.ts: calls on the installation, on projects, VPCs and webhooks. */
import { Validator } from '@seriousme/openapi-schema-validator';
import { expect, test } from 'vitest';
import {
  bodies,
  type Body,
  call,
  callApi,
  cloud,
  create,
  isBody,
  pgbouncer,
  portOf,
  reach,
  remove,
  SERVICE_KEYS,
} from './api-shapes-calls.ts';
import { untilExpected } from './until.ts';

test('auth/info works in both spellings and schemes; projects and logout answer', async () => {
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
  expect(await callApi('POST', '/feedback', { message: 'well done' })).toMatchObject({
    status: 200,
    body: { status: 'success' },
  });
  for (const name of ['identify', 'track'])
    for (const body of [undefined, {}, { event: 'x', properties: { deep: [1] } }, ''])
      expect(await callApi('POST', `/analytics/${name}`, body)).toMatchObject({
        status: 200,
        body: { status: 'success' },
      });
  expect(bodies.join('')).not.toContain(secret);
});

test('projects and keys are created, changed and read', async () => {
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
  const limits = { services: 1, replica_sets: null, cpu_millis: 4000, memory_gbs: null };
  const set = { cpu_millis: 4000, backup_retention_days: 30 };
  expect(await callApi('POST', at('/setLimits'), set)).toMatchObject({
    status: 200,
    body: { limits: { ...limits, backup_retention_days: 30 } },
  });
  for (const wrong of [0, 181])
    expect(await callApi('POST', at('/setLimits'), { backup_retention_days: wrong })).toMatchObject(
      { status: 400, body: { code: 'INVALID_REQUEST' } },
    );
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

test('regions list what is available, and the reason for what is not', async () => {
  const { body } = await callApi('GET', `/projects/${cloud.projectId}/regions`);
  expect(body['value']).toMatchObject([{ code: 'local' }, { code: 'simulated' }]);
  const [region]: Body[] = Array.isArray(body['value']) ? body['value'] : [];
  expect(region).toMatchObject({
    code: 'local',
    engine: 'local',
    limits_enforced: expect.any(Boolean),
    cpu_bound: false,
  });
  expect(region).toMatchObject({
    clone_method: expect.stringMatching(/^(subvolume|reflink|copy)$/),
    fork_cost: expect.stringContaining('forks are'),
  });
  expect(region?.['sizes']).toHaveLength(9);
  expect(region?.['actions']).toContainEqual({ action: 'query', available: true });
  const [, simulated]: Body[] = Array.isArray(body['value']) ? body['value'] : [];
  expect(simulated?.['actions']).toContainEqual({
    action: 'query',
    available: false,
    reason: expect.stringContaining('no PostgreSQL'),
  });
  const types = region?.['service_types'];
  expect(types).toHaveLength(3);
  for (const type of Array.isArray(types) ? types : []) {
    expect(type.versions).toContainEqual(
      expect.objectContaining({ pg_version: expect.stringMatching(/^\d+$/) }),
    );
    if (type.available === true) expect(type.version).toMatch(/^\d+\.\d+$/);
    else expect(type.reason).toContain('apt-get install');
  }
  expect(region?.['pooler']).toEqual(
    pgbouncer === null
      ? { available: false, reason: expect.stringContaining('apt-get install pgbouncer') }
      : { available: true, version: pgbouncer.version },
  );
});

test('doctor returns the findings of the command line', async () => {
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
  expect(await get('/healthz')).toMatchObject({
    status: 200,
    text: expect.stringMatching(/^\{"status":"ok","version":"[0-9.]+"\}$/),
  });
  expect(await get('/readyz')).toMatchObject({ status: 200, text: '{"status":"ready"}' });
  const metrics = await get('/metrics');
  expect(metrics).toMatchObject({ status: 200, type: expect.stringMatching(/^text\/plain/) });
  expect(metrics.text).toMatch(/^howdah_services\{status="READY"\} \d+$/m);
  expect(metrics.text).toMatch(
    new RegExp(
      '^howdah_http_request_duration_seconds_count' +
        String.raw`\{operation="createService",status="202"\} [1-9]\d*$`,
      'm',
    ),
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

test('the reference page loads nothing from other servers', async () => {
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

test('VPCs and peerings are managed, and a service is attached and detached', async () => {
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
  const asked = {
    peer_account_id: cloud.projectId,
    peer_region_code: 'eu-central-1',
    peer_vpc_id: other,
  };
  const peering = await call('POST', `/vpcs/${id}/peerings`, asked);
  expect(peering).toMatchObject({
    status: 201,
    // A slow machine has not changed its network yet.
    body: {
      ...asked,
      status: expect.stringMatching(/^(approved|active)$/),
      provisioned_id: expect.any(String),
    },
  });
  const path = `/vpcs/${id}/peerings/${String(peering.body['id'])}`;
  const active = { ...peering.body, status: 'active' };
  await untilExpected('the peering is active', async () =>
    expect((await call('GET', path)).body).toEqual(active),
  );
  expect((await call('GET', `/vpcs/${id}/peerings`)).body['value']).toEqual([active]);
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

test('allow lists are managed, attached to a service and detached', async () => {
  const description = 'office';
  const made = await call('POST', '/allow-lists', {
    description,
    cidr_blocks: ['127.0.0.0/8', '2001:db8::/32'],
  });
  const id = String(made.body['allow_list_id']);
  expect(made).toMatchObject({
    status: 201,
    body: {
      allow_list_id: id,
      project_id: cloud.projectId,
      description,
      cidr_blocks: ['127.0.0.0/8', '2001:db8::/32'],
      created_at: expect.any(String),
    },
  });
  const path = `/allow-lists/${id}`;
  expect((await call('GET', '/allow-lists')).body['value']).toEqual([made.body]);
  expect((await call('GET', path)).body).toEqual(made.body);
  const changed = { ...made.body, cidr_blocks: ['127.0.0.0/8'] };
  expect((await call('PATCH', path, { cidr_blocks: ['127.0.0.0/8'] })).body).toEqual(changed);

  const { id: service } = await create({ name: 'listed', service_type: 'POSTGRES' });
  await reach(service, 'READY', 'QUEUED', 'CONFIGURING');
  const attach = (action: string) =>
    call('POST', `/services/${service}/${action}`, { allow_list_id: id });
  expect(await attach('attachToAllowList')).toMatchObject({
    status: 202,
    body: { message: expect.stringContaining(id) },
  });
  expect(await reach(service, 'READY', 'CONFIGURING')).toMatchObject({ allow_list_id: id });
  expect((await attach('detachFromAllowList')).status).toBe(202);
  await reach(service, 'READY', 'CONFIGURING');
  expect((await attach('detachFromAllowList')).status).toBe(409);
  await remove(service);
  expect((await call('DELETE', path)).status).toBe(204);
});

test('exporters are managed, attached to a service and detached', async () => {
  const secret = 'the password of a scrape';
  const made = await call('POST', '/exporters', {
    name: 'prometheus',
    type: 'PROMETHEUS_METRICS',
    region_code: 'local',
    config: { username: 'prometheus', password: secret, include_pg_metrics: false },
  });
  const id = String(made.body['exporter_id']);
  expect(made).toMatchObject({
    status: 201,
    body: {
      exporter_id: id,
      project_id: cloud.projectId,
      name: 'prometheus',
      type: 'PROMETHEUS_METRICS',
      region_code: 'local',
      config: { username: 'prometheus', endpoint: expect.stringContaining(id) },
    },
  });
  expect(JSON.stringify(made.body)).not.toContain(secret);
  const path = `/exporters/${id}`;
  expect((await call('GET', '/exporters')).body['value']).toEqual([made.body]);
  expect((await call('GET', path)).body).toEqual(made.body);
  // Clients of Tiger Cloud send the type, and the configuration without its secret.
  const config = { username: 'prometheus', include_pg_metrics: true };
  const changed = await call('PATCH', path, { type: 'PROMETHEUS_METRICS', config });
  expect(changed).toMatchObject({ status: 200, body: { config } });

  const { id: service } = await create({ name: 'exported', service_type: 'POSTGRES' });
  await reach(service, 'READY', 'QUEUED', 'CONFIGURING');
  const act = (action: string) =>
    call('POST', `/services/${service}/${action}`, { exporter_id: id });
  expect((await act('attachToExporter')).status).toBe(200);
  expect((await call('GET', `/services/${service}`)).body).toMatchObject({
    metric_exporter_id: id,
  });
  expect((await act('detachFromExporter')).status).toBe(200);
  expect((await act('detachFromExporter')).status).toBe(409);
  await remove(service);
  expect((await call('DELETE', path)).status).toBe(204);
});

test('a console session begins with a key, or with a link that works once', async () => {
  expect((await callApi('POST', '/auth/sessions')).headers.get('set-cookie')).toMatch(/HttpOnly/);
  const link = await callApi('POST', '/auth/links');
  const [, token] = /#(.+)$/.exec(String(link.body['path'])) ?? [];
  expect((await callApi('POST', '/auth/sessions/open', { token })).status).toBe(204);
  expect((await callApi('POST', '/auth/sessions/open', { token })).status).toBe(401);
});

test('a program gets a key when its login is approved, and none when it is denied', async () => {
  const start = async () => (await callApi('POST', '/auth/device', { client_name: 'shapes' })).body;
  const first = await start();
  const user = { user_code: first['user_code'] };
  const collect = () =>
    callApi('POST', '/auth/device/token', { device_code: first['device_code'] });
  expect((await collect()).status).toBe(400);
  expect((await callApi('POST', '/auth/device/find', user)).body).toMatchObject(user);
  const approved = await callApi('POST', '/auth/device/approve', { ...user, role: 'viewer' });
  expect(approved.status).toBe(200);
  const got = await collect();
  expect(got).toMatchObject({ status: 200, body: { token_type: 'Bearer', role: 'viewer' } });
  expect((await call('DELETE', `/keys/${String(got.body['public_key'])}`)).status).toBe(204);
  const { user_code: denied } = await start();
  expect((await callApi('POST', '/auth/device/deny', { user_code: denied })).status).toBe(200);
});

test('webhooks, their deliveries and the audit log answer', async () => {
  const made = await call('POST', '/webhooks', { url: 'https://receiver.invalid/' });
  expect(made.status).toBe(201);
  const path = `/webhooks/${String(made.body['id'])}`;
  expect((await call('GET', '/webhooks')).body['value']).toHaveLength(1);
  expect((await call('POST', `${path}/test`)).status).toBe(200);
  const { id } = await create({ name: 'told of', service_type: 'POSTGRES' });
  const deliveries = async () =>
    [(await call('GET', `${path}/deliveries`)).body['value']].flat().filter(isBody);
  await untilExpected('the webhook has a delivery', async () =>
    expect(await deliveries()).not.toEqual([]),
  );
  const deliveryId = String((await deliveries())[0]?.['id']);
  expect((await call('POST', `${path}/deliveries/${deliveryId}/redeliver`)).status).toBe(202);
  expect((await call('DELETE', path)).status).toBe(204);
  expect((await call('GET', '/audit?limit=5')).body['value']).toHaveLength(5);
  await remove(id);
});

test('destinations, rules and incidents of alerts answer', async () => {
  const body = { name: 'a', type: 'slack', config: { url: 'https://receiver.invalid/hook' } };
  const made = await call('POST', '/alerts/destinations', body);
  expect(made.status).toBe(201);
  const path = `/alerts/destinations/${String(made.body['id'])}`;
  expect((await call('GET', '/alerts/destinations')).body['value']).toHaveLength(1);
  expect((await call('GET', path)).body).toEqual(made.body);
  expect((await call('PATCH', path, { name: 'b' })).body['name']).toBe('b');
  expect((await call('POST', `${path}/test`)).status).toBe(200);
  expect((await call('DELETE', path)).status).toBe(204);
  expect((await call('GET', '/alerts/rules')).status).toBe(200);
  expect((await call('PATCH', '/alerts/rules', { rule: 'lag', threshold: 30 })).status).toBe(200);
  expect((await call('GET', '/alerts/incidents?status=open')).status).toBe(200);
});

test('the simulated region answers its script and its time, and both are set', async () => {
  const simulation = { now: expect.any(String), script: {} };
  expect(await callApi('GET', '/regions/simulated')).toMatchObject({
    status: 200,
    body: simulation,
  });
  const script = { delays_ms: { create: 10 } };
  expect(await callApi('PUT', '/regions/simulated/script', script)).toMatchObject({
    status: 200,
    body: { script },
  });
  expect(await callApi('PUT', '/regions/simulated/script', {})).toMatchObject({
    status: 200,
    body: simulation,
  });
  expect(await callApi('POST', '/regions/simulated/clock', { seconds: 1 })).toMatchObject({
    status: 200,
    body: simulation,
  });
});
