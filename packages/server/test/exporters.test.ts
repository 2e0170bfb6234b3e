/** Exporters: samples that receivers get, failures that delay nobody else, and secrets. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { decodeRemoteWrite } from './decode-remote-write.ts';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { until, untilExpected } from './until.ts';
const SECRET = 'a-secret-that-nobody-may-see';

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
const servers: Server[] = [];
const bodies: string[] = [];
beforeAll(async () => {
  cloud = await install({ HOWDAH_WEBHOOK_NETWORKS: '127.0.0.1' });
  metadata = await openMetadata(cloud.home);
});
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

const ask = async (status: number, method: string, path: string, body?: unknown) => {
  const answer = await cloud.request(method, path, body);
  bodies.push(JSON.stringify(answer.body));
  expect(answer, `${method} ${path}`).toMatchObject({ status });
  return answer.body;
};
const textOf = (body: unknown, field: string): string => String(Reflect.get(Object(body), field));

type Received = { headers: IncomingMessage['headers']; body: Buffer };

/** A receiver. @param answer the status of each answer; null: none comes */
async function receiver(answer: (count: number) => number | null) {
  const received: Received[] = [];
  let open = 0;
  const server = createServer((request, response) => {
    open++;
    response.on('close', () => open--);
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      received.push({ headers: request.headers, body: Buffer.concat(chunks) });
      const status = answer(received.length);
      if (status !== null) response.writeHead(status, { Location: '/elsewhere' }).end();
    });
  });
  servers.push(server);
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', () => listening()));
  const address: AddressInfo | string | null = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return { url: `http://127.0.0.1:${port}/receive`, received, open: () => open };
}

async function exporterOf(type: string, config: object): Promise<string> {
  const body = { name: type, type, region_code: 'local', config };
  return textOf(await ask(201, 'POST', '/exporters', body), 'exporter_id');
}

const attach = ({ service_id: id }: Service, exporter: string) =>
  ask(200, 'POST', `/services/${id}/attachToExporter`, { exporter_id: exporter });

/** A sample as the sampler takes one, with a number of connections to know it by. */
const takeSample = ({ service_id: id }: Service, connections: number) =>
  sql`insert into samples (service_id, node, at, cpu_millis, memory_bytes, storage_bytes,
        connections, transactions_per_second)
      values (${id}, 0, date_trunc('milliseconds', clock_timestamp()), 12, 3e9, 4e9,
        ${connections}, 0.5)`.execute(metadata.db);

const connectionsIn = ({ body }: Received): number[] =>
  decodeRemoteWrite(body)
    .filter(({ labels }) => labels['__name__'] === 'timescale_cloud_database_num_connections')
    .flatMap(({ samples }) => samples.map(({ value }) => value))
    // The sampler's own samples have none.
    .filter((value) => value >= 1000);

test('samples are pushed in order, again after a failure, while another hangs', async () => {
  const [one, two] = [
    await cloud.create({ name: 'one', service_type: 'POSTGRES' }),
    await cloud.create({ name: 'two', service_type: 'POSTGRES' }),
  ];
  const hanging = await receiver(() => null);
  let wasBeside = false;
  const failing = await receiver((count) => {
    wasBeside ||= hanging.open() > 0;
    return count === 1 ? 500 : 204;
  });
  const [slow, good] = [
    await exporterOf('OTLP_METRICS', { url: hanging.url, headers: { 'X-Token': SECRET } }),
    await exporterOf('PROMETHEUS_REMOTE_WRITE', { url: failing.url, bearer_token: SECRET }),
  ];
  await takeSample(one, 1000);
  await attach(two, slow);
  await attach(one, good);
  expect(await cloud.get(one.service_id)).toMatchObject({ metric_exporter_id: good });
  await takeSample(two, 2000);
  await untilExpected('the hanging receiver has a request', async () =>
    expect(hanging.received.length).toBeGreaterThan(0),
  );
  await takeSample(one, 1001);
  await untilExpected('the failing receiver has a request', async () =>
    expect(failing.received.length).toBe(1),
  );
  await untilExpected('the exporter shows the failure', async () =>
    expect(await ask(200, 'GET', `/exporters/${good}`)).toMatchObject({
      warning: expect.stringContaining('500'),
      last_success: null,
    }),
  );
  // The time of the queue is in the metadata database: a crash loses nothing.
  await cloud.stop('SIGKILL');
  await cloud.up();
  await takeSample(one, 1002);
  await untilExpected('the receiver has the samples of before and after the crash', async () =>
    expect([...new Set(failing.received.slice(1).flatMap(connectionsIn))]).toEqual([1001, 1002]),
  );
  const [, again] = failing.received;
  expect(again?.headers).toMatchObject({
    'content-encoding': 'snappy',
    'content-type': 'application/x-protobuf',
    'x-prometheus-remote-write-version': '0.1.0',
    authorization: `Bearer ${SECRET}`,
  });
  const series = decodeRemoteWrite(again?.body ?? Buffer.alloc(0));
  const labels = { node: '0', project_id: cloud.projectId, role: 'primary', region: 'local' };
  expect(series).toContainEqual({
    labels: { __name__: 'howdah_service_memory_bytes', service_id: one.service_id, ...labels },
    samples: [{ value: 3e9, timestamp: expect.any(Number) }],
  });
  const shown = async () => ask(200, 'GET', `/exporters/${good}`);
  await untilExpected('the exporter shows its last success', async () =>
    expect(await shown()).toMatchObject({ last_success: expect.any(String) }),
  );
  expect(await shown()).not.toHaveProperty('warning');
  const [otlp] = hanging.received;
  expect(otlp?.headers).toMatchObject({ 'x-token': SECRET, 'content-type': 'application/json' });
  expect(JSON.stringify(JSON.parse(otlp?.body.toString() ?? ''))).toContain(
    '"name":"timescale_cloud_database_num_connections"',
  );

  await until('a request arrives while another receiver hangs', async () => {
    await takeSample(one, 500);
    return wasBeside;
  });

  expect(await ask(409, 'DELETE', `/exporters/${good}`)).toMatchObject({
    message: expect.stringContaining(`${one.service_id} (one)`),
  });
  const detach = { exporter_id: good };
  await ask(200, 'POST', `/services/${one.service_id}/detachFromExporter`, detach);
  await ask(409, 'POST', `/services/${one.service_id}/detachFromExporter`, detach);
  await ask(204, 'DELETE', `/exporters/${good}`);
  await ask(404, 'GET', `/exporters/${good}`);
});

test('a receiver that refuses samples or redirects is shown, and gets one request', async () => {
  const service = await cloud.create({ name: 'refused', service_type: 'POSTGRES' });
  for (const status of [400, 302]) {
    const { url, received } = await receiver(() => status);
    const exporter = await exporterOf('PROMETHEUS_REMOTE_WRITE', { url });
    await attach(service, exporter);
    await takeSample(service, 3000 + status);
    await untilExpected(`the exporter warns of status ${status}`, async () =>
      expect(textOf(await ask(200, 'GET', `/exporters/${exporter}`), 'warning')).toContain(
        String(status),
      ),
    );
    expect(received).toHaveLength(1);
  }
});

test('URLs of this machine, other types and wrong configurations are refused', async () => {
  for (const [status, type, config, why] of [
    [400, 'OTLP_METRICS', { url: 'http://169.254.169.254/' }, 'private network'],
    [400, 'OTLP_METRICS', { url: 'http://user:word@example.com/' }, 'fields of their own'],
    [400, 'OTLP_METRICS', { url: 'file:///etc/passwd' }, 'https, http'],
    [400, 'OTLP_METRICS', {}, 'url: missing'],
    [400, 'OTLP_METRICS', { url: 'https://a.test/', headers: { Host: 'b' } }, 'Host'],
    [400, 'OTLP_METRICS', { url: 'https://a.test/', headers: { X: 'a\r\nY: b' } }, 'ASCII'],
    [400, 'PROMETHEUS_METRICS', { username: 'a' }, 'password: missing'],
    [400, 'PROMETHEUS_METRICS', { url: 'https://a.test/' }, 'url'],
    [400, 'PROMETHEUS_REMOTE_WRITE', { url: 'https://a.test/', password: 'b' }, 'username'],
    [422, 'DATADOG_METRICS', { api_key: 'x', site: 'y' }, 'PROMETHEUS_REMOTE_WRITE'],
    [422, 'CLOUDWATCH_LOGS', { log_group_name: 'x' }, 'no logs'],
  ] as const) {
    const body = { name: 'wrong', type, region_code: 'local', config };
    expect(await ask(status, 'POST', '/exporters', body)).toMatchObject({
      message: expect.stringContaining(why),
    });
  }
});

test('a scrape needs the login of the exporter; a kept secret goes to no other URL', async () => {
  const service = await cloud.create({ name: 'scraped', service_type: 'POSTGRES' });
  const id = await exporterOf('PROMETHEUS_METRICS', { username: 'prom', password: SECRET });
  const shown = await ask(200, 'PATCH', `/exporters/${id}`, {
    type: 'PROMETHEUS_METRICS',
    config: { username: 'prom', enable_pg_metrics: true },
  });
  const endpoint = textOf(Reflect.get(Object(shown), 'config'), 'endpoint');
  const scrape = (login: string) =>
    fetch(endpoint, { headers: { Authorization: `Basic ${btoa(login)}` } });
  await attach(service, id);
  await takeSample(service, 4000);
  const answer = await scrape(`prom:${SECRET}`);
  expect(answer.status).toBe(200);
  expect(await answer.text()).toMatch(
    new RegExp(`^timescale_cloud_database_num_connections{.*${service.service_id}.*} 4000$`, 'm'),
  );
  for (const login of ['prom:wrong', `other:${SECRET}`, ':'])
    expect((await scrape(login)).status).toBe(401);
  expect((await fetch(endpoint)).headers.get('WWW-Authenticate')).toContain('Basic');

  const url = 'https://receiver.test/write';
  const pushed = await exporterOf('PROMETHEUS_REMOTE_WRITE', {
    url,
    username: 'a',
    password: SECRET,
  });
  const elsewhere = { config: { url: 'https://attacker.test/write' } };
  expect(await ask(400, 'PATCH', `/exporters/${pushed}`, elsewhere)).toMatchObject({
    message: expect.stringContaining('password'),
  });
  await ask(200, 'PATCH', `/exporters/${pushed}`, { name: 'renamed', config: { url } });
  expect(bodies.join('\n')).not.toContain(SECRET);
  const { rows } = await sql<{ found: boolean }>`
    select bool_or(position(${SECRET} in e::text) > 0) as found from exporters e`.execute(
    metadata.db,
  );
  expect(rows).toEqual([{ found: false }]);
});
