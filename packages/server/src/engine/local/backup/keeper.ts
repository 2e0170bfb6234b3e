/** Sees to the backups of services while they run: takes snapshots, prunes, and says what does not get on. */
import { readdir } from 'node:fs/promises';
import type { Warning } from '@howdah/contract';
import type { BackupPolicy } from '../../../config.ts';
import { archiveProblem, reach } from './window.ts';
import { lastVerification, listSnapshots, type KeptSnapshot } from './snapshots.ts';
import { pruneBackups } from './prune.ts';
import { takeSnapshot } from './take.ts';
import { memberKey, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine.ts';
import { readMarker } from '../host/marker.ts';
import { ownerOf } from '../host/users.ts';
import type { Monitor } from '../postgres/monitor.ts';
import { findServer } from '../postgres/server.ts';

/** A checkpoint and the like write a little even when nobody does. */
const IDLE_WAL_BYTES = 8192;

/** A clock is corrected by less than this without anybody putting it back. */
const CLOCK_TOLERANCE_MS = 60_000;
const isFromFuture = ({ takenMs }: KeptSnapshot): boolean =>
  takenMs > Date.now() + CLOCK_TOLERANCE_MS;

export function createKeeper(machine: Machine, monitor: Monitor, policy: BackupPolicy) {
  /** Why the last snapshot that was due could not be taken. */
  const snapshotProblems = new Map<string, string>();
  /** Services whose backups are being seen to. */
  const keeping = new Set<string>();
  /** Services of which nothing is removed, since it is being read. */
  const held = new Set<string>();
  const pruning = new Map<string, Promise<void>>();
  /** Directories of services that are provisioned, which they are for good: their markers need not be read again. */
  let provisioned: ReadonlySet<string> = new Set();

  /** Forks that are being made of a service, whose archive and snapshots they may still need. */
  const provisioningForksOf = async (id: string): Promise<string[]> => {
    const entries = await readdir(machine.layout.services);
    const read = async (entry: string) => ({
      entry,
      marker: await readMarker(machine.layout.service(entry)),
    });
    const looked = await Promise.all(entries.filter((entry) => !provisioned.has(entry)).map(read));
    const provisionedNow = looked
      .filter(({ marker }) => marker?.provisioned === true)
      .map(({ entry }) => entry);
    provisioned = new Set([
      ...entries.filter((entry) => provisioned.has(entry)),
      ...provisionedNow,
    ]);
    return looked.flatMap(({ marker }) =>
      marker !== null && marker.parent === id && !marker.provisioned ? [marker.id] : [],
    );
  };

  /**
   * Takes a snapshot if one is due, and removes what the window needs no more, if that may be done.
   *
   * @returns whether a snapshot was due and could not be taken: {@link warnings} has why
   */
  const keep = async (id: string, removes: boolean): Promise<boolean> => {
    // One at a time: another would take a snapshot that is being made for one that was interrupted.
    if (keeping.has(id)) return snapshotProblems.has(id);
    keeping.add(id);
    try {
      await tryDueSnapshot(id);
      if (removes) await prune(id);
      return snapshotProblems.has(id);
    } finally {
      keeping.delete(id);
    }
  };

  /** One that cannot be taken is a warning, and no reason not to make room. */
  const tryDueSnapshot = async (id: string): Promise<void> => {
    const primary = machine.layout.primaryOf(id);
    const paths = machine.layout.member(id, primary);
    try {
      const [newest] = await listSnapshots(paths);
      if (newest === undefined || (await isDue(memberKey(id, primary), paths, newest)))
        await takeSnapshot(machine, ownerOf(machine, paths), paths);
      snapshotProblems.delete(id);
    } catch (error) {
      // A service that was stopped meanwhile, or has another primary by now, wants none.
      if (
        (await findServer(paths)) === null ||
        machine.layout.primaryOf(id) !== primary ||
        !monitor.isConnected(memberKey(id, primary))
      )
        return;
      snapshotProblems.set(id, error instanceof Error ? error.message : String(error));
    }
  };

  const isDue = async (
    key: string,
    paths: InstancePaths,
    newest: KeptSnapshot,
  ): Promise<boolean> => {
    // Dated by a clock that was put back since: it says nothing of when the next one is due, and no moment before its date can be reached from it.
    if (isFromFuture(newest)) return true;
    if (Date.now() - newest.takenMs >= policy.snapshotEveryMs)
      return writtenSince(key, newest.walPosition);
    // Nothing after a gap can be reached but from a snapshot that was taken after it.
    return (await reach(paths, newest)).gap !== null;
  };

  const writtenSince = async (key: string, walPosition: string): Promise<boolean> => {
    if (walPosition === '') return true;
    const [row] = await monitor.query<{ written: boolean }>(
      key,
      `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn) > ${IDLE_WAL_BYTES} as written`,
      [walPosition],
    );
    return row?.written === true;
  };

  const prune = async (
    id: string,
    window: Pick<BackupPolicy, 'windowMs'> = policy,
  ): Promise<void> => {
    if ((await provisioningForksOf(id)).length > 0 || held.has(id)) return;
    const done = pruneBackups(machine, machine.layout.service(id), window).finally(() =>
      pruning.delete(id),
    );
    pruning.set(id, done);
    await done;
  };

  /** Makes room in the archive: with a new snapshot all before it can go, and the window of the backups begins with it. */
  const relieve = async (id: string, removes: boolean): Promise<void> => {
    if (!removes || keeping.has(id) || held.has(id) || (await provisioningForksOf(id)).length > 0)
      return;
    keeping.add(id);
    try {
      const paths = machine.layout.member(id, machine.layout.primaryOf(id));
      await takeSnapshot(machine, ownerOf(machine, paths), paths);
    } catch (error) {
      // What the newest snapshot that is there does not need goes all the same.
      snapshotProblems.set(id, error instanceof Error ? error.message : String(error));
    } finally {
      keeping.delete(id);
    }
    await prune(id, { windowMs: 0 });
  };

  /** Reads backups of a service, none of which is removed meanwhile. */
  const holding = async <T>(id: string, read: () => Promise<T>): Promise<T> => {
    held.add(id);
    try {
      // An error reaches the caller that prunes.
      await pruning.get(id)?.catch(() => undefined);
      return await read();
    } finally {
      held.delete(id);
    }
  };

  /** What does not get on with the backups of a service, running or not. */
  const warnings = async (id: string): Promise<Warning[]> => {
    const paths = machine.layout.member(id, machine.layout.primaryOf(id));
    const archive = await archiveProblem(paths);
    const snapshot = snapshotProblems.get(id);
    const snapshots = await listSnapshots(paths);
    const verification = lastVerification(snapshots);
    const ahead = snapshots.filter(isFromFuture);
    return [
      ...(archive === null ? [] : [{ code: 'ARCHIVE' as const, message: archive }]),
      ...(snapshot === undefined
        ? []
        : [
            {
              code: 'SNAPSHOT' as const,
              message: `no snapshot could be taken: ${snapshot}; it is tried again each minute`,
            },
          ]),
      ...(ahead.length === 0
        ? []
        : [
            {
              code: 'SNAPSHOT' as const,
              message: `${ahead.length} snapshots are dated in the future (${ahead.map(({ takenMs }) => new Date(takenMs).toISOString()).join(', ')}): the clock was put back. A new one is taken while the service runs; moments of the time when the clock was ahead may not be reachable. Keep the clock in time (timedatectl)`,
            },
          ]),
      ...(verification?.problem === undefined
        ? []
        : [
            {
              code: 'VERIFICATION' as const,
              message: `the backup could not be verified at ${verification.at}: ${verification.problem}; when it is fixed, verify it again (howdah backup verify ${id})`,
            },
          ]),
    ];
  };

  return {
    keep,
    relieve,
    isDue,
    holding,
    warnings,
    provisioningForksOf,
    forget: (id: string): void => void snapshotProblems.delete(id),
  };
}
