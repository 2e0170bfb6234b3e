/** Brings the WAL and the backups of a service to a repository. */
import { basename, join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import { createTurns } from '../../../lib/turns.ts';
import type { Repository } from '../../../repository/repository.ts';
import type { RunStep } from '../../run-step.ts';
import { BACKUP_STEP, type WantedBackup } from '../../off-machine.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import type { InstancePaths } from '../host/layout.ts';
import { markerOf } from '../host/marker.ts';
import { pathCleaner } from '../path-cleaner.ts';
import { backUp, dueBackup, newestSnapshot, refreshBackups } from './backup.ts';
import {
  type ShipContext,
  type ShipPolicy,
  describeState,
  emptyState,
  readState,
  writeState,
  type OffMachine,
  type ShipState,
  isBeyondGap,
  noteGap,
  pendingFiles,
  type KnownBackup,
} from './state.ts';
import { removeSpool, spoolOf, makeSpool } from './spool.ts';
import { run } from '../../../lib/run.ts';
import { chown, rm, writeFile } from '../host/root-files.ts';
import {
  entryExists,
  missingOrUnsafe,
  openForEditing,
  readBytes,
  usedBytes,
} from '../../../lib/untrusted-files.ts';
import { UnsafeEntry } from '../../../lib/untrusted-directory.ts';
import { beginsInRecord, firstCommitMs, lastCommitMs } from '../../postgres/data/wal.ts';
import {
  followingWalFile,
  holdsItsName,
  isWalFile,
  nextWalFile,
  timelineHistory,
  WAL_FILE_BYTES,
  walFilesIn,
} from '../../postgres/data/wal-files.ts';
import { runForService } from './stanza.ts';

/** The data of a service, and the repository that it is shipped to. */
export type Shipment = Readonly<{
  context: ShipContext;
  id: string;
  /** The upgrade that has made the data; null: none has. */
  upgrade: string | null;
  repository: Repository;
  policy: ShipPolicy;
  signal: AbortSignal;
}>;

/** The state of a service in a repository changes in turn, while a backup is transferred. */
const inTurn = createTurns();

/** Changes the state of a service in a repository, and writes it also if that fails. */
export function changeState<T>(
  { context, id, upgrade, repository }: Omit<Shipment, 'policy'>,
  change: (state: ShipState, paths: InstancePaths) => Promise<T>,
): Promise<T> {
  const paths = context.machine.layout.service(id);
  return inTurn(paths.root, async () => {
    const state =
      (await readState(paths, repository.id, upgrade)) ?? emptyState(repository.id, upgrade);
    try {
      return await change(state, paths);
    } finally {
      await writeState(paths, state);
    }
  });
}

/** An error as users of the service read it. */
function problemText({ context }: Pick<Shipment, 'context'>, error: unknown): string {
  const clean = pathCleaner(context.machine.layout.root);
  return clean(messageOf(error));
}

/**
 * Pushes archived WAL that is not in the repository yet. The work is bounded. A fault of the
 * repository is in `problem`, and affects no database.
 *
 * @returns more: whether to call again at once
 * @throws what `signal` was aborted with
 */
export async function ship(
  shipment: Shipment,
): Promise<{ state: OffMachine; more: boolean; isBackupDue: boolean }> {
  return changeState(shipment, async (state, paths) => {
    let [more, isBackupDue] = [false, false];
    try {
      more = await push(shipment, state, paths);
      isBackupDue = (await dueBackup(paths, state, shipment.policy)) !== null;
      state.problem = null;
    } catch (error) {
      shipment.signal.throwIfAborted();
      state.problem = problemText(shipment, error);
    }
    return { state: await describeState(paths, state), more, isBackupDue };
  });
}

/**
 * Pushes all archived WAL of a service that has stopped.
 *
 * @returns whether the repository has it; true too if it has no backup of the service
 */
export function pushRest(shipment: Omit<Shipment, 'policy'>): Promise<boolean> {
  return changeState(shipment, async (state, paths) => {
    try {
      while (await push(shipment, state, paths));
    } catch (error) {
      state.problem = problemText(shipment, error);
    }
    const { backups, backlog } = await describeState(paths, state);
    return backups.length === 0 || backlog.files === 0;
  });
}

/** Pushes WAL, and notes how far all commits are there. @returns whether there is more */
async function push(
  { context, id, upgrade, repository, signal }: Omit<Shipment, 'policy'>,
  state: ShipState,
  paths: InstancePaths,
): Promise<boolean> {
  const stanza = stanzaOf(id, upgrade);
  if (state.backups.length === 0) await refreshBackups(context, id, repository, state);
  // Without a backup no WAL is of use, and there is no stanza to push it to.
  if (state.backups.length === 0) return false;
  let more = false;
  try {
    more = await pushWal(context, stanza, repository, paths, state, signal);
  } finally {
    await removeSpool(context, spoolOf(context, stanza, 'ship'));
  }
  const { layout } = context.machine;
  const { data } = layout.member(id, layout.primaryOf(id));
  const ms = more ? state.lastCommitMs : await safeTo(paths, data, state);
  // An upgrade may have exchanged the data meanwhile: its WAL says nothing of this state.
  if (ms !== null && isInPlace(paths, upgrade)) state.safeToMs = Math.max(ms, state.safeToMs ?? 0);
  return more;
}

/** Whether a service has this data, and its archive the WAL of it. */
function isInPlace(paths: InstancePaths, upgrade: string | null): boolean {
  const marker = markerOf(paths);
  return marker !== null && marker.exchange === null && marker.upgrade === upgrade;
}

/**
 * Backs the newest snapshot up, if that is due or asked for, as a step of an operation. WAL is
 * shipped meanwhile.
 *
 * @throws RepositoryProblem; what `signal` was aborted with
 */
export async function takeBackup(
  shipment: Shipment,
  wanted: WantedBackup,
  runStep: RunStep,
): Promise<void> {
  const { context, id, upgrade, repository, policy, signal } = shipment;
  const due = await changeState(shipment, async (state, paths) => {
    if (state.backups.length === 0) await refreshBackups(context, id, repository, state);
    const chosen = await (wanted === 'due'
      ? dueBackup(paths, state, policy)
      : newestSnapshot(paths, wanted));
    if (!isInPlace(paths, upgrade))
      throw new Error('its data is being exchanged by an upgrade: ask again when that is done');
    // The backup that failed is there: its end was not noticed, or another one has followed.
    if (chosen === null) state.backupProblem = null;
    return chosen;
  });
  if (due === null) return;
  const kind = due.type === 'full' ? 'full' : 'incremental';
  const taken = new Date(due.snapshot.takenMs).toISOString();
  const what = `${repository.name}: ${kind} backup of ${taken}`;
  try {
    await runStep(BACKUP_STEP, async (show) => {
      const progress = (percent: number): void => show(`${what}, ${percent} %`);
      const paths = context.machine.layout.service(id);
      const stanza = stanzaOf(id, upgrade);
      await backUp(context, stanza, repository, paths, due, progress, signal);
      return changeState(shipment, async (state) => {
        await refreshBackups(context, id, repository, state);
        state.backupProblem = null;
        const megabytes = Math.ceil((state.backups[0]?.storageBytes ?? 0) / 1e6);
        return `${what}, ${megabytes} MB in the repository`;
      });
    });
  } catch (error) {
    signal.throwIfAborted();
    await changeState(shipment, async (state) => {
      state.backupProblem = problemText(shipment, error);
    });
    throw error;
  }
}

// Pushes archived WAL to a repository, and finds out how far all commits are there.

/** A network has a delay for each file. */
const PUSHES_AT_A_TIME = 4;
/** Work for some ten seconds. */
const FILES_AT_ONCE = 64;
/** A file of 16 MB over a slow network. */
const PUSH_DEADLINE_MS = 600_000;
const HISTORY_MAX_BYTES = 1024 ** 2;
/** Smaller ends of zeros are not worth a change of the file. */
const LEAST_ZEROS_BYTES = 65_536;
/** Commits that do not wait for the disk are there after three rounds of the WAL writer. */
const ASYNCHRONOUS_MS = 1000;

/**
 * Pushes WAL that the repository lacks, in order. The work is bounded.
 *
 * @returns whether there is more
 * @throws RepositoryProblem; UnsafeEntry when something else has the name of a WAL file
 */
async function pushWal(
  context: ShipContext,
  stanza: string,
  repository: Repository,
  paths: InstancePaths,
  state: ShipState,
  signal: AbortSignal,
): Promise<boolean> {
  const pending = await pendingFiles(paths, state);
  const spool = spoolOf(context, stanza, 'ship');
  await makeSpool(context, spool);
  for (let at = 0; at < Math.min(pending.length, FILES_AT_ONCE); at += PUSHES_AT_A_TIME) {
    const names = pending.slice(at, at + PUSHES_AT_A_TIME);
    const results = await Promise.allSettled(
      names.map((name) =>
        pushFile(context, stanza, repository, join(paths.archive, name), join(spool, name), signal),
      ),
    );
    for (const [index, name] of names.entries()) {
      const result = results[index];
      // Only what all before it have been pushed counts.
      if (result === undefined || result.status === 'rejected') {
        await writeState(paths, state);
        throw result?.reason;
      }
      await recordPushed(paths, state, name, result.value);
    }
    await writeState(paths, state);
  }
  return pending.length > FILES_AT_ONCE;
}

/** @returns the time of the last commit in it */
async function pushFile(
  context: ShipContext,
  stanza: string,
  repository: Repository,
  from: string,
  spooled: string,
  signal: AbortSignal,
): Promise<number | null> {
  const isWal = isWalFile(basename(spooled));
  const contents = await readBytes(from, isWal ? WAL_FILE_BYTES : HISTORY_MAX_BYTES);
  if (isWal && contents.length !== WAL_FILE_BYTES)
    throw new UnsafeEntry(
      `${basename(spooled)} has ${contents.length} bytes; ${WAL_FILE_BYTES} belong there`,
    );
  await writeFile(spooled, contents, { mode: 0o600 });
  try {
    if (context.program.user !== null)
      await chown(spooled, context.program.user.uid, context.program.user.gid);
    await runForService(context, stanza, repository, {
      command: ['archive-push', spooled],
      asked: 'take WAL',
      deadlineMs: PUSH_DEADLINE_MS,
      signal,
    });
  } finally {
    await rm(spooled, { force: true });
  }
  if (!isWal) return null;
  await freeZeros(from, contents);
  return lastCommitMs(contents);
}

async function recordPushed(
  paths: InstancePaths,
  state: ShipState,
  name: string,
  committedMs: number | null,
): Promise<void> {
  if (!isWalFile(name)) {
    state.histories.push(name);
    return;
  }
  state.pushed[name.slice(0, 8)] = name;
  const { run } = state;
  const isGap = await isBeyondGap(paths, state, name);
  // Before what was pushed later commits are added: the gap is after the last one of before.
  if (isGap) noteGap(state);
  if (run === null || isGap) state.run = { first: name, last: name };
  // The rest of a timeline that the service has left is no part of the newest WAL.
  else if (name.slice(0, 8) >= run.last.slice(0, 8)) state.run = { first: run.first, last: name };
  state.lastCommitMs = Math.max(committedMs ?? 0, state.lastCommitMs ?? 0) || null;
}

/**
 * Gives back the disk space of a WAL file that was left early: its end is zeros, which need none.
 * The contents stay the same at every moment.
 */
async function freeZeros(path: string, contents: Buffer): Promise<void> {
  const used = usedBytes(contents);
  if (contents.length - used < LEAST_ZEROS_BYTES) return;
  const file = await openForEditing(path).catch(missingOrUnsafe);
  if (file === null) return;
  try {
    if ((await file.stat()).blocks * 512 <= used) return;
    const range = ['--offset', String(used), '--length', String(contents.length - used)];
    // Not every file system can.
    await run('fallocate', ['--punch-hole', ...range, '/proc/self/fd/0'], { input: file.fd }).catch(
      () => undefined,
    );
  } finally {
    await file.close();
  }
}

/**
 * The moment up to which every acknowledged commit is in the repository: just before the first
 * commit that is not, or now. A commit that follows in the WAL was acknowledged later.
 *
 * @param data the data directory of the primary
 * @returns null: unknown
 */
export async function safeTo(
  paths: InstancePaths,
  data: string,
  state: ShipState,
): Promise<number | null> {
  const { run } = state;
  const [newest] = state.backups;
  if (run === null && newest?.isInitial === true) return safeToWithoutWal(paths, data, newest);
  // A gap is between the newest backup and what was pushed: only a later backup reaches that.
  if (run === null || newest === undefined || newest.firstWal.slice(8) < run.first.slice(8))
    return null;
  const nowMs = Date.now();
  // In this order: a file goes from here to the archive, and is missed in neither.
  const inPlace = await walFilesIn(join(data, 'pg_wal'));
  const archived = (await pendingFiles(paths, state)).find(isWalFile);
  const known = [...inPlace, ...(archived === undefined ? [] : [archived])].toSorted().at(-1);
  const next = followingWalFile(run.last, await timelineHistory(paths, known ?? run.last));
  const path = join(
    archived === undefined ? join(data, 'pg_wal') : paths.archive,
    archived ?? next,
  );
  if (archived === undefined && !(inPlace.has(next) && (await holdsItsName(path, next))))
    return nowMs - ASYNCHRONOUS_MS;
  const contents = await readBytes(path, WAL_FILE_BYTES).catch(missingOrUnsafe);
  if (contents === null) return state.lastCommitMs;
  // The record may be a commit that ends there.
  if (beginsInRecord(contents)) return state.lastCommitMs;
  const first = firstCommitMs(contents, archived ?? next);
  if (first !== null) return first - 1;
  // A file without commits says nothing of those after it.
  return archived === undefined ? nowMs - ASYNCHRONOUS_MS : state.lastCommitMs;
}

/**
 * As {@link safeTo}, before any WAL was pushed. An idle server archives none; all of its commits
 * are later than its initial snapshot. After another snapshot WAL follows within archive_timeout.
 */
async function safeToWithoutWal(
  { archive }: InstancePaths,
  data: string,
  { firstWal, takenMs }: KnownBackup,
): Promise<number> {
  const nowMs = Date.now();
  const path = join(data, 'pg_wal', firstWal);
  const contents = await readBytes(path, WAL_FILE_BYTES).catch(missingOrUnsafe);
  const next = nextWalFile(firstWal);
  const goesOn =
    entryExists(join(archive, firstWal)) || (await holdsItsName(join(data, 'pg_wal', next), next));
  if (contents === null || goesOn) return takenMs;
  const first = firstCommitMs(contents, firstWal, takenMs);
  return first === null ? nowMs - ASYNCHRONOUS_MS : first - 1;
}
