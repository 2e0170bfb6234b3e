/** The audit log: which calls have an entry, and what it says. */
import { readFile } from 'node:fs/promises';
import { BASE_PATH } from '@howdah/contract';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  cloud,
  entries,
  type Entry,
  entryOf,
  metadata,
  publicKey,
  service,
  setUp,
  tearDown,
} from './audit-log-cloud.ts';
import { newId, OPENAPI_FILE, sha256 } from './probe.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

test('an accepted change has an entry with its operation, in the same transaction', async () => {
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
    select a.xmin = o.xmin as same from audit_log a join operations o on o.id = a.operation_id
      where o.kind = 'rename'`.execute(metadata.db);
  expect(rows).toEqual([{ same: true }]);
});

test('changes that are done already, or under way already, have an entry', async () => {
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

test('every refused call that may change something has an entry, for each caller', async () => {
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
  // By a method that changes, they read.
  const reading = ['querySeries', 'addBackupRegion', 'removeBackupRegion'];
  const changing = calls.filter(({ call }) => !reading.includes(call));
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
    // No more than are kept of callers without a valid key in a minute: each kind makes some of the
    // calls, a viewer all.
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
  await untilExpected('the audit log has an entry for each refused call', async () =>
    expect((await entries('?outcome=refused')).length).toBeGreaterThanOrEqual(expected.size),
  );
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

test('each kind of refusal has its code in the entry', async () => {
  const path = `/services/${service.service_id}`;
  const refused: [string, string, unknown, Record<string, string>, string, string][] = [
    ['POST', `${path}/start`, undefined, {}, 'INVALID_STATE', 'startService'],
    ['POST', '/services/zzzzzzzzzz/stop', undefined, {}, 'NOT_FOUND', 'stopService'],
    ['POST', '/services', { name: '' }, {}, 'INVALID_REQUEST', 'createService'],
    // The body is no JSON: another call, since those of one call with one answer are counted
    // together.
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
  // A key of this project that asks for another's is recorded in the log of this one.
  const elsewhere = await fetch(`${cloud.apiUrl}/projects/${newId()}/services`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${cloud.key}` },
  });
  expect(await entryOf(elsewhere.headers)).toMatchObject({
    code: 'FORBIDDEN',
    public_key: publicKey(),
  });
});

test('calls that only read have no entry', async () => {
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

test('pages and filters have the entries of the whole list; the export is reversed', async () => {
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
  const isRenamed = ({ call, outcome }: Entry) => call === 'renameService' && outcome === 'allowed';
  const filters: [string, (entry: Entry) => boolean][] = [
    [`service_id=${service.service_id}`, (entry) => entry.service_id === service.service_id],
    [`public_key=${publicKey()}`, (entry) => entry.public_key === publicKey()],
    ['call=renameService', (entry) => entry.call === 'renameService'],
    ['outcome=allowed', (entry) => entry.outcome === 'allowed'],
    [
      'outcome=refused&call=startService',
      (entry) => entry.outcome === 'refused' && entry.call === 'startService',
    ],
    [`operation_id=${whole.find(isRenamed)?.operation_id}`, isRenamed],
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
