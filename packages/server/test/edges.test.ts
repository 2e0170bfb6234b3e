/**
 * Input of callers and tenants at the limits of what is allowed: parameters, JSON, names, host
 * names, and lines of a server log.
 */
import { get, METHODS } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql, type RawBuilder } from 'kysely';
import type { Client } from 'pg';
import { problemOf, ROUTES } from './document.ts';
import { connectTo, install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { createTemplates, ensureStoreRunning, prepareMachine } from './probe.ts';
import { until, untilExpected } from './until.ts';

let cloud: Installation;
let service: Service;
let client: Client;
beforeAll(async () => {
  cloud = await install();
  service = await cloud.create({ name: 'edges', service_type: 'POSTGRES' });
  client = await connectTo(cloud, service, service.initial_password ?? '');
});
afterAll(async () => {
  await client?.end();
  expect(await cloud?.destroy()).toEqual([]);
});

const serviceCount = async (): Promise<number> => {
  const { body } = await cloud.request('GET', '/services');
  return Array.isArray(body) ? body.length : -1;
};

const EVERY_METHOD = 'GET, HEAD, POST, PUT, PATCH, DELETE';

test('a method that no route has is 405 with the methods of the path', async () => {
  const headers = { Authorization: `Bearer ${cloud.key}`, 'Content-Type': 'application/json' };
  const url = `${cloud.apiUrl}/projects/${cloud.projectId}/services`;
  for (const method of ['QUERY', 'BREW', 'PROPFIND', 'OPTIONS', 'LOCK'])
    for (const body of [undefined, '{"name":"x"}']) {
      const answer = await fetch(url, { method, headers, ...(body === undefined ? {} : { body }) });
      // Older versions of Node do not know QUERY, and so no path of its request.
      const allowed = METHODS.includes(method) ? 'GET, HEAD, POST' : EVERY_METHOD;
      expect([answer.status, answer.headers.get('allow')], method).toEqual([405, allowed]);
      expect(await answer.json()).toMatchObject({ code: 'METHOD_NOT_ALLOWED' });
    }
});

test('a misspelled query parameter is refused by every route, with the right one', async () => {
  const headers = { Authorization: `Bearer ${cloud.key}`, 'Content-Type': 'application/json' };
  const ids: Record<string, string> = {
    project_id: cloud.projectId,
    service_id: service.service_id,
  };
  for (const route of ROUTES) {
    const path = route.path.replaceAll(
      /\{([a-z_]+)\}/g,
      (_, name: string) => ids[name] ?? 'nosuchidxx',
    );
    if (route.names.some((name) => ids[name] === undefined)) continue; // 404 comes first
    const response = await fetch(`${cloud.apiUrl}${path}?Dry_run=true`, {
      method: route.method,
      headers,
      ...(route.method === 'GET' || route.method === 'DELETE' ? {} : { body: '{}' }),
    });
    const text = await response.text();
    const what = `${route.operationId}: ${response.status} ${text.slice(0, 300)}`;
    expect(response.status, what).toBe(400);
    expect(text, what).toContain('Dry_run');
    if (route.changes) expect(text, what).toContain('did you mean dry_run?');
    expect(problemOf(route, response.status, text), what).toBeNull();
  }
  const made = await cloud.request('POST', '/services?Dry_run=true', {
    name: 'not made',
    service_type: 'POSTGRES',
  });
  expect(made).toMatchObject({
    status: 400,
    body: { code: 'INVALID_REQUEST', message: expect.stringContaining('dry_run') },
  });
  expect(await serviceCount()).toBe(1);
  for (const path of ['/ca.pem?x=1', '/openapi.json?x=1'])
    expect((await fetch(`${cloud.apiUrl}${path}`)).status).toBe(400);
});

test('JSON nested without end is refused in the error contract', async () => {
  for (const depth of [40, 5000, 30_000]) {
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ] as const) {
      const nested = `${open.repeat(depth / open.length)}1${close.repeat(depth / open.length)}`;
      for (const body of [
        nested,
        `{"name":${nested}}`,
        `{"name":"x","${'x'.repeat(10)}":${nested}}`,
      ]) {
        for (const more of [{}, { 'Idempotency-Key': `deep-${depth}` }]) {
          const answer = await cloud.request('POST', '/services?strict=true', body, more);
          expect(answer.status, JSON.stringify(answer.body)).toBe(400);
          expect(answer.body).toMatchObject({
            code: 'INVALID_REQUEST',
            request_id: expect.any(String),
          });
        }
      }
    }
  }
});

test('invisible characters and halves of pairs are refused in every name', async () => {
  const path = `/services/${service.service_id}`;
  const calls: [string, string, Record<string, unknown>][] = [
    ['POST', '/services', { service_type: 'POSTGRES' }],
    ['POST', `${path}/rename`, {}],
    ['POST', `${path}/forkService`, { fork_strategy: 'NOW' }],
    ['POST', `${path}/replicaSets`, { nodes: 1, cpu_millis: 500, memory_gbs: 2 }],
    ['POST', '/keys', { role: 'viewer' }],
    ['POST', '/vpcs', { cidr: '10.9.0.0/16', region_code: 'local' }],
  ];
  const projects: [string, string, Record<string, unknown>][] = [['POST', '/projects', {}]];
  for (const [method, where, body] of [...calls, ...projects]) {
    for (const bad of [
      '\u0007',
      '\u001b[31m',
      '\u009b',
      '\u202e',
      '\u2066',
      '\u200e',
      '\u200b',
      '\ufeff',
      '\u2028',
      '\ud800',
      '\udc00x',
      '\0',
    ]) {
      for (const query of ['', '?dry_run=true']) {
        const root = where === '/projects' ? '' : `/projects/${cloud.projectId}`;
        const response = await fetch(`${cloud.apiUrl}${root}${where}${query}`, {
          method,
          headers: { Authorization: `Bearer ${cloud.key}`, 'Content-Type': 'application/json' },
          body: JSON.stringify({ ...body, name: `a${bad}b` }),
        });
        const text = await response.text();
        expect(response.status, `${where}${query} ${JSON.stringify(bad)}: ${text}`).toBe(400);
        expect(JSON.parse(text)).toMatchObject({ code: 'INVALID_REQUEST' });
      }
    }
  }
  expect(await serviceCount()).toBe(1);
  const halves = await cloud.request('POST', `${path}/query`, {
    sql: 'select $1',
    parameters: ['\ud800'],
  });
  expect(halves).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
  expect(
    (await cloud.request('POST', '/webhooks', { url: 'https://example.com/\n\u202e' })).status,
  ).toBe(400);
});

const answerTo = (
  path: string,
  headers: Record<string, string>,
): Promise<{ status: number; headers: Record<string, unknown> }> =>
  new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port: cloud.port, path, headers, agent: false }, (response) => {
      response.resume();
      resolve({ status: response.statusCode ?? 0, headers: response.headers });
    }).on('error', reject);
  });

test('no answer is cached or sniffed; names of others are refused without a key', async () => {
  const path = `/public/api/v1/projects/${cloud.projectId}/services`;
  const own = { Authorization: `Bearer ${cloud.key}` };
  const session = await fetch(`${cloud.apiUrl}/auth/sessions`, {
    method: 'POST',
    headers: { ...own, 'X-Howdah-Console': '1' },
  });
  const cookie = session.headers.get('set-cookie')?.split(';')[0] ?? '';
  const byCookie = { Cookie: cookie, 'X-Howdah-Console': '1' };
  for (const headers of [own, { ...byCookie, Host: `127.0.0.1:${cloud.port}` }])
    expect(await answerTo(path, headers)).toMatchObject({
      status: 200,
      headers: { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' },
    });
  for (const [refused, headers] of [
    [path, {}],
    ['/nowhere', {}],
    ['/healthz', {}],
    ['/metrics', {}],
    ['/public/api/v1/openapi.json', {}],
  ] as const)
    expect((await answerTo(refused, headers)).headers, refused).toMatchObject({
      'x-content-type-options': 'nosniff',
    });

  const rebound = { Host: `evil.example:${cloud.port}` };
  for (const hidden of [path, '/metrics', '/', '/public/api/v1/ca.pem'])
    expect((await answerTo(hidden, { ...byCookie, ...rebound })).status, hidden).toBe(400);
  expect((await answerTo('/healthz', rebound)).status).toBe(200);
  expect((await answerTo(path, { ...own, ...rebound })).status).toBe(200);
  expect((await answerTo('/metrics', { Host: `localhost:${cloud.port}` })).status).toBe(200);
});

/**
 * The longest that the event loop of the control plane was held up since this was asked last, in
 * seconds, and its p99.
 */
async function eventLoopDelay(): Promise<{ max: number; p99: number }> {
  const text = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  const value = (name: string): number =>
    Number(new RegExp(`^nodejs_eventloop_lag_${name}_seconds (\\S+)`, 'm').exec(text)?.[1]);
  return { max: value('max'), p99: value('p99') };
}

test('log lines of 30 MB, read by eight callers at a time, are cut, delaying nobody', async () => {
  await client.query(
    `do $$ begin for i in 1..3 loop raise log '%', repeat('x', 30000000); end loop; end $$`,
  );
  await client.query(
    `do $$ begin for i in 1..2000 loop raise log '%', repeat('y', 3000); end loop; end $$`,
  );
  const path = `/services/${service.service_id}/logs`;
  await eventLoopDelay();
  let reading = true;
  let between = 0;
  const others = (async (): Promise<void> => {
    while (reading) {
      expect((await fetch(`http://127.0.0.1:${cloud.port}/healthz`)).status).toBe(200);
      between += 1;
    }
  })();
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, index) =>
      cloud.request('GET', index % 2 === 0 ? path : `${path}?search=${'x'.repeat(250)}z`),
    ),
  );
  // And eight that leave at once.
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      const leaving = new AbortController();
      const call = fetch(`${cloud.apiUrl}/projects/${cloud.projectId}${path}?search=nothing`, {
        headers: { Authorization: `Bearer ${cloud.key}` },
        signal: leaving.signal,
      });
      const before = between;
      await until('two other calls are answered', () => between > before + 1);
      leaving.abort();
      await call.then((response) => response.text()).catch(() => undefined);
    }),
  );
  reading = false;
  await others;
  const { max, p99 } = await eventLoopDelay();
  process.stdout.write(
    `${between} other calls answered; event loop of the control plane held up for ` +
      `${(max * 1000).toFixed(0)} ms at most, p99 ${(p99 * 1000).toFixed(0)} ms\n`,
  );
  expect(between).toBeGreaterThan(50);
  for (const { status, body } of answers) {
    expect(status).toBe(200);
    // Twice what a page shows: as lines, and as entries.
    expect(JSON.stringify(body).length).toBeLessThan(4e6);
  }
  // Page by page the long lines come, each cut.
  let [cursor, cut, pages] = ['', 0, 0];
  do {
    const { data } = await cloud.client.GET('/projects/{project_id}/services/{service_id}/logs', {
      params: {
        path: { project_id: cloud.projectId, service_id: service.service_id },
        query: { search: 'xxx', cursor },
      },
    });
    const isCut = ({ message }: { message: string }) =>
      /^x{60000,}\n.*\[cut after 64 KiB of at least \d+ bytes\]$/s.test(message);
    cut += data?.entries.filter(isCut).length ?? 0;
    cursor = data?.last_cursor ?? '';
    expect(++pages).toBeLessThan(100);
  } while (cursor !== '');
  expect(cut).toBe(3);
});

test('the command line shows what a tenant wrote, and obeys none of it', async () => {
  const evil = '\u001b]0;owned\u0007\u001b[2J\u009b31m\u202etxt.exe';
  const log =
    "do $$ begin raise log '%', " +
    `E'needle \\x1b]0;owned\\x07\\x1b[2J\\u009b31m\\u202etxt.exe'; end $$`;
  // Another service: after the flood of the test before, nothing is read from the server log of the
  // first one for a minute.
  const other = await cloud.create({ name: 'written', service_type: 'POSTGRES' });
  const writer = await connectTo(cloud, other, other.initial_password);
  await writer.query(log);
  await writer.end();
  const logged = async () => (await cloud.cli('logs', 'written', '--search', 'needle')).stdout;
  await untilExpected('the server log has the entry', async () =>
    expect(await logged()).toContain('needle'),
  );
  const hidden = /[^\P{Cc}\n]|[\u202a-\u202e\u2066-\u2069]/u;
  for (const format of ['table', 'json', 'yaml']) {
    const logs = await cloud.cli('logs', 'written', '--search', 'needle', '--output', format);
    expect(logs.stdout).toContain('needle');
    expect(logs.stdout).not.toMatch(hidden);
    const query = await cloud.cli(
      'query',
      'written',
      'select $1 as "needle\u001b[2J"',
      '--parameter',
      evil,
      '--output',
      format,
    );
    expect(query.code, query.stderr).toBe(0);
    expect(query.stdout).toContain('txt.exe');
    expect(query.stdout).not.toMatch(hidden);
    if (format === 'json') expect(JSON.parse(query.stdout)).toMatchObject({ rows: [[evil]] });
  }
  const failed = await cloud.cli('query', 'written', `select 1 / 0 from "${evil}"`);
  expect(failed.code).not.toBe(0);
  expect(failed.stderr).toContain('txt.exe');
  expect(failed.stderr).not.toMatch(hidden);
});

test('a start with the metadata database of a newer version says so, and what to do', async () => {
  await cloud.stop('SIGKILL');
  const change = async (statement: RawBuilder<unknown>): Promise<void> => {
    const metadata = await openMetadata(cloud.home);
    await statement.execute(metadata.db);
    await metadata.close();
  };
  await change(sql`insert into kysely_migration values ('0099_future', '2030-01-01T00:00:00Z')`);
  const { code, stderr } = await cloud.cli('up');
  // The start that failed has stopped the metadata database.
  const machine = await prepareMachine(cloud.home);
  await ensureStoreRunning(machine, createTemplates(machine));
  await change(sql`delete from kysely_migration where name = '0099_future'`);
  expect(code).toBe(1);
  expect(stderr).toContain(
    'belongs to a newer version of Howdah: it has the migration 0099_future',
  );
  expect(stderr).toContain('Start that version');
  await cloud.up();
});
