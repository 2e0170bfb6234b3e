/**
 * In the maintenance window: restarts the services of a region whose PostgreSQL was replaced by a
 * newer minor version, one after the other.
 */
import { isWithin, type MaintenanceWindow } from '../config-maintenance.ts';
import type { Region } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Store } from '../store/database.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation, HOWDAH, isUnderWayInRegion } from '../store/operations.ts';
import { listServicesWithWarning } from '../store/service-lists.ts';
import { changeService, lockService } from '../store/services.ts';

/** An update is seen within a minute, and a window may be short. */
const LOOK_EVERY_MS = 10_000;

export function createMaintenance(
  { db }: Store,
  { code }: Region,
  log: Log,
  window: MaintenanceWindow | null,
) {
  /** Restarted in this window: one that still warns is left to its owner. */
  const restarted = new Set<string>();
  let timer: NodeJS.Timeout | undefined;
  let round: Promise<void> = Promise.resolve();
  let isClosing = false;

  const restartNext = async (): Promise<void> => {
    if (window === null || !isWithin(window, new Date())) return restarted.clear();
    if (await isUnderWayInRegion(db, code, 'restart')) return;
    const ids = await listServicesWithWarning(db, code, 'MINOR_VERSION');
    const id = ids.find((one) => !restarted.has(one));
    if (id === undefined) return;
    restarted.add(id);
    await db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null || locked.service.status !== 'READY') return;
      const { service } = locked;
      const operation = await beginOperation(tx, service, 'restart', HOWDAH, null);
      await changeService(tx, service, { restarts: service.restarts + 1, attempt: 0 }, operation);
      await makeDue(tx, id);
    });
    log.info({ service: id }, 'restarted for a minor version of PostgreSQL');
  };

  const tick = async (): Promise<void> => {
    round = restartNext().catch((error: unknown) =>
      log.warn({ err: error }, 'a restart in the maintenance window could not begin'),
    );
    await round;
    if (!isClosing) timer = setTimeout(() => void tick(), LOOK_EVERY_MS);
  };

  return {
    start: (): void => {
      if (window !== null) void tick();
    },
    close: async (): Promise<void> => {
      isClosing = true;
      clearTimeout(timer);
      await round;
    },
  };
}
