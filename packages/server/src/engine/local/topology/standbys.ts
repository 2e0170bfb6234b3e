/** What standbys of every kind have in common: their slots on the primary, what is wrong with them, and how they are made from it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Found, Executor } from './apply.ts';
import { archiveLeftovers } from '../backup/recovery.ts';
import { cloneRunning, writeOwned } from '../backup/take.ts';
import { copyWalFiles } from '../postgres/wal-files.ts';
import { discard, removeTree } from '../host/clone.ts';
import type { MemberSeen } from './decide-ha.ts';
import { REPLICATION_FILE } from '../postgres/files.ts';
import { partsOfKey, type InstancePaths } from '../host/layout.ts';
import type { Machine, Owner } from '../host/machine.ts';
import { currentBoot } from '../host/marker.ts';
import type { Monitor } from '../postgres/monitor.ts';
import { readOrNull } from '../../../lib/processes.ts';
import { mkdir, rename, rm, writeFile } from '../host/root-files.ts';
import { fence, makeInstanceDirectories, sizeLabel, writeConfig } from '../postgres/server.ts';
import { ownerOf } from '../host/users.ts';
import { isFile } from '../host/service-files.ts';
import type { Size } from '@howdah/contract';

/** A standby that runs, is sent no log and has none left to replay for this long is recreated. */
const FOLLOWS_WITHIN_MS = 15_000;

/**
 * In SQL, whom a server sends its log. Who asks for log that is gone is "catching up" as well, until told so, and asks again at once on a
 * new connection: such a one does not last.
 */
export const RECEIVING = `array(
  select application_name from pg_stat_replication
  where state = 'streaming' or (state = 'catchup' and backend_start < clock_timestamp() - interval '1 s'))`;

/** Beside the data of a standby that was just made, until its server has flushed it: the boot of the machine in which that was. */
const SEEDED_FILE = 'seeded';

export type Seed = {
  /** Whom it is made from. */
  primary: { key: string; paths: InstancePaths };
  /** Its slot there. */
  slot: string;
  /** Its settings as one that follows. */
  conf: string;
  why: string;
};

export function createStandbys(machine: Machine, executor: Executor, monitor: Monitor) {
  /** By the key of a server: since when a standby that runs does not follow, and what is wrong with one that has to be recreated. */
  const lostSinceMs = new Map<string, number>();
  const broken = new Map<string, string>();
  /** How far each had replayed when it was last asked. */
  const replayed = new Map<string, string>();

  const forget = (key: string): void => {
    broken.delete(key);
    lostSinceMs.delete(key);
    replayed.delete(key);
  };

  /** Whether a standby has replayed some log since it was last asked: what it has itself comes before what it is sent. */
  const advances = async (key: string): Promise<boolean> => {
    if (!monitor.isConnected(key) || monitor.silentMs(key) !== null) return false;
    const [row] = await monitor
      .query<{ lsn: string }>(key, 'select pg_last_wal_replay_lsn()::text as lsn')
      .catch(() => []);
    if (row === undefined || row.lsn === replayed.get(key)) return false;
    replayed.set(key, row.lsn);
    return true;
  };

  /** Why a standby has to be recreated; null: it need not. @param follows whether it does, is catching up, or cannot be expected to */
  const brokenOf = async (
    key: string,
    follows: boolean,
    slotLost: boolean,
  ): Promise<string | null> => {
    if (slotLost) return 'it was too far behind: the primary has removed log that it needs';
    if (follows || (await advances(key))) lostSinceMs.delete(key);
    else if (!lostSinceMs.has(key)) lostSinceMs.set(key, performance.now());
    if (performance.now() - (lostSinceMs.get(key) ?? performance.now()) > FOLLOWS_WITHIN_MS)
      return `it has not followed the primary for ${FOLLOWS_WITHIN_MS / 1000} s`;
    return broken.get(key) ?? null;
  };

  /** Why the data of a standby that does not run may lack what never came to the disk; null: it does not. */
  const incompleteSince = async ({ paths, server }: Found): Promise<string | null> => {
    const seededIn = server === null ? await readOrNull(join(paths.root, SEEDED_FILE)) : null;
    return seededIn === null || seededIn === (await currentBoot())
      ? null
      : 'the machine went down before it was on the disk';
  };

  /** A server that answers has flushed what it was made of. */
  const noteOnDisk = async ({ key, paths }: Found): Promise<void> => {
    const note = join(paths.root, SEEDED_FILE);
    if (monitor.isConnected(key) && existsSync(note)) await rm(note, { force: true });
  };

  /** Starts a standby. One that does not start is recreated: whatever is wrong with its data, the primary's is right. */
  const starting = async <T>(key: string, start: () => Promise<T>): Promise<T> => {
    try {
      return await start();
    } catch (error) {
      broken.set(key, error instanceof Error ? error.message : String(error));
      throw error;
    }
  };

  const writeReplication = async ({ paths }: Found, conf: string): Promise<void> => {
    const owner = ownerOf(machine, paths);
    await makeInstanceDirectories(owner, paths);
    await writeConfig(owner, paths, { [REPLICATION_FILE]: conf });
  };

  /** Writes all files of a server that does not run. */
  const configure = async (found: Found, conf: string): Promise<void> => {
    await executor.configure(found);
    await writeReplication(found, conf);
  };

  /** Recreates a standby from the running primary. */
  const seed = (found: Found, from: Seed): Promise<string> =>
    executor.copying(() => clone(found, from));

  const clone = async (found: Found, { primary, slot, conf, why }: Seed): Promise<string> => {
    const { paths, key } = found;
    const { id, n } = partsOfKey(key);
    const begun = Date.now();
    monitor.forget(key);
    if (!(await fence(paths))) throw new Error(`${key} does not end`);
    await dropSlots(primary.key, [slot]);
    await createSlots(primary.key, [slot]);
    if (n > 0) await mkdir(join(paths.root, '..'), { recursive: true, mode: 0o711 });
    await configure(found, conf);
    const unfinished = `${paths.data}.new`;
    const owner = ownerOf(machine, paths);
    await removeTree(unfinished, machine.cloneMethod);
    try {
      const { walPosition } = await cloneRunning(machine, owner, primary.paths, unfinished);
      if (await keepAgain(primary.key, slot))
        await copyWalSince(owner, primary, walPosition, unfinished);
      await writeOwned(owner, join(unfinished, 'postgresql.auto.conf'), '');
      await writeOwned(owner, join(unfinished, 'standby.signal'), '');
      if (dataOf(paths) === 'primary') await archiveLeftovers(owner, paths);
      // Its server flushes it when it first starts; should the machine go down before, this tells.
      await writeFile(join(paths.root, SEEDED_FILE), await currentBoot(), { flush: true });
      await discard(machine, id, paths.data);
      await rename(unfinished, paths.data);
    } catch (error) {
      await removeTree(unfinished, machine.cloneMethod);
      throw error;
    }
    forget(key);
    return `by ${machine.cloneMethod} in ${Date.now() - begun} ms: ${why}`;
  };

  /**
   * A slot keeps no more than `max_slot_wal_keep_size`, and a copy may take longer than it takes to write that much.
   *
   * @returns whether it had to be recreated, and keeps nothing older than the last checkpoint
   */
  const keepAgain = async (primaryKey: string, slot: string): Promise<boolean> => {
    const kept =
      "select from pg_replication_slots where slot_name = $1 and wal_status in ('reserved', 'extended')";
    if ((await monitor.query(primaryKey, kept, [slot])).length > 0) return false;
    await dropSlots(primaryKey, [slot]);
    await createSlots(primaryKey, [slot]);
    return true;
  };

  /** Gives a clone what its primary has written since; what is no longer there is in the archive. */
  const copyWalSince = async (
    owner: Owner | null,
    { key, paths }: Seed['primary'],
    position: string,
    target: string,
  ): Promise<void> => {
    const [files] = await monitor.query<{ first: string; last: string }>(
      key,
      // Of the byte before the end, which may be that of a file of which there is no next yet.
      'select pg_walfile_name($1::pg_lsn) as first, pg_walfile_name(pg_current_wal_lsn() - 1) as last',
      [position],
    );
    if (files !== undefined) await copyWalFiles(owner, paths, files.first, files.last, target);
  };

  /** The slots by which a primary keeps what others have not received. */
  const createSlots = async (primaryKey: string, names: readonly string[]): Promise<void> => {
    await monitor.query(
      primaryKey,
      `select pg_create_physical_replication_slot(name, true) from unnest($1::text[]) as name
       where not exists (select from pg_replication_slots where slot_name = name)`,
      [names],
    );
  };

  /** @returns how many: those in use stay */
  const dropSlots = async (primaryKey: string, names: readonly string[]): Promise<number> => {
    const dropped = await monitor.query(
      primaryKey,
      'select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = any ($1::text[]) and not active',
      [names],
    );
    return dropped.length;
  };

  return {
    brokenOf,
    forget,
    incompleteSince,
    noteOnDisk,
    isBroken: (key: string) => broken.has(key),
    starting,
    configure,
    writeReplication,
    seed,
    createSlots,
    dropSlots,
  };
}

/** What a server that starts on a data directory would be. Anything but a regular file is not of our making: a standby with that is seeded again. */
export function dataOf({ data }: InstancePaths): MemberSeen['data'] {
  if (!existsSync(data)) return 'absent';
  return isFile(join(data, 'standby.signal')) ? 'standby' : 'primary';
}

/** The settings of a server as a member or a node. */
export async function confOf({ config }: InstancePaths): Promise<string> {
  return (await readOrNull(join(config, REPLICATION_FILE))) ?? '';
}

/** How a server's size is to the one that is wanted, by their labels: "500m-2g". */
export function compareSizes(label: string | null, size: Size): 'current' | 'smaller' | 'larger' {
  const wanted = sizeLabel(size);
  if (label === wanted) return 'current';
  const memory = (text: string | null): number => Number(/-(\d+)g$/.exec(text ?? '')?.[1] ?? '0');
  return memory(label) < memory(wanted) ? 'smaller' : 'larger';
}
