/**
 * In the maintenance window: restarts the services of a region whose PostgreSQL was replaced by a
 * newer minor version, one after the other.
 */
import { isWithin, type MaintenanceWindow } from '../settings.ts';
import type { Region } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import type { Store } from '../store/database.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation, HOWDAH, isUnderWayInRegion } from '../store/operations.ts';
import { listServicesWithWarning } from '../store/service-lists.ts';
import { changeService, lockService } from '../store/services.ts';

export function createMaintenance(
  { db }: Store,
  { code }: Region,
  log: Log,
  rounds: Rounds,
  window: MaintenanceWindow | null,
) {
  /** Restarted in this window: one that still warns is left to its owner. */
  const restarted = new Set<string>();

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

  const round = rounds.every('maintenance', restartNext, log);
  return {
    start: (): void => {
      if (window !== null) round.start();
    },
    close: round.close,
  };
}
