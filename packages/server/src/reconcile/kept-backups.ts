/** The backups of deleted services in repositories, for the time after their data is removed. */
import type { Kept, ServiceRow } from '../domain/service/row.ts';
import { statesInRepositories } from '../engine/off-machine.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import { listRepositories, type RepositoryRow } from '../store/repositories.ts';

const DAY_MS = 86_400_000;

/**
 * The repository that keeps the backups of a deleted service for the longest time, from now on.
 *
 * @returns null: none has a backup of it
 */
export async function findKept(
  { store, region }: { store: Pick<Store, 'db'>; region: Region },
  { id, backup_retention_days: ownDays }: Pick<ServiceRow, 'id' | 'backup_retention_days'>,
): Promise<Kept | null> {
  const states = await statesInRepositories(region.engine.offMachine, id);
  const having = (await listRepositories(store.db)).filter(
    (repository) => (states.get(repository.id)?.backups.length ?? 0) > 0,
  );
  return chooseKept(having, ownDays, Date.now());
}

/**
 * The one of some repositories that keeps the backups of a service for the longest time.
 *
 * @param ownDays for how long each of them keeps them; null: as it says itself
 * @returns null: there is none
 */
export function chooseKept(
  repositories: readonly Pick<RepositoryRow, 'id' | 'retention_days'>[],
  ownDays: number | null,
  nowMs: number,
): Kept | null {
  const [longest] = repositories.toSorted((a, b) => b.retention_days - a.retention_days);
  if (longest === undefined) return null;
  return {
    repository: longest.id,
    since: new Date(nowMs).toISOString(),
    until: new Date(nowMs + (ownDays ?? longest.retention_days) * DAY_MS).toISOString(),
    isRemoved: false,
  };
}
