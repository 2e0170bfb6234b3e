/** Records what a step has shown: the steps in the operation, the observed state in the service. */
import {
  type OperationRow,
  endOfStep,
  deadlineMs,
  problemOfSettledOperation,
} from '../domain/operation.ts';
import { backoffMs } from '../domain/service/backoff.ts';
import { msUntilNotKept } from '../domain/service/move-progress.ts';
import { msUntilRestoreIsOver, mustBeRemoved } from '../domain/service/removal.ts';
import { upgradedWith, upgradedWithout } from '../domain/service/upgrades.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { DRILL_STEP, type Verdict } from '../engine/engine.ts';
import { forgetServers } from '../store/engine-records.ts';
import { givenBack, lockClaimed } from '../store/claims.ts';
import { endOperation, progressOperation } from '../store/operations.ts';
import { changeService, deleteServiceRow } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';
import { releaseAddresses } from '../store/vpcs.ts';
import { SHOW_AFTER_MS } from './take-step.ts';
import { workOn, type ReconcilerContext, type Work } from './work.ts';

/**
 * A settled service that runs is reconciled again after this long: its certificate is renewed, its
 * logs are pruned.
 */
const RECHECK_MS = 3_600_000;

/** Steps kept of an operation that is tried again and again: the last ones. */
const MAX_STEPS = 100;

/** No change of an extension is asked for any more. */
const NO_REQUEST: ServiceChange = { creates_extension: null, drops_extension: null };

/** Restored data is in use: it is not restored again. */
const restored = ({ seen }: Verdict, { power }: ServiceRow): ServiceChange =>
  seen.provisioned && power === 'running' ? { recovery: null } : {};

/** The change of the record when an upgrade, its undo, or a reset is done or given up. */
const upgraded = ({
  pg_version: from,
  upgrade,
  upgraded: last,
  power,
}: ServiceRow): ServiceChange => {
  if (upgrade === null) return {};
  const { id, to, undo, problem, reset } = upgrade;
  if (problem !== null) return { upgrade: null };
  if (power === 'paused') return {};
  const at = new Date().toISOString();
  // Nothing is left of the data of before.
  if (reset !== undefined)
    return { upgrade: null, upgraded: upgradedWith(last, { id, from: null, at }) };
  if (undo || from === null)
    return { pg_version: to, upgrade: null, upgraded: upgradedWithout(last, id) };
  return { pg_version: to, upgrade: null, upgraded: upgradedWith(last, { id, from, at }) };
};

/** An aborted move ends beside operations, right after the one that has settled the service. */
const msUntilUndone = ({ service, operation }: Recording): number | null =>
  service.move?.state === 'abort' && operation !== null ? 0 : null;

const earliest = (...times: readonly (number | null)[]): number | null => {
  const known = times.filter((ms) => ms !== null);
  return known.length === 0 ? null : Math.min(...known);
};

/** `isReleased`: the claim was given back. */
type Recorded = { isSettled: boolean; next: Work; isReleased: boolean };

/** A verdict that is being recorded, and the service as the transaction holds it locked. */
type Recording = {
  readonly context: ReconcilerContext;
  readonly tx: Tx;
  readonly work: Work;
  readonly service: ServiceRow;
  readonly operation: OperationRow | null;
  readonly verdict: Verdict;
  readonly isPastDeadline: boolean;
  /** Whether to give the claim back, so that other services get their turn. */
  readonly giveWay: boolean;
};

/**
 * Records a verdict, and reads the desired state again. Steps that went well and fast are written
 * together with the next one.
 *
 * @param giveWay whether to give the claim back and continue later
 * @returns what to continue with; null: the claim was given back
 */
export async function record(
  context: ReconcilerContext,
  work: Work,
  verdict: Verdict,
  giveWay: boolean,
): Promise<Work | null> {
  const open = work.steps.at(-1);
  if (verdict.did !== null && open?.finished === null)
    Object.assign(open, endOfStep(verdict.outcome === 'failed' ? 'failed' : 'ok', verdict.detail));
  const isPastDeadline =
    work.operation !== null &&
    Date.now() - work.operation.created.getTime() > deadlineMs(work.operation.kind, work.service);
  const isFast =
    verdict.outcome === 'again' && !isPastDeadline && Date.now() - work.savedAtMs < SHOW_AFTER_MS;
  const leaves = context.closing.aborted || giveWay;
  if (isFast && !leaves) return work;
  const { isSettled, next, isReleased } = await context.store.db
    .transaction()
    .execute((tx) => recordIn(context, tx, work, { verdict, isPastDeadline, giveWay: leaves }));
  if (isSettled) context.onSettled(next.service);
  return isReleased ? null : next;
}

async function recordIn(
  context: ReconcilerContext,
  tx: Tx,
  work: Work,
  found: Pick<Recording, 'verdict' | 'isPastDeadline' | 'giveWay'>,
): Promise<Recorded> {
  const { service, operation } = await lockClaimed(tx, work.id, work.token, work.operation);
  const verdict = isOutdated(context, found.verdict, work.service, service)
    ? ({ ...found.verdict, outcome: 'again', waitMs: 0 } as const)
    : found.verdict;
  const recording = { ...found, context, tx, work, service, operation, verdict };
  // Another desired state was recorded meanwhile: the observation counts, then the new one is
  // pursued.
  if (operation?.id !== work.operation?.id)
    return keepClaim(recording, seenIn(recording), operation);
  switch (verdict.outcome) {
    case 'settled':
      return recordSettled(recording);
    case 'again':
      return recordProgress(recording, verdict);
    case 'failed':
      return recordFailure(recording, verdict);
  }
}

/** Whether a service settled in a state that is no longer the desired one. */
function isOutdated(
  { restoreWindowMs }: ReconcilerContext,
  { outcome }: Verdict,
  before: ServiceRow,
  now: ServiceRow,
): boolean {
  return (
    outcome === 'settled' &&
    // A read replica set follows its service into another VPC.
    (now.vpc_id !== before.vpc_id ||
      // Purged meanwhile: it has stopped, and its data still exists.
      mustBeRemoved(now, restoreWindowMs) !== mustBeRemoved(before, restoreWindowMs))
  );
}

type SeenColumns = Pick<ServiceRow, 'reachable' | 'provisioned' | 'suspended_at'>;

function seenIn({ verdict, service }: Recording): SeenColumns {
  return {
    suspended_at: verdict.seen.asleep === true ? (service.suspended_at ?? new Date()) : null,
    reachable: verdict.seen.reachable && service.power === 'running',
    // Lost data does not make it a new service.
    provisioned: service.provisioned || verdict.seen.provisioned,
  };
}

/** There is more to do now: the claim stays, unless it gives way. */
async function keepClaim(
  { tx, work, service, giveWay }: Recording,
  change: ServiceChange,
  operation: OperationRow | null,
): Promise<Recorded> {
  const all = { ...change, ...(giveWay ? givenBack(service, 0) : {}) };
  const row = await changeService(tx, service, all, operation);
  return { isSettled: false, next: workOn(work, row, operation), isReleased: giveWay };
}

/** Gives the claim back. @param dueInMs when to reconcile again; null: when it is made due */
async function giveClaimBack(
  { tx, work, service, verdict, giveWay }: Recording,
  change: ServiceChange,
  operation: OperationRow | null,
  dueInMs: number | null,
): Promise<Recorded> {
  const all = { ...change, ...givenBack(service, giveWay ? 0 : dueInMs) };
  const row = await changeService(tx, service, all, operation);
  const isSettled = verdict.outcome === 'settled';
  return { isSettled, next: workOn(work, row, operation), isReleased: true };
}

async function recordSettled(recording: Recording): Promise<Recorded> {
  const { context, tx, work, service, operation, verdict } = recording;
  const { restoreWindowMs } = context;
  if (operation !== null) {
    const problem = problemOfSettledOperation(operation.kind, work.steps, service);
    const status = problem === null ? 'succeeded' : 'failed';
    await endOperation(tx, operation.id, status, problem, work.steps);
  }
  const { kept } = service;
  if (service.deleting && kept !== null && service.project_id !== null) {
    await forgetServers(tx, service.id);
    return giveClaimBack(
      recording,
      { kept: { ...kept, isRemoved: true }, reachable: false, attempt: 0 },
      null,
      msUntilRestoreIsOver(service, restoreWindowMs),
    );
  }
  if (mustBeRemoved(service, restoreWindowMs)) {
    await releaseAddresses(tx, service.id, null);
    await deleteServiceRow(tx, service);
    return { isSettled: true, next: { ...work, operation: null }, isReleased: true };
  }
  if (service.deleting) {
    // The service has stopped and is invisible from here on. Its data is kept until it is restored
    // or purged.
    await releaseAddresses(tx, service.id, service.vpc_id);
    const deleted = { deleted_at: service.deleted_at ?? new Date() };
    return giveClaimBack(
      recording,
      { ...deleted, reachable: false, attempt: 0 },
      null,
      earliest(
        msUntilRestoreIsOver({ ...service, ...deleted }, restoreWindowMs),
        msUntilUndone(recording),
      ),
    );
  }
  // Whatever the operation was, the service is in the desired network and in no other.
  if (operation !== null && operation.kind !== 'create')
    await releaseAddresses(tx, service.id, service.vpc_id);
  return giveClaimBack(
    recording,
    {
      ...NO_REQUEST,
      ...restored(verdict, service),
      ...upgraded(service),
      ...seenIn(recording),
      attempt: 0,
    },
    null,
    earliest(
      service.power === 'running' ? RECHECK_MS : null,
      service.move === null ? null : msUntilNotKept(service.move, Date.now()),
      msUntilUndone(recording),
    ),
  );
}

async function recordProgress(
  recording: Recording,
  verdict: Extract<Verdict, { outcome: 'again' }>,
): Promise<Recorded> {
  const { tx, work, operation, isPastDeadline } = recording;
  if (operation === null) return keepClaim(recording, seenIn(recording), null);
  const minutes = Math.round(deadlineMs(operation.kind, recording.service) / 60_000);
  const error = isPastDeadline
    ? `not done after ${minutes} minutes: ${verdict.detail ?? 'working on it'}`
    : null;
  return keepClaim(
    recording,
    seenIn(recording),
    await progressOperation(tx, operation.id, work.steps, error),
  );
}

async function recordFailure(
  recording: Recording,
  { did, reason, isFinal }: Extract<Verdict, { outcome: 'failed' }>,
): Promise<Recorded> {
  const { context, tx, work, service, operation } = recording;
  const attempt = service.attempt + 1;
  context.log.warn(
    { service: service.id, operation: operation?.kind, reason, attempt },
    'a step failed; trying again',
  );
  const steps = work.steps.slice(-MAX_STEPS);
  const seen = seenIn(recording);
  if (isFinal === true && operation !== null && service.upgrade !== null) {
    // The operation ends when the service runs again as it was.
    const change = { ...seen, upgrade: { ...service.upgrade, problem: reason }, attempt: 0 };
    return keepClaim(recording, change, await progressOperation(tx, operation.id, steps, null));
  }
  if (
    operation !== null &&
    (isFinal === true || (operation.kind === 'drill' && did === DRILL_STEP))
  ) {
    // The operation is not tried again; the next round repairs what it left undone.
    await endOperation(tx, operation.id, 'failed', reason, steps);
    return giveClaimBack(recording, { ...NO_REQUEST, ...seen, attempt: 0 }, null, 0);
  }
  const failing =
    operation === null ? null : await progressOperation(tx, operation.id, steps, reason);
  return giveClaimBack(recording, { ...seen, attempt }, failing, backoffMs(attempt));
}
