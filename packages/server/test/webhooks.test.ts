/**
 * Webhooks: signed as in Standard Webhooks, tried again over everything that dies, and never sent
 * to where they must not go.
 */
import { createHmac } from 'node:crypto';
import { followEvents } from '@howdah/client';
import { sql } from 'kysely';
import { Webhook } from 'standardwebhooks';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { blockListOf, deliver } from './probe.ts';
import {
  cloud,
  deliveries,
  hurry,
  makeWebhook,
  metadata,
  otherProject,
  receiver,
  rename,
  servers,
  webhooks,
  setUp,
  tearDown,
} from './webhooks-cloud.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

afterEach(async () => {
  for (const { id } of await webhooks()) await cloud.request('DELETE', `/webhooks/${id}`);
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

test('every event is delivered once and in order, with a verifiable signature', async () => {
  const { url, received } = await receiver();
  const { id, secret } = await makeWebhook({ url });
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  for (let n = 0; n < 5; n++) await rename(`name ${n}`);
  await untilExpected('ten events are received', () => expect(received.length).toBe(10));
  const told: string[] = [];
  for await (const event of followEvents({ ...cloud, after: '0', follow: false }))
    told.push(JSON.stringify(event));
  expect(received.map(({ body }) => JSON.stringify(JSON.parse(body)))).toEqual(told.slice(-10));
  for (const { headers, body } of received) {
    expect(headers['content-type']).toBe('application/json');
    // The reference implementation of the specification, and the specification by hand.
    expect(new Webhook(secret).verify(body, headers)).toEqual(JSON.parse(body));
    expect(() => new Webhook(secret).verify(body.replace('rename', 'resize'), headers)).toThrow(
      /signature/i,
    );
    const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
    const mac = createHmac('sha256', Buffer.from(secret.slice('whsec_'.length), 'base64'))
      .update(signed)
      .digest('base64');
    expect(headers['webhook-signature']).toBe(`v1,${mac}`);
    expect(headers['webhook-id']).toBe(`event_${JSON.parse(body).id}`);
  }
  expect(await deliveries(id)).toHaveLength(10);
  expect(
    (await deliveries(id, 'delivered')).every(
      ({ attempts, response_status: status }) => attempts === 1 && status === 204,
    ),
  ).toBe(true);
});

test('only events of the requested types are delivered', async () => {
  const { url, received } = await receiver();
  await makeWebhook({ url, types: ['operation.finished'] });
  await rename('a');
  await rename('b');
  await untilExpected('two events are received', () => expect(received.length).toBe(2));
  expect(received.map(({ body }) => JSON.parse(body).type)).toEqual([
    'operation.finished',
    'operation.finished',
  ]);
});

test('a failed delivery is tried again with the same id, also after a kill', async () => {
  let well = false;
  const { url, received } = await receiver(() => (well ? 200 : 503));
  const { id, secret } = await makeWebhook({ url, types: ['operation.finished'] });
  await rename('refused at first');
  await untilExpected('the first attempt is received', () => expect(received.length).toBe(1));
  await untilExpected('the first attempt is recorded', async () =>
    expect((await deliveries(id))[0]?.attempts).toBe(1),
  );
  const [waiting] = await deliveries(id, 'pending');
  expect(waiting).toMatchObject({
    attempts: 1,
    response_status: 503,
    error: 'the receiver answered 503',
    finished: null,
  });
  const waitMs = Date.parse(waiting?.next_attempt ?? '') - Date.parse(waiting?.created ?? '');
  expect(waitMs).toBeGreaterThan(4000);
  // One more that nobody has tried yet when the control plane dies.
  await rename('not delivered yet');
  await cloud.stop('SIGKILL');
  well = true;
  await cloud.up();
  await hurry(id);
  await untilExpected('both events are delivered', async () =>
    expect((await deliveries(id, 'delivered')).length).toBe(2),
  );
  const ids = received.map(({ headers }) => headers['webhook-id']);
  expect(new Set(ids).size).toBe(2);
  expect(ids.filter((one) => one === waiting?.message_id).length).toBeGreaterThanOrEqual(2);
  for (const { body, headers } of received)
    expect(new Webhook(secret).verify(body, headers)).toBeDefined();
});

test('an attempt is repeated after the control plane was killed during it', async () => {
  let well = false;
  const { url, received } = await receiver(() => (well ? 200 : 'never'));
  const { id } = await makeWebhook({ url, types: ['operation.finished'] });
  await rename('interrupted');
  await untilExpected('the first attempt is received', () => expect(received.length).toBe(1));
  await cloud.stop('SIGKILL');
  well = true;
  await cloud.up();
  await untilExpected('the event is delivered', async () =>
    expect((await deliveries(id, 'delivered')).length).toBe(1),
  );
  expect(new Set(received.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
});

test('a delivery fails with its last attempt, and can be delivered again', async () => {
  let well = false;
  const { url, received } = await receiver(() => (well ? 200 : 500));
  const { id } = await makeWebhook({ url, types: ['operation.finished'] });
  await rename('given up');
  for (let attempt = 1; attempt <= 8; attempt++) {
    await untilExpected(`attempt ${attempt} is received`, () =>
      expect(received.length).toBe(attempt),
    );
    await untilExpected(`attempt ${attempt} is recorded`, async () =>
      expect((await deliveries(id))[0]?.attempts).toBe(attempt),
    );
    await hurry(id);
  }
  const [failed] = await deliveries(id, 'failed');
  expect(failed).toMatchObject({
    attempts: 8,
    next_attempt: null,
    error: 'the receiver answered 500',
  });
  expect(failed?.finished).not.toBeNull();
  well = true;
  const again = await cloud.request('POST', `/webhooks/${id}/deliveries/${failed?.id}/redeliver`);
  expect(again).toMatchObject({
    status: 202,
    body: { id: failed?.id, status: 'pending', attempts: 0 },
  });
  await untilExpected('the event is delivered', async () =>
    expect((await deliveries(id, 'delivered')).length).toBe(1),
  );
  expect(received.at(-1)?.headers['webhook-id']).toBe(failed?.message_id);
});

test('a receiver that does not answer delays no other', async () => {
  const stuck = await receiver(() => 'never');
  const quick = await receiver();
  const { id } = await makeWebhook({ url: stuck.url });
  await makeWebhook({ url: quick.url });
  for (let n = 0; n < 5; n++) await rename(`beside ${n}`);
  await untilExpected('the quick receiver has ten events', () =>
    expect(quick.received.length).toBe(10),
  );
  // Were they held up, this one would have timed out and been sent again by now.
  expect(stuck.received).toHaveLength(1);
  await untilExpected('the attempt at the stuck receiver fails', async () =>
    expect((await deliveries(id, 'pending')).find(({ attempts }) => attempts === 1)?.error).toBe(
      'no answer within 10 s',
    ),
  );
});

test('a test delivery reports its result', async () => {
  const { url, received } = await receiver((_, n) => (n === 1 ? 200 : 404));
  const { id, secret } = await makeWebhook({ url });
  const call = () => cloud.request('POST', `/webhooks/${id}/test`);
  expect(await call()).toMatchObject({
    status: 200,
    body: { delivered: true, response_status: 200, error: null },
  });
  expect(await call()).toMatchObject({
    status: 200,
    body: { delivered: false, response_status: 404, error: 'the receiver answered 404' },
  });
  const [first] = received;
  expect(new Webhook(secret).verify(first?.body ?? '', first?.headers ?? {})).toMatchObject({
    type: 'webhook.test',
  });
});

test('URLs of the machine or its network are refused in every spelling', async () => {
  const refused: [string, RegExp][] = [
    ['http://127.0.0.2/', /127\.0\.0\.2 is an address of this machine/],
    ['http://0x7f.2/', /127\.0\.0\.2 is an address/],
    ['http://0177.0.0.2/', /127\.0\.0\.2 is an address/],
    ['http://2130706434/', /127\.0\.0\.2 is an address/],
    ['http://10.0.0.1:8080/x', /10\.0\.0\.1 is an address/],
    ['http://192.168.1.1/', /HOWDAH_WEBHOOK_NETWORKS can allow it/],
    ['http://172.20.0.1/', /172\.20\.0\.1/],
    ['http://169.254.169.254/latest/meta-data', /169\.254\.169\.254/],
    ['http://0.0.0.0/', /0\.0\.0\.0/],
    ['http://[::1]/', /::1 is an address/],
    ['http://[::ffff:127.0.0.2]/', /is an address/],
    ['http://[fe80::1]/', /fe80::1/],
    ['http://[fd00::1]/', /fd00::1/],
    ['ftp://example.com/', /found the scheme ftp; allowed: https, http/],
    ['file:///etc/passwd', /found the scheme file/],
    ['javascript:alert(1)', /found the scheme javascript/],
    ['http://user:secret@example.com/', /carries a user or a password/],
    ['nothing', /is no URL/],
    ['http://', /is no URL/],
  ];
  for (const [url, message] of refused) {
    const answer = await cloud.request('POST', '/webhooks', { url });
    expect(answer, url).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringMatching(message) },
    });
  }
  for (const body of [
    {},
    { url: 5 },
    { url: 'http://e.invalid/', types: ['nothing'] },
    { url: 'http://e.invalid/', secret: 'mine' },
  ])
    expect((await cloud.request('POST', '/webhooks', body)).status, JSON.stringify(body)).toBe(400);
  expect(await webhooks()).toEqual([]);
});

test('a name is checked at the connection, and a redirect is not followed', async () => {
  const inside = await receiver();
  const port = new URL(inside.url).port;
  const send = (url: string, allowed: string[]) =>
    deliver(
      url,
      `whsec_${Buffer.alloc(32).toString('base64')}`,
      { id: 'm', body: '{}' },
      blockListOf(allowed),
    );
  // The same name, as it would be after it came to mean another address than when it was looked at.
  expect(await send(`http://localhost:${port}/`, [])).toEqual({
    responseStatus: null,
    error: expect.stringMatching(
      /^localhost is (127\.0\.0\.1|::1), which is an address of this machine/,
    ),
  });
  expect(await send(`http://127.0.0.1:${port}/`, ['10.0.0.0/8'])).toMatchObject({
    error: expect.stringContaining('127.0.0.1 is an address'),
  });
  expect(inside.received).toEqual([]);
  expect(await send(`http://localhost:${port}/`, ['127.0.0.0/8', '::1/128'])).toEqual({
    responseStatus: 204,
    error: null,
  });
  const redirecting = await receiver(() => ({ redirect: inside.url }));
  expect(await send(redirecting.url, ['127.0.0.0/8'])).toEqual({
    responseStatus: 302,
    error: expect.stringContaining('which is not followed'),
  });
  expect(inside.received).toHaveLength(1);
});

test('the secret is shown once and stored sealed; others see and change nothing', async () => {
  const { url } = await receiver();
  const { id, secret } = await makeWebhook({ url });
  expect(JSON.stringify(await webhooks())).not.toContain('whsec_');
  const { rows } = await sql<{
    row: string;
  }>`select row_to_json(webhooks)::text || encode(secret, 'escape') as row from webhooks`.execute(
    metadata.db,
  );
  expect(rows).toHaveLength(1);
  for (const form of [
    secret,
    secret.slice('whsec_'.length),
    Buffer.from(secret.slice('whsec_'.length), 'base64').toString('hex'),
  ])
    expect(rows[0]?.row).not.toContain(form);
  const another = await otherProject();
  const ask = async (method: string, path: string) =>
    (
      await fetch(`${cloud.apiUrl}/projects/${another.projectId}${path}`, {
        method,
        headers: { Authorization: `Bearer ${another.key}` },
      })
    ).status;
  expect(await ask('GET', '/webhooks')).toBe(200);
  for (const [method, path] of [
    ['DELETE', `/webhooks/${id}`],
    ['POST', `/webhooks/${id}/test`],
    ['GET', `/webhooks/${id}/deliveries`],
    ['POST', `/webhooks/${id}/deliveries/1/redeliver`],
  ] as const)
    expect(await ask(method, path), `${method} ${path}`).toBe(404);
  expect(
    (await cloud.request('POST', `/webhooks/${id}/deliveries/${'9'.repeat(30)}/redeliver`)).status,
  ).toBe(404);
  expect((await cloud.request('DELETE', '/webhooks/%00')).status).toBe(404);
  expect(await webhooks()).toHaveLength(1);
});

test('a project has at most twenty webhooks, also by requests at the same time', async () => {
  const answers = await Promise.all(
    Array.from({ length: 24 }, async () =>
      cloud.request('POST', '/webhooks', { url: 'http://receiver.invalid/' }),
    ),
  );
  expect(answers.filter(({ status }) => status === 201)).toHaveLength(20);
  expect(answers.find(({ status }) => status !== 201)).toMatchObject({
    status: 422,
    body: { code: 'LIMIT_EXCEEDED', message: expect.stringContaining('has 20, of 20') },
  });
});

test('the command line creates, tests, lists and deletes webhooks', { tags: 'slow' }, async () => {
  const { url, received } = await receiver((_, n) => (n === 1 ? 200 : 500));
  const made = await cloud.cli(
    'webhook',
    'create',
    url,
    '--types',
    'operation.finished,service.status',
  );
  expect(made).toMatchObject({ code: 0, stderr: '' });
  expect(made.stdout).toMatch(/ {2}whsec_\S{44}\n/);
  expect((await cloud.cli('webhook', 'list')).stdout).toContain(
    `${url}  operation.finished,service.status`,
  );
  const webhooks: { id: string; url: string }[] = JSON.parse(
    (await cloud.cli('webhook', 'list', '-o', 'json')).stdout,
  );
  const id = webhooks.find((one) => one.url === url)?.id ?? '';
  expect(await cloud.cli('webhook', 'test', id)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('the receiver answered 200'),
  });
  expect(await cloud.cli('webhook', 'test', id)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('not delivered: the receiver answered 500'),
  });
  await rename('by hand');
  await untilExpected('three attempts are received', () => expect(received.length).toBe(3));
  await untilExpected('the pending delivery is listed with its reason', async () =>
    expect((await cloud.cli('webhook', 'deliveries', id)).stdout).toMatch(
      /operation\.finished +pending +1 .*the receiver answered 500/,
    ),
  );
  const [delivery] = await deliveries(id);
  expect(await cloud.cli('webhook', 'redeliver', id, delivery?.id ?? '')).toMatchObject({
    code: 0,
  });
  expect(await cloud.cli('webhook', 'delete', id)).toMatchObject({ code: 0 });
  expect(await cloud.cli('webhook', 'delete', id)).toMatchObject({ code: 3 });
  expect(await cloud.cli('webhook', 'create', url, '--types', 'nothing')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('service.status'),
  });
});
