/** Sessions of clients that got into a server before its rules changed, and would not now. */
import type { Monitored } from './monitor.ts';

const DISALLOWED_SESSIONS =
  'from pg_stat_activity where client_addr is not null and not (client_addr <<= any ($1::inet[]))';

/** @param allowedNetworks the networks whose clients may connect; null: all */
export async function countDisallowedSessions(
  monitor: Monitored,
  key: string,
  allowedNetworks: readonly string[] | null,
): Promise<number> {
  if (allowedNetworks === null || !monitor.isConnected(key) || monitor.silentMs(key) !== null)
    return 0;
  const [row] = await monitor
    .query<{ count: number }>(key, `select count(*)::int as count ${DISALLOWED_SESSIONS}`, [
      allowedNetworks,
    ])
    .catch(() => []);
  return row?.count ?? 0;
}

/** @returns how many were ended */
export async function endSessions(
  monitor: Monitored,
  key: string,
  allowedNetworks: readonly string[] | null,
): Promise<number> {
  const [row] = await monitor.query<{ count: number }>(
    key,
    `select count(pg_terminate_backend(pid))::int as count ${DISALLOWED_SESSIONS}`,
    [allowedNetworks],
  );
  return row?.count ?? 0;
}
