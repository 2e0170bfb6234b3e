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
  const add = (backup: Omit<Backup, 'regions' | 'finished_at'>, place: string): void => {
    const startedMs = Date.parse(backup.started_at);
    const before = found.get(startedMs) ?? { ...backup, regions: [] };
    const seconds = Math.max(before.duration_seconds, backup.duration_seconds);
    found.set(startedMs, {
      ...before,
      duration_seconds: seconds,
      finished_at: new Date(startedMs + seconds * 1000).toISOString(),
      regions: [...before.regions, { region_code: place, status: 'FINISHED' as const }],
    });
  };
  for (const { id: label, taken, storage_mb } of snapshots)
    add(
      {
        label,
        type: 'FULL',
        started_at: taken,
        duration_seconds: 0,
        size_bytes: storage_mb * 1_000_000,
      },
      region,
    );
  for (const { name, backups } of repositories)
    for (const { label, takenMs, type, storageBytes, durationSeconds = 0 } of backups)
      add(
        {
          label,
          type: type === 'full' ? 'FULL' : 'INCREMENTAL',
          started_at: new Date(takenMs).toISOString(),
          duration_seconds: durationSeconds,
          size_bytes: storageBytes,
        },
        name,
      );
  return [...found.entries()].toSorted(([a], [b]) => b - a).map(([, backup]) => backup);
}
