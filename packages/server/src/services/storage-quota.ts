/** The storage quota of a service. */
import { ApiError } from '@howdah/contract';
import type { Region } from '../engine/regions.ts';

/** The disk space of the largest server of a service, in gigabytes; 0 if it is unknown. */
export async function readUsedStorageGb({ engine }: Region, id: string): Promise<number> {
  return (await engine.storage.usedBytes(id)) / 1e9;
}

/** Refuses a quota below the used space, which would make the service read-only at once. */
export function storageOrRefuse(storageGb: number, usedGb: number): number {
  if (storageGb < usedGb)
    throw new ApiError(
      'INVALID_REQUEST',
      `storage_gb: found ${storageGb}; the data takes ${usedGb.toFixed(2)} GB already: send ${Math.ceil(usedGb)} or more, or drop data first`,
    );
  return storageGb;
}
