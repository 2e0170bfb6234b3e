/**
 * Verifies backups: the newest snapshot of a service is restored as a copy, rolled forward to the
 * end of the WAL, checked and removed. The service is not affected.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import type { Verification } from '@howdah/contract';
import { isPassing } from '../../../repository/problem.ts';
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
} from '../postgres/catalogs.ts';
import { checkPages } from '../postgres/checksums.ts';
import { MAINTENANCE_DATABASE } from '../postgres/files.ts';
import type { Installation } from '../postgres/installations.ts';
import type { Monitor } from '../postgres/monitor.ts';
import { findServer, stopServer } from '../postgres/server.ts';
import { withSuperuserSession } from '../postgres/superuser.ts';
import { formatLsn, lastCheckpoint, parseLsn } from '../postgres/wal.ts';
import { checkRelations } from './check-relations.ts';
import {
  copyPaths,
  discardCopy,
  inCopy,
  killCopy,
  restoreCopy,
  startCopy,
  sweepCopies,
  type CopySource,
} from './copy.ts';
import { listSnapshots, writeVerification } from './snapshots.ts';
import { portOf } from './take.ts';

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
  readonly monitor: Monitor;
};

export function createVerifications(machine: Machine, monitor: Monitor): Verifications {
  return { machine, monitor };
}

/** The backup to verify. `key`: the service's primary, which a local copy is compared with. */
export type Subject = CopySource & { readonly key: string };

/** How far the service has written at least, and the sizes of its catalogs at this moment. */
type Before = { position: bigint; catalogs: CatalogSizes | null };

/** A backup that is brought, restored and checked. */
export type BackupCheck = Readonly<{
  copy: InstancePaths;
  /** Brings the backup, as a step of its own; absent: it is there. */
  fetch?: (show: (line: string) => void) => Promise<string>;
  subject: () => Promise<Subject>;
  before: (subject: Subject) => Promise<Before>;
  comparesCatalogs: boolean;
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
): Promise<Verification> {
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
    };
    const verification = await restoreAndCheck(machine, check, runStep, signal);
    // The data that was read may have been seeded again meanwhile: then the result says nothing.
    if (!verification.succeeded && machine.layout.primaryOf(spec.id) !== primary)
      throw new Error(`member ${primary} is no longer the primary: verify the backup again`);
    await writeVerification(paths, snapshot.id, verification);
    return verification;
  } finally {
    signal.removeEventListener('abort', interrupt);
    await discardCopy(machine, copy);
  }
}

/** A check that failed; its result is recorded. */
class Failed extends Error {}

/**
 * The time from the begin of the restore to accepting connections, and the point in time that was
 * reached; null: neither was.
 */
type Recovery = { seconds: number | null; pointMs: number | null };
type Checks = Verification['checks'];

const FETCH_STEP = 'fetch from the repository';
export const VERIFICATION_STEPS: readonly string[] = Object.values(VERIFICATION_STEP);

/**
 * Restores a backup as a copy and checks it. Who calls it removes the copy.
 *
 * @throws RepositoryProblem when the repository of the backup does not answer
 */
export async function restoreAndCheck(
  machine: Machine,
  { copy, fetch, subject: subjectOf, before: observe, comparesCatalogs }: BackupCheck,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verification> {
  const begunMs = Date.now();
  const checks: Checks = [];
  const recovery: Recovery = { seconds: null, pointMs: null };
  const check = (name: string, work: NonNullable<BackupCheck['fetch']>): Promise<void> =>
    runStep(name, (show) => runCheck(name, () => work(show), checks, signal));
  try {
    if (fetch !== undefined) await check(FETCH_STEP, fetch);
    const subject = await subjectOf();
    await check(VERIFICATION_STEP.restore, () => restoreCopy(machine, subject));
    const before = await observe(subject);
    await check(VERIFICATION_STEP.replay, async () => {
      await startCopy(machine, subject, signal);
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
    if (comparesCatalogs)
      await check(VERIFICATION_STEP.catalogs, () => compareWithService(subject, before.catalogs));
    await check(VERIFICATION_STEP.relations, () => checkRelations(copy, signal));
    await check(VERIFICATION_STEP.pages, async () => {
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
      const detail = error instanceof Error ? error.message : String(error);
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
async function observeService(monitor: Monitor, subject: Subject): Promise<Before> {
  try {
    // A commit that users do not see: recovery has to reach it.
    const [mark] = await monitor.query<{ position: string }>(
      subject.key,
      "select pg_logical_emit_message(true, 'howdah', 'verify')::text as position",
    );
    const catalogs = await catalogsOf(subject).catch(() => null);
    return { position: parseLsn(mark?.position ?? '0/0'), catalogs };
  } catch {
    return { position: await lastCheckpoint(subject.paths.data), catalogs: null }; // it does not run, or not at this moment
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

async function endOfReplay(client: Client): Promise<{ position: bigint; lastCommitMs: number }> {
  const { rows } = await client.query<{ position: string | null; committed: Date | null }>(
    'select pg_last_wal_replay_lsn()::text as position, pg_last_xact_replay_timestamp() as committed',
  );
  return {
    position: parseLsn(rows[0]?.position ?? '0/0'),
    lastCommitMs: rows[0]?.committed?.getTime() ?? 0,
  };
}
