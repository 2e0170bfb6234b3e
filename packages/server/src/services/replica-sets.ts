/**
 * What can be asked of a read replica set. A set is a service of its own kind that follows the primary of another: its desired state is recorded in
 * the same way, and its parent's status has a say in what is allowed.
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
  type Size,
  type SizeInput,
} from '@howdah/contract';
import type { Member } from '../engine/engine.ts';
import type { Store } from '../store/database.ts';
import { notifyVpcs } from '../store/notifications.ts';
import type { Tx } from '../store/tables.ts';
import { makeDue } from '../store/leases.ts';
import type { OperationRow } from '../domain/operation/row.ts';
import { beginOperation, recordOperation } from '../store/operations.ts';
import { replicaSetDocument } from '../domain/replica-set/document.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeColumns, sizeOf, vpcColumnsOf } from '../domain/service/spec.ts';
import { findReplicaSet, listReplicaSets } from '../store/replica-sets.ts';
import { changeService, lockService } from '../store/services.ts';
import { insertSpare } from '../store/spares.ts';
import {
  refuseFullDisk,
  refuseWithoutPooler,
  reservePort,
  sizeOrRefuse,
  untilDone,
  type Done,
} from './common.ts';
import type { Region } from './regions.ts';
import { makeChange, type Caller, type Outcome } from './change.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { refuseByRole } from './permissions.ts';
import { serviceNotFound } from './service-rules.ts';

/** A set by the ids of its path. */
export type SetPath = { serviceId: string; setId: string };

type LockedSet = { parent: ServiceRow; set: ServiceRow; operation: OperationRow | null };

export function createReplicaSetCalls(store: Store, region: Region) {
  const create = async (
    caller: Caller,
    serviceId: string,
    body: CreateReplicaSetBody,
  ): Promise<Outcome> => {
    const size = nodeSize(body.cpu_millis, body.memory_gbs);
    const { gateway } = region.engine.capabilities;
    if ('missing' in gateway)
      throw new ApiError('UNAVAILABLE_HERE', `read replica set: ${gateway.missing}`);
    await refuseFullDisk(region, 'read replica sets');
    return makeChange(store, caller, async (tx) => {
      const parent = await lockParent(tx, caller, serviceId);
      if (ALLOWED[parent.status].createReplicaSet !== 'accept')
        throw new ApiError('INVALID_STATE', refusal('createReplicaSet', parent.status));
      const others = parent.read_replica_sets.reduce((sum, { nodes }) => sum + nodes, 0);
      if (others + body.nodes > MAX_NODES_OF_SERVICE)
        throw new ApiError(
          'LIMIT_EXCEEDED',
          `nodes: found ${body.nodes}; the sets of a service have at most ${MAX_NODES_OF_SERVICE} nodes together, and ${others} of them are taken: delete a set first`,
        );
      await keepWithinLimits(tx, caller.projectId, {
        replica_sets: 1,
        ...weightOf(size, body.nodes),
      });
      const nodes: Member[] = [];
      const port = await reservePort(tx, region);
      for (let n = 1; n <= body.nodes; n++)
        nodes.push({
          n,
          port: await reservePort(tx, region, [port, ...nodes.map((node) => node.port)]),
        });
      const fresh = await insertSpare(tx, {
        region: region.code,
        serviceType: parent.service_type,
        addons: parent.addons,
        size,
        host: parent.host,
        port,
        origin: null,
        parent: serviceId,
      });
      const operation = await beginOperation(
        tx,
        { id: fresh.id, project_id: caller.projectId },
        'create',
        caller,
        null,
      );
      const change = {
        project_id: caller.projectId,
        name: body.name,
        environment: parent.environment,
        created: new Date(),
        created_by: caller.publicKey,
        members: nodes,
        ...vpcColumnsOf(parent),
      };
      const row = await changeService(tx, fresh, change, operation);
      // A peering that begins or ends at this moment does not see it yet.
      if (row.vpc_id !== null) await notifyVpcs(tx);
      await makeDue(tx, row.id);
      return { doc: JSON.stringify(replicaSetDocument(row)), operationId: operation.id };
    });
  };

  const lockParent = async (tx: Tx, caller: Caller, id: string): Promise<ServiceRow> => {
    const locked = await lockService(tx, id);
    if (
      locked === null ||
      locked.service.project_id !== caller.projectId ||
      locked.service.deleted_at !== null
    )
      throw serviceNotFound(id);
    return locked.service;
  };

  const lockSet = async (
    tx: Tx,
    caller: Caller,
    { serviceId, setId }: SetPath,
  ): Promise<LockedSet> => {
    const parent = await lockParent(tx, caller, serviceId);
    const locked = await lockService(tx, setId);
    if (locked === null || locked.service.parent_id !== serviceId) throw replicaSetNotFound(setId);
    return { parent, set: locked.service, operation: locked.operation };
  };

  /**
   * One change under the rules: what the status of the service allows, of a set that is active. `decide` returns null when everything is so
   * already.
   *
   * @param words the answer, by whether anything changes
   */
  const change = async (
    caller: Caller,
    path: SetPath,
    kind: Extract<OperationKind, 'resize' | 'enablePooler' | 'disablePooler'>,
    decide: (set: ServiceRow, tx: Tx) => ServiceChange | null | Promise<ServiceChange | null>,
    words: (changes: boolean) => string,
  ): Promise<Done> =>
    makeChange(store, caller, async (tx) => {
      const { parent, set, operation } = await lockSet(tx, caller, path);
      allow(parent, 'changeReplicaSet');
      const status = REPLICA_SET_STATUS[set.status];
      if (status !== 'active' || operation !== null) {
        const why =
          operation === null
            ? `is ${status}`
            : `is ${status} and being changed (${operation.kind})`;
        throw new ApiError(
          'INVALID_STATE',
          `cannot ${kind} a read replica set that ${why}: it is allowed when it is active, with nothing under way`,
        );
      }
      const changed = await decide(set, tx);
      if (changed === null) return { operationId: null, message: words(false) };
      const next = await beginOperation(tx, set, kind, caller, null);
      await changeService(tx, set, { ...changed, attempt: 0 }, next);
      await makeDue(tx, set.id);
      return { operationId: next.id, message: words(true) };
    });

  const resize = async (
    caller: Caller,
    path: SetPath,
    cpuMillis: SizeInput,
    memoryGbs: SizeInput,
  ): Promise<Done> => {
    const size = nodeSize(cpuMillis, memoryGbs);
    const wanted = size === 'shared' ? size : `${size.cpuMillis}/${size.memoryGbs}`;
    const decide = async (set: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
      if (sameSize(sizeOf(set), size)) return null;
      const [before, after] = [
        weightOf(sizeOf(set), set.members.length),
        weightOf(size, set.members.length),
      ];
      await keepWithinLimits(tx, caller.projectId, {
        cpu_millis: after.cpu_millis - before.cpu_millis,
        memory_gbs: after.memory_gbs - before.memory_gbs,
      });
      return sizeColumns(size);
    };
    return change(caller, path, 'resize', decide, (changes) =>
      changes ? `its nodes get ${wanted}, one after the other` : `its nodes have ${wanted} already`,
    );
  };

  const enablePooler = async (caller: Caller, path: SetPath): Promise<Done> => {
    refuseWithoutPooler(region);
    const decide = async (set: ServiceRow, tx: Tx): Promise<ServiceChange | null> =>
      set.pooler
        ? null
        : { pooler: true, pooler_port: set.pooler_port ?? (await reservePort(tx, region)) };
    const words = () => 'the connection pooler is enabled';
    return untilDone(
      store,
      caller,
      await change(caller, path, 'enablePooler', decide, words),
      words(),
    );
  };

  const disablePooler = async (caller: Caller, path: SetPath): Promise<Done> => {
    const decide = (set: ServiceRow): ServiceChange | null =>
      set.pooler ? { pooler: false } : null;
    const words = () => 'the connection pooler is disabled';
    return untilDone(
      store,
      caller,
      await change(caller, path, 'disablePooler', decide, words),
      words(),
    );
  };

  const setEnvironment = async (
    caller: Caller,
    path: SetPath,
    environment: Environment,
  ): Promise<Done> =>
    makeChange(store, caller, async (tx) => {
      const { set, operation } = await lockSet(tx, caller, path);
      allow(set, 'setEnvironment');
      const operationId = await recordOperation(tx, set, 'setEnvironment', caller);
      await changeService(tx, set, { environment }, operation);
      return { message: `the environment is ${environment}`, operationId };
    });

  /** Ends whatever is under way on it. Nothing of it can be brought back: its data is its service's. */
  const remove = async (caller: Caller, path: SetPath): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      const { parent, set, operation } = await lockSet(tx, caller, path);
      refuseByRole(caller, 'deleteReplicaSet', set.environment);
      if (set.deleting) return { operationId: operation?.id ?? null };
      if (allow(parent, 'deleteReplicaSet') === 'underway')
        return { operationId: operation?.id ?? null };
      const next = await beginOperation(tx, set, 'delete', caller, operation);
      await changeService(tx, set, { deleting: true, attempt: 0 }, next);
      await makeDue(tx, set.id);
      return { operationId: next.id };
    });

  /** A set as it is at this moment, with each of its nodes. */
  const get = async ({ serviceId, setId }: SetPath): Promise<ReadReplicaSetDetail> => {
    const set = await findReplicaSet(store.db, serviceId, setId);
    if (set === null) throw replicaSetNotFound(setId);
    return {
      ...replicaSetDocument(set),
      lag_limit: region.engine.readLagLimit,
      node_states: await region.engine.replicas(set.id),
    };
  };

  return {
    create,
    list: (serviceId: string) => listReplicaSets(store.db, serviceId),
    get,
    resize,
    enablePooler,
    disablePooler,
    setEnvironment,
    remove,
  };
}
export type ReplicaSetCalls = ReturnType<typeof createReplicaSetCalls>;

function allow(service: ServiceRow, action: Action): 'accept' | 'underway' {
  const verdict = ALLOWED[service.status][action];
  if (verdict === 'refuse') throw new ApiError('INVALID_STATE', refusal(action, service.status));
  return verdict;
}

/** The answer for a set that is not there, or of another service. */
export function replicaSetNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no read replica set with that id exists: ${JSON.stringify(id.slice(0, 64))}; GET /projects/{project_id}/services/{service_id}/replicaSets lists them`,
  );
}

function nodeSize(cpuMillis: SizeInput, memoryGbs: SizeInput): Size {
  return sizeOrRefuse(cpuMillis, memoryGbs, {
    fallback: null,
    sharedAllowed: false,
    sizes: NODE_SIZES,
  });
}
