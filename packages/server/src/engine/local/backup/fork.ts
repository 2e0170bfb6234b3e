/**
 * Makes the data directory of a fork: of now, of the last snapshot, or of a point in time.
 */
import { join } from 'node:path';
import type { Origin } from '../../spec.ts';
import { cloneTree } from '../host/clone.ts';
import { readControl, writeSystemIdentifier } from '../../postgres/data/identity.ts';
import { instancePaths, type InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Owner } from '../host/users.ts';
import { findServer } from '../postgres/server.ts';
import { phaseOf } from '../../postgres/postmaster-file.ts';
import { NotYet } from '../../not-yet.ts';
import { type Snapshot, chooseSnapshot, listSnapshots } from './snapshots.ts';
import { OF_THE_SERVER, cloneRunning, assertSpace, writeOwned } from './running-clone.ts';
import { copyWalFrom } from './recovery.ts';
import { forkRecoveryConf } from '../../postgres/recovery-conf.ts';
import { reach } from './window.ts';

/**
 * The data of a fork that was made. `moment`: ISO 8601, the moment of its parent that it has the
 * state of; `detail`: a line for the operation.
 */
export type Forked = { readonly moment: string; readonly detail: string };

/**
 * Makes the data directory of a fork. Its server recovers by itself; for a point in time, from the
 * parent's archive.
 *
 * @throws Error when the parent has nothing that the fork could begin with, or its archive has a
 *   gap before the point in time
 */
export async function forkData(
  machine: Machine,
  owner: Owner | null,
  parent: InstancePaths,
  target: string,
  origin: Origin,
  writeMark: () => Promise<void>,
): Promise<Forked> {
  if (origin.strategy === 'NOW') return forkNow(machine, owner, parent, target);
  const snapshots = await listSnapshots(parent);
  if (origin.strategy === 'LAST_SNAPSHOT') {
    const [newest] = snapshots;
    // A parent that has not even its first snapshot yet is as young as a snapshot would be.
    if (newest === undefined) return forkNow(machine, owner, parent, target);
    await materialise(machine, owner, parent, newest, target);
    const moment = new Date(newest.takenMs).toISOString();
    return { moment, detail: `snapshot of ${moment}, by ${machine.cloneMethod}` };
  }
  const targetTime = origin.targetTime ?? '';
  const base = chooseSnapshot(snapshots, Date.parse(targetTime));
  if (base === null) throw new Error(`the parent has no snapshot from before ${targetTime}`);
  // Recovery stops before the first commit after the point in time: there has to be one.
  await writeMark();
  const { gap, latestMs } = await reach(parent, base);
  if (gap !== null && latestMs < Date.parse(targetTime)) {
    throw new Error(
      `WAL file ${gap} is missing from the archive: ` +
        `nothing after ${new Date(latestMs).toISOString()} can be reached`,
    );
  }
  await materialise(machine, owner, parent, base, target);
  await copyWalFrom(machine, owner, parent, base.firstWal, target);
  await writeOwned(owner, join(target, 'postgresql.auto.conf'), forkRecoveryConf(targetTime));
  await writeOwned(owner, join(target, 'recovery.signal'), '');
  const detail =
    `snapshot of ${new Date(base.takenMs).toISOString()}, by ${machine.cloneMethod}, ` +
    `to be rolled forward to ${targetTime}`;
  return { moment: targetTime, detail };
}

/**
 * Makes a data directory of a snapshot, which recovers over the WAL of the service.
 *
 * @param targetTime where it ends: the WAL must have a commit after it; null: at the end
 */
export async function rollForward(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  snapshot: Snapshot,
  target: string,
  targetTime: string | null,
): Promise<void> {
  await materialise(machine, owner, paths, snapshot, target);
  await copyWalFrom(machine, owner, paths, snapshot.firstWal, target);
  await writeOwned(owner, join(target, 'postgresql.auto.conf'), forkRecoveryConf(targetTime));
  await writeOwned(owner, join(target, 'recovery.signal'), '');
}

async function forkNow(
  machine: Machine,
  owner: Owner | null,
  parent: InstancePaths,
  target: string,
): Promise<Forked> {
  const begun = Date.now();
  const forked = (of: string, ms = Date.now()): Forked => ({
    moment: new Date(ms).toISOString(),
    detail: `by ${machine.cloneMethod} of the ${of} parent in ${Date.now() - begun} ms`,
  });
  const server = await findServer(parent);
  if (server === null) {
    await assertSpace(machine, parent);
    const before = await readControl(parent.data);
    await cloneTree(parent.data, target, machine, owner, OF_THE_SERVER);
    // Every start and every end of a server is noted in its control file.
    const lay =
      (await findServer(parent)) === null && (await readControl(parent.data)).equals(before);
    if (!lay) throw new NotYet('its parent was started meanwhile');
    await writeOwned(owner, join(target, 'postgresql.auto.conf'), '');
    return forked('paused');
  }
  if ((await phaseOf(parent)) !== 'ready') throw new NotYet('its parent is starting or stopping');
  let taken;
  try {
    taken = await cloneRunning(machine, owner, parent, target);
  } catch (error) {
    // A parent that was stopped meanwhile is cloned when it lies still.
    const still = await findServer(parent);
    if (still === null || (await phaseOf(parent)) !== 'ready')
      throw new NotYet('its parent is starting or stopping', { cause: error });
    throw error;
  }
  await writeOwned(owner, join(target, 'postgresql.auto.conf'), '');
  return forked('running', taken.endedMs);
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
    await cloneTree(join(paths.snapshots, snapshot.id, 'data'), target, machine, owner);
  } else {
    await cloneTree(
      instancePaths(join(machine.layout.templates, snapshot.template)).data,
      target,
      machine,
      owner,
    );
    await writeSystemIdentifier(target, BigInt(snapshot.systemIdentifier ?? '0'));
  }
  await writeOwned(owner, join(target, 'postgresql.auto.conf'), '');
}
