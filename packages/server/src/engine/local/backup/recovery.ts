/**
 * How a fork, a restored backup or a standby recovers: the settings of the recovery, and the WAL
 * that it reads.
 */
import { join } from 'node:path';
import { assertSpaceFor } from '../host/space.ts';
import type { InstancePaths } from '../host/layout.ts';
import { readLogs } from '../../postgres/logs.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Owner } from '../host/users.ts';
import { isErrno, noneOf } from '../../../lib/processes.ts';
import { chown, mkdir } from '../host/root-files.ts';
import { quoted } from '../../../domain/postgres/settings.ts';
import { findServer } from '../postgres/server.ts';
import { copyInto, entryExists, listEntries, statEntry } from '../../../lib/untrusted-files.ts';
import {
  endOfRecord,
  endOfWal,
  newestTimeline,
  parseLsn,
  walFileName,
} from '../../postgres/data/wal.ts';
import {
  isWalFile,
  nextWalFile,
  isHistory,
  entriesOf,
  holdsItsName,
} from '../../postgres/data/wal-files.ts';
import { chooseSnapshot, listSnapshots } from './snapshots.ts';
import { writeOwned } from './running-clone.ts';
import { reach } from './window.ts';
import { forkRecoveryConf } from '../../postgres/recovery-conf.ts';

/**
 * Gives a data directory the WAL that a service has written from a file on, of whichever timeline,
 * archived or not yet, and the history of its timelines.
 *
 * @param first null: all there is
 */
export async function copyWalFrom(
  machine: Machine,
  owner: Owner | null,
  { data, archive }: InstancePaths,
  first: string | null,
  target: string,
): Promise<void> {
  const inPlace = join(data, 'pg_wal');
  const isNeeded = (name: string): boolean =>
    isHistory(name) || (isWalFile(name) && name.slice(8) >= (first ?? '').slice(8));
  // In this order: a file goes from here to the archive, and is missed in neither.
  const places = [inPlace, archive].map(async (directory) =>
    (await entriesOf(directory)).filter(isNeeded),
  );
  const [there = [], archived = []] = await Promise.all(places);
  const names = [...new Set([...archived, ...there])].toSorted();
  if (machine.cloneMethod === 'copy') {
    const found = names.map(
      (name) => statEntry(join(archive, name)) ?? statEntry(join(inPlace, name)),
    );
    await assertSpaceFor(
      found.reduce((sum, entry) => sum + (entry?.blocks ?? 0) * 512, 0),
      target,
    );
  }
  // A snapshot of a server that ran comes without it.
  const status = join(target, 'pg_wal', 'archive_status');
  await mkdir(status, { recursive: true, mode: 0o700 });
  if (owner !== null) await chown(status, owner.uid, owner.gid);
  for (const name of names) {
    const to = join(target, 'pg_wal', name);
    const copied = await copyNeeded(join(archive, name), join(inPlace, name), to, name, owner);
    if (!copied) continue;
    // The file is the parent's to archive, not the fork's.
    await writeOwned(owner, join(status, `${name}.done`), '');
  }
}

/**
 * Copies a segment from the archive, else from its place. If it is archived during the copy, it may
 * be overwritten there: then the archive has it.
 *
 * @returns whether there is one
 */
async function copyNeeded(
  archived: string,
  inPlace: string,
  to: string,
  name: string,
  owner: Owner | null,
): Promise<boolean> {
  const copy = async (from: string): Promise<boolean> =>
    copyInto(from, to, owner).then(
      () => true,
      (error: unknown) => {
        if (isErrno(error, 'ENOENT')) return false;
        throw error;
      },
    );
  if (await copy(archived)) return true;
  const copied = (isHistory(name) || (await holdsItsName(inPlace, name))) && (await copy(inPlace));
  return (await copy(archived)) || copied;
}

const ENDED_EARLY = 'recovery ended before configured recovery target was reached';

/**
 * Called before a fork continues its recovery to a point in time. The recovery may have ended
 * because the parent had written nothing after the point (it was paused), or because the archive
 * has a gap after it. Then the fork gets all WAL up to there, and nothing that the parent has
 * written since. If there is more WAL, some of it could not be read at that moment: it is read
 * again, from the member that is the parent's primary now.
 *
 * @param lastFatal the last error of its server
 * @param writeMark has the parent commit something, if it runs: recovery needs a commit to stop at
 * @returns whether another start may get further
 */
export async function recoverOn(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  parent: InstancePaths,
  targetTime: string,
  lastFatal: string,
  writeMark: () => Promise<void>,
): Promise<boolean> {
  if (!lastFatal.includes(ENDED_EARLY)) return false;
  const query = {
    sinceMs: null,
    untilMs: null,
    cursor: null,
    search: ['redo done at'],
    severities: ['LOG'],
    limit: 1,
  };
  const [entry] = (await readLogs(paths.logs, query)).entries;
  const end = /redo done at ([0-9A-F]+\/[0-9A-F]+)/.exec(entry?.message ?? '')?.[1];
  const all =
    end !== undefined &&
    ((await isBeforeGap(parent, targetTime, parseLsn(end))) ||
      // A parent that runs writes more in a moment.
      ((await findServer(parent)) === null && (await isLastRecord(parent, parseLsn(end)))));
  if (!all) {
    await writeMark();
    // The last segment of the copy may have been copied while it was being written.
    const first = end === undefined ? null : walFileName(0, parseLsn(end));
    await copyWalFrom(machine, owner, parent, first, paths.data);
  }
  const conf = all
    ? `${forkRecoveryConf(null)}recovery_target_lsn = ${quoted(end)}\n`
    : forkRecoveryConf(targetTime);
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), conf);
  return true;
}

/** Whether a point in time is before a WAL gap, and within the last segment before the gap. */
async function isBeforeGap(
  parent: InstancePaths,
  targetTime: string,
  begin: bigint,
): Promise<boolean> {
  const base = chooseSnapshot(await listSnapshots(parent), Date.parse(targetTime));
  const { gap, latestMs } = base === null ? { gap: null, latestMs: 0 } : await reach(parent, base);
  // On whichever timeline.
  return (
    gap !== null &&
    Date.parse(targetTime) <= latestMs &&
    nextWalFile(walFileName(0, begin)).slice(8) === gap.slice(8)
  );
}

/** Whether a server has written nothing after the WAL record that begins here. */
async function isLastRecord({ data }: InstancePaths, begin: bigint): Promise<boolean> {
  const timeline = await newestTimeline(data);
  const end = await endOfRecord(data, timeline, begin);
  return end !== null && (await endOfWal(data, timeline, end, 1n)) <= end;
}

/**
 * Archives what a primary that died had written whole and not archived yet: those who follow it
 * take it for archived. To be done before its data is taken away.
 */
export async function archiveLeftovers(
  owner: Owner | null,
  { data, archive }: InstancePaths,
): Promise<void> {
  const status = await listEntries(join(data, 'pg_wal', 'archive_status')).catch(
    noneOf('ENOENT', 'ENOTDIR'),
  );
  const waiting = (status ?? []).flatMap(
    (entry) => /^([0-9A-F]{8}[0-9A-F.a-z]*)\.ready$/.exec(entry)?.[1] ?? [],
  );
  for (const name of waiting) {
    if (!entryExists(join(archive, name)))
      await copyInto(join(data, 'pg_wal', name), join(archive, name), owner, true);
  }
}

/** Takes away what a fork needed to recover: it archives for itself now. */
export async function forgetRecovery(owner: Owner | null, paths: InstancePaths): Promise<void> {
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
}
