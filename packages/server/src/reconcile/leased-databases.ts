/**
 * Makes and drops the databases that are leases, in the servers that they share: one after the
 * other in a server, and servers beside each other. Each step may be repeated.
 */
import { EngineUnavailable, type Leasing } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import type { Store } from '../store/database.ts';
import {
  deleteLeasedDatabase,
  listDueDatabases,
  noteLeasedDatabase,
  type DueDatabase,
} from '../store/leased-databases.ts';

type Context = Readonly<{ store: Store; leasing: Leasing; log: Log }>;

export function createLeasedDatabases(store: Store, region: Region, log: Log, rounds: Rounds) {
  const { leasing } = region.engine;
  const round = rounds.every(
    'leasedDatabases',
    async (closing) => {
      if (leasing === null) return;
      const due = await listDueDatabases(store.db, region.code);
      const servers = [...new Set(due.map(({ serviceId }) => serviceId))];
      await Promise.all(
        servers.map(async (id) => {
          for (const one of due.filter(({ serviceId }) => serviceId === id)) {
            if (closing.aborted) return;
            await makeOrDrop({ store, leasing, log }, one);
          }
        }),
      );
    },
    log,
  );
  return {
    start: (): void => {
      if (leasing !== null) store.listen('howdah_leases', () => void round.run());
      round.start();
    },
    close: round.close,
  };
}

async function makeOrDrop(
  { store: { db }, leasing, log }: Context,
  { id, serviceId, isOver, ...made }: DueDatabase,
): Promise<void> {
  try {
    if (isOver) {
      await leasing.dropDatabase(serviceId, made);
      await deleteLeasedDatabase(db, id);
    } else {
      await leasing.makeDatabase(serviceId, made);
      await noteLeasedDatabase(db, id, null);
    }
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error;
    log.info({ service: serviceId, lease: id, err: error }, 'a leased database must wait');
    await noteLeasedDatabase(db, id, error.message);
  }
}
