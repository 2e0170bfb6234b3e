/** Read-only statements: no way around the rule that they write nothing. */
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import { WRITERS } from './probe.ts';
import { admin, cloud, query, refusal, service, setUp, tearDown } from './query-cloud.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

/**
 * Volatile functions of pg_catalog that everybody may call, by why they cannot write for a reader
 * in a transaction that only reads.
 */
const KNOWN_VOLATILE: readonly RegExp[] = [
  // Clocks, random numbers, identifiers, sleep.
  /^(clock_timestamp|timeofday|random|random_normal|setseed|gen_random_uuid|uuidv[47])$/,
  /^(array_sample|array_shuffle|pg_sleep(_for|_until)?)$/,
  // Refused in a transaction that only reads.
  /^(nextval|setval|lo_.*|loread|lowrite)$/,
  // Functions that affect the session alone.
  /^(currval|lastval|set_config|current_query|pg_stat_clear_snapshot|pg_stat_force_next_flush)$/,
  /^(pg_advisory_.*|pg_try_advisory_.*)$/,
  // Sent at a commit, which never comes.
  /^pg_notify$/,
  // Only for who owns the index, maintains the table, may replicate or signal, or is a superuser;
  // or for pg_upgrade, or extension scripts.
  /^(brin_(de)?summarize_.*|gin_clean_pending_list|pg_(clear|restore)_(relation|attribute)_stats)$/,
  /^(pg_(cancel|terminate)_backend)$/,
  /^(pg_(create|drop|copy)_(logical_|physical_)?replication_slot|pg_logical_slot_.*)$/,
  /^(pg_replication_slot_advance|pg_sync_replication_slots)$/,
  /^(binary_upgrade_.*|pg_nextoid|pg_import_system_collations|pg_stop_making_pinned_objects)$/,
  /^(pg_extension_config_dump)$/,
  // Functions that run a statement, or look for rows, as the session does.
  /^((query|cursor)_to_xml.*|ts_stat|ts_rewrite|currtid2)$/,
  // Functions that report the state of the server.
  /^(pg_control_.*|pg_stat_get_.*|pg_(current|last)_.*|pg_is_.*)$/,
  /^(pg_(database|indexes|relation|table|tablespace|total_relation)_size)$/,
  /^(pg_available_wal_summaries|pg_wal_summary_contents|pg_get_.*|pg_xact_.*|txid_status)$/,
  /^(pg_partition_.*|pg_lock_status|pg_prepared_xact)$/,
  /^(pg_(safe_snapshot_)?blocking_pids|pg_isolation_test_session_is_blocked|pg_jit_available)$/,
  /^(pg_notification_queue_usage|pg_sequence_last_value)$/,
  /^(pg_(database_)?collation_actual_version|amvalidate|dsnowball_.*|plpgsql_validator)$/,
  /^(plpgsql_inline_handler)$/,
];

/** Statements that would write, or prepare for it, and the SQLSTATE that refuses them. */
const ATTACKS: [string, RegExp][] = [
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
    'do $$ begin set transaction read write; ' +
      "exception when others then insert into kept values (95, 'x'); end $$",
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
  ['select pg_terminate_backend(pid) from pg_stat_activity where usename = $$tsdbadmin$$', /42501/],
  ['select pg_reload_conf()', /42501/],
  ['select pg_promote()', /42501/],
  ['select pg_switch_wal()', /42501/],
  ["select pg_logical_emit_message(false, 'by a statement', 'x')", /42501/],
  ["select pg_logical_emit_message(true, 'by a statement', 'x'::bytea)", /42501/],
  [
    `select pg_catalog.pg_logical_emit_message(prefix => 'x', message => 'y',
       transactional => false)`,
    /42501/,
  ],
  ['select pg_export_snapshot()', /42501/],
  ["do $$ begin perform pg_logical_emit_message(false, 'x', 'y'); end $$", /42501/],
];

test('a statement that would write is refused, and nothing is written', async () => {
  const before = await admin.query('select * from kept order by id');
  const sequence = await admin.query('select last_value, is_called from counter');
  for (const [sql, code] of ATTACKS) expect(await refusal(sql), sql).toMatch(code);
  // Statements that are answered and have no effect.
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
    `select relname from pg_class where relname = 'mine' union select extname from pg_extension
       where extname in ('dblink', 'postgres_fdw')`,
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

test('only tsdbadmin may execute functions that write, and cannot grant them', async () => {
  await admin.query("select pg_logical_emit_message(false, 'ours', 'x')");
  await admin.query('select pg_export_snapshot()');
  for (const role of ['public', 'howdah_reader', 'pg_read_all_data with grant option'])
    await admin
      .query(`grant execute on function pg_export_snapshot() to ${role}`)
      .catch(() => undefined);
  expect(await refusal('select pg_export_snapshot()')).toContain('42501');
  for (const name of WRITERS)
    await asHowdah(`do $$ declare f text; begin
      for f in select oid::regprocedure::text from pg_proc where proname = '${name}' loop
      execute format('grant execute on function %s to public', f); end loop; end $$`);
  expect(await refusal('select pg_export_snapshot()')).toContain('42501');
  expect(await refusal("select pg_logical_emit_message(false, 'x', 'y'::bytea)")).toContain(
    '42501',
  );
  await admin.query('select pg_export_snapshot()');
  // pg_dump writes what differs from the privileges at initdb.
  const different = await asHowdah(
    `select proname from pg_proc p left join pg_init_privs i on i.objoid = p.oid
       and i.classoid = 'pg_proc'::regclass
     where pronamespace = 'pg_catalog'::regnamespace and proacl is distinct from initprivs`,
  );
  expect(different).toEqual([]);
});

test('every volatile function of everybody writes nothing in a read-only transaction', async () => {
  const rows = await asHowdah(
    `select distinct proname from pg_proc p
     where pronamespace = 'pg_catalog'::regnamespace and provolatile = 'v' and prokind in ('f', 'p')
       -- Both read the statistics of statements.
       and proname not in ('pg_stat_statements', 'pg_stat_statements_info')
       and prorettype not in ('trigger'::regtype, 'event_trigger'::regtype, 'internal'::regtype,
         'index_am_handler'::regtype, 'table_am_handler'::regtype, 'tsm_handler'::regtype,
         'language_handler'::regtype)
       and (proacl is null or exists (select from aclexplode(proacl) a where a.grantee = 0
         and a.privilege_type = 'EXECUTE'))`,
  );
  const unknown = rows
    .map(({ proname }) => String(proname))
    .filter((name) => !KNOWN_VOLATILE.some((known) => known.test(name)));
  // A new one: does it write, make files, or hold what outlives its session? Then it belongs into
  // writers.ts.
  expect(unknown).toEqual([]);
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

test('howdah_reader cannot be used, altered or logged in with', async () => {
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

test('rights that users grant to howdah_reader are revoked before the next statement', async () => {
  await admin.query('create role writer');
  await admin.query('grant insert on kept to writer');
  await admin.query('grant writer to howdah_reader');
  await admin.query('revoke connect on database tsdb from public');
  await admin.query('revoke connect on database tsdb from howdah_reader');
  await admin.query('alter database tsdb set default_transaction_read_only = off');
  await query('select 1');
  const { rows } = await admin.query(
    `select g.rolname from pg_auth_members m join pg_roles g on g.oid = m.roleid
       where m.member = 'howdah_reader'::regrole`,
  );
  expect(rows).toEqual([{ rolname: 'pg_read_all_data' }]);
  expect(await refusal('set role writer')).toContain('42501');
  // With a right to write, the transaction is what is left; and it holds.
  await admin.query('grant insert on kept to howdah_reader');
  expect(await refusal("insert into kept values (50, 'x')")).toContain('25006');
  await admin.query('revoke insert on kept from howdah_reader');
  await admin.query('grant connect on database tsdb to public');
});

test('a role of a user with the name howdah_reader is not used', async () => {
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

test('a service of an older release accepts howdah_reader from the next start on', async () => {
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
  await untilExpected('howdah_reader is rejected', async () => expect(await asked()).toBe(503));
  await cloud.stop('SIGKILL');
  await cloud.up();
  await untilExpected('howdah_reader is accepted', async () => expect(await asked()).toBe(200));
  // The owner's sessions never noticed.
  expect((await admin.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
});
