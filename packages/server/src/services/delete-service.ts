/** Deletes, purges and restores services. */
import { ApiError, protectionOf } from '@howdah/contract';
import { sizeOf } from '../domain/service/spec.ts';
import { type Caller, makeChange } from './change.ts';
import type { ControlContext } from './context.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import {
  type Accepted,
  changeUnderRules,
  refuseWithoutAnswer,
  serviceNotFound,
} from './service-rules.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation, recordOperation } from '../store/operations.ts';
import { changeService, lockService, purgeDeleted } from '../store/services.ts';

/** Restores a deleted service, within the time for it. */
export async function restoreService(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Accepted> {
  return makeChange(context.store, caller, async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.project_id !== caller.projectId)
      throw serviceNotFound(id);
    const { service, operation } = locked;
    const region = context.regions.of(service.region_code);
    if (operation?.kind === 'restore') return { doc: service.doc, operationId: operation.id };
    if (service.deleted_at === null)
      throw new ApiError(
        'INVALID_STATE',
        `cannot restore a service that is ${service.status}: restore is for deleted ones${service.deleting ? ', once its processes have stopped' : ''}`,
      );
    const own = weightOf(sizeOf(service), service.replica_count + 1);
    const sets = service.read_replica_sets;
    await keepWithinLimits(tx, caller.projectId, {
      services: 1,
      replica_sets: sets.length,
      cpu_millis: sets.reduce(
        (sum, { nodes, cpu_millis: each }) => sum + nodes * each,
        own.cpu_millis,
      ),
      memory_gbs: sets.reduce(
        (sum, { nodes, memory_gbs: each }) => sum + nodes * each,
        own.memory_gbs,
      ),
    });
    await refuseWithoutAnswer(region);
    const next = await beginOperation(tx, service, 'restore', caller, null);
    const row = await changeService(
      tx,
      service,
      { deleting: false, deleted_at: null, attempt: 0 },
      next,
    );
    await makeDue(tx, id);
    return { doc: row.doc, operationId: next.id };
  });
}

export function deleteService(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Accepted> {
  return changeUnderRules(context, caller, id, 'delete', () => ({ deleting: true }), 'delete');
}

/**
 * Deletes a service without the time for a restore, or ends that time for a deleted one.
 *
 * @param confirm the name of a PROD service
 */
export function purgeService(
  context: ControlContext,
  caller: Caller,
  id: string,
  confirm: string | undefined,
): Promise<Accepted> {
  return makeChange(context.store, caller, async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.project_id !== caller.projectId)
      throw serviceNotFound(id);
    const { service, operation } = locked;
    context.regions.of(service.region_code);
    if (
      protectionOf(service.environment, service.read_replica_sets) === 'PROD' &&
      confirm !== service.name
    )
      throw new ApiError(
        'INVALID_REQUEST',
        `confirm: a PROD service is purged only with its name: ${JSON.stringify(service.name)}`,
      );
    if (service.deleted_at !== null) {
      const operationId = await recordOperation(tx, service, 'delete', caller);
      await purgeDeleted(tx, service, 'requested');
      return { doc: service.doc, operationId };
    }
    if (service.purge) return { doc: service.doc, operationId: operation?.id ?? null };
    // A running delete goes on; its service cannot be restored afterwards.
    const next =
      operation?.kind === 'delete'
        ? operation
        : await beginOperation(tx, service, 'delete', caller, operation);
    const row = await changeService(tx, service, { deleting: true, purge: true, attempt: 0 }, next);
    await makeDue(tx, id);
    return { doc: row.doc, operationId: next.id };
  });
}
