/** The parts of an agent's day, which mcp.test.ts runs one after the other. */
import { Client as Postgres } from 'pg';
import { expect } from 'vitest';
import type { Caller } from './mcp-cloud.ts';
import { untilExpected } from '../../server/test/until.ts';

type Call = Caller['call'];

/** Makes a service with tables. @returns its id */
export async function makeShop(call: Call): Promise<unknown> {
  const made = await call('create_service', { name: 'shop', service_type: 'POSTGRES' });
  expect(made.data).toMatchObject({
    name: 'shop',
    status: 'READY',
    password: expect.stringMatching(/^.{32}$/),
  });
  const db = new Postgres({
    connectionString: String(made.data['connection_string']).replace('require', 'no-verify'),
  });
  await db.connect();
  await db.query(
    'create table customers (id int primary key, name text not null default $$nobody$$)',
  );
  await db.query(
    `create table orders (id int primary key, customer int references customers (id),
       total numeric(10,2))`,
  );
  await db.query('create index by_customer on orders (customer)');
  await db.query("comment on table orders is 'what was bought'");
  await db.query('create view big as select * from orders where total > 100');
  await db.query(
    "insert into customers values (1, 'Ada'); insert into orders values (1, 1, 120.50), (2, 1, 5)",
  );
  await db.end();
  return made.data['service_id'];
}

/** The schema shows tables, views, keys and comments. */
export async function readSchema(call: Call): Promise<void> {
  const schema = await call('db_schema', { service: 'shop' });
  expect(schema.data['tables']).toMatchObject([
    { schema: 'public', name: 'big', kind: 'view' },
    {
      schema: 'public',
      name: 'customers',
      kind: 'table',
      columns: ['id integer not null', "name text not null default 'nobody'::text"],
      keys: ['customers_pkey: PRIMARY KEY (id)'],
    },
    {
      name: 'orders',
      columns: ['id integer not null', 'customer integer', 'total numeric(10,2)'],
      keys: [
        'orders_pkey: PRIMARY KEY (id)',
        'orders_customer_fkey: FOREIGN KEY (customer) REFERENCES customers(id)',
      ],
      indexes: ['CREATE INDEX by_customer ON public.orders USING btree (customer)'],
      bytes: expect.any(Number),
      comment: 'what was bought',
    },
  ]);
  expect(
    (await call('db_schema', { service: 'shop', table: 'orders' })).data['tables'],
  ).toHaveLength(1);
}

/**
 * Statements that read are answered; one that writes is refused, with what to do; a fork takes any.
 */
export async function askAndFail(call: Call): Promise<void> {
  const asked = await call('db_query', {
    service: 'shop',
    sql: `select name, sum(total) from orders join customers c on c.id = customer where c.id = $1
      group by 1`,
    parameters: ['1'],
  });
  expect(asked).toMatchObject({ failed: false, data: { rows: [['Ada', '125.50']] } });
  expect(asked.text).toContain('125.50');
  const write = await call('db_query', { service: 'shop', sql: 'delete from orders' });
  expect(write).toMatchObject({
    failed: true,
    data: { code: 'INVALID_REQUEST', try_next: expect.stringContaining('fork_service') },
  });
  expect(
    (await call('db_query', { service: 'shop', sql: 'select * from nowhere' })).data['try_next'],
  ).toContain('db_schema');

  const onFork = await call('db_query', {
    service: 'shop',
    sql: 'select count(*) from orders',
    on_fork: true,
  });
  expect(onFork.data).toMatchObject({
    rows: [['2']],
    fork: { fork_ms: expect.any(Number), left_because: null },
  });
  const failed = await call('db_query', { service: 'shop', sql: 'select broken', on_fork: true });
  expect(failed.failed).toBe(true);
}

/** A fork is changed, deleted and restored, and its parent stays as it is. */
export async function changeFork(call: Call, shop: unknown): Promise<void> {
  const fork = await call('fork_service', { service: 'shop', name: 'try' });
  expect(fork.data).toMatchObject({
    name: 'try',
    status: 'READY',
    forked_from: shop,
  });
  const inFork = new Postgres({
    connectionString: String(fork.data['connection_string']).replace('require', 'no-verify'),
  });
  await inFork.connect();
  await inFork.query('delete from orders');
  await inFork.end();
  expect(
    (await call('db_query', { service: 'try', sql: 'select count(*) from orders' })).data['rows'],
  ).toEqual([['0']]);
  expect(
    (await call('db_query', { service: 'shop', sql: 'select count(*) from orders' })).data['rows'],
  ).toEqual([['2']]);
  expect(await call('reset_service', { service: 'try', confirm: 'shop' })).toMatchObject({
    failed: true,
    data: { code: 'REFUSED' },
  });
  const reset = await call('reset_service', { service: 'try', confirm: 'try' });
  expect(reset.data).toMatchObject({ status: 'READY' });
  expect(
    (await call('db_query', { service: 'try', sql: 'select count(*) from orders' })).data['rows'],
  ).toEqual([['2']]);

  expect(await call('delete_service', { service: 'try', confirm: 'shop' })).toMatchObject({
    failed: true,
    data: { code: 'REFUSED' },
  });
  const deleted = await call('delete_service', { service: 'try', confirm: 'try' });
  expect(deleted.data).toMatchObject({ deleted: true });
  const gone = await call('list_services', { deleted: true });
  expect(JSON.stringify(gone.data)).toContain(String(fork.data['service_id']));
  expect((await call('restore_service', { service: fork.data['service_id'] })).data).toMatchObject({
    status: 'READY',
  });
  await call('delete_service', { service: 'try', confirm: 'try' });
}

/** A paused service answers on a fork alone; it is started and gets another size. */
export async function pauseAndResize(call: Call): Promise<void> {
  expect((await call('stop_service', { service: 'shop', confirm: 'shop' })).data).toMatchObject({
    status: 'PAUSED',
  });
  const paused = await call('db_query', { service: 'shop', sql: 'select 1' });
  expect(paused).toMatchObject({ failed: true, data: { code: 'INVALID_STATE' } });
  expect(
    (
      await call('db_query', {
        service: 'shop',
        sql: 'select count(*) from orders',
        on_fork: true,
      })
    ).data['rows'],
  ).toEqual([['2']]);
  expect((await call('start_service', { service: 'shop' })).data).toMatchObject({
    status: 'READY',
  });
  expect((await call('resize_service', { service: 'shop', cpu_millis: 1000 })).data).toMatchObject({
    status: 'READY',
    cpu_millis: 1000,
    memory_gbs: 4,
  });
}

/** Backups, operations, logs, metrics, usage and regions. */
export async function lookAfter(call: Call): Promise<void> {
  expect((await call('list_backups', { service: 'shop' })).data['snapshots']).toHaveLength(1);
  const trigrams = { service: 'shop', extension: 'pg_trgm' };
  expect((await call('enable_extension', trigrams)).data).toMatchObject({ status: 'READY' });
  expect((await call('list_extensions', { service: 'shop' })).data['extensions']).toContainEqual(
    expect.objectContaining({ name: 'pg_trgm', state: 'enabled' }),
  );
  const verification = await call('verify_backup', { service: 'shop' });
  expect(
    (
      await call('wait_for_operation', {
        operation_id: verification.data['operation_id'],
        wait_seconds: 300,
      })
    ).data,
  ).toMatchObject({
    status: 'succeeded',
  });
  expect(
    (await call('cancel_operation', { operation_id: verification.data['operation_id'] })).failed,
  ).toBe(true);
  expect(
    (await call('get_operation', { operation_id: verification.data['operation_id'] })).data,
  ).toMatchObject({ kind: 'verifyBackup' });
  expect(
    (await call('list_operations', { service: 'shop', limit: 3 })).data['operations'],
  ).toHaveLength(3);
  expect(
    JSON.stringify((await call('get_logs', { service: 'shop', search: ['ready'], limit: 1 })).data),
  ).toContain('ready to accept connections');
  await untilExpected('the service has samples', async () =>
    expect((await call('get_metrics', { service: 'shop' })).text).toContain('memory_bytes'),
  );
  expect(
    JSON.stringify((await call('get_metrics', { service: 'shop', name: 'connections' })).data),
  ).toContain('points');
  expect((await call('get_usage')).data).toMatchObject({
    used: { services: expect.any(Number) },
  });
  expect((await call('get_usage', { by_service: true })).data).toMatchObject({
    services: expect.arrayContaining([
      expect.objectContaining({ name: 'shop', why: expect.any(String) }),
    ]),
  });
  expect((await call('list_regions')).text).toContain('forks');
}
