/** Fetches WAL from a repository into the archive of a service. */
import { join, relative } from 'node:path';
import type { Repository } from '../../../repository/repository.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Owner } from '../host/users.ts';
import { copyInto, entryExists, readBytes } from '../../../lib/untrusted-files.ts';
import { rm } from '../host/root-files.ts';
import { lastCommitMs } from '../../postgres/data/wal.ts';
import {
  followingWalFile,
  isHistory,
  isWalFile,
  onItsTimeline,
  timelineHistory,
  WAL_FILE_BYTES,
} from '../../postgres/data/wal-files.ts';
import type { ShipContext } from './state.ts';
import { makeFetchSpool, makeSpool, removeSpool, spoolOf } from './spool.ts';
import { runForService, type StoredBackup } from './stanza.ts';

/** A moment, in ms since the epoch, or all that there is. */
export type FetchTarget = { timeMs: number } | 'newest';

/** A stanza whose backups are fetched, and the service that gets them. */
export type Fetch = Readonly<{
  context: ShipContext;
  stanza: string;
  repository: Repository;
  into: InstancePaths;
  owner: Owner | null;
  target: FetchTarget;
  progress: (line: string) => void;
  signal: AbortSignal;
}>;

/** The spool by the place that gets the backups: several may get those of the same service. */
export function spoolFor({ context, into }: Fetch): string {
  const place = relative(context.machine.layout.root, into.root).replaceAll('/', '-');
  return spoolOf(context, place, 'fetch');
}

/** The directory that pgBackRest writes WAL files to. */
const walSpoolFor = (fetch: Fetch): string => join(spoolFor(fetch), 'wal');

/** A network has a delay for each file. */
const GETS_AT_A_TIME = 4;
/** Lines for the operation are at least so many files apart. */
const SHOWN_EVERY = 64;

/**
 * Fetches the WAL from the begin of a backup on, along the newest timeline, as far as there is any:
 * to a commit after the point in time, which recovery needs to stop at.
 *
 * @param files of the archive of the repository, by their paths in it
 * @param data a data directory of the service
 * @returns whether there is a commit after the point in time
 * @throws RepositoryProblem
 */
export async function fetchWal(
  fetch: Fetch,
  { firstWal }: StoredBackup,
  files: readonly string[],
  data: string,
): Promise<boolean> {
  const { context, into, target, progress } = fetch;
  await makeFetchSpool(context, spoolFor(fetch));
  await makeSpool(context, walSpoolFor(fetch));
  const names = files
    // The repository's owner may be sending one now.
    .filter((file) => !file.endsWith('.pgbackrest.tmp'))
    .map((file) => (file.split('/').at(-1) ?? '').replace(/-[0-9a-f]{40}.*$/, ''));
  for (const name of names.filter(isHistory)) await fetchFile(fetch, data, name);
  const there = new Set(names.filter(isWalFile));
  const history = await timelineHistory(into, [...there].toSorted().at(-1) ?? firstWal);
  let count = 0;
  let next = onItsTimeline(firstWal, history);
  let isReached = false;
  while (!isReached && there.has(next)) {
    const batch: string[] = [];
    for (; batch.length < GETS_AT_A_TIME && there.has(next); next = followingWalFile(next, history))
      batch.push(next);
    const ends = await allEnded(batch.map((name) => fetchFile(fetch, data, name)));
    isReached = target !== 'newest' && ends.some((ms) => ms !== null && ms > target.timeMs);
    if (Math.floor(count / SHOWN_EVERY) < Math.floor((count + batch.length) / SHOWN_EVERY))
      progress(`${count + batch.length} WAL files`);
    count += batch.length;
  }
  progress(`${count} WAL files`);
  await removeSpool(context, spoolFor(fetch));
  return isReached;
}

/**
 * The results of work that is done at the same time. If some of it fails, the rest ends first: it
 * would remove the files of the next attempt.
 *
 * @throws the first error
 */
async function allEnded<T>(work: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(work);
  return Promise.all(work);
}

/** Fetches a file that the archive lacks. @returns the time of the last commit in it; null: none */
async function fetchFile(fetch: Fetch, data: string, name: string): Promise<number | null> {
  const { context, stanza, repository, into, owner, target, signal } = fetch;
  const archived = join(into.archive, name);
  if (!entryExists(archived)) {
    const spooled = join(walSpoolFor(fetch), name);
    await runForService(context, stanza, repository, {
      command: ['archive-get', name, spooled],
      asked: 'give back WAL',
      options: { 'pg1-path': data },
      readsAll: true,
      signal,
    });
    await copyInto(spooled, archived, owner, true);
    await rm(spooled);
  }
  return target === 'newest' || !isWalFile(name)
    ? null
    : lastCommitMs(await readBytes(archived, WAL_FILE_BYTES));
}
