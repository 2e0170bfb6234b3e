/** The rules that every change of a service follows. */
import { type Action, ALLOWED, ApiError, type OperationKind, refusal } from '@howdah/contract';
import type { Leaving } from '../domain/service/not-carried.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeOf } from '../domain/service/spec.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import { RegionNotServed, type Region } from '../engine/regions.ts';
import { type Caller, makeChange, type Outcome } from './change.ts';
import type { ControlContext } from './context.ts';
import { keepNotCarried } from './not-carried.ts';
import { protectionOfRow, refuseByRole, refuseUnconfirmed } from './permissions.ts';
import { isRegional, refuseImpossible } from './regions.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation, recordOperation } from '../store/operations.ts';
import { changeService, type LockedService, lockService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';

/** An accepted change, with the document of the service after it. */
export type Accepted = Outcome & { doc: string };

/**
 * Locks a service, checks that role and status allow the action and that its region is served, and
 * records the change and its operation.
 *
 * @param decide returns what changes; null: nothing
 * @param said `note`: what a dry run says beside the steps; `leaving`: what is left behind
 */
export async function changeUnderRules(
  context: ControlContext,
  caller: Caller,
  id: string,
  action: Action,
  decide: (service: ServiceRow, tx: Tx) => ServiceChange | null | Promise<ServiceChange | null>,
  kind: OperationKind,
  { note, leaving }: { note?: string; leaving?: Leaving } = {},
): Promise<Accepted> {
  return makeChange(context.store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    const region = context.regions.of(service.region_code);
    const protection = protectionOfRow(service);
    refuseByRole(caller, action, protection);
    const verdict = ALLOWED[service.status][action];
    if (verdict === 'refuse') throw new ApiError('INVALID_STATE', refusal(action, service.status));
    // Replicas can be removed everywhere: setHA asks when there are more of them.
    if (action !== 'setHA' && isRegional(action)) refuseImpossible(region, action);
    if (verdict === 'underway') return { doc: service.doc, operationId: operation?.id ?? null };
    refuseUnconfirmed(caller, action, service.name, protection);
    const changed = await decide(service, tx);
    if (changed === null) return { doc: service.doc, operationId: null };
    await refuseWithoutAnswer(region);
    const next = await beginOperation(tx, service, kind, caller, operation);
    if (leaving !== undefined) await keepNotCarried(tx, next.id, leaving, service);
    // An operation that takes the place of another ends what that one was asked for.
    const request = { creates_extension: null, drops_extension: null };
    const row = await changeService(tx, service, { ...request, ...changed, attempt: 0 }, next);
    await makeDue(tx, id);
    return {
      doc: row.doc,
      operationId: next.id,
      sizeBefore: sizeOf(service),
      ...(note === undefined ? {} : { note }),
    };
  });
}

/** Refuses a change that would not begin now. @throws ApiError UNAVAILABLE */
export async function refuseWithoutAnswer({ code, engine }: Region): Promise<void> {
  const why = await engine.lifecycle.whyNoChanges();
  if (why !== null)
    throw new ApiError('UNAVAILABLE', `the region ${code} takes no changes now: ${why}; try later`);
}

/** Refuses to use a region that a service has left since it was read. */
export function refuseMoved(
  { region_code: code }: Pick<ServiceRow, 'region_code'>,
  region: Pick<Region, 'code'>,
): void {
  if (code !== region.code)
    throw new ApiError('INVALID_STATE', `the service has moved to the region ${code}; try again`);
}

/**
 * Makes a change that needs no engine: it is done when it is answered, also beside an operation.
 */
export async function changeWithoutEngine(
  context: ControlContext,
  caller: Caller,
  id: string,
  action: Extract<Action, 'rename' | 'setEnvironment'>,
  changed: ServiceChange,
  message?: string,
): Promise<Outcome> {
  return makeChange(context.store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    // The tag of the service itself: those of its sets stay.
    refuseByRole(caller, action, service.environment);
    if (ALLOWED[service.status][action] !== 'accept')
      throw new ApiError('INVALID_STATE', refusal(action, service.status));
    refuseUnconfirmed(caller, action, service.name, service.environment);
    const operationId = await recordOperation(tx, service, action, caller);
    const row = await changeService(tx, service, changed, operation);
    return message === undefined ? { doc: row.doc, operationId } : { message, operationId };
  });
}

export async function lockOwnService(tx: Tx, caller: Caller, id: string): Promise<LockedService> {
  const locked = await lockService(tx, id);
  if (
    locked === null ||
    locked.service.project_id !== caller.projectId ||
    locked.service.deleted_at !== null
  )
    throw serviceNotFound(id);
  return locked;
}

/**
 * The answer for a service that does not exist or belongs to another project. Old clients compare
 * its first words.
 */
export function serviceNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no service with that id exists: ${JSON.stringify(id.slice(0, 64))}; GET /projects/{project_id}/services lists them`,
  );
}

export async function reachEngine<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof EngineUnavailable && !(error instanceof RegionNotServed))
      throw new ApiError(
        'UNAVAILABLE',
        `the service does not answer: ${error.message}; try again in a moment`,
      );
    throw error;
  }
}
