/**
 * Who can connect through a pooler, with which passwords, settings and limits; its port, and what
 * the integrity check finds.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { TLSSocket } from 'node:tls';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, expect, test as anyTest } from 'vitest';
import { connectTo } from './harness.ts';
import { openMetadata } from './metadata.ts';
import {
  askConsole,
  cloud,
  createPooled,
  installed,
  pathsOf,
  pgbouncerOf,
  pidOf,
  poolerOf,
  post,
  test,
  through,
  untilLookedAt,
  setUp,
  tearDown,
} from './pooler-cloud.ts';
import { findProgram, signal, takeNextPort, waitUntilGone } from './probe.ts';
import { until, untilExpected } from './until.ts';

beforeAll(setUp);
afterEach(() => cloud.tidy());
afterAll(tearDown);

anyTest.runIf(!installed)(
  'without PgBouncer a pooler is refused with the command that installs it',
  async () => {
    const missing = {
      status: 422,
      body: {
        code: 'UNAVAILABLE_HERE',
        message: expect.stringContaining('apt-get install pgbouncer'),
      },
    };
    expect(
      await cloud.request('POST', '/services', {
        name: 'none',
        service_type: 'POSTGRES',
        enable_pooler: true,
      }),
    ).toMatchObject(missing);
    const service = await cloud.create({
      name: 'none',
      service_type: 'POSTGRES',
      enable_pooler: false,
    });
    expect(await post(service, 'enablePooler')).toMatchObject(missing);
    expect(await post(service, 'disablePooler')).toMatchObject({ status: 200 });
    const regions = await cloud.request('GET', '/regions');
    expect(regions.body).toMatchObject([
      {
        pooler: { available: false, reason: expect.stringContaining('apt-get install pgbouncer') },
      },
    ]);
  },
);

test('a create with a pooler returns its endpoint, and both of its pools work', async () => {
  const answer = await cloud.request('POST', '/services', {
    name: 'with pooler',
    service_type: 'POSTGRES',
    enable_pooler: true,
  });
  expect(answer).toMatchObject({
    status: 202,
    body: { connection_pooler: { endpoint: { host: '127.0.0.1' } } },
  });
  const service = await createPooled('pools');
  const direct = await connectTo(cloud, service, service.initial_password);

  const sessions = await Promise.all([through(service, 'tsdb'), through(service, 'tsdb')]);
  expect(new Set(await Promise.all(sessions.map(pidOf))).size).toBe(2);
  await sessions[0]?.query("set application_name = 'kept'");
  expect((await sessions[0]?.query('show application_name'))?.rows).toEqual([
    { application_name: 'kept' },
  ]);

  const one = await through(service, 'tsdb_transaction');
  const two = await through(service, 'tsdb_transaction');
  const shared = await pidOf(one);
  expect([await pidOf(two), await pidOf(one), await pidOf(two)]).toEqual([shared, shared, shared]);
  await one.query('begin');
  expect(await pidOf(two)).not.toBe(await pidOf(one));
  await one.query('commit');
  expect((await one.query('select current_user, current_database()')).rows).toEqual([
    { current_user: 'tsdbadmin', current_database: 'tsdb' },
  ]);
  for (const client of [direct, ...sessions, one, two]) await client.end();
});

test('a pooler accepts TLS with the right password only, and none of our own roles', async () => {
  const service = await createPooled('closed');
  const { endpoint } = await poolerOf(service);
  const plain = new Client({
    ...endpoint,
    user: 'tsdbadmin',
    database: 'tsdb',
    password: service.initial_password,
  });
  await expect(plain.connect()).rejects.toThrow(/SSL required/);
  await expect(through(service, 'tsdb', { password: 'wrong password' })).rejects.toThrow(
    /SASL authentication failed/,
  );
  for (const database of ['tsdb', 'tsdb_transaction'] as const) {
    await expect(through(service, database, { user: 'nobody' })).rejects.toThrow(
      /no such user|SASL authentication failed/,
    );
    for (const user of ['howdah', 'howdah_pooler'])
      await expect(through(service, database, { user }), user).rejects.toThrow(/login rejected/);
  }
  const consoleOverTcp = connectTo(cloud, { endpoint }, 'x', {
    user: 'howdah',
    database: 'pgbouncer',
  });
  await expect(consoleOverTcp).rejects.toThrow(/login rejected/);

  const admin = await through(service, 'tsdb');
  for (const [statement, refused] of [
    ["select * from pg_howdah.verifier('tsdbadmin')", /permission denied for function verifier/],
    [
      'create or replace function pg_howdah.verifier(name text) returns table ' +
        "(role text, verifier text) language sql as 'select 1, 2'",
      /permission denied/,
    ],
    ['drop function pg_howdah.verifier(text)', /must be owner/],
    ['drop schema pg_howdah cascade', /must be owner/],
    ['grant execute on all functions in schema pg_howdah to tsdbadmin', /permission denied/],
    ['set role howdah_pooler', /permission denied/],
    ['grant howdah_pooler to tsdbadmin', /permission denied/],
    ["alter role howdah_pooler password 'mine'", /permission denied/],
    ['drop role howdah_pooler', /permission denied/],
  ] as const)
    await expect(admin.query(statement), statement).rejects.toThrow(refused);
  await admin.end();
});

test('a pooler serves each database of its service, and none that the service closes', async () => {
  const service = await createPooled('many');
  const admin = await through(service, 'tsdb');
  await admin.query('create database app');
  await admin.query("create role app login password 'app-secret'");
  const app = { user: 'app', password: 'app-secret' };
  await admin.query('create database other template template0');
  for (const database of ['app', 'other', 'postgres']) {
    await until('the pooler knows the database', () =>
      through(service, database).then((client) => client.end().then(() => true)),
    );
    for (const login of [{}, app]) {
      const client = await through(service, database, login);
      expect((await client.query('select current_database()')).rows).toEqual([
        { current_database: database },
      ]);
      await client.end();
    }
  }
  for (const database of ['template0', 'template1'])
    await expect(through(service, database), database).rejects.toThrow(
      /login rejected|SASL authentication failed/,
    );
  await expect(through(service, 'nothing')).rejects.toThrow(
    /SASL authentication failed|database "nothing" does not exist/,
  );
  await admin.end();
});

/** Each refuses the role `app` of a database, as PostgreSQL does from then on. */
const REFUSALS = [
  'alter role app nologin',
  'alter role app connection limit 0',
  "alter role app valid until '2020-01-01'",
  'revoke connect on database app from public',
] as const;

test('a login that PostgreSQL refuses is refused at once by its pooler', async () => {
  const service = await createPooled('refused');
  const admin = await through(service, 'tsdb');
  await admin.query('create database app');
  const app = { user: 'app', password: 'app-secret' };
  // From 1.19 on, it asks one database, which does not say who may connect to others.
  const [, minor = '0'] = /1\.(\d+)/.exec((await findProgram('pgbouncer'))?.version ?? '') ?? [];
  for (const statement of REFUSALS.slice(0, Number(minor) < 19 ? 4 : 3)) {
    await admin.query('drop role if exists app');
    await admin.query("create role app login password 'app-secret'");
    const before = await until('the pooler knows the database', () => through(service, 'app', app));
    await before.query('select 1');
    await before.end();
    await admin.query(statement);
    await expect(through(service, 'app', app), statement).rejects.toThrow(
      /no such user|SASL authentication failed|permission denied|not permitted/,
    );
    await admin.query("alter role app login connection limit -1 valid until 'infinity'");
  }
  await admin.end();
});

async function askOnce(connect: () => Promise<Client>): Promise<void> {
  const client = await connect();
  try {
    await client.query('select 1');
  } finally {
    await client.end();
  }
}

test.each(['role', 'database'] as const)(
  'a %s whose limit is reached is refused at once by the pooler',
  async (kind) => {
    const service = await createPooled(`reached-${kind}`);
    const owner = await connectTo(cloud, service, service.initial_password);
    await owner.query('create database app');
    await owner.query("create role app login password 'app-secret'");
    const app = { user: 'app', password: 'app-secret' };
    await (await until('the pooler knows the database', () => through(service, 'app', app))).end();
    // A connection that the pooler still has of this role would be given to its next client.
    await owner.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'",
    );
    const sessions = `select count(*)::int as count from pg_stat_activity as s
    where s.${kind === 'role' ? 'usename' : 'datname'} = 'app'`;
    /** The connections that stand are all that it may have. */
    const reach = async (): Promise<void> => {
      const { rows } = await owner.query<{ count: number }>(sessions);
      await owner.query(`alter ${kind} app connection limit ${rows[0]?.count}`);
    };

    const direct = await connectTo(cloud, service, 'app-secret', { user: 'app', database: 'app' });
    await reach();
    // A version that does not ask for verifiers here says it at the first statement.
    await expect(askOnce(() => through(service, 'app', app))).rejects.toThrow(
      /no such user|SASL authentication failed|too many connections/,
    );
    await direct.end();
    await owner.query(`alter ${kind} app connection limit -1`);
    // A client whose role has a connection in the pool waits for it, at a limit as without one.
    const first = await until('the pooler tries to connect again', async () => {
      const client = await through(service, 'app', app);
      await client.query('select 1');
      return client;
    });
    await reach();
    const second = through(service, 'app', app);
    await first.end();
    await (await second).end();
    await owner.end();
  },
);

test('a server whose connections are all taken refuses clients of the pooler at once', async () => {
  const service = await createPooled('full');
  const owner = await connectTo(cloud, service, service.initial_password);
  await owner.query("create role app login password 'app-secret'");
  const app = { user: 'app', password: 'app-secret' };
  await (await through(service, 'tsdb', app)).end();
  await owner.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'");
  const clients = [owner];
  const fill = async (): Promise<never> => {
    for (;;) clients.push(await connectTo(cloud, service, service.initial_password));
  };
  await expect(fill()).rejects.toThrow(/too many clients|remaining connection slots/);
  await expect(askOnce(() => through(service, 'tsdb', app))).rejects.toThrow(
    /no such user|SASL authentication failed|too many clients|remaining connection/,
  );
  for (const client of clients) await client.end();
});

test('a role of a user with the name of ours is not used', async () => {
  const service = await cloud.create({ name: 'squatted', service_type: 'POSTGRES' });
  const admin = await connectTo(cloud, service, service.initial_password);
  await admin.query("create role howdah_pooler login password 'mine enough'");
  for (const dryRun of ['', '?dry_run=true'])
    expect(await post(service, `enablePooler${dryRun}`)).toMatchObject({
      status: 400,
      body: {
        code: 'INVALID_STATE',
        message: expect.stringContaining('drop role howdah_pooler'),
      },
    });
  expect((await cloud.operations(service.service_id)).map(({ kind }) => kind)).toEqual(['create']);
  await admin.query('drop role howdah_pooler');
  expect((await post(service, 'enablePooler')).status).toBe(200);
  await (await through(service, 'tsdb')).end();
  await admin.end();
});

test('settings that the owner gives the database do not affect our statements in it', async () => {
  const service = await cloud.create({ name: 'trapped', service_type: 'POSTGRES' });
  const admin = await connectTo(cloud, service, service.initial_password);
  await admin.query(`create function public.now() returns timestamptz language plpgsql as
    $$ begin raise exception 'a trap, as %', current_user; end $$`);
  await admin.query(
    `create view public.pg_authid as select rolname, 'x'::text as rolpassword from pg_roles`,
  );
  await admin.query('alter database tsdb set search_path = public, pg_catalog');
  await admin.query('alter database tsdb set role = tsdbadmin');
  await admin.query('alter database tsdb set default_transaction_read_only = on');
  expect(await post(service, 'enablePooler')).toMatchObject({
    status: 200,
    body: { message: 'the connection pooler is enabled' },
  });
  await admin.query('alter database tsdb reset role');
  const client = await through(service, 'tsdb_transaction');
  expect(await pidOf(client)).toBeGreaterThan(0);
  await client.end();
  await admin.end();
});

test('new roles and changed passwords work at once', async () => {
  const service = await createPooled('roles');
  const admin = await through(service, 'tsdb');
  await admin.query("create role app login password 'the first one'");
  for (const database of ['tsdb', 'tsdb_transaction'] as const)
    await (await through(service, database, { user: 'app', password: 'the first one' })).end();
  const before = await through(service, 'tsdb_transaction', {
    user: 'app',
    password: 'the first one',
  });
  await admin.query("alter role app password 'the second one'");
  await expect(
    through(service, 'tsdb_transaction', { user: 'app', password: 'the first one' }),
  ).rejects.toThrow(/SASL/);
  const after = await through(service, 'tsdb_transaction', {
    user: 'app',
    password: 'the second one',
  });
  expect((await after.query('select current_user')).rows).toEqual([{ current_user: 'app' }]);
  expect((await before.query('select current_user')).rows).toEqual([{ current_user: 'app' }]);

  const password = 'set through the API';
  expect((await post(service, 'updatePassword', { password })).status).toBe(204);
  // A client that has logged in would get a connection of one that comes with the new password.
  await expect(admin.query('select 1')).rejects.toThrow();
  await untilExpected('the pooler accepts connections', async () =>
    expect(through(service, 'tsdb')).rejects.toThrow(/SASL/),
  );
  const owner = await through(service, 'tsdb', { password });
  await owner.query("alter role app valid until '2020-01-01'");
  await expect(
    through(service, 'tsdb', { user: 'app', password: 'the second one' }),
  ).rejects.toThrow(/no such user|SASL/);
  for (const client of [owner, before, after, admin]) await client.end().catch(() => undefined);
});

test('both pools together leave 17 connections of a service free', async () => {
  const service = await createPooled('limits');
  for (const [database, limit] of [
    ['tsdb_transaction', 42],
    ['tsdb', 41],
  ] as const) {
    const clients: Client[] = [];
    // One by one: each that gets a server connection keeps it.
    for (let n = 0; n < limit; n++) {
      const client = await through(service, database);
      await client.query('begin');
      clients.push(client);
    }
    const row = (await askConsole(service, 'show databases')).find(({ name }) => name === database);
    expect(row).toMatchObject({ max_connections: limit });
    const pids = await Promise.all(clients.map(pidOf));
    expect(new Set(pids).size).toBe(limit);
    // The next one waits, until another is done.
    let waits = true;
    const late = through(service, database).then(async (client) => {
      await client.query('begin');
      waits = false;
      return client;
    });
    await untilExpected('the late client waits in the pool', async () =>
      expect(
        (await askConsole(service, 'show pools')).some((pool) => Number(pool['cl_waiting']) > 0),
      ).toBe(true),
    );
    expect(waits).toBe(true);
    await clients.pop()?.end();
    clients.push(await late);
    for (const client of clients) await client.end();
  }
  const clientLimit = (await askConsole(service, 'show config')).find(
    ({ key }) => key === 'max_client_conn',
  );
  expect(clientLimit).toMatchObject({ value: '1660' });
});

test('a new certificate is used for new sessions, and old sessions stay', async () => {
  const service = await createPooled('renewed');
  const { config } = await pathsOf(service);
  const session = await through(service, 'tsdb');
  const before = fingerprintOf(session);
  const pid = await pidOf(session);
  await rm(join(config, 'server.crt'));
  await untilLookedAt(service, true);
  const after = await through(service, 'tsdb');
  expect(fingerprintOf(after)).not.toBe(before);
  await after.end();
  expect(await pidOf(session)).toBe(pid);
  await session.end();
});

/** The fingerprint of the certificate that a client got, which it keeps after its end. */
function fingerprintOf(client: Client): string {
  const { stream } = client.connection;
  if (!(stream instanceof TLSSocket)) throw new Error('no TLS');
  return stream.getPeerX509Certificate()?.fingerprint256 ?? '';
}

test('the port of a pooler is reserved, also while the pooler is disabled', async () => {
  const service = await createPooled('promised');
  const { endpoint } = await poolerOf(service);
  await post(service, 'disablePooler');
  const { db, close } = await openMetadata(cloud.home);
  const { region_code: region } = service;
  const ask = (ports: [number, number]) =>
    db.transaction().execute((tx) => takeNextPort(tx, region, ports, null));
  expect(await ask([endpoint.port, endpoint.port])).toBeNull();
  expect(await ask([service.endpoint.port, service.endpoint.port])).toBeNull();
  await db
    .updateTable('services')
    .set({ pooler_port: service.endpoint.port })
    .where('id', '=', service.service_id)
    .execute();
  const both =
    `port ${service.endpoint.port} is promised to service ${service.service_id} and to the ` +
    `pooler of service ${service.service_id}`;
  expect(await cloud.audit()).toContain(both);
  await db
    .updateTable('services')
    .set({ pooler_port: endpoint.port })
    .where('id', '=', service.service_id)
    .execute();
  await close();
});

test(
  'the integrity check finds a pooler that is missing, and one that must not run',
  { tags: 'slow' },
  async () => {
    const service = await createPooled('audited');
    const id = service.service_id;
    const { endpoint } = await poolerOf(service);
    expect(await cloud.audit()).toEqual([]);
    const metadata = await openMetadata(cloud.home);
    const set = async (pooler: boolean) => {
      await metadata.db.updateTable('services').set({ pooler }).where('id', '=', id).execute();
    };
    // The metadata database's database outlives the control plane, which would write the document
    // again with the next figures.
    await cloud.stop('SIGKILL');
    await set(false);
    const problems = await cloud.audit();
    expect(problems).toContain(`service ${id} is READY without a pooler, and 1 of it run`);
    expect(problems).toContain(
      `something listens on port ${endpoint.port}, the pooler's of service ` +
        `${id}, which must not run`,
    );
    expect(problems).toContain(`the document of service ${id} says another pooler than its record`);
    await set(true);
    const process = await pgbouncerOf(service);
    signal(process.pid, 'SIGKILL');
    await until('PgBouncer is gone', () => waitUntilGone(process, 0));
    expect(await cloud.audit()).toEqual(
      expect.arrayContaining([
        `service ${id} is READY with a pooler, and 0 of it run`,
        `service ${id} is READY and nothing listens on its pooler's port ${endpoint.port}`,
      ]),
    );
    await cloud.up();
    await pgbouncerOf(service);
    await metadata.close();
    await untilExpected('the integrity check finds nothing', async () =>
      expect(await cloud.audit()).toEqual([]),
    );
  },
);

test('options of the startup packet that a pooled connection cannot keep are refused', async () => {
  const service = await createPooled('options');
  const open = async (options: string) =>
    connectTo(cloud, await poolerOf(service), service.initial_password, { options });
  // From 1.20 on, PgBouncer accepts the options that it restores for each client.
  const [, minor = '0'] = /1\.(\d+)/.exec((await findProgram('pgbouncer'))?.version ?? '') ?? [];
  for (const option of [
    'tsdb_admin.read_only_connection=true',
    'tsdb_admin.read_only_role=true',
    'statement_timeout=1000',
    ...(Number(minor) < 20 ? ['default_transaction_read_only=on'] : []),
  ])
    await expect(open(`-c ${option}`), option).rejects.toThrow(
      /unsupported startup parameter(: options| in options: [a-z_.]+)/,
    );
  const named = open('-c application_name=named -c timezone=Europe/Paris');
  if (Number(minor) < 20) return expect(named).rejects.toThrow('startup parameter: options');
  const { rows } = await (await named).query('show timezone');
  expect(rows).toEqual([{ TimeZone: 'Europe/Paris' }]);
  return (await named).end();
});

test('the owner of a database cannot make our sessions in it read-only', async () => {
  const service = await cloud.create({ name: 'own', service_type: 'POSTGRES' });
  const admin = await connectTo(cloud, service, service.initial_password);
  await admin.query('alter database tsdb set tsdb_admin.read_only_role = true');
  expect((await post(service, 'enablePooler')).status).toBeLessThan(300);
  const made = async () =>
    (await admin.query("select to_regprocedure('pg_howdah.verifier(text)') is not null as made"))
      .rows;
  await untilExpected('the verifier of the pooler is made', async () =>
    expect(await made()).toEqual([{ made: true }]),
  );
  await admin.end();
});
