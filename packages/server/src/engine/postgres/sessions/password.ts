/** Sets the password of a service's admin role. */
import { setTimeout as sleep } from 'node:timers/promises';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import type { Client } from 'pg';
import { NoAnswer } from './monitor.ts';
import { endSessionsOfAdmin, type AdminSessions } from './older-sessions.ts';
import { ROLE_PARAMETER } from '../contents/login-guard.ts';
import { closeSession, openSuperuserSession, withSuperuserSession } from './superuser.ts';

/** The statement that sets the admin role's password. */
export function alterPassword(verifier: string): string {
  // We made the verifier: base64 and the punctuation of SCRAM. Nothing in it can leave the literal.
  if (!/^SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+$/.test(verifier))
    throw new Error('not a SCRAM verifier');
  return `alter role ${ADMIN_ROLE} password '${verifier}'`;
}

/** The statement that leaves the admin role without a password: nobody can log in as it. */
export const REMOVE_PASSWORD = `alter role ${ADMIN_ROLE} password null`;

/**
 * The statement that sets the password so that its owner can connect with it: it also changes what
 * a session with the password of before may have set to keep them out. A read-only session could
 * not undo that, and a database that is closed lets nobody in. Only a session that may write could
 * do any of it, so nothing is lost by its end.
 */
export const openByPassword = (verifier: string): string => `do $howdah$
  begin
    ${alterPassword(verifier)};
    if exists (select from pg_database where datname = '${DATABASE_NAME}' and datconnlimit = 0) then
      alter database ${DATABASE_NAME} connection limit -1;
    end if;
    if exists (select from pg_database where datname = '${DATABASE_NAME}' and not datallowconn) then
      alter database ${DATABASE_NAME} allow_connections true;
    end if;
    if exists (select from pg_database where datname = '${DATABASE_NAME}'
        and not has_database_privilege('${ADMIN_ROLE}', oid, 'connect')) then
      grant connect on database ${DATABASE_NAME} to ${ADMIN_ROLE};
    end if;
    if exists (select from pg_db_role_setting, unnest(setconfig) as text
        where starts_with(text, '${ROLE_PARAMETER}=')) then
      alter role ${ADMIN_ROLE} reset ${ROLE_PARAMETER};
      if exists (select from pg_database where datname = '${DATABASE_NAME}') then
        alter role ${ADMIN_ROLE} in database ${DATABASE_NAME} reset ${ROLE_PARAMETER};
        alter database ${DATABASE_NAME} reset ${ROLE_PARAMETER};
      end if;
    end if;
  end $howdah$`;

/** Short: the call that changes a password has the service locked, and its caller waits. */
const SET_WITHIN_MS = 4000;
const POLL_MS = 20;

/**
 * Sets the password in a running server. Sessions that hold locks which are in the way are ended:
 * a holder of the former password could keep its owner from setting another one.
 *
 * Waits for the change as for any write: a failover does not lose it. If synchronous replicas are
 * missing it does not wait for long: no standby without it takes over until they are back.
 *
 * @param keepSessions whether sessions that are in no way stay
 * @returns the position in the WAL that a standby has to reach
 * @throws NoAnswer when the server does not answer
 */
export async function setPassword(
  server: AdminSessions,
  verifier: string,
  keepSessions: boolean,
): Promise<string> {
  const endMs = Date.now() + SET_WITHIN_MS;
  try {
    return await withSuperuserSession(server.where(), async (helper) => {
      for (;;) {
        try {
          await attempt({ server, helper, verifier, keepSessions, endMs });
        } catch (error) {
          // Somebody else has changed the role at the same moment, or has not been ended yet.
          if (Date.now() > endMs) throw error;
          await sleep(POLL_MS);
          continue;
        }
        // A session that began right before the commit could have set another one after it.
        if (!keepSessions) await endSessionsOfAdmin(helper, server.endLogins);
        const { rows } = await helper.query<{ position: string; is_set: boolean }>(
          `select pg_current_wal_lsn()::text as position, exists (select from pg_authid
             where rolname = '${ADMIN_ROLE}' and rolpassword = $1) as is_set`,
          [verifier],
        );
        if (keepSessions || rows[0]?.is_set === true) return rows[0]?.position ?? '0/0';
        if (Date.now() > endMs) throw new Error('other sessions change the password all the time');
      }
    });
  } catch (error) {
    throw new NoAnswer(messageOf(error), { cause: error });
  }
}

type Attempt = Readonly<{
  server: AdminSessions;
  /** A session beside the one that sets the password. */
  helper: Client;
  verifier: string;
  keepSessions: boolean;
  endMs: number;
}>;

async function attempt({ server, helper, verifier, keepSessions, endMs }: Attempt): Promise<void> {
  const session = await openSuperuserSession(server.where());
  let isDone = false;
  try {
    const { rows } = await session.query<{ pid: number }>('select pg_backend_pid() as pid');
    const pid = rows[0]?.pid ?? 0;
    // The time limit of a statement does not cover the wait of its commit. A session that cannot be
    // cancelled is closed.
    const cancel = setTimeout(
      () =>
        void helper
          .query('select pg_cancel_backend($1)', [pid])
          .catch(() => session.connection.stream.destroy()),
      Math.max(endMs - Date.now(), 0),
    );
    const work = async (): Promise<void> => {
      await session.query('begin; set local synchronous_commit = on');
      // Nobody can change a role from here on; logins go on.
      await session.query('lock table pg_authid in share row exclusive mode');
      await session.query(openByPassword(verifier));
      if (!keepSessions) await endSessionsOfAdmin(helper, server.endLogins);
      await session.query('commit');
    };
    const working = work().finally(() => {
      isDone = true;
      clearTimeout(cancel);
    });
    await Promise.all([working, endBlockers(helper, pid, () => isDone)]);
  } finally {
    await closeSession(session);
  }
}

/** Sessions of tenants that a session of ours waits for. Background processes are waited for. */
const END_BLOCKERS = `
  select pg_terminate_backend(pid) from pg_stat_activity left join pg_roles r on r.oid = usesysid
  where pid = any (pg_blocking_pids($1)) and usesysid is not null and r.rolsuper is not true`;

async function endBlockers(helper: Client, pid: number, isDone: () => boolean): Promise<void> {
  while (!isDone()) {
    await helper.query(END_BLOCKERS, [pid]);
    await sleep(POLL_MS);
  }
}
