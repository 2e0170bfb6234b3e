/** The configuration of PgBouncer in front of one server, as a pure function. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { DATABASE_NAME, TRANSACTION_POOL_NAME } from '@howdah/contract';
import type { InstancePaths } from '../host/layout.ts';
import { READER_ROLE } from '../../statements/reader-role.ts';
import { CONTROL_ROLE, POOLER_ROLE } from '../postgres/files.ts';
import { VERIFIER_FUNCTION } from './pooler-role.ts';

export type PoolerInput = {
  /**
   * The paths of the service: they hold the pooler's files and directory, whichever member it
   * connects to.
   */
  paths: InstancePaths;
  /** The version of PgBouncer. */
  version: string;
  listen: { address: string; port: number };
  /** The networks whose clients may connect; null: all. */
  allowedNetworks: readonly string[] | null;
  /** The server that it connects to. */
  server: { paths: InstancePaths; port: number; maxConnections: number };
  /** The certificate that clients are shown, in PEM; the server's. */
  certificatePem: string;
};

/**
 * Connections that are left to the control plane, to maintenance and to clients that do not use the
 * pooler.
 */
const NOT_POOLED = 17;
const CLIENTS_PER_SERVER_CONNECTION = 20;

/** How many connections a pooler makes to its server, by pool, and how many clients it accepts. */
export function poolLimits(maxConnections: number): {
  session: number;
  transaction: number;
  clients: number;
} {
  const pooled = maxConnections - NOT_POOLED;
  // PgBouncer knows a limit for each of its databases and none for both.
  const transaction = Math.ceil(pooled / 2);
  return {
    session: pooled - transaction,
    transaction,
    clients: pooled * CLIENTS_PER_SERVER_CONNECTION,
  };
}

/** The first version that supports prepared statements in transaction mode. */
const PREPARED_STATEMENTS_SINCE = [1, 21] as const;
const PREPARED_STATEMENTS = 200;

/**
 * pgbouncer.ini. Its text changes with the certificate and the allowed networks, so that a change
 * is noticed.
 */
export function poolerConf({
  paths,
  version,
  listen,
  allowedNetworks,
  server,
  certificatePem,
}: PoolerInput): string {
  const { session, transaction, clients } = poolLimits(server.maxConnections);
  const database = (mode: string, limit: number) =>
    `host='${server.paths.socket.replaceAll("'", "''")}' port=${server.port} dbname=${DATABASE_NAME} pool_mode=${mode} pool_size=${limit} max_db_connections=${limit}`;
  const settings: Record<string, string | number> = {
    listen_addr: listen.address,
    listen_port: listen.port,
    unix_socket_dir: paths.pooler.root,
    unix_socket_mode: '0700',
    auth_type: 'hba',
    auth_hba_file: join(paths.config, HBA_FILE),
    auth_file: join(paths.config, USERS_FILE),
    auth_user: POOLER_ROLE,
    auth_query: `select role, verifier from ${VERIFIER_FUNCTION}($1)`,
    admin_users: CONTROL_ROLE,
    max_client_conn: clients,
    client_tls_sslmode: 'require',
    client_tls_cert_file: join(server.paths.config, 'server.crt'),
    client_tls_key_file: join(server.paths.config, 'server.key'),
    client_tls_protocols: 'secure',
    client_login_timeout: 15,
    // A server that was restarted is tried again at once, rather than after 15 s.
    server_login_retry: 0.2,
    // JDBC sends it, and PgBouncer would refuse what it does not know.
    ignore_startup_parameters: 'extra_float_digits',
    ...(isAtLeast(version, PREPARED_STATEMENTS_SINCE)
      ? { max_prepared_statements: PREPARED_STATEMENTS }
      : {}),
    log_connections: 0,
    log_disconnections: 0,
    log_stats: 0,
  };
  return [
    '; Written by Howdah from the size of the service; changes are overwritten.',
    `; For the certificate with the SHA-256 ${createHash('sha256').update(certificatePem).digest('hex')}.`,
    ...(allowedNetworks === null ? [] : [`; For clients of ${allowedNetworks.join(', ')}.`]),
    '[databases]',
    `${DATABASE_NAME} = ${database('session', session)}`,
    `${TRANSACTION_POOL_NAME} = ${database('transaction', transaction)}`,
    '[pgbouncer]',
    ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
    '',
  ].join('\n');
}

export const CONF_FILE = 'pgbouncer.ini';
export const HBA_FILE = 'pgbouncer.hba';
export const USERS_FILE = 'pgbouncer.users';

// The permissions of its socket's directory protect the console, as they protect the server's
// socket. Our roles are rejected over TCP: the server would trust them.
export const accessFiles = (allowedNetworks: readonly string[]): Record<string, string> => ({
  [HBA_FILE]: `# Written by Howdah; changes are overwritten.
# type    database  user  address  method
local     pgbouncer  ${CONTROL_ROLE}  trust
local     all        all              reject
host      all        ${CONTROL_ROLE},${POOLER_ROLE},${READER_ROLE}  0.0.0.0/0  reject
host      all        ${CONTROL_ROLE},${POOLER_ROLE},${READER_ROLE}  ::/0       reject
${allowedNetworks.map((network) => `hostssl   ${DATABASE_NAME},${TRANSACTION_POOL_NAME}  all  ${network}  scram-sha-256\n`).join('')}`,
  [USERS_FILE]: `"${CONTROL_ROLE}" ""\n`,
});

function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const found = /(\d+)\.(\d+)/.exec(version);
  const [foundMajor, foundMinor] = [Number(found?.[1]), Number(found?.[2])];
  return foundMajor > major || (foundMajor === major && foundMinor >= minor);
}
