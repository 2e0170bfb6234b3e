/**
 * Ends the sessions of the admin role that began with a password before. PostgreSQL compares a
 * password at the login only, so a session outlives it, and could set another one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ADMIN_ROLE } from '@howdah/contract';
import type { Client } from 'pg';
import { withSuperuserSession, type Where } from './superuser.ts';

/** A session that runs a function in C may take longer; it is ended as soon as that returns. */
const END_WITHIN_MS = 3000;
const POLL_MS = 20;

/** All kinds of sessions: those that stream WAL too. */
const END_SESSIONS = `
  select count(pg_terminate_backend(pid))::int as count from pg_stat_activity
  where usesysid = (select oid from pg_roles where rolname = $1) and backend_start <= $2`;

/** The sessions of the admin role in one server that runs. */
export type AdminSessions = {
  /** Where it gets sessions of ours, at this moment. */
  readonly where: () => Where;
  /** Ends logins that have begun, which no view of PostgreSQL shows. @returns how many */
  readonly endLogins: () => Promise<number>;
};

/**
 * Ends the sessions of the admin role that exist now, and logins that have begun: those compare
 * with the password of before, and PostgreSQL lets a client take a minute for its answer.
 */
export async function endSessionsOfAdmin(
  client: Pick<Client, 'query'>,
  endLogins: AdminSessions['endLogins'],
): Promise<void> {
  const { rows } = await client.query<{ now: string }>('select clock_timestamp()::text as now');
  const endMs = Date.now() + END_WITHIN_MS;
  for (;;) {
    // In this order: a login that ends meanwhile is a session.
    const logins = await endLogins();
    const ended = await client.query<{ count: number }>(END_SESSIONS, [ADMIN_ROLE, rows[0]?.now]);
    if (logins + (ended.rows[0]?.count ?? 0) === 0 || Date.now() > endMs) return;
    await sleep(POLL_MS);
  }
}

/** A standby accepts the password of before until it has replayed the new one. */
const REPLAYED = 'select pg_last_wal_replay_lsn() >= $1::pg_lsn as replayed';
/** A server that was away for longer has had its sessions ended by that. */
const GIVE_UP_AFTER_MS = 600_000;
const AGAIN_AFTER_MS = 500;

/**
 * The same in a standby, once it has the WAL up to a position; a server that does not answer is
 * asked again.
 */
export async function endSessionsOfAdminInStandby(
  server: AdminSessions,
  position: string,
): Promise<void> {
  const endMs = Date.now() + GIVE_UP_AFTER_MS;
  while (Date.now() < endMs) {
    const isDone = await endReplayed(server, position).catch(() => false);
    if (isDone) return;
    await sleep(AGAIN_AFTER_MS, undefined, { ref: false });
  }
}

async function endReplayed(
  { where, endLogins }: AdminSessions,
  position: string,
): Promise<boolean> {
  return withSuperuserSession(where(), async (client) => {
    for (let asked = 0; asked < MAX_ASKED; asked++) {
      const { rows } = await client.query<{ replayed: boolean | null }>(REPLAYED, [position]);
      // null: it is a primary by now.
      const isReplayed = rows[0]?.replayed !== false;
      // A session of a tenant may hold the replay up.
      await endSessionsOfAdmin(client, endLogins);
      if (isReplayed) return true;
      await sleep(POLL_MS);
    }
    return false;
  });
}
/** How often one session asks. */
const MAX_ASKED = 50;
