/** Services that fall asleep, and the control plane: its restarts, rounds and answers. */
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Schemas } from '@howdah/client';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { until } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterEach(() => cloud.tidy());
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

type Made = Schemas['Service'] & { initial_password: string };

/** The shortest time: what is tested is what happens then. */
const AFTER_S = 5;

const make = (name: string): Promise<Made> =>
  cloud.create({
    name,
    service_type: 'POSTGRES',
    cpu_millis: 'shared',
    memory_gbs: 'shared',
    auto_suspend_seconds: AFTER_S,
  });

const untilAsleep = (id: string): Promise<unknown> =>
  until(`${id} sleeps`, async () => {
    await cloud.round('suspensions');
    return (await cloud.get(id)).suspended === true;
  });

async function select<Row extends object>(made: Made, sql: string): Promise<Row[]> {
  const client = await connectTo(cloud, made, made.initial_password);
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** Whether its endpoint accepts a connection, which wakes nothing. */
async function isOpen({ endpoint }: Made): Promise<boolean> {
  const socket = connect(endpoint.port, endpoint.host);
  const isConnected = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isConnected;
}

/** Runs work with the metadata database. */
async function inMetadata<T>(
  work: (db: Awaited<ReturnType<typeof openMetadata>>['db']) => Promise<T>,
): Promise<T> {
  const metadata = await openMetadata(cloud.home);
  try {
    return await work(metadata.db);
  } finally {
    await metadata.close();
  }
}

const directoryOf = (id: string): string => join(cloud.home, 'data', 'services', id);
const pidOf = async (path: string): Promise<number> => Number(await readFile(path, 'utf8'));
const awakeOf = (id: string) => cloud.request('GET', `/services/${id}/awake`);

const dueOf = (id: string): Promise<number> =>
  inMetadata(async (db) => {
    const row = await db
      .selectFrom('services')
      .select('due_at')
      .where('id', '=', id)
      .executeTakeFirstOrThrow();
    return row.due_at?.getTime() ?? 0;
  });

test('its server writes before its clients wait; no restart of all servers wakes it', async () => {
  const made = await make('restarted');
  const { service_id: id } = made;
  await select(made, 'create table kept as select generate_series(1, 100000) as n');
  await untilAsleep(id);
  const logs = join(directoryOf(id), 'logs');
  const texts = await Promise.all(
    (await readdir(logs)).map((name) => readFile(join(logs, name), 'utf8')),
  );
  const starts = texts.join('').match(/checkpoint starting: [a-z ]+/g) ?? [];
  // Releases of PostgreSQL call it immediate, or fast.
  expect(starts.at(-2)).toMatch(/: (immediate|fast) force wait/);
  expect(starts.at(-1)).toContain('shutdown');
  await cloud.stop('SIGTERM');
  expect(await cloud.cli('down', '--databases')).toMatchObject({ code: 0 });
  await cloud.up();
  await until('its endpoint is open', () => isOpen(made));
  await cloud.round('deaths', 2);
  expect(await cloud.get(id)).toMatchObject({ status: 'READY', suspended: true });
  expect((await cloud.operations(id)).map(({ kind }) => kind)).toEqual(['create']);
  expect(await select(made, 'select count(*)::integer from kept')).toEqual([{ count: 100_000 }]);
  // As if the report of that had come while it fell asleep.
  await until('it is awake', async () => (await cloud.get(id)).suspended !== true);
  const client = await connectTo(cloud, made, made.initial_password);
  await inMetadata((db) =>
    db
      .updateTable('services')
      .set({ suspended_at: new Date(), due_at: new Date(Date.now() + 3_600_000) })
      .where('id', '=', id)
      .execute(),
  );
  await cloud.round('suspensions');
  await until('that is recorded', () =>
    inMetadata(
      async (db) =>
        (await db.selectFrom('services').select('suspended_at').where('id', '=', id).execute())[0]
          ?.suspended_at === null,
    ),
  );
  await client.end();
});

test('a slot that keeps it awake delays no round; a stopped service has no holders', async () => {
  const made = await make('slotted');
  const { service_id: id } = made;
  await select(made, "select pg_create_logical_replication_slot('feed', 'pgoutput')");
  const before = await dueOf(id);
  expect(before).toBeGreaterThan(Date.now());
  await until('its time is over', async () => {
    const { body } = await awakeOf(id);
    const at = Reflect.get(Object(body), 'last_active_at');
    return typeof at === 'string' && Date.parse(at) + AFTER_S * 1000 < Date.now();
  });
  await cloud.round('suspensions', 3);
  expect(await dueOf(id)).toBe(before);
  await cloud.request('POST', `/services/${id}/stop`);
  await cloud.until(id, 'PAUSED');
  expect(await awakeOf(id)).toMatchObject({ status: 200, body: { held_by: [] } });
  await expect(select(made, 'select 1')).rejects.toThrow(/ECONNREFUSED/);
});

test('a service that lost its relay is reached at its own port', async () => {
  const made = await make('relayless');
  const { service_id: id } = made;
  // Somebody stays: it does not fall asleep.
  const client = await connectTo(cloud, made, made.initial_password);
  client.on('error', () => undefined);
  await cloud.stop('SIGKILL');
  process.kill(await pidOf(join(cloud.home, 'data', 'activator.pid')), 'SIGKILL');
  await inMetadata((db) =>
    db.updateTable('services').set({ auto_suspend_seconds: null }).where('id', '=', id).execute(),
  );
  await cloud.up();
  await until('clients connect', async () => {
    const rows = await select(made, 'select 1 as one').catch(() => []);
    return rows.length === 1;
  });
  await cloud.until(id, 'READY');
});
