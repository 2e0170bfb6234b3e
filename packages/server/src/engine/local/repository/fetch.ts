/** Brings the backups of a service back from a repository. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { listFiles } from '../../../repository/objects.ts';
import { isOfDamage, type PgBackRestError } from '../../../repository/problem.ts';
import { RepositoryProblem, type Repository } from '../../../repository/repository.ts';
import { serviceOf } from '../../../repository/stanzas.ts';
import { renameDurably } from '../../../lib/durable-files.ts';
import { run } from '../../../lib/run.ts';
import type { Snapshot } from '../backup/snapshots.ts';
import { writeOwned } from '../backup/running-clone.ts';
import { makeCloneable, removeTree } from '../host/clone.ts';
import { flushFileSystem } from '../host/flush.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Owner } from '../host/users.ts';
import { giveTree } from '../host/ownership.ts';
import { chown, mkdir, rename, writeFile } from '../host/root-files.ts';
import { assertSpaceFor } from '../host/space.ts';
import type { ShipContext } from './state.ts';
import { fetchWal, spoolFor, type Fetch, type FetchTarget } from './fetch-wal.ts';
import { makeFetchSpool, removeSpool } from './spool.ts';
import { listBackups, runForService, type StoredBackup } from './stanza.ts';

/** Data of many files on a slow disk. */
const FIND_DEADLINE_MS = 600_000;

/**
 * Fetches the backup that a point in time is restored from, and the WAL up to that point. Snapshot
 * and archive are then as if they had never been lost: forks, verification and recovery use them.
 * It goes on where an interrupted call ended.
 *
 * @param stanza of the data of a service
 * @param into the service that gets them; its root exists
 * @param owner the owner of the files
 * @param progress called with a line for the operation
 * @returns the snapshot, and whether the WAL has a commit after the point in time
 * @throws RepositoryProblem; what `signal` was aborted with
 */
export async function fetchBackup(
  context: ShipContext,
  stanza: string,
  repository: Repository,
  into: InstancePaths,
  owner: Owner | null,
  target: FetchTarget,
  progress: (line: string) => void,
  signal: AbortSignal,
): Promise<{ snapshot: Snapshot; isReached: boolean; dataBytes: number; label: string }> {
  const fetch = { context, stanza, repository, into, owner, target, progress, signal };
  const backups = choose(await listBackups(context, stanza, repository), fetch);
  await makeDirectories(fetch);
  const backup = await fetchNewest(fetch, backups);
  const kept = join(into.snapshots, backup.snapshot);
  const files = await listFiles(context.program, repository, `archive/${stanza}`);
  const isReached = await fetchWal(fetch, backup, files, join(kept, 'data'));
  const { facts: snapshot, dataBytes, label } = backup;
  return { snapshot, isReached, dataBytes, label };
}

/** The backups that are not later than the target, newest first. @throws RepositoryProblem: none */
function choose(
  backups: readonly StoredBackup[],
  { stanza, repository, target }: Fetch,
): StoredBackup[] {
  const found =
    target === 'newest' ? [...backups] : backups.filter(({ takenMs }) => takenMs <= target.timeMs);
  if (found.length > 0) return found;
  const what = `the repository ${repository.name} has no backup of service ${serviceOf(stanza)}`;
  const oldest = backups.at(-1);
  if (oldest === undefined || target === 'newest')
    throw new RepositoryProblem(`${what}; howdah repo check says whether it is the right one`);
  const [asked, first] = [target.timeMs, oldest.takenMs].map((ms) => new Date(ms).toISOString());
  throw new RepositoryProblem(`${what} from before ${asked}; choose a time from ${first} on`);
}

/**
 * Fetches the newest backup. Where the repository has lost files of it, the one before takes its
 * place: with the WAL since then the same state is restored.
 *
 * @throws RepositoryProblem of the newest one
 */
async function fetchNewest(fetch: Fetch, backups: readonly StoredBackup[]): Promise<StoredBackup> {
  let problem: PgBackRestError | null = null;
  for (const backup of backups) {
    const kept = join(fetch.into.snapshots, backup.snapshot);
    try {
      if (!existsSync(kept)) await fetchData(fetch, backup, kept);
      return backup;
    } catch (error) {
      if (!isOfDamage(error)) throw error;
      problem ??= error;
      fetch.progress(`backup of ${new Date(backup.takenMs).toISOString()}: ${error.message}`);
    }
  }
  throw problem ?? new RepositoryProblem('there is no backup');
}

async function makeDirectories({ into, owner }: Fetch): Promise<void> {
  await mkdir(into.snapshots, { recursive: true, mode: 0o700 });
  if (existsSync(into.archive)) return;
  await mkdir(into.archive, { mode: 0o700 });
  if (owner !== null) await chown(into.archive, owner.uid, owner.gid);
}

/** Restores the data of a backup beside, and makes a snapshot of it. */
async function fetchData(fetch: Fetch, backup: StoredBackup, kept: string): Promise<void> {
  const { context, owner } = fetch;
  const { cloneMethod } = context.machine;
  const spool = spoolFor(fetch);
  // An interrupted call may have left files of another backup.
  if (!existsSync(join(spool, backup.label))) await removeSpool(context, spool);
  await makeFetchSpool(context, spool);
  await writeFile(join(spool, backup.label), '');
  const data = join(spool, 'data');
  if (!existsSync(data)) {
    await restore(fetch, backup, `${data}.new`);
    await refuseLinks(fetch.repository, `${data}.new`);
    await rename(`${data}.new`, data);
  }
  if (owner !== null) await giveTree(data, owner);
  if (backup.backupLabel !== null)
    await writeOwned(owner, join(data, 'backup_label'), backup.backupLabel);
  const unfinished = `${kept}.new`;
  await removeTree(unfinished, cloneMethod);
  await mkdir(unfinished, { mode: 0o700 });
  await rename(data, join(unfinished, 'data'));
  await writeFile(join(unfinished, 'snapshot.json'), JSON.stringify(backup.facts), { flush: true });
  await flushFileSystem(unfinished);
  await renameDurably(unfinished, kept);
  await removeSpool(context, spool);
}

/** Refuses restored data with anything but directories and files: it was not made of a snapshot. */
export async function refuseLinks({ name }: Repository, data: string): Promise<void> {
  const others = ['!', '-type', 'f', '!', '-type', 'd'];
  const several = ['-type', 'f', '-links', '+1'];
  const found = await run(
    'find',
    [data, '-xdev', '(', ...others, '-o', ...several, ')', '-print', '-quit'],
    { deadlineMs: FIND_DEADLINE_MS },
  );
  if (found === '') return;
  throw new RepositoryProblem(
    `the repository ${name} has a backup with links or special files: ` +
      'it was not made by Howdah, and is not restored',
  );
}

/** The directory that pgBackRest restores into, or goes on in: without a manifest it does not. */
async function makeTarget({ context }: Fetch, data: string, neededBytes: number): Promise<void> {
  const { user } = context.program;
  if (existsSync(join(data, 'backup.manifest')) || existsSync(join(data, 'PG_VERSION'))) return;
  await removeTree(data, context.machine.cloneMethod);
  await assertSpaceFor(neededBytes, dirname(data));
  await makeCloneable(data, context.machine.cloneMethod);
  if (user !== null) await chown(data, user.uid, user.gid);
}

async function restore(fetch: Fetch, backup: StoredBackup, data: string): Promise<void> {
  const { context, stanza, repository, progress, signal } = fetch;
  await makeTarget(fetch, data, backup.dataBytes);
  const taken = new Date(backup.takenMs).toISOString();
  const megabytes = Math.ceil(backup.dataBytes / 1e6);
  let shownPercent = -10;
  await runForService(context, stanza, repository, {
    command: ['restore', '--type=none', `--set=${backup.label}`],
    asked: 'give back a backup',
    options: { 'pg1-path': data },
    writes: data,
    signal,
    onLine: (line) => {
      const percent = Number(/restore file .*, ([\d.]+)%\)/.exec(line)?.[1] ?? '0');
      if (percent < shownPercent + 10) return;
      shownPercent = percent;
      progress(`backup of ${taken}: ${Math.floor(percent)} % of ${megabytes} MB`);
    },
  });
}
