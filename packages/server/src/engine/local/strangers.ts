/** Sessions of clients that got into a server before its rules changed, and would not now. */
import type { Monitor } from './monitor.ts';

const STRANGERS = 'from pg_stat_activity where client_addr is not null and not (client_addr <<= any ($1::inet[]))';

/** @param admitted the networks that are let in; null: all */
export async function countStrangers(monitor: Monitor, key: string, admitted: readonly string[] | null): Promise<number> {
  if (admitted === null || !monitor.isConnected(key) || monitor.silentMs(key) !== null) return 0;
  const [row] = await monitor.query<{ count: number }>(key, `select count(*)::int as count ${STRANGERS}`, [admitted]).catch(() => []);
  return row?.count ?? 0;
}

/** @returns how many were ended */
export async function endSessions(monitor: Monitor, key: string, admitted: readonly string[] | null): Promise<number> {
  const [row] = await monitor.query<{ count: number }>(key, `select count(pg_terminate_backend(pid))::int as count ${STRANGERS}`, [
    admitted,
  ]);
  return row?.count ?? 0;
}
