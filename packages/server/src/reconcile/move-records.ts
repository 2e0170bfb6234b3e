/** Writes the state of a move to the metadata database, beside the usual results of steps. */
import { endOfStep } from '../domain/operation/steps.ts';
import type { Move } from '../domain/service/row.ts';
import { givenBack, lockLeased, makeDue } from '../store/leases.ts';
import { progressOperation } from '../store/operations.ts';
import { changeService } from '../store/services.ts';
import type { ReconcilerContext, Work } from './work.ts';

/** A move that was aborted, or superseded, while a step of it ran. */
class MoveEnded extends Error {}

/**
 * Records a change of the state of a move, under the lease.
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
    const locked = await lockLeased(tx, work.id, work.token, work.operation);
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
    const { service, operation } = await lockLeased(tx, work.id, work.token, work.operation);
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
