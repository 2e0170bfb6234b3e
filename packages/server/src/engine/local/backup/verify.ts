/**
 * Backups that verify themselves: the newest snapshot of a service is restored beside it, started without TCP, rolled forward to the
 * end of the WAL, checked and thrown away. The service goes on meanwhile and learns nothing of it.
 */
import { readdir, statfs } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { DATABASE_NAME, type Verification } from '@howdah/contract';
import { DISK_FULL_PERCENT } from '../../../domain/disk.ts';
import type { RunStep, ServiceSpec } from '../../engine.ts';
import { listSnapshots, writeVerification, type KeptSnapshot } from './snapshots.ts';
import { materialise } from './fork.ts';
import { portOf, writeOwned } from './take.ts';
import { reach } from './window.ts';
import { recoveryConf } from './recovery.ts';
import {
  compareCatalogs,
  readCatalogSizes,
  type CatalogSizes,
  type Comparison,
} from '../postgres/catalogs.ts';
import { checkPages } from '../postgres/checksums.ts';
import { removeTree } from '../host/clone.ts';
import { LOCAL_LISTENER } from '../network/listener.ts';
import { configFiles, MAINTENANCE_DATABASE, READER_ROLE } from '../postgres/files.ts';
import type { Installation } from '../postgres/installations.ts';
import { instancePaths, memberKey, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine.ts';
import type { Monitor } from '../postgres/monitor.ts';
import {
  findServer,
  launch,
  makeInstanceDirectories,
  stopServer,
  waitUntilReady,
  whyItEnded,
  writeConfig,
} from '../postgres/server.ts';
import { withSessionAs, withSuperuserSession, type Where } from '../postgres/superuser.ts';
import { extensionsOf } from '../postgres/templates.ts';
import { configUsersOf, ownerOf } from '../host/users.ts';
import { formatLsn, lastCheckpoint, parseLsn } from '../postgres/wal.ts';

const WAL_FILE_BYTES = 16 * 1024 ** 2;
/** What a restored server needs beside its data: its logs, and the WAL of its own. */
const SLACK_BYTES = 100e6;
/** An initial snapshot is restored from a template, which takes at most this much. */
const TEMPLATE_BYTES = 80e6;
const KILL_DEADLINE_MS = 60_000;
/** All that was replayed is written when the copy shuts down. */
const SHUTDOWN_DEADLINE_MS = 600_000;
/** Nothing may hold up the next verification for ever. */
const STATEMENT_LIMIT_MS = 3_600_000;
/**
 * For all indexes together whose expressions are a tenant's, which may not end: what is not done by then is checked without evaluating
 * them.
 */
const EXPRESSIONS_LIMIT_MS = 600_000;
/** The port in the name of the socket: nothing else stands in its directory. */
const PORT = 5432;

/** How a copy differs from a service: nobody's background work goes on in it, no replication, no vacuum, no jobs of extensions. */
const IDLE_CONF = [
  'max_worker_processes = 0',
  'max_logical_replication_workers = 0',
  'autovacuum = off',
  '',
].join('\n');

export function createVerifications(machine: Machine, monitor: Monitor) {
  let swept: Promise<void> | undefined;

  /** Throws away what a crash left behind; once, before the first copy is made. */
  const sweep = (): Promise<void> =>
    (swept ??= throwAllAway().catch((error: unknown) => {
      swept = undefined;
      throw error;
    }));

  const throwAllAway = async (): Promise<void> => {
    for (const entry of await readdir(machine.layout.scratch)) await throwAway(copyOf(entry));
  };

  const copyOf = (id: string): InstancePaths => instancePaths(join(machine.layout.scratch, id));

  const throwAway = async (copy: InstancePaths): Promise<void> => {
    await kill(copy);
    await removeTree(copy.root, machine.cloneMethod);
  };

  const kill = async (copy: InstancePaths): Promise<void> => {
    const server = await findServer(copy);
    if (server !== null) await stopServer(machine, server, 'kill', KILL_DEADLINE_MS);
  };

  /**
   * Verifies the newest snapshot of a service, and notes beside it what became of that.
   *
   * @throws what `signal` was aborted with; Error when there is no snapshot
   */
  const verify = async (
    spec: ServiceSpec,
    installation: Installation,
    runStep: RunStep,
    signal: AbortSignal,
  ): Promise<Verification> => {
    const primary = machine.layout.primaryOf(spec.id);
    const [key, paths, copy] = [
      memberKey(spec.id, primary),
      machine.layout.member(spec.id, primary),
      copyOf(spec.id),
    ];
    await sweep();
    const [snapshot] = await listSnapshots(paths);
    if (snapshot === undefined)
      throw new Error(
        'it has no snapshot yet: its first one is taken within a minute of its creation',
      );
    // Whatever waits for the copy's server hears that it is gone; the rest is thrown away below.
    const cutShort = (): void => void kill(copy).catch(() => undefined);
    signal.addEventListener('abort', cutShort);
    try {
      const verification = await restoreAndCheck(
        { spec, installation, key, paths, copy, snapshot },
        runStep,
        signal,
      );
      // What was read from may have been recreated meanwhile: that tells nothing of the backup.
      if (!verification.succeeded && machine.layout.primaryOf(spec.id) !== primary)
        throw new Error(`member ${primary} ceased to be the primary meanwhile: ask for it again`);
      await writeVerification(paths, snapshot.id, verification);
      return verification;
    } finally {
      signal.removeEventListener('abort', cutShort);
      await throwAway(copy);
    }
  };

  type Subject = {
    spec: ServiceSpec;
    installation: Installation;
    /** Of the service's primary, which is asked what the copy is compared with. */
    key: string;
    paths: InstancePaths;
    copy: InstancePaths;
    snapshot: KeptSnapshot;
  };

  const restoreAndCheck = async (
    subject: Subject,
    runStep: RunStep,
    signal: AbortSignal,
  ): Promise<Verification> => {
    const { copy } = subject;
    const begunMs = Date.now();
    const checks: Verification['checks'] = [];
    const recovery: Recovery = { seconds: null, pointMs: null };

    const check = async (name: string, work: () => Promise<string>): Promise<void> =>
      runStep(name, async () => {
        signal.throwIfAborted();
        const ended = await work().then(
          (detail) => ({ name, succeeded: true, detail }),
          (error: unknown) => ({
            name,
            succeeded: false,
            detail: error instanceof Error ? error.message : String(error),
          }),
        );
        signal.throwIfAborted();
        checks.push(ended);
        if (!ended.succeeded) throw new Failed(ended.detail);
        return ended.detail;
      });

    try {
      await check('restore snapshot', () => restore(subject));
      const before = await lookAtService(subject);
      await check('replay WAL', async () => {
        await startCopy(subject, signal);
        recovery.seconds = (Date.now() - begunMs) / 1000;
        const reached = await withSuperuserSession(inCopy(copy, MAINTENANCE_DATABASE), endOfReplay);
        recovery.pointMs = Math.max(reached.lastCommitMs, subject.snapshot.takenMs);
        if (reached.position < before.position) {
          throw new Error(
            `it ends at ${formatLsn(reached.position)}, and the service has written up to ${formatLsn(before.position)} at least: WAL between the two is damaged`,
          );
        }
        return `accepting connections after ${recovery.seconds.toFixed(1)} s, with all up to ${new Date(recovery.pointMs).toISOString()}`;
      });
      // Before anything is added to the copy for the other checks.
      await check('compare catalogs', () => compareWithService(subject, before.catalogs));
      await check('check tables and indexes', () => checkRelations(copy, signal));
      await check('check page checksums', async () => {
        const server = await findServer(copy);
        if (server === null || !(await stopServer(machine, server, 'fast', SHUTDOWN_DEADLINE_MS)))
          throw new Error('the copy did not shut down');
        const { pages, files } = await checkPages(copy.data, signal);
        return `${pages} pages in ${files} files`;
      });
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
    }
    return resultOf(checks, recovery);
  };

  const restore = async ({ paths, copy, snapshot }: Subject): Promise<string> => {
    const begunMs = Date.now();
    const { gap, latestMs, files } = await reach(paths, snapshot);
    if (gap !== null) {
      throw new Error(
        `WAL file ${gap} is missing from the archive: nothing after ${new Date(latestMs).toISOString()} can be reached`,
      );
    }
    const copied =
      machine.cloneMethod === 'copy'
        ? snapshot.template === null
          ? snapshot.storageBytes
          : TEMPLATE_BYTES
        : 0;
    await assertRoom(machine.layout.scratch, copied + files * WAL_FILE_BYTES + SLACK_BYTES);
    const owner = ownerOf(machine, paths);
    await makeInstanceDirectories(owner, copy);
    await materialise(machine, owner, paths, snapshot, copy.data);
    await writeOwned(
      owner,
      join(copy.data, 'postgresql.auto.conf'),
      `${recoveryConf(paths, copy.data)}${IDLE_CONF}`,
    );
    await writeOwned(owner, join(copy.data, 'recovery.signal'), '');
    const taken = new Date(snapshot.takenMs).toISOString();
    return `of ${taken}, by ${machine.cloneMethod} in ${Date.now() - begunMs} ms; ${files} WAL files to replay`;
  };

  /** How far the service has written at least, and what its catalogs hold at this moment; it may be paused. */
  const lookAtService = async (
    subject: Subject,
  ): Promise<{ position: bigint; catalogs: CatalogSizes | null }> => {
    try {
      // A commit that no user sees: the one that recovery has to come to.
      const [mark] = await monitor.query<{ position: string }>(
        subject.key,
        "select pg_logical_emit_message(true, 'howdah', 'verify')::text as position",
      );
      return { position: parseLsn(mark?.position ?? '0/0'), catalogs: await catalogsOf(subject) };
    } catch {
      return { position: await lastCheckpoint(subject.paths.data), catalogs: null }; // it does not run, or not at this moment
    }
  };

  const catalogsOf = async ({ paths }: Subject): Promise<CatalogSizes> =>
    withSuperuserSession(
      {
        server: paths,
        port: await portOf(paths),
        name: 'howdah verification',
        database: DATABASE_NAME,
        readOnly: true,
      },
      readCatalogSizes,
    );

  const startCopy = async (
    { spec, installation, paths, copy }: Subject,
    signal: AbortSignal,
  ): Promise<void> => {
    // The smallest settings: a copy must not take the memory that the service's size promises.
    const input = {
      paths: copy,
      installation,
      extensions: extensionsOf(spec.addons),
      size: 'shared',
      storageGb: null,
      listen: null,
      allowedNetworks: null,
    } as const;
    const owner = ownerOf(machine, paths);
    await writeConfig(owner, copy, configFiles(input, configUsersOf(owner)));
    const launchedMs = Date.now();
    await launch(machine, owner, copy, installation.bin, 'shared', LOCAL_LISTENER, [
      machine.layout.service(spec.id).root,
    ]);
    for (;;) {
      const state = await waitUntilReady(copy, 1000);
      signal.throwIfAborted();
      if (state === 'ready') break;
      if (state === 'ended')
        throw new Error(`it does not recover: ${await whyItEnded(copy, launchedMs)}`);
    }
    // Recovery is measured; what follows leaves the machine to services.
    const server = await findServer(copy);
    if (server !== null) setPriority(server.postmaster.pid, 19);
  };

  const compareWithService = async (
    subject: Subject,
    before: CatalogSizes | null,
  ): Promise<string> => {
    const restored = await withSuperuserSession(
      inCopy(subject.copy, DATABASE_NAME),
      readCatalogSizes,
    );
    const comparedWith = async (): Promise<Comparison> => {
      const after = before === null ? null : await catalogsOf(subject).catch(() => null);
      return before === null || after === null
        ? NOT_RUNNING
        : compareCatalogs(before, restored, after);
    };
    const first = await comparedWith();
    if (first.equal) return first.detail;
    // Sessions tell the statistics of what they made and dropped with a delay.
    await sleep(STATISTICS_DELAY_MS);
    const second = await comparedWith();
    if (!second.equal) throw new Error(second.detail);
    return second.detail;
  };

  return { verify, sweep };
}

const NOT_RUNNING: Comparison = { equal: true, detail: 'not compared: the service does not run' };
/** An idle session tells the statistics after 10 s what it did. PostgreSQL source: src/backend/utils/activity/pgstat.c. */
const STATISTICS_DELAY_MS = 11_000;

/** A check that failed; what it found is noted. */
class Failed extends Error {}

/** From the begin of the restore to accepting connections, and the moment whose state that is; null: it did not come to that. */
type Recovery = { seconds: number | null; pointMs: number | null };

function resultOf(checks: Verification['checks'], { seconds, pointMs }: Recovery): Verification {
  const failed = checks.find(({ succeeded }) => !succeeded);
  return {
    at: new Date().toISOString(),
    succeeded: failed === undefined,
    recovery_seconds: seconds,
    recovery_point: pointMs === null ? null : new Date(pointMs).toISOString(),
    checks,
    ...(failed === undefined ? {} : { problem: `${failed.name}: ${failed.detail}` }),
  };
}

async function assertRoom(directory: string, bytes: number): Promise<void> {
  const { blocks, bavail, bfree, bsize } = await statfs(directory);
  const kept = ((blocks - bfree + bavail) * bsize * (100 - DISK_FULL_PERCENT)) / 100;
  const spare = Math.max(0, bavail * bsize - kept);
  if (spare >= bytes) return;
  const mb = (value: number) => `${Math.ceil(value / 1e6)} MB`;
  throw new Error(
    `there is no room to restore it in: ${mb(bytes)} are needed, ${mb(spare)} free without the last ${100 - DISK_FULL_PERCENT} % of the disk; delete services or make room`,
  );
}

async function endOfReplay(client: Client): Promise<{ position: bigint; lastCommitMs: number }> {
  const { rows } = await client.query<{ position: string | null; committed: Date | null }>(
    'select pg_last_wal_replay_lsn()::text as position, pg_last_xact_replay_timestamp() as committed',
  );
  return {
    position: parseLsn(rows[0]?.position ?? '0/0'),
    lastCommitMs: rows[0]?.committed?.getTime() ?? 0,
  };
}

/** Checks every table and B-tree of every database: pages, rows, order, and that indexes name every row. */
async function checkRelations(copy: InstancePaths, signal: AbortSignal): Promise<string> {
  const databases = await withSuperuserSession(
    inCopy(copy, MAINTENANCE_DATABASE),
    async (client) => {
      await makeChecker(client);
      const { rows } = await client.query<{ name: string }>(
        'select datname as name from pg_database where datallowconn',
      );
      return rows.map(({ name }) => name);
    },
  );
  const limit = { leftMs: EXPRESSIONS_LIMIT_MS };
  let [tables, indexes, partly] = [0, 0, 0];
  for (const database of databases) {
    const found = await withSuperuserSession(inCopy(copy, database), relationsOf);
    if (found === null) continue;
    // Expressions of indexes are evaluated where a tenant's are, and not as superuser.
    const withChecker = <T>(use: (client: Client) => Promise<T>, limitMs: number): Promise<T> =>
      database === DATABASE_NAME
        ? withSessionAs(READER_ROLE, { ...inCopy(copy, database), limitMs }, use)
        : withSuperuserSession(inCopy(copy, database), use);
    await withChecker(async (client) => {
      for (const table of found.tables) {
        signal.throwIfAborted();
        await checkTable(client, database, table);
      }
      for (const { oid, evaluates } of found.indexes) {
        signal.throwIfAborted();
        if (!evaluates) await checkIndex(client, oid, true);
      }
    }, STATEMENT_LIMIT_MS);
    for (const { oid } of found.indexes.filter(({ evaluates }) => evaluates)) {
      signal.throwIfAborted();
      if (!(await checkExpressions(withChecker, oid, limit))) partly += 1;
    }
    tables += found.tables.length;
    indexes += found.indexes.length;
  }
  // Every database of a server has the catalogs, and so tables.
  if (tables === 0)
    return 'not done: the extension amcheck is missing from this PostgreSQL; its contrib package brings it';
  const rest =
    partly === 0
      ? ''
      : `; ${partly} of the indexes only by their order: their expressions took too long`;
  return `${tables} tables and ${indexes} indexes in ${databases.length} databases${rest}`;
}

type Checker = <T>(use: (client: Client) => Promise<T>, limitMs: number) => Promise<T>;

/** Checks an index with expressions within the time that is left for all of them. @returns whether they were evaluated */
async function checkExpressions(
  withChecker: Checker,
  oid: number,
  limit: { leftMs: number },
): Promise<boolean> {
  const begunMs = performance.now();
  if (limit.leftMs >= 1) {
    const limitMs = Math.floor(limit.leftMs);
    try {
      await withChecker((client) => checkIndex(client, oid, true), limitMs);
      return true;
    } catch (error) {
      // A statement that catches its own end is left by the client.
      if (performance.now() - begunMs < limitMs) throw error;
    } finally {
      limit.leftMs -= performance.now() - begunMs;
    }
  }
  await withChecker((client) => checkIndex(client, oid, false), STATEMENT_LIMIT_MS);
  return false;
}

/**
 * The role that checks are run as: none of a superuser's, whatever the copy's service had made of it. The owner of the database may have
 * set a connection limit, which holds for every role but a superuser.
 */
async function makeChecker(client: Client): Promise<void> {
  const { rows } = await client.query('select from pg_roles where rolname = $1', [READER_ROLE]);
  if (rows.length === 0) await client.query(`create role ${READER_ROLE}`);
  await client.query(`
    alter role ${READER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls connection limit -1;
    alter database ${DATABASE_NAME} connection limit -1;
    grant connect on database ${DATABASE_NAME} to ${READER_ROLE}`);
}

type Relations = {
  tables: { oid: number; name: string }[];
  indexes: { oid: number; evaluates: boolean }[];
};

/** What is checked in a database, which gets the extension for it; null: there is none. */
async function relationsOf(client: Client): Promise<Relations | null> {
  const { rows: available } = await client.query(
    "select from pg_available_extensions where name = 'amcheck'",
  );
  if (available.length === 0) return null;
  // Where pg_amcheck puts it, too: nothing that a user made can stand in for it there.
  await client.query('create extension if not exists amcheck schema pg_catalog');
  const { rows: functions } = await client.query<{ signature: string }>(
    `select p.oid::regprocedure::text as signature from pg_proc p
     where p.pronamespace = 'pg_catalog'::regnamespace and p.proname in ('verify_heapam', 'bt_index_check')`,
  );
  for (const { signature } of functions)
    await client.query(`grant execute on function ${signature} to ${READER_ROLE}`);
  const select = (more: string, condition: string): string =>
    `select c.oid, ${more} from pg_class c where c.relpersistence <> 't' and ${condition} order by c.oid`;
  const tables = await client.query<{ oid: number; name: string }>(
    select('c.oid::regclass::text as name', TABLES),
  );
  const indexes = await client.query<{ oid: number; evaluates: boolean }>(
    select(
      `(select i.indexprs is not null or i.indpred is not null from pg_index i where i.indexrelid = c.oid) as evaluates`,
      INDEXES,
    ),
  );
  return { tables: tables.rows, indexes: indexes.rows };
}

async function checkTable(
  client: Client,
  database: string,
  { oid, name }: { oid: number; name: string },
): Promise<void> {
  const { rows } = await client.query<{ block: string; message: string }>(
    'select blkno::text as block, msg as message from pg_catalog.verify_heapam($1::oid::regclass, on_error_stop => true) limit 1',
    [oid],
  );
  if (rows[0] !== undefined)
    throw new Error(`table ${name} of ${database}, block ${rows[0].block}: ${rows[0].message}`);
}

/** @param rows whether the index is compared with the rows of its table, for which its expressions are evaluated as the table's owner */
async function checkIndex(client: Client, oid: number, rows: boolean): Promise<void> {
  await client.query('select pg_catalog.bt_index_check($1::oid::regclass, heapallindexed => $2)', [
    oid,
    rows,
  ]);
}

// What pg_amcheck looks at ([PG] pg_amcheck): temporary ones are a session's that is no more.
const TABLES = `c.relkind in ('r', 'm', 't') and c.relam = (select oid from pg_catalog.pg_am where amname = 'heap')`;
const INDEXES = `c.relkind = 'i' and c.relam = (select oid from pg_catalog.pg_am where amname = 'btree')
  and exists (select from pg_catalog.pg_index i where i.indexrelid = c.oid and i.indisvalid and i.indisready and i.indislive)`;

/** A session in a copy, as superuser; that of a tenant's database only reads catalogs, and adds what the checks need. */
const inCopy = (copy: InstancePaths, database: string): Where => ({
  server: copy,
  port: PORT,
  name: 'howdah verification',
  database,
  limitMs: STATEMENT_LIMIT_MS,
});
