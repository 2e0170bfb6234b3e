/**
 * Disk space belongs to somebody: each second it is looked how full the disk is, and services are held to their quotas. The metadata
 * database is asked only after the reserve was seen to: on a full disk it may be that which it waits for.
 */
import { DISK_FULL_PERCENT, PURGE_PERCENT, RESERVE_RELEASE_PERCENT } from '../domain/disk.ts';
import type { DiskUsage, Engine } from '../engine/engine.ts';
import type { Store } from '../store/database.ts';
import { reportReserve } from '../store/events.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation, HOWDAH } from '../store/operations.ts';
import {
  findNextToPurge,
  listParentsOfUnfinishedForks,
  listStorageQuotas,
} from '../store/service-lists.ts';
import { changeService, lockService, purgeDeleted } from '../store/services.ts';
import type { Log } from '../lib/log.ts';

const LOOK_EVERY_MS = 1000;
const QUOTAS_EVERY_MS = 10_000;
/** Growth of the disk that has the quotas looked at before their time. */
const GROWTH_BYTES = 64e6;
/** A round of looking takes at most this part of the time, however many services there are. */
const SHARE_OF_TIME = 0.2;

/** @param warn brings the warnings of a service up to date */
export function createStorageGuard(
  store: Store,
  engine: Engine,
  log: Log,
  warn: (id: string) => Promise<void>,
) {
  let timer: NodeJS.Timeout | undefined;
  let closing = false;
  let running: Promise<void> = Promise.resolve();
  let frozen = false;
  let looked = { atMs: 0, usedBytes: 0, tookMs: 0 };

  /** What became of the reserve and was not reported yet: on a full disk the metadata database may refuse it. */
  let unreported: { state: 'held' | 'released'; bytes: number } | null = null;

  const keepReserve = async (): Promise<void> => {
    const { did, heldBytes } = await engine.keepReserve();
    if (did === 'released')
      log.warn(
        {},
        'the disk is full: the reserve was released, so that the metadata database can go on',
      );
    if (did === 'made')
      log.info({ bytes: heldBytes }, 'there is space on the disk again: the reserve was made');
    if (did !== null)
      unreported = { state: did === 'made' ? 'held' : 'released', bytes: heldBytes };
  };

  const report = async (): Promise<void> => {
    if (unreported === null) return;
    const { state, bytes } = unreported;
    await reportReserve(store.db, state, bytes);
    unreported = null;
  };

  /** Ends the time for a restore of the service that was deleted first. */
  const purgeOldest = async ({ usedPercent }: DiskUsage): Promise<void> => {
    const id = await findNextToPurge(store.db);
    if (id === null) return;
    await store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (
        locked === null ||
        locked.service.deleted_at === null ||
        locked.service.project_id === null
      )
        return;
      log.warn(
        { service: id, usedPercent },
        'the disk is nearly full: a deleted service is purged before the time for a restore is over',
      );
      await purgeDeleted(tx, locked.service, 'disk full');
    });
  };

  const pause = async (id: string, reason: string): Promise<void> =>
    store.db.transaction().execute(async (tx) => {
      const locked = await lockService(tx, id);
      if (locked === null) return;
      const { service, operation } = locked;
      // What is under way may be the resize that helps.
      if (
        service.parent_id !== null ||
        service.deleting ||
        service.power === 'paused' ||
        operation !== null
      )
        return;
      log.warn({ service: id, reason }, 'a service grew beyond its quota and is paused');
      const begun = await beginOperation(tx, service, 'stop', HOWDAH, null);
      await changeService(tx, service, { power: 'paused', attempt: 0 }, begun);
      await makeDue(tx, id);
    });

  const keepQuotas = async (): Promise<void> => {
    const forked = await listParentsOfUnfinishedForks(store.db);
    for (const { id, storageGb, hasOwner } of await listStorageQuotas(store.db)) {
      if (closing) return;
      try {
        const { stop, changed } = await engine.keepQuota(id, {
          quotaBytes: storageGb * 1e9,
          frozen,
          removes: !forked.has(id),
        });
        if (changed && hasOwner) await warn(id);
        if (stop !== null) await pause(id, stop);
      } catch (error) {
        log.warn(
          { service: id, err: error },
          'a service could not be held to its quota; it is looked at again',
        );
      }
    }
  };

  const look = async (): Promise<void> => {
    await keepReserve();
    await report().catch((error: unknown) =>
      log.warn({ err: error }, 'the state of the reserve was not reported; it is tried again'),
    );
    const disk = await engine.disk();
    const usedBytes = disk.totalBytes - disk.freeBytes;
    frozen =
      disk.usedPercent >= RESERVE_RELEASE_PERCENT ||
      (frozen && disk.usedPercent >= DISK_FULL_PERCENT);
    if (disk.usedPercent >= PURGE_PERCENT) await purgeOldest(disk);
    const sinceMs = Date.now() - looked.atMs;
    const isEarly = frozen || usedBytes - looked.usedBytes > GROWTH_BYTES;
    if (sinceMs < (isEarly ? looked.tookMs / SHARE_OF_TIME : QUOTAS_EVERY_MS)) return;
    const beganMs = Date.now();
    await keepQuotas();
    looked = { atMs: beganMs, usedBytes, tookMs: Date.now() - beganMs };
  };

  const tick = async (): Promise<void> => {
    running = look().catch((error: unknown) =>
      log.warn({ err: error }, 'a look at the disk was interrupted'),
    );
    await running;
    if (!closing) timer = setTimeout(() => void tick(), LOOK_EVERY_MS);
  };

  return {
    start: () => void tick(),
    close: async (): Promise<void> => {
      closing = true;
      clearTimeout(timer);
      await running;
    },
  };
}
