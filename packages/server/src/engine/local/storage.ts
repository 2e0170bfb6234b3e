/** The disk of the services: quotas, the reserve, and what is removed when nothing else helps. */
import type { Storage } from '../engine.ts';
import { relieveArchive, type Keeper } from './backup/keeper.ts';
import { removeWalOnFullDisk } from './backup/last-resort.ts';
import type { Machine } from './host/machine-record.ts';
import {
  enforceQuota,
  grownServices,
  quotaWarnings,
  usedBytesOf,
  type Quotas,
} from './host/quota.ts';
import { fullestDisk, keepReserve } from './host/reserve.ts';
import type { createStorageMeter } from './host/storage.ts';
import { ownerOf } from './host/users.ts';
import { memberNumbers } from './topology/members.ts';

type Parts = Readonly<{
  machine: Machine;
  quotas: Quotas;
  meter: ReturnType<typeof createStorageMeter>;
  keeper: Keeper;
}>;

export function createStorage({ machine, quotas, meter, keeper }: Parts): Storage {
  const { layout } = machine;
  const primaryPaths = (id: string) => layout.member(id, layout.primaryOf(id));
  let reserveAtStart = machine.reserve;
  return {
    disk: () => fullestDisk(layout),
    shared: (id) => meter.measure(primaryPaths(id).data, ownerOf(machine, primaryPaths(id))),
    usedBytes: (id) => usedBytesOf(primaryPaths(id)),
    keepQuota: async (id, { quotaBytes, frozen, removes }) => {
      const before = JSON.stringify(quotaWarnings(quotas, id));
      const stop = await enforceQuota(quotas, id, await memberNumbers(machine, id), {
        quotaBytes,
        frozen,
        relieve: () => relieveArchive(keeper, id, removes),
      });
      return { stop, changed: before !== JSON.stringify(quotaWarnings(quotas, id)) };
    },
    keepReserve: async () => {
      const { did, heldBytes } = await keepReserve(layout.root);
      const state = { did: did ?? reserveAtStart, heldBytes };
      reserveAtStart = null;
      return { ...state, removedWal: await removeWalOnFullDisk(layout, grownServices(quotas)) };
    },
  };
}
