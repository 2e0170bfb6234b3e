/**
 * Tables of the metadata database that a key can make grow: each is classified, capped, pruned by
 * an index, and counted where a key is refused.
 */
import { readFile } from 'node:fs/promises';
import { BASE_PATH, MAX_KEYS, MAX_PROJECTS, MAX_VPCS } from '@howdah/contract';
import { Kysely, PostgresDialect, sql, type CompiledQuery } from 'kysely';
import { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import {
  insertKey,
  insertToken,
  MAX_TOKENS,
  newId,
  prepareMachine,
  PRUNINGS,
  sha256,
  storeConnection,
  type Tables,
} from './probe.ts';
import { untilExpected } from './until.ts';

/** Changes of a project in a day: few, so that they can be used up. */
const CHANGES = 40;

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
beforeAll(async () => {
  cloud = await install({ HOWDAH_CHANGES_PER_DAY: String(CHANGES) });
  metadata = await openMetadata(cloud.home);
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

/**
 * How each table is kept from growing without bound: by nothing that a key can do, by a cap, or by
 * a pruning (with a cap or a rate).
 */
const CLASSES: Record<string, 'fixed' | 'capped' | 'pruned'> = {
  alert_destinations: 'capped',
  alert_incidents: 'pruned',
  alert_messages: 'pruned',
  alert_rules: 'capped',
  allow_lists: 'capped',
  api_keys: 'pruned',
  audit_log: 'pruned',
  certificate_keys: 'fixed',
  certificates: 'pruned',
  console_tokens: 'pruned',
  deliveries: 'pruned',
  event_horizon: 'fixed',
  events: 'pruned',
  exporters: 'capped',
  former_repositories: 'capped',
  kept_answers: 'pruned',
  kept_logs: 'pruned',
  kubernetes_regions: 'capped',
  kysely_migration: 'fixed',
  kysely_migration_lock: 'fixed',
  lease_demands: 'capped',
  leased_databases: 'capped',
  leased_servers: 'capped',
  login_requests: 'pruned',
  operations: 'pruned',
  peerings: 'capped',
  projects: 'capped',
  recorded_primaries: 'capped',
  regions: 'fixed',
  repositories: 'capped',
  samples: 'pruned',
  server_ports: 'capped',
  services: 'capped',
  simulated_documents: 'capped',
  vpc_addresses: 'capped',
  vpcs: 'capped',
  webhooks: 'capped',
};

test('every table is classified, here and in the manual, and pruned if it must be', async () => {
  const { rows } = await sql<{ name: string }>`
    select tablename as name from pg_tables where schemaname = 'public' order by tablename`.execute(
    metadata.db,
  );
  const tables = rows.map(({ name }) => name);
  expect(tables).toEqual(Object.keys(CLASSES));
  const manual = await readFile(
    new URL('../../../docs/metadata-database.md', import.meta.url),
    'utf8',
  );
  const section = manual.split('\n## ').find((part) => part.startsWith('Rows\n')) ?? '';
  const listed = [...section.matchAll(/^\| `([a-z_]+)` \| (fixed|capped|pruned) \|/gm)].map(
    ([, name = '', kind]) => [name, kind],
  );
  expect(Object.fromEntries(listed)).toEqual(CLASSES);
  expect(Object.keys(PRUNINGS).toSorted()).toEqual(
    tables.filter((name) => CLASSES[name] === 'pruned'),
  );
});

const [RECENT, OLD] = [20_000, 1500];

/** Half of the keys that stay are revoked too, but not long ago. */
const REVOKED = {
  old: "now() - interval '31 days'",
  recent: "case when i % 2 = 0 then now() - interval '1 day' end",
};

/** Rows of each pruned table: many that stay, and more that go than one batch. */
const FILL: Record<string, (old: boolean, count: number) => string> = {
  api_keys: (
    old,
    n,
  ) => `insert into api_keys (public_key, project_id, name, role, secret_hash, revoked_at)
    select 'HDk' || ${old} || i, 'rowsrows00', 'k', 'viewer', '',
      ${old ? REVOKED.old : REVOKED.recent} from generate_series(1, ${n}) i`,
  certificates: (old, n) => `insert into certificates (id, service_id, issued, document)
    select 'c${old}' || i, 'rows' || i % 50, now() - interval '${old ? 366 : 364} days', '{}'
    from generate_series(1, ${n}) i`,
  console_tokens: (old, n) => `insert into console_tokens (token_hash, kind, public_key, expires_at)
    select 't' || ${old} || i, 'session', 'HDkfalse' || i % 1000,
      now() ${old ? '-' : '+'} interval '1 hour' from generate_series(1, ${n}) i`,
  kept_answers: (old, n) => `insert into kept_answers (public_key, lookup, request, sealed, created)
    select 'HDkfalse' || i % 1000, ('${old}' || i)::bytea, '', '',
      now() - interval '${old ? '25' : '23'} hours' from generate_series(1, ${n}) i`,
  login_requests: (
    old,
    n,
  ) => `insert into login_requests (code_hash, user_code, client_name, address, expires_at)
    select 'l' || ${old} || i, 'l' || ${old} || i, 'c', '::1',
      now() ${old ? '-' : '+'} interval '1 hour'
    from generate_series(1, ${n}) i`,
  alert_incidents: (old, n) => `insert into alert_incidents (
      project_id, rule, subject, about, message, since, opened, resolved)
    select 'rowsrows00', 'unstable', 's' || i, '', '', now(), now(),
      now() - interval '${old ? 91 : 89} days'
    from generate_series(1, ${n}) i`,
  alert_messages: (old, n) => `insert into alert_messages (destination_id, body, held, created)
    select 'rowsdestin', '{}', false, now() - interval '${old ? 8 : 6} days'
    from generate_series(1, ${n}) i`,
  kept_logs: (
    old,
    n,
  ) => `insert into kept_logs (service_id, region_code, server, pod, from_ns, until_ns, lines, kept)
    select 'rows' || i % 50, 'local', 0, 'p', i, i, '', now() - interval '${old ? 31 : 29} days'
    from generate_series(1, ${n}) i`,
  deliveries: (
    old,
    n,
  ) => `insert into deliveries (webhook_id, message_id, type, body, status, created)
    select 'rowswebhok', '${old}' || i, 'service.status', '{}', case when i % 2 = 0 then 'pending'
      else 'failed' end, now() - interval '${old ? 8 : 6} days' from generate_series(1, ${n}) i`,
  events: (old, n) => `insert into events (seq, project_id, at, type, doc)
    select nextval('event_seq'), 'rowsrows00', now() - interval '${old ? 8 : 6} days',
      'service.status', '{}' from generate_series(1, ${n}) i`,
  samples: (
    old,
    n,
  ) => `insert into samples (service_id, at, cpu_millis, memory_bytes, storage_bytes, connections,
    transactions_per_second)
    select 'rows' || i % 50, now() - interval '${old ? 31 : 29} days' - i * interval '1 second', 0,
      0, 0, 0, 0 from generate_series(1, ${n}) i`,
  operations: (
    old,
    n,
  ) => `insert into operations (id, project_id, service_id, kind, status, requested_by, created,
    finished)
    select 'r${old}' || i, 'rowsrows00', 'rows', 'rename', 'succeeded', 'howdah',
      now() - interval '${old ? 366 : 364} days', now() - interval '${old ? 366 : 364} days'
      from generate_series(1, ${n}) i`,
  audit_log: (
    old,
    n,
  ) => `insert into audit_log (project_id, public_key, address, call, method, path, status, code,
    request_id, at)
    select 'rowsrows00', 'HDr', '::1', 'x', 'POST', '/', 403, 'FORBIDDEN', gen_random_uuid(),
      now() - interval '${old ? 366 : 364} days' from generate_series(1, ${n}) i`,
};

test('each pruning uses an index, takes a thousand at a time, leaves younger rows', async () => {
  await metadata.db.transaction().execute(async (tx) => {
    await sql`set local session_replication_role = replica`.execute(tx);
    await sql`insert into projects (id, name) values ('rowsrows00', 'rows')`.execute(tx);
    for (const fill of Object.values(FILL))
      for (const statement of [fill(true, OLD), fill(false, RECENT)])
        await sql.raw(statement).execute(tx);
  });
  for (const table of Object.keys(FILL))
    await sql`vacuum analyze ${sql.table(table)}`.execute(metadata.db);
  const asked: CompiledQuery[] = [];
  const pool = new Pool({
    ...storeConnection(await prepareMachine(cloud.home)),
    max: 1,
    application_name: 'howdah test',
  });
  const db = new Kysely<Tables>({
    dialect: new PostgresDialect({ pool }),
    log: ({ query }) => void asked.push(query),
  });
  const countOf = async (table: string): Promise<number> =>
    (
      await sql<{ count: number }>`select count(*)::int as count from ${sql.table(table)}`.execute(
        metadata.db,
      )
    ).rows[0]?.count ?? 0;
  try {
    for (const [table, prune] of Object.entries(PRUNINGS)) {
      const before = await countOf(table);
      asked.length = 0;
      expect(await prune(db, 365 * 86_400_000), `the first batch of ${table}`).toBe(true);
      expect(before - (await countOf(table)), `the first batch of ${table}`).toBe(1000);
      for (const { sql: text, parameters } of asked) {
        const { rows } = await pool.query<Record<'QUERY PLAN', string>>(`explain ${text}`, [
          ...parameters,
        ]);
        const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
        expect(plan, text).not.toMatch(new RegExp(`Seq Scan on ${table}\\b`));
      }
      while (await prune(db, 365 * 86_400_000));
      expect(before - (await countOf(table)), table).toBe(OLD);
    }
    const trim = `explain select token_hash from console_tokens where public_key = 'HDkfalse1'
      and kind = 'session' order by expires_at desc offset 19`;
    expect(JSON.stringify((await pool.query(trim)).rows)).toContain('console_tokens_of_key');
    const keys = `explain select count(*)
      from (select from api_keys where project_id = 'other' limit 1000) as keys`;
    expect(JSON.stringify((await pool.query(keys)).rows)).toContain('api_keys_of_project');
  } finally {
    await db.destroy();
  }
});

/** A key of the installation's project. */
async function newKey(
  role: 'admin' | 'developer' | 'viewer',
  projectId = cloud.projectId,
): Promise<string> {
  const publicKey = `HD${newId()}`;
  await insertKey(metadata.db, {
    publicKey,
    secretHash: sha256('secret'),
    projectId,
    name: 'test',
    role,
  });
  return `${publicKey}:secret`;
}

async function callAs(key: string, method: string, path: string, body?: object): Promise<Response> {
  return fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

/** Makes calls, some at a time. @returns how often each status was answered */
async function many(
  count: number,
  call: (n: number) => Promise<Response>,
): Promise<Map<number, number>> {
  const seen = new Map<number, number>();
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let n = next++; n < count; n = next++) {
      const answer = await call(n);
      await answer.arrayBuffer();
      seen.set(answer.status, (seen.get(answer.status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: 16 }, worker));
  return seen;
}

test("a viewer's two thousand links and sessions are some rows, then it must wait", async () => {
  const viewer = await newKey('viewer');
  const seen = await many(2000, (n) =>
    callAs(viewer, 'POST', n % 2 === 0 ? '/auth/links' : '/auth/sessions'),
  );
  expect([...seen.keys()].toSorted((a, b) => a - b)).toEqual([201, 204, 429]);
  const { rows } = await sql<{ kind: string; count: number }>`
    select kind, count(*)::int as count from console_tokens
      where public_key = ${viewer.split(':')[0]} group by kind`.execute(metadata.db);
  // Those that were made at the same moment do not see each other.
  for (const { kind, count } of rows) expect(count, kind).toBeLessThanOrEqual(MAX_TOKENS + 16);
  let last = await callAs(viewer, 'POST', '/auth/links');
  while (last.status === 201) last = await callAs(viewer, 'POST', '/auth/links');
  expect([last.status, Number(last.headers.get('Retry-After'))]).toEqual([429, 1]);
  expect((await callAs(viewer, 'GET', '/auth/info')).status).toBe(200);
  expect((await callAs(await newKey('viewer'), 'POST', '/auth/links')).status).toBe(201);
});

test('a key has at most 20 links and 20 sessions: the oldest are deleted', async () => {
  const publicKey = (await newKey('viewer')).split(':')[0] ?? '';
  const insert = (n: number, kind: 'link' | 'session') =>
    insertToken(metadata.db, {
      hash: `token ${kind} ${n}`,
      kind,
      publicKey,
      lifetimeMs: 60_000 + n * 1000,
    });
  for (let n = 0; n < 25; n++)
    for (const kind of ['link', 'session'] as const) await insert(n, kind);
  for (const kind of ['link', 'session'] as const) {
    const left = await metadata.db
      .selectFrom('console_tokens')
      .select('token_hash')
      .where('public_key', '=', publicKey)
      .where('kind', '=', kind)
      .execute();
    expect(left.map(({ token_hash: hash }) => hash).toSorted()).toEqual(
      Array.from({ length: 20 }, (_, n) => `token ${kind} ${n + 5}`).toSorted(),
    );
  }
});

test(
  'refused calls of one key share an entry per operation and answer, with their number',
  { tags: 'slow' },
  async () => {
    const viewer = await newKey('viewer');
    const [publicKey = ''] = viewer.split(':');
    const at = `/projects/${cloud.projectId}/services`;
    const seen = await many(3000, (n) =>
      n % 3 === 0
        ? callAs(viewer, 'DELETE', `${at}/${newId()}`)
        : callAs(viewer, 'POST', `${at}/made-up-${n}/stop`),
    );
    expect([...seen]).toEqual([[403, 3000]]);
    const entries = async () => (await cloud.request('GET', `/audit?public_key=${publicKey}`)).body;
    const first = {
      outcome: 'refused',
      code: 'FORBIDDEN',
      public_key: publicKey,
      path: expect.stringContaining(`${BASE_PATH}${at}`),
    };
    await untilExpected('the audit log counts all calls', async () =>
      expect(await entries()).toEqual(
        expect.arrayContaining([
          expect.objectContaining({
            ...first,
            call: 'deleteService',
            count: 1000,
            last_at: expect.any(String),
          }),
          expect.objectContaining({
            ...first,
            call: 'stopService',
            count: 2000,
            last_at: expect.any(String),
          }),
        ]),
      ),
    );
    expect(await entries()).toHaveLength(2);
    const printed = await cloud.cli(
      'audit-log',
      'list',
      '--call',
      'deleteService',
      '--outcome',
      'refused',
    );
    expect(printed.stdout).toContain('FORBIDDEN (1000 times)');
    // Keys and projects that are made up.
    const before = await sql<{
      count: number;
    }>`select count(*)::int as count from audit_log`.execute(metadata.db);
    await many(1000, (n) => callAs(`HDmadeup${n}:x`, 'POST', `/projects/${newId()}/services`));
    await untilExpected('the audit log has a new row', async () =>
      expect(
        (
          await sql<{ count: number }>`select count(*)::int as count from audit_log`.execute(
            metadata.db,
          )
        ).rows[0]?.count,
      ).toBeGreaterThan(before.rows[0]?.count ?? 0),
    );
    const after = await sql<{
      count: number;
    }>`select count(*)::int as count from audit_log`.execute(metadata.db);
    expect((after.rows[0]?.count ?? 0) - (before.rows[0]?.count ?? 0)).toBeLessThanOrEqual(100);
  },
);

test('projects, keys and VPCs have a cap that says what to do', async () => {
  await metadata.db.transaction().execute(async (tx) => {
    await sql`
      insert into projects (id, name) select 'cap' || lpad(i::text, 7, '0'), 'cap'
        from generate_series(1, ${MAX_PROJECTS}::int) i`.execute(tx);
    await sql`
      insert into api_keys (public_key, project_id, name, role, secret_hash)
      select 'HDcap' || i, ${cloud.projectId}, 'cap', 'viewer', ''
        from generate_series(1, ${MAX_KEYS}::int) i`.execute(tx);
  });
  const refused = async (path: string, body: object) => {
    const answer = await callAs(cloud.key, 'POST', path, body);
    return [answer.status, await answer.json()];
  };
  const limit = expect.objectContaining({ code: 'LIMIT_EXCEEDED' });
  expect(await refused('/projects', { name: 'one more' })).toEqual([422, limit]);
  expect(
    await refused(`/projects/${cloud.projectId}/keys`, { name: 'one more', role: 'viewer' }),
  ).toEqual([422, limit]);
  const vpc = { name: 'one more', cidr: '10.200.0.0/16', region_code: 'local' };
  // Those that are being deleted count as well; the reconciler removes them in a moment.
  const askWithVpcs = async () => {
    const insert = `insert into vpcs (project_id, region_code, name, cidr, deleting, made)
      select '${cloud.projectId}', 'local', 'cap', ('10.' || i || '.0.0/16')::cidr, true, 1
        from generate_series(1, ${MAX_VPCS}) i`;
    await metadata.db.transaction().execute(async (tx) => {
      await sql`set local session_replication_role = replica`.execute(tx);
      await sql.raw(insert).execute(tx);
    });
    return refused(`/projects/${cloud.projectId}/vpcs?dry_run=true`, vpc);
  };
  await untilExpected('the limit of VPCs refuses another one', async () =>
    expect(await askWithVpcs()).toEqual([422, limit]),
  );
  await sql`delete from vpcs where name = 'cap'`.execute(metadata.db);
  await sql`delete from api_keys where name = 'cap'`.execute(metadata.db);
  await sql`delete from projects where name = 'cap'`.execute(metadata.db);
});

test('a project makes so many changes a day, then waits; reads and others go on', async () => {
  const projectId = newId();
  await sql`insert into projects (id, name) values (${projectId}, 'busy')`.execute(metadata.db);
  const admin = await newKey('admin', projectId);
  const at = `/projects/${projectId}`;
  const name = (n: number) => ({ name: `n${n}` });
  const seen = await many(CHANGES + 20, (n) => callAs(admin, 'POST', `${at}/rename`, name(n)));
  expect([...seen.keys()].toSorted((a, b) => a - b)).toEqual([200, 429]);
  expect(seen.get(200)).toBeLessThanOrEqual(CHANGES + 16);
  const refused = await callAs(admin, 'POST', `${at}/rename`, name(0));
  expect([refused.status, Number(refused.headers.get('Retry-After')) > 60]).toEqual([429, true]);
  expect(await refused.json()).toMatchObject({
    code: 'RATE_LIMITED',
    message: expect.stringContaining('HOWDAH_CHANGES_PER_DAY'),
  });
  expect((await callAs(admin, 'GET', `/projects/${projectId}`)).status).toBe(200);
  expect((await callAs(admin, 'POST', `${at}/rename?dry_run=true`, name(0))).status).toBe(200);
  expect(
    (await callAs(cloud.key, 'POST', `/projects/${cloud.projectId}/rename`, name(0))).status,
  ).toBe(200);
});
