/** Read-only statements: results, limits, and who may run them. */
import { randomUUID } from 'node:crypto';
import { createClient, type Schemas } from '@howdah/client';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import { findProgram } from './probe.ts';
import { admin, cloud, query, refusal, service, setUp, tearDown } from './query-cloud.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

const haproxy = await findProgram('haproxy');

test('rows come with columns and types, values as text', async () => {
  const answer = await query(
    "select id, note, 1.50::numeric(10,2) as price, '{1,2}'::int[] as some, true as yes " +
      'from kept order by id',
  );
  expect(answer).toMatchObject({
    columns: [
      { name: 'id', type: 'integer' },
      { name: 'note', type: 'text' },
      { name: 'price', type: 'numeric(10,2)' },
      { name: 'some', type: 'integer[]' },
      { name: 'yes', type: 'boolean' },
    ],
    rows: [
      ['1', 'one', '1.50', '{1,2}', 't'],
      ['2', null, '1.50', '{1,2}', 't'],
    ],
    row_count: 2,
    truncated: false,
  });
  expect(answer.elapsed_ms).toBeGreaterThan(0);
  expect((await query('select $1::int + 1, $2::text', { parameters: ['41', null] })).rows).toEqual([
    ['42', null],
  ]);
  expect((await query('explain select * from kept')).rows[0]?.[0]).toContain('kept');
  expect((await query('show server_version')).row_count).toBe(1);
  expect(await query('--')).toMatchObject({ columns: [], rows: [] });
  expect((await query('select * from hidden')).rows).toEqual([['seen']]);
});

test('an error of PostgreSQL comes with its code and position', async () => {
  const error: unknown = await query('select nothing from kept').catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({
    status: 400,
    code: 'INVALID_REQUEST',
    message: expect.stringContaining('column "nothing" does not exist'),
  });
  const raw = await cloud.request('POST', `/services/${service.service_id}/query`, {
    sql: 'select nothing from kept',
  });
  expect(raw.body).toMatchObject({ details: { sqlstate: '42703', position: 8 } });
  expect(await refusal('select $1::int')).toContain('08P01');
  expect(await refusal("select '\0'")).toContain('NUL');
  expect(await refusal('copy kept to stdout')).toContain('write it as a SELECT');
});

test('a statement is refused with the reason while all connections are taken', async () => {
  const taken: Client[] = [];
  try {
    for (;;) taken.push(await connectTo(cloud, service, service.initial_password));
  } catch (error) {
    expect(Object(error)).toMatchObject({ code: '53300' });
    const refused = await cloud.request('POST', `/services/${service.service_id}/query`, {
      sql: 'select 1',
    });
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([
      503,
      expect.stringContaining('all connections of the server are taken'),
    ]);
  } finally {
    await Promise.all(taken.map((client) => client.end()));
  }
});

test('a huge result is cut by rows and by bytes, and does not fill the memory', async () => {
  const rows = await query('select generate_series(1, 1000000000), repeat($$x$$, 100)', {
    max_rows: 50,
    timeout_ms: 60_000,
  });
  expect(rows).toMatchObject({ row_count: 50, truncated: true });
  expect(
    (await query('select from generate_series(1, 20000)', { max_rows: 10_000 })).truncated,
  ).toBe(true);
  expect(
    (await query('select from generate_series(1, 10000)', { max_rows: 10_000 })).truncated,
  ).toBe(false);
  const bytes = await query('select generate_series(1, 1000000), repeat($$x$$, 1000000)', {
    max_rows: 10_000,
    timeout_ms: 60_000,
  });
  expect(bytes.truncated).toBe(true);
  expect(JSON.stringify(bytes).length).toBeLessThan(6e6);
  expect(
    await refusal('select * from generate_series(1, 10000000000)', { timeout_ms: 60_000 }),
  ).toContain('temp_file_limit');
  expect(await refusal('select repeat($$x$$, 100000000)', { timeout_ms: 60_000 })).toContain(
    'before the end of the first row',
  );
  expect(
    await refusal('do $$ begin loop raise notice $x$ 12345678901234567890 $x$; end loop; end $$', {
      timeout_ms: 60_000,
    }),
  ).toContain('MiB');
  await untilNobodyAsks();
});

test('a long statement is cancelled, also one that catches the cancellation', async () => {
  expect(await refusal('select pg_sleep(60)', { timeout_ms: 100 })).toContain('57014');
  expect(
    await refusal('select count(*) from generate_series(1, 1000000000000) g', { timeout_ms: 100 }),
  ).toContain('57014');
  expect(await refusal('select catches()', { timeout_ms: 100 })).toContain('57014');
  expect(
    await refusal("select set_config('statement_timeout', '0', false), pg_sleep(60)", {
      timeout_ms: 100,
    }),
  ).toContain('57014');
  expect(await refusal('select pg_terminate_backend(pg_backend_pid())')).toContain('57P01');
  await untilNobodyAsks();
});

/** The role's sessions have ended, and with them what they held. */
async function untilNobodyAsks(): Promise<void> {
  await untilExpected('howdah_reader has no session', async () => {
    const { rows } = await admin.query(
      "select from pg_stat_activity where usename = 'howdah_reader'",
    );
    expect(rows).toEqual([]);
  });
}

test('locks are released with the statement', async () => {
  await query('select pg_advisory_lock(7)');
  await untilNobodyAsks();
  expect((await admin.query('select pg_try_advisory_lock(7) as free')).rows).toEqual([
    { free: true },
  ]);
  await admin.query('select pg_advisory_unlock(7)');
});

test('at most ten statements run at a time, so that users keep the other connections', async () => {
  await admin.query('select pg_advisory_lock(9)');
  const ask = (sql: string) =>
    cloud.request('POST', `/services/${service.service_id}/query`, { sql, timeout_ms: 60_000 });
  const waiting = Array.from({ length: 10 }, () => ask('select pg_advisory_lock(9)'));
  const sessions = async () =>
    (await admin.query("select from pg_stat_activity where usename = 'howdah_reader'")).rows.length;
  await untilExpected('ten statements run', async () => expect(await sessions()).toBe(10));
  const refused = await ask('select 1');
  expect([refused.status, JSON.stringify(refused.body)]).toEqual([
    503,
    expect.stringContaining('10 statements run on it already'),
  ]);
  await admin.query('select pg_advisory_unlock(9)');
  expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(
    Array.from({ length: 10 }, () => 200),
  );
  await untilNobodyAsks();
});

test('the audit log has who ran a statement, not its text', async () => {
  const secret = `secret-${randomUUID()}`;
  await query(`select '${secret}'`);
  await refusal(`select '${secret}'::int`);
  const entries = async () =>
    JSON.stringify(
      (await cloud.request('GET', `/audit?service_id=${service.service_id}&call=queryService`))
        .body,
    );
  await untilExpected('the audit log has the refused statement', async () =>
    expect(await entries()).toContain('"outcome":"refused"'),
  );
  expect(await entries()).toContain('"outcome":"allowed"');
  expect(await entries()).not.toContain(secret);
});

test('a fork_only key queries its own forks; viewers and dry_run_only keys nothing', async () => {
  const keyOf = async (body: Schemas['CreateKey']): Promise<string> => {
    const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
      params: { path: { project_id: cloud.projectId } },
      body,
    });
    return `${data?.public_key}:${data?.secret_key}`;
  };
  const forkOnly = await keyOf({ name: 'f', role: 'developer', fork_only: true });
  const asking = async (key: string, id: string) =>
    (
      await cloud.request(
        'POST',
        `/services/${id}/query`,
        { sql: 'select 1' },
        { Authorization: `Bearer ${key}` },
      )
    ).status;
  const ours = createClient({ apiUrl: cloud.apiUrl, key: forkOnly });
  const { data: fork } = await ours.POST(
    '/projects/{project_id}/services/{service_id}/forkService',
    {
      params: { path: { project_id: cloud.projectId, service_id: service.service_id } },
      body: { fork_strategy: 'NOW' },
    },
  );
  await cloud.until(fork?.service_id ?? '', 'READY');
  expect([
    await asking(forkOnly, service.service_id),
    await asking(forkOnly, fork?.service_id ?? ''),
  ]).toEqual([403, 200]);
  expect(await asking(await keyOf({ name: 'v', role: 'viewer' }), service.service_id)).toBe(403);
  expect(
    await asking(
      await keyOf({ name: 'd', role: 'developer', dry_run_only: true }),
      service.service_id,
    ),
  ).toBe(403);
  expect(await asking(await keyOf({ name: 'd', role: 'developer' }), service.service_id)).toBe(200);
});

test.skipIf(haproxy === null)(
  'the primary answers for a service with a replica, and a node for a read replica set',
  async () => {
    const made = await cloud.create({ name: 'two', service_type: 'POSTGRES', replica_count: 1 });
    expect((await query('select pg_is_in_recovery()', {}, made.service_id)).rows).toEqual([['f']]);
    const path = `/services/${service.service_id}/replicaSets`;
    const set = await cloud.request('POST', path, {
      name: 'readers',
      nodes: 1,
      cpu_millis: 250,
      memory_gbs: 1,
    });
    const id = String(
      typeof set.body === 'object' && set.body !== null ? Reflect.get(set.body, 'id') : '',
    );
    await cloud.until(id, 'READY');
    expect((await query('select pg_is_in_recovery(), current_user', {}, id)).rows).toEqual([
      ['t', 'howdah_reader'],
    ]);
  },
);

test('a statement runs in another database, and writes as little there', async () => {
  await admin.query('create database second template template0');
  await admin.query('revoke connect on database second from public');
  const second = await connectTo(cloud, service, service.initial_password, { database: 'second' });
  await second.query('create table there as select 2 as n');
  await second.end();
  expect((await query('select n from there', { database: 'second' })).rows).toEqual([['2']]);
  expect(await refusal('select from there')).toContain('does not exist');
  // This database is no copy of one from which these functions were taken.
  expect(
    await refusal("select pg_logical_emit_message(false, 'x', 'y')", { database: 'second' }),
  ).toContain('permission denied');
  expect(await refusal('select 1', { database: 'none' })).toContain(
    'SELECT datname FROM pg_database lists',
  );
  expect(await refusal('select 1', { database: 'template1' })).toContain('belongs to the server');
  await admin.query('alter database second allow_connections false');
  expect(await refusal('select 1', { database: 'second' })).toContain('ALLOW_CONNECTIONS');
  await admin.query('drop database second');
});

test('a statement is refused with the reason while the database has another name', async () => {
  await admin.query('create database other');
  const other = await connectTo(cloud, service, service.initial_password, { database: 'other' });
  const rename = (from: string, to: string): Promise<unknown> =>
    other.query(`alter database ${from} rename to ${to}`);
  try {
    await other.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = 'tsdb' and usename = 'tsdbadmin'`,
    );
    await rename('tsdb', 'kept');
    expect(await refusal('select 1')).toContain('database "tsdb" does not exist');
    await rename('kept', 'tsdb');
  } finally {
    await other.end();
  }
  expect((await query('select 1')).rows).toEqual([['1']]);
});
