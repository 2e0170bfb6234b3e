/** The service that a reconciler works on, under the claim that it holds. */
import type { OperationRow, RecordedStep } from '../domain/operation.ts';
import { isRestoreOver } from '../domain/service/removal.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { serviceStatus } from '../domain/service/status.ts';
import type { Seen } from '../engine/engine.ts';
import type { Region, Regions } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import type { Store } from '../store/database.ts';
import { claimService, lockClaimed } from '../store/claims.ts';
import { beginOperation, HOWDAH, progressOperation, takeUpOperation } from '../store/operations.ts';
import { changeService, endRestoreTime } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';
import { findKept } from './kept-backups.ts';

export type ReconcilerOptions = {
  readonly store: Store;
  /** Services of other regions are left alone. */
  readonly region: Region;
  /** All of them: a service may move from one to another. */
  readonly regions: Regions;
  readonly log: Log;
  readonly rounds: Rounds;
  /** For how long a deleted service can be restored. */
  readonly restoreWindowMs: number;
  /** Called after a service settled, with its row. */
  readonly onSettled: (service: ServiceRow) => void;
};

/** The options of a reconciler, and whether it is being closed. */
export type ReconcilerContext = ReconcilerOptions & { readonly closing: AbortSignal };

/**
 * The service as the metadata database has it, its running operation, and the steps of that so far.
 */
export type Work = {
  id: string;
  token: string;
  service: ServiceRow;
  operation: OperationRow | null;
  steps: RecordedStep[];
  savedAtMs: number;
};

export function workOn(
  { id, token }: Pick<Work, 'id' | 'token'>,
  service: ServiceRow,
  operation: OperationRow | null,
): Work {
  const steps = operation === null ? [] : [...operation.steps];
  return { id, token, service, operation, steps, savedAtMs: Date.now() };
}

/**
 * Takes the claim of a service; an operation that was waiting begins.
 *
 * @returns null if another reconciler holds the claim, or the service is gone or in another region
 */
export async function openWork(
  { store, region, restoreWindowMs }: ReconcilerContext,
  claim: Pick<Work, 'id' | 'token'>,
): Promise<Work | null> {
  const taken = await store.db.transaction().execute(async (tx) => {
    const service = await claimService(tx, region.code, claim.id, claim.token);
    if (service === null) return null;
    const operation = await takeUpOperation(tx, service);
    const isCurrent = serviceStatus(service, operation) === service.status;
    const row = isCurrent ? service : await changeService(tx, service, {}, operation);
    return workOn(claim, row, operation);
  });
  if (taken === null || !isRestoreOver(taken.service, restoreWindowMs)) return taken;
  // From here on the service is restored from a repository, or has no owner: a restore must not
  // count on its data, however long the removal takes.
  const { service: deleted } = taken;
  const kept = deleted.kept === null ? await findKept({ store, region }, deleted) : null;
  return store.db.transaction().execute(async (tx) => {
    const { service, operation } = await lockClaimed(tx, claim.id, claim.token, taken.operation);
    if (!isRestoreOver(service, restoreWindowMs)) return workOn(claim, service, operation);
    return workOn(claim, await endRestoreTime(tx, service, kept), null);
  });
}

/** Writes the steps so far, so that users see the progress. */
export async function saveSteps({ store }: ReconcilerContext, work: Work): Promise<void> {
  const { operation } = work;
  if (operation === null) return;
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockClaimed(tx, work.id, work.token, operation);
    if (locked.operation?.id === operation.id)
      await progressOperation(tx, operation.id, work.steps, operation.error);
  });
  work.savedAtMs = Date.now();
}

/** Begins a repair if a service must run and does not: its status says so before it is repaired. */
export async function announceFault(
  { store, log }: ReconcilerContext,
  work: Work,
  { reachable }: Seen,
): Promise<void> {
  const { service } = work;
  if (
    work.operation !== null ||
    service.project_id === null ||
    service.deleting ||
    service.power === 'paused' ||
    reachable
  )
    return;
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockClaimed(tx, work.id, work.token, null);
    if (locked.operation === null) Object.assign(work, await openRepair(tx, log, locked.service));
  });
}

/** Records that a service does not run, with an operation that repairs it. */
export async function openRepair(
  tx: Tx,
  log: Log,
  service: ServiceRow,
): Promise<{ service: ServiceRow; operation: OperationRow }> {
  const repair = await beginOperation(tx, service, 'repair', HOWDAH, null);
  const operation = await progressOperation(tx, repair.id, [], null);
  log.warn({ service: service.id }, 'a service that must run does not run: repairing it');
  return {
    operation,
    service: await changeService(tx, service, { reachable: false }, operation),
  };
}
