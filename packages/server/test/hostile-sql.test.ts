/**
 * A tenant whose database is full of traps: look-alikes of everything in pg_catalog, settings of
 * every kind, names that are ours, locks that are never given back. No trap runs as superuser, and
 * everything that is asked for ends.
 */
import { existsSync } from 'node:fs';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { layoutOf, postmasterOf, untilRedundant } from './ha-load.ts';
import {
  FORBIDDEN,
  SETTINGS,
  SPRUNG,
  SPYING_INDEX,
  sprungIn,
  TENANT_OPTIONS,
  TRAP,
  TRAPS,
} from './hostile-sql.ts';
import { install, type Installation } from './harness.ts';
import type { Answer, Service } from './harness-caller.ts';
import { childrenOf, findProgram, readNow, signal } from './probe.ts';
import { untilExpected } from './until.ts';

const haproxy = await findProgram('haproxy');
const pgbouncer = await findProgram('pgbouncer');

let cloud: Installation;
let service: Service & { initial_password: string };
let password: string;

beforeAll(async () => {
  cloud = await install({ HOWDAH_RESTORE_HOURS: '1' });
  service = await cloud.create({ name: 'hostile', service_type: 'POSTGRES' });
  password = service.initial_password;
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

/** A session of the tenant's; settings of the database do not hold for it. */
async function tenant(of: Pick<Service, 'endpoint'> = service, database = 'tsdb'): Promise<Client> {
  const client = new Client({
    ...of.endpoint,
    user: 'tsdbadmin',
    database,
    password,
    ssl: { rejectUnauthorized: false },
    options: TENANT_OPTIONS,
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

async function asTenant<T>(use: (client: Client) => Promise<T>): Promise<T> {
  const client = await tenant();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

const call = (method: string, action = '', body?: unknown): Promise<Answer> =>
  cloud.request(method, `/services/${service.service_id}${action}`, body);

/** Asks for something and waits until its operation has ended. @returns what its steps say */
async function act(action: string, body?: unknown, method = 'POST'): Promise<unknown[]> {
  const answer = await call(method, action, body);
  expect([200, 202], `${action}: ${JSON.stringify(answer.body)}`).toContain(answer.status);
  const id = answer.headers.get('Operation-Id') ?? '';
  const ended = async () => {
    const found = await cloud.request('GET', `/operations/${id}`);
    const { status, error } = Object(found.body);
    return `${action}: ${status} ${error ?? ''}`;
  };
  await untilExpected(`the operation of ${action} has succeeded`, async () =>
    expect(await ended()).toBe(`${action}: succeeded `),
  );
  const { steps } = Object((await cloud.request('GET', `/operations/${id}`)).body);
  return Array.isArray(steps) ? steps.map((step) => Object(step).detail) : [];
}

const ask = (sql = 'select 1'): Promise<Answer> => call('POST', '/query', { sql });

/** As the issue has it: the shortest way from the owner of a database to its superuser. */
const HOLE = [
  'create schema evil',
  'grant usage on schema evil to public',
  `create function evil.pwn() returns boolean language plpgsql as $$ begin
     if (select r.rolsuper from pg_catalog.pg_roles r
       where r.rolname operator(pg_catalog.=) current_user) then
       raise log '${SPRUNG} by evil'; end if;
     return true;
   end $$`,
  'create view evil.pg_roles as select r.* from pg_catalog.pg_roles r where evil.pwn()',
  'alter database tsdb set search_path = evil, pg_catalog',
  'create role _howdah_probe',
];

test('reads are answered while the same key has every session for statements busy', async () => {
  const busy = Array.from({ length: 30 }, () => ask('select pg_sleep(4)'));
  for (let n = 0; n < 20; n++) expect((await call('GET')).status).toBe(200);
  const answers = await Promise.all(busy);
  const refused = answers.filter(({ status }) => status !== 200);
  expect(refused.length, JSON.stringify(refused[0])).toBeLessThan(answers.length);
  for (const { status } of refused) expect([429, 503]).toContain(status);
});

test.skipIf(haproxy === null)(
  'a view that shadows pg_catalog is not ours, and a role named like a drill is safe',
  async () => {
    await asTenant(async (client) => {
      for (const statement of HOLE) await client.query(statement);
    });
    await act('/setHA', { replica_count: 1 });
    await untilRedundant(cloud, { ...service, initial_password: password }, 1, 0);
    await act('/resize', { cpu_millis: 1000, memory_gbs: 4 });
    expect(await sprungIn(cloud.home)).toEqual([]);
    const drill = await call('POST', '/drill', { kind: 'switchover' });
    const told = async () =>
      JSON.stringify(
        (await cloud.request('GET', `/operations/${drill.headers.get('Operation-Id')}`)).body,
      );
    await untilExpected('the drill stops at the role of the tenant', async () =>
      expect(await told()).toContain('drop role _howdah_probe'),
    );
    await asTenant(async (client) =>
      client.query('drop role _howdah_probe; alter database tsdb reset all'),
    );
  },
);

test.skipIf(haproxy === null)(
  'a lock on what looks like the table of a drill holds up no drill and no service',
  async () => {
    const holder = await tenant();
    await holder.query('create schema _howdah; create table _howdah.probe (id int)');
    await holder.query('begin; lock table _howdah.probe in access exclusive mode');
    await act('/drill', { kind: 'failover' });
    await untilRedundant(cloud, { ...service, initial_password: password }, 1, 0);
    await act('/drill', { kind: 'switchover' });
    await holder.end().catch(() => undefined);
    await asTenant((client) => client.query('drop schema _howdah cascade'));
    await act('/setHA', { replica_count: 0 });
  },
);

test('a tenant sets traps in its database, but none that need a superuser', async () => {
  await asTenant(async (client) => {
    for (const statement of TRAPS) await client.query(statement);
    const { rows } = await client.query(
      `select count(*) filter (where prokind = 'f')::int as functions,
              (select count(*)::int from pg_operator where oprnamespace = 'public'::regnamespace)
                as operators,
              (select count(*)::int from pg_class where relnamespace = 'public'::regnamespace
                and relkind = 'v') as views
       from pg_proc where pronamespace = 'public'::regnamespace`,
    );
    const [{ functions, operators, views }] = [Object(rows[0])];
    expect(functions).toBeGreaterThan(1500);
    expect(operators).toBeGreaterThan(500);
    expect(views).toBeGreaterThan(100);
    for (const statement of FORBIDDEN) {
      const error: unknown = await client.query(statement).then(
        () => null,
        (thrown: unknown) => thrown,
      );
      expect(String(error), statement).toMatch(
        /permission denied|must be|reserved|unacceptable|Only roles|cannot|Must be|does not exist/,
      );
    }
    await client.query(SETTINGS);
    await client
      .query(`grant ${TRAP}_role, "a'b\n\u202e" to tsdbadmin with set true`)
      .catch(() => undefined);
  });
  expect(await sprungIn(cloud.home)).toEqual([]);
});

test('every operation of a service ends, and springs no trap', { tags: 'slow' }, async () => {
  expect([200, 400, 503]).toContain((await ask()).status);
  await asTenant((client) => client.query(`grant ${TRAP}_role, "a'b\n\u202e" to howdah_reader`));
  expect([200, 400, 503]).toContain((await ask()).status);
  for (const path of [
    '',
    '/logs',
    '/backups',
    '/backupStatus',
    '/metrics/available-series',
    '/members',
  ])
    expect((await call('GET', path)).status, path).toBe(200);
  await act('/backups/verify');
  password = 'a new password of the tenant';
  expect((await call('POST', '/updatePassword', { password })).status).toBeLessThan(300);
  await act('/resize', { cpu_millis: 500, memory_gbs: 2 });
  await act('/stop');
  await act('/start');
  if (pgbouncer !== null) {
    await act('/enablePooler');
    await act('/disablePooler');
  }
  await act('/rename', { name: 'renamed' });
  await act('/setEnvironment', { environment: 'PROD' });
  await act('/setEnvironment', { environment: 'DEV' });
  const vpc = await cloud.request('POST', '/vpcs', {
    name: 'hostile',
    cidr: '10.77.0.0/16',
    region_code: 'local',
  });
  const { id: vpcId } = Object(vpc.body);
  expect(vpcId, JSON.stringify(vpc.body)).toBeTypeOf('string');
  await act('/attachToVPC', { vpc_id: vpcId });
  await act('/detachFromVPC', { vpc_id: vpcId });
  await act('', undefined, 'DELETE');
  await act('/restore');
  const pitr = new Date(Date.now() - 1000).toISOString();
  for (const strategy of [
    { fork_strategy: 'NOW' },
    { fork_strategy: 'LAST_SNAPSHOT' },
    { fork_strategy: 'PITR', target_time: pitr },
  ]) {
    const made = await call('POST', '/forkService', strategy);
    expect(made.status, JSON.stringify(made.body)).toBe(202);
    const id = String(Object(made.body).service_id);
    await cloud.until(id, 'READY');
    // The service's logs go with it.
    expect(await sprungIn(cloud.home)).toEqual([]);
    expect((await cloud.request('DELETE', `/services/${id}?purge=true`)).status).toBe(202);
  }
  expect(await sprungIn(cloud.home)).toEqual([]);
});

test.skipIf(haproxy === null)(
  '… so does every operation of one with replicas',
  { tags: 'slow' },
  async () => {
    await act('/setHA', { replica_count: 1 });
    await untilRedundant(cloud, { ...service, initial_password: password }, 1, 0);
    await act('/switchover');
    await act('/drill', { kind: 'switchover' });
    await act('/resize', { cpu_millis: 1000, memory_gbs: 4 });
    const set = await call('POST', '/replicaSets', {
      name: 'readers',
      nodes: 1,
      cpu_millis: 250,
      memory_gbs: 1,
    });
    expect(set.status, JSON.stringify(set.body)).toBe(202);
    const id = String(Object(set.body).id);
    const { endpoint } = await cloud.until(id, 'READY');
    expect([200, 400, 503]).toContain(
      (await cloud.request('POST', `/services/${id}/query`, { sql: 'select 1' })).status,
    );
    const reader = await tenant({ endpoint });
    expect(await setPassword('a password for all servers')).toBe(204);
    await refuses(reader);
    await (await tenant({ endpoint })).end();
    expect((await call('DELETE', `/replicaSets/${id}`)).status).toBe(202);
    await untilExpected('the set is removed', async () =>
      expect((await call('GET', `/replicaSets/${id}`)).status).toBe(404),
    );
    await act('/setHA', { replica_count: 0 });
    expect(await sprungIn(cloud.home)).toEqual([]);
  },
);

/** Sets a password. @returns the status */
async function setPassword(next: string, more: object = {}): Promise<number> {
  const { status } = await call('POST', '/updatePassword', { password: next, ...more });
  password = next;
  return status;
}

const refuses = (client: Client): Promise<void> =>
  expect(client.query('select 1')).rejects.toThrow(/terminat|not queryable|Connection/);

test.each([
  "alter role tsdbadmin password 'another'",
  'alter role tsdbadmin set work_mem = 4096',
  'alter database tsdb connection limit 7',
  'create role held',
])('a tenant that holds a lock cannot keep its owner from a new password: %s', async (held) => {
  const [holder, idle] = [await tenant(), await tenant()];
  await asTenant((client) => client.query('alter database tsdb connection limit 0'));
  await holder.query(`begin; ${held}`);
  expect([200, 400, 503]).toContain((await ask()).status);
  expect(await setPassword('a password after a lock')).toBe(204);
  for (const client of [holder, idle]) await refuses(client);
  await asTenant((client) => client.query('select 1'));
});

test('a login that began before a new password does not end after it', async () => {
  const before = password;
  let answer: (typed: string) => void = () => undefined;
  const late = new Client({
    ...service.endpoint,
    user: 'tsdbadmin',
    database: 'tsdb',
    password: () => new Promise<string>((resolve) => (answer = resolve)),
    ssl: { rejectUnauthorized: false },
    options: TENANT_OPTIONS,
  });
  late.on('error', () => undefined);
  const login = late.connect();
  login.catch(() => undefined);
  const primary = layoutOf(cloud).primaryOf(service.service_id);
  const postmaster = await postmasterOf(cloud, service, primary);
  await untilExpected('the login waits for the password', async () => {
    const titles = (await childrenOf(postmaster)).map((pid) => readNow(`/proc/${pid}/cmdline`));
    expect(titles.some((title) => title?.includes('authentication') === true)).toBe(true);
  });
  expect(await setPassword('a password after a login')).toBe(204);
  answer(before);
  await expect(login).rejects.toThrow();
});

test('keep_sessions keeps sessions that are in no way', async () => {
  const [holder, idle] = [await tenant(), await tenant()];
  await holder.query("begin; alter role tsdbadmin password 'another'");
  expect(await setPassword('a password beside sessions', { keep_sessions: true })).toBe(204);
  await refuses(holder);
  await idle.query('select 1');
  await idle.end();
});

test('a paused service starts with the password that was set meanwhile', async () => {
  const before = password;
  await act('/stop');
  expect(await setPassword('a password while it is paused')).toBe(204);
  await act('/start');
  await asTenant((client) => client.query('select 1'));
  const after = password;
  password = before;
  await expect(tenant()).rejects.toThrow(/password authentication failed/);
  password = after;
});

test('a server that is stopped by a signal keeps a call waiting for seconds', async () => {
  const postmaster = await postmasterOf(
    cloud,
    service,
    layoutOf(cloud).primaryOf(service.service_id),
  );
  const all = [...(await childrenOf(postmaster)), postmaster];
  for (const pid of all) signal(pid, 'SIGSTOP');
  try {
    const answers = await Promise.all([call('POST', '/updatePassword', { password }), ask()]);
    expect(answers.map(({ status }) => status)).toEqual([503, 503]);
  } finally {
    for (const pid of all) signal(pid, 'SIGCONT');
  }
  await cloud.until(service.service_id, 'READY');
  await untilExpected('a new password is accepted', async () =>
    expect((await call('POST', '/updatePassword', { password })).status).toBeLessThan(300),
  );
});

test('a verification examines every database, as a superuser in none', async () => {
  const others = ['elsewhere', 'limited', 'closed', 'examined'];
  for (const name of others) {
    await asTenant((client) => client.query(`create database ${name} template template0`));
    const inOther = await tenant(service, name);
    for (const statement of SPYING_INDEX) await inOther.query(statement);
    await inOther.end();
  }
  await asTenant(async (client) => {
    await client.query('alter database tsdb connection limit 0');
    await client.query('alter database limited connection limit 0');
    await client.query('revoke connect on database limited from public');
    await client.query('alter database closed allow_connections false');
    try {
      const details = await act('/backups/verify');
      // With postgres, template1 and tsdb.
      expect(details).toContainEqual(
        expect.stringMatching(/ tables and \d+ indexes in 7 databases$/),
      );
    } finally {
      await client.query('alter database tsdb connection limit -1');
    }
    for (const name of others) await client.query(`drop database ${name}`);
  });
  expect(await sprungIn(cloud.home)).toEqual([]);
});

test('a new password lets an owner in who set the connection limit to 0', async () => {
  await asTenant((client) => client.query('alter database tsdb connection limit 0'));
  await expect(asTenant((client) => client.query('select 1'))).rejects.toThrow(/too many/);
  expect((await call('POST', '/updatePassword', { password })).status).toBe(204);
  await asTenant((client) => client.query('select 1'));
});

test('prepared transactions, which would hold locks without a session, are refused', async () => {
  await asTenant(async (client) => {
    await client.query('begin');
    await expect(client.query("prepare transaction 'held'")).rejects.toThrow(/are disabled/);
  });
});

test('a service with traps is deleted, and its files with it', async () => {
  expect((await call('DELETE', '?purge=true')).status).toBe(202);
  await untilExpected('the files of the service are removed', () =>
    expect(existsSync(layoutOf(cloud).service(service.service_id).root)).toBe(false),
  );
});
