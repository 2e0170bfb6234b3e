/**
 * Reads of operations, with an estimate of the time that they still take, and their cancellation.
 */
import { ApiError, CANCEL, isId, type Operation, type OperationKind } from '@howdah/contract';
import {
  operationDocument,
  type OperationRow,
  remainingSeconds,
  hasOperationBegun,
} from '../domain/operation.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { answerWith, type Caller, makeChange, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';
import type { Store } from '../store/database.ts';
import { makeDue } from '../store/claims.ts';
import { CANCELLED_BY, endOperation, findOperation, pastDurations } from '../store/operations.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Db, Tx } from '../store/tables.ts';

/**
 * Clients poll an operation ten times a second; the usual duration of its kind changes more slowly.
 */
const DURATIONS_KEPT_MS = 10_000;

type PastDurations = Awaited<ReturnType<typeof pastDurations>>;

/** The durations of past operations of a kind, read at most once in ten seconds. */
export type DurationCache = (kind: OperationKind) => Promise<PastDurations>;

/** The context of calls on operations. */
export type OperationContext = ControlContext & { durations: DurationCache };

export function createDurationCache({ db }: Store): DurationCache {
  const durations = new Map<OperationKind, { atMs: number; past: Promise<PastDurations> }>();
  return (kind) => {
    const known = durations.get(kind);
    if (known !== undefined && Date.now() - known.atMs < DURATIONS_KEPT_MS) return known.past;
    const asked = { atMs: Date.now(), past: pastDurations(db, kind) };
    asked.past.catch(() => durations.delete(kind));
    durations.set(kind, asked);
    return asked.past;
  };
}

/** An operation as the API answers it; a running one with the time that it still takes. */
export async function describeOperation(
  { store, durations }: OperationContext,
  projectId: string,
  id: string,
): Promise<Operation> {
  const row = await findOperationOf(store.db, projectId, id);
  if (row.finished !== null) return operationDocument(row);
  return operationDocument(
    row,
    remainingSeconds(await durations(row.kind), (Date.now() - row.created.getTime()) / 1000),
  );
}

/** Cancels an operation where that is safe; see `CANCEL`. */
export function cancelOperation(
  { store }: OperationContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const { service_id: serviceId, kind } = await findOperationOf(tx, caller.projectId, id);
    const rule = CANCEL[kind];
    if (typeof rule === 'object')
      throw new ApiError(
        'INVALID_STATE',
        `cannot cancel ${kind}: it goes on to its end; ${rule.no}`,
      );
    const locked = await lockService(tx, serviceId);
    const operation = await findOperationOf(tx, caller.projectId, id);
    if (locked === null || operation.finished !== null)
      throw new ApiError(
        'INVALID_STATE',
        `cannot cancel ${kind}: it has ended ${operation.finished?.toISOString() ?? ''}`.trimEnd(),
      );
    if (rule === 'queued' && hasOperationBegun(operation, locked.service))
      throw new ApiError(
        'INVALID_STATE',
        `cannot cancel ${kind}: it has begun, and goes on to its end`,
      );
    if (kind === 'move' && locked.service.region_code === locked.service.move?.to)
      throw new ApiError(
        'INVALID_STATE',
        'cannot cancel move: the service is in the other region, and goes on there',
      );
    await endOperation(tx, id, 'failed', `${CANCELLED_BY}${caller.publicKey}`);
    if (locked.operation?.id === id) await withdraw(tx, locked.service);
    const ended = await findOperationOf(tx, caller.projectId, id);
    return answerWith(operationDocument(ended));
  });
}

/** @throws ApiError NOT_FOUND */
async function findOperationOf(db: Db, projectId: string, id: string): Promise<OperationRow> {
  const found = isId(id) ? await findOperation(db, projectId, id) : null;
  if (found !== null) return found;
  throw new ApiError(
    'NOT_FOUND',
    `no operation with that id exists: ${JSON.stringify(id.slice(0, 64))}`,
  );
}

/** Withdraws the request of a cancelled operation from its service. */
async function withdraw(tx: Tx, service: ServiceRow): Promise<void> {
  await changeService(tx, service, { drill: null, switchover: false }, null);
  await makeDue(tx, service.id);
}
