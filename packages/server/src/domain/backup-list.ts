/** The backups of a service as Tiger Cloud lists them. */
import type { Backup, Backups } from '@howdah/contract';
import type { OffMachineState } from '../engine/off-machine.ts';

/** A repository, by its name, with the backups that it has of the service. */
type Copies = { name: string } & Pick<OffMachineState, 'backups'>;

/**
 * The snapshots of a service and the backups in repositories, newest first. A backup of a snapshot
 * that is still there is a further copy of it.
 *
 * @param region where the snapshots are
 */
export function backupsIn(
  region: string,
  snapshots: readonly Pick<Backups['snapshots'][number], 'id' | 'taken' | 'storage_mb'>[],
  repositories: readonly Copies[],
): Backup[] {
  const found = new Map<number, Backup>();
  const add = (backup: Omit<Backup, 'regions' | 'duration_seconds'>, place: string): void => {
    const atMs = Date.parse(backup.started_at);
    const before = found.get(atMs) ?? { ...backup, duration_seconds: 0, regions: [] };
    const regions = [...before.regions, { region_code: place, status: 'FINISHED' as const }];
    found.set(atMs, { ...before, regions });
  };
  for (const { id: label, taken, storage_mb } of snapshots)
    add({ label, type: 'FULL', ...at(taken), size_bytes: storage_mb * 1_000_000 }, region);
  for (const { name, backups } of repositories)
    for (const { label, takenMs, type, storageBytes } of backups)
      add(
        {
          label,
          type: type === 'full' ? 'FULL' : 'INCREMENTAL',
          ...at(new Date(takenMs).toISOString()),
          size_bytes: storageBytes,
        },
        name,
      );
  return [...found.entries()].toSorted(([a], [b]) => b - a).map(([, backup]) => backup);
}

const at = (taken: string) => ({ started_at: taken, finished_at: taken });
