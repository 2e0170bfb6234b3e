/** The rules that every change of a service follows. */
import {
  type Action,
  ALLOWED,
  ApiError,
  type OperationKind,
  refusal,
  NAME_MAX_CHARACTERS,
} from '@howdah/contract';
import type { Leaving } from '../domain/service/not-carried.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeOf, protectionOfRow } from '../domain/service/spec.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import { RegionNotServed, type Region } from '../engine/regions.ts';
import { type Caller, makeChange, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { keepNotCarried } from './not-carried.ts';
import { refuseByRole, refuseUnconfirmed } from './permissions.ts';
import { isRegional, refuseImpossible } from './regions.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation, recordOperation } from '../store/operations.ts';
import {
  changeService,
  type LockedService,
  lockService,
  lockServicesNamed,
} from '../store/services.ts';
import type { Tx } from '../store/tables.ts';

/** An accepted change, with the document of the service after it. */
export type Accepted = Outcome & { doc: string };

type Said = Readonly<{
  /** A line of a dry run beside the steps. */
  note?: string;
  /** The parts that are left behind. */
  leaving?: Leaving;
  /** Whether the change is done when it is answered; what it means for servers comes soon. */
  needsNoStep?: (before: ServiceRow) => boolean;
}>;

/**
 * Locks a service, checks that role and status allow the action and that its region is served, and
 * records the change and its operation.
 *
 * @param decide returns what changes; null: nothing
 */
export async function changeUnderRules(
  context: ControlContext,
  caller: Caller,
  id: string,
  action: Action,
  decide: (service: ServiceRow, tx: Tx) => ServiceChange | null | Promise<ServiceChange | null>,
  kind: OperationKind,
  { note, leaving, needsNoStep }: Said = {},
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
    if (needsNoStep?.(service) === true) {
      const operationId = await recordOperation(tx, service, kind, caller);
      const row = await changeService(tx, service, changed, operation);
      await makeDue(tx, id);
      return { doc: row.doc, operationId };
    }
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
    `no service with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/services lists them',
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

// The storage quota of a service.

/** The disk space of the largest server of a service, in gigabytes; 0 if it is unknown. */
export async function readUsedStorageGb({ engine }: Region, id: string): Promise<number> {
  return (await engine.storage.usedBytes(id)) / 1e9;
}

/** Refuses a quota below the used space, which would make the service read-only at once. */
export function storageOrRefuse(storageGb: number, usedGb: number): number {
  if (storageGb < usedGb)
    throw new ApiError(
      'INVALID_REQUEST',
      `storage_gb: found ${storageGb}; the data takes ${usedGb.toFixed(2)} GB already: ` +
        `send ${Math.ceil(usedGb)} or more, or drop data first`,
    );
  return storageGb;
}

// Whether the size of a service is a bound of its CPU too.

/**
 * The bound that a request asks for; null: as the region has it. Only the operator exempts a
 * service from the bound of its region. Where that has none, an exemption is not kept: a bound of
 * the region that begins later must not find any.
 *
 * @param asked undefined: nothing
 * @param before what holds without it
 * @throws ApiError FORBIDDEN
 */
export function cpuBoundOrRefuse(
  { code, engine: { capabilities } }: Pick<Region, 'code'> & Bounding,
  { operates }: Pick<Caller, 'operates'>,
  asked: boolean | null | undefined,
  before: boolean | null,
): boolean | null {
  if (asked === undefined || asked === before) return before;
  if (asked !== false) return asked;
  if (!capabilities.boundsCpu) return null;
  if (operates) return false;
  throw new ApiError(
    'FORBIDDEN',
    `cpu_bound: found false; in the region ${code} a size is a bound of the CPU too, and only ` +
      'an admin key of the operator project exempts a service from it: ask the operator, or ' +
      'resize it to more cpu_millis',
  );
}

type Bounding = {
  readonly engine: { readonly capabilities: Pick<Region['engine']['capabilities'], 'boundsCpu'> };
};

// Names of new services. Several services may share one; a caller can ask that none does.

/**
 * Refuses a name that is in use in the project, where the caller asked for that. Among
 * simultaneous calls for one name, one is accepted.
 *
 * @throws ApiError CONFLICT with the ids of the services of that name
 */
export async function refuseUsedName(
  tx: Tx,
  projectId: string,
  name: string,
  isUnique: boolean | undefined,
): Promise<void> {
  if (isUnique !== true) return;
  const ids = (await lockServicesNamed(tx, projectId, [name])).map(({ id }) => id);
  if (ids.length === 0) return;
  throw new ApiError(
    'CONFLICT',
    `name: the project has a service called ${JSON.stringify(name)} already, ${ids.join(', ')}; ` +
      'use that one, delete it, or choose another name',
    { service_ids: ids },
  );
}

/** The most forks without a name that get a number. */
const NUMBERED_FORKS = 100;

/** The default name of a fork: that of its parent with "-fork", and a number when it is in use. */
export async function nameOfFork(tx: Tx, projectId: string, parent: string): Promise<string> {
  const names = Array.from({ length: NUMBERED_FORKS }, (_, index) => forkName(parent, index + 1));
  const used = new Set((await lockServicesNamed(tx, projectId, names)).map(({ name }) => name));
  return names.find((name) => !used.has(name)) ?? forkName(parent, 1);
}

/** Shortens the name of the parent so that the whole is no longer than names may be. */
function forkName(parent: string, number: number): string {
  const suffix = number === 1 ? '-fork' : `-fork-${number}`;
  return `${[...parent].slice(0, NAME_MAX_CHARACTERS - suffix.length).join('')}${suffix}`;
}
