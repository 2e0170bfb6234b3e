/**
 * Changes of a service: power, size, name, environment, password; and the verification of its
 * backup, and a backup off the machine.
 */
import {
  ALLOWED,
  ApiError,
  type Environment,
  refusal,
  type ResizeBody,
  type RunBackupBody,
  sameSize,
  type UpdatePasswordBody,
} from '@howdah/contract';
import { lifetimeOfTag } from '../domain/service/lifetime.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeColumns, sizeOf, protectionOfRow } from '../domain/service/spec.ts';
import { scramVerifier } from '../lib/scram.ts';
import { type Caller, makeChange, type Outcome } from './change.ts';
import type { Done } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { readSize, refuseLargeQuota, refuseWithoutRoom } from './room.ts';
import {
  cpuBoundOrRefuse,
  type Accepted,
  changeUnderRules,
  changeWithoutEngine,
  lockOwnService,
  reachEngine,
  readUsedStorageGb,
  storageOrRefuse,
} from './service-rules.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { refuseUnconfirmed } from './permissions.ts';
import { refuseImpossible } from './regions.ts';
import { beginOperation, besideUnderWay, recordOperation } from '../store/operations.ts';
import { countAsked } from '../store/concurrent-operations.ts';
import { listRepositories } from '../store/repositories.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { changeService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';

/**
 * Verifies the newest backup, beside other operations. While one verification runs, another call
 * returns the same operation.
 *
 * @param ofRepository whether it is the one in the repositories
 */
export async function verifyBackup(
  context: ControlContext,
  caller: Caller,
  id: string,
  ofRepository: boolean,
): Promise<Done> {
  return makeChange(context.store, caller, async (tx) => {
    const { service } = await lockOwnService(tx, caller, id);
    refuseImpossible(context.regions.of(service.region_code), 'verifyBackup');
    if (ofRepository) await refuseWithoutRepository(tx, context, service, 'verifyBackup');
    const underWay = await besideUnderWay(tx, id, 'verifyBackup');
    if (underWay === null && ALLOWED[service.status].verifyBackup !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('verifyBackup', service.status));
    if (underWay !== null && (underWay.request === null) === ofRepository)
      throw new ApiError(
        'INVALID_STATE',
        `cannot verifyBackup: operation ${underWay.id} verifies the other backup of the service; ` +
          'wait for it, or cancel it',
      );
    const request = ofRepository ? ({ repository: true } as const) : null;
    const operation =
      underWay ?? (await beginOperation(tx, service, 'verifyBackup', caller, null, request));
    return {
      message: `the newest backup is being restored beside the service: operation ${operation.id}`,
      operationId: operation.id,
    };
  });
}

/** @throws ApiError UNAVAILABLE_HERE without pgBackRest, and without a repository */
export async function refuseWithoutRepository(
  tx: Tx,
  { regions }: ControlContext,
  { region_code: region }: ServiceRow,
  asked: string,
): Promise<void> {
  const found = regions.of(region);
  const { offMachine } = found.engine.capabilities;
  if ('missing' in offMachine)
    throw new ApiError('UNAVAILABLE_HERE', `${asked}: ${offMachine.missing}`);
  if ((await listRepositories(tx)).length === 0)
    throw new ApiError(
      'UNAVAILABLE_HERE',
      `${asked}: the installation has no repository; the operator adds one (howdah repo add)`,
    );
}

/**
 * Backs the newest snapshot up into all repositories, beside other operations. While one backup
 * runs, another call returns the same operation.
 */
export async function runBackup(
  context: ControlContext,
  caller: Caller,
  id: string,
  { full = false }: RunBackupBody,
): Promise<Done> {
  return makeChange(context.store, caller, async (tx) => {
    const { service } = await lockOwnService(tx, caller, id);
    const region = context.regions.of(service.region_code);
    refuseImpossible(region, 'runBackup');
    // Where no repository can have them, the region has backups of its own.
    const isOfRegion = region.engine.offMachine === null;
    if (!isOfRegion) await refuseWithoutRepository(tx, context, service, 'runBackup');
    const underWay = await besideUnderWay(tx, id, 'runBackup');
    if (underWay === null && ALLOWED[service.status].runBackup !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('runBackup', service.status));
    if (underWay === null) await refuseTooMany(tx, service);
    const operation =
      underWay ?? (await beginOperation(tx, service, 'runBackup', caller, null, { full }));
    return {
      message: isOfRegion
        ? `a backup is being taken in the region: operation ${operation.id}`
        : `the newest snapshot is being backed up: operation ${operation.id}`,
      operationId: operation.id,
    };
  });
}

const MOST_ASKED_A_DAY = 10;

/** All projects share a repository, and a tenant could fill it. @throws ApiError LIMIT_EXCEEDED */
async function refuseTooMany(tx: Tx, service: ServiceRow): Promise<void> {
  const asked = await countAsked(tx, service, 'runBackup', 86_400_000);
  if (asked < MOST_ASKED_A_DAY) return;
  throw new ApiError(
    'LIMIT_EXCEEDED',
    `runBackup: ${asked} backups of the service, and of deleted ones, were asked for within 24 ` +
      `hours; allowed are ${MOST_ASKED_A_DAY}. The daily backup goes on; ask again when the ` +
      'first of them is a day old',
  );
}

export async function resizeService(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
  body: ResizeBody,
): Promise<Accepted> {
  const { cpu_millis: cpuMillis, memory_gbs: memoryGbs, storage_gb: asked } = body;
  const keepsSize = cpuMillis === undefined && memoryGbs === undefined;
  const region = context.regions.of(code);
  // A change of the quota or the bound alone is allowed for shared services too.
  const wanted =
    keepsSize && (asked !== undefined || body.cpu_bound !== undefined)
      ? null
      : readSize(body, { fallback: null, sharedAllowed: false });
  await refuseLargeQuota(region, caller, asked);
  const usedGb = asked === undefined ? 0 : await readUsedStorageGb(region, id);
  const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange | null> => {
    const size = wanted ?? sizeOf(service);
    const storage_gb =
      asked === undefined
        ? service.storage_gb
        : storageOrRefuse(asked, asked < service.storage_gb ? usedGb : 0);
    const isSameSize = sameSize(sizeOf(service), size);
    const cpu_bound = cpuBoundOrRefuse(region, caller, body.cpu_bound, service.cpu_bound);
    const isSameBound = cpu_bound === service.cpu_bound;
    if (isSameSize && isSameBound && storage_gb === service.storage_gb) return null;
    if (!isSameSize) refuseWithoutRoom(region, caller, size);
    const [before, after] = [sizeOf(service), size].map((one) =>
      weightOf(one, service.replica_count + 1),
    );
    const more = (limit: 'cpu_millis' | 'memory_gbs'): number =>
      (after?.[limit] ?? 0) - (before?.[limit] ?? 0);
    await keepWithinLimits(tx, caller.projectId, {
      cpu_millis: more('cpu_millis'),
      memory_gbs: more('memory_gbs'),
    });
    return { ...sizeColumns(size), storage_gb, cpu_bound };
  };
  return changeUnderRules(context, caller, id, 'resize', decide, 'resize');
}

export async function updatePassword(
  context: ControlContext,
  caller: Caller,
  id: string,
  { password, keep_sessions: keepSessions = false }: UpdatePasswordBody,
): Promise<Accepted> {
  const verifier = await scramVerifier(password);
  // The row stays locked until the password is active, so that a stop or delete waits.
  return makeChange(context.store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    if (ALLOWED[service.status].updatePassword !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('updatePassword', service.status));
    refuseUnconfirmed(caller, 'updatePassword', service.name, protectionOfRow(service));
    const { engine } = context.regions.of(service.region_code);
    const change = {
      isPaused: service.status === 'PAUSED',
      keepSessions,
      sets: service.read_replica_sets.map(({ id: set }) => set),
    };
    if (!caller.dryRun) await reachEngine(() => engine.sql.setPassword(id, verifier, change));
    const operationId = await recordOperation(tx, service, 'updatePassword', caller);
    const row = await changeService(tx, service, {}, operation);
    return { doc: row.doc, operationId };
  });
}

export function startService(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Accepted> {
  return changeUnderRules(context, caller, id, 'start', () => ({ power: 'running' }), 'start');
}

export function stopService(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Accepted> {
  return changeUnderRules(context, caller, id, 'stop', () => ({ power: 'paused' }), 'stop');
}

/** Starts the servers again: standbys first, then the primary, by a switchover where it can be. */
export function restartService(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Accepted> {
  const again = ({ restarts }: ServiceRow): ServiceChange => ({ restarts: restarts + 1 });
  return changeUnderRules(context, caller, id, 'restart', again, 'restart');
}

export function renameService(
  context: ControlContext,
  caller: Caller,
  id: string,
  name: string,
): Promise<Outcome> {
  return changeWithoutEngine(context, caller, id, 'rename', { name });
}

export function setServiceEnvironment(
  context: ControlContext,
  caller: Caller,
  id: string,
  environment: Environment,
): Promise<Outcome> {
  return changeWithoutEngine(
    context,
    caller,
    id,
    'setEnvironment',
    { environment, ...lifetimeOfTag(caller, environment) },
    `the environment is ${environment}`,
  );
}
