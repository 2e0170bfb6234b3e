/** Measures what each service has in the object store of the region: nothing there limits it. */
import type { Rounds } from '../../lib/rounds.ts';
import { EngineUnavailable } from '../engine.ts';
import { folderOf } from '../object-store.ts';
import { clusterName } from './manifests/names.ts';
import { sizeOf } from './s3.ts';
import type { Region } from './region.ts';

/** A folder of a million objects is a thousand requests. */
const MEASURE_EVERY_MS = 3_600_000;

type Measured = Readonly<{ store: string; bytes: number; atMs: number; backupMs: number | null }>;

/** @param failed called with the error of background work, which is tried again */
export function createArchiveSizes(
  { cache, objectStore }: Pick<Region, 'cache' | 'objectStore'>,
  rounds: Rounds,
  failed: (error: unknown) => void,
) {
  const measured = new Map<string, Measured>();
  const measure = async (id: string): Promise<void> => {
    const store = objectStore();
    const backupMs = cache.archive(id)?.lastBackupMs ?? null;
    if (store === null || cache.archive(id) === null) return;
    const last = measured.get(id);
    const atMs = Date.now();
    const isCurrent = last?.store === store.id && last.backupMs === backupMs;
    if (isCurrent && atMs - last.atMs < MEASURE_EVERY_MS) return;
    const bytes = await sizeOf(store, `${folderOf(store)}/${clusterName(id)}`);
    measured.set(id, { store: store.id, bytes, atMs, backupMs });
  };
  const measureAll = async (): Promise<void> => {
    // One after the other: the bucket has other work.
    for (const id of cache.ids())
      await measure(id).catch((error: unknown) => {
        // Services and the doctor say that it is away.
        if (!(error instanceof EngineUnavailable)) failed(error);
      });
    const ids = new Set(cache.ids());
    for (const id of measured.keys()) if (!ids.has(id)) measured.delete(id);
  };
  const round = rounds.every('archiveSizes', measureAll);
  round.startLater();
  return {
    /** After a base backup, and every hour; null: it was not measured yet. */
    bytes: (id: string): number | null => measured.get(id)?.bytes ?? null,
    close: round.close,
  };
}
