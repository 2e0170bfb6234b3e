/**
 * The common part of members and read replica nodes that follow: their slots on the primary, their
 * faults, and how they are seeded.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import { configure } from './make-instance.ts';
import { copying, type Executor, type Found } from './executor.ts';
import { archiveLeftovers } from '../backup/recovery.ts';
import { cloneRunning, writeOwned } from '../backup/running-clone.ts';
import { copyWalFiles } from '../../postgres/data/wal-files.ts';
import { discard, removeTree } from '../host/clone.ts';
import type { InstanceSeen } from '../../postgres/decisions/decide-ha.ts';
import type { Observation } from '../../postgres/decisions/decide.ts';
import { REPLICATION_FILE } from '../../postgres/server-conf.ts';
import { partsOfKey, type InstancePaths } from '../host/layout.ts';
import { type Owner, ownerOf } from '../host/users.ts';
import { capLog } from '../host/daemon.ts';
import type { Machine } from '../host/machine-record.ts';
import { pruneLogs } from '../../postgres/logs.ts';
import { currentBoot } from '../host/marker.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import { readOrNull } from '../../../lib/processes.ts';
import { mkdir, rename, rm, writeFile } from '../host/root-files.ts';
import { fence, makeInstanceDirectories, writeConfig } from '../postgres/server.ts';
import { isFile, readText } from '../../../lib/untrusted-files.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';
import { compareSizes } from '../../postgres/size-label.ts';

/**
 * A standby that runs, receives no WAL and has none left to replay for this long is seeded again.
 * On a busy machine one is slow to connect, and copies of its data would make the machine busier;
 * but writes may wait for it.
 */
const FOLLOWS_WITHIN_MS = 30_000;

/**
 * Beside the data of a new standby, until its server has flushed it: the boot of the machine in
 * which it was seeded.
 */
const SEEDED_FILE = 'seeded';

export type Seed = {
  /** The server that it is cloned from. */
  primary: { key: string; paths: InstancePaths };
  /** The standby's slot there. */
  slot: string;
  /** The standby's replication settings. */
  conf: string;
  why: string;
};

/**
 * The state of the standbys of services between two rounds, by the keys of their servers. All of it
 * may be lost in a restart of the control plane: a standby is then given its time again.
 */
export type Standbys = {
  readonly executor: Executor;
  /** Since when a standby that runs has not followed; the time begins again after a restart. */
  readonly lostSinceMs: Map<string, number>;
  /** Why a standby has to be seeded again; after a restart its start is tried once more. */
  readonly broken: Map<string, string>;
  /** How far a standby had replayed when it was last asked; the next round asks again. */
  readonly replayed: Map<string, string>;
};

export function createStandbys(executor: Executor): Standbys {
  return { executor, lostSinceMs: new Map(), broken: new Map(), replayed: new Map() };
}

export function forgetStandby({ broken, lostSinceMs, replayed }: Standbys, key: string): void {
  broken.delete(key);
  lostSinceMs.delete(key);
  replayed.delete(key);
}

/**
 * Whether a standby has replayed WAL since it was last asked: it replays its own before it receives
 * more.
 */
async function advances(
  { executor: { monitor }, replayed }: Standbys,
  key: string,
): Promise<boolean> {
  if (!monitor.isConnected(key) || monitor.silentMs(key) !== null) return false;
  const [row] = await monitor
    .query<{ lsn: string }>(key, 'select pg_last_wal_replay_lsn()::text as lsn')
    .catch(() => []);
  if (row === undefined || row.lsn === replayed.get(key)) return false;
  replayed.set(key, row.lsn);
  return true;
}

/**
 * Why a standby has to be seeded again; null: it need not.
 *
 * @param follows whether it follows, is catching up, or cannot be expected to
 */
export async function brokenOf(
  standbys: Standbys,
  found: Found,
  follows: boolean,
  slotLost: boolean,
): Promise<string | null> {
  const { lostSinceMs, broken } = standbys;
  const { key } = found;
  const incomplete = await whyIncomplete(found);
  if (incomplete !== null) return incomplete;
  const otherMajor = whyOtherMajor(found);
  if (otherMajor !== null) return otherMajor;
  if (slotLost) return 'it was too far behind: the primary has removed WAL that it needs';
  if (follows || (await advances(standbys, key))) lostSinceMs.delete(key);
  else if (!lostSinceMs.has(key)) lostSinceMs.set(key, performance.now());
  if (performance.now() - (lostSinceMs.get(key) ?? performance.now()) > FOLLOWS_WITHIN_MS)
    return `it has not followed the primary for ${FOLLOWS_WITHIN_MS / 1000} s`;
  return broken.get(key) ?? null;
}

export function isBroken({ broken }: Standbys, key: string): boolean {
  return broken.has(key);
}

/** Why the data of a standby is of another version than its primary's; null: it is not. */
function whyOtherMajor({ paths, installation }: Found): string | null {
  const path = join(paths.data, 'PG_VERSION');
  if (installation === null || !isFile(path)) return null;
  return Number(readText(path)) === installation.major
    ? null
    : `its primary runs PostgreSQL ${installation.major}`;
}

/**
 * Why the data of a standby that does not run may be incomplete on the disk; null: it is complete.
 */
async function whyIncomplete({ paths, server }: Found): Promise<string | null> {
  const seededIn = server === null ? await readOrNull(join(paths.root, SEEDED_FILE)) : null;
  return seededIn === null || seededIn === (await currentBoot())
    ? null
    : 'the machine went down before it was on the disk';
}

/** Notes that the data of a standby is on the disk: a server that answers has flushed its files. */
export async function noteOnDisk(
  { executor: { monitor } }: Standbys,
  { key, paths }: Found,
): Promise<void> {
  const note = join(paths.root, SEEDED_FILE);
  if (monitor.isConnected(key) && existsSync(note)) await rm(note, { force: true });
}

/** Starts a standby. If it does not start, it is seeded again: the data of the primary is right. */
export async function startStandby<T>(
  { broken }: Standbys,
  key: string,
  start: () => Promise<T>,
): Promise<T> {
  try {
    return await start();
  } catch (error) {
    broken.set(key, messageOf(error));
    throw error;
  }
}

export async function writeReplication(
  { machine }: Pick<Executor, 'machine'>,
  { paths }: Found,
  conf: string,
): Promise<void> {
  const owner = ownerOf(machine, paths);
  await makeInstanceDirectories(owner, paths);
  await writeConfig(owner, paths, { [REPLICATION_FILE]: conf });
}

/** Writes all files of a member or node that does not run. */
export async function configureReplicated(
  executor: Executor,
  found: Found,
  conf: string,
): Promise<void> {
  await configure(executor, found);
  await writeReplication(executor, found, conf);
}

/** Creates a standby again from the running primary. @returns a line for the user */
export async function seedStandby(standbys: Standbys, found: Found, from: Seed): Promise<string> {
  return copying(standbys.executor, () => seed(standbys, found, from));
}

async function seed(
  standbys: Standbys,
  found: Found,
  { primary, slot, conf, why }: Seed,
): Promise<string> {
  const { executor } = standbys;
  const { machine, monitor } = executor;
  const { paths, key } = found;
  const { id, n } = partsOfKey(key);
  const begunMs = Date.now();
  monitor.forget(key);
  if (!(await fence(paths))) throw new Error(`${key} does not end`);
  await dropSlots(monitor, primary.key, [slot]);
  await createSlots(monitor, primary.key, [slot]);
  if (n > 0) await mkdir(join(paths.root, '..'), { recursive: true, mode: 0o711 });
  await configureReplicated(executor, found, conf);
  const unfinished = `${paths.data}.new`;
  const owner = ownerOf(machine, paths);
  await removeTree(unfinished, machine.cloneMethod);
  try {
    const { walPosition } = await cloneRunning(machine, owner, primary.paths, unfinished);
    if (await recreateSlotIfLost(monitor, primary.key, slot))
      await copyWalSince(monitor, owner, primary, walPosition, unfinished);
    await writeOwned(owner, join(unfinished, 'postgresql.auto.conf'), '');
    await writeOwned(owner, join(unfinished, 'standby.signal'), '');
    if (dataOf(paths) === 'primary') await archiveLeftovers(owner, paths);
    // The server flushes the data at its first start. The note shows if the machine goes down
    // before.
    await writeFile(join(paths.root, SEEDED_FILE), await currentBoot(), { flush: true });
    await discard(machine, id, paths.data);
    await rename(unfinished, paths.data);
  } catch (error) {
    await removeTree(unfinished, machine.cloneMethod);
    throw error;
  }
  forgetStandby(standbys, key);
  return `by ${machine.cloneMethod} in ${Date.now() - begunMs} ms: ${why}`;
}

/**
 * Recreates the slot of a standby if it was lost: a slot keeps at most `max_slot_wal_keep_size`,
 * and more WAL than that may be written during a copy.
 *
 * @returns whether it was recreated, and keeps nothing older than the last checkpoint
 */
async function recreateSlotIfLost(
  monitor: Monitored,
  primaryKey: string,
  slot: string,
): Promise<boolean> {
  const kept =
    'select from pg_replication_slots where slot_name = $1 ' +
    "and wal_status in ('reserved', 'extended')";
  if ((await monitor.query(primaryKey, kept, [slot])).length > 0) return false;
  await dropSlots(monitor, primaryKey, [slot]);
  await createSlots(monitor, primaryKey, [slot]);
  return true;
}

/**
 * Copies to a clone the WAL that its primary has written since; the archive has what the primary
 * has removed.
 */
async function copyWalSince(
  monitor: Monitored,
  owner: Owner | null,
  { key, paths }: Seed['primary'],
  position: string,
  target: string,
): Promise<void> {
  const [files] = await monitor.query<{ first: string; last: string }>(
    key,
    // The byte before the end: the end itself may belong to a segment that does not exist yet.
    'select pg_walfile_name($1::pg_lsn) ' +
      'as first, pg_walfile_name(pg_current_wal_lsn() - 1) as last',
    [position],
  );
  if (files !== undefined) await copyWalFiles(owner, paths, files.first, files.last, target);
}

/**
 * Creates the slots that are missing: by them, a primary keeps the WAL that standbys have not
 * received.
 */
export async function createSlots(
  monitor: Monitored,
  primaryKey: string,
  names: readonly string[],
): Promise<void> {
  await monitor.query(
    primaryKey,
    `select pg_create_physical_replication_slot(name, true) from unnest($1::text[]) as name
     where not exists (select from pg_replication_slots where slot_name = name)`,
    [names],
  );
}

/** Drops slots that are not in use. @returns how many */
export async function dropSlots(
  monitor: Monitored,
  primaryKey: string,
  names: readonly string[],
): Promise<number> {
  const dropped = await monitor.query(
    primaryKey,
    'select pg_drop_replication_slot(slot_name) from pg_replication_slots ' +
      'where slot_name = any ($1::text[]) and not active',
    [names],
  );
  return dropped.length;
}

/**
 * The role that a server would have if it started on a data directory. We make only regular files:
 * a standby with anything else is seeded again.
 */
export function dataOf({ data }: InstancePaths): InstanceSeen['data'] {
  if (!existsSync(data)) return 'absent';
  return isFile(join(data, 'standby.signal')) ? 'standby' : 'primary';
}

type OwnPart = 'data' | 'server' | 'connected' | 'silentMs' | 'certificateCurrent';

/** The part of an observed instance or node that it has by itself, whatever it follows. */
export function ownPartOf(
  { found, seen }: { found: Found; seen: Observation },
  { size, preload }: Pick<PlacedSpec, 'size' | 'preload'>,
): Pick<InstanceSeen, OwnPart> {
  const { server } = found;
  return {
    data: dataOf(found.paths),
    server:
      server === null || seen.server === null
        ? null
        : {
            phase: seen.server.phase,
            size:
              seen.server.start === 'restart'
                ? 'restart'
                : compareSizes(server.size, size, preload),
            port: server.port,
            frozen: server.postmaster.frozen,
            placed: seen.server.placed,
          },
    connected: seen.connected,
    silentMs: seen.silentMs,
    certificateCurrent: seen.certificateCurrent,
  };
}

/** The settings of a server as a member or a node. */
export async function confOf({ config }: InstancePaths): Promise<string> {
  return (await readOrNull(join(config, REPLICATION_FILE))) ?? '';
}

/** Bounds the logs of the servers, the pooler and the gateway of a service. */
export async function tidyReplicated(
  { layout }: Machine,
  id: string,
  found: ReadonlyMap<number, Found>,
): Promise<void> {
  for (const { paths } of found.values()) if (existsSync(paths.logs)) await pruneLogs(paths.logs);
  await Promise.all([capLog(layout.service(id).pooler), capLog(layout.gateway(id))]);
}
