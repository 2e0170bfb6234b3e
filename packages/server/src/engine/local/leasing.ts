/** The facts that leases need: the commits of their parents, and the memory of the machine. */
import { DATABASE_NAME } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { EngineUnavailable, type Leasing } from '../engine.ts';
import type { Monitored } from '../postgres/sessions/monitor.ts';
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
 * that were under way. A reset, a restore, a failover or a crash may lose commits, and the same
 * numbers come again: each of them starts the checkpointer, a crash without the postmaster too.
 */
const COMMITTED = `select pg_current_snapshot()::text || ' ' || extract(epoch from backend_start)
    as committed
  from pg_stat_activity where backend_type = 'checkpointer'`;

const DATABASE_BYTES = 'select pg_database_size($1)::float8 as bytes';

/** A copy of a database that takes longer is begun again: longer than any that a test waits for. */
const COPY_WITHIN_MS = 3_600_000;

/**
 * Asks the server with a key.
 *
 * @throws EngineUnavailable for each error: a server that stops ends the session with one of
 *   PostgreSQL, and leases of other services go on
 */
export async function askServer(
  monitor: Pick<Monitored, 'query'>,
  key: string,
  text: string,
): Promise<{ committed?: string | null }[]> {
  try {
    return await monitor.query(key, text);
  } catch (error) {
    const reason = messageOf(error);
    throw new EngineUnavailable(reason, { cause: error });
  }
}

export function createLeasing(local: Pick<Local, 'machine' | 'topology'>): Leasing {
  const {
    machine: { layout },
    topology: { monitor },
  } = local;
  const sessionsIn =
    (id: string): InDatabase =>
    (database, work) =>
      atPrimary(local, id, work, { database, limitMs: COPY_WITHIN_MS });
  const ask = (id: string, text: string) =>
    askServer(monitor, memberKey(id, layout.primaryOf(id)), text);
  return {
    committed: async (id) => {
      const [row] = await ask(id, COMMITTED);
      if (row?.committed == null) throw new EngineUnavailable('it answered without a row');
      return row.committed;
    },
    setUnusedPassword: async (id, verifier) => {
      await ask(id, alterPassword(verifier));
    },
    databaseBytes: (id) =>
      atPrimary(local, id, async (client) => {
        const { rows } = await client.query<{ bytes: number }>(DATABASE_BYTES, [DATABASE_NAME]);
        return rows[0]?.bytes ?? 0;
      }),
    makeDatabase: (id, made) => makeLeasedDatabase(sessionsIn(id), MAINTENANCE_DATABASE, made),
    dropDatabase: (id, dropped) =>
      dropLeasedDatabase(sessionsIn(id), MAINTENANCE_DATABASE, dropped),
    memory: measureMemory,
  };
}
