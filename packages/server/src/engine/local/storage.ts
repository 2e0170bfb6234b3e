/** The disk of the services: quotas, the reserve, and what is removed when nothing else helps. */
import type { Storage } from '../engine.ts';
import { relieveArchive } from './backup/keeper.ts';
import { removeWalOnFullDisk } from './backup/last-resort.ts';
import {
  enforceQuota,
  grownServices,
  quotaWarnings,
  takeRelief,
  usedBytesOf,
} from './host/quota.ts';
import { fullestDisk, keepReserve } from './host/reserve.ts';
import { ownerOf } from './host/users.ts';
import type { Local } from './local.ts';
import { instanceNumbers, primaryPaths } from './topology/instances.ts';

export function createStorage({ machine, quotas, meter, keeper }: Local): Storage {
  const { layout } = machine;
  let reserveAtStart = machine.reserve;
  return {
    disk: () => fullestDisk(layout),
    shared: (id) => {
      const paths = primaryPaths(machine, id);
      return meter.measure(paths.data, ownerOf(machine, paths));
    },
    usedBytes: (id) => usedBytesOf(primaryPaths(machine, id)),
    keepQuota: async (id, { quotaBytes, pressure, removes }) => {
      const before = JSON.stringify(quotaWarnings(quotas, id));
      const stop = await enforceQuota(quotas, id, await instanceNumbers(machine, id), {
        quotaBytes,
        pressure,
        relieve: () => relieveArchive(keeper, id, { removes, quotaBytes }),
      });
      return {
        stop,
        changed: before !== JSON.stringify(quotaWarnings(quotas, id)),
        relief: takeRelief(quotas, id),
      };
    },
    keepReserve: async () => {
      const { did, heldBytes } = await keepReserve(layout.root, machine.tuning.reserveMaxBytes);
      const state = { did: did ?? reserveAtStart, heldBytes };
      reserveAtStart = null;
      const removedWal = machine.hasMetadata
        ? await removeWalOnFullDisk(layout, grownServices(quotas))
        : [];
      return { ...state, removedWal };
    },
  };
}
