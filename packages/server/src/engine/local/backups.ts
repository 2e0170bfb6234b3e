/**
 * Snapshots, the WAL archive, and what is made of them: forks of now, of the last snapshot, of a point in time.
 *
 * A snapshot is a clone of the data directory under pg_backup_start/stop with the WAL that makes it consistent: it starts by itself.
 * The first one costs nothing: at birth a service is its template with another system identifier, which is all that is noted.
 */
import { chown, copyFile, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import type { Backups } from '@howdah/contract';
import type { BackupPolicy } from '../../config.ts';
import { EngineUnavailable, type Origin } from '../engine.ts';
import { assertSpaceFor, bytesBelow, cloneTree, removeTree, type Exclusions } from './clone.ts';
import { CONTROL_ROLE } from './files.ts';
import { writeSystemIdentifier } from './identity.ts';
import { instancePaths, type InstancePaths } from './layout.ts';
import type { Machine } from './machine.ts';
import { isErrno, readOrNull } from './processes.ts';
import { quoted } from './settings.ts';
import { run } from './run.ts';
import { findServer, phaseOf } from './server.ts';

/** What is asked for cannot be done at this moment, and will be in the next. */
export class NotYet extends Error {}

/** What is known of a snapshot; it stands beside its data. */
export type Snapshot = {
  id: string;
  kind: 'birth' | 'scheduled';
  /** Its state is that of this moment, in ms since the epoch; it can be rolled forward from here. */
  takenMs: number;
  /** The first WAL file that rolling forward needs. */
  firstWal: string;
  /** How far the WAL had been written; the same as now: nothing has been written since. */
  walPosition: string;
  storageBytes: number;
  /** Of a birth: the template, and the identifier that the service was given. */
  template: string | null;
  systemIdentifier: string | null;
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
  files: ['postmaster.pid', 'postmaster.opts', 'backup_label.old', 'recovery.signal', 'standby.signal', 'postgresql.auto.conf'],
};
const OF_THE_SERVER_AND_WAL: Exclusions = { ...OF_THE_SERVER, contentsOf: [...OF_THE_SERVER.contentsOf, 'pg_wal'] };

// ── taking ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** Notes the birth of a service as its first snapshot. @param unfinished the instance being made */
export async function noteBirth(unfinished: InstancePaths, template: string, systemIdentifier: bigint): Promise<void> {
  const wal = (await readdir(join(unfinished.data, 'pg_wal'))).filter(isWalFile).toSorted();
  const takenMs = Date.now();
  const id = snapshotId(takenMs);
  await mkdir(join(unfinished.snapshots, id), { mode: 0o710 });
  await writeSnapshot(unfinished, {
    id,
    kind: 'birth',
    takenMs,
    firstWal: wal[0] ?? '',
    walPosition: '',
    storageBytes: 0,
    template,
    systemIdentifier: String(systemIdentifier),
  });
}

/** Takes a snapshot of a running service. */
export async function takeSnapshot(machine: Machine, paths: InstancePaths): Promise<Snapshot> {
  const id = snapshotId(Date.now());
  const unfinished = join(paths.snapshots, `${id}.new`);
  await removeTree(unfinished, machine.cloneMethod);
  await mkdir(unfinished, { recursive: true, mode: 0o710 });
  if (machine.owner !== null) await chown(unfinished, 0, machine.owner.gid);
  try {
    const taken = await cloneRunning(machine, paths, join(unfinished, 'data'));
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
    await run('sync', ['-f', unfinished]);
    await rename(unfinished, join(paths.snapshots, id));
    return snapshot;
  } catch (error) {
    await removeTree(unfinished, machine.cloneMethod);
    throw error;
  }
}

type Taken = { endedMs: number; firstWal: string; walPosition: string };

/** Clones the data directory of a running server so that the clone recovers to the end of the backup by itself. */
async function cloneRunning(machine: Machine, paths: InstancePaths, target: string): Promise<Taken> {
  const client = new Client({
    host: paths.socket,
    port: await portOf(paths),
    user: CONTROL_ROLE,
    database: 'postgres',
    application_name: 'howdah backup',
  });
  client.on('error', () => undefined); // the statement under way is told
  await client.connect();
  try {
    await assertSpace(machine, paths);
    await client.query("select pg_backup_start('howdah', fast => true)");
    await cloneTree(paths.data, target, machine.cloneMethod, machine.owner, OF_THE_SERVER_AND_WAL);
    const { rows } = await client.query<{ labelfile: string; lsn: string; wal: string }>(
      'select labelfile, lsn::text as lsn, pg_walfile_name(lsn) as wal from pg_backup_stop(wait_for_archive => false)',
    );
    const [stopped] = rows;
    const firstWal = /\(file ([0-9A-F]{24})\)/.exec(stopped?.labelfile ?? '')?.[1];
    if (stopped === undefined || firstWal === undefined) throw new Error('pg_backup_stop answered without a label');
    for (let wal = firstWal; wal <= stopped.wal; wal = nextWalFile(wal)) await copyWal(machine, paths, wal, target);
    await writeOwned(machine, join(target, 'backup_label'), stopped.labelfile);
    return { endedMs: Date.now(), firstWal, walPosition: stopped.lsn };
  } finally {
    await client.end();
  }
}

/** A WAL file that is still in place, or has been archived meanwhile. */
async function copyWal(machine: Machine, paths: InstancePaths, wal: string, target: string): Promise<void> {
  const to = join(target, 'pg_wal', wal);
  try {
    await copyFile(join(paths.data, 'pg_wal', wal), to);
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error;
    await copyFile(join(paths.archive, wal), to);
  }
  if (machine.owner !== null) await chown(to, machine.owner.uid, machine.owner.gid);
}

async function assertSpace(machine: Machine, paths: InstancePaths): Promise<void> {
  if (machine.cloneMethod === 'copy') await assertSpaceFor(await bytesBelow(paths.data), paths.root);
}

// ── forking ──────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Makes the data directory of a fork. What it starts with recovers by itself; for a point in time, from the parent's archive.
 *
 * @returns a line for the operation
 * @throws Error when the parent has nothing that the fork could begin with, or its archive has a hole before the point in time
 */
export async function forkData(
  machine: Machine,
  parent: InstancePaths,
  target: string,
  origin: Origin,
  writeMark: () => Promise<void>,
): Promise<string> {
  if (origin.strategy === 'NOW') return forkNow(machine, parent, target);
  const snapshots = await listSnapshots(parent);
  if (origin.strategy === 'LAST_SNAPSHOT') {
    const [newest] = snapshots;
    if (newest === undefined) return forkNow(machine, parent, target); // not even its first snapshot: it is as young as that
    await materialise(machine, parent, newest, target);
    return `snapshot of ${new Date(newest.takenMs).toISOString()}, by ${machine.cloneMethod}`;
  }
  const targetTime = origin.targetTime ?? '';
  const base = snapshots.find(({ takenMs }) => takenMs <= Date.parse(targetTime));
  if (base === undefined) throw new Error(`no snapshot of ${parent.root} is older than ${targetTime}`);
  // Recovery stops before the first commit after the point in time: there has to be one.
  await writeMark();
  const { hole, latestMs } = await reach(parent, base);
  if (hole !== null && latestMs < Date.parse(targetTime)) {
    throw new Error(`WAL file ${hole} is missing from the archive: nothing after ${new Date(latestMs).toISOString()} can be reached`);
  }
  await materialise(machine, parent, base, target);
  await writeOwned(machine, join(target, 'postgresql.auto.conf'), recoveryConf(parent, targetTime));
  await writeOwned(machine, join(target, 'recovery.signal'), '');
  return `snapshot of ${new Date(base.takenMs).toISOString()}, by ${machine.cloneMethod}, to be rolled forward to ${targetTime}`;
}

async function forkNow(machine: Machine, parent: InstancePaths, target: string): Promise<string> {
  const begun = Date.now();
  const server = await findServer(parent);
  if (server === null) {
    await assertSpace(machine, parent);
    await cloneTree(parent.data, target, machine.cloneMethod, machine.owner, OF_THE_SERVER);
    await writeOwned(machine, join(target, 'postgresql.auto.conf'), '');
    return `by ${machine.cloneMethod} of the paused parent in ${Date.now() - begun} ms`;
  }
  if ((await phaseOf(parent)) !== 'ready') throw new NotYet('its parent is starting or stopping');
  try {
    await cloneRunning(machine, parent, target);
  } catch (error) {
    // A parent that was stopped meanwhile is cloned when it lies still.
    const still = await findServer(parent);
    if (still === null || (await phaseOf(parent)) !== 'ready') throw new NotYet('its parent is starting or stopping', { cause: error });
    throw error;
  }
  await writeOwned(machine, join(target, 'postgresql.auto.conf'), '');
  return `by ${machine.cloneMethod} of the running parent in ${Date.now() - begun} ms`;
}

/** Makes a data directory of a snapshot. */
async function materialise(machine: Machine, paths: InstancePaths, snapshot: Snapshot, target: string): Promise<void> {
  if (snapshot.template === null) {
    await cloneTree(join(paths.snapshots, snapshot.id, 'data'), target, machine.cloneMethod, machine.owner);
  } else {
    await cloneTree(instancePaths(join(machine.layout.templates, snapshot.template)).data, target, machine.cloneMethod, machine.owner);
    await writeSystemIdentifier(target, BigInt(snapshot.systemIdentifier ?? '0'));
  }
  await writeOwned(machine, join(target, 'postgresql.auto.conf'), '');
}

/** Rolls forward from the parent's archive, then from the WAL it has not archived yet; the fork's directory stands beside the parent's. */
function recoveryConf(parent: InstancePaths, targetTime: string | null): string {
  const id = parent.root.split('/').at(-1) ?? '';
  const command = `cp "../../${id}/archive/%f" "%p" 2>/dev/null || cp "../../${id}/data/pg_wal/%f" "%p" 2>/dev/null`;
  return [
    `restore_command = ${quoted(command)}`,
    ...(targetTime === null ? [] : [`recovery_target_time = ${quoted(numericOffset(targetTime))}`]),
    "recovery_target_action = 'promote'",
    // Nobody gets in before it is promoted.
    'hot_standby = off',
    '',
  ].join('\n');
}

/** Names of time zones, even Z, are not known yet when the server reads this. */
function numericOffset(moment: string): string {
  return moment.replace('T', ' ').replace(/Z$/, '+00:00');
}

const ENDED_EARLY = 'recovery ended before configured recovery target was reached';

/**
 * Called when the recovery of a fork ended because its parent had written nothing after the point in time (it was paused then):
 * all there is belongs to the fork. Without a hole in the archive, which was looked for, nothing can be missing.
 */
export async function recoverToTheEnd(machine: Machine, paths: InstancePaths, parent: InstancePaths, lastFatal: string): Promise<void> {
  if (!lastFatal.includes(ENDED_EARLY)) return;
  await writeOwned(machine, join(paths.data, 'postgresql.auto.conf'), recoveryConf(parent, null));
}

/** Takes away what a fork needed to recover: it archives for itself now. */
export async function forgetRecovery(machine: Machine, paths: InstancePaths): Promise<void> {
  await writeOwned(machine, join(paths.data, 'postgresql.auto.conf'), '');
}

// ── the window ───────────────────────────────────────────────────────────────────────────────────────────────────

/** What the API shows of a service's backups. */
export async function describeBackups(paths: InstancePaths, policy: BackupPolicy, problem: string | null): Promise<Backups> {
  const snapshots = await listSnapshots(paths);
  const oldest = snapshots.at(-1);
  const { hole, latestMs } = oldest === undefined ? { hole: null, latestMs: 0 } : await reach(paths, oldest);
  const iso = (ms: number) => new Date(ms).toISOString();
  return {
    window: {
      earliest: oldest === undefined ? null : iso(oldest.takenMs),
      latest: oldest === undefined ? null : iso(latestMs),
      days: policy.windowMs / 86_400_000,
    },
    snapshots: snapshots.map(({ id, takenMs, kind, storageBytes }) => ({
      id,
      taken: iso(takenMs),
      kind,
      storage_mb: Math.ceil(storageBytes / 1e6),
    })),
    archive_mb: Math.ceil((await bytesBelow(paths.archive)) / 1e6),
    problem:
      hole === null
        ? problem
        : `WAL file ${hole} is missing from the archive: nothing after ${iso(latestMs)} can be reached from the snapshots before it`,
  };
}

/** How far a snapshot can be rolled forward: to now, or to where a file is missing. */
async function reach(paths: InstancePaths, snapshot: Snapshot): Promise<{ hole: string | null; latestMs: number }> {
  const archived = new Set((await readdir(paths.archive)).filter(isWalFile));
  const inPlace = new Set((await readdir(join(paths.data, 'pg_wal'))).filter(isWalFile));
  const all = [...archived, ...inPlace].toSorted();
  const newest = all.at(-1) ?? snapshot.firstWal;
  let before: string | null = null;
  for (let wal = snapshot.firstWal; wal <= newest; wal = nextWalFile(wal)) {
    if (archived.has(wal) || inPlace.has(wal)) {
      before = wal;
      continue;
    }
    // The file in place that is being written may be followed by recycled ones; a gap before an archived one is a hole.
    const lostMs =
      before === null
        ? snapshot.takenMs
        : (await stat(join(archived.has(before) ? paths.archive : join(paths.data, 'pg_wal'), before))).mtimeMs;
    return { hole: wal, latestMs: Math.max(lostMs, snapshot.takenMs) };
  }
  if ((await findServer(paths)) !== null) return { hole: null, latestMs: Date.now() };
  const stoppedMs = (await stat(join(paths.data, 'global', 'pg_control'))).mtimeMs;
  return { hole: null, latestMs: Math.max(stoppedMs, snapshot.takenMs) };
}

/** Removes snapshots and archived WAL that no point inside the window needs. At least one snapshot stays. */
export async function pruneBackups(machine: Machine, paths: InstancePaths, { windowMs }: BackupPolicy): Promise<void> {
  const snapshots = await listSnapshots(paths);
  const beginMs = Date.now() - windowMs;
  // The newest snapshot from before the window is what its earliest point is reached from.
  const base = snapshots.findIndex(({ takenMs }) => takenMs <= beginMs);
  const dropped = base === -1 ? [] : snapshots.slice(base + 1);
  for (const { id } of dropped) {
    // Renamed first: one that is half removed is never taken for whole.
    const going = join(paths.snapshots, `${id}.new`);
    await rename(join(paths.snapshots, id), going);
    await removeTree(going, machine.cloneMethod);
  }
  for (const entry of await readdir(paths.snapshots)) {
    if (entry.endsWith('.new')) await removeTree(join(paths.snapshots, entry), machine.cloneMethod);
  }
  const oldestKept = snapshots[dropped.length === 0 ? snapshots.length - 1 : base];
  if (oldestKept === undefined) return;
  for (const wal of await readdir(paths.archive)) {
    if (isWalFile(wal) && wal < oldestKept.firstWal) await rm(join(paths.archive, wal), { force: true });
  }
}

/** Newest first. */
export async function listSnapshots(paths: InstancePaths): Promise<Snapshot[]> {
  const entries = (await readdir(paths.snapshots)).filter((entry) => !entry.endsWith('.new'));
  const read = await Promise.all(entries.map((entry) => readSnapshot(paths, entry)));
  return read.filter((snapshot) => snapshot !== null).toSorted((a, b) => b.takenMs - a.takenMs);
}

async function readSnapshot(paths: InstancePaths, id: string): Promise<Snapshot | null> {
  const text = await readOrNull(join(paths.snapshots, id, 'snapshot.json'));
  if (text === null) return null;
  const parsed: unknown = JSON.parse(text);
  if (typeof parsed !== 'object' || parsed === null) return null;
  const member = (name: string): unknown => Reflect.get(parsed, name);
  const textOrNull = (name: string): string | null => (typeof member(name) === 'string' ? String(member(name)) : null);
  return {
    id,
    kind: member('kind') === 'birth' ? 'birth' : 'scheduled',
    takenMs: Number(member('takenMs')),
    firstWal: textOrNull('firstWal') ?? '',
    walPosition: textOrNull('walPosition') ?? '',
    storageBytes: Number(member('storageBytes')),
    template: textOrNull('template'),
    systemIdentifier: textOrNull('systemIdentifier'),
  };
}

async function writeSnapshot(paths: InstancePaths, snapshot: Snapshot): Promise<void> {
  await writeFile(join(paths.snapshots, snapshot.id, 'snapshot.json'), JSON.stringify(snapshot), { flush: true });
}

// ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────

function snapshotId(ms: number): string {
  return new Date(ms).toISOString().replaceAll(/[-:.]/g, '');
}

function isWalFile(name: string): boolean {
  return /^[0-9A-F]{24}$/.test(name);
}

/** The WAL file after this one, of 16 MB each: timeline, then 8 digits of 4 GB, then the file in them ([PG] 28.5). */
export function nextWalFile(name: string): string {
  const [timeline, high, low] = [name.slice(0, 8), Number.parseInt(name.slice(8, 16), 16), Number.parseInt(name.slice(16), 16)];
  const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, '0');
  return low === 0xff ? `${timeline}${hex(high + 1)}${hex(0)}` : `${timeline}${hex(high)}${hex(low + 1)}`;
}

async function portOf(paths: InstancePaths): Promise<number> {
  const port = /^port = (\d+)$/m.exec(await readFile(join(paths.config, 'postgresql.conf'), 'utf8'))?.[1];
  if (port === undefined) throw new EngineUnavailable(`${paths.config}/postgresql.conf names no port`);
  return Number(port);
}

async function writeOwned(machine: Machine, path: string, text: string): Promise<void> {
  await writeFile(path, text, { mode: 0o600, flush: true });
  if (machine.owner !== null) await chown(path, machine.owner.uid, machine.owner.gid);
}
