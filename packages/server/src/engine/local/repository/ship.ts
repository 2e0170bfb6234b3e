/** Brings the WAL and the backups of a service to a repository. */
import { createTurns } from '../../../lib/turns.ts';
import type { Repository } from '../../../repository/repository.ts';
import type { RunStep } from '../../run-step.ts';
import { BACKUP_STEP, type WantedBackup } from '../../off-machine.ts';
import type { InstancePaths } from '../host/layout.ts';
import { pathCleaner } from '../without-paths.ts';
import { backUp, dueBackup, newestSnapshot, refreshBackups } from './backup.ts';
import type { ShipContext, ShipPolicy } from './context.ts';
import { pushWal, safeTo } from './push.ts';
import { removeSpool, spoolOf } from './spool.ts';
import {
  describeState,
  emptyState,
  readState,
  writeState,
  type OffMachine,
  type ShipState,
} from './state.ts';

/** A service, and the repository that it is shipped to. */
export type Shipment = Readonly<{
  context: ShipContext;
  id: string;
  repository: Repository;
  policy: ShipPolicy;
  signal: AbortSignal;
}>;

/** The state of a service in a repository changes in turn, while a backup is transferred. */
const inTurn = createTurns();

/** Changes the state of a service in a repository, and writes it also if that fails. */
export function changeState<T>(
  { context, id, repository }: Shipment,
  change: (state: ShipState, paths: InstancePaths) => Promise<T>,
): Promise<T> {
  const paths = context.machine.layout.service(id);
  return inTurn(paths.root, async () => {
    const state = (await readState(paths, repository.id)) ?? emptyState(repository.id);
    try {
      return await change(state, paths);
    } finally {
      await writeState(paths, state);
    }
  });
}

/** An error as users of the service read it. */
function problemText({ context }: Shipment, error: unknown): string {
  const clean = pathCleaner(context.machine.layout.root);
  return clean(error instanceof Error ? error.message : String(error));
}

/**
 * Pushes archived WAL that is not in the repository yet. The work is bounded. A fault of the
 * repository is in `problem`, and affects no database.
 *
 * @returns more: whether to call again at once
 * @throws what `signal` was aborted with
 */
export async function ship(
  shipment: Shipment,
): Promise<{ state: OffMachine; more: boolean; isBackupDue: boolean }> {
  const { context, id, policy, signal } = shipment;
  return changeState(shipment, async (state, paths) => {
    let [more, isBackupDue] = [false, false];
    try {
      more = await push(shipment, state, paths);
      isBackupDue = (await dueBackup(paths, state, policy)) !== null;
      state.problem = null;
    } catch (error) {
      signal.throwIfAborted();
      state.problem = problemText(shipment, error);
    } finally {
      await removeSpool(context, spoolOf(context, id, 'ship'));
    }
    return { state: await describeState(paths, state), more, isBackupDue };
  });
}

/** Pushes WAL, and notes how far all commits are there. @returns whether there is more */
async function push(shipment: Shipment, state: ShipState, paths: InstancePaths): Promise<boolean> {
  const { context, id, repository, signal } = shipment;
  if (state.backups.length === 0) await refreshBackups(context, id, repository, state);
  // Without a backup no WAL is of use, and there is no stanza to push it to.
  if (state.backups.length === 0) return false;
  const more = await pushWal(context, id, repository, paths, state, signal);
  const { layout } = context.machine;
  const { data } = layout.member(id, layout.primaryOf(id));
  const ms = more ? state.lastCommitMs : await safeTo(paths, data, state);
  if (ms !== null) state.safeToMs = Math.max(ms, state.safeToMs ?? 0);
  return more;
}

/**
 * Backs the newest snapshot up, if that is due or asked for, as a step of an operation. WAL is
 * shipped meanwhile.
 *
 * @throws RepositoryProblem; what `signal` was aborted with
 */
export async function takeBackup(
  shipment: Shipment,
  wanted: WantedBackup,
  runStep: RunStep,
): Promise<void> {
  const { context, id, repository, policy, signal } = shipment;
  const due = await changeState(shipment, async (state, paths) => {
    if (state.backups.length === 0) await refreshBackups(context, id, repository, state);
    return wanted === 'due' ? dueBackup(paths, state, policy) : newestSnapshot(paths, wanted);
  });
  if (due === null) return;
  const kind = due.type === 'full' ? 'full' : 'incremental';
  const taken = new Date(due.snapshot.takenMs).toISOString();
  const what = `${repository.name}: ${kind} backup of ${taken}`;
  try {
    await runStep(BACKUP_STEP, async (show) => {
      const progress = (percent: number): void => show(`${what}, ${percent} %`);
      const paths = context.machine.layout.service(id);
      await backUp(context, id, repository, paths, due, progress, signal);
      return changeState(shipment, async (state) => {
        await refreshBackups(context, id, repository, state);
        state.backupProblem = null;
        const megabytes = Math.ceil((state.backups[0]?.storageBytes ?? 0) / 1e6);
        return `${what}, ${megabytes} MB in the repository`;
      });
    });
  } catch (error) {
    signal.throwIfAborted();
    await changeState(shipment, async (state) => {
      state.backupProblem = problemText(shipment, error);
    });
    throw error;
  }
}
