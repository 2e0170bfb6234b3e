/** Deletes, purges and restores services. */
import { ApiError, protectionOf, type ReadReplicaSet } from '@howdah/contract';
import { describeRestore, restoreRisk } from '../domain/disk.ts';
import { lifetimeOfRestored } from '../domain/service/lifetime.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeOf } from '../domain/service/spec.ts';
import { EngineUnavailable, NotRestorable, type Restorable } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import { type Caller, makeChange } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { reserveEndpoint } from './endpoints.ts';
import { readDisk } from './room.ts';
import { keepWithinKey } from './lifetimes.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { keepNotCarried } from './not-carried.ts';
import { describeSource, findSource, recoveryFrom } from './recover-service.ts';
import {
  type Accepted,
  changeUnderRules,
  refuseWithoutAnswer,
  serviceNotFound,
} from './service-rules.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation, recordOperation } from '../store/operations.ts';
import { isPromised } from '../store/regions.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { changeService, lockService, purgeDeleted, readKept } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';

/**
 * Restores a deleted service, within the time for it: with its data, or from a repository when that
 * was removed from this machine.
 */
export async function restoreService(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
): Promise<Accepted> {
  const kept = await readKept(context.store.db, id);
  const source = kept === null ? null : await findSource(context, code, id);
  return makeChange(context.store, caller, async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.project_id !== caller.projectId)
      throw serviceNotFound(id);
    const { service, operation } = locked;
    const isOver = service.kept !== null && Date.parse(service.kept.until) <= Date.now();
    if (isOver) throw serviceNotFound(id);
    const region = context.regions.of(service.region_code);
    if (operation?.kind === 'restore') return { doc: service.doc, operationId: operation.id };
    if (service.deleted_at === null)
      throw new ApiError(
        'INVALID_STATE',
        `cannot restore a service that is ${service.status}: restore is for deleted ones` +
          (service.deleting ? ', once its processes have stopped' : ''),
      );
    await keepWithinKey(tx, caller);
    await keepWithinLimits(tx, caller.projectId, weightOfRestored(service));
    const lost = service.kept === null ? {} : await restoredFrom(tx, region, service, source);
    await refuseWithoutAnswer(region);
    const lifetime = lifetimeOfRestored(caller, service);
    const next = await beginOperation(tx, service, 'restore', caller, null);
    await keepNotCarried(tx, next.id, { kind: 'restore' }, service);
    const row = await changeService(
      tx,
      service,
      { deleting: false, deleted_at: null, ...lost, ...lifetime, attempt: 0 },
      next,
    );
    await makeDue(tx, id);
    const note = source === null ? {} : { note: describeSource(source) };
    return { doc: row.doc, operationId: next.id, ...note };
  });
}

/** A restored service counts with its read replica sets. */
function weightOfRestored(service: ServiceRow): Required<Parameters<typeof keepWithinLimits>[2]> {
  const own = weightOf(sizeOf(service), service.replica_count + 1);
  const sets = service.read_replica_sets;
  const sum = (each: (set: ReadReplicaSet) => number, first: number): number =>
    sets.reduce((total, set) => total + set.nodes * each(set), first);
  return {
    services: 1,
    replica_sets: sets.length,
    cpu_millis: sum((set) => set.cpu_millis, own.cpu_millis),
    memory_gbs: sum((set) => set.memory_gbs, own.memory_gbs),
  };
}

/**
 * The change of a service whose data was removed from this machine: it comes back from a
 * repository, at its port if that is free. A paused one gets its data when it is started.
 */
async function restoredFrom(
  tx: Tx,
  region: Region,
  service: ServiceRow,
  source: Restorable | null,
): Promise<ServiceChange> {
  if (source === null || source.repository === null)
    throw new ApiError(
      'INVALID_STATE',
      'the data of the service is just being removed from this machine: try again in a minute, ' +
        'and it is restored from a repository',
    );
  const { id, host, port, pooler_port: poolerPort } = service;
  const keepPort = async (port: number, poolerOf: string | null): Promise<number> =>
    (await isPromised(tx, region.code, port))
      ? (await reserveEndpoint(tx, region, { id, poolerOf })).port
      : port;
  return {
    kept: null,
    ...recoveryFrom(service, source),
    port: await keepPort(port, null),
    pooler_port: poolerPort === null ? null : await keepPort(poolerPort, host),
  };
}

/** The answer, and that to a dry run, say for how long the service can be restored. */
export async function deleteService(
  context: ControlContext & { restoreWindowMs: number },
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
): Promise<Accepted> {
  const usage = await readDisk(context.regions.of(code).engine);
  const risk = usage === null ? null : restoreRisk(usage);
  const restoreNote = describeRestore(id, context.restoreWindowMs, risk);
  const archive = await noteOfArchive(context, code, id, 'when it can no longer be restored');
  const note = archive === undefined ? restoreNote : `${restoreNote}. ${archive}`;
  const begin = () => ({ deleting: true });
  const done = await changeUnderRules(context, caller, id, 'delete', begin, 'delete', { note });
  return { ...done, restoreNote, ...warningOf(archive) };
}

/** Whether nothing but backups is left of a service that nobody has deleted by Howdah. */
async function isOnlyArchived({ regions }: ControlContext, code: string, id: string) {
  const { capabilities, backups } = regions.of(code).engine;
  if (!capabilities.archivesInStore) return false;
  try {
    return (await backups.restorable(id, []))?.isLost === true;
  } catch (error) {
    if (error instanceof NotRestorable || error instanceof EngineUnavailable) return false;
    throw error;
  }
}

const warningOf = (note: string | undefined) => (note === undefined ? {} : { warning: note });

/** The note on the archive that goes with a service; undefined: it has none. */
async function noteOfArchive(
  { regions }: ControlContext,
  code: string,
  id: string,
  when: string,
): Promise<string | undefined> {
  const { capabilities, backups } = regions.of(code).engine;
  if (!capabilities.archivesInStore) return undefined;
  const { window, archive_mb: megabytes } = await backups.describe(id);
  if (window.latest === null && megabytes === 0) return undefined;
  const reach = window.latest === null ? '' : `, which reaches up to ${window.latest},`;
  return (
    `Its archive in the object store of the region${reach} is removed too, ${when}: fork the ` +
    'service first to keep the data.'
  );
}

/**
 * Deletes a service without the time for a restore, or ends that time for a deleted one.
 */
export async function purgeService(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
): Promise<Accepted> {
  const note = await noteOfArchive(context, code, id, 'at once');
  const noted = note === undefined ? {} : { note, ...warningOf(note) };
  const isLost = await isOnlyArchived(context, code, id);
  return makeChange(context.store, caller, async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.project_id !== caller.projectId)
      throw serviceNotFound(id);
    const { service, operation } = locked;
    if (
      protectionOf(service.environment, service.read_replica_sets) === 'PROD' &&
      caller.confirm !== service.name
    )
      throw new ApiError(
        'INVALID_REQUEST',
        `confirm: a PROD service is purged only with its name: ${JSON.stringify(service.name)}`,
      );
    if (isLost && !caller.dryRun && caller.confirm !== service.name)
      throw new ApiError(
        'INVALID_REQUEST',
        'confirm: the Cluster of the service is gone, and its archive in the object store of the ' +
          'region is all that is left. Bring it back (howdah service recover), or purge it with ' +
          `its name: ${JSON.stringify(service.name)}`,
      );
    if (service.purge) return { doc: service.doc, operationId: operation?.id ?? null };
    // A purge cannot be undone: it is not accepted where a delete, which can be, is refused.
    await refuseWithoutAnswer(context.regions.of(service.region_code));
    if (service.deleted_at !== null) {
      const operationId = await recordOperation(tx, service, 'delete', caller);
      await purgeDeleted(tx, service, 'requested');
      return { doc: service.doc, operationId, ...noted };
    }
    // A running delete goes on; its service cannot be restored afterwards.
    const next =
      operation?.kind === 'delete'
        ? operation
        : await beginOperation(tx, service, 'delete', caller, operation);
    const row = await changeService(tx, service, { deleting: true, purge: true, attempt: 0 }, next);
    await makeDue(tx, id);
    return { doc: row.doc, operationId: next.id, ...noted };
  });
}
