/**
 * The changes of a service: check the rule, record the desired state in one transaction, notify. The reconciler does the rest.
 * The two exceptions touch the engine themselves: a new password must be live before the answer, and reads of logs and metrics.
 */
import {
  ADDONS_OF_TYPE,
  ALLOWED,
  ApiError,
  DEFAULT_SIZE,
  defaultStorageGb,
  MAX_REPLICAS,
  protectionOf,
  refusal,
  sameSize,
  typeOfAddons,
  type Action,
  type Addon,
  type Backups,
  type CreateServiceBody,
  type DrillKind,
  type Environment,
  type ForkBody,
  NAME_MAX_CHARACTERS,
  type QueryBody,
  type QueryResult,
  type OperationKind,
  type ResizeBody,
  type SeriesBody,
  type Size,
  SERIES_NAMES,
} from '@howdah/contract';
import { parseMoment } from '../lib/moment.ts';
import {
  BadCursor,
  EngineUnavailable,
  StatementRefused,
  type LogPage,
  type LogQuery,
  type Member,
  type Origin,
} from '../engine/engine.ts';
import { newPassword } from '../lib/ids.ts';
import { scramVerifier } from '../lib/scram.ts';
import type { Store } from '../store/database.ts';
import type { Tx } from '../store/tables.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation, recordOperation, verificationUnderWay } from '../store/operations.ts';
import { readSeries } from '../store/samples.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeColumns, sizeOf } from '../domain/service/spec.ts';
import type { ServiceDoc } from '../store/service-documents.ts';
import { changeService, type LockedService, lockService, purgeDeleted } from '../store/services.ts';
import { insertSpare, lockSpare } from '../store/spares.ts';
import { amendAnswer, makeChange, type Caller, type Outcome } from './change.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { refuseByRole } from './permissions.ts';
import {
  refuseFullDisk,
  refuseSecondProject,
  refuseWithoutPooler,
  reservePort,
  sizeOrRefuse,
  untilDone,
  type Done,
} from './common.ts';
import { createReadLimit } from './read-limit.ts';
import { defaultAddons, type Region } from './regions.ts';
import { joinVpc, LEFT } from './vpcs.ts';

/** An accepted change: the service's document as it is now, and the operation that makes it true, where there is anything to do. */
export type Accepted = Outcome & { doc: string };

/** Each reads and parses 16 MiB at most. */
const LOG_READS = { perService: 2, total: 4, waitingPerService: 16 };

export function createServices(store: Store, region: Region) {
  // ── create ─────────────────────────────────────────────────────────────────────────────────────────────────────

  const create = async (caller: Caller, body: CreateServiceBody): Promise<Accepted> => {
    const addons = addonsOf(body);
    const size = sizeOrRefuse(body.cpu_millis, body.memory_gbs, {
      fallback: DEFAULT_SIZE,
      sharedAllowed: true,
    });
    if (body.region_code !== undefined && body.region_code !== region.code) {
      throw new ApiError(
        'INVALID_REQUEST',
        `region_code: found ${JSON.stringify(body.region_code)}; allowed: ${region.code} (GET /projects/{project_id}/regions)`,
      );
    }
    const replicas = replicasOf(body.replica_count ?? 0, body.sync_replica_count ?? 0);
    await refuseFullDisk(region, 'services');
    const capability = region.engine.supports(addons);
    if ('missing' in capability)
      throw new ApiError('UNAVAILABLE_HERE', `${typeOfAddons(addons)}: ${capability.missing}`);
    if (body.enable_pooler === true) refuseWithoutPooler(region);
    const initialPassword = newPassword();
    const verifier = await scramVerifier(initialPassword);
    const change = {
      project_id: caller.projectId,
      name: body.name,
      environment: body.environment_tag ?? 'DEV',
      created: new Date(),
      created_by: caller.publicKey,
    };
    return makeChange(store, caller, async (tx) => {
      await refuseSecondProject(tx, region, caller.projectId);
      await keepWithinLimits(tx, caller.projectId, {
        services: 1,
        ...weightOf(size, replicas.replica_count + 1),
      });
      const highlyAvailable = replicas.replica_count > 0;
      // A spare stands outside of any VPC.
      const spare =
        highlyAvailable || body.vpc_id !== undefined
          ? null
          : await lockSpare(tx, { region: region.code, addons, size });
      const fresh = spare ?? (await reserve(tx, addons, size, null));
      const storage_gb = body.storage_gb ?? defaultStorageGb(size);
      const operation = await beginOperation(
        tx,
        { id: fresh.id, project_id: caller.projectId },
        'create',
        caller,
        null,
      );
      const pooler =
        body.enable_pooler === true
          ? { pooler: true, pooler_port: await reservePort(tx, region) }
          : {};
      const ha = highlyAvailable
        ? {
            ...replicas,
            members: await membersFor(tx, { ...fresh, ...pooler }, replicas.replica_count),
          }
        : {};
      const vpc =
        body.vpc_id === undefined
          ? {}
          : await joinVpc(tx, region, caller.projectId, fresh, body.vpc_id);
      const row = await changeService(
        tx,
        fresh,
        { ...change, storage_gb, ...pooler, ...ha, ...vpc, first_verifier: verifier },
        operation,
      );
      await makeDue(tx, row.id);
      return { doc: row.doc, operationId: operation.id, initialPassword };
    });
  };

  /** A service with a port of its own. */
  const reserve = async (
    tx: Tx,
    addons: readonly Addon[],
    size: Size,
    origin: Origin | null,
  ): Promise<ServiceRow> => {
    const port = await reservePort(tx, region);
    return insertSpare(tx, {
      region: region.code,
      serviceType: typeOfAddons(addons),
      addons,
      size,
      host: region.host,
      port,
      origin,
    });
  };

  const addonsOf = (body: CreateServiceBody): readonly Addon[] => {
    if (body.addons !== undefined && body.service_type !== undefined) {
      throw new ApiError(
        'INVALID_REQUEST',
        `service_type: found together with addons; send one of them (addons decide the type: ${typeOfAddons(body.addons)})`,
      );
    }
    if (body.service_type !== undefined) return ADDONS_OF_TYPE[body.service_type];
    return body.addons?.toSorted().toReversed() ?? defaultAddons(region.engine);
  };

  // ── fork, restore ──────────────────────────────────────────────────────────────────────────────────────────────

  const fork = async (caller: Caller, parentId: string, body: ForkBody): Promise<Accepted> => {
    const origin: Origin = {
      parent: parentId,
      strategy: body.fork_strategy,
      targetTime: await targetTimeOf(parentId, body),
    };
    await refuseFullDisk(region, 'forks');
    const usedGb = await usedStorageGb(parentId);
    const initialPassword = newPassword();
    const verifier = await scramVerifier(initialPassword);
    return makeChange(store, caller, async (tx) => {
      const { service: parent } = await lockOwn(tx, caller, parentId);
      const action = body.fork_strategy === 'NOW' ? 'forkNow' : 'forkPast';
      if (ALLOWED[parent.status][action] !== 'accept')
        throw new ApiError('INVALID_STATE', refusal(action, parent.status));
      const size = sizeOrRefuse(body.cpu_millis, body.memory_gbs, {
        fallback: sizeOf(parent),
        sharedAllowed: true,
      });
      await refuseSecondProject(tx, region, caller.projectId);
      await keepWithinLimits(tx, caller.projectId, { services: 1, ...weightOf(size, 1) });
      const fresh = await reserve(tx, parent.addons, size, origin);
      const operation = await beginOperation(
        tx,
        { id: fresh.id, project_id: caller.projectId },
        'fork',
        caller,
        null,
      );
      const name =
        body.name ??
        `${[...parent.name].slice(0, NAME_MAX_CHARACTERS - FORK_SUFFIX.length).join('')}${FORK_SUFFIX}`;
      const change = {
        project_id: caller.projectId,
        name,
        environment: body.environment_tag ?? 'DEV',
        created: new Date(),
        created_by: caller.publicKey,
        first_verifier: verifier,
        storage_gb: storageOrRefuse(body.storage_gb ?? parent.storage_gb, usedGb),
      };
      // What was kept from others stays so in a copy.
      const vpc =
        parent.vpc_id === null
          ? {}
          : await joinVpc(tx, region, caller.projectId, fresh, parent.vpc_id);
      const row = await changeService(tx, fresh, { ...change, ...vpc }, operation);
      await makeDue(tx, row.id);
      return { doc: row.doc, operationId: operation.id, initialPassword };
    });
  };

  /** The point in time of a fork, if it has one, inside the window that its parent's backups reach. */
  const targetTimeOf = async (parentId: string, body: ForkBody): Promise<string | null> => {
    if (body.fork_strategy !== 'PITR') {
      if (body.target_time === undefined) return null;
      throw new ApiError(
        'INVALID_REQUEST',
        `target_time: found with the strategy ${body.fork_strategy}; it goes with PITR only`,
      );
    }
    const moment = parseMoment(body.target_time ?? '');
    if (moment === null) {
      throw new ApiError(
        'INVALID_REQUEST',
        `target_time: found ${JSON.stringify(body.target_time ?? null)}; PITR takes a date-time with an offset, like 2026-01-31T12:00:00.123456Z`,
      );
    }
    const askedMs = Date.now();
    const { window } = await region.engine.backups(parentId);
    const [earliestMs, latestMs] = [
      Date.parse(window.earliest ?? ''),
      Date.parse(window.latest ?? ''),
    ];
    // A clock that is a little ahead of ours means now, where the window ends now: after a gap there may be more, which a fork would lack.
    const skewMs = latestMs >= askedMs ? CLOCK_SKEW_MS : 0;
    if (!(moment.ms >= earliestMs && moment.ms <= latestMs + skewMs)) {
      throw new ApiError(
        'INVALID_REQUEST',
        `target_time: ${body.target_time} is outside the window that can be reached: ${reachableIn(window)}`,
        { window },
      );
    }
    const gap = window.gaps?.find(
      ({ after, before }) => moment.ms > Date.parse(after) && moment.ms < Date.parse(before),
    );
    if (gap !== undefined) {
      throw new ApiError(
        'INVALID_REQUEST',
        `target_time: ${body.target_time} is in a gap of the window: a WAL file is missing from the archive, and nothing between ${gap.after} and ${gap.before} can be reached; allowed: ${reachableIn(window)}`,
        { window },
      );
    }
    return moment.ms > latestMs ? window.latest : moment.text;
  };

  /** Brings a deleted service back as it was, within the time for it. */
  const restore = async (caller: Caller, id: string): Promise<Accepted> =>
    makeChange(store, caller, async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null || locked.service.project_id !== caller.projectId)
        throw serviceNotFound(id);
      const { service, operation } = locked;
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

  // ── high availability ──────────────────────────────────────────────────────────────────────────────────────────

  /** The counts of a request, as this installation can have them. */
  const replicasOf = (
    replicaCount: number,
    syncReplicaCount: number,
  ): { replica_count: number; sync_replica_count: number } => {
    if (syncReplicaCount > replicaCount) {
      throw new ApiError(
        'INVALID_REQUEST',
        `sync_replica_count: found ${syncReplicaCount} of ${replicaCount} replicas; allowed: 0 to replica_count`,
      );
    }
    const { gateway } = region.engine.capabilities;
    if (replicaCount > 0 && 'missing' in gateway)
      throw new ApiError('UNAVAILABLE_HERE', `replica_count: ${gateway.missing}`);
    return { replica_count: replicaCount, sync_replica_count: syncReplicaCount };
  };

  /**
   * The members of a service with so many replicas: those that are there, and new ones with ports of their own. One that
   * goes is never the primary. A service that had replicas once keeps its gateway, and so a member.
   */
  const membersFor = async (
    tx: Tx,
    service: ServiceRow,
    replicaCount: number,
  ): Promise<Member[]> => {
    const there = service.members.map(({ n }) => n);
    const others = Array.from({ length: MAX_REPLICAS + 1 }, (_, n) => n).filter(
      (n) => !there.includes(n),
    );
    const wanted = [...new Set([service.primary_member, ...there, ...others])].slice(
      0,
      replicaCount + 1,
    );
    const members: Member[] = [];
    for (const n of wanted.toSorted((a, b) => a - b)) {
      const besides = [...members.map(({ port }) => port), service.pooler_port ?? 0];
      members.push(
        service.members.find((member) => member.n === n) ?? {
          n,
          port: await reservePort(tx, region, besides),
        },
      );
    }
    return members;
  };

  const setHA = async (
    caller: Caller,
    id: string,
    body: { replica_count?: number; sync_replica_count?: number },
  ): Promise<Accepted> => {
    if (body.replica_count === undefined && body.sync_replica_count === undefined)
      throw new ApiError(
        'INVALID_REQUEST',
        'replica_count, sync_replica_count: both missing; send at least one of them',
      );
    const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
      const replicas = replicasOf(
        body.replica_count ?? service.replica_count,
        body.sync_replica_count ?? service.sync_replica_count,
      );
      if (
        replicas.replica_count === service.replica_count &&
        replicas.sync_replica_count === service.sync_replica_count
      )
        return null;
      await keepWithinLimits(
        tx,
        caller.projectId,
        weightOf(sizeOf(service), replicas.replica_count - service.replica_count),
      );
      return { ...replicas, members: await membersFor(tx, service, replicas.replica_count) };
    };
    return change(caller, id, 'setHA', decide, 'setHA');
  };

  const needsReplicas = (service: ServiceRow, action: 'switchover' | 'drill'): void => {
    if (service.replica_count === 0)
      throw new ApiError(
        'INVALID_STATE',
        `cannot ${action} a service without replicas: give it one first (setHA with replica_count 1)`,
      );
  };

  const switchover = (caller: Caller, id: string): Promise<Accepted> =>
    change(
      caller,
      id,
      'switchover',
      (service) => {
        needsReplicas(service, 'switchover');
        return { leave_member: service.primary_member };
      },
      'switchover',
    );

  const drill = (
    caller: Caller,
    id: string,
    body: { kind: DrillKind; confirm?: string },
  ): Promise<Accepted> =>
    change(
      caller,
      id,
      'drill',
      (service) => {
        needsReplicas(service, 'drill');
        if (
          body.kind === 'failover' &&
          service.environment === 'PROD' &&
          body.confirm !== service.name
        )
          throw new ApiError(
            'INVALID_REQUEST',
            `confirm: the primary of a PROD service is killed only with its name: ${service.name}`,
          );
        return { drill: body.kind };
      },
      'drill',
    );

  // ── changes of what is there ───────────────────────────────────────────────────────────────────────────────────

  /**
   * One change under the rules: locks the service, asks the table whether its status allows the action, and lets `decide` say what changes.
   * `decide` returns null when everything is so already.
   */
  const change = async (
    caller: Caller,
    id: string,
    action: Action,
    decide: (service: ServiceRow, tx: Tx) => ServiceChange | null | Promise<ServiceChange | null>,
    kind: OperationKind,
  ): Promise<Accepted> =>
    makeChange(store, caller, async (tx) => {
      const { service, operation } = await lockOwn(tx, caller, id);
      refuseByRole(caller, action, protectionOf(service.environment, service.read_replica_sets));
      const verdict = ALLOWED[service.status][action];
      if (verdict === 'refuse')
        throw new ApiError('INVALID_STATE', refusal(action, service.status));
      if (verdict === 'underway') return { doc: service.doc, operationId: operation?.id ?? null };
      const changed = await decide(service, tx);
      if (changed === null) return { doc: service.doc, operationId: null };
      const next = await beginOperation(tx, service, kind, caller, operation);
      const row = await changeService(tx, service, { ...changed, attempt: 0 }, next);
      await makeDue(tx, id);
      return {
        doc: row.doc,
        operationId: next.id,
        keepsSize: sameSize(sizeOf(service), sizeOf(row)),
      };
    });

  /** A change that needs no engine: done when it is answered, whatever else is under way. */
  const note = async (
    caller: Caller,
    id: string,
    action: Extract<Action, 'rename' | 'setEnvironment'>,
    changed: ServiceChange,
    message?: string,
  ): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      const { service, operation } = await lockOwn(tx, caller, id);
      if (ALLOWED[service.status][action] !== 'accept')
        throw new ApiError('INVALID_STATE', refusal(action, service.status));
      const operationId = await recordOperation(tx, service, action, caller);
      const row = await changeService(tx, service, changed, operation);
      return message === undefined ? { doc: row.doc, operationId } : { message, operationId };
    });

  const lockOwn = async (tx: Tx, caller: Caller, id: string): Promise<LockedService> => {
    const locked = await lockService(tx, id);
    if (
      locked === null ||
      locked.service.project_id !== caller.projectId ||
      locked.service.deleted_at !== null
    )
      throw serviceNotFound(id);
    return locked;
  };

  /** Verifies the newest backup beside whatever else is done to the service. Asked for again meanwhile it is the same operation. */
  const verifyBackup = async (caller: Caller, id: string): Promise<Done> =>
    makeChange(store, caller, async (tx) => {
      const { service } = await lockOwn(tx, caller, id);
      const underWay = await verificationUnderWay(tx, id);
      if (underWay === null && ALLOWED[service.status].verifyBackup !== 'accept')
        throw new ApiError('INVALID_STATE', refusal('verifyBackup', service.status));
      const operation =
        underWay ?? (await beginOperation(tx, service, 'verifyBackup', caller, null));
      return {
        message: `the newest backup is being restored beside the service: operation ${operation.id}`,
        operationId: operation.id,
      };
    });

  const resize = async (caller: Caller, id: string, body: ResizeBody): Promise<Accepted> => {
    const { cpu_millis: cpuMillis, memory_gbs: memoryGbs, storage_gb: asked } = body;
    // Only the quota: the size stays, a shared one too.
    const onlyStorage = asked !== undefined && cpuMillis === undefined && memoryGbs === undefined;
    const wanted = onlyStorage
      ? null
      : sizeOrRefuse(cpuMillis, memoryGbs, { fallback: null, sharedAllowed: false });
    const usedGb = asked === undefined ? 0 : await usedStorageGb(id);
    const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
      const size = wanted ?? sizeOf(service);
      const storage_gb =
        asked === undefined
          ? service.storage_gb
          : storageOrRefuse(asked, asked < service.storage_gb ? usedGb : 0);
      if (sameSize(sizeOf(service), size) && storage_gb === service.storage_gb) return null;
      const [before, after] = [sizeOf(service), size].map((one) =>
        weightOf(one, service.replica_count + 1),
      );
      const more = (limit: 'cpu_millis' | 'memory_gbs'): number =>
        (after?.[limit] ?? 0) - (before?.[limit] ?? 0);
      await keepWithinLimits(tx, caller.projectId, {
        cpu_millis: more('cpu_millis'),
        memory_gbs: more('memory_gbs'),
      });
      return { ...sizeColumns(size), storage_gb };
    };
    return change(caller, id, 'resize', decide, 'resize');
  };

  /** What the largest server of a service takes of the disk now, in gigabytes; nothing where it cannot be told. */
  const usedStorageGb = async (id: string): Promise<number> =>
    (await region.engine.usedStorage(id)) / 1e9;

  // ── delete and purge ───────────────────────────────────────────────────────────────────────────────────────────

  const remove = (caller: Caller, id: string): Promise<Accepted> =>
    change(caller, id, 'delete', () => ({ deleting: true }), 'delete');

  /**
   * Deletes a service without the time for a restore, or ends that time for one that is deleted: its disk space is free when
   * the data is removed.
   *
   * @param confirm the name of a PROD service
   */
  const purge = (caller: Caller, id: string, confirm: string | undefined): Promise<Accepted> =>
    makeChange(store, caller, async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null || locked.service.project_id !== caller.projectId)
        throw serviceNotFound(id);
      const { service, operation } = locked;
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
      // A delete under way goes on to the end, without a restore after it.
      const next =
        operation?.kind === 'delete'
          ? operation
          : await beginOperation(tx, service, 'delete', caller, operation);
      const row = await changeService(
        tx,
        service,
        { deleting: true, purge: true, attempt: 0 },
        next,
      );
      await makeDue(tx, id);
      return { doc: row.doc, operationId: next.id };
    });

  // ── VPC ────────────────────────────────────────────────────────────────────────────────────────────────────────

  const attachToVPC = async (caller: Caller, id: string, vpcId: string): Promise<Done> => {
    const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
      if (service.vpc_id === vpcId) return null;
      if (service.vpc_id !== null)
        throw new ApiError(
          'CONFLICT',
          `the service is in the VPC ${service.vpc_id}; detach it first (detachFromVPC)`,
        );
      return joinVpc(tx, region, caller.projectId, service, vpcId);
    };
    const { operationId } = await change(caller, id, 'attachToVPC', decide, 'attachToVPC');
    return tell(
      caller,
      operationId,
      operationId === null
        ? `the service is in the VPC ${vpcId}`
        : `the service is being attached to the VPC ${vpcId}`,
    );
  };

  const detachFromVPC = async (caller: Caller, id: string, vpcId: string | null): Promise<Done> => {
    const decide = (service: ServiceRow): ServiceChange | null => {
      if (service.vpc_id === null) return null;
      if (vpcId !== null && service.vpc_id !== vpcId)
        throw new ApiError(
          'CONFLICT',
          `vpc_id: found ${JSON.stringify(vpcId)}; the service is in the VPC ${service.vpc_id}`,
        );
      return LEFT;
    };
    const { operationId } = await change(caller, id, 'detachFromVPC', decide, 'detachFromVPC');
    return tell(
      caller,
      operationId,
      operationId === null
        ? 'the service is in no VPC'
        : 'the service is being detached from its VPC',
    );
  };

  /** Answers in words what was changed, now and when the same call is made again. */
  const tell = async (
    caller: Caller,
    operationId: string | null,
    message: string,
  ): Promise<Done> => {
    const done = { message, operationId };
    await amendAnswer(store, caller, done);
    return done;
  };

  // ── pooler ─────────────────────────────────────────────────────────────────────────────────────────────────────

  const enablePooler = async (caller: Caller, id: string): Promise<Done> => {
    refuseWithoutPooler(region);
    const decide = (service: ServiceRow, tx: Tx) =>
      service.pooler ? null : withPooler(service, tx);
    return untilDone(
      store,
      caller,
      await change(caller, id, 'enablePooler', decide, 'enablePooler'),
      'the connection pooler is enabled',
    );
  };

  const disablePooler = async (caller: Caller, id: string): Promise<Done> => {
    const decide = (service: ServiceRow) => (service.pooler ? { pooler: false } : null);
    return untilDone(
      store,
      caller,
      await change(caller, id, 'disablePooler', decide, 'disablePooler'),
      'the connection pooler is disabled',
    );
  };

  /** The port that it had before, or one of its own from now on. */
  const withPooler = async (service: ServiceRow, tx: Tx): Promise<ServiceChange> => ({
    pooler: true,
    pooler_port: service.pooler_port ?? (await reservePort(tx, region)),
  });

  const updatePassword = async (
    caller: Caller,
    id: string,
    password: string,
  ): Promise<Accepted> => {
    const verifier = await scramVerifier(password);
    // The row stays locked until the password is live: a stop or a delete waits for its turn.
    return makeChange(store, caller, async (tx) => {
      const { service, operation } = await lockOwn(tx, caller, id);
      if (ALLOWED[service.status].updatePassword !== 'accept')
        throw new ApiError('INVALID_STATE', refusal('updatePassword', service.status));
      if (!caller.dryRun) await reachEngine(() => region.engine.setPassword(id, verifier));
      const operationId = await recordOperation(tx, service, 'updatePassword', caller);
      const row = await changeService(tx, service, {}, operation);
      return { doc: row.doc, operationId };
    });
  };

  // ── reads that ask the engine ──────────────────────────────────────────────────────────────────────────────────

  const inTurn = createReadLimit('logs', LOG_READS);

  /** @param signal ends the work with its client */
  const logs = async (
    id: string,
    node: number | null,
    query: LogQuery,
    signal: AbortSignal,
  ): Promise<LogPage> => {
    try {
      return await inTurn(id, signal, () => region.engine.logs(id, node, query, signal));
    } catch (error) {
      if (error instanceof BadCursor) throw new ApiError('INVALID_REQUEST', error.message);
      throw error;
    }
  };

  const query = async (
    { key: id, parent_id: parent, status }: ServiceDoc,
    body: QueryBody,
  ): Promise<QueryResult> => {
    if (ALLOWED[status].query !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('query', status));
    const { sql, parameters = [], max_rows: maxRows = 100, timeout_ms: timeoutMs = 10_000 } = body;
    // PostgreSQL's own protocol ends a text with one.
    if ([sql, ...parameters].some((text) => text?.includes('\0') === true))
      throw new ApiError(
        'INVALID_REQUEST',
        'sql, parameters: found a NUL character, which no text of PostgreSQL can hold',
      );
    try {
      return await reachEngine(() =>
        region.engine.query(id, parent, { sql, parameters, maxRows, timeoutMs }),
      );
    } catch (error) {
      if (error instanceof StatementRefused) throw refusedStatement(error);
      throw error;
    }
  };

  /** @param firstNode whose series there is before any figure was taken */
  const series = async (id: string, firstNode: number, body: SeriesBody) => {
    const name = SERIES_NAMES.find((candidate) => candidate === body.name);
    if (name === undefined)
      throw new ApiError(
        'INVALID_REQUEST',
        `name: found ${JSON.stringify(body.name)}; allowed: ${SERIES_NAMES.join(', ')}`,
      );
    const [fromMs, toMs, bucketSeconds] = [
      Date.parse(body.from),
      Date.parse(body.to),
      body.bucket_seconds ?? 60,
    ];
    // A leap second is a date-time and no moment of a clock: it compares as neither before nor after.
    if (!(fromMs < toMs))
      throw new ApiError('INVALID_REQUEST', `from: ${body.from} is not before to: ${body.to}`);
    const buckets = Math.ceil((toMs - fromMs) / (bucketSeconds * 1000));
    if (buckets > MAX_BUCKETS) {
      const least = Math.ceil((toMs - fromMs) / 1000 / MAX_BUCKETS);
      throw new ApiError(
        'INVALID_REQUEST',
        `bucket_seconds: found ${bucketSeconds}, which makes ${buckets} points; at most ${MAX_BUCKETS} are answered: take ${least} or more`,
      );
    }
    const span = {
      name,
      from: new Date(fromMs),
      to: new Date(toMs),
      bucketSeconds,
      fn: body.fn ?? 'avg',
    };
    const found = await readSeries(store.db, id, span);
    const times = Array.from({ length: buckets }, (_, index) =>
      new Date(fromMs + index * bucketSeconds * 1000).toISOString(),
    );
    // The only label is the node; a filter by another key finds nothing. Of one that was never looked at there is a series too.
    const matches = (node: string) =>
      (body.filters ?? []).every(({ key, value }) => key === 'node' && value === node);
    const nodes = found.size === 0 ? [firstNode] : [...found.keys()];
    return nodes
      .filter((node) => matches(String(node)))
      .map((node) => ({
        labels: { node: String(node) },
        data: times.map((time, index) => ({ time, value: found.get(node)?.get(index) ?? null })),
      }));
  };

  return {
    create,
    fork,
    restore,
    backups: async (id: string): Promise<Backups> => ({
      ...(await region.engine.backups(id)),
      storage: await region.engine.storage(id),
    }),
    verifyBackup,
    start: (caller: Caller, id: string) =>
      change(caller, id, 'start', () => ({ power: 'running' }), 'start'),
    stop: (caller: Caller, id: string) =>
      change(caller, id, 'stop', () => ({ power: 'paused' }), 'stop'),
    resize,
    enablePooler,
    disablePooler,
    remove,
    purge,
    rename: (caller: Caller, id: string, name: string) => note(caller, id, 'rename', { name }),
    attachToVPC,
    detachFromVPC,
    setEnvironment: (caller: Caller, id: string, environment: Environment) =>
      note(caller, id, 'setEnvironment', { environment }, `the environment is ${environment}`),
    setHA,
    switchover,
    drill,
    updatePassword,
    logs,
    series,
    query,
    members: (id: string) => reachEngine(() => region.engine.members(id)),
  };
}
export type Services = ReturnType<typeof createServices>;

const FORK_SUFFIX = '-fork';
/** By how much a client's clock may be ahead when it asks for now. */
const CLOCK_SKEW_MS = 5000;

/** The parts of a window that can be reached. */
function reachableIn({ earliest, latest, gaps = [] }: Backups['window']): string {
  if (earliest === null) return 'none yet';
  return `${earliest} to ${gaps.map(({ after, before }) => `${after}, ${before} to `).join('')}${latest}`;
}

/** A quota below what is taken already would make the service read-only at once. */
function storageOrRefuse(storageGb: number, usedGb: number): number {
  if (storageGb < usedGb)
    throw new ApiError(
      'INVALID_REQUEST',
      `storage_gb: found ${storageGb}; the data takes ${usedGb.toFixed(2)} GB already: send ${Math.ceil(usedGb)} or more, or drop data first`,
    );
  return storageGb;
}

/** Points of one series; more are refused rather than computed. */
const MAX_BUCKETS = 11_000;
/** The answer for a service that is not there, not yet or no more, or somebody else's. Old clients look for the first words. */
export function serviceNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no service with that id exists: ${JSON.stringify(id.slice(0, 64))}; GET /projects/{project_id}/services lists them`,
  );
}

/** What PostgreSQL said of a statement, as the API answers it. */
function refusedStatement({
  message,
  sqlstate,
  position,
  detail,
  hint,
}: StatementRefused): ApiError {
  const where = position === null ? '' : `, at character ${position}`;
  return new ApiError(
    'INVALID_REQUEST',
    `sql: ${message} (SQLSTATE ${sqlstate}${where})${hint === null ? '' : `; ${hint}`}`,
    {
      sqlstate,
      ...(position === null ? {} : { position }),
      ...(detail === null ? {} : { detail }),
      ...(hint === null ? {} : { hint }),
    },
  );
}

async function reachEngine<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof EngineUnavailable)
      throw new ApiError(
        'UNAVAILABLE',
        `the service does not answer: ${error.message}; try again in a moment`,
      );
    throw error;
  }
}
