/** Brings the backups of a service to a repository. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Repository } from '../../../repository/repository.ts';
import type { InstancePaths } from '../host/layout.ts';
import { pathCleaner } from '../without-paths.ts';
import { backUp, dueBackup, refreshBackups, type DueBackup } from './backup.ts';
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

/** WAL is pushed this often while a backup is transferred, which may take hours. */
const PUSH_EVERY_MS = 10_000;

/** Directories of services that are being shipped: one call at a time for each. */
const shipping = new Set<string>();

/** A service, and the repository that it is shipped to. */
type Shipment = Readonly<{
  context: ShipContext;
  id: string;
  repository: Repository;
  policy: ShipPolicy;
  paths: InstancePaths;
  state: ShipState;
  signal: AbortSignal;
}>;

/**
 * Pushes archived WAL that is not in the repository yet, and a backup when one is due. The work is
 * bounded, but for a backup, during which WAL is pushed as well. A fault of the repository is in
 * `problem`, and affects no database.
 *
 * @returns more: whether to call again at once
 * @throws what `signal` was aborted with
 */
export async function ship(
  context: ShipContext,
  id: string,
  repository: Repository,
  policy: ShipPolicy,
  signal: AbortSignal,
): Promise<{ state: OffMachine; more: boolean }> {
  const paths = context.machine.layout.service(id);
  const state = (await readState(paths, repository.id)) ?? emptyState(repository.id);
  if (shipping.has(paths.root)) return { state: await describeState(paths, state), more: false };
  shipping.add(paths.root);
  let more = false;
  try {
    more = await shipAll({ context, id, repository, policy, paths, state, signal });
    state.problem = null;
  } catch (error) {
    signal.throwIfAborted();
    const clean = pathCleaner(context.machine.layout.root);
    state.problem = clean(error instanceof Error ? error.message : String(error));
  } finally {
    await removeSpool(context, spoolOf(context, id, 'ship'));
    shipping.delete(paths.root);
  }
  await writeState(paths, state);
  return { state: await describeState(paths, state), more };
}

/** @returns whether there is more WAL */
async function shipAll(shipment: Shipment): Promise<boolean> {
  const { context, id, repository, policy, paths, state } = shipment;
  if (state.backups.length === 0) await refreshBackups(context, id, repository, state);
  // Without a backup no WAL is of use, and there is no stanza to push it to.
  if (state.backups.length > 0 && (await push(shipment))) return true;
  const due = await dueBackup(paths, state, policy);
  if (due === null) return false;
  await pushDuring(shipment, due);
  return push(shipment);
}

/** Pushes WAL, and notes how far all commits are there. @returns whether there is more */
async function push(shipment: Shipment): Promise<boolean> {
  const { context, id, repository, paths, state, signal } = shipment;
  const more = await pushWal(context, id, repository, paths, state, signal);
  const { layout } = context.machine;
  const { data } = layout.member(id, layout.primaryOf(id));
  const ms = more ? state.lastCommitMs : await safeTo(paths, data, state);
  if (ms !== null) state.safeToMs = Math.max(ms, state.safeToMs ?? 0);
  await writeState(paths, state);
  return more;
}

/** Backs up, and pushes WAL meanwhile if the service has a stanza. */
async function pushDuring(shipment: Shipment, due: DueBackup): Promise<void> {
  const { context, id, repository, paths, state, signal } = shipment;
  const hasStanza = state.backups.length > 0;
  let done = false;
  const backup = backUp(context, id, repository, paths, state, due, signal).finally(() => {
    done = true;
  });
  const ended = backup.catch(() => undefined); // its error is thrown below
  while (!done) {
    await Promise.race([ended, sleep(PUSH_EVERY_MS, undefined, { ref: false })]);
    // The backup goes on while WAL cannot be pushed, which the next call reports.
    if (!done && hasStanza) await push(shipment).catch(() => undefined);
  }
  await backup;
}
