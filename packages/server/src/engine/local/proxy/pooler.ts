/**
 * PgBouncer in front of one server: its configuration as a pure function, and the hands that start, reload, hold and stop it.
 *
 * Clients speak TLS to it and log in with SCRAM; it speaks to the server over the Unix socket, as the role that the client is, with
 * the keys of the client's own login. It knows no password: it asks a function in the server for the verifier of a role
 * (docs/decisions/0011-pooler.md).
 */
import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { DATABASE_NAME, TRANSACTION_POOL_NAME } from '@howdah/contract';
import {
  createDaemonWatch,
  findDaemon,
  launchDaemon,
  removeDaemon,
  PROGRAMS,
  replaceConfig,
  stopDaemon,
  whyDaemonEnded,
  type Program,
} from '../host/daemon.ts';
import { isAllowed, runsInNetworkOf, type Listener } from '../network/listener.ts';
import { CONTROL_ROLE, POOLER_ROLE, READER_ROLE } from '../postgres/files.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine, Owner } from '../host/machine.ts';
import { findProcess, readOrNull } from '../../../lib/processes.ts';
import { rm } from '../host/root-files.ts';
import { run, RunError } from '../../../lib/run.ts';
import { writeConfig } from '../postgres/server.ts';
import { serviceSocket } from '../host/service-socket.ts';
import { ownerOf } from '../host/users.ts';
import { withSuperuserSession } from '../postgres/superuser.ts';
import { parseLsn } from '../postgres/wal.ts';

// ── configuration ────────────────────────────────────────────────────────────────────────────────────────────────

export type PoolerInput = {
  /** The paths of the service: they hold the pooler's files and directory, whichever member it connects to. */
  paths: InstancePaths;
  /** Of PgBouncer. */
  version: string;
  listen: { address: string; port: number };
  /** The networks whose clients it lets in; null: all. */
  allowedNetworks: readonly string[] | null;
  /** Of the server that it stands before. */
  server: { paths: InstancePaths; port: number; maxConnections: number };
  /** The certificate that clients are shown, in PEM; the server's. */
  certificatePem: string;
};

/** Connections that are left to the control plane, to maintenance and to clients that go past the pooler. */
const NOT_POOLED = 17;
const CLIENTS_PER_SERVER_CONNECTION = 20;

/** How many connections a pooler makes to its server, by pool, and how many clients it takes. */
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

/** The first version that carries prepared statements over in transaction mode. */
const PREPARED_STATEMENTS_SINCE = [1, 21] as const;
const PREPARED_STATEMENTS = 200;

/** pgbouncer.ini. That of another certificate, or for other clients, is another text, so that the new one is taken up. */
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

const CONF_FILE = 'pgbouncer.ini';
const HBA_FILE = 'pgbouncer.hba';
const USERS_FILE = 'pgbouncer.users';

// The permissions of its socket's directory protect the console, as they protect the server's socket. Our roles do not come
// in over TCP, whatever they bring: the server would take them for ours.
const ourFiles = (allowedNetworks: readonly string[]): Record<string, string> => ({
  [HBA_FILE]: `# Written by Howdah; changes are overwritten.
# type    database  user  address  method
local     pgbouncer  ${CONTROL_ROLE}  trust
local     all        all              reject
host      all        ${CONTROL_ROLE},${POOLER_ROLE},${READER_ROLE}  0.0.0.0/0  reject
host      all        ${CONTROL_ROLE},${POOLER_ROLE},${READER_ROLE}  ::/0       reject
${allowedNetworks.map((network) => `hostssl   ${DATABASE_NAME},${TRANSACTION_POOL_NAME}  all  ${network}  scram-sha-256\n`).join('')}`,
  [USERS_FILE]: `"${CONTROL_ROLE}" ""\n`,
});
const EVERYBODY = ['0.0.0.0/0', '::/0'] as const;

function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const found = /(\d+)\.(\d+)/.exec(version);
  const [foundMajor, foundMinor] = [Number(found?.[1]), Number(found?.[2])];
  return foundMajor > major || (foundMajor === major && foundMinor >= minor);
}

// ── in the server ────────────────────────────────────────────────────────────────────────────────────────────────

/** Users cannot make schemas whose name begins like this, psql does not list them, and pg_dump leaves them out. */
const SCHEMA = 'pg_howdah';
const VERIFIER_FUNCTION = `${SCHEMA}.verifier`;

/** The verifier of a role that may log in at this moment, for the pooler's role alone; never one of ours. */
const FUNCTION_STATEMENTS = [
  `create or replace function ${VERIFIER_FUNCTION}(name text) returns table (role text, verifier text)
   language sql stable security definer set search_path = ''
   as $$ select r.rolname::text, r.rolpassword
         from pg_catalog.pg_authid as r
         where r.rolname = $1 and r.rolcanlogin and not r.rolsuper and r.rolname <> '${POOLER_ROLE}'
           and r.rolpassword is not null and (r.rolvaliduntil is null or r.rolvaliduntil > pg_catalog.now()) $$`,
  `revoke all on function ${VERIFIER_FUNCTION}(text) from public`,
  `grant usage on schema ${SCHEMA} to ${POOLER_ROLE}`,
  `grant execute on function ${VERIFIER_FUNCTION}(text) to ${POOLER_ROLE}`,
];

/**
 * Makes sure that a primary has the pooler's role and the function that only it may call.
 *
 * @returns the position in the WAL that a standby must have replayed to have them too
 * @throws Error when a user of the service has made a role of that name
 */
async function createPoolerRole(paths: InstancePaths, port: number): Promise<bigint> {
  return withSuperuserSession(
    { server: paths, port, name: 'howdah', database: DATABASE_NAME },
    async (client) => {
      const { rows } = await client.query<{ role: boolean; governed: boolean; schema: boolean }>(
        `select exists (select from pg_roles where rolname = '${POOLER_ROLE}') as role,
              exists (select from pg_auth_members m join pg_roles r on r.oid = m.roleid where r.rolname = '${POOLER_ROLE}') as governed,
              exists (select from pg_namespace where nspname = '${SCHEMA}') as schema`,
      );
      const [found] = rows;
      // The creator of a role may grant it: a user who has created this one could read the verifiers of all others.
      if (found?.governed === true) {
        throw new Error(
          `the service has a role ${POOLER_ROLE} that one of its users made; the pooler needs the name: drop role ${POOLER_ROLE}`,
        );
      }
      await client.query('begin');
      // The commit is flushed when it returns, whatever the service has set.
      await client.query('set local synchronous_commit = local');
      if (found?.role !== true) await client.query(`create role ${POOLER_ROLE}`);
      await client.query(
        `alter role ${POOLER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls connection limit -1 password null valid until 'infinity'`,
      );
      // The prefix is reserved; that it cannot be taken is why we take it.
      await client.query('set local allow_system_table_mods = on');
      if (found?.schema !== true) await client.query(`create schema ${SCHEMA}`);
      for (const statement of FUNCTION_STATEMENTS) await client.query(statement);
      await client.query('commit');
      const { rows: positions } = await client.query<{ lsn: string }>(
        'select pg_current_wal_flush_lsn()::text as lsn',
      );
      return parseLsn(positions[0]?.lsn ?? '');
    },
  );
}

// ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────

/** A pooler that is wanted: where it listens and what its configuration is. */
export type PoolerPlan = { program: Program; port: number; conf: string; listener: Listener };

/** The servers that a pooler needs as it starts. */
export type PoolerServers = {
  /** Where its role is created. */
  primary: { paths: InstancePaths; port: number };
  /** Returns when all servers that the pooler connects to have replayed the WAL up to a position. */
  untilReplayed: (lsn: bigint) => Promise<void>;
};

/** What was seen of a pooler that runs. */
export type PoolerSeen = {
  /** Stopped by a signal. */
  frozen: boolean;
  /** Whether its death would be told; not after a start of the control plane, nor while it holds its clients back. */
  watched: boolean;
  /** Whether its configuration is the one that is wanted. */
  current: boolean;
  /** Whether it is in the desired network: that of its VPC, or none. */
  placed: boolean;
  /** Clients that got in before and would not now. */
  disallowedSessions: number;
};

/** What adds PgBouncer to this machine. */
export const MISSING_POOLER = `PgBouncer is needed, and is not installed: ${PROGRAMS.pgbouncer.remedy}, then restart Howdah`;

/** How long a pooler may take to answer after its start. */
const START_DEADLINE_MS = 5000;
/**
 * How long its console may take for a command; so long transactions are given to end before their server is restarted on purpose. And how
 * long a process may take to go.
 */
const PATIENCE_MS = 5000;

/** The hands that see to poolers. @param changed called with the id of a service whose pooler died or was stopped by a signal */
export function createPoolers(machine: Machine, changed: (id: string) => void) {
  const watch = createDaemonWatch(changed);

  const look = async (
    paths: InstancePaths,
    plan: PoolerPlan | null,
    listener: Listener,
  ): Promise<PoolerSeen | null> => {
    const process = await findDaemon(paths.pooler);
    if (process === null) return null;
    const conf = await readOrNull(join(paths.config, CONF_FILE));
    const current = plan !== null && conf === plan.conf;
    return {
      frozen: process.frozen,
      watched: watch.isWatched(paths.pooler),
      current,
      placed: await runsInNetworkOf(process.pid, listener),
      disallowedSessions:
        current && !process.frozen ? await countDisallowedSessions(paths, plan) : 0,
    };
  };

  const start = async (
    id: string,
    paths: InstancePaths,
    plan: PoolerPlan,
    { primary, untilReplayed }: PoolerServers,
  ): Promise<string> => {
    await untilReplayed(await createPoolerRole(primary.paths, primary.port));
    await writeConf(ownerOf(machine, paths), paths, plan);
    const begun = Date.now();
    await launchDaemon(
      machine,
      ownerOf(machine, paths),
      paths.pooler,
      [plan.program.path, join(paths.config, CONF_FILE)],
      plan.listener,
    );
    for (;;) {
      try {
        await command(paths, plan.port, 'show version');
        break;
      } catch (error) {
        const launched = Number((await readOrNull(paths.pooler.pidFile)) ?? '0');
        const ended = launched !== 0 && (await findProcess(launched)) === null;
        if (ended || Date.now() - begun > START_DEADLINE_MS)
          throw new Error(`PgBouncer did not start: ${await whyDaemonEnded(paths.pooler)}`, {
            cause: error,
          });
        await sleep(5);
      }
    }
    await watch.watch(id, paths.pooler);
    return `accepting connections after ${Date.now() - begun} ms`;
  };

  /** Takes up another configuration or certificate, or one that was left behind; clients that were held back go on. */
  const reload = async (id: string, paths: InstancePaths, plan: PoolerPlan): Promise<string> => {
    await writeConf(ownerOf(machine, paths), paths, plan);
    await command(paths, plan.port, 'reload');
    // One that holds nobody back says so.
    for (const name of POOLS)
      await command(paths, plan.port, `resume ${name}`).catch(() => undefined);
    await watch.watch(id, paths.pooler);
    return 'sessions stay';
  };

  /**
   * Lets transactions end and keeps clients waiting from there on, until {@link reload}: their server is about to be restarted. Sessions of
   * the pool by session are not waited for, they end with their server.
   */
  const hold = async (paths: InstancePaths): Promise<void> => {
    const port = Number(
      /^listen_port = (\d+)$/m.exec((await readOrNull(join(paths.config, CONF_FILE))) ?? '')?.[1],
    );
    if ((await findDaemon(paths.pooler)) === null || Number.isNaN(port)) return;
    // From here on the next step is a reload, in this control plane or in the next.
    watch.forget(paths.pooler);
    const consoles: Client[] = [];
    try {
      let held: Promise<unknown> = Promise.resolve();
      for (const name of POOLS) {
        const client = await openConsole(paths, port);
        consoles.push(client);
        // Until the last transaction has ended; one that is held already says so.
        held = client.query(`pause ${name}`).catch(() => undefined);
      }
      await held;
    } catch {
      return; // what does not answer holds nobody back, and is seen to when its server is ready
    } finally {
      // The pause outlives its console; one that was let go would never be told.
      for (const client of consoles) client.connection.stream.destroy();
    }
  };

  const stop = async (paths: InstancePaths): Promise<void> => {
    watch.forget(paths.pooler);
    const process = await findDaemon(paths.pooler);
    // It keeps nothing that could be lost, and newer ones wait for their clients when they are asked.
    if (process !== null && !(await stopDaemon(process, 'SIGKILL', PATIENCE_MS)))
      throw new Error(`PgBouncer (pid ${process.pid}) does not end, not even by SIGKILL`);
    await removeDaemon(paths.pooler);
    for (const name of [CONF_FILE, HBA_FILE, USERS_FILE])
      await rm(join(paths.config, name), { force: true });
  };

  return { look, start, reload, hold, stop, close: watch.close };
}
export type Poolers = ReturnType<typeof createPoolers>;

const POOLS = [DATABASE_NAME, TRANSACTION_POOL_NAME] as const;

/** How many clients a pooler has that it would not let in now. */
async function countDisallowedSessions(
  paths: InstancePaths,
  { port, listener }: PoolerPlan,
): Promise<number> {
  const { allowedNetworks } = listener;
  if (allowedNetworks === null) return 0;
  const client = await openConsole(paths, port).catch(() => null);
  if (client === null) return 0; // it is dying, and its clients with it
  try {
    const { rows } = await client.query<{ addr: string }>('show clients');
    return rows.filter(({ addr }) => isIP(addr) !== 0 && !isAllowed(allowedNetworks, addr)).length;
  } finally {
    client.connection.stream.destroy();
  }
}

async function writeConf(
  owner: Owner | null,
  paths: InstancePaths,
  { program, conf, listener }: PoolerPlan,
): Promise<void> {
  await writeConfig(owner, paths, ourFiles(listener.allowedNetworks ?? EVERYBODY));
  await replaceConfig(owner, join(paths.config, CONF_FILE), conf, () =>
    checkConf(owner, paths, program, conf),
  );
}

/**
 * PgBouncer has no checker: it is started on the same configuration without anything to listen on, reads and takes all of it, and
 * ends because it has nowhere to listen.
 */
async function checkConf(
  owner: Owner | null,
  paths: InstancePaths,
  program: Program,
  conf: string,
): Promise<void> {
  const name = `${CONF_FILE}.check`;
  await writeConfig(owner, paths, {
    [name]: conf
      .replace(/^listen_addr = .*$/m, 'listen_addr =')
      .replace(/^unix_socket_dir = .*$/m, 'unix_socket_dir ='),
  });
  try {
    const user = owner === null ? {} : { uid: owner.uid, gid: owner.gid };
    await run(program.path, [join(paths.config, name)], user);
  } catch (error) {
    if (
      !(error instanceof RunError) ||
      !error.message.includes('nowhere to listen on') ||
      error.message.includes(' ERROR ')
    )
      throw error;
  } finally {
    await rm(join(paths.config, name), { force: true });
  }
}

/** Gives a command to a pooler's console. */
async function command(paths: InstancePaths, port: number, statement: string): Promise<void> {
  const client = await openConsole(paths, port);
  try {
    await client.query(statement);
  } finally {
    client.connection.stream.destroy();
  }
}

async function openConsole(paths: InstancePaths, port: number): Promise<Client> {
  const client = new Client({
    host: paths.pooler.root,
    stream: serviceSocket,
    port,
    user: CONTROL_ROLE,
    database: 'pgbouncer',
    connectionTimeoutMillis: PATIENCE_MS,
    query_timeout: PATIENCE_MS,
  });
  client.on('error', () => undefined); // the statement under way is told
  await client.connect();
  return client;
}
