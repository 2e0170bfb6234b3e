/**
 * The databases of services whose PgBouncer must know them: an old one asks each database for
 * verifiers, and keeps clients of a database that does not exist waiting.
 */
import { DATABASE_NAME, TRANSACTION_POOL_NAME } from '@howdah/contract';
import type { Rounds } from '../../../lib/rounds.ts';
import type { Monitor } from '../postgres/monitor.ts';

/** Names that a key of pgbouncer.ini may have, but for those of our pools and of the console. */
const NAMES = `
  select datname::text as name from pg_database
  where datallowconn and not datistemplate and datname ~ '^[A-Za-z0-9_.-]+$'
    and datname not in ('${DATABASE_NAME}', '${TRANSACTION_POOL_NAME}', 'pgbouncer')
  order by oid limit 200`;

export type PoolerDatabases = ReturnType<typeof createPoolerDatabases>;

/** @param changed called with the id of a service that has other databases than before */
export function createPoolerDatabases(
  monitor: Monitor,
  rounds: Rounds,
  changed: (id: string) => void,
) {
  const known = new Map<string, { key: string; names: readonly string[] }>();

  const read = async (key: string): Promise<readonly string[] | null> => {
    try {
      return (await monitor.query<{ name: string }>(key, NAMES)).map(({ name }) => name);
    } catch {
      return null; // it does not run: its databases are as before
    }
  };

  const round = rounds.every('poolerDatabases', async () => {
    for (const [id, { key, names }] of known) {
      const now = await read(key);
      if (now !== null && now.join() !== names.join()) changed(id);
    }
  });
  round.startLater();

  return {
    /** The databases of a service beside its first one. @param key of a server of it */
    of: async (id: string, key: string): Promise<readonly string[]> => {
      const names = (await read(key)) ?? known.get(id)?.names ?? [];
      known.set(id, { key, names });
      return names;
    },
    forget: (id: string): void => void known.delete(id),
    close: (): void => void round.close(),
  };
}
