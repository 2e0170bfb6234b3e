/**
 * The repositories of a service, where Tiger Cloud has further regions for its backups. Each
 * repository gets the backups of all services, so there is nothing to change for one of them.
 */
import { ApiError, inQuotes, type BackupRegion } from '@howdah/contract';
import { listRepositories } from '../store/repositories.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import type { ControlContext } from './context.ts';

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
