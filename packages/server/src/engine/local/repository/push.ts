/** Pushes archived WAL to a repository, and finds out how far all commits are there. */
import { basename, join } from 'node:path';
import { run } from '../../../lib/run.ts';
import type { Repository } from '../../../repository/repository.ts';
import type { InstancePaths } from '../host/layout.ts';
import { chown, rm, writeFile } from '../host/root-files.ts';
import { entryExists, missingOrUnsafe, openForEditing, readBytes } from '../host/service-files.ts';
import { UnsafeEntry } from '../host/service-directory.ts';
import { usedBytes } from '../host/zeros.ts';
import { beginsInRecord, firstCommitMs, lastCommitMs } from '../postgres/wal.ts';
import {
  followingWalFile,
  holdsItsName,
  isWalFile,
  nextWalFile,
  timelineHistory,
  WAL_FILE_BYTES,
  walFilesIn,
} from '../postgres/wal-files.ts';
import type { ShipContext } from './context.ts';
import { makeSpool, spoolOf } from './spool.ts';
import { runForService } from './stanza.ts';
import {
  isBeyondGap,
  noteGap,
  pendingFiles,
  writeState,
  type KnownBackup,
  type ShipState,
} from './state.ts';

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
export async function pushWal(
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
