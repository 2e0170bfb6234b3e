/** The audit log: its limits, its age, crashes, secrets and the command line. */
import { request } from 'node:http';
import { once } from 'node:events';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  cloud,
  entries,
  entryOf,
  metadata,
  publicKey,
  service,
  setUp,
  tearDown,
} from './audit-log-cloud.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

test('refused calls of one key and answer share an entry, with number and last time', async () => {
  const first = await cloud.request('POST', '/services/aaaaaaaaaa/enablePooler');
  await entryOf(first.headers);
  for (let n = 0; n < 4; n++) await cloud.request('POST', `/services/bbbbbbbbb${n}/enablePooler`);
  await untilExpected('the entry counts five calls', async () =>
    expect((await entryOf(first.headers))?.count).toBe(5),
  );
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

test('callers without a valid key write at most a few entries a minute', async () => {
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
  // The entries of refused calls are written in the order of the calls.
  const last = await cloud.request('POST', '/services/aaaaaaaaaa/disablePooler');
  await entryOf(last.headers);
  expect((await entries('?public_key=HDstranger')).length).toBeLessThanOrEqual(120);
});

test('entries older than HOWDAH_HISTORY_DAYS are removed, not creates of what exists', async () => {
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
  await untilExpected('only young entries are left', async () =>
    expect((await entries()).map(({ request_id: id }) => id)).toEqual(young),
  );
  expect(await operations()).toEqual(youngOperations);
  expect(youngOperations).toEqual(
    expect.arrayContaining([created?.operation_id, younger.headers.get('Operation-Id')]),
  );
  expect(young).toEqual(expect.arrayContaining([created?.request_id, ...youngerRequests]));
  expect(await cloud.audit()).toEqual([]);
});

test('an accepted change has its entry, whenever the control plane is killed', async () => {
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

test('no secret is in the audit log or in an event', async () => {
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

test('the command line prints and exports the audit log', async () => {
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
    insert into audit_log (project_id, public_key, address, call, method, path, service_id, status,
      request_id)
    select project_id, public_key, address, call, method, path, service_id, status,
      gen_random_uuid()
    from (select * from audit_log where call = 'renameService' limit 1) as model,
      generate_series(1, 1100)`.execute(metadata.db);
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
