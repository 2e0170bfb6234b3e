/** Statements through the API: what they answer, what is refused, and every way that we know to write by what only reads. */
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, HowdahError, type Schemas } from '@howdah/client';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findProgram } from '../src/engine/local/host/daemon.ts';
import { WRITERS } from '../src/engine/local/postgres/writers.ts';
import { connectTo, install, type Installation, type Service } from './harness.ts';

const haproxy = await findProgram('haproxy');

/** Volatile functions of pg_catalog that everybody may call, by why they cannot write for a reader in a transaction that only reads. */
const KNOWN_VOLATILE: readonly RegExp[] = [
  // Clocks, random numbers, identifiers, sleep.
  /^(clock_timestamp|timeofday|random|random_normal|setseed|gen_random_uuid|uuidv[47]|array_sample|array_shuffle|pg_sleep(_for|_until)?)$/,
  // Refused in a transaction that only reads.
  /^(nextval|setval|lo_.*|loread|lowrite)$/,
  // Of the session alone.
  /^(currval|lastval|set_config|current_query|pg_stat_clear_snapshot|pg_stat_force_next_flush|pg_advisory_.*|pg_try_advisory_.*)$/,
  // Sent at a commit, which never comes.
  /^pg_notify$/,
  // Only for who owns the index, maintains the table, may replicate or signal, or is a superuser; or for pg_upgrade, or extension scripts.
  /^(brin_(de)?summarize_.*|gin_clean_pending_list|pg_(clear|restore)_(relation|attribute)_stats|pg_(cancel|terminate)_backend)$/,
  /^(pg_(create|drop|copy)_(logical_|physical_)?replication_slot|pg_logical_slot_.*|pg_replication_slot_advance|pg_sync_replication_slots)$/,
  /^(binary_upgrade_.*|pg_nextoid|pg_import_system_collations|pg_stop_making_pinned_objects|pg_extension_config_dump)$/,
  // They run a statement, or look for rows, as the session does.
  /^((query|cursor)_to_xml.*|ts_stat|ts_rewrite|currtid2)$/,
  // What the server is and does.
  /^(pg_control_.*|pg_stat_get_.*|pg_(current|last)_.*|pg_is_.*|pg_(database|indexes|relation|table|tablespace|total_relation)_size)$/,
  /^(pg_available_wal_summaries|pg_wal_summary_contents|pg_get_.*|pg_xact_.*|txid_status|pg_partition_.*|pg_lock_status|pg_prepared_xact)$/,
  /^(pg_(safe_snapshot_)?blocking_pids|pg_isolation_test_session_is_blocked|pg_jit_available|pg_notification_queue_usage|pg_sequence_last_value)$/,
  /^(pg_(database_)?collation_actual_version|amvalidate|dsnowball_.*|plpgsql_validator|plpgsql_inline_handler)$/,
];

let cloud: Installation;
let service: Service & { initial_password: string };
let admin: Client;

type Body = Schemas['Query'];

async function query(
  sql: string,
  more: Partial<Body> = {},
  id = service.service_id,
): Promise<Schemas['QueryResult']> {
  const { data } = await cloud.client.POST('/projects/{project_id}/services/{service_id}/query', {
    params: { path: { project_id: cloud.projectId, service_id: id } },
    body: { sql, ...more },
  });
  if (data === undefined) throw new Error('answered without a body');
  return data;
}

/** What a statement is refused with. */
async function refusal(sql: string, more: Partial<Body> = {}): Promise<string> {
  const answer = await query(sql, more).catch((error: unknown) => error);
  if (!(answer instanceof HowdahError))
    throw new Error(`${sql} was answered: ${JSON.stringify(answer)}`);
  expect(answer.status, `${sql}: ${answer.message}`).toBe(400);
  return answer.message;
}

beforeAll(async () => {
  cloud = await install();
  const made = await cloud.create({ name: 'asked', service_type: 'POSTGRES' });
  service = made;
  admin = await connectTo(cloud, made, made.initial_password);
  for (const statement of [
    'create table kept (id int primary key, note text)',
    "insert into kept values (1, 'one'), (2, null)",
    'create sequence counter',
    `create function writes() returns int language plpgsql security definer as $$ begin insert into kept values (99, 'written'); return 1; end $$`,
    `create function turns() returns int language plpgsql security definer as $$ begin set transaction read write; insert into kept values (98, 'x'); return 1; end $$`,
    `create function is_set() returns int language sql security definer set default_transaction_read_only = off as $$ insert into kept values (97, 'x') returning id $$`,
    `create function catches() returns int language plpgsql as $$ begin perform pg_sleep(30); return 1; exception when query_canceled then perform pg_sleep(300); return 2; end $$`,
    `create procedure commits() language plpgsql as $$ begin commit; insert into kept values (96, 'x'); end $$`,
    'create table hidden (secret text)',
    "insert into hidden values ('seen')",
    'alter table hidden enable row level security',
  ])
    await admin.query(statement);
});
afterAll(async () => {
  await admin?.end();
  expect(await cloud?.destroy()).toEqual([]);
});

test('rows with their columns and types, values as text', async () => {
  const answer = await query(
    "select id, note, 1.50::numeric(10,2) as price, '{1,2}'::int[] as some, true as yes from kept order by id",
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

test('what PostgreSQL says of a statement, with its code and place', async () => {
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

test('what would write is refused, and nothing was written', async () => {
  const before = await admin.query('select * from kept order by id');
  const sequence = await admin.query('select last_value, is_called from counter');
  const attacks: [string, RegExp][] = [
    ["insert into kept values (3, 'x')", /25006/],
    ["update kept set note = 'x'", /25006/],
    ['delete from kept', /25006/],
    ['truncate kept', /25006|42501/],
    ['with gone as (delete from kept returning *) select * from gone', /25006/],
    ['drop table kept', /25006|42501/],
    ['create table mine (id int)', /25006|42501/],
    ['create temp table mine (id int)', /25006/],
    ['select * into temp mine from kept', /25006/],
    ["select nextval('counter')", /25006|42501/],
    ["select setval('counter', 100)", /25006|42501/],
    ["copy (select 1) to program 'touch /tmp/hd-query-attack'", /42501/],
    ["copy (select 1) to '/tmp/hd-query-attack'", /42501/],
    ["copy kept from '/etc/passwd'", /42501|25006/],
    ["select pg_read_file('/etc/passwd')", /42501/],
    ["select pg_ls_dir('/')", /42501/],
    ["select lo_export(1, '/tmp/hd-query-attack')", /42501/],
    ["select lo_import('/etc/passwd')", /42501/],
    ["select lo_from_bytea(0, 'x')", /25006/],
    ['select lo_create(0)', /25006/],
    ['select writes()', /25006/],
    ['select turns()', /25001|25006/],
    ['select is_set()', /25006/],
    ['call commits()', /2D000/],
    ["do $$ begin insert into kept values (95, 'x'); end $$", /25006/],
    ["do $$ begin set transaction read write; insert into kept values (95, 'x'); end $$", /25001/],
    [
      "do $$ begin set transaction read write; exception when others then insert into kept values (95, 'x'); end $$",
      /25006/,
    ],
    ["do $$ begin commit; insert into kept values (94, 'x'); end $$", /2D000/],
    ["commit; insert into kept values (93, 'x')", /42601/],
    ["select 1; insert into kept values (93, 'x')", /42601/],
    ['set transaction read write', /25001/],
    ['select set_config($$transaction_read_only$$, $$off$$, false)', /25001/],
    ['set role tsdbadmin', /42501/],
    ['set role howdah', /42501/],
    ['set session authorization tsdbadmin', /42501/],
    ['alter role howdah_reader superuser', /25006|42501/],
    ['grant tsdbadmin to howdah_reader', /25006|42501/],
    ['alter system set log_statement = $$all$$', /25001/],
    ['lock table kept in access exclusive mode', /42501/],
    ['select * from kept for update', /25006/],
    ['vacuum kept', /25001/],
    ['create extension dblink', /25006|42501/],
    ["select dblink('host=127.0.0.1', 'select 1')", /42883/],
    ['create extension postgres_fdw', /25006|42501/],
    [
      'select pg_terminate_backend(pid) from pg_stat_activity where usename = $$tsdbadmin$$',
      /42501/,
    ],
    ['select pg_reload_conf()', /42501/],
    ['select pg_promote()', /42501/],
    ['select pg_switch_wal()', /42501/],
    ["select pg_logical_emit_message(false, 'by a statement', 'x')", /42501/],
    ["select pg_logical_emit_message(true, 'by a statement', 'x'::bytea)", /42501/],
    [
      "select pg_catalog.pg_logical_emit_message(prefix => 'x', message => 'y', transactional => false)",
      /42501/,
    ],
    ['select pg_export_snapshot()', /42501/],
    ["do $$ begin perform pg_logical_emit_message(false, 'x', 'y'); end $$", /42501/],
  ];
  for (const [sql, code] of attacks) expect(await refusal(sql), sql).toMatch(code);
  // What is answered and has no effect.
  for (const sql of [
    'commit',
    'rollback',
    'begin',
    "notify somebody, 'x'",
    'set statement_timeout = 0',
    'set role none',
  ])
    await query(sql);
  expect((await admin.query('select * from kept order by id')).rows).toEqual(before.rows);
  expect((await admin.query('select last_value, is_called from counter')).rows).toEqual(
    sequence.rows,
  );
  expect(existsSync('/tmp/hd-query-attack')).toBe(false);
  const { rows } = await admin.query(
    "select relname from pg_class where relname = 'mine' union select extname from pg_extension where extname in ('dblink', 'postgres_fdw')",
  );
  expect(rows).toEqual([]);
});

/** A session as our superuser, in the tenant's database. */
async function asHowdah(statement: string): Promise<Record<string, unknown>[]> {
  const socket = join(cloud.home, 'data', 'services', service.service_id, 'run');
  const control = new Client({
    host: socket,
    port: service.endpoint.port,
    user: 'howdah',
    database: 'tsdb',
  });
  await control.connect();
  try {
    return (await control.query<Record<string, unknown>>(statement)).rows;
  } finally {
    await control.end();
  }
}

test('functions that write are tsdbadmin’s, who cannot grant them; what an older release left open is revoked before a statement', async () => {
  await admin.query("select pg_logical_emit_message(false, 'ours', 'x')");
  await admin.query('select pg_export_snapshot()');
  for (const role of ['public', 'howdah_reader', 'pg_read_all_data with grant option'])
    await admin
      .query(`grant execute on function pg_export_snapshot() to ${role}`)
      .catch(() => undefined);
  expect(await refusal('select pg_export_snapshot()')).toContain('42501');
  for (const name of WRITERS)
    await asHowdah(`do $$ declare f text; begin for f in select oid::regprocedure::text from pg_proc where proname = '${name}' loop
      execute format('grant execute on function %s to public', f); end loop; end $$`);
  expect(await refusal('select pg_export_snapshot()')).toContain('42501');
  expect(await refusal("select pg_logical_emit_message(false, 'x', 'y'::bytea)")).toContain(
    '42501',
  );
  await admin.query('select pg_export_snapshot()');
  // pg_dump writes what differs from the privileges at initdb.
  const different = await asHowdah(
    `select proname from pg_proc p left join pg_init_privs i on i.objoid = p.oid and i.classoid = 'pg_proc'::regclass
     where pronamespace = 'pg_catalog'::regnamespace and proacl is distinct from initprivs`,
  );
  expect(different).toEqual([]);
});

test('every volatile function that everybody may call is known, and what it does in a transaction that only reads', async () => {
  const rows = await asHowdah(
    `select distinct proname from pg_proc p
     where pronamespace = 'pg_catalog'::regnamespace and provolatile = 'v' and prokind in ('f', 'p')
       and prorettype not in ('trigger'::regtype, 'event_trigger'::regtype, 'internal'::regtype, 'index_am_handler'::regtype,
                              'table_am_handler'::regtype, 'tsm_handler'::regtype, 'language_handler'::regtype)
       and (proacl is null or exists (select from aclexplode(proacl) a where a.grantee = 0 and a.privilege_type = 'EXECUTE'))`,
  );
  const unknown = rows
    .map(({ proname }) => String(proname))
    .filter((name) => !KNOWN_VOLATILE.some((known) => known.test(name)));
  // A new one: does it write, make files, or hold what outlives its session? Then it belongs into writers.ts.
  expect(unknown).toEqual([]);
});

test('when all connections of the server are taken, that is what is said', async () => {
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

test('a notification is never sent', async () => {
  const heard: string[] = [];
  admin.on('notification', ({ payload = '' }) => void heard.push(payload));
  await admin.query('listen somebody');
  await query("select pg_notify('somebody', 'by a statement')");
  await admin.query("notify somebody, 'by its owner'");
  await admin.query('select 1');
  expect(heard).toEqual(['by its owner']);
});

test('a huge answer is cut, by rows and by bytes, and does not fill the memory', async () => {
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
    'before the first row was whole',
  );
  expect(
    await refusal('do $$ begin loop raise notice $x$ 12345678901234567890 $x$; end loop; end $$', {
      timeout_ms: 60_000,
    }),
  ).toContain('MiB');
  await untilNobodyAsks();
});

test('a long statement is ended, also one that catches the end', async () => {
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
  for (;;) {
    const { rows } = await admin.query(
      "select from pg_stat_activity where usename = 'howdah_reader'",
    );
    if (rows.length === 0) return;
    await sleep(20);
  }
}

test('locks end with the statement', async () => {
  await query('select pg_advisory_lock(7)');
  await untilNobodyAsks();
  expect((await admin.query('select pg_try_advisory_lock(7) as free')).rows).toEqual([
    { free: true },
  ]);
  await admin.query('select pg_advisory_unlock(7)');
});

test('no more sessions than ten at a time: the others are the users’', async () => {
  await admin.query('select pg_advisory_lock(9)');
  const ask = (sql: string) =>
    cloud.request('POST', `/services/${service.service_id}/query`, { sql, timeout_ms: 60_000 });
  const waiting = Array.from({ length: 10 }, () => ask('select pg_advisory_lock(9)'));
  const sessions = async () =>
    (await admin.query("select from pg_stat_activity where usename = 'howdah_reader'")).rows.length;
  await expect.poll(sessions, { timeout: 50_000 }).toBe(10);
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

test('the role is nobody’s: it cannot be used, altered or come in', async () => {
  for (const [sql, why] of [
    ['set role howdah_reader', /permission denied/],
    ['grant howdah_reader to tsdbadmin', /permission denied/],
    ["alter role howdah_reader password 'mine'", /permission denied/],
    ['alter role howdah_reader set default_transaction_read_only = off', /permission denied/],
    ['drop role howdah_reader', /permission denied/],
  ] as const)
    await expect(admin.query(sql), sql).rejects.toThrow(why);
  await expect(connectTo(cloud, service, 'x', { user: 'howdah_reader' })).rejects.toThrow(
    /pg_hba.conf rejects/,
  );
});

test('what users give the role is taken from it before the next statement', async () => {
  await admin.query('create role writer');
  await admin.query('grant insert on kept to writer');
  await admin.query('grant writer to howdah_reader');
  await admin.query('revoke connect on database tsdb from public');
  await admin.query('revoke connect on database tsdb from howdah_reader');
  await admin.query('alter database tsdb set default_transaction_read_only = off');
  await query('select 1');
  const { rows } = await admin.query(
    "select g.rolname from pg_auth_members m join pg_roles g on g.oid = m.roleid where m.member = 'howdah_reader'::regrole",
  );
  expect(rows).toEqual([{ rolname: 'pg_read_all_data' }]);
  expect(await refusal('set role writer')).toContain('42501');
  // With a right to write, the transaction is what is left; and it holds.
  await admin.query('grant insert on kept to howdah_reader');
  expect(await refusal("insert into kept values (50, 'x')")).toContain('25006');
  await admin.query('revoke insert on kept from howdah_reader');
  await admin.query('grant connect on database tsdb to public');
});

test('a role of that name that a user made is not taken for ours', async () => {
  const made = await cloud.create({ name: 'taken', service_type: 'POSTGRES' });
  const owner = await connectTo(cloud, made, made.initial_password);
  await owner.query("create role howdah_reader login password 'mine enough'");
  const refused = await cloud.request('POST', `/services/${made.service_id}/query`, {
    sql: 'select 1',
  });
  expect([refused.status, JSON.stringify(refused.body)]).toEqual([
    503,
    expect.stringContaining('drop role howdah_reader'),
  ]);
  await owner.query('drop role howdah_reader');
  await owner.end();
  expect((await query('select current_user', {}, made.service_id)).rows).toEqual([
    ['howdah_reader'],
  ]);
  await cloud.request('POST', `/services/${made.service_id}/stop`);
  await cloud.until(made.service_id, 'PAUSED');
  const paused = await cloud.request('POST', `/services/${made.service_id}/query`, {
    sql: 'select 1',
  });
  expect([paused.status, JSON.stringify(paused.body)]).toEqual([
    400,
    expect.stringContaining('cannot query a service that is PAUSED'),
  ]);
});

test('a service that an older release configured lets the role in from the next start of the control plane on', async () => {
  const root = join(cloud.home, 'data', 'services', service.service_id);
  for (const name of ['pg_hba.conf', 'pg_ident.conf']) {
    const path = join(root, 'config', name);
    const older = (await readFile(path, 'utf8'))
      .split('\n')
      .filter((line) => !line.endsWith(' howdah_reader'));
    await writeFile(path, older.join('\n').replaceAll(',howdah_reader', ''));
  }
  const control = new Client({
    host: join(root, 'run'),
    port: service.endpoint.port,
    user: 'howdah',
    database: 'postgres',
  });
  await control.connect();
  await control.query('select pg_reload_conf()');
  await control.end();
  const asked = async () =>
    (await cloud.request('POST', `/services/${service.service_id}/query`, { sql: 'select 1' }))
      .status;
  await expect.poll(asked, { timeout: 50_000 }).toBe(503);
  await cloud.stop('SIGKILL');
  await cloud.up();
  await expect.poll(asked, { timeout: 100_000 }).toBe(200);
  // Its sessions never noticed.
  expect((await admin.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
});

test('the audit log says who asked, not what', async () => {
  const secret = `secret-${randomUUID()}`;
  await query(`select '${secret}'`);
  await refusal(`select '${secret}'::int`);
  const entries = async () =>
    JSON.stringify(
      (await cloud.request('GET', `/audit?service_id=${service.service_id}&call=queryService`))
        .body,
    );
  await expect.poll(entries).toContain('"outcome":"refused"');
  expect(await entries()).toContain('"outcome":"allowed"');
  expect(await entries()).not.toContain(secret);
});

test('a key for forks asks its own forks only; a viewer and one for dry runs nobody', async () => {
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
  'of a service with a replica the primary answers, of a read replica set a node',
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
