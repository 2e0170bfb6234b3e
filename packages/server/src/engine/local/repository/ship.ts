/** Brings the WAL and the backups of a service to a repository. */
import { createTurns } from '../../../lib/turns.ts';
import type { Repository } from '../../../repository/repository.ts';
import type { RunStep } from '../../run-step.ts';
import { BACKUP_STEP, type WantedBackup } from '../../off-machine.ts';
import { stanzaOf } from '../../../repository/stanzas.ts';
import type { InstancePaths } from '../host/layout.ts';
import { markerOf } from '../host/marker.ts';
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

/** The data of a service, and the repository that it is shipped to. */
export type Shipment = Readonly<{
  context: ShipContext;
  id: string;
  /** The upgrade that has made the data; null: none has. */
  upgrade: string | null;
  repository: Repository;
  policy: ShipPolicy;
  signal: AbortSignal;
}>;

/** The state of a service in a repository changes in turn, while a backup is transferred. */
const inTurn = createTurns();

/** Changes the state of a service in a repository, and writes it also if that fails. */
export function changeState<T>(
  { context, id, upgrade, repository }: Omit<Shipment, 'policy'>,
  change: (state: ShipState, paths: InstancePaths) => Promise<T>,
): Promise<T> {
  const paths = context.machine.layout.service(id);
  return inTurn(paths.root, async () => {
    const state =
      (await readState(paths, repository.id, upgrade)) ?? emptyState(repository.id, upgrade);
    try {
      return await change(state, paths);
    } finally {
      await writeState(paths, state);
    }
  });
}

/** An error as users of the service read it. */
function problemText({ context }: Pick<Shipment, 'context'>, error: unknown): string {
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
  return changeState(shipment, async (state, paths) => {
    let [more, isBackupDue] = [false, false];
    try {
      more = await push(shipment, state, paths);
      isBackupDue = (await dueBackup(paths, state, shipment.policy)) !== null;
      state.problem = null;
    } catch (error) {
      shipment.signal.throwIfAborted();
      state.problem = problemText(shipment, error);
    }
    return { state: await describeState(paths, state), more, isBackupDue };
  });
}

/**
 * Pushes all archived WAL of a service that has stopped.
 *
 * @returns whether the repository has it; true too if it has no backup of the service
 */
export function pushRest(shipment: Omit<Shipment, 'policy'>): Promise<boolean> {
  return changeState(shipment, async (state, paths) => {
    try {
      while (await push(shipment, state, paths));
    } catch (error) {
      state.problem = problemText(shipment, error);
    }
    const { backups, backlog } = await describeState(paths, state);
    return backups.length === 0 || backlog.files === 0;
  });
}

/** Pushes WAL, and notes how far all commits are there. @returns whether there is more */
async function push(
  { context, id, upgrade, repository, signal }: Omit<Shipment, 'policy'>,
  state: ShipState,
  paths: InstancePaths,
): Promise<boolean> {
  const stanza = stanzaOf(id, upgrade);
  if (state.backups.length === 0) await refreshBackups(context, id, repository, state);
  // Without a backup no WAL is of use, and there is no stanza to push it to.
  if (state.backups.length === 0) return false;
  let more = false;
  try {
    more = await pushWal(context, stanza, repository, paths, state, signal);
  } finally {
    await removeSpool(context, spoolOf(context, stanza, 'ship'));
  }
  const { layout } = context.machine;
  const { data } = layout.member(id, layout.primaryOf(id));
  const ms = more ? state.lastCommitMs : await safeTo(paths, data, state);
  // An upgrade may have exchanged the data meanwhile: its WAL says nothing of this state.
  if (ms !== null && isInPlace(paths, upgrade)) state.safeToMs = Math.max(ms, state.safeToMs ?? 0);
  return more;
}

/** Whether a service has this data, and its archive the WAL of it. */
function isInPlace(paths: InstancePaths, upgrade: string | null): boolean {
  const marker = markerOf(paths);
  return marker !== null && marker.exchange === null && marker.upgrade === upgrade;
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
  const { context, id, upgrade, repository, policy, signal } = shipment;
  const due = await changeState(shipment, async (state, paths) => {
    if (state.backups.length === 0) await refreshBackups(context, id, repository, state);
    const chosen = await (wanted === 'due'
      ? dueBackup(paths, state, policy)
      : newestSnapshot(paths, wanted));
    if (!isInPlace(paths, upgrade))
      throw new Error('its data is being exchanged by an upgrade: ask again when that is done');
    // The backup that failed is there: its end was not noticed, or another one has followed.
    if (chosen === null) state.backupProblem = null;
    return chosen;
  });
  if (due === null) return;
  const kind = due.type === 'full' ? 'full' : 'incremental';
  const taken = new Date(due.snapshot.takenMs).toISOString();
  const what = `${repository.name}: ${kind} backup of ${taken}`;
  try {
    await runStep(BACKUP_STEP, async (show) => {
      const progress = (percent: number): void => show(`${what}, ${percent} %`);
      const paths = context.machine.layout.service(id);
      const stanza = stanzaOf(id, upgrade);
      await backUp(context, stanza, repository, paths, due, progress, signal);
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
