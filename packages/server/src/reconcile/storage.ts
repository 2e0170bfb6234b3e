/**
 * Watches the disk of a region each second, and holds its services to their quotas. The reserve
 * comes first, before any
 * question to the metadata database: on a full disk, that database may wait for it.
 */
import { randomUUID } from 'node:crypto';
import { DISK_TIGHT_PERCENT, diskPressure, PURGE_PERCENT } from '../domain/disk.ts';
import type { DiskPressure, DiskUsage, Relief, StorageGuard } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import { recordRemoval, type Removal } from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import { reportReserve, reportRestoreRisk, notifyService } from '../store/events.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation, HOWDAH } from '../store/operations.ts';
import {
  findNextSourceToRemove,
  findNextToPurge,
  listParentsOfUnfinishedForks,
  listStorageQuotas,
} from '../store/service-lists.ts';
import { changeService, endRestoreTime, lockService, purgeDeleted } from '../store/services.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import { findKept } from './kept-backups.ts';

const QUOTAS_EVERY_MS = 10_000;
/** Quotas are checked early if the disk has grown by this much. */
const GROWTH_BYTES = 64e6;
/** Rounds of checks take at most this part of the time, however many services there are. */
const SHARE_OF_TIME = 0.2;

type RemovalCall = Parameters<typeof recordRemoval>[2];

type Guard = {
  readonly store: Store;
  readonly region: Region;
  readonly log: Log;
  readonly warn: (id: string) => Promise<void>;
  /** For how long deleted services can be restored. */
  readonly restoreWindowMs: number;
  pressure: DiskPressure;
  looked: { atMs: number; usedBytes: number; tookMs: number };
  /** The services and their quotas when the metadata database last answered. */
  known: Awaited<ReturnType<typeof listStorageQuotas>>;
  /** Removals that are not in the audit log yet, for the same reason. */
  readonly unrecorded: Map<string, { service: string; call: RemovalCall; removal: Removal }>;
  /** WAL that was removed as a last resort, by service. */
  readonly lastResorts: Map<string, Removal & { sinceMs: number }>;
  /**
   * The last change of the reserve, until it is reported: on a full disk the metadata database may
   * refuse it.
   */
  unreported: { state: 'held' | 'released'; bytes: number } | null;
};

/** @param warn brings the warnings of a service up to date */
export function createStorageGuard(
  store: Store,
  region: Region,
  log: Log,
  rounds: Rounds,
  { warn, restoreWindowMs }: Pick<Guard, 'warn' | 'restoreWindowMs'>,
) {
  const guard: Guard = {
    store,
    region,
    log,
    warn,
    restoreWindowMs,
    pressure: 'none',
    looked: { atMs: 0, usedBytes: 0, tookMs: 0 },
    known: [],
    unrecorded: new Map(),
    lastResorts: new Map(),
    unreported: null,
  };
  return rounds.every('storage', (closing) => look(guard, closing), log);
}

async function look(guard: Guard, closing: AbortSignal): Promise<void> {
  const { storage, storageGuard } = guard.region.engine;
  if (storageGuard !== null) await keepReserve(guard, storageGuard);
  await report(guard).catch((error: unknown) =>
    guard.log.warn({ err: error }, 'what was removed was not reported; trying again'),
  );
  if (storage.disk === null) return;
  const disk = await storage.disk();
  const usedBytes = disk.totalBytes - disk.freeBytes;
  guard.pressure = diskPressure(disk, guard.pressure);
  // Quotas are enforced without the metadata database too: a full disk may be what ended it.
  // Before the first purge: a disk may fill within a second.
  if (disk.usedPercent >= DISK_TIGHT_PERCENT)
    await reportRisk(guard, disk).catch((error: unknown) =>
      guard.log.warn({ err: error }, 'the risk of deleted services was not reported; trying again'),
    );
  if (disk.usedPercent >= PURGE_PERCENT)
    await purgeOldest(guard, disk).catch((error: unknown) =>
      guard.log.warn({ err: error }, 'no deleted service could be purged; trying again'),
    );
  if (storageGuard === null) return;
  const { looked } = guard;
  const sinceMs = Date.now() - looked.atMs;
  const isEarly = guard.pressure !== 'none' || usedBytes - looked.usedBytes > GROWTH_BYTES;
  if (sinceMs < (isEarly ? looked.tookMs / SHARE_OF_TIME : QUOTAS_EVERY_MS)) return;
  const beganMs = Date.now();
  await keepQuotas(guard, storageGuard, closing);
  guard.looked = { atMs: beganMs, usedBytes, tookMs: Date.now() - beganMs };
}

async function keepReserve(guard: Guard, storageGuard: StorageGuard): Promise<void> {
  const { did, heldBytes, removedWal } = await storageGuard.keepReserve();
  for (const { id, bytes } of removedWal) {
    guard.log.warn(
      { service: id, bytes },
      'the disk is full: archived WAL was removed, so that the metadata database can go on',
    );
    noteLastResort(guard, id);
  }
  if (did === 'released')
    guard.log.warn(
      {},
      'the disk is full: the reserve was released, so that the metadata database can go on',
    );
  if (did === 'made')
    guard.log.info({ bytes: heldBytes }, 'there is space on the disk again: the reserve was made');
  if (did !== null)
    guard.unreported = { state: did === 'made' ? 'held' : 'released', bytes: heldBytes };
}

/** WAL that is removed again within this time is the same event. */
const SAME_REMOVAL_MS = 3_600_000;

function noteLastResort({ lastResorts, unrecorded }: Guard, service: string): void {
  const nowMs = Date.now();
  const before = lastResorts.get(service);
  const isSame = before !== undefined && nowMs - before.sinceMs < SAME_REMOVAL_MS;
  const removal = {
    id: isSame ? before.id : randomUUID(),
    sinceMs: isSame ? before.sinceMs : nowMs,
    count: isSame ? before.count + 1 : 1,
    lastAt: new Date(nowMs),
  };
  lastResorts.set(service, removal);
  unrecorded.set(removal.id, { service, call: 'removeWal', removal });
}

async function report(guard: Guard): Promise<void> {
  const { store, unrecorded } = guard;
  for (const [id, { service, call, removal }] of unrecorded) {
    await recordRemoval(store.db, service, call, removal, HOWDAH);
    unrecorded.delete(id);
  }
  if (guard.unreported === null) return;
  const { state, bytes } = guard.unreported;
  await reportReserve(guard.store.db, guard.region.code, state, bytes);
  guard.unreported = null;
}

/** Reports that deleted services may be purged early, each once. */
async function reportRisk(
  { store, region, log, restoreWindowMs }: Guard,
  { usedPercent }: DiskUsage,
): Promise<void> {
  const reported = await reportRestoreRisk(store.db, region.code, {
    usedPercent,
    purgedAtPercent: PURGE_PERCENT,
    restorableMs: restoreWindowMs,
  });
  for (const id of reported)
    log.warn(
      { service: id, usedPercent },
      `the disk fills: a deleted service is purged early from ${PURGE_PERCENT} % on`,
    );
}

/** Purges the service that was deleted first, although it could still be restored. */
async function purgeOldest(
  { store, region, log }: Pick<Guard, 'store' | 'region' | 'log'>,
  { usedPercent }: DiskUsage,
): Promise<void> {
  const next = await findNextToPurge(store.db, region.code);
  if (next === null) return endKeeping({ store, region, log }, usedPercent);
  const { id } = next;
  const kept = await findKept({ store, region }, next);
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null) return;
    const { deleted_at: deletedAt, project_id: projectId, kept: earlier } = locked.service;
    if (deletedAt === null || projectId === null || earlier !== null) return;
    log.warn(
      { service: id, usedPercent },
      'the disk is nearly full: a deleted service is purged before the time for a restore is over',
    );
    const removal = { id: randomUUID(), count: 1, lastAt: new Date() };
    await recordRemoval(tx, id, 'purgeOnFullDisk', removal, HOWDAH);
    if (kept === null) return purgeDeleted(tx, locked.service, 'disk full');
    await endRestoreTime(tx, locked.service, kept);
    await notifyService(tx, id);
  });
}

/** Has the oldest server of before a move removed, although its time is not over. */
async function endKeeping(
  { store, region, log }: Pick<Guard, 'store' | 'region' | 'log'>,
  usedPercent: number,
): Promise<void> {
  const id = await findNextSourceToRemove(store.db, region.code);
  if (id === null) return;
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    const move = locked?.service.move ?? null;
    if (locked === null || move?.state !== 'kept' || move.from !== region.code) return;
    log.warn(
      { service: id, usedPercent },
      'the disk is nearly full: the former server of a service that has moved is removed early',
    );
    const until = new Date().toISOString();
    await changeService(tx, locked.service, { move: { ...move, until } }, locked.operation);
    await makeDue(tx, id);
  });
}

async function keepQuotas(
  guard: Guard,
  storageGuard: StorageGuard,
  closing: AbortSignal,
): Promise<void> {
  const { log } = guard;
  const { services, forked } = await listServices(guard);
  for (const { id, storageGb, hasOwner } of services) {
    if (closing.aborted) return;
    try {
      const { stop, changed, relief } = await storageGuard.keepQuota(id, {
        quotaBytes: storageGb * 1e9,
        pressure: guard.pressure,
        removes: forked !== null && !forked.has(id),
      });
      if (relief !== null) noteRelief(guard, id, relief);
      if (changed && hasOwner) await guard.warn(id);
      if (stop !== null) await pause(guard, id, stop);
    } catch (error) {
      log.warn(
        { service: id, err: error },
        'the quota of a service could not be enforced; trying again',
      );
    }
  }
}

function noteRelief({ log, unrecorded }: Guard, service: string, relief: Relief): void {
  const { id, count, lastMs, untilMs } = relief;
  log.warn(
    { service, count, keptUntil: new Date(untilMs).toISOString() },
    'archived WAL gave way to the quota of a service: moments of its growth cannot be restored',
  );
  const removal = { id, count, lastAt: new Date(lastMs) };
  unrecorded.set(id, { service, call: 'removeRecoveryPoints', removal });
}

/** The services as the metadata database has them, or had them when it last answered. */
async function listServices(guard: Guard): Promise<{
  services: Awaited<ReturnType<typeof listStorageQuotas>>;
  /** Services that unfinished forks are made from; null: unknown. */
  forked: Awaited<ReturnType<typeof listParentsOfUnfinishedForks>> | null;
}> {
  const { store, region, log } = guard;
  try {
    const forked = await listParentsOfUnfinishedForks(store.db);
    guard.known = await listStorageQuotas(store.db, region.code);
    return { services: guard.known, forked };
  } catch (error) {
    log.warn({ err: error }, 'quotas are enforced with the values that were read last');
    return { services: guard.known, forked: null };
  }
}

async function pause({ store, log }: Guard, id: string, reason: string): Promise<void> {
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null) return;
    const { service, operation } = locked;
    // The running operation may be the resize that helps.
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
}
