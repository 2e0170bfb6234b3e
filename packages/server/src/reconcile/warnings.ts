/**
 * Twice a minute, for a region and each of its services: what will become trouble, on the service
 * where it is seen and in the control log. The disk is that of the region: only its document warns
 * of it.
 */
import type { Warning } from '@howdah/contract';
import { diskWarning } from '../domain/disk.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import {
  listServicesThatMustRun,
  listStoppedServicesWithDiskWarning,
} from '../store/service-lists.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';

const isSame = (some: readonly Warning[], others: readonly Warning[]): boolean =>
  JSON.stringify(some) === JSON.stringify(others);

export function createWatch(store: Store, { code, engine }: Region, log: Log, rounds: Rounds) {
  /**
   * Looks at one service and brings its warnings up to date.
   *
   * @param known its warnings as they were a moment ago; null: they are not known. Most are the
   *   same ones: then nothing is locked, which for hundreds of services costs processor time
   */
  const look = async (id: string, known: readonly Warning[] | null = null): Promise<void> => {
    const now = await engine.observe.warnings(id);
    if (known === null || !isSame(known, now)) await show(id, () => now);
  };

  /** @param warningsNow what a service warns of now, given what it warned of before */
  const show = async (
    id: string,
    warningsNow: (before: readonly Warning[]) => Warning[],
  ): Promise<void> => {
    const changed = await store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null || locked.service.deleting) return null;
      const before = locked.service.warnings;
      const after = warningsNow(before);
      if (isSame(before, after)) return null;
      await changeService(tx, locked.service, { warnings: after }, locked.operation);
      return { before, after };
    });
    if (changed === null) return;
    const { before, after } = changed;
    for (const { code, message } of after) {
      if (!before.some((known) => known.code === code))
        log.warn({ service: id, code, warning: message }, 'a service has a new warning');
    }
    for (const { code } of before) {
      if (!after.some((known) => known.code === code))
        log.info({ service: id, code }, 'a warning has ended');
    }
  };

  const lookAtAll = async (closing: AbortSignal): Promise<void> => {
    await lookAtDisk();
    for (const { id, warnings } of await listServicesThatMustRun(store.db, code)) {
      if (closing.aborted) return;
      await look(id, warnings).catch((error: unknown) =>
        log.warn({ service: id, err: error }, 'could not check for warnings'),
      );
    }
    // Older releases warned of the disk at each service.
    for (const id of await listStoppedServicesWithDiskWarning(store.db, code))
      await show(id, (before) => before.filter((one) => one.code !== 'DISK'));
  };

  /** The warning of the region, which no service repeats: one line at its beginning and its end. */
  const lookAtDisk = async (): Promise<void> => {
    if (engine.storage.disk === null) return;
    const disk = diskWarning(await engine.storage.disk());
    if (disk !== null && !isDiskTight)
      log.warn({ region: code, code: disk.code, warning: disk.message }, 'a region has a warning');
    if (disk === null && isDiskTight)
      log.info({ region: code, code: 'DISK' }, 'the warning of a region has ended');
    isDiskTight = disk !== null;
  };
  let isDiskTight = false;

  const round = rounds.every('warnings', lookAtAll, log);
  return {
    start: round.start,
    look: (id: string): Promise<void> => look(id),
    close: round.close,
  };
}
