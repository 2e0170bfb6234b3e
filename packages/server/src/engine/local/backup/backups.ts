/**
 * Snapshots, the WAL archive, and what is made of them: forks of now, of the last snapshot, of a point in time.
 *
 * A snapshot is a clone of the data directory that starts by itself: of one moment where the file system can, else taken under
 * pg_backup_start/stop, with the WAL that makes it consistent.
 * The first one costs nothing: a new service is its template with another system identifier, which is all that is recorded.
 */
import { lstat, readdir, realpath } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { Client } from 'pg';
import type { Backups, Verification } from '@howdah/contract';
import type { BackupPolicy } from '../../../config.ts';
import { renameDurably, writeDurably } from '../../../lib/durable.ts';
import { EngineUnavailable, type Origin } from '../../engine.ts';
import {
  assertSpaceFor,
  bytesBelow,
  cloneTree,
  isSubvolume,
  removeTree,
  type Exclusions,
} from '../host/clone.ts';
import { portIn } from '../postgres/files.ts';
import { flushFileSystem } from '../host/flush.ts';
import { readControl, writeSystemIdentifier } from '../postgres/identity.ts';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import { readLogs } from '../postgres/logs.ts';
import type { Machine, Owner } from '../host/machine.ts';
import { isErrno, noneOf, readOrNull } from '../../../lib/processes.ts';
import { chown, mkdir, readFile, rename, rmdir, writeFile } from '../host/root-files.ts';
import { quoted } from '../postgres/settings.ts';
import { findServer, phaseOf } from '../postgres/server.ts';
import {
  copyInto,
  entryExists,
  listEntries,
  missingOrUnsafe,
  openFile,
  readBytes,
  readTextIfSafe,
  removeEntry,
  statEntry,
  UnsafeEntry,
  writeText,
} from '../host/service-files.ts';
import { closeSession, openSuperuserSession } from '../postgres/superuser.ts';
import {
  endOfRecord,
  endOfWal,
  lastCommitMs,
  newestTimeline,
  parseLsn,
  walFileName,
} from '../postgres/wal.ts';

/** What is asked for cannot be done at this moment, and will be in the next. */
export class NotYet extends Error {}

/** What is known of a snapshot; it stands beside its data. */
export type Snapshot = {
  id: string;
  kind: 'initial' | 'scheduled';
  /** Its state is that of this moment, in ms since the epoch; it can be rolled forward from here. */
  takenMs: number;
  /** The first WAL file that rolling forward needs. */
  firstWal: string;
  /** How far the WAL had been written; the same as now: nothing has been written since. */
  walPosition: string;
  storageBytes: number;
  /** Of the initial snapshot: the template, and the system identifier of the service. */
  template: string | null;
  systemIdentifier: string | null;
};

/** A snapshot that is there. */
export type KeptSnapshot = Snapshot & {
  /** What became of restoring it the last time; null: nobody has tried. */
  verification: Verification | null;
};

/** What a clone of a data directory leaves behind: what belongs to the running server ([PG] 26.3.4). */
const OF_THE_SERVER: Exclusions = {
  contentsOf: [
    'pg_replslot',
    'pg_dynshmem',
    'pg_notify',
    'pg_serial',
    'pg_snapshots',
    'pg_stat_tmp',
    'pg_subtrans',
    'pg_wal/archive_status',
  ],
  files: [
    'postmaster.pid',
    'postmaster.opts',
    'backup_label.old',
    'recovery.signal',
    'standby.signal',
    'postgresql.auto.conf',
  ],
  vanished: false,
};
/** Of a server that runs. */
const OF_THE_SERVER_AND_WAL: Exclusions = {
  ...OF_THE_SERVER,
  contentsOf: [...OF_THE_SERVER.contentsOf, 'pg_wal'],
  vanished: true,
};

// ── taking ───────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Records the initial snapshot of a service. It is flushed before the service is READY, with all of the clone.
 *
 * @param unfinished the instance being made
 */
export async function recordInitialSnapshot(
  unfinished: InstancePaths,
  template: string,
  systemIdentifier: bigint,
): Promise<void> {
  const wal = (await listEntries(join(unfinished.data, 'pg_wal'))).filter(isWalFile).toSorted();
  const takenMs = Date.now();
  const id = snapshotId(takenMs);
  await mkdir(join(unfinished.snapshots, id), { mode: 0o710 });
  await writeSnapshot(unfinished, {
    id,
    kind: 'initial',
    takenMs,
    firstWal: wal[0] ?? '',
    walPosition: '',
    storageBytes: 0,
    template,
    systemIdentifier: String(systemIdentifier),
  });
}

/** Takes a snapshot of a running service. */
export async function takeSnapshot(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
): Promise<Snapshot> {
  const id = snapshotId(Date.now());
  const unfinished = join(paths.snapshots, `${id}.new`);
  await removeTree(unfinished, machine.cloneMethod);
  await mkdir(unfinished, { mode: 0o710 });
  if (owner !== null) await chown(unfinished, 0, owner.gid);
  try {
    // Begun again from a checkpoint, it needs nothing of the archive from before: there may be a gap in it.
    const taken = await cloneRunning(machine, owner, paths, join(unfinished, 'data'), true);
    const snapshot: Snapshot = {
      id,
      kind: 'scheduled',
      takenMs: taken.endedMs,
      firstWal: taken.firstWal,
      walPosition: taken.walPosition,
      storageBytes: await bytesBelow(join(unfinished, 'data')),
      template: null,
      systemIdentifier: null,
    };
    await writeFile(join(unfinished, 'snapshot.json'), JSON.stringify(snapshot), { flush: true });
    await flushFileSystem(unfinished);
    // Older ones go because of it.
    await renameDurably(unfinished, join(paths.snapshots, id));
    return snapshot;
  } catch (error) {
    await removeTree(unfinished, machine.cloneMethod);
    throw error;
  }
}

type Taken = { endedMs: number; firstWal: string; walPosition: string };

/**
 * Clones the data directory of a running server so that the clone recovers to this moment, or a later one, by itself.
 *
 * @param owner who owns the clone
 * @param atCheckpoint whether its recovery begins with a checkpoint made for it, where it could do with an older one
 */
export async function cloneRunning(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  target: string,
  atCheckpoint = false,
): Promise<Taken> {
  const where = {
    server: paths,
    port: await portOf(paths),
    name: 'howdah backup',
    limitMs: BACKUP_LIMIT_MS,
  };
  const client = await openSuperuserSession(where).catch((error: unknown) => {
    throw new EngineUnavailable(
      `no connection to the server of ${paths.root}: ${error instanceof Error ? error.message : String(error)}`,
      {
        cause: error,
      },
    );
  });
  try {
    // What was made before btrfs-progs were there is no subvolume, and is cloned file by file.
    return machine.cloneMethod === 'subvolume' && (await isSubvolume(paths.data))
      ? await cloneAtOnce(client, machine, owner, paths, target, atCheckpoint)
      : await cloneDuringBackup(client, machine, owner, paths, target);
  } finally {
    await closeSession(client);
  }
}
/** A checkpoint of a large server writes for minutes. */
const BACKUP_LIMIT_MS = 1_800_000;

/** With more WAL than this since its last checkpoint, a server is given one before it is cloned: the clone's recovery would take longer. */
const REPLAY_MAX_BYTES = 64 * 1024 ** 2;

/**
 * All files at the same moment: what a crash of the machine would leave, less what the server has not written yet. The clone recovers as
 * after one ([PG] 25.2: a consistent snapshot of the file system); it needs no backup, and the parent mostly not even a checkpoint.
 */
async function cloneAtOnce(
  client: Client,
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  target: string,
  atCheckpoint: boolean,
): Promise<Taken> {
  // On the timeline of a checkpoint from before its promotion, a server's log cannot be followed from file to file.
  const { rows } = await client.query<{ old: boolean }>(
    `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) > $1
            or left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) <> left(redo_wal_file, 8) as old
     from pg_control_checkpoint()`,
    [REPLAY_MAX_BYTES],
  );
  if (atCheckpoint || rows[0]?.old !== false) await client.query('checkpoint');
  // Its commit brings what others have committed without waiting for the disk into the WAL files.
  await client.query("select pg_logical_emit_message(true, 'howdah', 'clone')");
  const state = await client.query<{ first: string; lsn: string }>(
    'select redo_wal_file as first, pg_current_wal_flush_lsn()::text as lsn from pg_control_checkpoint()',
  );
  await cloneTree(paths.data, target, machine.cloneMethod, owner, OF_THE_SERVER);
  const [{ first, lsn } = { first: '', lsn: '' }] = state.rows;
  return { endedMs: Date.now(), firstWal: first, walPosition: lsn };
}

/** File by file while the server writes: the WAL of that time makes them fit together. */
async function cloneDuringBackup(
  client: Client,
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  target: string,
): Promise<Taken> {
  await assertSpace(machine, paths);
  await client.query("select pg_backup_start('howdah', fast => true)");
  await cloneTree(paths.data, target, machine.cloneMethod, owner, OF_THE_SERVER_AND_WAL);
  const { rows } = await client.query<{ labelfile: string; lsn: string; wal: string }>(
    'select labelfile, lsn::text as lsn, pg_walfile_name(lsn) as wal from pg_backup_stop(wait_for_archive => false)',
  );
  const [stopped] = rows;
  const firstWal = /\(file ([0-9A-F]{24})\)/.exec(stopped?.labelfile ?? '')?.[1];
  if (stopped === undefined || firstWal === undefined)
    throw new Error('pg_backup_stop answered without a label');
  await copyWalFiles(owner, paths, firstWal, stopped.wal, target);
  await writeOwned(owner, join(target, 'backup_label'), stopped.labelfile);
  return { endedMs: Date.now(), firstWal, walPosition: stopped.lsn };
}

/** Copies WAL files of a running server into the data directory of its clone, from one to another. */
export async function copyWalFiles(
  owner: Owner | null,
  paths: InstancePaths,
  first: string,
  last: string,
  target: string,
): Promise<void> {
  // Their names come from the server, which may say anything; they become paths.
  if (!isWalFile(first) || !isWalFile(last)) throw new Error('the server named no WAL files');
  for (let wal = first; wal <= last; wal = nextWalFile(wal))
    await copyWal(owner, paths, wal, target);
}

/** A WAL file that is still in place, or has been archived meanwhile. */
async function copyWal(
  owner: Owner | null,
  paths: InstancePaths,
  wal: string,
  target: string,
): Promise<void> {
  const to = join(target, 'pg_wal', wal);
  try {
    await copyInto(join(paths.data, 'pg_wal', wal), to, owner);
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error;
    await copyInto(join(paths.archive, wal), to, owner);
  }
}

async function assertSpace(machine: Machine, paths: InstancePaths): Promise<void> {
  if (machine.cloneMethod === 'copy')
    await assertSpaceFor(await bytesBelow(paths.data), paths.root);
}

// ── forking ──────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Makes the data directory of a fork. What it starts with recovers by itself; for a point in time, from the parent's archive.
 *
 * @returns a line for the operation
 * @throws Error when the parent has nothing that the fork could begin with, or its archive has a gap before the point in time
 */
export async function forkData(
  machine: Machine,
  owner: Owner | null,
  parent: InstancePaths,
  target: string,
  origin: Origin,
  writeMark: () => Promise<void>,
): Promise<string> {
  if (origin.strategy === 'NOW') return forkNow(machine, owner, parent, target);
  const snapshots = await listSnapshots(parent);
  if (origin.strategy === 'LAST_SNAPSHOT') {
    const [newest] = snapshots;
    if (newest === undefined) return forkNow(machine, owner, parent, target); // not even its first snapshot: it is as young as that
    await materialise(machine, owner, parent, newest, target);
    return `snapshot of ${new Date(newest.takenMs).toISOString()}, by ${machine.cloneMethod}`;
  }
  const targetTime = origin.targetTime ?? '';
  const base = chooseSnapshot(snapshots, Date.parse(targetTime));
  if (base === null) throw new Error(`no snapshot of ${parent.root} is older than ${targetTime}`);
  // Recovery stops before the first commit after the point in time: there has to be one.
  await writeMark();
  const { gap, latestMs } = await reach(parent, base);
  if (gap !== null && latestMs < Date.parse(targetTime)) {
    throw new Error(
      `WAL file ${gap} is missing from the archive: nothing after ${new Date(latestMs).toISOString()} can be reached`,
    );
  }
  await materialise(machine, owner, parent, base, target);
  await copyWalFrom(machine, owner, parent, base.firstWal, target);
  await writeOwned(owner, join(target, 'postgresql.auto.conf'), forkRecoveryConf(targetTime));
  await writeOwned(owner, join(target, 'recovery.signal'), '');
  return `snapshot of ${new Date(base.takenMs).toISOString()}, by ${machine.cloneMethod}, to be rolled forward to ${targetTime}`;
}

async function forkNow(
  machine: Machine,
  owner: Owner | null,
  parent: InstancePaths,
  target: string,
): Promise<string> {
  const begun = Date.now();
  const server = await findServer(parent);
  if (server === null) {
    await assertSpace(machine, parent);
    const before = await readControl(parent.data);
    await cloneTree(parent.data, target, machine.cloneMethod, owner, OF_THE_SERVER);
    // Every start and every end of a server is noted in its control file.
    const lay =
      (await findServer(parent)) === null && (await readControl(parent.data)).equals(before);
    if (!lay) throw new NotYet('its parent was started meanwhile');
    await writeOwned(owner, join(target, 'postgresql.auto.conf'), '');
    return `by ${machine.cloneMethod} of the paused parent in ${Date.now() - begun} ms`;
  }
  if ((await phaseOf(parent)) !== 'ready') throw new NotYet('its parent is starting or stopping');
  try {
    await cloneRunning(machine, owner, parent, target);
  } catch (error) {
    // A parent that was stopped meanwhile is cloned when it lies still.
    const still = await findServer(parent);
    if (still === null || (await phaseOf(parent)) !== 'ready')
      throw new NotYet('its parent is starting or stopping', { cause: error });
    throw error;
  }
  await writeOwned(owner, join(target, 'postgresql.auto.conf'), '');
  return `by ${machine.cloneMethod} of the running parent in ${Date.now() - begun} ms`;
}

/**
 * The snapshot from which a point in time is restored: the newest that is not later. An older one
 * leads no further, see {@link reachable}. Forks and pruning use this choice.
 *
 * @param snapshots newest first
 * @returns null: there is none
 */
export function chooseSnapshot<T extends Pick<Snapshot, 'takenMs'>>(
  snapshots: readonly T[],
  targetMs: number,
): T | null {
  return snapshots.find(({ takenMs }) => takenMs <= targetMs) ?? null;
}

/** Makes a data directory of a snapshot. */
export async function materialise(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  snapshot: Snapshot,
  target: string,
): Promise<void> {
  if (snapshot.template === null) {
    await cloneTree(join(paths.snapshots, snapshot.id, 'data'), target, machine.cloneMethod, owner);
  } else {
    await cloneTree(
      instancePaths(join(machine.layout.templates, snapshot.template)).data,
      target,
      machine.cloneMethod,
      owner,
    );
    await writeSystemIdentifier(target, BigInt(snapshot.systemIdentifier ?? '0'));
  }
  await writeOwned(owner, join(target, 'postgresql.auto.conf'), '');
}

/**
 * Rolls forward from the parent's archive, then from the WAL it has not archived yet. A file that was archived while it was copied may
 * have been written over meanwhile: then, and when it is gone, the archive is asked once more.
 *
 * @param data the data directory that rolls forward; commands run in it, and relative paths need no quoting
 */
export function recoveryConf(parent: InstancePaths, data: string): string {
  const archived = `"${relative(data, parent.archive)}/%f"`;
  const inPlace = `"${relative(data, parent.data)}/pg_wal/%f"`;
  const quiet = '2>/dev/null';
  const command = `cp ${archived} "%p" ${quiet} || { cp ${inPlace} "%p" ${quiet} && test ! -e ${archived}; } || cp ${archived} "%p" ${quiet}`;
  return recoverySettings(command);
}

/**
 * Rolls a fork forward over WAL that {@link copyWalFrom} has put into its own directory: its server cannot read its parent's. A command has
 * to be there, and finds nothing, so that PostgreSQL looks into pg_wal.
 */
function forkRecoveryConf(targetTime: string | null): string {
  return recoverySettings(
    'false',
    ...(targetTime === null ? [] : [`recovery_target_time = ${quoted(numericOffset(targetTime))}`]),
  );
}

function recoverySettings(command: string, ...target: readonly string[]): string {
  return [
    `restore_command = ${quoted(command)}`,
    ...target,
    "recovery_target_action = 'promote'",
    // Nobody gets in before it is promoted.
    'hot_standby = off',
    '',
  ].join('\n');
}

/**
 * Gives a data directory the WAL that a service has written from a file on, of whichever timeline, archived or not yet, and the history of
 * its timelines.
 *
 * @param first null: all there is
 */
async function copyWalFrom(
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
  if (machine.cloneMethod === 'copy') await assertSpaceFor(names.length * WAL_FILE_BYTES, target);
  // A snapshot of a server that ran comes without it.
  const status = join(target, 'pg_wal', 'archive_status');
  await mkdir(status, { recursive: true, mode: 0o700 });
  if (owner !== null) await chown(status, owner.uid, owner.gid);
  for (const name of names) {
    const to = join(target, 'pg_wal', name);
    const copied = await copyNeeded(join(archive, name), join(inPlace, name), to, name, owner);
    if (!copied) continue;
    // It is the parent's to archive, not the fork's.
    await writeOwned(owner, join(status, `${name}.done`), '');
  }
}

/** One that was archived while it was copied may have been written over meanwhile: then the archive has it. @returns whether there is one */
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

/** Whether a file in place has been begun: one that was recycled has the contents of an older one still. */
async function holdsItsName(path: string, wal: string): Promise<boolean> {
  const file = await openFile(path).catch(noneOf('ENOENT'));
  if (file === null) return false;
  try {
    const { buffer } = await file.read(Buffer.alloc(16), 0, 16, 0);
    // xlp_pageaddr (PostgreSQL source: src/include/access/xlog_internal.h)
    return walFileName(0, buffer.readBigUInt64LE(8)).slice(8) === wal.slice(8);
  } finally {
    await file.close();
  }
}

const isHistory = (name: string): boolean => /^[0-9A-F]{8}\.history$/.test(name);

/** Names of time zones, even Z, are not known yet when the server reads this. */
function numericOffset(moment: string): string {
  return moment.replace('T', ' ').replace(/Z$/, '+00:00');
}

const ENDED_EARLY = 'recovery ended before configured recovery target was reached';

/**
 * Called before a fork goes on with its recovery to a point in time. Where that ended because its parent had written nothing after the
 * point (it was paused then), or nothing that is left (the archive has a gap after it), all there was belongs to the fork, and nothing that
 * the parent has written since. Where there is more, some of it could not be read at that moment: it is tried again, from whichever member is the parent's primary now.
 *
 * @param writeMark has the parent commit something, if it runs: recovery has to have a commit to stop at
 */
export async function recoverOn(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  parent: InstancePaths,
  targetTime: string,
  lastFatal: string,
  writeMark: () => Promise<void>,
): Promise<void> {
  if (!lastFatal.includes(ENDED_EARLY)) return;
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
      // One that runs writes more in a moment.
      ((await findServer(parent)) === null && (await isLastRecord(parent, parseLsn(end)))));
  if (!all) {
    await writeMark();
    // What it has already may have been copied as it was being written.
    const first = end === undefined ? null : walFileName(0, parseLsn(end));
    await copyWalFrom(machine, owner, parent, first, paths.data);
  }
  const conf = all
    ? `${forkRecoveryConf(null)}recovery_target_lsn = ${quoted(end)}\n`
    : forkRecoveryConf(targetTime);
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), conf);
}

/** Whether a point in time is before a gap in the archive, and a record of the log in the last file before it. */
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

/** Whether a server has written nothing after the record of its log that begins here. */
async function isLastRecord({ data }: InstancePaths, begin: bigint): Promise<boolean> {
  const timeline = await newestTimeline(data);
  const end = await endOfRecord(data, timeline, begin);
  return end !== null && (await endOfWal(data, timeline, end, 1n)) <= end;
}

/**
 * Archives what a primary that died had written whole and not archived yet: those who follow it take it for archived. To be done before its
 * data is taken away.
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

// ── the window ───────────────────────────────────────────────────────────────────────────────────────────────────

/** What the API shows of a service's backups. @param problem why they do not get on; null: they do */
export async function describeBackups(
  paths: InstancePaths,
  policy: BackupPolicy,
  problem: string | null,
): Promise<Omit<Backups, 'storage'>> {
  const snapshots = await listSnapshots(paths);
  const { earliestMs, latestMs, gaps } = reachable(await reaches(paths, snapshots));
  const last = lastVerification(snapshots);
  return {
    window: {
      earliest: earliestMs === null ? null : iso(earliestMs),
      latest: latestMs === null ? null : iso(latestMs),
      days: policy.windowMs / 86_400_000,
      ...(gaps.length === 0
        ? {}
        : {
            gaps: gaps.map(({ afterMs, beforeMs }) => ({
              after: iso(afterMs),
              before: iso(beforeMs),
            })),
          }),
    },
    snapshots: snapshots.map(({ id, takenMs, kind, storageBytes, verification }) => ({
      id,
      taken: iso(takenMs),
      kind,
      storage_mb: Math.ceil(storageBytes / 1e6),
      ...(verification === null ? {} : { verification }),
    })),
    archive_mb: Math.ceil((await archiveBytes(paths)) / 1e6),
    ...(last === null ? {} : { last_verification: last }),
    problem,
  };
}

/** The archive may be on a disk that is not there at the moment. */
async function archiveBytes(paths: InstancePaths): Promise<number> {
  return bytesBelow(paths.archive).catch((error: unknown) => {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return 0;
    throw error;
  });
}

/** What became of the last attempt to verify any of these snapshots; null: nobody has tried. */
export function lastVerification(snapshots: readonly KeptSnapshot[]): Verification | null {
  const made = snapshots.flatMap(({ verification }) =>
    verification === null ? [] : [verification],
  );
  return made.toSorted((a, b) => Date.parse(b.at) - Date.parse(a.at))[0] ?? null;
}

/** How far a snapshot can be rolled forward: over so many WAL files, to now, or to where one is missing. */
export type Reach = { gap: string | null; latestMs: number; files: number };

export async function reach(paths: InstancePaths, snapshot: Snapshot): Promise<Reach> {
  return (await lookAtWal(paths))(snapshot);
}

/** How far each of these snapshots can be rolled forward. @param snapshots newest first, in which order no WAL file is looked at twice */
async function reaches(paths: InstancePaths, snapshots: readonly Snapshot[]): Promise<Interval[]> {
  const reachOf = await lookAtWal(paths);
  return Promise.all(
    snapshots.map(async (snapshot) => ({
      takenMs: snapshot.takenMs,
      ...(await reachOf(snapshot)),
    })),
  );
}

/** What is known of WAL files that others follow, by their paths: they never change, and to read one takes some ten ms. */
const lastCommits = new Map<string, number | null>();

/** The last commit of a WAL file that others follow, in ms; null: there is none that can be read. */
async function lastCommitIn(path: string): Promise<number | null> {
  const known = lastCommits.get(path);
  if (known !== undefined) return known;
  const contents = await readBytes(path, WAL_FILE_BYTES).catch(() => null);
  if (contents === null) return null;
  const ms = lastCommitMs(contents);
  // A damaged file may say anything.
  const found = ms === null || ms > Date.now() + 1 ? null : ms;
  lastCommits.set(path, found);
  return found;
}

/** Looks at the WAL files that there are. @returns how far a snapshot can be rolled forward over them */
async function lookAtWal(paths: InstancePaths): Promise<(snapshot: Snapshot) => Promise<Reach>> {
  // In this order: a file goes from here to the archive, and is missed in neither.
  const inPlace = await walFilesIn(join(paths.data, 'pg_wal'));
  const archived = await walFilesIn(paths.archive);
  const newest = [...archived, ...inPlace].toSorted().at(-1);
  const history = await timelineHistory(paths, newest ?? '');
  /** From a file on: which is the first that is missing, and how many there are before it. */
  type Run = { gap: string | null; files: number };
  const known = new Map<string, Run>();
  const runFrom = (first: string): Run => {
    let files = 0;
    for (let wal = first; wal <= (newest ?? first); wal = followingWalFile(wal, history), files++) {
      const rest = known.get(wal);
      if (rest !== undefined) return { gap: rest.gap, files: files + rest.files };
      // The file in place that is being written may be followed by recycled ones; a gap before an archived one is a gap.
      if (!archived.has(wal) && !inPlace.has(wal)) return { gap: wal, files };
    }
    return { gap: null, files };
  };
  const pathOf = (wal: string): string =>
    join(archived.has(wal) ? paths.archive : join(paths.data, 'pg_wal'), wal);
  /** The time of the last commit before a gap: a later moment may need what is lost. Null: there is no commit from that file on. */
  const lastCommitBefore = async (gap: string, first: string): Promise<number | null> => {
    const files: string[] = [];
    for (let wal = first; wal < gap; wal = followingWalFile(wal, history)) files.push(wal);
    for (const wal of files.toReversed()) {
      const ms = await lastCommitIn(pathOf(wal));
      if (ms !== null) return ms;
    }
    return null;
  };
  const lastWrittenMs = async () =>
    (await findServer(paths)) === null
      ? (statEntry(join(paths.data, 'global', 'pg_control'))?.mtimeMs ?? 0)
      : Date.now();
  let endMs: Promise<number> | null = null;
  return async ({ firstWal, takenMs }) => {
    const first = onItsTimeline(firstWal, history);
    const run = runFrom(first);
    known.set(first, run);
    const { gap, files } = run;
    const latestMs =
      gap === null
        ? await (endMs ??= lastWrittenMs())
        : ((await lastCommitBefore(gap, first)) ?? takenMs);
    return { gap, latestMs: Math.max(takenMs, latestMs), files };
  };
}

/** A snapshot's moment, and how far it can be rolled forward from there. */
export type Interval = Pick<Reach, 'gap' | 'latestMs'> & { takenMs: number };
/** A time of which nothing can be reached, for want of a WAL file. */
type Gap = { afterMs: number; beforeMs: number; gap: string };

/**
 * What can be reached from snapshots. A moment is reached from the newest snapshot before it, or from none: an older one lacks what that
 * one lacks.
 *
 * @param intervals newest first
 * @returns gaps in the order of time; nulls where there is no snapshot
 */
export function reachable(intervals: readonly Interval[]): {
  earliestMs: number | null;
  latestMs: number | null;
  gaps: Gap[];
} {
  const gaps = intervals.flatMap(({ gap, latestMs }, index) => {
    const beforeMs = intervals[index - 1]?.takenMs ?? latestMs;
    return gap === null || latestMs >= beforeMs ? [] : [{ afterMs: latestMs, beforeMs, gap }];
  });
  return {
    earliestMs: intervals.at(-1)?.takenMs ?? null,
    latestMs: intervals[0]?.latestMs ?? null,
    gaps: gaps.toReversed(),
  };
}

async function walFilesIn(directory: string): Promise<Set<string>> {
  return new Set((await entriesOf(directory)).filter(isWalFile));
}

/** Why the archive of a service does not get on; null: it does. */
export async function archiveProblem(paths: InstancePaths): Promise<string | null> {
  if ((await entriesOf(paths.root)).length === 0) return null; // it is being made
  const unreadable = await listEntries(paths.archive).then(() => null, said);
  const stays =
    'WAL stays in pg_wal meanwhile, which grows until this is fixed or the disk is full';
  if (unreadable !== null)
    return `the archive ${paths.archive} cannot be read: ${unreadable}; ${stays}`;
  const unsafe = await listEntries(join(paths.data, 'pg_wal', 'archive_status')).then(
    () => null,
    (error: unknown) => (error instanceof UnsafeEntry ? error.message : null),
  );
  if (unsafe !== null) return `the WAL of the service cannot be read: ${unsafe}`;
  const waiting = await oldestWaiting(paths);
  if (waiting !== null && Date.now() - waiting.sinceMs > ARCHIVE_PATIENCE_MS) {
    const query = {
      sinceMs: waiting.sinceMs,
      untilMs: null,
      cursor: null,
      search: [paths.archive],
      severities: ['ERROR'],
      limit: 1,
    };
    const { entries } = await readLogs(paths.logs, query).catch(() => ({ entries: [] }));
    const reason = entries[0]?.message.split('\n')[0] ?? 'archiving does not keep up';
    return `WAL file ${waiting.wal} has not been archived to ${paths.archive} since ${new Date(waiting.sinceMs).toISOString()}: ${reason}; ${stays}`;
  }
  return missingWal(await reaches(paths, await listSnapshots(paths)));
}

const said = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** What cannot be reached for want of WAL files; null: everything can. @param intervals newest first */
export function missingWal(intervals: readonly Interval[]): string | null {
  const missing = (gap: string, what: string) =>
    `WAL file ${gap} is missing from the archive: ${what}`;
  const [newest] = intervals;
  const all = [
    ...(newest === undefined || newest.gap === null
      ? []
      : [
          missing(
            newest.gap,
            `nothing after ${iso(newest.latestMs)} can be reached from the snapshots before it`,
          ),
        ]),
    ...reachable(intervals)
      .gaps.toReversed()
      .map(({ gap, afterMs, beforeMs }) =>
        missing(gap, `nothing between ${iso(afterMs)} and ${iso(beforeMs)} can be reached`),
      ),
  ];
  const said = all.slice(0, GAPS_SAID);
  if (all.length > said.length)
    said.push(`${all.length - said.length} more gaps stand in the window of its backups`);
  if (said.length > 0) return said.join('; ');
  const gap = intervals.find((interval) => interval.gap !== null)?.gap;
  return gap === undefined || gap === null
    ? null
    : missing(gap, 'the snapshots before it lead only to the next one');
}

/** Of more than these it is only said how many there are. */
const GAPS_SAID = 3;

/** How long a WAL file may wait to be archived before it is said; PostgreSQL tries a few times within seconds, then once a minute. */
const ARCHIVE_PATIENCE_MS = 15_000;

/** The WAL file that has waited the longest to be archived. */
async function oldestWaiting(
  paths: InstancePaths,
): Promise<{ wal: string; sinceMs: number } | null> {
  const directory = join(paths.data, 'pg_wal', 'archive_status');
  const [first] = (await entriesOf(directory)).filter((name) => name.endsWith('.ready')).toSorted();
  // It may be archived at this moment.
  const noted = first === undefined ? null : statEntry(join(directory, first));
  return first === undefined || noted === null
    ? null
    : { wal: first.replace(/\.ready$/, ''), sinceMs: noted.mtimeMs };
}

/** What a directory holds; nothing where there is none. */
async function entriesOf(directory: string): Promise<string[]> {
  return (await listEntries(directory).catch(missingOrUnsafe)) ?? [];
}

const WAL_FILE_BYTES = 16 * 1024 ** 2;

/** Where each timeline before the newest ended: its number, as in the names of its files, and the file in which the next one begins. */
type History = { timeline: string; nextBegins: string }[];

/** What the history file of the newest timeline says; a service that never failed over has none. */
async function timelineHistory(paths: InstancePaths, newest: string): Promise<History> {
  const name = `${newest.slice(0, 8)}.history`;
  const text =
    readTextIfSafe(join(paths.archive, name)) ??
    readTextIfSafe(join(paths.data, 'pg_wal', name)) ??
    '';
  return parseHistory(text, Number.parseInt(newest.slice(0, 8), 16));
}

/**
 * A history file as it is written: timelines in ascending order, before the newest. Where it says otherwise, nothing is taken from it: files
 * would follow each other in a circle.
 */
export function parseHistory(text: string, newest: number): History {
  const lines = text
    .split('\n')
    .flatMap((line) => /^\s*(\d+)\s+([0-9A-F]+\/[0-9A-F]+)/.exec(line) ?? []);
  const entries = Array.from({ length: lines.length / 3 }, (_, index) => ({
    timeline: Number(lines[index * 3 + 1]),
    end: lines[index * 3 + 2] ?? '',
  }));
  const next = (index: number): number => entries[index + 1]?.timeline ?? newest;
  if (!entries.every(({ timeline }, index) => timeline < next(index))) return [];
  return entries.map(({ timeline, end }, index) => ({
    timeline: walFileName(timeline, 0n).slice(0, 8),
    nextBegins: walFileName(next(index), parseLsn(end)),
  }));
}

/** The file after this one, of the timeline that the service went on with ([PG] 26.3.6). */
export function followingWalFile(wal: string, history: History): string {
  return onItsTimeline(nextWalFile(wal), history);
}

/** A timeline that ended in this file has no whole one of it: the next one's begins with the same contents. */
function onItsTimeline(wal: string, history: History): string {
  const ended = history.find(({ timeline }) => timeline === wal.slice(0, 8));
  return ended !== undefined && wal.slice(8) >= ended.nextBegins.slice(8)
    ? onItsTimeline(ended.nextBegins, history)
    : wal;
}

/** Removes snapshots and archived WAL that no point inside the window needs. At least one snapshot stays. */
export async function pruneBackups(
  { cloneMethod }: Pick<Machine, 'cloneMethod'>,
  paths: InstancePaths,
  { windowMs }: Pick<BackupPolicy, 'windowMs'>,
): Promise<void> {
  const snapshots = await listSnapshots(paths);
  const beginMs = Date.now() - windowMs;
  // The newest snapshot from before the window is what its earliest point is reached from.
  const base = chooseSnapshot(snapshots, beginMs);
  const dropped = base === null ? [] : snapshots.slice(snapshots.indexOf(base) + 1);
  for (const { id } of dropped) {
    // Renamed first: one that is half removed is never taken for whole.
    const going = join(paths.snapshots, `${id}.new`);
    await rename(join(paths.snapshots, id), going);
    await removeTree(going, cloneMethod);
  }
  for (const entry of await readdir(paths.snapshots)) {
    if (entry.endsWith('.new')) await removeTree(join(paths.snapshots, entry), cloneMethod);
  }
  const oldestKept = snapshots[snapshots.length - dropped.length - 1];
  if (oldestKept === undefined) return;
  for (const wal of await listEntries(paths.archive)) {
    // What a timeline had begun when the next one took over is archived as partial: the next one's file has it too.
    if (isWalFile(wal.replace(/\.partial$/, '')) && wal < oldestKept.firstWal)
      await removeEntry(join(paths.archive, wal));
  }
}

/**
 * Removes an archive that the operator has put on another disk: what PostgreSQL wrote there, and the directory, if nothing else stands
 * in it. What lies below the service's own directory goes with that.
 */
export async function removeLinkedArchive(paths: InstancePaths): Promise<void> {
  const info = await lstat(paths.archive).catch(noneOf('ENOENT', 'ENOTDIR'));
  if (info?.isSymbolicLink() !== true) return;
  const target = await realpath(paths.archive).catch(noneOf('ENOENT', 'ENOTDIR'));
  if (target === null) return; // a disk that is not there
  for (const name of await entriesOf(target)) {
    if (isWalFile(name.slice(0, 24)) || /^[0-9A-F]{8}\.history$|^archtemp\./.test(name))
      await removeEntry(join(target, name));
  }
  await rmdir(target).catch((error: unknown) => {
    if (!isErrno(error, 'ENOTEMPTY', 'EBUSY', 'ENOENT')) throw error;
  });
}

/**
 * Newest first, by WAL: a snapshot that was taken while the clock was ahead is dated later than those after it. The initial snapshot, which
 * has no position, is the oldest.
 */
export async function listSnapshots(paths: InstancePaths): Promise<KeptSnapshot[]> {
  const entries = (await entriesOf(paths.snapshots)).filter((entry) => !entry.endsWith('.new'));
  const read = await Promise.all(entries.map((entry) => readSnapshot(paths, entry)));
  const position = ({ walPosition }: KeptSnapshot): bigint =>
    walPosition === '' ? -1n : parseLsn(walPosition);
  return read
    .filter((snapshot) => snapshot !== null)
    .toSorted((a, b) => Number(position(b) - position(a)) || b.takenMs - a.takenMs);
}

async function readSnapshot(paths: InstancePaths, id: string): Promise<KeptSnapshot | null> {
  const text = await readOrNull(join(paths.snapshots, id, 'snapshot.json'));
  if (text === null) return null;
  const parsed: unknown = JSON.parse(text);
  if (typeof parsed !== 'object' || parsed === null) return null;
  const member = (name: string): unknown => Reflect.get(parsed, name);
  const textOrNull = (name: string): string | null =>
    typeof member(name) === 'string' ? String(member(name)) : null;
  return {
    id,
    // Older releases wrote another word for the initial one.
    kind: member('kind') === 'scheduled' ? 'scheduled' : 'initial',
    takenMs: Number(member('takenMs')),
    firstWal: textOrNull('firstWal') ?? '',
    walPosition: textOrNull('walPosition') ?? '',
    storageBytes: Number(member('storageBytes')),
    template: textOrNull('template'),
    systemIdentifier: textOrNull('systemIdentifier'),
    verification: await readVerification(paths, id),
  };
}

async function readVerification(paths: InstancePaths, id: string): Promise<Verification | null> {
  const text = await readOrNull(join(paths.snapshots, id, VERIFICATION_FILE));
  return text === null ? null : parseVerification(JSON.parse(text));
}

function parseVerification(parsed: unknown): Verification | null {
  const member = (of: unknown, name: string): unknown =>
    typeof of === 'object' && of !== null ? Reflect.get(of, name) : undefined;
  const [at, checks] = [member(parsed, 'at'), member(parsed, 'checks')];
  if (typeof at !== 'string' || !Array.isArray(checks)) return null;
  const [seconds, point, problem] = [
    member(parsed, 'recovery_seconds'),
    member(parsed, 'recovery_point'),
    member(parsed, 'problem'),
  ];
  return {
    at,
    succeeded: member(parsed, 'succeeded') === true,
    recovery_seconds: typeof seconds === 'number' ? seconds : null,
    recovery_point: typeof point === 'string' ? point : null,
    checks: checks.map((check: unknown) => ({
      name: String(member(check, 'name')),
      succeeded: member(check, 'succeeded') === true,
      detail: String(member(check, 'detail')),
    })),
    ...(typeof problem === 'string' ? { problem } : {}),
  };
}

/** Notes beside a snapshot what became of restoring it. */
export async function writeVerification(
  paths: InstancePaths,
  id: string,
  verification: Verification,
): Promise<void> {
  await writeDurably(join(paths.snapshots, id, VERIFICATION_FILE), JSON.stringify(verification));
}

const VERIFICATION_FILE = 'verification.json';

async function writeSnapshot(paths: InstancePaths, snapshot: Snapshot): Promise<void> {
  await writeFile(join(paths.snapshots, snapshot.id, 'snapshot.json'), JSON.stringify(snapshot));
}

// ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────

const iso = (ms: number): string => new Date(ms).toISOString();

function snapshotId(ms: number): string {
  return new Date(ms).toISOString().replaceAll(/[-:.]/g, '');
}

function isWalFile(name: string): boolean {
  return /^[0-9A-F]{24}$/.test(name);
}

/** The WAL file after this one, of 16 MB each: timeline, then 8 digits of 4 GB, then the file in them ([PG] 28.5). */
export function nextWalFile(name: string): string {
  const [timeline, high, low] = [
    name.slice(0, 8),
    Number.parseInt(name.slice(8, 16), 16),
    Number.parseInt(name.slice(16), 16),
  ];
  const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, '0');
  return low === 0xff
    ? `${timeline}${hex(high + 1)}${hex(0)}`
    : `${timeline}${hex(high)}${hex(low + 1)}`;
}

/** The port in the name of a server's socket: of a service's only server its own, of a member one behind the gateway. */
export async function portOf(paths: InstancePaths): Promise<number> {
  const port = portIn(await readFile(join(paths.config, 'postgresql.conf'), 'utf8'));
  if (port === null) throw new EngineUnavailable(`${paths.config}/postgresql.conf names no port`);
  return port;
}

export async function writeOwned(owner: Owner | null, path: string, text: string): Promise<void> {
  await writeText(path, text, owner);
}
