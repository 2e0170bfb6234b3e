/**
 * Makes and drops the databases that are leases, in the servers that they share: one after the
 * other in a server, and servers beside each other. Each step may be repeated.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { EngineUnavailable, type Leasing } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import type { Store } from '../store/database.ts';
import {
  claimDueDatabase,
  deleteLeasedDatabase,
  listDueDatabases,
  noteLeasedDatabase,
  type DueDatabase,
} from '../store/leased-databases.ts';

/** Servers with work at the same time. Each may copy a large database for minutes. */
const AT_A_TIME = 32;
/** How long a stop waits for a copy; the next start makes it again. */
const CLOSE_GRACE_MS = 5000;

type Context = Readonly<{ store: Store; leasing: Leasing; log: Log }>;

export function createLeasedDatabases(store: Store, region: Region, log: Log, rounds: Rounds) {
  const { leasing } = region.engine;
  const makeOrDropOne = async (due: DueDatabase): Promise<void> => {
    if (leasing !== null) await makeOrDrop({ store, leasing, log }, due);
  };
  const work = createServerWork(AT_A_TIME, makeOrDropOne, log);
  const round = rounds.every(
    'leasedDatabases',
    async () => {
      if (leasing !== null) work.add(await listDueDatabases(store.db, region.code));
    },
    log,
  );
  return {
    start: (): void => {
      if (leasing !== null) store.listen('howdah_leases', () => void round.run());
      round.start();
    },
    close: async (): Promise<void> => {
      await round.close();
      await work.close(CLOSE_GRACE_MS);
    },
  };
}

type Item = Readonly<{ id: string; serviceId: string }>;

/**
 * Does items of work one after the other in each server, and in servers beside each other: a slow
 * server delays no other one.
 *
 * @param most servers at the same time
 */
export function createServerWork<T extends Item>(
  most: number,
  work: (item: T) => Promise<void>,
  log: Pick<Log, 'warn'>,
) {
  /** For each server that is worked in, its items by id: those that wait, and those done. */
  const servers = new Map<string, Map<string, T>>();
  const running = new Set<Promise<void>>();
  let isClosing = false;

  const workIn = async (serviceId: string, items: Map<string, T>): Promise<void> => {
    try {
      // An item that is added meanwhile comes at the end.
      for (const item of items.values()) {
        if (isClosing) return;
        await work(item);
      }
    } finally {
      servers.delete(serviceId);
    }
  };
  const begin = (item: T): void => {
    const items = new Map([[item.id, item]]);
    servers.set(item.serviceId, items);
    const ended = workIn(item.serviceId, items)
      .catch((error: unknown) =>
        log.warn({ service: item.serviceId, err: error }, 'leased databases must wait'),
      )
      .finally(() => running.delete(ended));
    running.add(ended);
  };

  return {
    /**
     * Begins work, and does not wait for it. An item that is there already, or for whose server
     * there is no room, is left out: the caller adds it again.
     */
    add: (items: readonly T[]): void => {
      for (const item of items) {
        const others = servers.get(item.serviceId);
        if (others === undefined && servers.size < most && !isClosing) begin(item);
        else if (others?.has(item.id) === false) others.set(item.id, item);
      }
    },
    /** Begins no further item, and waits for those in progress. */
    close: async (graceMs: number): Promise<void> => {
      isClosing = true;
      await Promise.race([Promise.all(running), sleep(graceMs, undefined, { ref: false })]);
    },
  };
}

async function makeOrDrop(
  { store: { db }, leasing, log }: Context,
  { id, serviceId, ...made }: DueDatabase,
): Promise<void> {
  try {
    switch (await claimDueDatabase(db, id)) {
      case 'drop':
        await leasing.dropDatabase(serviceId, made);
        return await deleteLeasedDatabase(db, id);
      case 'make':
        await leasing.makeDatabase(serviceId, made);
        return await noteLeasedDatabase(db, id, null);
      case null:
        return;
    }
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error;
    log.info({ service: serviceId, lease: id, err: error }, 'a leased database must wait');
    await noteLeasedDatabase(db, id, error.message);
  }
}
