/** Once a minute: samples of what running services use, into the series and as current figures on the service; and their backups. */
import pLimit from 'p-limit';
import type { Engine } from '../engine/engine.ts';
import type { Store } from '../store/database.ts';
import { insertSamples, type Sample } from '../store/samples.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { listParentsOfUnfinishedForks, listReadyServices } from '../store/service-lists.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Log } from '../lib/log.ts';

/** The finest bucket of a series is a minute; one sample falls into each. */
export const SAMPLE_MS = 60_000;

/** Services whose backups are seen to at the same time: a snapshot may be a long copy, for which the others do not wait. */
const KEPT_AT_A_TIME = 2;

/** @param warn brings the warnings of a service up to date */
export function createSampler(
  store: Store,
  engine: Engine,
  log: Log,
  warn: (id: string) => Promise<void>,
) {
  const transactions = new Map<string, { atMs: number; count: number }>();
  let timer: NodeJS.Timeout | undefined;
  let closing = false;
  let running: Promise<void> = Promise.resolve();
  let backups: Promise<void> | undefined;

  /** One look at each server of a service; none when it stopped meanwhile. */
  const sample = async (id: string): Promise<Sample[]> => {
    try {
      const used = await engine.usage(id);
      const atMs = Date.now();
      return used.map((usage) => {
        const key = `${id} ${usage.node}`;
        const before = transactions.get(key);
        transactions.set(key, { atMs, count: usage.transactions });
        const rate =
          before === undefined || usage.transactions < before.count
            ? 0
            : ((usage.transactions - before.count) / (atMs - before.atMs)) * 1000;
        return { serviceId: id, at: new Date(atMs), transactionsPerSecond: rate, ...usage };
      });
    } catch (error) {
      log.info({ service: id, err: error }, 'could not sample a service');
      return [];
    }
  };

  /** What a service uses is what the server uses that accepts writes; of a read replica set, what all its nodes use. */
  const show = async (samples: readonly Sample[]): Promise<void> =>
    store.db.transaction().execute(async (tx) => {
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
      const { memory_mb, milli_cpu, storage_mb } = locked.service;
      if (
        memory_mb === figures.memory_mb &&
        milli_cpu === figures.milli_cpu &&
        storage_mb === figures.storage_mb
      )
        return;
      await changeService(tx, locked.service, figures, locked.operation);
    });

  const keepBackups = async (id: string): Promise<void> => {
    try {
      if (await engine.keepBackups(id, !(await listParentsOfUnfinishedForks(store.db)).has(id)))
        await warn(id);
    } catch (error) {
      log.warn(
        { service: id, err: error },
        'backups of a service failed; trying again in a minute',
      );
    }
  };

  const keepAllBackups = async (): Promise<void> => {
    try {
      const inTurn = pLimit(KEPT_AT_A_TIME);
      await inTurn.map(await listReadyServices(store.db), async (id) => {
        if (!closing) await keepBackups(id);
      });
    } catch (error) {
      log.warn({ err: error }, 'could not ask which services run');
    }
  };

  const sampleAll = async (): Promise<void> => {
    const ids = await listReadyServices(store.db, 'with sets');
    const found: Sample[] = [];
    // One after the other: figures are not worth competing with the services' own work.
    for (const id of ids) {
      if (closing) return;
      const taken = await sample(id);
      found.push(...taken);
      await show(taken);
    }
    await insertSamples(store.db, found);
    for (const key of transactions.keys())
      if (!ids.includes(key.split(' ')[0] ?? '')) transactions.delete(key);
  };

  const round = async (): Promise<void> => {
    // A snapshot may be a long copy: figures do not wait for it, and no second round begins before it is done.
    backups ??= keepAllBackups().finally(() => {
      backups = undefined;
    });
    running = sampleAll().catch((error: unknown) =>
      log.warn({ err: error }, 'a round of samples was interrupted'),
    );
    await running;
    if (!closing) timer = setTimeout(() => void round(), SAMPLE_MS);
  };

  return {
    start: () => void round(),
    /** The first figures of a service that has just become ready. */
    sampleOne: async ({
      id,
      parent_id: parent,
    }: Pick<ServiceRow, 'id' | 'parent_id'>): Promise<void> => {
      if (closing) return;
      const taken = await sample(id);
      if (taken.length === 0) return;
      await show(taken);
      await insertSamples(store.db, taken);
      if (parent === null) await keepBackups(id);
    },
    close: async (): Promise<void> => {
      closing = true;
      clearTimeout(timer);
      // A snapshot under way is left: it is recreated, and what there is of it removed.
      await running;
    },
  };
}
