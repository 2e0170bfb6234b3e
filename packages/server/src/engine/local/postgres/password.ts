/** Sets the password of a service's admin role. */
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import type { InstancePaths } from '../host/layout.ts';
import { NoAnswer } from './monitor.ts';
import { ROLE_PARAMETER } from './read-only-sql.ts';
import { portOfServer } from './server.ts';
import { withSuperuserSession } from './superuser.ts';

/** The statement that sets the admin role's password. */
export function alterPassword(verifier: string): string {
  // We made the verifier: base64 and the punctuation of SCRAM. Nothing in it can leave the literal.
  if (!/^SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+$/.test(verifier))
    throw new Error('not a SCRAM verifier');
  return `alter role ${ADMIN_ROLE} password '${verifier}'`;
}

/**
 * Sets a password so that its owner can connect with it, and change what keeps them out: a database
 * whose connection limit is 0 refuses every role but a superuser, and a session that is read-only
 * cannot undo that. Only a session that may write could do either, so both are removed.
 *
 * Waits for the change as for any write: a failover does not lose it. If synchronous
 * replicas are missing it does not wait for long: no standby without it takes over until they are back.
 *
 * @throws NoAnswer when the server does not answer
 */
export async function setPassword(paths: InstancePaths, statement: string): Promise<void> {
  const port = portOfServer(paths) ?? 0;
  const where = {
    server: paths,
    port,
    name: 'howdah members',
    limitMs: PASSWORD_WAIT_MS,
    answerMs: PASSWORD_ANSWER_MS,
  };
  try {
    await withSuperuserSession(where, async (client) => {
      const { rows } = await client.query<{ pid: number; closed: boolean; read_only: boolean }>(
        `select pg_backend_pid() as pid,
           exists (select from pg_catalog.pg_database
             where datname = $1 and datconnlimit = 0) as closed,
           exists (select from pg_catalog.pg_db_role_setting, pg_catalog.unnest(setconfig) as text
             where pg_catalog.starts_with(text, $2)) as read_only`,
        [DATABASE_NAME, `${ROLE_PARAMETER}=`],
      );
      const open = [
        ...(rows[0]?.closed === true
          ? [`alter database ${DATABASE_NAME} connection limit -1`]
          : []),
        ...(rows[0]?.read_only === true ? RESET_READ_ONLY : []),
      ]
        .map((more) => `; ${more}`)
        .join('');
      // The time limit of a statement does not cover the wait of its commit. A session that cannot be
      // cancelled is closed.
      const cancel = (): void => {
        withSuperuserSession(where, (other) =>
          other.query('select pg_cancel_backend($1)', [rows[0]?.pid]),
        ).catch(() => client.connection.stream.destroy());
      };
      const timer = setTimeout(cancel, PASSWORD_WAIT_MS);
      await client
        .query(`set local synchronous_commit = on; ${statement}${open}`)
        .finally(() => clearTimeout(timer));
    });
  } catch (error) {
    throw new NoAnswer(error instanceof Error ? error.message : String(error), { cause: error });
  }
}
/** Short: the call that changes a password has the service locked, and its caller waits. */
const PASSWORD_WAIT_MS = 3000;
const PASSWORD_ANSWER_MS = 5000;

/** For the admin role and its database only: other roles may be read-only. */
const RESET_READ_ONLY = [
  `alter role ${ADMIN_ROLE} reset ${ROLE_PARAMETER}`,
  `alter role ${ADMIN_ROLE} in database ${DATABASE_NAME} reset ${ROLE_PARAMETER}`,
  `alter database ${DATABASE_NAME} reset ${ROLE_PARAMETER}`,
];
