/**
 * Verifies backups: the newest snapshot of a service is restored as a copy, rolled forward to the
 * end of the WAL, checked and removed. The service is not affected.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, escapeIdentifier } from 'pg';
import type { Verification } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { isPassing } from '../../../repository/problem.ts';
import { secondsBetween, verifiedOf, type Measured, type Verified } from '../../restored-backup.ts';
import type { RunStep } from '../../run-step.ts';
import type { ServiceSpec } from '../../spec.ts';
import { VERIFICATION_STEP } from '../../verification-steps.ts';
import { memberKey, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { ownerOf } from '../host/users.ts';
import {
  compareCatalogs,
  readCatalogSizes,
  type CatalogSizes,
  type Comparison,
} from '../../postgres/contents/catalogs.ts';
import { checkPages } from '../../postgres/data/checksums.ts';
import { MAINTENANCE_DATABASE } from '../../postgres/roles.ts';
import type { Installation } from '../postgres/installations.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import { findServer, stopServer } from '../postgres/server.ts';
import { withSuperuserSession, withSessionAs } from '../../postgres/sessions/superuser.ts';
import { formatLsn, lastCheckpoint, parseLsn } from '../../postgres/data/wal.ts';
import {
  copyPaths,
  discardCopy,
  inCopy,
  killCopy,
  restoreCopy,
  startCopy,
  sweepCopies,
  type CopySource,
  STATEMENT_LIMIT_MS,
} from './copy.ts';
import { countRows } from './row-counts.ts';
import { listSnapshots, writeVerification } from './snapshots.ts';
import { portOf } from './running-clone.ts';
import { REMOVED_LIMIT } from '../../../domain/postgres/databases.ts';
import { READER_ROLE } from '../../statements/session.ts';

/** A shutdown writes all that was replayed. */
const SHUTDOWN_DEADLINE_MS = 600_000;
/**
 * An idle session reports its statistics after 10 s. PostgreSQL source:
 * src/backend/utils/activity/pgstat.c.
 */
const STATISTICS_DELAY_MS = 11_000;
const NOT_RUNNING: Comparison = { equal: true, detail: 'not compared: the service does not run' };

/** The tools of verifications. */
export type Verifications = {
  readonly machine: Machine;
  readonly monitor: Monitored;
};

export function createVerifications(machine: Machine, monitor: Monitored): Verifications {
  return { machine, monitor };
}

/** The backup to verify. `key`: the service's primary, which a local copy is compared with. */
type Subject = CopySource & { readonly key: string };

/**
 * How far the service has written at least, and the sizes of its catalogs at this moment.
 * `isMarked`: that position is later than every commit before the restore.
 */
type Before = { position: bigint; isMarked: boolean; catalogs: CatalogSizes | null };

/** A backup that is brought, restored and checked. */
type BackupCheck = Readonly<{
  copy: InstancePaths;
  /** Brings the backup, as a step of its own; absent: it is there. */
  fetch?: (show: (line: string) => void) => Promise<string>;
  subject: () => Promise<Subject>;
  before: (subject: Subject) => Promise<Before>;
  comparesCatalogs: boolean;
  /** Where the backup is, once it is known. */
  place: (subject: Subject) => Measured['backup'];
}>;

/**
 * Verifies the newest snapshot of a service, and writes the result beside it.
 *
 * @throws the reason of `signal` when it is aborted; Error when there is no snapshot
 */
export async function verifyBackup(
  verifications: Verifications,
  spec: ServiceSpec,
  installation: Installation,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verified> {
  const { machine, monitor } = verifications;
  const primary = machine.layout.primaryOf(spec.id);
  const key = memberKey(spec.id, primary);
  const paths = machine.layout.member(spec.id, primary);
  const copy = copyPaths(machine, spec.id);
  await sweepCopies(machine);
  const [snapshot] = await listSnapshots(paths);
  if (snapshot === undefined)
    throw new Error(
      'it has no snapshot yet: its first one is taken within a minute of its creation',
    );
  // A caller that waits for the server of the copy gets an error; the rest is removed below.
  const interrupt = (): void => void killCopy(machine, copy).catch(() => undefined);
  signal.addEventListener('abort', interrupt);
  try {
    const owner = ownerOf(machine, paths);
    const check: BackupCheck = {
      copy,
      subject: async () => ({ spec, installation, owner, key, paths, copy, snapshot }),
      before: (subject) => observeService(monitor, subject),
      comparesCatalogs: true,
      place: () => placeOf('snapshot', null, snapshot.id, snapshot.takenMs),
    };
    const verified = await restoreAndCheck(machine, check, runStep, signal);
    const { verification } = verified;
    // The data that was read may have been seeded again meanwhile: then the result says nothing.
    if (!verification.succeeded && machine.layout.primaryOf(spec.id) !== primary)
      throw new Error(`member ${primary} is no longer the primary: verify the backup again`);
    await writeVerification(paths, snapshot.id, verification);
    return verified;
  } finally {
    signal.removeEventListener('abort', interrupt);
    await discardCopy(machine, copy);
  }
}

export const placeOf = (
  place: Measured['backup']['place'],
  repository: string | null,
  label: string,
  takenMs: number,
): Measured['backup'] => ({ place, repository, label, taken: new Date(takenMs).toISOString() });

/** A check that failed; its result is recorded. */
class Failed extends Error {}

/**
 * The time from the begin of the restore to the first query, the point in time that was reached,
 * and the version of the server; null: none was.
 */
type Recovery = { seconds: number | null; pointMs: number | null; version: string | null };
type Checks = Verification['checks'];

const FETCH_STEP = 'fetch from the repository';

/**
 * Restores a backup as a copy and checks it. Who calls it removes the copy.
 *
 * @throws RepositoryProblem when the repository of the backup does not answer
 */
export async function restoreAndCheck(
  machine: Machine,
  { copy, fetch, subject: subjectOf, before: observe, comparesCatalogs, place }: BackupCheck,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verified> {
  const begunMs = Date.now();
  const checks: Checks = [];
  const recovery: Recovery = { seconds: null, pointMs: null, version: null };
  let measured: Measured | null = null;
  const check = (name: string, work: NonNullable<BackupCheck['fetch']>): Promise<void> =>
    runStep(name, (show) => runCheck(name, () => work(show), checks, signal));
  try {
    if (fetch !== undefined) await check(FETCH_STEP, fetch);
    const subject = await subjectOf();
    await check(VERIFICATION_STEP.restore, () => restoreCopy(machine, subject));
    const before = await observe(subject);
    await check(VERIFICATION_STEP.replay, async () => {
      await startCopy(machine, subject, signal);
      const reached = await withSuperuserSession(inCopy(copy, MAINTENANCE_DATABASE), endOfReplay);
      recovery.seconds = (Date.now() - begunMs) / 1000;
      recovery.version = reached.version;
      recovery.pointMs = Math.max(reached.lastCommitMs, subject.snapshot.takenMs);
      if (reached.position < before.position) {
        throw new Error(
          `it ends at ${formatLsn(reached.position)}, and the service has written up to ` +
            `${formatLsn(before.position)} at least: WAL between the two is damaged`,
        );
      }
      return (
        `accepting connections after ${recovery.seconds.toFixed(1)} s, ` +
        `with all up to ${new Date(recovery.pointMs).toISOString()}`
      );
    });
    // Before anything is added to the copy for the other checks.
    if (comparesCatalogs)
      await check(VERIFICATION_STEP.catalogs, () => compareWithService(subject, before.catalogs));
    await check(VERIFICATION_STEP.relations, () => checkRelations(copy, signal));
    let contents: Measured['contents'] = null;
    await check(VERIFICATION_STEP.rows, async () => {
      const counted = await countRows(copy, signal);
      contents = counted.contents;
      return counted.detail;
    });
    await check(VERIFICATION_STEP.pages, async () => {
      const server = await findServer(copy);
      if (server === null || !(await stopServer(machine, server, 'fast', SHUTDOWN_DEADLINE_MS)))
        throw new Error('the copy did not shut down');
      const pages = await checkPages(copy.data, signal);
      measured = measuredOf(place(subject), begunMs, recovery, before, contents, pages);
      return `${pages.pages} pages in ${pages.files} files`;
    });
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
  }
  const verification = resultOf(checks, recovery);
  return measured === null ? { verification, restored: null } : verifiedOf(verification, measured);
}

function measuredOf(
  backup: Measured['backup'],
  begunMs: number,
  { version, pointMs }: Recovery,
  { isMarked }: Before,
  contents: Measured['contents'],
  pages: Measured['pages'],
): Measured {
  return {
    backup,
    began: new Date(begunMs).toISOString(),
    postgresql_version: version,
    // Without a mark, all that is older than the last transaction of the copy is there.
    rpo_seconds: isMarked ? 0 : pointMs === null ? null : secondsBetween(pointMs, begunMs),
    contents,
    pages,
  };
}

/**
 * Runs a check and records its result.
 *
 * @throws Failed when it failed; a problem of a repository that will pass, which is no result
 */
async function runCheck(
  name: string,
  work: () => Promise<string>,
  checks: Checks,
  signal: AbortSignal,
): Promise<string> {
  signal.throwIfAborted();
  const ended = await work().then(
    (detail) => ({ name, succeeded: true, detail }),
    (error: unknown) => {
      if (isPassing(error)) throw error;
      const detail = messageOf(error);
      return { name, succeeded: false, detail };
    },
  );
  signal.throwIfAborted();
  checks.push(ended);
  if (!ended.succeeded) throw new Failed(ended.detail);
  return ended.detail;
}

/**
 * How far the service has written at least, and the sizes of its catalogs at this moment; it may be
 * paused.
 */
async function observeService(monitor: Monitored, subject: Subject): Promise<Before> {
  try {
    // A commit that users do not see: recovery has to reach it.
    const [mark] = await monitor.query<{ position: string }>(
      subject.key,
      "select pg_logical_emit_message(true, 'howdah', 'verify')::text as position",
    );
    const catalogs = await catalogsOf(subject).catch(() => null);
    const isMarked = mark !== undefined;
    return { position: parseLsn(mark?.position ?? '0/0'), isMarked, catalogs };
  } catch {
    // The service does not run, or not at this moment.
    const position = await lastCheckpoint(subject.paths.data);
    return { position, isMarked: false, catalogs: null };
  }
}

async function catalogsOf({ paths }: Subject): Promise<CatalogSizes> {
  const where = {
    server: paths,
    port: await portOf(paths),
    name: 'howdah verification',
    readOnly: true,
  };
  return readCatalogSizes((database, work) => withSuperuserSession({ ...where, database }, work));
}

async function compareWithService(subject: Subject, before: CatalogSizes | null): Promise<string> {
  const restored = await readCatalogSizes((database, work) =>
    withSuperuserSession(inCopy(subject.copy, database), work),
  );
  const compare = async (): Promise<Comparison> => {
    const after = before === null ? null : await catalogsOf(subject).catch(() => null);
    return before === null || after === null
      ? NOT_RUNNING
      : compareCatalogs(before, restored, after);
  };
  const first = await compare();
  if (first.equal) return first.detail;
  // The statistics include what a session created and dropped after a delay.
  await sleep(STATISTICS_DELAY_MS);
  const second = await compare();
  if (!second.equal) throw new Error(second.detail);
  return second.detail;
}

function resultOf(checks: Checks, { seconds, pointMs }: Recovery): Verification {
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

async function endOfReplay(
  client: Client,
): Promise<{ position: bigint; lastCommitMs: number; version: string | null }> {
  const { rows } = await client.query<{
    position: string | null;
    committed: Date | null;
    version: string;
  }>(
    'select pg_last_wal_replay_lsn()::text as position, ' +
      'pg_last_xact_replay_timestamp() as committed, ' +
      "current_setting('server_version') as version",
  );
  return {
    position: parseLsn(rows[0]?.position ?? '0/0'),
    lastCommitMs: rows[0]?.committed?.getTime() ?? 0,
    version: rows[0]?.version ?? null,
  };
}

// Checks the tables and indexes of a restored copy with amcheck.

/**
 * For all indexes with expressions of a tenant together, which may never end. Indexes that are left
 * then are checked without their expressions.
 */
const EXPRESSIONS_LIMIT_MS = 600_000;

/**
 * Checks every table and B-tree of every database of a copy: pages, rows, order, and that each
 * index has every row.
 *
 * @returns a line for the user
 * @throws Error when a table or an index is damaged
 */
async function checkRelations(copy: InstancePaths, signal: AbortSignal): Promise<string> {
  const { databases, removed } = await withSuperuserSession(
    inCopy(copy, MAINTENANCE_DATABASE),
    prepareChecks,
  );
  const limit = { leftMs: EXPRESSIONS_LIMIT_MS };
  let [tables, indexes, partly] = [0, 0, 0];
  for (const database of databases) {
    const found = await withSuperuserSession(inCopy(copy, database), relationsOf);
    if (found === null) continue;
    // In no database does a superuser's session evaluate what a tenant wrote.
    const withChecker: Checker = (use, limitMs) =>
      withSessionAs(READER_ROLE, { ...inCopy(copy, database), limitMs }, use);
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
  // Every database has catalogs, and so tables.
  if (tables === 0)
    return (
      'not done: the extension amcheck is missing from this PostgreSQL; ' +
      'its contrib package brings it'
    );
  return [
    `${tables} tables and ${indexes} indexes in ${databases.length} databases`,
    ...(partly === 0
      ? []
      : [`${partly} of the indexes only by their order: their expressions took too long`]),
    ...(removed === 0
      ? []
      : [`without ${removed} whose removal was interrupted: DROP DATABASE removes the rest`]),
  ].join('; ');
}

type Checker = <T>(use: (client: Client) => Promise<T>, limitMs: number) => Promise<T>;

/**
 * Checks an index with expressions within the time that is left for all of them.
 *
 * @returns whether they were evaluated
 */
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
      // The client leaves a statement that catches its own cancellation.
      if (performance.now() - begunMs < limitMs) throw error;
    } finally {
      limit.leftMs -= performance.now() - begunMs;
    }
  }
  await withChecker((client) => checkIndex(client, oid, false), STATEMENT_LIMIT_MS);
  return false;
}

/**
 * Creates the role that checks run as, and lets it into every database. It is no superuser,
 * whatever the service had made of it. Limits that the owner of a database has set would hold for
 * it. Nobody can connect to a database whose removal was interrupted.
 *
 * @returns the databases to check, and the number of those that cannot be
 */
async function prepareChecks(client: Client): Promise<{ databases: string[]; removed: number }> {
  const { rows: roles } = await client.query('select from pg_roles where rolname = $1', [
    READER_ROLE,
  ]);
  if (roles.length === 0) await client.query(`create role ${READER_ROLE}`);
  await client.query(`
    alter role ${READER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls
      connection limit -1`);
  const { rows } = await client.query<{ name: string; isRemoved: boolean }>(
    `select datname::text as name, datconnlimit = ${REMOVED_LIMIT} as "isRemoved" from pg_database
     where datname <> 'template0' order by datname`,
  );
  const databases = rows.filter(({ isRemoved }) => !isRemoved).map(({ name }) => name);
  for (const name of databases.map((database) => escapeIdentifier(database)))
    await client.query(`alter database ${name} connection limit -1 allow_connections true;
      grant connect on database ${name} to ${READER_ROLE}`);
  return { databases, removed: rows.length - databases.length };
}

type Relations = {
  tables: { oid: number; name: string }[];
  indexes: { oid: number; evaluates: boolean }[];
};

/**
 * Finds the relations to check, and creates the extension that checks them; null: it is not
 * installed.
 */
async function relationsOf(client: Client): Promise<Relations | null> {
  const { rows: available } = await client.query(
    "select from pg_available_extensions where name = 'amcheck'",
  );
  if (available.length === 0) return null;
  // As pg_amcheck does: in this schema, no object of a user can replace it.
  await client.query(
    'create extension if not exists amcheck schema pg_catalog; ' +
      'alter extension amcheck set schema pg_catalog',
  );
  const { rows: functions } = await client.query<{ signature: string }>(
    `select p.oid::regprocedure::text as signature from pg_proc p
     where p.pronamespace = 'pg_catalog'::regnamespace
       and p.proname in ('verify_heapam', 'bt_index_check')`,
  );
  for (const { signature } of functions)
    await client.query(`grant execute on function ${signature} to ${READER_ROLE}`);
  const select = (more: string, condition: string): string =>
    `select c.oid, ${more} from pg_class c where c.relpersistence <> 't' ` +
    `and ${condition} order by c.oid`;
  const tables = await client.query<{ oid: number; name: string }>(
    select('c.oid::regclass::text as name', TABLES),
  );
  const indexes = await client.query<{ oid: number; evaluates: boolean }>(
    select(
      '(select i.indexprs is not null or i.indpred is not null from pg_index i where ' +
        'i.indexrelid = c.oid) as evaluates',
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
    'select blkno::text as block, msg as message ' +
      'from pg_catalog.verify_heapam($1::oid::regclass, on_error_stop => true) limit 1',
    [oid],
  );
  if (rows[0] !== undefined)
    throw new Error(`table ${name} of ${database}, block ${rows[0].block}: ${rows[0].message}`);
}

/**
 * @param rows whether to compare the index with the rows of its table: this evaluates its
 * expressions, as the table's owner
 */
async function checkIndex(client: Client, oid: number, rows: boolean): Promise<void> {
  await client.query('select pg_catalog.bt_index_check($1::oid::regclass, heapallindexed => $2)', [
    oid,
    rows,
  ]);
}

// The relations that pg_amcheck checks ([PG] pg_amcheck); temporary ones belong to sessions that
// are gone.
const TABLES =
  "c.relkind in ('r', 'm', 't') and c.relam = (select oid from pg_catalog.pg_am " +
  "where amname = 'heap')";
const INDEXES = `c.relkind = 'i' and c.relam = (select oid from pg_catalog.pg_am
  where amname = 'btree') and exists (select from pg_catalog.pg_index i
  where i.indexrelid = c.oid and i.indisvalid and i.indisready and i.indislive)`;
