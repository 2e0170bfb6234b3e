/** Failover slots: logical slots that go on when the primary of a service changes. */
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import {
  backendOf,
  killPrimary,
  layoutOf,
  postmasterOf,
  untilConnected,
  untilPrimary,
  untilRedundant,
  type ServiceAccess,
} from './ha-load.ts';
import {
  act,
  cloud,
  describe,
  newest,
  NOTHING_LOST,
  pair,
  setUp,
  tearDown,
  test,
  underLoad,
} from './ha-cloud.ts';
import { connectTo } from './harness.ts';
import { confOf, findServer, signal, withSuperuserSession } from './probe.ts';
import { readSlot, startConsumer } from './slot-consumer.ts';
import { until, untilExpected } from './until.ts';

beforeAll(() => setUp());
afterEach(() => cloud.tidy());
afterAll(tearDown);

const ascending = (numbers: readonly number[]): number[] => numbers.toSorted((a, b) => a - b);

/** Runs statements as the owner of a service. @returns the rows of the last one */
async function asOwner(service: ServiceAccess, ...statements: string[]): Promise<object[]> {
  const client = await untilConnected(cloud, service);
  try {
    let rows: object[] = [];
    for (const statement of statements) ({ rows } = await client.query(statement));
    return rows;
  } finally {
    await client.end();
  }
}

const createSlot = (name: string, failover: boolean): string =>
  `select pg_create_logical_replication_slot('${name}', 'test_decoding', failover => ${failover})`;

/** Runs one statement as superuser on a server of a service. */
async function asSuperuser<Row extends object>(
  { service_id: id }: ServiceAccess,
  n: number,
  statement: string,
): Promise<Row[]> {
  const server = layoutOf(cloud).member(id, n);
  const port = (await findServer(server))?.port;
  if (port == null) throw new Error(`member ${n} does not run`);
  return withSuperuserSession({ server, port, name: 'test' }, async (client) => {
    const { rows } = await client.query<Row>(statement);
    return rows;
  });
}

/** Has the standby of a pair look for slots now; by itself it does so within a minute. */
async function lookForSlots(service: ServiceAccess): Promise<void> {
  const primary = layoutOf(cloud).primaryOf(service.service_id);
  await asSuperuser(service, primary, 'select pg_log_standby_snapshot()');
  await asSuperuser(service, 1 - primary, 'select pg_reload_conf()');
}

/** The slots in the answer to a dry run of a switchover. */
async function saysOf(service: ServiceAccess) {
  const path = `/services/${service.service_id}/switchover?dry_run=true`;
  const { status, body } = await cloud.request('POST', path);
  expect(status, JSON.stringify(body)).toBe(200);
  return { note: String(Object(body).note), list: String(Object(body).not_carried) };
}

async function untilOnStandby(
  service: ServiceAccess,
  slot: string,
  read: () => Promise<unknown> = () => Promise.resolve(),
): Promise<void> {
  await untilExpected(`the standby has the slot ${slot}`, async () => {
    await read();
    await lookForSlots(service);
    expect((await saysOf(service)).note).toContain(`${slot} go on`);
  });
}

/** The details of the steps of the last switchover. */
async function detailsOf(service: ServiceAccess): Promise<string> {
  const steps = (await newest(service, 'switchover'))?.steps ?? [];
  return steps.map(({ detail }) => detail ?? '').join('\n');
}

const numbersIn = async (service: ServiceAccess, table: string): Promise<number[]> =>
  (await asOwner(service, `select n from ${table} order by n`)).map((row) =>
    Number(Reflect.get(row, 'n')),
  );

const ROLE_AND_FOLLOWER = `select rolcanlogin and rolreplication as able,
    (select usename::text from pg_stat_replication where state = 'streaming') as follower
  from pg_roles where rolname = 'howdah_slots'`;

describe('failover slots', () => {
  test(
    'a consumer reads every change exactly once across two switchovers under load',
    { tags: 'slow' },
    async () => {
      const service = await pair('changes');
      await asOwner(service, createSlot('kept', true), createSlot('plain', false));
      const consumer = startConsumer(cloud, service, 'kept');
      const seen = await underLoad(service, async (load) => {
        for (const round of [1, 2]) {
          await untilOnStandby(service, 'kept');
          const { list } = await saysOf(service);
          expect(list.includes('plain')).toBe(round === 1);
          expect(list).not.toContain('kept');
          await act(service, 'switchover');
          const details = await detailsOf(service);
          expect(details).toContain('failover slots go on: kept');
          expect(details.includes('were removed: plain')).toBe(round === 1);
          await load.goesOn();
        }
      });
      expect(seen).toMatchObject({ ...NOTHING_LOST, refused: [] });
      const all = await numbersIn(service, 'load');
      await until('the consumer has the last change', () =>
        consumer.numbers.includes(all.at(-1) ?? 0),
      );
      await consumer.stop();
      expect(ascending(consumer.numbers)).toEqual(all);
    },
  );

  test('after a switchover a slot is where its consumer had read to', async () => {
    const service = await pair('positions');
    await asOwner(service, 'create table t (n int)', createSlot('by_sql', true));
    const numbers: number[] = [];
    const read = async () => numbers.push(...(await readSlot(cloud, service, 'by_sql')));
    await asOwner(service, 'insert into t select generate_series(1, 10)');
    await untilOnStandby(service, 'by_sql', read);
    await asOwner(service, 'insert into t select generate_series(11, 20)');
    // Each time that it finds nothing new, the worker of the standby sleeps longer, up to 30 s.
    for (let wakes = 0; wakes < 20; wakes++) await lookForSlots(service);
    await read();
    await act(service, 'switchover');
    expect(await detailsOf(service)).not.toContain('twice');
    await asOwner(service, 'insert into t select generate_series(21, 30)');
    await read();
    expect(numbers).toEqual(await numbersIn(service, 't'));
  });

  test('after a failover a consumer goes on, with no write the primary lacks', async () => {
    const service = await pair('killed');
    await asOwner(service, 'create table t (n int)', createSlot('kept', true));
    await asOwner(service, createSlot('ahead', false));
    const consumer = startConsumer(cloud, service, 'kept');
    const ahead = startConsumer(cloud, service, 'ahead');
    await asOwner(service, 'insert into t select generate_series(1, 1000)');
    await untilOnStandby(service, 'kept');
    // The standby gets nothing from here on, and no write is acknowledged.
    const sender = await backendOf(await postmasterOf(cloud, service, 0), 'walsender howdah_slots');
    signal(sender, 'SIGSTOP');
    const writer = await connectTo(cloud, service, service.initial_password);
    const unacknowledged = writer.query('insert into t values (1001)').catch(() => undefined);
    await until('a consumer that is not held back has the write', () =>
      ahead.numbers.includes(1001),
    );
    await killPrimary(cloud, service);
    await untilPrimary(cloud, service, 1);
    await unacknowledged;
    await asOwner(service, 'insert into t select generate_series(2001, 2100)');
    await until('the consumer goes on', () => consumer.numbers.includes(2100));
    await Promise.all([consumer.stop(), ahead.stop()]);
    expect(ascending(consumer.numbers)).toEqual(await numbersIn(service, 't'));
    await untilRedundant(cloud, service, 1, 1);
  });

  test('a tenant cannot use or change the role of the standbys', async () => {
    const service = await pair('governed');
    for (const statement of [
      'set role howdah_slots',
      "alter role howdah_slots password 'x'",
      'alter role howdah_slots nologin',
      "alter role howdah_slots set search_path = 'x'",
      'alter role howdah_slots rename to mine',
      'grant howdah_slots to tsdbadmin',
      'drop role howdah_slots',
    ])
      await expect(asOwner(service, statement), statement).rejects.toThrow(/permission denied/);
    for (const database of ['postgres', 'tsdb'])
      await expect(
        connectTo(cloud, service, 'x', { user: 'howdah_slots', database }),
      ).rejects.toThrow(/pg_hba.conf rejects/);
  });

  test('a service of an older release gets role and settings without a restart', async () => {
    const service = await pair('older');
    const pids = () => Promise.all([0, 1].map((n) => postmasterOf(cloud, service, n)));
    const settings = () => confOf(layoutOf(cloud).member(service.service_id, 1));
    const before = await pids();
    // A role that a tenant has made is not used, and slots do not go on.
    await cloud.stop('SIGTERM');
    await asSuperuser(service, 0, 'grant howdah_slots to tsdbadmin with admin option');
    await cloud.up();
    await until('the standby follows as the superuser', async () =>
      (await settings()).includes('user=howdah '),
    );
    await cloud.stop('SIGTERM');
    await asSuperuser(
      service,
      0,
      'revoke howdah_slots from tsdbadmin; alter role howdah_slots nologin noreplication',
    );
    await cloud.up();
    await untilExpected('the standby synchronises slots', async () => {
      expect(await asSuperuser(service, 0, ROLE_AND_FOLLOWER)).toEqual([
        { able: true, follower: 'howdah_slots' },
      ]);
      expect(await settings()).toContain('user=howdah_slots dbname=postgres');
    });
    expect(await pids()).toEqual(before);
  });
});
