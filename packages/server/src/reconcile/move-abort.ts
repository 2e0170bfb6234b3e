/**
 * Ends an aborted move: the service goes on as it was, and the copy is removed. None of the parts
 * waits for another: the owner of the service may be hostile, and the cluster gone for good.
 */
import { messageOf } from '@howdah/contract/thrown';
import { mustBeRemoved } from '../domain/service/removal.ts';
import type { BeginStep, Verdict, Seen } from '../engine/engine.ts';
import type { MoveSource } from '../engine/moves.ts';
import { createBesideRounds } from './concurrent-operations.ts';
import { askOwnEngine } from './own-step.ts';
import type { ReconcilerContext, Work } from './work.ts';
import { endOfStep } from '../domain/operation.ts';
import type { Move } from '../domain/service/row.ts';
import { givenBack, lockClaimed, makeDue } from '../store/claims.ts';
import { progressOperation } from '../store/operations.ts';
import { changeService } from '../store/services.ts';

/** A region that its operator has removed took its copies along. */
export const GONE: Verdict = {
  did: null,
  detail: null,
  seen: { reachable: false, present: false, provisioned: false },
  outcome: 'settled',
};

/**
 * Makes one step towards the end of an aborted move. The service goes first: its operations do not
 * wait for the other region. The state goes last: until then the rules of the service reject the
 * superuser of the copy.
 *
 * @param remove makes one step towards the removal of the copy
 */
export async function undo(
  context: ReconcilerContext,
  work: Work,
  begin: BeginStep,
  remove: () => Promise<Verdict>,
): Promise<Verdict | null> {
  const isRemoved = mustBeRemoved(work.service, context.restoreWindowMs);
  if (!isRemoved) await closeRoles(context, work);
  // The data of a restore lacks what was given back to the data of before.
  if (work.service.recovery !== null) besideRounds.forget(work.id);
  const own = await askOwnEngine(context, work, begin);
  if (own.outcome !== 'settled' || (work.operation !== null && !isRemoved)) return own;
  const { seen } = own;
  try {
    await writeIsRemoved(context, work, isRemoved);
    const runs = !isRemoved && work.service.power === 'running' && !work.service.deleting;
    const { dismissed, notGivenBack, removed } = await allOf(
      // Restored data may have the roles with a login again, whatever the copy does.
      runs ? sourceOf(context).dismiss(work.id) : null,
      runs ? giveBack(context, work) : null,
      remove().catch((error: unknown) => failedBy(work, error, seen)),
    );
    if (removed.outcome === 'again' && removed.did !== null) return { ...removed, did: null, seen };
    // A cluster that does not answer may never: the next attempts are further apart.
    if (removed.outcome !== 'settled')
      return failedBy(work, new Error(removed.detail ?? 'the copy is being removed'), seen);
    if (notGivenBack !== null)
      return failedBy(
        work,
        new Error(`the role functions are not given back: ${notGivenBack}`),
        seen,
      );
    // The roles are dropped when it runs again.
    if (!runs && !isRemoved) return own;
    if (dismissed.status === 'rejected') throw dismissed.reason;
  } catch (error) {
    return failedBy(work, error, seen);
  }
  await writeMove(context, work, null, seen.reachable);
  return isRemoved ? null : again(seen, null, 'nothing is left of the copy');
}

/** Waits for all parts, also if one fails: none goes on without the claim. */
async function allOf(
  dismissing: Promise<void> | null,
  givingBack: Promise<string | null> | null,
  removing: Promise<Verdict>,
) {
  const [dismissed, givenBack, removed] = await Promise.allSettled([
    dismissing,
    givingBack,
    removing,
  ]);
  if (givenBack.status === 'rejected') throw givenBack.reason;
  if (removed.status === 'rejected') throw removed.reason;
  return { dismissed, notGivenBack: givenBack.value, removed: removed.value };
}

/**
 * Closes the roles of the copy as soon as the server is reached, before it stops or while its
 * operation goes on. A restore of a moment in which they could log in has them again.
 */
async function closeRoles(context: ReconcilerContext, work: Work): Promise<void> {
  const { move, recovery, reachable } = work.service;
  if (move === null || (move.closed === true && recovery === null)) return;
  try {
    await sourceOf(context).dismiss(work.id);
  } catch {
    // The source does not run, or does not answer: each round tries again.
    return;
  }
  if (move.closed !== true) await writeMove(context, work, { closed: true }, reachable);
}

/** Records whether a removed service has no data here: the disk waits for it no longer. */
async function writeIsRemoved(
  context: ReconcilerContext,
  work: Work,
  removed: boolean,
): Promise<void> {
  const { move } = work.service;
  if (move !== null && (move.removed ?? false) !== removed)
    await writeMove(context, work, { removed }, work.service.reachable);
}

/** How long a round waits until the functions are given back. */
const GIVE_BACK_MS = 1000;
const besideRounds = createBesideRounds(GIVE_BACK_MS);

/**
 * Gives the owner of a service back what was withheld from it.
 *
 * @returns why that is not done; null: it is
 */
export async function giveBack(context: ReconcilerContext, work: Work): Promise<string | null> {
  // A move that an older release has begun does not say whether something was withheld.
  if (work.service.move?.withheld === false) return null;
  const problem = await besideRounds.run(work.id, () => sourceOf(context).giveBack(work.id));
  if (problem === null) await writeMove(context, work, { withheld: false }, work.service.reachable);
  return problem;
}

/** Only the source of a move has an abort. */
function sourceOf({ region }: ReconcilerContext): MoveSource {
  const { from } = region.engine.moves;
  if ('why' in from) throw new Error(from.why);
  return from;
}

// Verdicts of the steps of a move.

/** The state of the service as it was recorded: what happens to the copy does not change it. */
export const seenBefore = ({ service }: Work): Seen => ({
  reachable: service.reachable,
  present: true,
  provisioned: service.provisioned,
});

export function failedBy(work: Work, error: unknown, seen: Seen): Verdict {
  const reason = messageOf(error);
  return {
    did: work.steps.at(-1)?.name ?? null,
    detail: reason,
    seen,
    outcome: 'failed',
    reason,
  };
}

export const again = (
  seen: Seen,
  did: string | null,
  detail: string | null,
  waitMs = 0,
): Verdict => ({
  did,
  detail,
  seen,
  outcome: 'again',
  waitMs,
});

// Writes the state of a move to the metadata database, beside the usual results of steps.

/** A move that was aborted, or superseded, while a step of it ran. */
class MoveEnded extends Error {}

/**
 * Records a change of the state of a move, under the claim.
 *
 * @param change null: the move is over
 * @throws MoveEnded when the state has changed since it was read
 */
export async function writeMove(
  { store }: ReconcilerContext,
  work: Work,
  change: Partial<Move> | null,
  reachable: boolean,
): Promise<void> {
  const before = work.service.move;
  const state = change?.state ?? before?.state;
  const service = await store.db.transaction().execute(async (tx) => {
    const locked = await lockClaimed(tx, work.id, work.token, work.operation);
    const { move: found } = locked.service;
    const goesOn = change !== null && (state === 'copy' || state === 'switch');
    if (
      found === null ||
      found.state !== before?.state ||
      (goesOn && locked.operation?.id !== work.operation?.id)
    )
      throw new MoveEnded('the move was cancelled');
    const move = change === null ? null : { ...found, ...change };
    return changeService(tx, locked.service, { move, reachable }, locked.operation);
  });
  Object.assign(work, { service });
}

/**
 * Gives a service to its copy: from this commit on the reconciler of the other region has it, and
 * that of its former one never starts it again.
 *
 * @param detail of the step that has ended
 * @throws MoveEnded when it was aborted meanwhile
 */
export async function handOver(
  { store }: ReconcilerContext,
  work: Work,
  detail: string,
): Promise<void> {
  const open = work.steps.at(-1);
  if (open?.finished === null) Object.assign(open, endOfStep('ok', detail));
  await store.db.transaction().execute(async (tx) => {
    const { service, operation } = await lockClaimed(tx, work.id, work.token, work.operation);
    const { move } = service;
    if (move?.state !== 'switch' || operation?.kind !== 'move')
      throw new MoveEnded('the move was cancelled');
    const { host, port } = move.endpoint;
    const change = {
      move: { ...move, state: 'moved' as const },
      region_code: move.to,
      region_alias: move.toAlias,
      host,
      port,
      // The other region has ports of its own.
      pooler_port: null,
      pooler_host: null,
      // The data of before it stays in the former region.
      upgraded: null,
      reachable: false,
      attempt: 0,
      ...givenBack(service, 0),
    };
    const shown = await progressOperation(tx, operation.id, work.steps, null);
    await changeService(tx, service, change, shown);
    await makeDue(tx, work.id);
  });
}
