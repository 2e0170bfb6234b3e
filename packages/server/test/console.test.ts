import { request as rawRequest } from 'node:http';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { sql } from 'kysely';

let installation: Installation;
let origin: string;
beforeAll(async () => {
  installation = await install();
  origin = `http://127.0.0.1:${installation.port}`;
});
afterAll(async () => expect(await installation.destroy()).toEqual([]));

const at = (path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(`${installation.apiUrl}${path}`, init);
/** Logs in. @returns the header that a browser would send from then on */
async function session(key = installation.key): Promise<{ Cookie: string }> {
  const answer = await at('/auth/sessions', {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}` },
  });
  expect(answer.status).toBe(204);
  return { Cookie: cookieOf(answer) };
}

function cookieOf(answer: Response): string {
  const [cookie] = answer.headers.getSetCookie();
  return cookie?.split(';')[0] ?? '';
}

async function link(): Promise<string> {
  const answer = await at('/auth/links', {
    method: 'POST',
    headers: { Authorization: `Bearer ${installation.key}` },
  });
  expect(answer.status).toBe(201);
  const body: unknown = await answer.json();
  return JSON.stringify(body).replace(/.*#([\w-]+).*/, '$1');
}

const open = (token: string): Promise<Response> =>
  at('/auth/sessions/open', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ token }),
  });

test('a session is a cookie that scripts and other sites cannot use, without the key', async () => {
  const answer = await at('/auth/sessions', {
    method: 'POST',
    headers: { Authorization: `Bearer ${installation.key}` },
  });
  const [cookie = ''] = answer.headers.getSetCookie();
  expect(cookie).toMatch(
    /^howdah_\d+=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict$/,
  );
  expect(cookie).toContain(`howdah_${installation.port}=`);
  expect(installation.key).not.toContain(
    cookie.slice(cookie.indexOf('=') + 1, cookie.indexOf(';')),
  );
  const behindTls = await at('/auth/sessions', {
    method: 'POST',
    headers: { Authorization: `Bearer ${installation.key}`, Origin: 'https://howdah.example' },
  });
  expect(behindTls.headers.getSetCookie()[0]).toMatch(/; Secure$/);
});

test("a session reads like its key, and changes only with the console's header", async () => {
  const cookie = await session();
  const services = `/projects/${installation.projectId}/services`;
  expect((await at(services, { headers: cookie })).status).toBe(200);
  const body = JSON.stringify({ name: 'forged' });
  const forged = await at(services, {
    method: 'POST',
    headers: { ...cookie, 'Content-Type': 'application/json' },
    body,
  });
  expect([forged.status, await forged.json()]).toEqual([
    403,
    expect.objectContaining({ code: 'FORBIDDEN' }),
  ]);
  const deleted = await at(`${services}/nonesuch00`, { method: 'DELETE', headers: cookie });
  expect(deleted.status).toBe(403);
  expect(await installation.operations()).toEqual([]);
  const ours = await at(`${services}/nonesuch00`, {
    method: 'DELETE',
    headers: { ...cookie, 'X-Howdah-Console': '1' },
  });
  expect(ours.status).toBe(404);
  // No other page may even ask: a request with that header is asked for beforehand, and nothing
  // answers that.
  const asked = await at(services, {
    method: 'OPTIONS',
    headers: { Origin: 'http://evil.example', 'Access-Control-Request-Method': 'POST' },
  });
  expect(asked.headers.get('access-control-allow-origin')).toBeNull();
});

test('a header Authorization speaks for itself, whatever cookie comes with it', async () => {
  const cookie = await session();
  const answer = await at('/auth/info', {
    headers: { ...cookie, Authorization: 'Bearer nobody:nothing' },
  });
  expect(answer.status).toBe(401);
});

test('a session ends when it is logged out, and no cookie that is not one is one', async () => {
  const cookie = await session();
  const other = await session();
  const out = await at('/auth/logout', {
    method: 'POST',
    headers: { ...cookie, 'X-Howdah-Console': '1' },
  });
  expect(out.status).toBe(204);
  expect(out.headers.getSetCookie()[0]).toMatch(/=; Path=\/; Max-Age=0; /);
  const ended = await at('/auth/info', { headers: cookie });
  expect([ended.status, JSON.stringify(await ended.json())]).toEqual([
    401,
    expect.stringContaining('session'),
  ]);
  expect((await at('/auth/info', { headers: other })).status).toBe(200);
  for (const value of ['', 'x', 'a'.repeat(5000), '%00', "' or '1'='1"]) {
    const answer = await at('/auth/info', {
      headers: { Cookie: `howdah_${installation.port}=${value}` },
    });
    expect(answer.status, value.slice(0, 20)).toBe(401);
  }
});

test('a browser is not asked for a password by its own window', async () => {
  expect((await at('/auth/info')).headers.get('www-authenticate')).toBe('Bearer, Basic');
  expect(
    (await at('/auth/info', { headers: { 'X-Howdah-Console': '1' } })).headers.get(
      'www-authenticate',
    ),
  ).toBeNull();
});

test('a link opens once, also when opened many times at once; an old one never', async () => {
  const token = await link();
  const answers = await Promise.all(Array.from({ length: 8 }, () => open(token)));
  expect(answers.map(({ status }) => status).filter((status) => status !== 401)).toEqual([204]);
  const opened = answers.find(({ status }) => status === 204);
  if (opened === undefined) throw new Error('nobody got in');
  expect((await at('/auth/info', { headers: { Cookie: cookieOf(opened) } })).status).toBe(200);

  const old = await link();
  const metadata = await openMetadata(installation.home);
  await sql`update console_tokens set expires_at = now() where kind = 'link'`.execute(metadata.db);
  expect((await open(old)).status).toBe(401);
  // The token of a session is not accepted as a link, nor the other way about.
  const cookie = await session();
  expect((await open(cookie.Cookie.split('=')[1] ?? '')).status).toBe(401);
  expect(
    (await at('/auth/info', { headers: { Cookie: `howdah_${installation.port}=${await link()}` } }))
      .status,
  ).toBe(401);
  await metadata.close();
});

test('a session ends with its time, and with its key', async () => {
  const metadata = await openMetadata(installation.home);
  const cookie = await session();
  await sql`update console_tokens set expires_at = now() where kind = 'session'`.execute(
    metadata.db,
  );
  expect((await at('/auth/info', { headers: cookie })).status).toBe(401);
  const next = await session();
  await sql`update api_keys set revoked_at = now()`.execute(metadata.db);
  expect((await at('/auth/info', { headers: next })).status).toBe(401);
  await sql`update api_keys set revoked_at = null`.execute(metadata.db);
  // The table holds hashes, which open nothing.
  const { rows } = await sql`select token_hash from console_tokens`.execute(metadata.db);
  expect(JSON.stringify(rows)).not.toContain(next.Cookie.split('=')[1] ?? '?');
  await metadata.close();
});

test('the link of a revoked or expired key gives 401 and the way out, no cookie', async () => {
  const metadata = await openMetadata(installation.home);
  for (const ended of ['revoked_at', 'expires_at']) {
    const token = await link();
    await sql`update api_keys set ${sql.ref(ended)} = now()`.execute(metadata.db);
    const answer = await open(token);
    const body: unknown = await answer.json();
    expect([answer.status, body]).toEqual([
      401,
      expect.objectContaining({ message: expect.stringContaining('make a link with a valid key') }),
    ]);
    expect(answer.headers.getSetCookie()).toEqual([]);
    await sql`update api_keys set ${sql.ref(ended)} = null`.execute(metadata.db);
  }
  await metadata.close();
});

test('a dry_run_only key makes no link or session; its session changes nothing', async () => {
  const metadata = await openMetadata(installation.home);
  const cookie = await session();
  await sql`update api_keys set dry_run_only = true`.execute(metadata.db);
  for (const path of ['/auth/sessions', '/auth/links']) {
    const answer = await at(path, {
      method: 'POST',
      headers: { Authorization: `Bearer ${installation.key}` },
    });
    expect([answer.status, await answer.text()]).toEqual([
      403,
      expect.stringContaining('dry_run_only'),
    ]);
  }
  const headers = { ...cookie, 'X-Howdah-Console': '1', 'Content-Type': 'application/json' };
  const body = JSON.stringify({ name: 'made', role: 'viewer' });
  const made = await at(`/projects/${installation.projectId}/keys`, {
    method: 'POST',
    headers,
    body,
  });
  expect([made.status, made.headers.get('dry-run')]).toEqual([200, 'true']);
  const { rows } = await sql`select from api_keys`.execute(metadata.db);
  expect(rows).toHaveLength(1);
  await sql`update api_keys set dry_run_only = false`.execute(metadata.db);
  await metadata.close();
});

test('howdah console prints a new link', async () => {
  const { code, stdout } = await installation.cli('console');
  expect([code, stdout]).toEqual([
    0,
    expect.stringMatching(new RegExp(`^${origin}/login#[\\w-]{43}\n$`)),
  ]);
});

test('every page is the same document, under a policy that lets nothing in', async () => {
  const pages = [
    '/',
    '/login',
    '/create',
    '/services',
    '/services/abc',
    '/services/abc/logs',
    '/project/regions',
  ];
  const documents = await Promise.all(pages.map((page) => fetch(`${origin}${page}`)));
  const nonces = documents.map(({ status, headers }) => {
    expect([status, headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    const policy = headers.get('content-security-policy') ?? '';
    expect(policy).toMatch(
      /^default-src 'none'; script-src 'self'; style-src 'self' 'nonce-[^']+'; /,
    );
    expect(policy).not.toMatch(/unsafe|\*|https?:/);
    return /'nonce-([^']+)'/.exec(policy)?.[1] ?? '';
  });
  expect(new Set(nonces).size).toBe(pages.length);
  const texts = await Promise.all(documents.map((document) => document.text()));
  for (const [index, text] of texts.entries())
    expect(text).toContain(`nonce="${nonces[index] ?? '?'}"`);

  const name = /src="(\/assets\/console-[^"]+)"/.exec(texts[0] ?? '')?.[1] ?? '';
  const script = await fetch(`${origin}${name}`);
  expect([
    script.status,
    script.headers.get('content-type'),
    script.headers.get('content-encoding'),
  ]).toEqual([200, 'text/javascript; charset=utf-8', 'gzip']);
  expect(script.headers.get('cache-control')).toContain('immutable');
});

test('a path that is no page and no file of the console is 404, as everywhere', async () => {
  for (const path of [
    '/nowhere',
    '/assets/none.js',
    '/assets/..%2findex.html',
    '/assets/%2e%2e%2f%2e%2e%2fpackage.json',
    '/assets/',
  ]) {
    const { status, type } = await raw(path);
    expect([path, status, type]).toEqual([path, 404, expect.stringMatching(/^application\/json/)]);
  }
  expect((await fetch(`${origin}/login`, { method: 'POST' })).status).toBe(405);
});

test('a browser at an unknown address gets a page, programs and API paths JSON', async () => {
  const browser = { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
  const visit = async (path: string, init: RequestInit = {}) => {
    const { status, headers } = await fetch(`${origin}${path}`, { headers: browser, ...init });
    return [status, headers.get('content-type')?.split(';')[0]];
  };
  for (const path of ['/nowhere', '/service/abc', '/public', '/public/api/v1x'])
    expect([path, ...(await visit(path))]).toEqual([path, 404, 'text/html']);
  for (const path of ['/public/api/v1/nowhere', '/public/api/v1?x=1', '/assets/none.js'])
    expect([path, ...(await visit(path))]).toEqual([path, 404, 'application/json']);
  expect(await visit('/nowhere', { headers: {} })).toEqual([404, 'application/json']);
  expect(await visit('/nowhere', { method: 'POST' })).toEqual([404, 'application/json']);
});

/** As it stands: `fetch` would tidy the path up. */
async function raw(
  path: string,
): Promise<{ status: number | undefined; type: string | undefined }> {
  const asked = rawRequest(`${origin}/`, { path });
  asked.end();
  const [answer] = await once(asked, 'response');
  answer.resume();
  return { status: answer.statusCode, type: answer.headers['content-type'] };
}
