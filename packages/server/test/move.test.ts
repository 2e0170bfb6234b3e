/** Moves up to the copy, with real data and a region on Kubernetes without pods. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createMoveActions, type FakeKubernetes } from '../test-kubernetes/probe.ts';
import { SPRUNG, TENANT_OPTIONS, TRAPS } from './hostile-sql.ts';
import { connectTo, PORTS, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { NOTHING, startMoveCloud, type MoveCloud } from './move-cloud.ts';
import {
  allPids,
  argumentsOf,
  findNextSourceToRemove,
  findServer,
  MoveRefused,
  prepareMachine,
  signal,
  withSuperuserSession,
} from './probe.ts';
import { accessOf, withClient, type ServiceAccess } from './service-access.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
let kubernetes: FakeKubernetes;
let moves: MoveCloud;
beforeAll(async () => {
  moves = await startMoveCloud();
  ({ cloud, kubernetes } = moves);
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
  await kubernetes?.close();
});

const setDefaultClass = (isDefault: boolean): void => moves.setDefaultClass(isDefault);
const move = (service: ServiceAccess, query?: string, to?: string) =>
  moves.move(service, query, to);
const clusters = (): number => moves.clusters();
const tracesOf = (service: ServiceAccess) => moves.tracesOf(service);
const operationOf = (service: ServiceAccess) => moves.operationOf(service);

test('a dry run says what would be copied', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'plain', service_type: 'POSTGRES' });
  await withClient(cloud, service, (client) =>
    client.query('create extension hstore; create table t as select generate_series(1, 100) n'),
  );
  const possible = await move(service);
  expect(possible).toMatchObject({ status: 200, note: expect.stringMatching(/copies \d+ MB/) });
  expect(await move(service, '?dry_run=true', 'local')).toMatchObject({ status: 400 });
  expect(await move(service, '?dry_run=true', 'mars')).toMatchObject({ status: 400 });
  const printed = await cloud.cli('service', 'move', 'plain', '--region', 'kube', '--dry-run');
  expect(printed.stdout).toContain('nothing is in the way of a move to the region kube');
  await cloud.request('POST', `/services/${service.service_id}/stop`);
  await cloud.until(service.service_id, 'PAUSED');
  expect(await move(service)).toMatchObject({ status: 400, code: 'INVALID_STATE' });
});

test('a dry run names everything that is in the way', async () => {
  setDefaultClass(false);
  const service = await cloud.create({ name: 'obstacles', service_type: 'POSTGRES' });
  await withClient(cloud, service, async (client) => {
    await client.query('create role streaming_replica');
    await client.query('create unlogged table queue (n int)');
    await client.query('create table names (name text collate "und-x-icu" primary key)');
    await client.query('create database closed allow_connections false');
  });
  expect(await move(service)).toEqual({
    status: 422,
    code: 'UNAVAILABLE_HERE',
    reasons: [
      expect.stringContaining('it has the roles "streaming_replica"'),
      expect.stringContaining('it has the databases "closed"'),
      expect.stringContaining('unlogged tables or sequences "queue"'),
      expect.stringContaining('the collations "und-x-icu"'),
      expect.stringContaining('the target lacks "storage class"'),
    ],
  });
});

test('a dry run finds the collations in the types and expressions of indexes', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'ordered', service_type: 'POSTGRES' });
  await withClient(cloud, service, async (client) => {
    await client.query('create type span as range (subtype = text, collation = "de-x-icu")');
    await client.query('create type pair as (number int, word text collate "fr-x-icu")');
    await client.query('create domain pairs as pair[]');
    await client.query('create table spans (span span primary key)');
    await client.query('create table lists (pairs pairs primary key)');
    await client.query('create table words (word text, other text collate "nl-x-icu")');
    await client.query(`create index on words ((word < 'm' collate "es-x-icu"))`);
    await client.query(`create index on words (word) where word > 'm' collate "it-x-icu"`);
  });
  expect((await move(service)).reasons).toEqual([
    expect.stringMatching(
      /^it has indexes .* "de-x-icu", "es-x-icu", "fr-x-icu", "it-x-icu", whose order/,
    ),
  ]);
});

test('a service whose owner has dropped its database does not move', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'dropped', service_type: 'POSTGRES' });
  await withClient(cloud, service, (client) => client.query('create database other'));
  const client = await connectTo(cloud, service, service.initial_password, { database: 'other' });
  await client.query('drop database tsdb');
  await client.end();
  expect((await move(service)).reasons).toEqual([
    expect.stringContaining('it has no database "tsdb"'),
  ]);
});

test('a dry run springs no trap in a database that is full of them', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'hostile', service_type: 'POSTGRES' });
  const password = service.initial_password;
  const client = await connectTo(cloud, service, password, { options: TENANT_OPTIONS });
  for (const statement of TRAPS) await client.query(statement);
  await client.query('alter database tsdb set search_path = trap, public, pg_catalog');
  await client.end();
  expect((await move(service)).status).toBeLessThan(500);
  const logs = join(cloud.home, 'data', 'services', service.service_id, 'logs');
  const texts = await Promise.all(
    (await readdir(logs)).map((name) => readFile(join(logs, name), 'utf8')),
  );
  expect(
    texts
      .join('\n')
      .split('\n')
      .filter((line) => line.includes(SPRUNG)),
  ).toEqual([]);
});

test('a move that is cancelled leaves the service as it was, and nothing of the copy', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'cancelled', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  expect(await tracesOf(service)).toEqual(NOTHING);
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await untilExpected('the copy has a cluster', () => expect(clusters()).toBe(1));
  expect(await tracesOf(service)).toEqual({
    roles: ['howdah_control', 'postgres', 'streaming_replica'],
    rule: true,
  });
  // The superuser of the copy has no database here, whatever its password.
  const login = connectTo(cloud, service, 'any', { user: 'postgres' });
  await expect(login).rejects.toThrow('pg_hba.conf rejects');
  expect((await cloud.get(id)).status).toBe('CONFIGURING');
  // A control plane that begins again goes on.
  await cloud.stop('SIGKILL');
  await cloud.up();
  const operation = await operationOf(service);
  expect(operation).toMatchObject({ status: 'running' });
  await cloud.request('POST', `/operations/${operation?.id}/cancel`);
  await untilExpected('the cluster of the copy is removed', () => expect(clusters()).toBe(0));
  await untilExpected('no trace of the move is left', async () =>
    expect(await tracesOf(service)).toEqual(NOTHING),
  );
  expect(await operationOf(service)).toMatchObject({ status: 'failed' });
  expect(await cloud.get(id)).toMatchObject({ status: 'READY', region_code: 'local' });
  await untilExpected('the integrity check finds nothing', async () =>
    expect(await cloud.audit()).toEqual([]),
  );
});

test('the roles of a copy are of no tenant, and a deleted service has none', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'taken', service_type: 'POSTGRES' });
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await untilExpected('the copy has a cluster', () => expect(clusters()).toBe(1));
  await withClient(cloud, service, async (client) => {
    for (const statement of [
      'alter role postgres password $$mine$$',
      'grant postgres to tsdbadmin',
      'set role postgres',
      'alter role streaming_replica password $$mine$$',
      'drop role howdah_control',
    ])
      await expect(client.query(statement)).rejects.toThrow(/permission denied|must be/i);
  });
  const { service_id: id } = service;
  await cloud.request('DELETE', `/services/${id}?confirm=taken`);
  await untilExpected('the cluster of the copy is removed', () => expect(clusters()).toBe(0));
  await untilExpected('the integrity check finds nothing', async () =>
    expect(await cloud.audit()).toEqual([]),
  );
  await cloud.request('POST', `/services/${id}/restore`);
  await cloud.until(id, 'READY');
  await untilExpected('no trace of the move is left', async () =>
    expect(await tracesOf(service)).toEqual(NOTHING),
  );
});

test('no role is made while a tenant may be about to take its name', async () => {
  setDefaultClass(true);
  const service = await cloud.create({ name: 'racing', service_type: 'POSTGRES' });
  const tenant = await connectTo(cloud, service, service.initial_password);
  await tenant.query('begin');
  await tenant.query('create role bystander');
  expect(await move(service, '')).toMatchObject({ status: 202 });
  await untilExpected('the move waits for the lock of the tenant', async () =>
    expect((await operationOf(service))?.error).toContain('lock timeout'),
  );
  expect((await tracesOf(service)).roles).toEqual([]);
  // A name that is taken while we wait is seen.
  await withClient(cloud, service, (client) => client.query('create role streaming_replica'));
  await tenant.query('rollback');
  await tenant.end();
  await untilExpected('the move has failed', async () =>
    expect((await operationOf(service))?.status).toBe('failed'),
  );
  expect((await operationOf(service))?.error).toContain('it has a role streaming_replica');
  await untilExpected('only the role of the tenant is left', async () =>
    expect(await tracesOf(service)).toEqual({ roles: ['streaming_replica'], rule: false }),
  );
  expect(clusters()).toBe(0);
});

test('the superuser of a copy that comes to a fork with its data cannot log in there', async () => {
  const service = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
  const { layout } = await prepareMachine(cloud.home);
  const server = layout.service(service.service_id);
  const where = { server, port: service.endpoint.port, name: 'howdah test' };
  await withSuperuserSession(where, (client) =>
    client.query("create role postgres superuser login password 'known'"),
  );
  const path = `/services/${service.service_id}/forkService`;
  const fork = accessOf((await cloud.request('POST', path, { fork_strategy: 'NOW' })).body);
  await cloud.until(fork.service_id, 'READY');
  const login = connectTo(cloud, fork, 'known', { user: 'postgres' });
  await expect(login).rejects.toThrow('password authentication failed');
  await withSuperuserSession(where, (client) => client.query('drop role postgres'));
});

/** Stops the process of a session, which then ends by SIGKILL only. */
async function freeze(client: Client): Promise<void> {
  const { rows } = await client.query<{ port: number }>(
    'select client_port as port from pg_stat_activity where pid = pg_backend_pid()',
  );
  for (const pid of await allPids()) {
    const title = (await argumentsOf(pid)).join(' ');
    if (title.startsWith('postgres:') && title.includes(`(${rows[0]?.port})`))
      return signal(pid, 'SIGSTOP');
  }
  throw new Error('the session has no process');
}

test('a server that does not stop within the limit is killed, and its move refused', async () => {
  const service = await cloud.create({ name: 'held', service_type: 'POSTGRES' });
  const { service_id: id } = service;
  const machine = await prepareMachine(cloud.home);
  const where = { server: machine.layout.service(id), port: service.endpoint.port, name: 'test' };
  await withSuperuserSession(where, (client) => client.query('create role postgres superuser'));
  await withClient(cloud, service, (client) => client.query('create table t as select 1 as n'));
  // Nobody else starts or stops it.
  await cloud.stop('SIGKILL');
  const tenant = await connectTo(cloud, service, service.initial_password);
  await freeze(tenant);
  const executor = { machine, monitor: { forget: () => undefined }, limiting: new Map() };
  const { stop } = createMoveActions(Object({ machine, topology: { executor } }), 500);
  const stopping = stop(id, { isOver: false, isKept: false, keep: async () => [] });
  await expect(stopping).rejects.toThrow(MoveRefused);
  await expect(stopping).rejects.toThrow('its server was not shut down in order');
  expect(await findServer(machine.layout.service(id))).toBe(null);
  await cloud.up();
  await cloud.until(id, 'READY');
  const found = await withClient(cloud, service, (client) => client.query('select n from t'));
  expect(found.rows).toEqual([{ n: 1 }]);
  await tenant.end().catch(() => undefined);
});

test('clients of a former endpoint learn the new one, also after a restart', async () => {
  const service = await cloud.create({ name: 'gone', service_type: 'POSTGRES' });
  const { service_id: id, endpoint } = service;
  // As if its server had been at another port of this machine before.
  const former = { host: endpoint.host, port: cloud.port + PORTS - 1 };
  const metadata = await openMetadata(cloud.home);
  const change = (move: object | null) =>
    metadata.db
      .updateTable('services')
      .set({ move: move === null ? null : JSON.stringify(move), due_at: new Date() })
      .where('id', '=', id)
      .execute();
  const refusal = () =>
    connectTo(cloud, { endpoint: former }, 'any').catch(({ code, message, hint }) => ({
      code,
      message,
      hint,
    }));
  const { host, port } = endpoint;
  const moved = {
    code: '57P03',
    message: `this service has moved to another region: connect to ${host}:${port}`,
    hint: 'Its databases, roles and passwords are the same.',
  };
  try {
    const until = new Date(Date.now() + 3_600_000).toISOString();
    await change({ id: 'm', state: 'kept', from: 'local', source: former, to: 'local', until });
    await untilExpected('the former endpoint names the new one', async () =>
      expect(await refusal()).toEqual(moved),
    );
    await cloud.stop('SIGKILL');
    await cloud.up();
    await untilExpected('the former endpoint names the new one again', async () =>
      expect(await refusal()).toEqual(moved),
    );
  } finally {
    await change(null);
    await metadata.close();
  }
});

test('former servers are removed early, the oldest first, after deleted services', async () => {
  const { service_id: id } = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
  const { service_id: other } = await cloud.create({ name: 'next', service_type: 'POSTGRES' });
  const metadata = await openMetadata(cloud.home);
  const keep = (until: string | null, of = id) =>
    metadata.db
      .updateTable('services')
      .set({
        move:
          until === null
            ? null
            : JSON.stringify({ state: 'kept', from: 'former', to: 'local', until, source: {} }),
      })
      .where('id', '=', of)
      .execute();
  const next = () => findNextSourceToRemove(metadata.db, 'former');
  try {
    expect(await next()).toBe(null);
    await keep(new Date(Date.now() + 3_600_000).toISOString());
    expect(await next()).toBe(id);
    expect(await findNextSourceToRemove(metadata.db, 'local')).toBe(null);
    // The removal of this source is under way: the next one may not be needed.
    await keep(new Date(Date.now() - 1000).toISOString());
    expect(await next()).toBe(null);
    // A removal that does not end keeps no other one back.
    await keep(new Date(Date.now() - 120_000).toISOString());
    await keep(new Date(Date.now() + 3_600_000).toISOString(), other);
    expect(await next()).toBe(other);
  } finally {
    await keep(null);
    await keep(null, other);
    await metadata.close();
  }
});
