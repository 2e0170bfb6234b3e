/** The backups of deleted services in repositories, for the time after their data is removed. */
import type { Kept } from '../domain/service/row.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import { listRepositories } from '../store/repositories.ts';

const DAY_MS = 86_400_000;

/**
 * The repository that keeps the backups of a deleted service for the longest time, from now on.
 *
 * @returns null: none has a backup of it
 */
export async function findKept(
  { store, region }: { store: Pick<Store, 'db'>; region: Region },
  id: string,
): Promise<Kept | null> {
  const states = await region.engine.offMachine.describe(id);
  const [longest] = (await listRepositories(store.db))
    .filter((repository) => (states.get(repository.id)?.backups.length ?? 0) > 0)
    .toSorted((a, b) => b.retention_days - a.retention_days);
  if (longest === undefined) return null;
  const nowMs = Date.now();
  return {
    repository: longest.id,
    since: new Date(nowMs).toISOString(),
    until: new Date(nowMs + longest.retention_days * DAY_MS).toISOString(),
    isRemoved: false,
  };
}
