/**
 * The API under bad input: every answer is an error of the contract, and nothing hostile gets
 * anywhere.
 */
import { randomBytes } from 'node:crypto';
import { access } from 'node:fs/promises';
import { connect } from 'node:net';
import * as fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  at,
  bearer,
  cloud,
  expectError,
  json,
  ofTarget,
  send,
  service,
  setUp,
  tearDown,
} from './api-requests.ts';
import { connectTo } from './harness.ts';
import type { Answer } from './harness-caller.ts';
import { newId } from './probe.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

// ── bodies, paths, methods
// ───────────────────────────────────────────────────────────────────────────────────────

const post = (body: string, headers: Record<string, string> = json) =>
  send('POST', at('/services'), { ...bearer(cloud.key), ...headers }, body);

test('a malformed or missing body is refused with the reason', async () => {
  for (const body of [
    '{',
    '{"name":}',
    "{'name':'x'}",
    '{"name":"x"}}',
    '\ufeff{}x',
    'undefined',
    '{"name":"\n"}',
    '\0',
    '[1,',
    '{"a":1e}',
  ])
    expectError(await post(body), 400, 'JSON');
  for (const body of ['[]', '5', 'null', '"x"', 'true', '', '{}', '[{"name":"x"}]'])
    expectError(await post(body), 400);
  for (const name of ['__proto__', 'constructor']) {
    const body = `{"${name}":{"prototype":{}},"name":"x"}`;
    const key = { ...bearer(cloud.key), ...json };
    expectError(await send('POST', at('/services?strict=true'), key, body), 400, name);
    const { body: planned } = await send('POST', at('/services?dry_run=true'), key, body);
    expect(planned).toMatchObject({ dry_run: true, ignored: [name] });
  }
  expectError(
    await post('{"name":"x"}', { 'Content-Type': 'text/plain' }),
    415,
    'application/json',
  );
  expectError(await post('name=x', { 'Content-Type': 'application/x-www-form-urlencoded' }), 415);
  expectError(await post('x', { 'Content-Type': 'garbage' }), 415);
  expectError(await post(`{"name":"${'x'.repeat(64 * 1024)}"}`), 413, '64 KiB');
  expectError(await post('['.repeat(30_000)), 400);
  expectError(await post('{"name":"'.padEnd(64 * 1024, 'x')), 400);
});

test('an unknown path is 404, an unknown method 405', async () => {
  const key = bearer(cloud.key);
  for (const path of [
    '/nothing',
    '/projects/x/y/z',
    at('/vpc'),
    ofTarget('/nothing'),
    ofTarget('/start/now'),
    '//projects',
    '/.env',
  ])
    expectError(await send('GET', path, key), 404);
  for (const [method, path, allow] of [
    ['PUT', '/projects', 'GET, HEAD, POST'],
    ['DELETE', at('/services'), 'GET, HEAD, POST'],
    ['PATCH', ofTarget(''), 'GET, HEAD, DELETE'],
    ['GET', ofTarget('/start'), 'POST'],
    ['GET', ofTarget('/rename/'), 'POST'],
    ['POST', ofTarget('/logs?x=1'), 'GET, HEAD'],
  ] as const) {
    const answer = await send(method, path, key);
    expectError(answer, 405, method);
    expect((answer.headers.get('allow') ?? '').split(', ').toSorted()).toEqual(
      allow.split(', ').toSorted(),
    );
  }
  const head = await fetch(`${cloud.apiUrl}${ofTarget('')}`, { method: 'HEAD', headers: key });
  expect(head.status).toBe(200);
  for (const path of [
    ofTarget('/%'),
    at('/services/%zz'),
    at('/services/%e0%80'),
    at('/services/%ed%a0%80'),
    '/%c0%ae%c0%ae',
  ]) {
    const { status } = await send('GET', path, key);
    expect([400, 404], path).toContain(status);
  }
});

const HOSTILE_IDS = [
  '%00',
  'abc%00defgh',
  '..%2f..%2fetc%2fpasswd',
  '..',
  '%2e%2e',
  '%252e%252e%252f',
  "'%20or%201=1--",
  '%27%3b%20drop%20table%20services%3b--',
  '%24%28touch%20x%29',
  '%60id%60',
  '%0d%0aSet-Cookie:%20x',
  '%f0%9f%90%98',
  'ABCDEFGHIJ',
  '__proto__',
  'constructor',
  'null',
  '-1',
  'a'.repeat(500),
  'a'.repeat(5000),
];
test.each(HOSTILE_IDS.map((id) => ({ id, title: id.slice(0, 40) })))(
  'the id $title is nobody’s',
  async ({ id }) => {
    const key = { ...bearer(cloud.key), ...json };
    for (const path of ['', '/logs', '/metrics/available-series'])
      expect([404, 403], path).toContain(
        (await send('GET', at(`/services/${id}${path}`), key)).status,
      );
    expect([404, 405, 403]).toContain((await send('DELETE', at(`/services/${id}`), key)).status);
    expect([404, 403]).toContain((await send('POST', at(`/services/${id}/stop`), key)).status);
    expect([404, 403]).toContain((await send('GET', at(`/operations/${id}`), key)).status);
    expect([403, 404]).toContain((await send('GET', `/projects/${id}/services`, key)).status);
    const listed = await send('GET', at(`/operations?service_id=${id}`), key);
    if (id.length <= 64) expect(listed).toMatchObject({ status: 200, body: [] });
    else expectError(listed, 400, 'service_id');
  },
);

test('an id that is none does not disturb requests that come with it', async () => {
  const key = bearer(cloud.key);
  const answers = await Promise.all(
    Array.from({ length: 60 }, (_, index) =>
      send('GET', index % 2 === 0 ? ofTarget('') : at('/services/%00'), key),
    ),
  );
  expect(answers.map(({ status }) => status)).toEqual(
    answers.map((_, index) => (index % 2 === 0 ? 200 : 404)),
  );
});

// ── names and passwords that would like to be something else
// ─────────────────────────────────────────────────────

const CANARY = `/tmp/howdah-canary-${newId()}`;
const HOSTILE_NAMES = [
  "'; drop table services; --",
  `$(touch ${CANARY})`,
  `\`touch ${CANARY}\``,
  `; touch ${CANARY} #`,
  '"><script>alert(1)</script>',
  '../../../../etc/passwd',
  '{{7*7}} ${7*7} %s %n',
  "'||(select version())||'",
  '\\x00 \\u0000 \\',
  '🐘 gpj.exe',
  '-rf',
];
test('a hostile name is stored and returned as it is', async () => {
  for (const name of HOSTILE_NAMES) {
    const renamed = await cloud.request('POST', `/services/${service.service_id}/rename`, { name });
    expect(renamed).toMatchObject({ status: 200, body: { name } });
    expect((await cloud.get(service.service_id)).name).toBe(name);
  }
  const hostile = await Promise.all(
    HOSTILE_NAMES.slice(0, 3).map((name) => cloud.create({ name, service_type: 'POSTGRES' })),
  );
  expect(hostile.map(({ name }) => name)).toEqual(HOSTILE_NAMES.slice(0, 3));
  const listed = await cloud.cli('service', 'list');
  for (const { service_id, name } of hostile) {
    expect(listed.stdout).toContain(name);
    expect((await cloud.request('DELETE', `/services/${service_id}`)).status).toBe(202);
  }
  for (const { service_id } of hostile)
    await untilExpected(`service ${service_id} is deleted`, async () =>
      expect((await cloud.request('GET', `/services/${service_id}`)).status).toBe(404),
    );
  await expect(access(CANARY)).rejects.toThrow('ENOENT');
});

test('control characters are refused wherever they stand', async () => {
  for (const character of [
    '\0',
    '\u0001',
    '\u001b',
    '\n',
    '\r',
    '\t',
    '\u007f',
    '\u0085',
    '\u009f',
  ]) {
    expectError(
      await cloud.request('POST', `/services/${service.service_id}/rename`, {
        name: `a${character}b`,
      }),
      400,
      'name',
    );
    expectError(await cloud.request('POST', '/services', { name: `a${character}b` }), 400, 'name');
  }
});

test('a hostile password is accepted and logs in', async () => {
  for (const password of [
    "'; alter role tsdbadmin superuser; --",
    `$(touch ${CANARY})`,
    '\\\'"$body$;select 1',
    'x'.repeat(128),
  ]) {
    expect(
      (await cloud.request('POST', `/services/${service.service_id}/updatePassword`, { password }))
        .status,
    ).toBe(204);
    const client = await connectTo(cloud, service, password);
    expect(
      (await client.query("select rolsuper from pg_roles where rolname = 'tsdbadmin'")).rows,
    ).toEqual([{ rolsuper: false }]);
    await client.end();
  }
  await expect(access(CANARY)).rejects.toThrow('ENOENT');
});

test('whatever JSON is sent, the answer is one of the contract', async () => {
  const calls = [
    '/services',
    ...[
      'rename',
      'setEnvironment',
      'setExpiry',
      'setAutoSuspend',
      'resize',
      'updatePassword',
      'metrics/series',
    ].map((path) => `/services/nosuchidxx/${path}`),
  ];
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...calls), fc.jsonValue(), async (path, body) => {
      // A random body is never a good one: no name is drawn together with good values for the rest.
      fc.pre(
        !(path === '/services' && typeof body === 'object' && body !== null && 'name' in body),
      );
      const answer = await cloud.request('POST', path, body);
      expectError(answer, path === '/services' ? 400 : 404);
    }),
    { numRuns: 100 },
  );
});

// ── HTTP itself
// ─────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Sends bytes as they are. @returns all that came back until the server, or we after it is
 * complete, closed
 */
async function sendRaw(
  bytes: string | Buffer,
  until: (text: string) => boolean = () => false,
): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(cloud.port, '127.0.0.1');
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      if (until(text)) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(text));
    socket.write(bytes);
  });
}

/** The status and body of an answer. */
function parseAnswer(text: string): Pick<Answer, 'status' | 'body'> {
  const [head = '', ...rest] = text.split('\r\n\r\n');
  expect(head.toLowerCase()).toContain('content-type: application/json');
  return {
    status: Number(/^HTTP\/1\.1 (\d+) /.exec(head)?.[1]),
    body: JSON.parse(rest.join('\r\n\r\n')),
  };
}

test('bytes that are not HTTP are answered 400', async () => {
  for (const garbage of [
    'GARBAGE\r\n\r\n',
    'GET\r\n\r\n',
    'GET / HTTP/9.9\r\n\r\n',
    'GET /a b HTTP/1.1\r\nHost: x\r\n\r\n',
    'GET / HTTP/1.1\r\nNo colon here\r\n\r\n',
    'GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n',
    'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n' +
      'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]),
  ])
    expectError(parseAnswer(await sendRaw(garbage)), 400);
  expectError(
    parseAnswer(
      await sendRaw(
        `GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: ${'a'.repeat(9000)}\r\n\r\n`,
      ),
    ),
    431,
    '8 KiB',
  );
  expectError(
    parseAnswer(await sendRaw(`GET /${'a'.repeat(20_000)} HTTP/1.1\r\nHost: x\r\n\r\n`)),
    431,
  );
});

test('headers that do not come are not waited for', async () => {
  // Nobody measures how long this takes: the server must end it by itself.
  expectError(
    parseAnswer(await sendRaw('GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ')),
    408,
    'in time',
  );
});

const isWhole = (text: string) => text.includes('\r\n\r\n') && /\}\s*$/.test(text);

test('odd but valid HTTP is answered in JSON too', async () => {
  for (const [request, status] of [
    ['GET /healthz HTTP/1.1\r\n\r\n', 200],
    ['GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: the-unexpected\r\n\r\n', 200],
    ['GET /nothing HTTP/1.0\r\n\r\n', 404],
    ['TRACE /healthz HTTP/1.1\r\nHost: x\r\n\r\n', 405],
    ['PROPFIND /healthz HTTP/1.1\r\nHost: x\r\n\r\n', 405],
    ['OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n', 404],
    ['GET /healthz HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n', 200],
  ] as const) {
    const answer = parseAnswer(await sendRaw(request, isWhole));
    if (status === 200) expect(answer, request).toMatchObject({ status, body: { status: 'ok' } });
    else expectError(answer, status);
  }
});

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;

test('pipelined requests are answered in their order', async () => {
  const text = await sendRaw(
    ['/healthz', '/nothing', '/healthz', '/readyz'].map(get).join(''),
    (seen) => seen.includes('"ready"'),
  );
  expect([...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map((match) => match[1])).toEqual([
    '200',
    '404',
    '200',
    '200',
  ]);
});

test('16 requests may wait for their answers on one connection; one more ends it', async () => {
  const ok = (text: string): number => [...text.matchAll(/HTTP\/1\.1 200/g)].length;
  expect(ok(await sendRaw(get('/healthz').repeat(16), (seen) => ok(seen) === 16))).toBe(16);
  expect(ok(await sendRaw(get('/healthz').repeat(200)))).toBeLessThan(200);
});

test('200 senders of garbage at once, and the API goes on', async () => {
  const answers = await Promise.all([
    ...Array.from({ length: 200 }, async (_, index) =>
      sendRaw(index % 2 === 0 ? randomBytes(500) : `${randomBytes(300).toString('hex')}\r\n\r\n`),
    ),
    cloud.request('GET', '/services'),
  ]);
  expect(answers.at(-1)).toMatchObject({ status: 200 });
  for (const answer of answers.slice(0, -1))
    if (typeof answer === 'string' && answer !== '') expectError(parseAnswer(answer), 400);
});

test('connections that say nothing, or stop in the middle, do not hold up a stop', async () => {
  const silent = connect(cloud.port, '127.0.0.1').on('error', () => undefined);
  const halfway = connect(cloud.port, '127.0.0.1').on('error', () => undefined);
  halfway.write(
    `POST ${new URL(cloud.apiUrl).pathname}${at('/services')} HTTP/1.1\r\nHost: x\r\n` +
      `Authorization: Bearer ${cloud.key}\r\n`,
  );
  const closed = Promise.all(
    [silent, halfway].map((socket) => new Promise((resolve) => socket.once('close', resolve))),
  );
  await new Promise((resolve) => silent.once('connect', resolve));
  await cloud.stop('SIGTERM');
  await closed;
  await cloud.up();
  expect((await cloud.get(service.service_id)).service_id).toBe(service.service_id);
});

test('no request above ended in an internal error', async () => {
  const { stdout } = await cloud.cli('status');
  expect(stdout).toContain('The control plane runs');
  const metrics = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  expect(metrics.match(/status="5\d\d"/g) ?? []).toEqual([]);
});
