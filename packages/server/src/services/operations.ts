/** What can be asked of operations: how far they are, how long they will still take, and to leave them be. */
import { ApiError, CANCEL, isId, type Operation, type OperationKind } from '@howdah/contract';
import { operationDocument } from '../domain/operation/document.ts';
import { remainingSeconds } from '../domain/operation/remaining.ts';
import type { OperationRow } from '../domain/operation/row.ts';
import { hasOperationBegun } from '../domain/operation/status.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { type Caller, makeChange, type Outcome } from './change.ts';
import type { Store } from '../store/database.ts';
import { makeDue } from '../store/leases.ts';
import { endOperation, findOperation, pastDurations } from '../store/operations.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Db, Tx } from '../store/tables.ts';

/** Clients ask ten times a second how far something is; how long such things take changes more slowly. */
const DURATIONS_KEPT_MS = 10_000;

export function createOperations(store: Store) {
  const durations = new Map<
    OperationKind,
    { atMs: number; past: ReturnType<typeof pastDurations> }
  >();

  const past = (kind: OperationKind) => {
    const known = durations.get(kind);
    if (known !== undefined && Date.now() - known.atMs < DURATIONS_KEPT_MS) return known.past;
    const asked = { atMs: Date.now(), past: pastDurations(store.db, kind) };
    asked.past.catch(() => durations.delete(kind));
    durations.set(kind, asked);
    return asked.past;
  };

  /** The operation as it is answered: one that goes on, with how long it will still take. */
  const describe = async (row: OperationRow): Promise<Operation> => {
    if (row.finished !== null) return operationDocument(row);
    return operationDocument(
      row,
      remainingSeconds(await past(row.kind), (Date.now() - row.created.getTime()) / 1000),
    );
  };

  const find = async (projectId: string, id: string, db: Db = store.db): Promise<OperationRow> => {
    const found = isId(id) ? await findOperation(db, projectId, id) : null;
    if (found !== null) return found;
    throw new ApiError(
      'NOT_FOUND',
      `no operation with that id exists: ${JSON.stringify(id.slice(0, 64))}`,
    );
  };

  const cancel = (caller: Caller, id: string): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      const { service_id: serviceId, kind } = await find(caller.projectId, id, tx);
      const rule = CANCEL[kind];
      if (typeof rule === 'object')
        throw new ApiError(
          'INVALID_STATE',
          `cannot cancel ${kind}: it goes on to its end; ${rule.no}`,
        );
      const locked = await lockService(tx, serviceId);
      const operation = await find(caller.projectId, id, tx);
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
      await endOperation(tx, id, 'failed', `cancelled by ${caller.publicKey}`);
      if (locked.operation?.id === id) await withdraw(tx, locked.service);
      return {
        operationId: null,
        doc: JSON.stringify(operationDocument(await find(caller.projectId, id, tx))),
      };
    });

  /** Takes back what the operation under way has asked of a service. */
  const withdraw = async (tx: Tx, service: ServiceRow): Promise<void> => {
    await changeService(tx, service, { drill: null, leave_member: null }, null);
    await makeDue(tx, service.id);
  };

  return { describe, find, cancel };
}

export type Operations = ReturnType<typeof createOperations>;
