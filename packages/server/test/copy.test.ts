/** Copies of services of Kubernetes on this machine, with real PostgreSQL on both sides. */
import { existsSync } from 'node:fs';
import { readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { PASSWORD, startClusterSource, type ClusterSource } from './cluster-source.ts';
import { createLocalSubject, type LocalSubject } from './conformance-local.ts';
import {
  allPids,
  argumentsOf,
  createPoolerRole,
  findBaseBackup,
  findServer,
  type Installation,
  type MoveTargetRegion,
  portOfServer,
  readMarker,
  run,
  type ServiceSpec,
  signal,
  tableOf,
  type Verdict,
  withSuperuserSession,
  writeMarker,
} from './probe.ts';
import { until } from './until.ts';

/** No other installation has them: an earlier release would refuse the connections of a copy. */
const UIDS = [95_000, 95_999] as const;

let subject: LocalSubject;
/** A PostgreSQL that a copy can be made with; packages for clients bring pg_basebackup. */
let installation: Installation | undefined;
beforeAll(async () => {
  subject = await createLocalSubject(UIDS);
  const { usable } = subject.machine.installations;
  installation = usable.find((one) => findBaseBackup([one], one.major) !== null);
});
afterAll(async () => {
  expect(await subject?.destroy()).toEqual([]);
});

const NO_PROGRAM = 'no PostgreSQL of this machine has pg_basebackup';

type Begun = Awaited<ReturnType<typeof begin>>;

const sources: ClusterSource[] = [];
afterEach(async () => {
  for (const source of sources.splice(0)) await source.destroy();
});

const target = (): MoveTargetRegion => {
  const { to } = subject.engine.moves;
  if ('why' in to) throw new Error(to.why);
  return to;
};

/** A source with a table, and the specs of its copy and of the service that it becomes. */
async function begin() {
  if (installation === undefined) throw new Error('there is no pg_basebackup');
  const source = await startClusterSource(installation, await subject.newPort());
  sources.push(source);
  const service: ServiceSpec = {
    ...(await subject.newSpec()),
    major: installation.major,
    provisioned: true,
    firstVerifier: null,
  };
  const move = { as: 'copy', source: source.endpoint } as const;
  const copy: ServiceSpec = { ...service, provisioned: false, move };
  const admin = await source.admin();
  await admin.query('create table t (n int primary key)');
  await admin.query('insert into t select generate_series(1, 1000)');
  await admin.end();
  return { source, service, copy, paths: subject.machine.layout.copy(service.id) };
}

const prepare = (copy: ServiceSpec, { login }: ClusterSource) =>
  target().prepare(copy, { verifier: null, certificate: login });

/** Makes steps until one ends with `isLast`. @returns the steps that were made */
async function converge(
  spec: ServiceSpec,
  isLast: (verdict: Verdict) => boolean = ({ outcome }) => outcome === 'settled',
): Promise<string[]> {
  const did: string[] = [];
  await until('the last step is made', async () => {
    const verdict = await subject.engine.lifecycle.converge(spec, async () => undefined);
    if (verdict.did !== null) did.push(verdict.did);
    if (isLast(verdict)) return true;
    if (verdict.outcome === 'failed' && did.at(-1) !== verdict.reason) did.push(verdict.reason);
    throw new Error(did.join('\n'));
  });
  return did;
}

async function login(
  { endpoint }: ServiceSpec,
  user: string,
  password: string,
  database = 'tsdb',
): Promise<Client> {
  const client = new Client({
    ...endpoint,
    user,
    password,
    database,
    ssl: { rejectUnauthorized: false },
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

async function count(spec: ServiceSpec): Promise<number> {
  const client = await login(spec, 'tsdbadmin', PASSWORD);
  try {
    const { rows } = await client.query<{ n: number }>('select count(*)::int as n from t');
    return rows[0]?.n ?? 0;
  } finally {
    await client.end();
  }
}

const remove = async (id: string): Promise<void> => {
  for (;;) {
    const { outcome } = await subject.engine.lifecycle.remove(id, null, async () => undefined);
    if (outcome === 'settled') return;
  }
};

/** Follows until the source is shut down in order. @returns how many rows it acknowledged */
async function followUntilShutdown({ source, service, copy }: Begun): Promise<number> {
  const writer = await source.admin();
  let acknowledged = 1000;
  const writing = (async () => {
    for (;;) {
      await writer.query('insert into t values ($1)', [acknowledged + 1]);
      acknowledged += 1;
    }
  })().catch(() => undefined);
  await until('100 rows are acknowledged', () => acknowledged > 1100);
  expect(await converge(copy)).toEqual([]);
  expect(await target().position(service.id)).toMatchObject({
    isFollowing: true,
    hasShutdown: false,
  });
  await source.stop();
  await writing;
  await until('the copy has the shutdown', () => hasShutdown(service));
  return acknowledged;
}

/** Whether the packet filter lets a copy connect anywhere. */
async function mayConnect(): Promise<boolean> {
  const { egress, networkPrefix } = subject.machine;
  if (!egress.refused) return false;
  return (await run('nft', ['list', 'table', 'inet', tableOf(networkPrefix)])).includes('mark set');
}

const ofControl = (id: string, sql: string, database = 'postgres') => {
  const paths = subject.machine.layout.service(id);
  return withSuperuserSession(
    { server: paths, port: portOfServer(paths) ?? 0, name: 'howdah test', database },
    async (client) => (await client.query<Record<string, unknown>>(sql)).rows,
  );
};

test('a copy follows its service, and becomes it with every acknowledged row', async ({ skip }) => {
  skip(installation === undefined, NO_PROGRAM);
  const begun = await begin();
  const { source, service, copy, paths } = begun;
  // Files of the source mean nothing here.
  await source.append('pg_hba.conf', 'host all all all trust\n');
  await source.query("alter system set archive_command = 'touch /tmp/obeyed'");
  await source.query("alter system set wal_level = 'minimal'");
  await source.query('alter system set port = 1');
  await source.append('postgresql.auto.conf', "include = '/nonexistent'\n");
  await prepare(copy, source);
  expect(await mayConnect()).toBe(subject.machine.egress.refused);
  expect(await converge(copy)).toEqual(['copy the data', 'start the copy']);
  const acknowledged = await followUntilShutdown(begun);
  expect((await converge(service)).slice(0, 2)).toEqual(['promote the copy', 'promote the copy']);
  expect(await count(service)).toBeGreaterThanOrEqual(acknowledged);
  await target().finish(service);
  expect(await mayConnect()).toBe(false);
  expect(existsSync(paths.root)).toBe(false);
  const { root } = subject.machine.layout.service(service.id);
  expect([...(await readdir(root)), ...(await readdir(join(root, 'config')))].join()).not.toMatch(
    /copy|follows|promotion|base-backup/,
  );
  for (const role of ['postgres', 'streaming_replica', 'howdah_reader', 'howdah_control', 'howdah'])
    await expect(login(service, role, 'of the cluster')).rejects.toThrow();
  expect(
    await ofControl(
      service.id,
      `select rolname::text as name, rolcanlogin as login, rolpassword is null as closed
       from pg_authid where rolsuper
         or rolname in ('streaming_replica', 'howdah_control', 'cnpg_metrics_exporter')
       order by rolname`,
    ),
  ).toEqual([
    { name: 'howdah', login: true, closed: true },
    { name: 'postgres', login: false, closed: true },
  ]);
  await useAsService(service, acknowledged);
  await remove(service.id);
  await expectNothing(service.id);
});

/** All that the engine does with a service of its own. */
async function useAsService(service: ServiceSpec, rows: number): Promise<void> {
  const { sql, backups, lifecycle } = subject.engine;
  const { id } = service;
  const counted = { sql: 'select count(*) from t', parameters: [], maxRows: 1, timeoutMs: 5000 };
  expect((await sql.query(id, null, counted)).rows).toHaveLength(1);
  expect(
    await ofControl(id, "select from pg_extension where extname = 'pg_stat_statements'", 'tsdb'),
  ).toHaveLength(1);
  const { machine } = subject;
  await createPoolerRole(machine.layout.service(id), service.endpoint.port);
  const change = { isPaused: false, keepSessions: false, sets: [] };
  await sql.setPassword(id, await subject.verifierOf('another'), change);
  await (await login(service, 'tsdbadmin', 'another')).end();
  await sql.setPassword(id, await subject.verifierOf(PASSWORD), change);
  await until('the service has a snapshot', async () => {
    await backups.keep(id, { removes: false, quotaBytes: 10e9 });
    return (await backups.describe(id)).snapshots.length > 0;
  });
  const forked: ServiceSpec = {
    ...(await subject.newSpec()),
    major: service.major,
    firstVerifier: await subject.verifierOf(PASSWORD),
    origin: { parent: id, strategy: 'LAST_SNAPSHOT', targetTime: null },
  };
  await converge(forked);
  expect(await count(forked)).toBeGreaterThanOrEqual(rows);
  await remove(forked.id);
  const restarted = { ...service, restarts: service.restarts + 1 };
  expect(await converge(restarted)).toContain('start PostgreSQL');
  expect(await count(restarted)).toBeGreaterThanOrEqual(rows);
  expect(await lifecycle.majorOf(id)).toBe(service.major);
}

/** All that was started with a path of a service. */
async function processesOf(id: string): Promise<number[]> {
  const pids = await allPids();
  const found = await Promise.all(pids.map(argumentsOf));
  return pids.filter((_, index) => found[index]?.some((word) => word.includes(`/copies/${id}/`)));
}

async function expectNothing(id: string): Promise<void> {
  expect(await processesOf(id)).toEqual([]);
  expect(await subject.leftovers(id)).toEqual([]);
  expect(await readdir(subject.machine.layout.copies)).toEqual([]);
  expect(await mayConnect()).toBe(false);
}

test(
  'a role of a tenant with the name of our superuser is renamed, not elevated',
  { tags: 'slow' },
  async ({ skip }) => {
    skip(installation === undefined, NO_PROGRAM);
    const begun = await begin();
    const { source, service, copy } = begun;
    const admin = await source.admin();
    await admin.query("create role howdah login createdb password 'of the tenant'");
    await admin.query('create role former_howdah');
    await admin.query('set role howdah');
    await admin.query('create database theirs');
    await admin.query('reset role');
    await admin.query('alter role howdah set search_path = trap');
    await admin.end();
    await prepare(copy, source);
    await converge(copy);
    await followUntilShutdown(begun);
    await converge(service);
    expect(
      await ofControl(
        service.id,
        `select rolname::text as name, rolsuper as super from pg_roles
       where rolname ~ 'howdah(_1)?$' order by rolname`,
      ),
    ).toEqual([
      { name: 'former_howdah', super: false },
      { name: 'former_howdah_1', super: false },
      { name: 'howdah', super: true },
    ]);
    await (await login(service, 'former_howdah_1', 'of the tenant', 'theirs')).end();
    await expect(login(service, 'howdah', 'of the tenant')).rejects.toThrow();
    await remove(service.id);
  },
);

test(
  'an engine that ends, and servers that die, only interrupt a copy',
  { tags: 'slow' },
  async ({ skip }) => {
    skip(installation === undefined, NO_PROGRAM);
    const begun = await begin();
    const { source, service, copy, paths } = begun;
    await prepare(copy, source);
    // During the base backup.
    await converge(copy, ({ outcome }) => outcome === 'again');
    await subject.recreate();
    await converge(copy);
    // While it follows.
    await subject.recreate();
    const server = await findServer(paths);
    if (server === null) throw new Error('the copy does not run');
    signal(server.postmaster.pid, 'SIGKILL');
    await until('the server of the copy has ended', async () => (await findServer(paths)) === null);
    expect(await converge(copy)).toEqual(['start the copy']);
    const acknowledged = await followUntilShutdown(begun);
    await subject.recreate();
    // The promotion has begun, and the superuser was made.
    await converge(service, ({ did }) => did === 'promote the copy');
    const marker = await readMarker(paths);
    if (marker === null) throw new Error('there is no marker');
    await writeMarker(paths, { ...marker, provisioned: false });
    await subject.recreate();
    await expect(target().position(service.id)).resolves.toMatchObject({ isFollowing: false });
    await converge(service, ({ did }) => did === 'promote the copy');
    await subject.recreate();
    await converge(service);
    expect(await count(service)).toBeGreaterThanOrEqual(acknowledged);
    await remove(service.id);
    await expectNothing(service.id);
  },
);

test(
  'a copy whose service died has no shutdown, and is never promoted',
  { tags: 'slow' },
  async ({ skip }) => {
    skip(installation === undefined, NO_PROGRAM);
    const { source, service, copy } = await begin();
    await prepare(copy, source);
    await converge(copy);
    await until('the copy follows', () => source.isFollowed());
    await source.kill();
    await source.start();
    await until('the copy follows', () => source.isFollowed());
    // Recovery from a crash ends with a record like that of a shutdown, and the server goes on.
    await source.query('create table after_crash ()', 'tsdb');
    await until(
      'the copy follows beyond the shutdown',
      async () => (await source.isFollowed()) && !(await hasShutdown(service)),
    );
    await source.kill();
    expect(await hasShutdown(service)).toBe(false);
    const failed = await subject.engine.lifecycle.converge(service, async () => undefined);
    expect(failed).toMatchObject({
      reason: expect.stringContaining('does not end with the shutdown'),
    });
    await remove(service.id);
    await expectNothing(service.id);
  },
);

const hasShutdown = async ({ id }: ServiceSpec): Promise<boolean> =>
  (await target().position(id)).hasShutdown;

test('a base backup that breaks off is begun again, and says what is in the way', async ({
  skip,
}) => {
  skip(installation === undefined, NO_PROGRAM);
  const { source, service, copy, paths } = await begin();
  await prepare(copy, source);
  await source.stop();
  const { host, port } = source.endpoint;
  const reasons = await converge(copy, ({ outcome }) => outcome === 'failed');
  const failed = await subject.engine.lifecycle.converge(copy, async () => undefined);
  expect([reasons, failed.outcome]).toEqual([['copy the data'], 'again']);
  const reason = await until('the base backup has failed', async () => {
    const verdict = await subject.engine.lifecycle.converge(copy, async () => undefined);
    return verdict.outcome === 'failed' ? verdict.reason : null;
  });
  expect(reason).toContain(`"${host}"`);
  expect(reason).toContain(`port ${port} failed`);
  expect(reason).not.toContain(paths.root);
  await source.start();
  await converge(copy, ({ outcome }) => outcome === 'again');
  // So that it does not end by itself.
  for (const pid of await processesOf(service.id)) signal(pid, 'SIGSTOP');
  await remove(service.id);
  await expectNothing(service.id);
  await prepare(copy, source);
  expect(await converge(copy)).toContain('start the copy');
  await until('the copy follows', () => source.isFollowed());
  await remove(service.id);
  await expectNothing(service.id);
});

test('a copy takes the place of no data that is there', { tags: 'slow' }, async ({ skip }) => {
  skip(installation === undefined, NO_PROGRAM);
  const { source, service, copy } = await begin();
  const { layout } = subject.machine;
  const kept = await subject.newSpec();
  await converge(kept);
  await rename(layout.service(kept.id).root, layout.service(service.id).root);
  await expect(prepare(copy, source)).rejects.toThrow('which the copy must not replace');
  await rename(layout.service(service.id).root, layout.service(kept.id).root);
  await remove(kept.id);
});
