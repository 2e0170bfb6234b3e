/**
 * Changes and reads of read replica sets. A set is a row of `services` that follows the primary of
 * its parent: its desired state is recorded in the same way, and the parent's status limits what is
 * allowed.
 */
import {
  ALLOWED,
  ApiError,
  MAX_NODES_OF_SERVICE,
  NODE_SIZES,
  refusal,
  REPLICA_SET_STATUS,
  sameSize,
  type Action,
  type CreateReplicaSetBody,
  type Environment,
  type OperationKind,
  type ReadReplicaSetDetail,
  type ResizeBody,
  type SetPurpose,
} from '@howdah/contract';
import { refuseWithSleep } from './auto-suspend.ts';
import { notifyVpcs } from '../store/events.ts';
import type { Tx } from '../store/tables.ts';
import { makeDue } from '../store/claims.ts';
import type { OperationRow } from '../domain/operation.ts';
import { beginOperation, recordOperation } from '../store/operations.ts';
import { replicaSetDocument } from '../domain/replica-set.ts';
import { lifetimeOfTag } from '../domain/service/lifetime.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeColumns, sizeOf, networkColumnsOf } from '../domain/service/spec.ts';
import { findReplicaSet, changeService, lockService } from '../store/services.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { insertServiceAtEndpoint } from '../store/new-services.ts';
import { untilDone, type Done } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { poolerColumns, refuseWithoutPort } from './endpoints.ts';
import { refuseFullDisk, readSize, refuseWithoutRoom, sizeOrRefuse } from './room.ts';
import { makeChange, type Caller, type Outcome } from './change.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { refuseByRole, refuseUnconfirmed } from './permissions.ts';
import { refuseImpossible } from './regions.ts';
import { lockOwnService, refuseMoved, refuseWithoutAnswer } from './service-rules.ts';

/** The ids that name a set in a path. */
export type SetPath = { serviceId: string; setId: string };

type LockedSet = { parent: ServiceRow; set: ServiceRow; operation: OperationRow | null };

/** Creates a set: a row, and the desired number of its nodes. */
export async function createReplicaSet(
  context: ControlContext,
  caller: Caller,
  { key: serviceId, region_code }: ServicePlace,
  body: CreateReplicaSetBody,
): Promise<Outcome> {
  const { store, regions } = context;
  const region = regions.of(region_code);
  const size = sizeOrRefuse(region, caller, body, NODE_RULES);
  refuseImpossible(region, 'createReplicaSet', 'read replica set');
  await refuseFullDisk(region, 'read replica sets');
  return makeChange(store, caller, async (tx) => {
    const { service: parent } = await lockOwnService(tx, caller, serviceId);
    refuseMoved(parent, region);
    if (ALLOWED[parent.status].createReplicaSet !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('createReplicaSet', parent.status));
    refuseWithSleep(parent, 'read replica set');
    refuseTooManyNodes(parent, body.nodes);
    await keepWithinLimits(tx, caller.projectId, {
      replica_sets: 1,
      ...weightOf(size, body.nodes),
    });
    await refuseWithoutAnswer(region);
    const { addons, pg_version: major } = parent;
    const made = { addons, major, size, origin: null, parent: serviceId };
    const fresh = await refuseWithoutPort(insertServiceAtEndpoint(tx, region, made));
    const operation = await beginOperation(
      tx,
      { id: fresh.id, project_id: caller.projectId },
      'create',
      caller,
      null,
    );
    const change = {
      project_id: caller.projectId,
      region_alias: parent.region_alias,
      name: body.name,
      environment: parent.environment,
      created: new Date(),
      created_by: caller.publicKey,
      nodes: body.nodes,
      purpose: body.purpose ?? 'reports',
      preload: parent.preload,
      restarts: parent.restarts,
      cpu_bound: parent.cpu_bound,
      ...networkColumnsOf(parent),
    };
    const row = await changeService(tx, fresh, change, operation);
    // A peering that begins or ends at this moment does not see the set yet.
    if (row.vpc_id !== null) await notifyVpcs(tx);
    await makeDue(tx, row.id);
    return { doc: JSON.stringify(replicaSetDocument(row)), operationId: operation.id };
  });
}

function refuseTooManyNodes(parent: ServiceRow, nodes: number): void {
  const others = parent.read_replica_sets.reduce((sum, set) => sum + set.nodes, 0);
  if (others + nodes > MAX_NODES_OF_SERVICE)
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `nodes: found ${nodes}; the sets of a service have at most ${MAX_NODES_OF_SERVICE} ` +
        `nodes together, and ${others} of them are taken: delete a set first`,
    );
}

/** @throws RegionNotServed if nobody would make a change of the set */
async function lockSet(
  { regions }: ControlContext,
  tx: Tx,
  caller: Caller,
  { serviceId, setId }: SetPath,
): Promise<LockedSet> {
  const { service: parent } = await lockOwnService(tx, caller, serviceId);
  const locked = await lockService(tx, setId);
  if (locked === null || locked.service.parent_id !== serviceId) throw replicaSetNotFound(setId);
  regions.of(locked.service.region_code);
  return { parent, set: locked.service, operation: locked.operation };
}

/**
 * Makes a change that the status of the service allows, on a set that is active. `decide` returns
 * null when nothing changes.
 *
 * @param words the answer, by whether anything changes
 */
async function changeSet(
  context: ControlContext,
  caller: Caller,
  path: SetPath,
  kind: Extract<OperationKind, 'resize' | 'enablePooler' | 'disablePooler'>,
  decide: (set: ServiceRow, tx: Tx) => ServiceChange | null | Promise<ServiceChange | null>,
  words: (changes: boolean) => string,
): Promise<Done> {
  return makeChange(context.store, caller, async (tx) => {
    const { parent, set, operation } = await lockSet(context, tx, caller, path);
    allow(parent, 'changeReplicaSet');
    const status = REPLICA_SET_STATUS[set.status];
    if (status !== 'active' || operation !== null) {
      const why =
        operation === null ? `is ${status}` : `is ${status} and being changed (${operation.kind})`;
      throw new ApiError(
        'INVALID_STATE',
        `cannot ${kind} a read replica set that ${why}: ` +
          'it is allowed when it is active, with nothing under way',
      );
    }
    if (kind !== 'enablePooler')
      refuseUnconfirmed(caller, 'changeReplicaSet', set.name, set.environment);
    const changed = await decide(set, tx);
    if (changed === null) return { operationId: null, message: words(false) };
    await refuseWithoutAnswer(context.regions.of(set.region_code));
    const next = await beginOperation(tx, set, kind, caller, null);
    await changeService(tx, set, { ...changed, attempt: 0 }, next);
    await makeDue(tx, set.id);
    return { operationId: next.id, message: words(true), sizeBefore: sizeOf(set) };
  });
}

/** Resizes all nodes of a set. */
export async function resizeReplicaSet(
  context: ControlContext,
  caller: Caller,
  path: SetPath,
  body: Pick<ResizeBody, 'cpu_millis' | 'memory_gbs'>,
): Promise<Done> {
  const size = readSize(body, NODE_RULES);
  const wanted = size === 'shared' ? size : `${size.cpuMillis}/${size.memoryGbs}`;
  const decide = async (set: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
    if (sameSize(sizeOf(set), size)) return null;
    refuseWithoutRoom(context.regions.of(set.region_code), caller, size);
    const [before, after] = [weightOf(sizeOf(set), set.nodes), weightOf(size, set.nodes)];
    await keepWithinLimits(tx, caller.projectId, {
      cpu_millis: after.cpu_millis - before.cpu_millis,
      memory_gbs: after.memory_gbs - before.memory_gbs,
    });
    return sizeColumns(size);
  };
  return changeSet(context, caller, path, 'resize', decide, (changes) =>
    changes ? `its nodes get ${wanted}, one after the other` : `its nodes have ${wanted} already`,
  );
}

/** Enables the pooler of a set, and waits for it. */
export async function enableReplicaSetPooler(
  context: ControlContext,
  caller: Caller,
  path: SetPath,
): Promise<Done> {
  const decide = async (set: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
    const region = context.regions.of(set.region_code);
    refuseImpossible(region, 'enablePooler', 'connection pooler');
    return set.pooler ? null : poolerColumns(region, set, tx);
  };
  const words = () => 'the connection pooler is enabled';
  const outcome = await changeSet(context, caller, path, 'enablePooler', decide, words);
  return untilDone(context.store, caller, outcome, words());
}

/** Disables the pooler of a set, and waits for it. */
export async function disableReplicaSetPooler(
  context: ControlContext,
  caller: Caller,
  path: SetPath,
): Promise<Done> {
  const decide = (set: ServiceRow): ServiceChange | null => (set.pooler ? { pooler: false } : null);
  const words = () => 'the connection pooler is disabled';
  const outcome = await changeSet(context, caller, path, 'disablePooler', decide, words);
  return untilDone(context.store, caller, outcome, words());
}

/** Sets the environment tag of a set; done when it is answered. */
export function setReplicaSetEnvironment(
  context: ControlContext,
  caller: Caller,
  path: SetPath,
  environment: Environment,
): Promise<Done> {
  return makeChange(context.store, caller, async (tx) => {
    const { set, operation } = await lockSet(context, tx, caller, path);
    refuseByRole(caller, 'setEnvironment', set.environment);
    allow(set, 'setEnvironment');
    refuseUnconfirmed(caller, 'setEnvironment', set.name, set.environment);
    const operationId = await recordOperation(tx, set, 'setEnvironment', caller);
    await changeService(tx, set, { environment }, operation);
    // A service takes its sets along, and a PROD set does not expire.
    const parent = environment === 'PROD' ? await lockService(tx, path.serviceId) : null;
    if (parent !== null)
      await changeService(tx, parent.service, lifetimeOfTag(caller, environment), parent.operation);
    return { message: `the environment is ${environment}`, operationId };
  });
}

/** Sets the purpose of a set. Its nodes read the settings again, without a restart. */
export function setReplicaSetPurpose(
  context: ControlContext,
  caller: Caller,
  path: SetPath,
  purpose: SetPurpose,
): Promise<Done> {
  return makeChange(context.store, caller, async (tx) => {
    const { set, operation } = await lockSet(context, tx, caller, path);
    // Noted in each status, as the environment is: a paused set has it after its start.
    allow(set, 'setEnvironment');
    const operationId = await recordOperation(tx, set, 'setPurpose', caller);
    await changeService(tx, set, { purpose }, operation);
    await makeDue(tx, set.id);
    return { message: `the set is for ${purpose}`, operationId };
  });
}

/**
 * Deletes a set; supersedes its operation. It cannot be restored: its data is that of its service.
 */
export function deleteReplicaSet(
  context: ControlContext,
  caller: Caller,
  path: SetPath,
): Promise<Outcome> {
  return makeChange(context.store, caller, async (tx) => {
    const { parent, set, operation } = await lockSet(context, tx, caller, path);
    refuseByRole(caller, 'deleteReplicaSet', set.environment);
    refuseUnconfirmed(caller, 'deleteReplicaSet', set.name, set.environment);
    if (set.deleting) return { operationId: operation?.id ?? null };
    if (allow(parent, 'deleteReplicaSet') === 'underway')
      return { operationId: operation?.id ?? null };
    await refuseWithoutAnswer(context.regions.of(set.region_code));
    const next = await beginOperation(tx, set, 'delete', caller, operation);
    await changeService(tx, set, { deleting: true, attempt: 0 }, next);
    await makeDue(tx, set.id);
    return { operationId: next.id };
  });
}

/** A set with the current state of each node. */
export async function readReplicaSet(
  { store, regions }: ControlContext,
  { serviceId, setId }: SetPath,
): Promise<ReadReplicaSetDetail> {
  const set = await findReplicaSet(store.db, serviceId, setId);
  if (set === null) throw replicaSetNotFound(setId);
  const { observe } = regions.of(set.region_code).engine;
  return {
    ...replicaSetDocument(set),
    lag_limit: observe.readLagLimit,
    node_states: await observe.replicas(set.id),
  };
}

function allow(service: ServiceRow, action: Action): 'accept' | 'underway' {
  const verdict = ALLOWED[service.status][action];
  if (verdict === 'refuse') throw new ApiError('INVALID_STATE', refusal(action, service.status));
  return verdict;
}

/** The answer for a set that does not exist or belongs to another service. */
export function replicaSetNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no read replica set with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /projects/{project_id}/services/{service_id}/replicaSets lists them',
  );
}

/** The rules of the size of a node. */
const NODE_RULES = { fallback: null, sharedAllowed: false, sizes: NODE_SIZES } as const;
