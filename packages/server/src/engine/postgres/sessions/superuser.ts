/**
 * The one way to open a session as superuser in a server whose databases belong to a tenant.
 *
 * The owner of a database can create objects with the names of PostgreSQL's own, put a schema
 * before `pg_catalog` in the search path, and set most parameters for all sessions. A parameter in
 * the startup packet takes precedence over ALTER DATABASE and ALTER ROLE, so each parameter that
 * changes what our SQL means, or when it ends, is set there (`startup-options.ts`). A unit test
 * finds clients of PostgreSQL that are made elsewhere
 * (docs/decisions/0026-sessions-in-tenants-servers.md).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type ClientConfig } from 'pg';
import { CONTROL_ROLE, MAINTENANCE_DATABASE } from '../roles.ts';
import { startupOptions } from '../../startup-options.ts';
import type { SocketPlace } from '../server-files.ts';
import { untrustedSocket } from '../../../lib/untrusted-socket.ts';

/**
 * How long a server may take to accept a session, and how long it may keep a client waiting after a
 * statement's own time limit. As long as a server may be silent before it is killed: the step that
 * waits here keeps the round from killing it (KILL_AFTER_MS in `decide.ts`).
 */
export const ANSWER_DEADLINE_MS = 20_000;
/** The time limit of a statement whose caller sets none. */
const STATEMENT_LIMIT_MS = 5000;
/** How long a session may take to end in order, which is too long only for a server that hangs. */
const CLOSE_DEADLINE_MS = 20_000;

export type Where = {
  server: SocketPlace;
  port: number;
  /** For `application_name`. */
  name: string;
  /** {@link MAINTENANCE_DATABASE} unless the work needs the tenant's. */
  database?: string;
  /** The time limit of one statement; {@link STATEMENT_LIMIT_MS} by default. */
  limitMs?: number;
  /** How long the server may take to answer beside that; {@link ANSWER_DEADLINE_MS} by default. */
  answerMs?: number;
  readOnly?: boolean;
};

/**
 * How the monitor connects: to the maintenance database. Its statements have no time limit in the
 * server: a server that a signal had stopped would cancel them when it continues. The monitor has
 * its own limit, and waits for no locks.
 */
export function monitorConfig(server: SocketPlace, port: number): ClientConfig {
  return {
    ...whereOf({ server, port, name: 'howdah' }, CONTROL_ROLE),
    connectionTimeoutMillis: 0,
    options: startupOptions({ limitMs: 0, major: null, superuser: true }),
  };
}

function whereOf(
  { server, port, name, database = MAINTENANCE_DATABASE, answerMs = ANSWER_DEADLINE_MS }: Where,
  user: string,
): ClientConfig {
  return {
    host: server.socket,
    stream: untrustedSocket,
    port,
    user,
    database,
    application_name: name,
    connectionTimeoutMillis: answerMs,
  };
}

/** Opens a session as superuser. To be closed by {@link closeSession}. */
export function openSuperuserSession(where: Where): Promise<Client> {
  return open(where, CONTROL_ROLE, true);
}

/**
 * Opens a session as superuser for some work. Every statement, and the end of the session, have a
 * deadline.
 */
export function withSuperuserSession<T>(
  where: Where,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  return using(openSuperuserSession(where), use);
}

/**
 * The same as a role that is no superuser and comes in by the socket: for what evaluates
 * expressions that tenants wrote.
 */
export function withSessionAs<T>(
  role: string,
  where: Where,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  return using(open(where, role, false), use);
}

/** Ends a session in order. */
export async function closeSession(client: Client): Promise<void> {
  await Promise.race([
    client.end().catch(() => undefined),
    sleep(CLOSE_DEADLINE_MS, undefined, { ref: false }),
  ]);
  client.connection.stream.destroy();
}

async function using<T>(opening: Promise<Client>, use: (client: Client) => Promise<T>): Promise<T> {
  const client = await opening;
  try {
    return await use(client);
  } finally {
    await closeSession(client);
  }
}

async function open(where: Where, role: string, superuser: boolean): Promise<Client> {
  const { limitMs = STATEMENT_LIMIT_MS, answerMs = ANSWER_DEADLINE_MS } = where;
  // In the maintenance database only we can set parameters.
  const major =
    (where.database ?? MAINTENANCE_DATABASE) === MAINTENANCE_DATABASE ? null : await majorOf(where);
  return connect({
    ...whereOf(where, role),
    options: startupOptions({ limitMs, readOnly: where.readOnly === true, major, superuser }),
    // A time limit of the client: a server that a signal has stopped cancels no statement.
    query_timeout: limitMs + answerMs,
  });
}

/** The major version of a server; asked where no setting of a tenant holds. */
function majorOf({ server, port, name, answerMs }: Where): Promise<number> {
  const where = { server, port, name, ...(answerMs === undefined ? {} : { answerMs }) };
  return withSuperuserSession(where, async (client) => {
    const { rows } = await client.query<{ version: number }>(
      "select current_setting('server_version_num')::int as version",
    );
    return Math.floor((rows[0]?.version ?? 0) / 10_000);
  });
}

async function connect(config: ClientConfig): Promise<Client> {
  const client = new Client(config);
  client.on('error', () => undefined); // the statement under way fails
  try {
    await client.connect();
  } catch (error) {
    client.connection.stream.destroy();
    if (error instanceof Error && error.message === PG_CONNECT_TIMEOUT)
      throw new Error(
        `PostgreSQL opened no session within ${(config.connectionTimeoutMillis ?? 0) / 1000} s`,
        { cause: error },
      );
    throw error;
  }
  return client;
}
/**
 * The message of pg's error for connectionTimeoutMillis, which says nothing of what was waited for.
 */
const PG_CONNECT_TIMEOUT = 'timeout expired';
