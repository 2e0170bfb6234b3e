/** For how long the backups of a service are kept. */
import {
  ALLOWED,
  ApiError,
  refusal,
  type BackupRetention,
  type SetBackupRetentionBody,
  inQuotes,
  type BackupRegion,
} from '@howdah/contract';
import type { Region } from '../engine/regions.ts';
import { listRepositories } from '../store/repositories.ts';
import { recordOperation } from '../store/operations.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { changeService, readOwnRetention } from '../store/services.ts';
import type { Db } from '../store/tables.ts';
import { type Caller, makeChange, type Outcome } from './change.ts';
import { refuseWithoutRepository } from './change-service.ts';
import type { ControlContext } from './control-context.ts';
import { refuseLongRetention } from './limits.ts';
import { protectionOfRow } from '../domain/service/spec.ts';
import { refuseUnconfirmed } from './permissions.ts';
import { lockOwnService } from './service-rules.ts';

export async function readBackupRetention(
  { store, regions }: ControlContext,
  { key: id, region_code: region }: ServicePlace,
): Promise<BackupRetention> {
  const served = regions.of(region);
  const own = await readOwnRetention(store.db, id);
  return describeRetention(store.db, served, own, await localDays(served, id));
}

/**
 * Sets for how long the repositories keep the backups of a service. Older ones are removed by the
 * next daily round.
 */
export async function setBackupRetention(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
  { retention_days: days }: SetBackupRetentionBody,
): Promise<Outcome> {
  const region = context.regions.of(code);
  const onMachine = await localDays(region, id);
  return makeChange(context.store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    if (ALLOWED[service.status].setBackupRetention !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('setBackupRetention', service.status));
    const protection = protectionOfRow(service);
    refuseUnconfirmed(caller, 'setBackupRetention', service.name, protection);
    // An own retention can be taken back when the last repository is gone, too.
    if (days !== null) await refuseWithoutRepository(tx, context, service, 'backup-retention');
    const doc = JSON.stringify(await describeRetention(tx, region, days, onMachine));
    if (days === service.backup_retention_days) return { doc, operationId: null };
    if (days !== null) await refuseLongRetention(tx, caller.projectId, days);
    const operationId = await recordOperation(tx, service, 'setBackupRetention', caller);
    await changeService(tx, service, { backup_retention_days: days }, operation);
    return { doc, operationId };
  });
}

const localDays = async ({ engine }: Region, id: string): Promise<number> =>
  (await engine.backups.describe(id)).window.days;

async function describeRetention(
  db: Db,
  { engine: { capabilities } }: Region,
  own: number | null,
  local: number,
): Promise<BackupRetention> {
  const reached = 'missing' in capabilities.offMachine ? [] : await listRepositories(db);
  const repositories = reached.map(({ name, retention_days: days }) => ({
    repository: name,
    retention_days: own ?? days,
  }));
  const longest = Math.max(...repositories.map(({ retention_days: days }) => days));
  return {
    type: 'TIME',
    retention_days: repositories.length === 0 ? local : longest,
    own_retention_days: own,
    local_days: local,
    repositories,
  };
}

// The repositories of a service, where Tiger Cloud has further regions for its backups. Each
// repository gets the backups of all services, so there is nothing to change for one of them.

export async function listBackupRegions(
  { store, regions }: ControlContext,
  { region_code: code }: Pick<ServicePlace, 'region_code'>,
): Promise<BackupRegion[]> {
  if ('missing' in regions.of(code).engine.capabilities.offMachine) return [];
  const repositories = await listRepositories(store.db);
  return repositories.map(({ name, created }) => ({
    region_code: name,
    created: created.toISOString(),
  }));
}

/** @throws ApiError NOT_FOUND if the service has no such repository */
export async function backupRegionOrRefuse(
  context: ControlContext,
  service: Pick<ServicePlace, 'region_code'>,
  wanted: string,
): Promise<BackupRegion> {
  const all = await listBackupRegions(context, service);
  const found = all.find(({ region_code: name }) => name === wanted);
  if (found !== undefined) return found;
  const named = all.map(({ region_code: name }) => name);
  throw new ApiError(
    'NOT_FOUND',
    `region_code: found ${inQuotes(wanted)}; a region for backups is a repository, and the ` +
      `service has ${named.length === 0 ? 'none' : named.join(', ')}: the operator adds one ` +
      'for all services (howdah repo add)',
  );
}

/** @throws ApiError always: a repository has all services */
export async function refuseToRemove(
  context: ControlContext,
  service: Pick<ServicePlace, 'region_code'>,
  wanted: string,
): Promise<never> {
  const { region_code: name } = await backupRegionOrRefuse(context, service, wanted);
  throw new ApiError(
    'UNAVAILABLE_HERE',
    `backup-regions: the repository ${inQuotes(name)} has the backups of all services; the ` +
      'operator removes it for all of them (howdah repo remove), and a shorter backup-retention ' +
      'keeps less of one service',
  );
}
