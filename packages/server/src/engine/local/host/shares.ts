/**
 * Shares out the processors and the disk of this machine while its servers run: looks at what each
 * has used, and sets weights and limits by `share-out.ts`. Those of a control plane that has died
 * stay as they were last.
 */
import type { Size } from '@howdah/contract';
import { createCpuShares } from './cpu-shares.ts';
import { sharesOfDisk } from './disk-shares.ts';
import { diskOf, type Limits } from './groups.ts';

export type Shares = ReturnType<typeof createShares>;

/** @param diskRate what the disk can write, in bytes a second; null: writes are not limited here */
export function createShares(limits: Limits, diskRate: number | null) {
  const disk = diskOf(limits);
  const cpu = limits.kind === 'none' ? null : createCpuShares(limits);
  const writes = disk === null || diskRate === null ? null : sharesOfDisk(disk, diskRate);
  return {
    /** What the disk can write, in bytes a second; null: writes are not limited here. */
    diskRate: (): number | null => writes?.rate() ?? null,
    /** Gives a server that has just become ready its shares. Its group is there. */
    add: async (id: string, size: Size): Promise<void> => {
      await cpu?.add(id, size);
      await writes?.add(limits, id, size);
    },
    remove: (id: string): void => {
      cpu?.remove(id);
      writes?.remove(limits, id);
    },
    /** Has a server write at full speed for a moment: a client waits for this work. */
    free: async (id: string): Promise<void> => writes?.free(limits, id),
    /** Looks at what was used since the last time. */
    shareOut: async (): Promise<void> => {
      await cpu?.shareOut();
      await writes?.shareOut();
    },
  };
}
