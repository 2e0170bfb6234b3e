/** The facts that leases need: the commits of their parents, and the memory of the machine. */
import { EngineUnavailable, type Leasing } from '../engine.ts';
import { NoAnswer } from '../postgres/sessions/monitor.ts';
import { MAINTENANCE_DATABASE } from '../postgres/roles.ts';
import {
  dropLeasedDatabase,
  makeLeasedDatabase,
  type InDatabase,
} from '../postgres/sessions/leased-databases.ts';
import { alterPassword } from '../postgres/sessions/password.ts';
import { memberKey } from './host/layout.ts';
import { measureMemory } from './host/machine.ts';
import type { Local } from './local.ts';
import { atPrimary } from './primary-session.ts';

/**
 * Each commit that changes data moves the end of the snapshot, or takes a transaction out of those
 * that were under way.
 */
const COMMITTED = 'select pg_current_snapshot()::text as committed';

/** A copy of a database that takes longer is begun again: longer than any that a test waits for. */
const COPY_WITHIN_MS = 3_600_000;

export function createLeasing(local: Pick<Local, 'machine' | 'topology'>): Leasing {
  const {
    machine: { layout },
    topology: { monitor },
  } = local;
  const sessionsIn =
    (id: string): InDatabase =>
    (database, work) =>
      atPrimary(local, id, work, { database, limitMs: COPY_WITHIN_MS });
  const ask = async (id: string, text: string): Promise<{ committed?: string }[]> => {
    try {
      return await monitor.query(memberKey(id, layout.primaryOf(id)), text);
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      throw new EngineUnavailable(error.message, { cause: error });
    }
  };
  return {
    committed: async (id) => {
      const [row] = await ask(id, COMMITTED);
      if (row?.committed === undefined) throw new EngineUnavailable('it answered without a row');
      return row.committed;
    },
    setUnusedPassword: async (id, verifier) => {
      await ask(id, alterPassword(verifier));
    },
    makeDatabase: (id, made) => makeLeasedDatabase(sessionsIn(id), MAINTENANCE_DATABASE, made),
    dropDatabase: (id, dropped) =>
      dropLeasedDatabase(sessionsIn(id), MAINTENANCE_DATABASE, dropped),
    memory: measureMemory,
  };
}
