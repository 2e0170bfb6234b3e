/** Logins of programs without a key: what a person approves, and what nobody gets otherwise. */
import { createHash, randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { untilExpected } from './until.ts';

/** Wrong codes of an address within a minute: so few that they can be used up. */
const WRONG_PER_MINUTE = 30;

let cloud: Installation;
let origin: string;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
beforeAll(async () => {
  cloud = await install({
    HOWDAH_SPARES: '0',
    HOWDAH_FAILED_KEYS_PER_MINUTE: String(WRONG_PER_MINUTE),
    HOWDAH_TRUSTED_PROXIES: '127.0.0.1',
  });
  origin = `http://127.0.0.1:${cloud.port}`;
  metadata = await openMetadata(cloud.home);
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

type Answer = { status: number; body: Record<string, unknown> };
const NO_HEADERS: Record<string, string> = {};

async function post(
  path: string,
  body: unknown,
  { key = '', address = '192.0.2.1', headers = NO_HEADERS } = {},
): Promise<Answer> {
  const response = await fetch(`${cloud.apiUrl}${path}`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'X-Forwarded-For': address,
      ...(key === '' ? {} : { Authorization: `Bearer ${key}` }),
      ...headers,
    },
    body: JSON.stringify(body),
  });
  // Answers without a key are public otherwise.
  if (response.status === 200) expect(response.headers.get('cache-control')).toBe('no-store');
  const text = await response.text();
  return { status: response.status, body: text === '' ? {} : JSON.parse(text) };
}

const start = async (more: object = {}, address = '192.0.2.1') => {
  const { status, body } = await post(
    '/auth/device',
    { client_name: 'howdah on laptop', ...more },
    { address },
  );
  expect(status).toBe(200);
  return { device: String(body['device_code']), user: String(body['user_code']), body };
};
const collect = (device: string, more: object = {}, address = '192.0.2.1') =>
  post('/auth/device/token', { device_code: device, ...more }, { address });
const approve = (user: string, role = 'developer', key = cloud.key) =>
  post('/auth/device/approve', { user_code: user, role }, { key });

/** A key of the project, made for a test. */
async function makeKey(role: string, more: object = {}): Promise<{ name: string; key: string }> {
  const { status, body } = await post(
    `/projects/${cloud.projectId}/keys`,
    { name: 'made', role, ...more },
    { key: cloud.key },
  );
  expect(status).toBe(201);
  const name = String(body['public_key']);
  return { name, key: `${name}:${String(body['secret_key'])}` };
}

const keyNames = async (): Promise<string[]> => {
  const { data = [] } = await cloud.client.GET('/projects/{project_id}/keys', {
    params: { path: { project_id: cloud.projectId } },
  });
  return data.map(({ name }) => name);
};

test('a program gets a key of its own after a person has approved its code, once', async () => {
  const { device, user, body } = await start({}, '198.51.100.7');
  expect(body).toMatchObject({
    expires_in: 600,
    interval: 5,
    verification_uri: `${origin}/device`,
  });
  expect(user).toMatch(/^[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}$/);
  // Neither address has the secret; the code of the person is behind the #.
  expect(body['verification_uri_complete']).toBe(`${origin}/device#${user}`);
  expect(await collect(device)).toMatchObject({
    status: 400,
    body: { code: 'INVALID_STATE', details: { error: 'authorization_pending' } },
  });
  // As people type it.
  const typed = user.toLowerCase().replace('-', '');
  expect(await post('/auth/device/find', { user_code: typed }, { key: cloud.key })).toMatchObject({
    status: 200,
    body: { user_code: user, client_name: 'howdah on laptop', address: '198.51.100.7' },
  });
  expect((await approve(typed, 'viewer')).status).toBe(200);
  const got = await collect(device);
  expect(got).toMatchObject({
    status: 200,
    body: { token_type: 'Bearer', role: 'viewer', project_id: cloud.projectId, expires_at: null },
  });
  const token = String(got.body['access_token']);
  const info = await fetch(`${cloud.apiUrl}/auth/info`, {
    headers: { Authorization: `Bearer ${token}` },
  });
  expect(await info.json()).toMatchObject({
    api_key: { name: 'howdah on laptop', role: 'viewer', public_key: got.body['public_key'] },
  });
  expect(await collect(device)).toMatchObject({
    status: 401,
    body: { details: { error: 'expired_token' } },
  });
  expect((await approve(user)).status).toBe(404);
});

test('one program gets a key when many collect it at once', async () => {
  const { device, user } = await start({ client_name: 'at once' });
  await approve(user);
  const answers = await Promise.all(Array.from({ length: 8 }, () => collect(device)));
  expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
    200,
    ...Array(7).fill(401),
  ]);
  expect((await keyNames()).filter((name) => name === 'at once')).toHaveLength(1);
});

test('the first answer to a login counts', async () => {
  const { device, user } = await start({ client_name: 'twice' });
  const deny = (key: string) => post('/auth/device/deny', { user_code: user }, { key });
  expect((await deny(cloud.key)).status).toBe(200);
  expect((await approve(user)).status).toBe(404);
  expect(await collect(device)).toMatchObject({
    status: 403,
    body: { code: 'FORBIDDEN', details: { error: 'access_denied' } },
  });
  expect((await collect(device)).status).toBe(401);
  expect(await keyNames()).not.toContain('twice');
});

test('a login that has ended is not found, not approved and not collected', async () => {
  const waiting = await start({ client_name: 'late' });
  const approved = await start({ client_name: 'late' });
  await approve(approved.user);
  await sql`update login_requests set expires_at = now() where client_name = 'late'`.execute(
    metadata.db,
  );
  const found = await post('/auth/device/find', { user_code: waiting.user }, { key: cloud.key });
  expect(found).toMatchObject({
    status: 404,
    body: { message: expect.stringContaining('begin the login again') },
  });
  expect((await approve(waiting.user)).status).toBe(404);
  for (const { device } of [waiting, approved]) expect((await collect(device)).status).toBe(401);
  expect(await keyNames()).not.toContain('late');
});

test('only an admin key approves, and not after it has ended', async () => {
  const { device, user } = await start({ client_name: 'not theirs' });
  for (const [role, more] of [
    ['viewer', {}],
    ['developer', {}],
    ['admin', { fork_only: true }],
  ] as const) {
    const { key } = await makeKey(role, more);
    expect(await approve(user, 'viewer', key), role).toMatchObject({
      status: 403,
      body: { code: 'FORBIDDEN' },
    });
    expect((await post('/auth/device/deny', { user_code: user }, { key })).status).toBe(403);
  }
  // A dry run approves nothing.
  const { key: dry } = await makeKey('admin', { dry_run_only: true });
  expect((await approve(user, 'viewer', dry)).status).toBe(200);
  expect((await approve(user, 'viewer', '')).status).toBe(401);
  expect((await collect(device)).status).toBe(400);
  const { key, name } = await makeKey('admin');
  expect((await approve(user, 'admin', key)).status).toBe(200);
  await cloud.client.DELETE('/projects/{project_id}/keys/{public_key}', {
    params: { path: { project_id: cloud.projectId, public_key: name } },
  });
  expect(await collect(device)).toMatchObject({
    status: 403,
    body: { details: { error: 'access_denied' } },
  });
  expect(await keyNames()).not.toContain('not theirs');
});

test('a page of another site cannot approve with the session of a person', async () => {
  const begun = await fetch(`${cloud.apiUrl}/auth/sessions`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${cloud.key}` },
  });
  const Cookie = begun.headers.getSetCookie()[0]?.split(';')[0] ?? '';
  const { user } = await start();
  const body = { user_code: user, role: 'admin' };
  const forged = await post('/auth/device/approve', body, { headers: { Cookie } });
  expect(forged.status).toBe(403);
  const own = { Cookie, 'X-Howdah-Console': '1' };
  expect((await post('/auth/device/approve', body, { headers: own })).status).toBe(200);
});

test('names that deceive, and requests that name half of a login, are refused', async () => {
  for (const body of [
    {},
    { client_name: '' },
    { client_name: 'x'.repeat(129) },
    { client_name: 'two\nlines' },
    { client_name: 'looks\u202esafe' },
    { client_name: 'a', role: 'admin' },
    { client_name: 'a', redirect_uri: 'http://localhost:4000/callback' },
    { client_name: 'a', code_challenge: 'x'.repeat(43) },
    ...[
      'https://evil.example/callback',
      'http://evil.example/callback',
      'http://localhost.evil.example/callback',
      'http://localhost@evil.example/',
      'http://127.0.0.1.evil.example/',
      'http://localhost:80@evil.example/',
      'http://localhost:1/callback?to=http://evil.example',
      'javascript:alert(1)',
      'http://localhost:4000/callback#code',
    ].map((redirect_uri) => ({ client_name: 'a', redirect_uri, code_challenge: 'x'.repeat(43) })),
  ])
    expect(await post('/auth/device', body), JSON.stringify(body)).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST' },
    });
});

// ── as Tiger Cloud's command line logs in ────────────────────────────────────────────────────────

const REDIRECT = 'http://localhost:40123/callback';

/** A login of a program that opens a browser, approved. */
async function browserLogin(role = 'developer') {
  const verifier = randomBytes(32).toString('base64url');
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  const { device, user } = await start({ redirect_uri: REDIRECT, code_challenge: challenge });
  expect((await approve(user, role)).status).toBe(200);
  return { code: device, verifier };
}

async function exchange(form: Record<string, string>, address = '192.0.2.3'): Promise<Answer> {
  const response = await fetch(`${origin}/api/idp/external/cli/token`, {
    method: 'POST',
    headers: { 'X-Forwarded-For': address },
    body: new URLSearchParams({ grant_type: 'authorization_code', ...form }),
  });
  expect(response.headers.get('cache-control')).toBe('no-store');
  return { status: response.status, body: Object(await response.json()) };
}

test('a program that opened a browser exchanges code and verifier for a key', async () => {
  const { code, verifier } = await browserLogin();
  const got = await exchange({ code, code_verifier: verifier, redirect_uri: REDIRECT });
  expect(got).toMatchObject({ status: 200, body: { token_type: 'Bearer' } });
  const projects = await fetch(`${cloud.apiUrl}/projects`, {
    headers: { Authorization: `Bearer ${String(got.body['access_token'])}` },
  });
  expect(await projects.json()).toMatchObject([{ id: cloud.projectId }]);
  expect(await exchange({ code, code_verifier: verifier, redirect_uri: REDIRECT })).toMatchObject({
    status: 400,
    body: { error: 'invalid_grant' },
  });
});

test('a code that was stolen on its way is of no use, and is used up by the attempt', async () => {
  const wrong = randomBytes(32).toString('base64url');
  for (const theft of [
    { code_verifier: wrong, redirect_uri: REDIRECT },
    { redirect_uri: 'http://localhost:40124/callback' },
  ]) {
    const { code, verifier } = await browserLogin();
    const given = { code, code_verifier: verifier, ...theft };
    expect(await exchange(given)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } });
    const own = { code, code_verifier: verifier, redirect_uri: REDIRECT };
    expect((await exchange(own)).status).toBe(400);
  }
  const { code } = await browserLogin();
  expect((await collect(code)).status).toBe(401);
  // The code of a device is none of a browser.
  const { device, user } = await start();
  await approve(user);
  const mixed = { code: device, code_verifier: wrong, redirect_uri: REDIRECT };
  expect((await exchange(mixed)).status).toBe(400);
});

test('the token endpoint refuses in the words of OAuth, and takes forms only', async () => {
  const { code, verifier } = await browserLogin();
  for (const [form, error] of [
    [{ grant_type: 'refresh_token', refresh_token: 'x' }, 'unsupported_grant_type'],
    [{ grant_type: 'password', username: 'a', password: 'b' }, 'unsupported_grant_type'],
    [{ code }, 'invalid_request'],
    [{ code: 'x', code_verifier: verifier, redirect_uri: REDIRECT }, 'invalid_grant'],
    [{ code: '\u0000', code_verifier: verifier, redirect_uri: REDIRECT }, 'invalid_grant'],
  ] as const)
    expect(await exchange(form), JSON.stringify(form)).toMatchObject({
      status: 400,
      body: { error, error_description: expect.any(String) },
    });
  const json = await fetch(`${cloud.apiUrl}/auth/device`, {
    method: 'POST',
    body: new URLSearchParams({ client_name: 'a form' }),
  });
  expect(json.status).toBe(415);
});

test('the pages that the command line of Tiger Cloud opens are pages of the console', async () => {
  const headers = { Accept: 'text/html' };
  for (const path of ['/device', '/oauth/authorize?response_type=code', '/oauth/code/success']) {
    const page = await fetch(`${origin}${path}`, { headers });
    expect([page.status, page.headers.get('referrer-policy')], path).toEqual([200, 'no-referrer']);
  }
  for (const [path, here] of [
    ['/dashboard/services/abcdefghij', '/services/abcdefghij'],
    ['/dashboard/settings', '/project/keys'],
  ] as const) {
    const page = await fetch(`${origin}${path}`, { headers, redirect: 'manual' });
    expect([page.status, page.headers.get('location')], path).toEqual([302, here]);
  }
});

// ── what is left of it, and how much of it there can be ──────────────────────────────────────────

test('the audit log has who approved and what was made; no row has a secret', async () => {
  const { device, user } = await start({ client_name: 'audited' });
  await approve(user, 'viewer');
  const got = await collect(device);
  const secret = String(got.body['access_token']).split(':')[1] ?? '';
  const approver = cloud.key.split(':')[0];
  await untilExpected('the audit log has both calls', async () => {
    const { data = [] } = await cloud.client.GET('/projects/{project_id}/audit', {
      params: { path: { project_id: cloud.projectId }, query: { limit: '20' } },
    });
    for (const call of ['approveDeviceLogin', 'collectDeviceLogin'])
      expect(data).toContainEqual(
        expect.objectContaining({ call, public_key: approver, outcome: 'allowed' }),
      );
  });
  const waits = await start({ client_name: 'audited' });
  const { rows } = await sql<{ text: string }>`
    select row_to_json(t)::text as text from (
      select to_jsonb(l) from login_requests l union all select to_jsonb(a) from audit_log a
      union all select to_jsonb(k) from api_keys k) t`.execute(metadata.db);
  const all = rows.map(({ text }) => text).join('\n');
  for (const hidden of [device, waits.device, secret]) expect(all).not.toContain(hidden);
});

test('nobody finds a code by trying, and nobody fills the table', async () => {
  const { key } = await makeKey('admin');
  const guess = () => post('/auth/device/find', { user_code: 'BCDF-GHJK' }, { key });
  const guesses = [];
  for (let n = 0; n < 12; n++) guesses.push((await guess()).status);
  expect(guesses.filter((status) => status === 404)).toHaveLength(10);
  expect(guesses.at(-1)).toBe(429);
  expect((await approve('BCDF-GHJK', 'viewer', key)).status).toBe(429);

  const tried = [];
  for (let n = 0; n <= WRONG_PER_MINUTE; n++)
    tried.push((await collect('x'.repeat(43), {}, '192.0.2.50')).status);
  expect([tried.at(0), tried.at(-1)]).toEqual([401, 429]);

  const begun = [];
  for (let n = 0; n < WRONG_PER_MINUTE + 8; n++)
    begun.push(
      (await post('/auth/device', { client_name: 'many' }, { address: '192.0.2.51' })).status,
    );
  expect(begun.filter((status) => status === 200).length).toBeGreaterThanOrEqual(WRONG_PER_MINUTE);
  expect(begun.at(-1)).toBe(429);

  await sql`insert into login_requests (code_hash, user_code, client_name, address, expires_at)
    select 'fill' || i, 'fill' || i, 'fill', '::1', now() + interval '1 minute'
    from generate_series(1, 1000) i`.execute(metadata.db);
  expect(await post('/auth/device', { client_name: 'one more' })).toMatchObject({
    status: 429,
    body: { message: expect.stringContaining('howdah key create') },
  });
  await sql`delete from login_requests where client_name = 'fill'`.execute(metadata.db);
  await start({ client_name: 'one more' });
});
