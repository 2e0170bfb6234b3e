/**
 * Clones the data directory of a running server, for snapshots, forks and standbys.
 *
 * Where the file system can, the clone is of one moment. Elsewhere it is made file by file between
 * pg_backup_start and pg_backup_stop, with the WAL that makes it consistent.
 */
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import type { Client } from 'pg';
import { renameDurably } from '../../../lib/durable-files.ts';
import { EngineUnavailable } from '../../engine.ts';
import { cloneTree, isSubvolume, removeTree, type Exclusions } from '../host/clone.ts';
import { assertSpaceFor, bytesBelow } from '../host/space.ts';
import { portIn } from '../../postgres/server-conf.ts';
import { flushFileSystem } from '../host/flush.ts';
import { keyOfPaths, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Owner } from '../host/users.ts';
import { mkdir, readFile, writeFile } from '../host/root-files.ts';
import { writeText } from '../../../lib/untrusted-files.ts';
import { closeSession, openSuperuserSession } from '../../postgres/sessions/superuser.ts';
import { formatLsn, parseLsn } from '../../postgres/data/wal.ts';
import { copyWalFiles, WAL_FILE_BYTES } from '../../postgres/data/wal-files.ts';
import { type Snapshot, snapshotId } from './snapshots.ts';

/**
 * The files that a clone of a data directory leaves out: those of the running server ([PG] 26.3.4).
 */
export const OF_THE_SERVER: Exclusions = {
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

/** For a server that runs: also without its WAL, which is copied afterwards. */
const OF_THE_SERVER_AND_WAL: Exclusions = {
  ...OF_THE_SERVER,
  contentsOf: [...OF_THE_SERVER.contentsOf, 'pg_wal'],
  vanished: true,
};

/** Takes a snapshot of a running service. */
export async function takeSnapshot(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
): Promise<Snapshot> {
  const id = snapshotId(Date.now());
  const unfinished = join(paths.snapshots, `${id}.new`);
  await removeTree(unfinished, machine.cloneMethod);
  await mkdir(unfinished, { mode: 0o700 });
  try {
    // Begun again from a checkpoint, it needs nothing of the archive from before: there may be a
    // gap in it.
    const taken = await cloneRunning(machine, owner, paths, join(unfinished, 'data'), true);
    const snapshot: Snapshot = {
      id,
      kind: 'scheduled',
      takenMs: taken.endedMs,
      firstWal: taken.firstWal,
      walPosition: taken.nextPosition,
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

/** `walPosition`: the end of its WAL. `nextPosition`: where the server writes after that. */
type Taken = { endedMs: number; firstWal: string; walPosition: string; nextPosition: string };

/**
 * Clones the data directory of a running server so that the clone recovers to this moment, or a
 * later one, by itself.
 *
 * @param owner who owns the clone
 * @param atCheckpoint whether its recovery begins with a checkpoint made for it, where it could
 *   do with an older one
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
    throw new EngineUnavailable(`its server accepts no connection: ${messageOf(error)}`, {
      cause: error,
    });
  });
  try {
    // A directory made before btrfs-progs were installed is no subvolume, and is cloned file by
    // file.
    return machine.cloneMethod === 'subvolume' && (await isSubvolume(paths.data))
      ? await cloneAtOnce(client, machine, owner, paths, target, atCheckpoint)
      : await cloneDuringBackup(client, machine, owner, paths, target);
  } finally {
    await closeSession(client);
  }
}

/** A checkpoint of a large server writes for minutes. */
const BACKUP_LIMIT_MS = 1_800_000;

/**
 * With more WAL than this since its last checkpoint, a server is given one before it is cloned: the
 * clone's recovery would take longer.
 */
const REPLAY_MAX_BYTES = 64 * 1024 ** 2;

/**
 * All files at the same moment: what a crash of the machine would leave, less what the server has
 * not written yet. The clone recovers as after one ([PG] 25.2: a consistent snapshot of the file
 * system); it needs no backup, and the parent mostly not even a checkpoint.
 */
async function cloneAtOnce(
  client: Client,
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  target: string,
  atCheckpoint: boolean,
): Promise<Taken> {
  // On the timeline of a checkpoint from before its promotion, a server's log cannot be followed
  // from file to file.
  const { rows } = await client.query<{ old: boolean }>(
    `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) > $1
            or left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) <> left(redo_wal_file, 8)
              as old
     from pg_control_checkpoint()`,
    [REPLAY_MAX_BYTES],
  );
  if (atCheckpoint || rows[0]?.old !== false)
    await atFullSpeed(machine, paths, () => client.query('checkpoint'));
  // This commit brings what others have committed without waiting for the disk into the WAL files.
  await client.query("select pg_logical_emit_message(true, 'howdah', 'clone')");
  const state = await client.query<{ first: string; lsn: string }>(
    'select redo_wal_file as first, pg_current_wal_flush_lsn()::text as lsn ' +
      'from pg_control_checkpoint()',
  );
  await cloneTree(paths.data, target, machine, owner, OF_THE_SERVER);
  const [{ first, lsn } = { first: '', lsn: '' }] = state.rows;
  return { endedMs: Date.now(), firstWal: first, walPosition: lsn, nextPosition: lsn };
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
  await atFullSpeed(machine, paths, () =>
    client.query("select pg_backup_start('howdah', fast => true)"),
  );
  await cloneTree(paths.data, target, machine, owner, OF_THE_SERVER_AND_WAL);
  const { rows } = await atFullSpeed(machine, paths, () =>
    client.query<{ labelfile: string; lsn: string; wal: string }>(
      'select labelfile, lsn::text as lsn, pg_walfile_name(lsn) as wal ' +
        'from pg_backup_stop(wait_for_archive => false)',
    ),
  );
  const [stopped] = rows;
  const firstWal = /\(file ([0-9A-F]{24})\)/.exec(stopped?.labelfile ?? '')?.[1];
  if (stopped === undefined || firstWal === undefined)
    throw new Error('pg_backup_stop answered without a label');
  await copyWalFiles(owner, paths, firstWal, stopped.wal, target);
  await writeOwned(owner, join(target, 'backup_label'), stopped.labelfile);
  // pg_backup_stop begins another WAL file: what it skips was not written by anybody.
  const fileBytes = BigInt(WAL_FILE_BYTES);
  const files = (parseLsn(stopped.lsn) + fileBytes - 1n) / fileBytes;
  const nextPosition = formatLsn(files * fileBytes);
  return { endedMs: Date.now(), firstWal, walPosition: stopped.lsn, nextPosition };
}

/**
 * A checkpoint, and the zeros of a new WAL file, are written for a client that waits. The flushes
 * of the clone wait for the archiving of the last file, which follows.
 */
async function atFullSpeed<T>(
  { shares }: Machine,
  paths: InstancePaths,
  work: () => Promise<T>,
): Promise<T> {
  await shares.free(keyOfPaths(paths));
  return work();
}

export async function assertSpace(machine: Machine, paths: InstancePaths): Promise<void> {
  if (machine.cloneMethod === 'copy')
    await assertSpaceFor(await bytesBelow(paths.data), paths.root);
}

/**
 * The port in the name of a server's socket: of a service's only server its own, of a member one
 * behind the gateway.
 */
export async function portOf(paths: InstancePaths): Promise<number> {
  const port = portIn(await readFile(join(paths.config, 'postgresql.conf'), 'utf8'));
  if (port === null) throw new EngineUnavailable('postgresql.conf names no port');
  return port;
}

export async function writeOwned(owner: Owner | null, path: string, text: string): Promise<void> {
  await writeText(path, text, owner);
}
