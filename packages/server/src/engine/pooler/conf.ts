/** The configuration of PgBouncer in front of one server, as pure functions. */
import { createHash } from 'node:crypto';
import { DATABASE_NAME, TRANSACTION_POOL_NAME } from '@howdah/contract';
import { POOLER_ROLE, VERIFIER_FUNCTION } from './lookup.ts';

export type PoolerInput = {
  /** The version of PgBouncer. */
  version: string;
  listen: { address: string; port: number };
  /** Where its console is, in a directory that only its user may enter; null: it has none. */
  console: { directory: string; role: string } | null;
  /** The paths of what it reads beside its configuration. */
  files: { hba: string; users: string; certificate: string; key: string };
  /** The networks whose clients may connect; null: all. */
  allowedNetworks: readonly string[] | null;
  /** The databases beside that of the service; null: all, which takes a version that can. */
  databases: readonly string[] | null;
  /** The server that it connects to. */
  server: {
    /** A name, or the directory of its Unix socket. */
    host: string;
    port: number;
    /** The major version of PostgreSQL. */
    major: number;
    maxConnections: number;
    /** The path of the certificate that the server's is verified by; null: no TLS is needed. */
    authority: string | null;
    /** The paths of the certificate that the server wants, and of its key; null: it wants none. */
    client: { certificate: string; key: string } | null;
  };
  /** The certificate that clients are shown, in PEM; null: a change of it is noticed otherwise. */
  certificatePem: string | null;
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
  /** For each other database. */
  other: number;
  /** For one role, in all databases. */
  role: number;
  clients: number;
} {
  const pooled = maxConnections - NOT_POOLED;
  // PgBouncer knows a limit for each of its databases and none for all.
  const transaction = Math.ceil(pooled / 2);
  return {
    session: pooled - transaction,
    transaction,
    other: Math.ceil(pooled / 4),
    role: pooled,
    clients: pooled * CLIENTS_PER_SERVER_CONNECTION,
  };
}

/** The first version that asks one database for the verifiers of all. */
const ONE_LOOKUP_SINCE = [1, 19] as const;
/** Whether each database needs the function that gives verifiers. */
export const asksEachDatabase = (version: string): boolean => !isAtLeast(version, ONE_LOOKUP_SINCE);

/** The first version that takes `options`, of parameters that it keeps for each client. */
const OPTIONS_SINCE = [1, 20] as const;
/**
 * Parameters that PostgreSQL reports to clients, beside those that PgBouncer keeps anyway. Others
 * it refuses: it would not know when a connection still has them of the client before.
 */
const KEPT_PARAMETERS = ['IntervalStyle', 'default_transaction_read_only'] as const;
/** The first major version of PostgreSQL that reports search_path. */
const SEARCH_PATH_SINCE = 18;

/** The first version that supports prepared statements in transaction mode. */
const PREPARED_STATEMENTS_SINCE = [1, 21] as const;
const PREPARED_STATEMENTS = 200;

/**
 * pgbouncer.ini. Its text changes with the certificate and the allowed networks, so that a change
 * is noticed.
 */
export function poolerConf(input: PoolerInput): string {
  const { version, listen, console, files, allowedNetworks, databases, server } = input;
  const { certificatePem } = input;
  const { session, transaction, other, role, clients } = poolLimits(server.maxConnections);
  const database = (name: string | null, mode: string, limit: number) =>
    `host='${server.host.replaceAll("'", "''")}' port=${server.port} ` +
    (name === null ? '' : `dbname=${name} `) +
    `pool_mode=${mode} pool_size=${limit} max_db_connections=${limit}`;
  const settings: Record<string, string | number> = {
    listen_addr: listen.address,
    listen_port: listen.port,
    unix_socket_dir: console?.directory ?? '',
    ...(console === null ? {} : { unix_socket_mode: '0700' }),
    auth_type: 'hba',
    auth_hba_file: files.hba,
    auth_file: files.users,
    auth_user: POOLER_ROLE,
    ...lookupSettings(version),
    max_user_connections: role,
    // Anybody can name a database, before a password is asked for.
    autodb_idle_timeout: 60,
    ...(console === null ? {} : { admin_users: console.role }),
    max_client_conn: clients,
    client_tls_sslmode: 'require',
    client_tls_cert_file: files.certificate,
    client_tls_key_file: files.key,
    client_tls_protocols: 'secure',
    client_login_timeout: 15,
    ...serverSettings(server),
    // A server that was restarted is tried again at once, rather than after 15 s.
    server_login_retry: 0.2,
    // JDBC sends it, and PgBouncer would refuse what it does not know.
    ignore_startup_parameters: 'extra_float_digits',
    ...(isAtLeast(version, PREPARED_STATEMENTS_SINCE)
      ? { max_prepared_statements: PREPARED_STATEMENTS }
      : {}),
    ...(isAtLeast(version, OPTIONS_SINCE)
      ? {
          track_extra_parameters: [
            ...KEPT_PARAMETERS,
            ...(server.major >= SEARCH_PATH_SINCE ? ['search_path'] : []),
          ].join(', '),
        }
      : {}),
    log_connections: 0,
    log_disconnections: 0,
    log_stats: 0,
  };
  return [
    '; Written by Howdah from the size of the service; changes are overwritten.',
    ...(certificatePem === null
      ? []
      : [
          '; For the certificate with the SHA-256 ' +
            `${createHash('sha256').update(certificatePem).digest('hex')}.`,
        ]),
    ...(allowedNetworks === null ? [] : [`; For clients of ${allowedNetworks.join(', ')}.`]),
    '[databases]',
    `${DATABASE_NAME} = ${database(DATABASE_NAME, 'session', session)}`,
    `${TRANSACTION_POOL_NAME} = ${database(DATABASE_NAME, 'transaction', transaction)}`,
    ...(databases ?? ['*']).map(
      (name) => `${name} = ${database(name === '*' ? null : name, 'session', other)}`,
    ),
    '[pgbouncer]',
    ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`.trimEnd()),
    '',
  ].join('\n');
}

/**
 * How PgBouncer asks for a verifier. Where it asks in the database that the client named, it does
 * so only for roles that may connect there.
 */
const lookupSettings = (version: string): Record<string, string> =>
  asksEachDatabase(version)
    ? {
        auth_query:
          `select role, verifier from ${VERIFIER_FUNCTION}($1) where pg_catalog.` +
          `has_database_privilege(role::pg_catalog.name, pg_catalog.current_database(), 'connect')`,
      }
    : {
        auth_query: `select role, verifier from ${VERIFIER_FUNCTION}($1)`,
        auth_dbname: DATABASE_NAME,
      };

/**
 * TLS to a server elsewhere. That may be gone without a word: its connections end after 15 s then.
 * PgBouncer wants authorities for clients too, which an image may not have, and needs no
 * certificate of a client.
 */
const serverSettings = ({
  authority,
  client,
}: PoolerInput['server']): Record<string, string | number> =>
  authority === null
    ? {}
    : {
        server_tls_sslmode: 'verify-full',
        server_tls_ca_file: authority,
        ...(client === null
          ? {}
          : { server_tls_cert_file: client.certificate, server_tls_key_file: client.key }),
        client_tls_ca_file: authority,
        tcp_keepidle: 5,
        tcp_keepintvl: 5,
        tcp_keepcnt: 2,
        tcp_user_timeout: 15_000,
      };

/** Templates, as in the server; and PgBouncer's own console. */
const CLOSED_DATABASES = 'template0,template1,pgbouncer';

/**
 * The rules for clients over TCP: all roles by SCRAM and TLS, but for ours.
 *
 * @param ours roles that no client may use
 */
export const hostRules = (ours: readonly string[], networks: readonly string[]): string =>
  ['0.0.0.0/0', '::/0']
    .flatMap((all) => [
      `host      all  ${ours.join(',')}  ${all}  reject\n`,
      `host      ${CLOSED_DATABASES}  all  ${all}  reject\n`,
    ])
    .concat(networks.map((network) => `hostssl   all  all  ${network}  scram-sha-256\n`))
    .join('');

function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const found = /(\d+)\.(\d+)/.exec(version);
  const [foundMajor, foundMinor] = [Number(found?.[1]), Number(found?.[2])];
  return foundMajor > major || (foundMajor === major && foundMinor >= minor);
}
