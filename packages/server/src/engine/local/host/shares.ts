/**
 * Shares out the processors and the disk of this machine while its servers run: looks at what each
 * has used, and sets weights and limits by `share-out.ts`. Those of a control plane that has died
 * stay as they were last.
 */
import type { Size } from '@howdah/contract';
import { createCpuShares } from './cpu-shares.ts';
import { sharesOfDisk } from './disk-shares.ts';
import { COPIES, diskOf, joinGroups, type Limits, makeGroup, readThrottledUs } from './groups.ts';
import { guaranteedMillis } from './share-out.ts';

export type Shares = ReturnType<typeof createShares>;

/**
 * @param diskRate the rate of the disk, in bytes a second; null: writes are not limited here
 * @param cpuMillis the processors of the machine, in thousandths of one
 */
export function createShares(limits: Limits, diskRate: number | null, cpuMillis: number) {
  const disk = diskOf(limits);
  const cpu = limits.kind === 'none' ? null : createCpuShares(limits);
  const writes =
    disk === null || diskRate === null ? null : sharesOfDisk(disk, diskRate, cpuMillis);
  const add = async (id: string, guaranteed: number): Promise<void> => {
    await cpu?.add(id, guaranteed);
    await writes?.add(limits, id, guaranteed);
  };
  let copies: Promise<void> | null = null;
  const makeCopies = async (): Promise<void> => {
    await makeGroup(limits, COPIES);
    // Clients wait for copies, and tenants have no more of them than the engine makes at a time.
    await add(COPIES, cpuMillis);
  };
  return {
    /** The rate of the disk, in bytes a second; null: writes are not limited here. */
    diskRate: (): number | null => writes?.rate() ?? null,
    /** Gives a server that has just become ready its shares. Its group is there. */
    add: (id: string, size: Size): Promise<void> => add(id, guaranteedMillis(size)),
    remove: (id: string): void => {
      cpu?.remove(id);
      writes?.remove(limits, id);
    },
    /** Has a server write at full speed for a moment: a client waits for this work. */
    free: async (id: string): Promise<void> => writes?.free(limits, id),
    /** Has a program that copies files share the disk with the servers, and with other copies. */
    joinCopies: (pid: number): void => {
      copies ??= makeCopies();
      // A copy is made all the same.
      copies.then(() => joinGroups(limits, COPIES, [pid])).catch(() => (copies = null));
    },
    /** How long others had to be considered; null: nobody shares it out. */
    contention: (id: string) => ({
      cpu: cpu?.busy(id) ?? null,
      writes: writes?.held(limits, id) ?? null,
      throttledMs: (readThrottledUs(limits, id) ?? 0) / 1000,
    }),
    /** Looks at what was used since the last time. */
    shareOut: async (): Promise<void> => {
      await cpu?.shareOut();
      await writes?.shareOut();
    },
  };
}
