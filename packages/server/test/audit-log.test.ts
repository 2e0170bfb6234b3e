/** The audit log: every call that may change something, allowed or refused, of any caller and with any end; and no secret. */
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { request } from 'node:http';
import { once } from 'node:events';
import { BASE_PATH } from '@howdah/contract';
import type { Schemas } from '@howdah/client';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../src/lib/ids.ts';
import { OPENAPI_FILE } from '../src/paths.ts';
import { sha256 } from '../src/lib/secret.ts';
import { install, type Installation, type Service } from './harness.ts';
import { openMetadata } from './metadata.ts';

type Entry = Schemas['AuditEntry'];

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
let service: Service;
beforeAll(async () => {
  cloud = await install();
  metadata = await openMetadata(cloud.home);
  service = await cloud.create({ name: 'audited', service_type: 'POSTGRES' });
});
afterAll(async () => {
  await metadata.close();
  expect(await cloud.destroy()).toEqual([]);
});

async function entries(query = ''): Promise<Entry[]> {
  const { body } = await cloud.request('GET', `/audit${query}`);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the answer's schema is checked elsewhere
  return body as Entry[];
}

/** The entry of a request, once it is there: those of refusals are written in a moment. */
async function entryOf(headers: Headers): Promise<Entry | undefined> {
  const id = headers.get('X-Request-Id');
  await expect
    .poll(async () => (await entries()).some((entry) => entry.request_id === id), {
      timeout: 30_000,
    })
    .toBe(true);
  return (await entries()).find((entry) => entry.request_id === id);
}

const publicKey = () => cloud.key.split(':')[0] ?? '';

test('an accepted change stands there with its operation, in the same transaction', async () => {
  const path = `/services/${service.service_id}`;
  for (const [call, where, body, status] of [
    ['renameService', '/rename', { name: 'other' }, 200],
    ['setEnvironment', '/setEnvironment', { environment: 'DEV' }, 200],
    ['updatePassword', '/updatePassword', { password: 'canary-password-1' }, 204],
    ['resizeService', '/resize', { cpu_millis: 1000 }, 202],
  ] as const) {
    await cloud.until(service.service_id, 'READY');
    const answer = await cloud.request('POST', path + where, body);
    expect(answer.status).toBe(status);
    expect(await entryOf(answer.headers)).toEqual({
      id: expect.stringMatching(/^\d+$/),
      at: expect.stringMatching(/Z$/),
      public_key: publicKey(),
      address: '127.0.0.1',
      call,
      method: 'POST',
      path: `${BASE_PATH}/projects/${cloud.projectId}${path}${where}`,
      service_id: service.service_id,
      operation_id: answer.headers.get('Operation-Id'),
      outcome: 'allowed',
      status,
      request_id: answer.headers.get('X-Request-Id'),
    });
  }
  await cloud.until(service.service_id, 'READY');
  const { rows } = await sql<{ same: boolean }>`
    select a.xmin = o.xmin as same from audit_log a join operations o on o.id = a.operation_id where o.kind = 'rename'`.execute(
    metadata.db,
  );
  expect(rows).toEqual([{ same: true }]);
});

test('what is so already, and what is under way already, stand there as well', async () => {
  const path = `/services/${service.service_id}`;
  const same = await cloud.request('POST', `${path}/resize`, { cpu_millis: 1000 });
  expect(same.status).toBe(202);
  expect(await entryOf(same.headers)).toMatchObject({
    call: 'resizeService',
    outcome: 'allowed',
    status: 202,
  });
  expect(await entryOf(same.headers)).not.toHaveProperty('operation_id');
  const answers = await metadata.holdingReconciler(async () => [
    await cloud.request('POST', `${path}/stop`),
    await cloud.request('POST', `${path}/stop`),
  ]);
  const [first, second] = await Promise.all(answers.map(async ({ headers }) => entryOf(headers)));
  expect(second).toMatchObject({ outcome: 'allowed', operation_id: first?.operation_id });
  await cloud.until(service.service_id, 'PAUSED');
  await cloud.request('POST', `${path}/start`);
  await cloud.until(service.service_id, 'READY');
});

test('every call of the document that may change something has an entry when it is refused, by whatever kind of caller', async () => {
  const document: { paths: Record<string, Record<string, { operationId: string }>> } = JSON.parse(
    await readFile(OPENAPI_FILE, 'utf8'),
  );
  const calls = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([method]) => !['get', 'head'].includes(method) && path.includes('{project_id}'))
      .map(([method, { operationId }]) => ({
        method: method.toUpperCase(),
        path,
        call: operationId,
      })),
  );
  const changing = calls.filter(({ call }) => call !== 'querySeries');
  expect(changing.length).toBeGreaterThan(20);
  const viewer = await insertKey('viewer');
  const revoked = await insertKey('admin', new Date());
  const callers = {
    none: undefined,
    malformed: 'Bearer x',
    wrong: `Bearer ${publicKey()}:wrong`,
    viewer: `Bearer ${viewer}`,
    revoked: `Bearer ${revoked}`,
  };
  const expected = new Map<string, { call: string; code: string; public_key: string | null }>();
  for (const [kind, authorization] of Object.entries(callers)) {
    // No more than are kept of callers without a valid key in a minute: each kind makes some of the calls, a viewer all.
    const asked =
      kind === 'viewer'
        ? changing
        : changing.filter((_, n) => n % 4 === Object.keys(callers).indexOf(kind) % 4).slice(0, 10);
    for (const { method, path, call } of asked) {
      const url = path
        .replace('{project_id}', cloud.projectId)
        .replaceAll(/\{[a-z_]+\}/g, 'aaaaaaaaaa');
      const headers: Record<string, string> =
        authorization === undefined ? {} : { Authorization: authorization };
      const answer = await fetch(`${cloud.apiUrl}${url}`, { method, headers });
      expect(answer.status, `${kind} ${call}`).toBe(kind === 'viewer' ? 403 : 401);
      const named =
        authorization === undefined || kind === 'malformed'
          ? null
          : (authorization.slice('Bearer '.length).split(':')[0] ?? null);
      expected.set(answer.headers.get('X-Request-Id') ?? '', {
        call,
        code: kind === 'viewer' ? 'FORBIDDEN' : 'UNAUTHORIZED',
        public_key: named,
      });
    }
  }
  await expect
    .poll(async () => (await entries('?outcome=refused')).length, { timeout: 30_000 })
    .toBeGreaterThanOrEqual(expected.size);
  const found = new Map(
    (await entries('?outcome=refused')).map((entry) => [entry.request_id, entry]),
  );
  for (const [id, entry] of expected)
    expect(found.get(id), entry.call).toMatchObject({ ...entry, outcome: 'refused' });
});

async function insertKey(role: 'admin' | 'viewer', revokedAt: Date | null = null): Promise<string> {
  const key = `HD${newId()}${newId()}`;
  await metadata.db
    .insertInto('api_keys')
    .values({
      public_key: key,
      project_id: cloud.projectId,
      name: role,
      role,
      secret_hash: sha256('secret'),
      expires_at: null,
      revoked_at: revokedAt,
      last_used: null,
    })
    .execute();
  return `${key}:secret`;
}

test('each way of being refused is told by its code', async () => {
  const path = `/services/${service.service_id}`;
  const refused: [string, string, unknown, Record<string, string>, string, string][] = [
    ['POST', `${path}/start`, undefined, {}, 'INVALID_STATE', 'startService'],
    ['POST', '/services/zzzzzzzzzz/stop', undefined, {}, 'NOT_FOUND', 'stopService'],
    ['POST', '/services', { name: '' }, {}, 'INVALID_REQUEST', 'createService'],
    // The body is no JSON: another call, since those of one call with one answer are counted together.
    ['POST', '/vpcs', '{"name":', {}, 'INVALID_REQUEST', 'createVpc'],
    ['POST', '/services', 'x'.repeat(70_000), {}, 'PAYLOAD_TOO_LARGE', 'createService'],
    [
      'POST',
      '/services',
      'name=x',
      { 'Content-Type': 'text/plain' },
      'UNSUPPORTED_MEDIA_TYPE',
      'createService',
    ],
    ['DELETE', '/webhooks/nothing', undefined, {}, 'NOT_FOUND', 'deleteWebhook'],
  ];
  for (const [method, where, body, headers, code, call] of refused) {
    const answer = await cloud.request(method, where, body, headers);
    expect(answer.body, `${method} ${where}`).toMatchObject({ code });
    expect(await entryOf(answer.headers)).toMatchObject({
      call,
      code,
      outcome: 'refused',
      status: answer.status,
      public_key: publicKey(),
    });
  }
  // A key of this project that asks for another's: here is where it is told of.
  const elsewhere = await fetch(`${cloud.apiUrl}/projects/${newId()}/services`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${cloud.key}` },
  });
  expect(await entryOf(elsewhere.headers)).toMatchObject({
    code: 'FORBIDDEN',
    public_key: publicKey(),
  });
});

test('what only reads has no entry', async () => {
  const before = (await entries()).length;
  for (const [method, path, body] of [
    ['GET', '/services', undefined],
    ['GET', '/services/zzzzzzzzzz', undefined],
    [
      'POST',
      `/services/${service.service_id}/metrics/series`,
      { name: 'connections', from: '2026-01-01T00:00:00Z', to: '2026-01-01T01:00:00Z' },
    ],
  ] as const)
    await cloud.request(method, path, body);
  const last = await cloud.request('POST', '/services/zzzzzzzzzz/backups/verify');
  await entryOf(last.headers);
  expect((await entries()).length).toBe(before + 1);
});

test('pages and filters tell the same as the whole; the export is it, the other way around', async () => {
  const whole = await entries();
  const { rows } = await sql<{ id: string }>`select id from audit_log order by id desc`.execute(
    metadata.db,
  );
  expect(whole.map(({ id }) => id)).toEqual(rows.map(({ id }) => id));
  expect(whole.length).toBeGreaterThan(14);
  for (const limit of [7, whole.length - 1, whole.length]) {
    const { all, pages } = await cloud.pages<Entry>(`/audit?limit=${limit}`, ({ id }) => id);
    expect(all, `by ${limit}`).toEqual(whole);
    expect(pages, `by ${limit}`).toBe(Math.ceil(whole.length / limit));
  }
  const lines = await fetch(`${cloud.apiUrl}/projects/${cloud.projectId}/audit/export`, {
    headers: { Authorization: `Bearer ${cloud.key}` },
  });
  expect(lines.headers.get('Content-Type')).toBe('application/jsonl');
  const exported = (await lines.text()).trimEnd().split('\n');
  expect(exported.map((line): unknown => JSON.parse(line))).toEqual(whole.toReversed());
  const middle = whole[Math.floor(whole.length / 2)];
  const filters: [string, (entry: Entry) => boolean][] = [
    [`service_id=${service.service_id}`, (entry) => entry.service_id === service.service_id],
    [`public_key=${publicKey()}`, (entry) => entry.public_key === publicKey()],
    ['call=renameService', (entry) => entry.call === 'renameService'],
    ['outcome=allowed', (entry) => entry.outcome === 'allowed'],
    [
      'outcome=refused&call=startService',
      (entry) => entry.outcome === 'refused' && entry.call === 'startService',
    ],
    [
      `operation_id=${whole.find(({ call, outcome }) => call === 'renameService' && outcome === 'allowed')?.operation_id}`,
      (entry) => entry.call === 'renameService' && entry.outcome === 'allowed',
    ],
    [`since=${middle?.at}&until=2100-01-01T00:00:00Z`, (entry) => entry.at >= (middle?.at ?? '')],
  ];
  for (const [query, matches] of filters) {
    const expected = whole.filter(matches);
    expect(expected.length, query).toBeGreaterThan(0);
    expect(await entries(`?${query}`), query).toEqual(expected);
  }
  for (const bad of [
    'outcome=maybe',
    'since=yesterday',
    'call=a%00b',
    'limit=0',
    'limit=1001',
    'cursor=x',
    `cursor=${'9'.repeat(30)}`,
  ])
    expect((await cloud.request('GET', `/audit?${bad}`)).status, bad).toBe(400);
});

test('refused calls of one key with one answer are one entry, which says how many they were and when the last was', async () => {
  const first = await cloud.request('POST', '/services/aaaaaaaaaa/enablePooler');
  await entryOf(first.headers);
  for (let n = 0; n < 4; n++) await cloud.request('POST', `/services/bbbbbbbbb${n}/enablePooler`);
  await expect.poll(async () => (await entryOf(first.headers))?.count, { timeout: 30_000 }).toBe(5);
  const entry = await entryOf(first.headers);
  expect(entry).toMatchObject({
    code: 'NOT_FOUND',
    service_id: 'aaaaaaaaaa',
    public_key: publicKey(),
  });
  expect(Date.parse(entry?.last_at ?? '')).toBeGreaterThan(Date.parse(entry?.at ?? ''));
  expect(
    (await entries('?call=enablePooler')).filter(({ code }) => code === 'NOT_FOUND'),
  ).toHaveLength(1);
});

test('callers without a valid key can write no more than a few entries a minute', async () => {
  const ask = async (): Promise<void> => {
    const asked = request(`${cloud.apiUrl}/projects/${cloud.projectId}/services`, {
      method: 'POST',
      headers: { Authorization: 'Bearer HDstranger:x' },
    });
    asked.end();
    const [response] = await once(asked, 'response');
    response.resume();
    await once(response, 'end');
  };
  for (let n = 0; n < 10; n++) await Promise.all(Array.from({ length: 30 }, ask));
  await sleep(500);
  expect((await entries('?public_key=HDstranger')).length).toBeLessThanOrEqual(120);
});

test('what is older than HOWDAH_HISTORY_DAYS goes with its operation; what is younger stays, and what made a service that is there', async () => {
  const rename = await cloud.request('POST', `/services/${service.service_id}/rename`, {
    name: 'long ago',
  });
  const younger = await cloud.request('POST', `/services/${service.service_id}/rename`, {
    name: 'not so long ago',
  });
  const refused = await cloud.request('POST', `/services/${service.service_id}/rename`, {
    name: '',
  });
  const youngerRefused = await cloud.request('POST', `/services/${service.service_id}/resize`, {
    cpu_millis: 'x',
  });
  for (const { headers } of [refused, youngerRefused]) await entryOf(headers);
  const old = [rename, refused].map(({ headers }) => headers.get('X-Request-Id'));
  const created = (await entries('?call=createService')).find(
    ({ service_id: id }) => id === service.service_id,
  );
  const set = async (
    days: number,
    requests: readonly unknown[],
    operations: readonly unknown[],
  ): Promise<void> => {
    const ago = sql<Date>`now() - ${`${days} days`}::interval`;
    const isText = (id: unknown): id is string => typeof id === 'string';
    await metadata.db
      .updateTable('audit_log')
      .set({ at: ago })
      .where('request_id', 'in', requests.filter(isText))
      .execute();
    await metadata.db
      .updateTable('operations')
      .set({ created: ago, finished: ago })
      .where('id', 'in', operations.filter(isText))
      .execute();
  };
  const oldOperation = rename.headers.get('Operation-Id');
  await set(11, [...old, created?.request_id], [oldOperation, created?.operation_id]);
  const youngerRequests = [younger, youngerRefused].map(({ headers }) =>
    headers.get('X-Request-Id'),
  );
  await set(9, youngerRequests, [younger.headers.get('Operation-Id')]);
  const young = (await entries())
    .filter(({ request_id: id }) => !old.includes(id))
    .map(({ request_id: id }) => id);
  const operations = async (): Promise<string[]> => (await cloud.operations()).map(({ id }) => id);
  const youngOperations = (await operations()).filter((id) => id !== oldOperation);
  await cloud.stop('SIGTERM');
  cloud.env['HOWDAH_HISTORY_DAYS'] = '10';
  await cloud.up();
  // Entries go after operations.
  await expect
    .poll(async () => (await entries()).map(({ request_id: id }) => id), { timeout: 30_000 })
    .toEqual(young);
  expect(await operations()).toEqual(youngOperations);
  expect(youngOperations).toEqual(
    expect.arrayContaining([created?.operation_id, younger.headers.get('Operation-Id')]),
  );
  expect(young).toEqual(expect.arrayContaining([created?.request_id, ...youngerRequests]));
  expect(await cloud.audit()).toEqual([]);
});

test('an accepted change is there whenever the control plane is killed', async () => {
  const accepted: string[] = [];
  for (let round = 0; round < 3; round++) {
    const asks = Array.from({ length: 20 }, async (_, n) => {
      const answer = await cloud
        .request('POST', `/services/${service.service_id}/rename`, { name: `killed ${n}` })
        .catch(() => null);
      if (answer?.status === 200) accepted.push(answer.headers.get('Operation-Id') ?? '');
    });
    await asks[3 * round];
    await cloud.stop('SIGKILL');
    await Promise.all(asks);
    await cloud.up();
  }
  const audited = new Set((await entries('?call=renameService')).map(({ operation_id: id }) => id));
  expect(accepted.length).toBeGreaterThan(0);
  for (const id of accepted) expect(audited).toContain(id);
  // Those that were not answered as well: the audit of the installation compares them all.
  expect(await cloud.audit()).toEqual([]);
  const [operation] = await cloud.operations(service.service_id);
  await sql`delete from audit_log where operation_id = ${operation?.id}`.execute(metadata.db);
  expect(await cloud.audit()).toEqual([
    expect.stringContaining(
      `operation ${operation?.id} (rename) was asked for by ${publicKey()} and stands in no entry`,
    ),
  ]);
  await sql`delete from operations where id = ${operation?.id}`.execute(metadata.db);
});

test('no secret is in it, nor in an event', async () => {
  const canary = 'canary-7f3a9b';
  for (const body of [
    { password: canary },
    { password: `${canary}\u0000` },
    { pasword: canary },
    `{"password":"${canary}"`,
  ])
    await cloud.request('POST', `/services/${service.service_id}/updatePassword`, body);
  await cloud.request('POST', `/services?key=${canary}`, { name: 'x', [canary]: 1 });
  await cloud.request(
    'POST',
    `/services`,
    { name: 'x' },
    { Authorization: `Bearer ${publicKey()}:${canary}` },
  );
  const last = await cloud.request('POST', '/services/zzzzzzzzzz/restore');
  await entryOf(last.headers);
  for (const table of ['audit_log', 'events', 'operations']) {
    const { rows } = await sql<{
      text: string;
    }>`select t::text as text from ${sql.table(table)} t`.execute(metadata.db);
    expect(rows.length).toBeGreaterThan(0);
    for (const { text } of rows) {
      expect(text).not.toContain(canary);
      expect(text).not.toContain('canary-password-1');
      expect(text).not.toContain(cloud.key.split(':')[1]);
    }
  }
});

test('the command line prints and exports it', async () => {
  const printed = await cloud.cli(
    'audit-log',
    'list',
    '--service',
    service.service_id,
    '--limit',
    '5',
  );
  expect(printed).toMatchObject({ code: 0, stderr: '' });
  expect(printed.stdout.split('\n')[0]).toMatch(
    /^AT +KEY +FROM +CALL +SERVICE +OUTCOME +OPERATION$/,
  );
  expect(printed.stdout.trimEnd().split('\n')).toHaveLength(6);
  // More than the API puts into a page.
  await sql`
    insert into audit_log (project_id, public_key, address, call, method, path, service_id, status, request_id)
    select project_id, public_key, address, call, method, path, service_id, status, gen_random_uuid()
    from (select * from audit_log where call = 'renameService' limit 1) as model, generate_series(1, 1100)`.execute(
    metadata.db,
  );
  const many = await cloud.cli('audit-log', 'list', '--limit', '1050', '-o', 'json');
  const whole = await entries();
  expect(JSON.parse(many.stdout)).toEqual(whole.slice(0, 1050));
  const everything = await cloud.cli('audit-log', 'export');
  expect(`[${everything.stdout.trimEnd().split('\n').join(',')}]`).toBe(
    JSON.stringify(whole.toReversed()),
  );
  const exported = await cloud.cli(
    'audit-log',
    'export',
    '--call',
    'createService',
    '--outcome',
    'allowed',
  );
  expect(exported.code).toBe(0);
  expect(
    exported.stdout
      .trimEnd()
      .split('\n')
      .map((line): unknown => JSON.parse(line)),
  ).toMatchObject([{ call: 'createService', status: 202 }]);
  expect(await cloud.cli('audit-log', 'list', '--since', 'last week')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--since: found last week; allowed: now, yesterday'),
  });
  expect(await cloud.cli('audit-log', 'list', '--outcome', 'maybe')).toMatchObject({ code: 2 });
});
