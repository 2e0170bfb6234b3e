/**
 * Alerts: incidents that open and resolve once, and their messages, to a real mail server and to
 * receivers of hooks.
 */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Server as NetServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { Webhook } from 'standardwebhooks';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { issueServerCertificate, openCertificateAuthority } from './probe.ts';
import { tuned } from './tuning.ts';
import { untilExpected } from './until.ts';

const PASSWORD = 'a-password-that-no-answer-shows';
const PATH = 'a-path-that-no-answer-shows';
const ROUTING_KEY = 'a-routing-key-that-no-answer-shows';

/** The tests set warnings and run the round themselves. */
const HOUR_MS = 3_600_000;

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
let service: string;
const ends: (() => void)[] = [];
const bodies: string[] = [];

/** A directory for the authority of mail servers, which the control plane trusts. */
let directory: string;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hd-mail-'));
  await openCertificateAuthority(directory);
  cloud = await install({
    HOWDAH_WEBHOOK_NETWORKS: '127.0.0.1',
    NODE_EXTRA_CA_CERTS: join(directory, 'ca.pem'),
    ...tuned({ rounds: { warnings: { everyMs: HOUR_MS }, alerts: { everyMs: HOUR_MS } } }),
  });
  metadata = await openMetadata(cloud.home);
  const made = await cloud.create({ name: 'orders', service_type: 'POSTGRES' });
  service = made.service_id;
});

afterEach(async () => {
  for (const one of await destinations())
    await cloud.request('DELETE', `/alerts/destinations/${textOf(one, 'id')}`);
  for (const end of ends.splice(0)) end();
  await setWarnings([]);
  await metadata.db.deleteFrom('alert_incidents').execute();
  await metadata.db.deleteFrom('alert_rules').execute();
});

afterAll(async () => {
  await metadata?.close();
  await rm(directory, { recursive: true, force: true });
  expect(await cloud?.destroy()).toEqual([]);
});

const textOf = (body: unknown, field: string): string => String(Reflect.get(Object(body), field));
const listOf = (body: unknown): unknown[] => (Array.isArray(body) ? body : []);

async function ask(status: number, method: string, path: string, body?: unknown): Promise<unknown> {
  const answer = await cloud.request(method, `/alerts${path}`, body);
  bodies.push(JSON.stringify(answer.body));
  expect(answer, `${method} ${path}`).toMatchObject({ status });
  return answer.body;
}

const destinations = async (): Promise<unknown[]> => listOf(await ask(200, 'GET', '/destinations'));
const incidents = async (status = 'open'): Promise<unknown[]> =>
  listOf(await ask(200, 'GET', `/incidents?status=${status}`));

async function newDestination(type: string, config: object, more: object = {}): Promise<string> {
  return textOf(await created(type, config, more), 'id');
}

const created = (type: string, config: object, more: object = {}): Promise<unknown> =>
  ask(201, 'POST', '/destinations', { name: `by ${type}`, type, config, ...more });

const portOf = (server: Server | NetServer): number => {
  const address: AddressInfo | string | null = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
};

type Received = { path: string; headers: Record<string, string>; body: unknown; text: string };

/** A receiver of hooks, which keeps what it got. */
async function receiver() {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString('utf8');
      const headers = Object.fromEntries(
        Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
      );
      received.push({ path: request.url ?? '', headers, body: JSON.parse(text), text });
      response.writeHead(202).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ends.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const origin = `http://127.0.0.1:${portOf(server)}`;
  return { url: `${origin}/${PATH}`, events: `${origin}/v2/enqueue`, received };
}

/** A mail server that knows one user, and keeps the mails that it got. */
async function mailServer(tls: SMTPServerOptions = { disabledCommands: ['STARTTLS'] }) {
  const mails: string[] = [];
  const server = new SMTPServer({
    ...tls,
    onAuth: ({ username, password }, _session, done) =>
      username === 'howdah' && password === PASSWORD
        ? done(null, { user: username })
        : done(new Error('unknown user or password')),
    onData: (stream, _session, done) => {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        mails.push(Buffer.concat(chunks).toString('utf8'));
        done();
      });
    },
  });
  const { server: listening } = server;
  server.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  ends.push(() => server.close());
  const config = {
    host: '127.0.0.1',
    port: portOf(listening),
    encryption: 'none',
    username: 'howdah',
    password: PASSWORD,
    from: 'howdah@example.com',
    to: ['dba@example.com', 'oncall@example.com'],
  };
  return { config, mails };
}

/** Has the service warn, as the engine would. */
const setWarnings = (warnings: readonly { code: string; message: string }[]) =>
  sql`update services set warnings = ${JSON.stringify(warnings)} where id = ${service}`.execute(
    metadata.db,
  );

const VERIFICATION = { code: 'VERIFICATION', message: 'the newest backup could not be verified' };

/** Has the conditions of these warnings hold, and evaluates the rules. */
async function evaluate(warnings: readonly { code: string; message: string }[]): Promise<void> {
  await setWarnings(warnings);
  await cloud.round('alerts');
}

/** As if conditions had ended five minutes ago. */
const passTime = () =>
  sql`update alert_incidents set cleared = cleared - interval '5 minutes',
        resolved = resolved - interval '5 minutes'`.execute(metadata.db);

/** Has the incident open, and resolve. */
async function openAndResolve(): Promise<void> {
  await evaluate([VERIFICATION]);
  await evaluate([]);
  await passTime();
  await evaluate([]);
}

test('an incident is one message by mail when it opens, and one when it is resolved', async () => {
  const { config, mails } = await mailServer();
  await newDestination('smtp', config);
  await evaluate([VERIFICATION]);
  await cloud.round('alerts', 3);
  await untilExpected('a mail arrives', () => expect(mails).toHaveLength(1));
  expect(mails[0]).toContain('Subject: [Howdah] default: warning: orders: verification');
  expect(mails[0]).toContain('To: dba@example.com, oncall@example.com');
  expect(mails[0]).toContain(VERIFICATION.message);
  expect(await incidents()).toMatchObject([
    { rule: 'verification', service_id: service, about: 'orders', status: 'open', resolved: null },
  ]);

  // The condition ends and holds again, without a message.
  await evaluate([]);
  await evaluate([VERIFICATION]);
  expect(await incidents()).toHaveLength(1);
  await evaluate([]);
  await passTime();
  await evaluate([]);
  await untilExpected('a second mail arrives', () => expect(mails).toHaveLength(2));
  expect(mails[1]).toContain('Subject: [Howdah] default: resolved: orders: verification');
  expect([await incidents(), (await incidents('resolved')).length]).toEqual([[], 1]);

  // The next incident waits.
  await evaluate([VERIFICATION]);
  expect(await incidents()).toEqual([]);
  await passTime();
  await evaluate([VERIFICATION]);
  expect(await incidents()).toHaveLength(1);
});

test('every kind of hook gets its form, and PagerDuty one key for both events', async () => {
  const [slack, teams, pager, hook] = [
    await receiver(),
    await receiver(),
    await receiver(),
    await receiver(),
  ];
  await newDestination('slack', { url: slack.url });
  await newDestination('teams', { url: teams.url });
  await newDestination('pagerduty', { url: pager.events, routing_key: ROUTING_KEY });
  const secret = textOf(await created('webhook', { url: hook.url }), 'secret');
  bodies.pop();
  await openAndResolve();
  const all = [slack, teams, pager, hook];
  await untilExpected('each has two messages', () =>
    expect(all.map(({ received }) => received.length)).toEqual([2, 2, 2, 2]),
  );
  expect(slack.received[0]).toMatchObject({
    path: `/${PATH}`,
    body: { text: expect.stringContaining('orders: verification') },
  });
  expect(teams.received[0]?.body).toMatchObject({
    type: 'message',
    attachments: [{ content: { type: 'AdaptiveCard' } }],
  });
  const [{ id } = { id: '' }] = (await incidents('resolved')).map((one) => ({
    id: textOf(one, 'id'),
  }));
  expect(pager.received.map(({ body }) => body)).toMatchObject([
    { event_action: 'trigger', dedup_key: `howdah-${id}`, routing_key: ROUTING_KEY },
    { event_action: 'resolve', dedup_key: `howdah-${id}` },
  ]);
  const [opened, resolved] = hook.received;
  expect(new Webhook(secret).verify(opened?.text ?? '', opened?.headers ?? {})).toMatchObject({
    type: 'alert.opened',
    data: { project_id: cloud.projectId, incidents: [{ id, rule: 'verification' }] },
  });
  expect(resolved?.body).toMatchObject({ type: 'alert.resolved' });
});

test('messages of quiet hours are held and sent as one; critical ones may pass', async () => {
  const { url, received } = await receiver();
  const quiet = { from: '00:00', to: '00:00', time_zone: 'UTC', critical_passes: true };
  const id = await newDestination('slack', { url }, { quiet_hours: quiet });
  await openAndResolve();
  await evaluate([{ code: 'MEMORY', message: 'processes were ended' }]);
  await ask(200, 'PATCH', '/rules', { rule: 'region_away', for_minutes: 0 });
  await evaluate([{ code: 'REGION_AWAY', message: 'the cluster is away' }]);
  await untilExpected('the critical message arrives', () => expect(received).toHaveLength(1));
  expect(received[0]?.text).toContain('region_away');
  await cloud.round('alertMessages', 2);
  expect(received).toHaveLength(1);

  await ask(200, 'PATCH', `/destinations/${id}`, { quiet_hours: null });
  await untilExpected('the summary arrives', () => expect(received).toHaveLength(2));
  expect(received[1]?.text).toContain('incidents in quiet hours: 2');
  expect(received[1]?.text).toContain('resolved: orders: verification');
  await cloud.round('alertMessages', 2);
  expect(received).toHaveLength(2);
});

test('PagerDuty gets the end in quiet hours, and nothing of a held incident', async () => {
  const { events, received } = await receiver();
  const id = await newDestination('pagerduty', { url: events, routing_key: ROUTING_KEY });
  await evaluate([VERIFICATION]);
  await untilExpected('the begin arrives', () => expect(received).toHaveLength(1));
  const quiet = { from: '00:00', to: '00:00', time_zone: 'UTC', critical_passes: false };
  await ask(200, 'PATCH', `/destinations/${id}`, { quiet_hours: quiet });
  await evaluate([]);
  await passTime();
  await evaluate([]);
  await untilExpected('the end arrives', () => expect(received).toHaveLength(2));
  expect(received[1]?.body).toMatchObject({ event_action: 'resolve' });
  await passTime();
  await openAndResolve();
  expect(await incidents('resolved')).toHaveLength(2);
  await ask(200, 'PATCH', `/destinations/${id}`, { quiet_hours: null });
  await cloud.round('alertMessages', 2);
  expect(received).toHaveLength(2);
});

test('a test call says why a mail server refuses, and that it accepts', async () => {
  const { config, mails } = await mailServer();
  const id = await newDestination('smtp', { ...config, password: 'wrong' });
  expect(await ask(200, 'POST', `/destinations/${id}/test`)).toMatchObject({
    delivered: false,
    error: expect.stringMatching(/the mail server refused the login: .*unknown user or password/),
  });
  expect(await ask(200, 'GET', `/destinations/${id}`)).toMatchObject({
    warning: expect.stringContaining('refused the login'),
  });
  await ask(200, 'PATCH', `/destinations/${id}`, { config: { password: PASSWORD } });
  expect(await ask(200, 'POST', `/destinations/${id}/test`)).toMatchObject({
    delivered: true,
    error: null,
  });
  expect(mails[0]).toContain('a test');
  await ask(200, 'PATCH', `/destinations/${id}`, {
    config: { encryption: 'starttls', password: PASSWORD },
  });
  expect(await ask(200, 'POST', `/destinations/${id}/test`)).toMatchObject({
    delivered: false,
    error: expect.stringContaining('STARTTLS'),
  });
});

test('mail goes over TLS to a server whose certificate is trusted, and to no other', async () => {
  const authority = await openCertificateAuthority(directory);
  const { certificatePem: cert, keyPem: key } = await issueServerCertificate(authority, [
    '127.0.0.1',
  ]);
  const [later, atOnce, unknown] = [
    await mailServer({ cert, key }),
    await mailServer({ cert, key, secure: true }),
    // With a certificate of its own, which nobody has issued.
    await mailServer({}),
  ];
  const outcomeOf = async (config: object, encryption: string) =>
    ask(
      200,
      'POST',
      `/destinations/${await newDestination('smtp', { ...config, encryption })}/test`,
    );
  expect(await outcomeOf(later.config, 'starttls')).toMatchObject({ error: null });
  expect(await outcomeOf(atOnce.config, 'tls')).toMatchObject({ error: null });
  expect([later.mails.length, atOnce.mails.length]).toEqual([1, 1]);
  expect(await outcomeOf(unknown.config, 'starttls')).toMatchObject({
    delivered: false,
    error: expect.stringMatching(/certificate/),
  });
  expect(unknown.mails).toEqual([]);
});

test('a message that is refused is sent again, before those after it', async () => {
  const { url, received } = await receiver();
  const id = await newDestination('slack', { url: 'http://127.0.0.1:1/away' });
  await evaluate([VERIFICATION]);
  await untilExpected('the destination says why', async () =>
    expect(await ask(200, 'GET', `/destinations/${id}`)).toMatchObject({
      warning: expect.stringContaining('ECONNREFUSED'),
    }),
  );
  await evaluate([]);
  await passTime();
  await evaluate([]);
  await ask(200, 'PATCH', `/destinations/${id}`, { config: { url } });
  await sql`update alert_messages set next_at = now()`.execute(metadata.db);
  await untilExpected('both arrive', () => expect(received).toHaveLength(2));
  expect(received.map(({ text }) => text.includes('resolved:'))).toEqual([false, true]);
  const one = await ask(200, 'GET', `/destinations/${id}`);
  expect(Reflect.get(Object(one), 'warning')).toBeUndefined();
});

test('mail servers and hooks inside are refused, when set and when connected', async () => {
  const mail = { from: 'a@example.com', to: ['b@example.com'] };
  for (const host of ['127.0.0.2', '10.0.0.1', '::1', '169.254.169.254', '0.0.0.0'])
    expect(
      await ask(400, 'POST', '/destinations', {
        name: 'inside',
        type: 'smtp',
        config: { host, ...mail },
      }),
      host,
    ).toMatchObject({ message: expect.stringContaining('HOWDAH_WEBHOOK_NETWORKS') });
  for (const type of ['slack', 'teams', 'webhook'])
    await ask(400, 'POST', '/destinations', {
      name: 'x',
      type,
      config: { url: 'http://10.0.0.1/' },
    });
  // A name that came to mean an address inside, after it was set.
  const { config, mails } = await mailServer();
  const id = await newDestination('smtp', config);
  await sql`update alert_destinations set config = config || '{"host": "localhost"}'
    where id = ${id}`.execute(metadata.db);
  const outcome = await ask(200, 'POST', `/destinations/${id}/test`);
  // ::1 is not allowed, if the machine has it.
  if (textOf(outcome, 'delivered') === 'false')
    expect(outcome).toMatchObject({ error: expect.stringContaining('HOWDAH_WEBHOOK_NETWORKS') });
  await sql`update alert_destinations set config = config || '{"host": "127.0.0.2"}'
    where id = ${id}`.execute(metadata.db);
  const before = mails.length;
  expect(await ask(200, 'POST', `/destinations/${id}/test`)).toMatchObject({
    delivered: false,
    error: expect.stringContaining('127.0.0.2 is an address of this machine'),
  });
  expect(mails).toHaveLength(before);
});

test('fields that a type lacks or does not take are refused; rules have bounds', async () => {
  const refused: [object, string][] = [
    [{ type: 'slack', config: {} }, 'config.url: the type slack needs url'],
    [{ type: 'slack', config: { url: 'https://e.invalid/', host: 'x' } }, 'config.host'],
    [{ type: 'pagerduty', config: {} }, 'config.routing_key: the type pagerduty needs it'],
    [
      { type: 'smtp', config: { host: 'e.invalid', from: 'a@e.org' } },
      'config.to: the type smtp needs host, from, to',
    ],
    [
      {
        type: 'slack',
        config: { url: 'https://e.invalid/' },
        quiet_hours: { from: '22:00', to: '06:00', time_zone: 'Nowhere', critical_passes: true },
      },
      'quiet_hours.time_zone: found "Nowhere"',
    ],
  ];
  for (const [body, message] of refused)
    expect(await ask(400, 'POST', '/destinations', { name: 'x', ...body })).toMatchObject({
      message: expect.stringContaining(message),
    });
  expect(
    await ask(200, 'PATCH', '/rules', { rule: 'lag', threshold: 30, enabled: false }),
  ).toMatchObject({ threshold: 30, enabled: false, default_threshold: 60, for_minutes: 5 });
  expect(await ask(200, 'PATCH', '/rules', { rule: 'lag', threshold: null })).toMatchObject({
    threshold: 60,
    enabled: false,
  });
  await ask(400, 'PATCH', '/rules', { rule: 'unstable', threshold: 3 });
  await ask(400, 'PATCH', '/rules', { rule: 'disk', threshold: 101 });
});

test('a disabled rule opens nothing, and a threshold counts what was measured', async () => {
  await ask(200, 'PATCH', '/rules', { rule: 'verification', enabled: false });
  await ask(200, 'PATCH', '/rules', { rule: 'connections', threshold: 50, for_minutes: 0 });
  await sql`insert into samples (service_id, node, at, cpu_millis, memory_bytes, storage_bytes,
      connections, transactions_per_second)
    values (${service}, 0, clock_timestamp(), 1, 1, 1, 60, 0)`.execute(metadata.db);
  await evaluate([VERIFICATION]);
  expect((await incidents()).map((one) => textOf(one, 'rule'))).toEqual(['connections']);
  expect(await incidents()).toMatchObject([
    { message: expect.stringContaining('60 of 100 connections') },
  ]);
});

test('no answer and no row shows a secret', async () => {
  const { config } = await mailServer();
  const { url, events } = await receiver();
  await newDestination('smtp', config);
  await newDestination('slack', { url });
  await newDestination('pagerduty', { url: events, routing_key: ROUTING_KEY });
  await destinations();
  const { rows } = await sql<{ row: string }>`
    select row_to_json(d)::text || encode(secret, 'escape') as row
    from alert_destinations d`.execute(metadata.db);
  expect(rows).toHaveLength(3);
  for (const text of [...bodies, ...rows.map(({ row }) => row)])
    for (const secret of [PASSWORD, PATH, ROUTING_KEY]) expect(text).not.toContain(secret);
});
