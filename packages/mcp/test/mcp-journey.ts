/** An agent's journey on forks, which mcp.test.ts runs: migrate, test, compare, report. */
import { Client as Postgres } from 'pg';
import { expect } from 'vitest';
import type { Caller } from './mcp-cloud.ts';

type Call = Caller['call'];

const MIGRATION = `
  alter table orders add column note text not null default '';
  create index by_note on orders (note);
  create table invoices (id int primary key, "order" int references orders (id))`;

/** A fork_only key is shown the way to the data, and forks. @returns the connection string */
export async function forkShop(call: Call): Promise<string> {
  for (const [tool, args] of [
    ['db_query', { sql: 'select 1' }],
    ['db_schema', {}],
    ['explain', { sql: 'select 1' }],
  ] as const)
    expect((await call(tool, { service: 'shop', ...args })).data, tool).toMatchObject({
      code: 'FORBIDDEN',
      try_next: expect.stringContaining('on_fork: true'),
    });
  for (const [tool, args] of [
    ['execute', { sql: 'delete from orders' }],
    ['apply_migration', { sql: MIGRATION }],
  ] as const)
    expect((await call(tool, { service: 'shop', ...args })).data, tool).toMatchObject({
      code: 'FORBIDDEN',
    });
  const fork = await call('fork_service', { service: 'shop', name: 'trial' });
  expect(fork.data).toMatchObject({ status: 'READY' });
  return String(fork.data['connection_string']);
}

/** A migration is kept as a whole or not at all, and reports time, locks and differences. */
export async function migrate(call: Call): Promise<void> {
  const done = await call('apply_migration', { service: 'trial', sql: MIGRATION });
  expect(done).toMatchObject({
    failed: false,
    data: {
      elapsed_ms: expect.any(Number),
      commit_ms: expect.any(Number),
      locks: [{ table: 'public.orders', mode: 'AccessExclusiveLock', blocks: 'reads and writes' }],
      schema: { removed: [], changed: [] },
    },
  });
  const { added } = Object(done.data['schema']);
  expect(added).toMatchObject([
    { kind: 'column', name: 'public.orders.note', definition: "text not null default ''::text" },
    { kind: 'index', name: 'public.by_note' },
    {
      kind: 'table',
      name: 'public.invoices',
      parts: expect.arrayContaining(['column public.invoices.id: integer not null']),
    },
  ]);
  for (const [sql, code] of [
    ['create table half (id int); commit', '0A000'],
    ['create table half (id int); select nothing', '42703'],
    ['create table half (id int); create index concurrently on orders (total)', '25001'],
  ])
    expect((await call('apply_migration', { service: 'trial', sql })).data, sql).toMatchObject({
      code: 'STATEMENT_FAILED',
      sqlstate: code,
    });
  const { text } = await call('db_schema', { service: 'trial' });
  expect(text).toContain('invoices');
  expect(text).not.toContain('half');
}

/** Statements write on the fork, one at a time, with values as parameters. */
export async function write(call: Call): Promise<void> {
  const execute = async (sql: string, more = {}) =>
    call('execute', { service: 'trial', sql, ...more });
  expect(
    (
      await execute(
        'insert into orders (id, customer, note) values ($1, 1, $2) returning id, note',
        {
          parameters: ['3', "it's $1"],
        },
      )
    ).data,
  ).toMatchObject({ command: 'INSERT', row_count: 1, rows: [['3', "it's $1"]], truncated: false });
  expect((await execute('select 1; delete from orders')).data).toMatchObject({
    code: 'STATEMENT_FAILED',
    sqlstate: '42601',
  });
  expect((await execute('select generate_series(1, 100)', { max_rows: 2 })).data).toMatchObject({
    rows: [['1'], ['2']],
    row_count: 100,
    truncated: true,
  });
  expect((await execute('select pg_sleep(60)', { timeout_ms: 100 })).data).toMatchObject({
    sqlstate: '57014',
  });
  expect((await execute('create index concurrently on orders (total)')).failed).toBe(false);
  const explained = await call('explain', {
    service: 'trial',
    sql: 'delete from orders',
    analyze: true,
  });
  expect(explained.text).toContain('Execution Time');
  expect(explained.text).toContain('Delete on');
}

/** The differences are those of the migration and the writes; nothing else is different. */
export async function compare(call: Call): Promise<void> {
  const diff = await call('diff', { service: 'trial', on_fork: true, count_rows: true });
  expect(diff.data).toMatchObject({
    rows_are: 'counted',
    rows: [
      { table: 'public.invoices', from: null, to: 0 },
      { table: 'public.orders', from: 2, to: 3 },
    ],
    schema: { removed: [], changed: [] },
    fork: { left_because: null },
  });
  const back = await call('diff', { service: 'shop', against: 'trial', on_fork: true });
  expect(back.text).toContain('table public.invoices');
  expect(back.data).toMatchObject({ schema: { added: [] }, rows_are: 'estimated' });
  const plan = await call('explain', {
    service: 'shop',
    sql: 'select count(*) from orders',
    analyze: true,
    on_fork: true,
  });
  expect(plan.text).toContain('Execution Time');
}

/** Copies for tests: each has the data, and what is written in one is in no other. */
export async function lease(call: Call): Promise<void> {
  const dry = await call('take_lease', { service: 'shop', count: 2, dry_run: true });
  expect(dry.data).toMatchObject({ dry_run: true });
  const taken = await call('take_lease', { service: 'shop', count: 2, ttl_seconds: 600 });
  const of = {
    ready: true,
    reset: 'server',
    connection_string: expect.stringMatching(/^postgres:/),
  };
  expect(taken.data).toMatchObject({ leases: [of, of] });
  const [one, other] = leasesIn(taken.data);
  if (one === undefined || other === undefined) throw new Error('two leases were asked for');
  const ids = [one.id, other.id];
  await select1(one.connection_string);
  const emptied = await call('execute', { service: one.id, sql: 'delete from orders' });
  expect(emptied.data).toMatchObject({ command: 'DELETE', row_count: 2 });
  for (const [id, count] of [
    [one.id, '0'],
    [other.id, '2'],
  ])
    expect(
      (await call('db_query', { service: id, sql: 'select count(*) from orders' })).data,
    ).toMatchObject({ rows: [[count]] });

  const listed = await call('list_leases');
  expect(leasesIn(listed.data).map(({ id }) => id)).toEqual(expect.arrayContaining(ids));
  expect(listed.text).not.toContain(one.password);
  const longer = await call('extend_lease', { leases: [...ids, 'nosuchidxx'], ttl_seconds: 7200 });
  expect(longer.data).toMatchObject({ leases: [{}, {}], ended: ['nosuchidxx'] });
  for (const { expires_at: end } of leasesIn(longer.data))
    expect(Date.parse(end)).toBeGreaterThan(Date.now() + 3_600_000);
  const returned = await call('return_lease', { leases: ids });
  expect(returned.data).toMatchObject({ returned: expect.arrayContaining(ids), ended: [] });
  expect((await call('list_leases')).data).toEqual({ leases: [] });
  expect((await call('return_lease', { leases: ids })).data).toMatchObject({ returned: [] });
  expect((await call('extend_lease', { leases: ids, ttl_seconds: 60 })).data).toMatchObject({
    code: 'NOT_FOUND',
  });
}

type TakenLease = Record<'id' | 'password' | 'connection_string' | 'expires_at', string>;

function leasesIn({ leases }: Record<string, unknown>): TakenLease[] {
  if (!Array.isArray(leases)) throw new Error('the answer has no leases');
  return leases.map((one) => {
    const { id, password, connection_string, expires_at } = Object(one);
    return {
      id: String(id),
      password: String(password),
      connection_string: String(connection_string),
      expires_at: String(expires_at),
    };
  });
}

/** Another password ends the former one, and the tools go on with the new one. */
export async function changePassword(call: Call, former: string): Promise<void> {
  const reset = await call('reset_password', { service: 'trial' });
  expect(reset.data['password']).toMatch(/^.{32}$/);
  await expect(select1(former)).rejects.toThrow('password authentication failed');
  await select1(String(reset.data['connection_string']));
  expect((await call('execute', { service: 'trial', sql: 'select 1' })).failed).toBe(false);
}

async function select1(uri: string): Promise<void> {
  const db = new Postgres({ connectionString: uri.replace('require', 'no-verify') });
  try {
    await db.connect();
    await db.query('select 1');
  } finally {
    await db.end();
  }
}

/** Properties of a service; what ends sessions of PROD needs its name, as the API asks for it. */
export async function configure(call: Call): Promise<void> {
  const pooled = await call('set_pooler', { service: 'shop', enabled: true });
  expect(pooled.data).toMatchObject({ status: 'READY' });
  expect((await call('set_pooler', { service: 'shop', enabled: false })).failed).toBe(false);
  expect(
    (await call('set_ha', { service: 'shop', replica_count: 0, dry_run: true })).data,
  ).toMatchObject({ dry_run: true });
  expect((await call('set_ha', { service: 'shop' })).data).toMatchObject({ code: 'REFUSED' });

  const ends = await call('set_expiry', { service: 'shop', ttl_seconds: 3600 });
  expect(ends.data).toMatchObject({ expires_at: expect.stringContaining('T') });
  for (const auto_suspend_seconds of [3600, null])
    expect(
      (await call('set_auto_suspend', { service: 'shop', auto_suspend_seconds })).data,
    ).toMatchObject({ status: 'READY' });
  const stays = await call('set_expiry', { service: 'shop', ttl_seconds: null });
  expect(stays.data).toMatchObject({ expires_at: null });

  const office = { description: 'office', cidr_blocks: ['203.0.113.0/24'] };
  const list = await call('create_allow_list', office);
  const allow_list = String(list.data['allow_list_id']);
  expect((await call('set_allow_list', { service: 'shop', allow_list: 'office' })).failed).toBe(
    false,
  );
  const wider = { allow_list, cidr_blocks: ['203.0.113.0/24', '198.51.100.7/32'] };
  expect((await call('change_allow_list', wider)).data).toMatchObject({
    cidr_blocks: wider.cidr_blocks,
  });
  expect((await call('delete_allow_list', { allow_list })).failed).toBe(true);
  expect((await call('set_allow_list', { service: 'shop', allow_list: null })).failed).toBe(false);
  expect((await call('delete_allow_list', { allow_list })).failed).toBe(false);
  expect((await call('list_allow_lists')).data).toEqual({ allow_lists: [] });

  expect((await call('list_vpcs')).data).toEqual({ vpcs: [] });
  for (const [vpc, code] of [
    ['nowhere', 'NOT_FOUND'],
    [null, 'REFUSED'],
  ] as const)
    expect((await call('set_vpc', { service: 'shop', vpc })).data).toMatchObject({ code });
}
