/**
 * Takes samples of the running services of a region, for their series and their current figures,
 * and keeps their backups: once a minute.
 */
import pLimit from 'p-limit';
import { isDeepStrictEqual } from 'node:util';
import type { Usage } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import { insertSamples, type Sample } from '../store/samples.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { notableWaits } from '../domain/service/waits.ts';
import {
  listAwakeServices,
  listParentsOfUnfinishedForks,
  readBackedUpStorageGb,
} from '../store/service-lists.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';

/**
 * Services whose backups are kept at the same time: a snapshot may be a long copy, and the others
 * do not wait for it.
 */
const KEPT_AT_A_TIME = 2;

type Sampler = {
  readonly store: Store;
  readonly region: Region;
  readonly log: Log;
  /** Brings the warnings of a service up to date. */
  readonly warn: (id: string) => Promise<void>;
  /** The last count of each server's transactions, by service and node. */
  readonly transactions: Map<string, { atMs: number; count: number }>;
};

/** @param warn brings the warnings of a service up to date */
export function createSampler(
  store: Store,
  region: Region,
  log: Log,
  rounds: Rounds,
  warn: (id: string) => Promise<void>,
) {
  const sampler: Sampler = { store, region, log, warn, transactions: new Map() };
  const samples = rounds.every('samples', (closing) => sampleAll(sampler, closing), log);
  // A snapshot may be a long copy: figures do not wait for it.
  const snapshots = rounds.every('snapshots', (closing) => keepAllBackups(sampler, closing), log);
  let isClosing = false;
  return {
    start: (): void => {
      samples.start();
      snapshots.start();
    },
    /** The first figures of a service that has just become ready. */
    sampleOne: async (service: Pick<ServiceRow, 'id' | 'parent_id'>): Promise<void> => {
      if (!isClosing) await sampleOne(sampler, service);
    },
    close: async (): Promise<void> => {
      isClosing = true;
      // A snapshot that is under way is not waited for: the next start removes it and takes
      // another.
      await snapshots.close(0);
      await samples.close();
    },
  };
}

async function sampleAll(sampler: Sampler, closing: AbortSignal): Promise<void> {
  const { store, region, transactions } = sampler;
  const ids = await listAwakeServices(store.db, region.code, 'with sets');
  const found: Sample[] = [];
  // One after the other: figures must not compete with the work of the services.
  for (const id of ids) {
    if (closing.aborted) return;
    const taken = await sample(sampler, id);
    found.push(...taken);
    await show(store, taken);
  }
  await insertSamples(store.db, found);
  for (const key of transactions.keys())
    if (!ids.includes(key.split(' ')[0] ?? '')) transactions.delete(key);
}

async function sampleOne(
  sampler: Sampler,
  { id, parent_id: parent }: Pick<ServiceRow, 'id' | 'parent_id'>,
): Promise<void> {
  const taken = await sample(sampler, id);
  if (taken.length === 0) return;
  await show(sampler.store, taken);
  await insertSamples(sampler.store.db, taken);
  if (parent === null) await keepBackups(sampler, id);
}

/** A sample with the rest of what the engine measured. */
type Taken = Sample & Pick<Usage, 'waits'>;

/** A sample of each server of a service; none if it has stopped meanwhile. */
async function sample({ region, log, transactions }: Sampler, id: string): Promise<Taken[]> {
  try {
    const used = await region.engine.observe.usage(id);
    const atMs = Date.now();
    return used.map((usage) => {
      const key = `${id} ${usage.node}`;
      const before = transactions.get(key);
      transactions.set(key, { atMs, count: usage.transactions });
      const rate =
        before === undefined || usage.transactions < before.count
          ? 0
          : ((usage.transactions - before.count) / (atMs - before.atMs)) * 1000;
      return {
        serviceId: id,
        at: new Date(atMs),
        transactionsPerSecond: rate,
        cpuWaitMillis: usage.waits.cpu?.millis ?? null,
        writeWaitMillis: usage.waits.writes?.millis ?? null,
        ...usage,
      };
    });
  } catch (error) {
    log.info({ service: id, err: error }, 'could not sample a service');
    return [];
  }
}

/**
 * The figures of a service are those of its primary, of a read replica set the sum over its nodes.
 */
async function show(store: Store, samples: readonly Taken[]): Promise<void> {
  await store.db.transaction().execute(async (tx) => {
    const locked = samples[0] === undefined ? null : await lockService(tx, samples[0].serviceId);
    if (locked === null || locked.service.status !== 'READY') return;
    const counted = locked.service.parent_id === null ? samples.slice(0, 1) : samples;
    const sum = (figure: (one: Sample) => number) =>
      counted.reduce((total, one) => total + figure(one), 0);
    const mb = (bytes: number) => Math.round(bytes / 1e6);
    const figures = {
      memory_mb: mb(sum(({ memoryBytes }) => memoryBytes)),
      milli_cpu: sum(({ cpuMillis }) => cpuMillis),
      storage_mb: mb(sum(({ storageBytes }) => storageBytes)),
    };
    const waits = notableWaits(counted);
    const { memory_mb, milli_cpu, storage_mb } = locked.service;
    if (
      memory_mb === figures.memory_mb &&
      milli_cpu === figures.milli_cpu &&
      storage_mb === figures.storage_mb &&
      isDeepStrictEqual(locked.service.waits, waits)
    )
      return;
    await changeService(tx, locked.service, { ...figures, waits }, locked.operation);
  });
}

async function keepAllBackups(sampler: Sampler, closing: AbortSignal): Promise<void> {
  const inTurn = pLimit(KEPT_AT_A_TIME);
  const ready = await listAwakeServices(sampler.store.db, sampler.region.code);
  await inTurn.map(ready, async (id) => {
    if (!closing.aborted) await keepBackups(sampler, id);
  });
}

async function keepBackups({ store, region, log, warn }: Sampler, id: string): Promise<void> {
  try {
    const removes = !(await listParentsOfUnfinishedForks(store.db)).has(id);
    const storageGb = await readBackedUpStorageGb(store.db, id);
    if (storageGb === null) return;
    const rules = { removes, quotaBytes: storageGb * 1e9 };
    if (await region.engine.backups.keep(id, rules)) await warn(id);
  } catch (error) {
    log.warn({ service: id, err: error }, 'backups of a service failed; trying again in a minute');
  }
}
