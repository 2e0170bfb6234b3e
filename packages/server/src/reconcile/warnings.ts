/**
 * Twice a minute, for each service of a region: what will become trouble, on the service where it
 * is seen and in the log of the control plane.
 */
import type { Warning } from '@howdah/contract';
import { diskWarning } from '../domain/disk.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import {
  listServicesThatMustRun,
  listStoppedServicesWithOtherDiskWarning,
} from '../store/service-lists.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';

const isSame = (some: readonly Warning[], others: readonly Warning[]): boolean =>
  JSON.stringify(some) === JSON.stringify(others);

export function createWatch(store: Store, { code, engine }: Region, log: Log, rounds: Rounds) {
  const diskNow = async (): Promise<Warning | null> => diskWarning(await engine.storage.disk());

  /**
   * Looks at one service and brings its warnings up to date.
   *
   * @param known its warnings as they were a moment ago; null: they are not known. Most are the
   *   same ones: then nothing is locked, which for hundreds of services costs processor time
   */
  const look = async (
    id: string,
    disk: Warning | null,
    known: readonly Warning[] | null,
  ): Promise<void> => {
    const now = [...(disk === null ? [] : [disk]), ...(await engine.observe.warnings(id))];
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
    const disk = await diskNow();
    for (const { id, warnings } of await listServicesThatMustRun(store.db, code)) {
      if (closing.aborted) return;
      await look(id, disk, warnings).catch((error: unknown) =>
        log.warn({ service: id, err: error }, 'could not check for warnings'),
      );
    }
    // Those that do not run stand on the same disk; what else they warn of stays as it was.
    for (const id of await listStoppedServicesWithOtherDiskWarning(store.db, code, disk)) {
      await show(id, (before) => [
        ...(disk === null ? [] : [disk]),
        ...before.filter(({ code }) => code !== 'DISK'),
      ]);
    }
  };

  const round = rounds.every('warnings', lookAtAll, log);
  return {
    start: round.start,
    look: async (id: string): Promise<void> => look(id, await diskNow(), null),
    close: round.close,
  };
}
