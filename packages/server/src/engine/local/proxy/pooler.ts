/**
 * PgBouncer in front of one server: started, reloaded, held and stopped.
 *
 * Clients use TLS and log in with SCRAM. PgBouncer connects to the server over the Unix socket, as
 * the role of the client, with the keys of the client's own login. It knows no password: it asks a
 * function in the server for the verifier of a role (docs/decisions/0011-pooler.md).
 */
import { isIP } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { DATABASE_NAME, TRANSACTION_POOL_NAME } from '@howdah/contract';
import type { Rounds } from '../../../lib/rounds.ts';
import { inTime } from '../../../lib/patience.ts';
import { findProcess, readOrNull } from '../../../lib/processes.ts';
import { run, RunError } from '../../../lib/run.ts';
import {
  createDaemonWatch,
  findDaemon,
  launchDaemon,
  pidsOf,
  PROGRAMS,
  removeDaemon,
  replaceConfig,
  stopDaemon,
  whyDaemonEnded,
  type DaemonWatch,
  type Program,
} from '../host/daemon.ts';
import type { InstancePaths } from '../host/layout.ts';
import { untrustedSocket } from '../../../lib/untrusted-socket.ts';
import type { Machine } from '../host/machine-record.ts';
import { type Owner, ownerOf } from '../host/users.ts';
import { rm } from '../host/root-files.ts';
import { ALL_NETWORKS, isAllowed, runsInNetworkOf, type Listener } from '../network/listener.ts';
import { CONTROL_ROLE } from '../../postgres/roles.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import { writeConfig } from '../postgres/server.ts';
import { asksEachDatabase } from '../../pooler/conf.ts';
import { accessFiles, CONF_FILE, HBA_FILE, USERS_FILE } from './pooler-files.ts';
import {
  LOOKUP_BODY,
  LOOKUP_BODY_IN_EACH_DATABASE,
  lookupStatements,
  POOLER_ROLE,
  POOLER_SCHEMA,
  VERIFIER_FUNCTION,
} from '../../pooler/lookup.ts';
import { isWithoutDatabase } from '../../postgres/contents/catalogs.ts';
import { withSuperuserSession } from '../../postgres/sessions/superuser.ts';
import { parseLsn } from '../../postgres/data/wal.ts';
import type { PoolerSeen } from '../../postgres/decisions/decide.ts';

/** A desired pooler: where it listens and what its configuration is. */
export type PoolerPlan = { program: Program; port: number; conf: string; listener: Listener };

/** The servers that a pooler needs as it starts. */
export type PoolerServers = {
  /** Where its role is created. */
  primary: { paths: InstancePaths; port: number };
  /**
   * Returns when all servers that the pooler connects to have replayed the WAL up to a position.
   */
  untilReplayed: (lsn: bigint) => Promise<void>;
};

/** How to add PgBouncer to this machine. */
export const MISSING_POOLER =
  'PgBouncer is needed, and is not installed: ' +
  `${PROGRAMS.pgbouncer.remedy}, then restart Howdah`;

/** How long a pooler may take to answer after its start. */
const START_DEADLINE_MS = 60_000;
/** How long the console may take for an answer. Every round of its service waits for it. */
const ANSWER_DEADLINE_MS = 5000;
/**
 * How long transactions may take to end before their server is restarted on purpose: a tenant can
 * keep one open for ever (docs/pooler.md).
 */
const HOLD_MS = 5000;
/** How long a killed process may take to be gone. */
const KILL_DEADLINE_MS = 60_000;

/** The machine, and the watch over its poolers. */
export type Poolers = {
  readonly machine: Machine;
  readonly watch: DaemonWatch;
  readonly databases: PoolerDatabases;
};

/** @param changed called with the id of a service whose pooler died or was stopped by a signal */
export function createPoolers(
  machine: Machine,
  monitor: Monitored,
  rounds: Rounds,
  changed: (id: string) => void,
): Poolers {
  return {
    machine,
    watch: createDaemonWatch(rounds, changed),
    databases: createPoolerDatabases(monitor, rounds, changed),
  };
}

/** @returns null if no pooler runs */
export async function observePooler(
  { watch }: Poolers,
  paths: InstancePaths,
  plan: PoolerPlan | null,
  listener: Listener,
): Promise<PoolerSeen | null> {
  const process = await findDaemon(paths.pooler);
  if (process === null) return null;
  const conf = await readOrNull(join(paths.config, CONF_FILE));
  const current = plan !== null && conf === plan.conf;
  return {
    frozen: process.frozen,
    watched: watch.isWatched(paths.pooler),
    current,
    placed: await runsInNetworkOf(process.pid, listener),
    disallowedSessions: current && !process.frozen ? await countDisallowedSessions(paths, plan) : 0,
  };
}

/** Starts PgBouncer and waits until it answers. @returns a line for the user */
export async function launchPooler(
  { machine, watch }: Poolers,
  id: string,
  paths: InstancePaths,
  plan: PoolerPlan,
  servers: PoolerServers,
): Promise<string> {
  await prepareServers(plan, servers);
  const owner = ownerOf(machine, paths);
  await writeConf(owner, paths, plan);
  const begunMs = Date.now();
  await launchDaemon(
    machine,
    owner,
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
      if (ended || Date.now() - begunMs > START_DEADLINE_MS)
        throw new Error(`PgBouncer did not start: ${await whyDaemonEnded(paths.pooler)}`, {
          cause: error,
        });
      await sleep(5);
    }
  }
  await watch.watch(id, paths.pooler);
  return `accepting connections after ${Date.now() - begunMs} ms`;
}

/** Makes the role of a pooler, and what it calls, where the pooler connects to. */
async function prepareServers(
  { program }: PoolerPlan,
  { primary, untilReplayed }: PoolerServers,
): Promise<void> {
  const where = asksEachDatabase(program.version) ? 'each database' : 'the database of the service';
  await untilReplayed(await createPoolerRole(primary.paths, primary.port, where));
}

/**
 * Loads a new configuration or certificate, or one that was not loaded yet; clients that waited go
 * on.
 *
 * @returns a line for the user
 */
export async function reloadPooler(
  { machine, watch }: Poolers,
  id: string,
  paths: InstancePaths,
  plan: PoolerPlan,
  servers: PoolerServers,
): Promise<string> {
  await prepareServers(plan, servers);
  await writeConf(ownerOf(machine, paths), paths, plan);
  await command(paths, plan.port, 'reload');
  // A pool that is not paused refuses to resume.
  for (const statement of [...POOLS.map((name) => `resume ${name}`), 'resume'])
    await command(paths, plan.port, statement).catch(() => undefined);
  await watch.watch(id, paths.pooler);
  return 'sessions stay';
}

/**
 * Lets transactions end and then keeps clients waiting until {@link reloadPooler}: their server is
 * about to be restarted. Sessions of the session pool are not waited for; they end with their
 * server.
 */
export async function holdPooler({ watch }: Poolers, paths: InstancePaths): Promise<void> {
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
      // Ends with the last transaction; a pool that is paused already refuses.
      held = client.query(`pause ${name}`).catch(() => undefined);
    }
    // Other databases have sessions only: those are not waited for.
    const others = await openConsole(paths, port);
    consoles.push(others);
    void others.query('pause').catch(() => undefined);
    await Promise.race([held, sleep(HOLD_MS, undefined, { ref: false })]);
  } catch {
    return; // a pooler that does not answer is checked again once its server is ready
  } finally {
    // The pause outlives its console.
    for (const client of consoles) client.connection.stream.destroy();
  }
}

export async function stopPooler({ watch }: Poolers, paths: InstancePaths): Promise<void> {
  watch.forget(paths.pooler);
  const process = await findDaemon(paths.pooler);
  // A pooler has no state to lose. Newer ones would wait for their clients after a softer signal.
  if (process !== null && !(await stopDaemon(process, 'SIGKILL', KILL_DEADLINE_MS)))
    throw new Error(`PgBouncer (pid ${process.pid}) does not end, not even by SIGKILL`);
  await removeDaemon(paths.pooler);
  for (const name of [CONF_FILE, HBA_FILE, USERS_FILE])
    await rm(join(paths.config, name), { force: true });
}

const POOLS = [DATABASE_NAME, TRANSACTION_POOL_NAME] as const;

/** How many sessions a pooler has of clients that may no longer connect. */
async function countDisallowedSessions(
  paths: InstancePaths,
  { port, listener }: PoolerPlan,
): Promise<number> {
  const { allowedNetworks } = listener;
  if (allowedNetworks === null) return 0;
  const client = await openConsole(paths, port).catch(() => null);
  if (client === null) return 0; // it is dying, and its clients with it
  try {
    const { rows } = await answerOf(paths, client.query<{ addr: string }>('show clients'));
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
  await writeConfig(owner, paths, accessFiles(listener.allowedNetworks ?? ALL_NETWORKS));
  await replaceConfig(owner, join(paths.config, CONF_FILE), conf, () =>
    checkConf(owner, paths, program, conf),
  );
}

/**
 * PgBouncer has no checker. It is started with the same configuration and nowhere to listen: it
 * reads all of it, and ends for that reason.
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
    await answerOf(paths, client.query(statement));
  } finally {
    client.connection.stream.destroy();
  }
}

async function openConsole(paths: InstancePaths, port: number): Promise<Client> {
  const client = new Client({
    host: paths.pooler.root,
    stream: untrustedSocket,
    port,
    user: CONTROL_ROLE,
    database: 'pgbouncer',
  });
  client.on('error', () => undefined); // the running statement reports it
  try {
    await answerOf(paths, client.connect());
  } catch (error) {
    client.connection.stream.destroy();
    throw error;
  }
  return client;
}

/** @throws Error when a pooler does not answer in time */
function answerOf<T>(paths: InstancePaths, answer: Promise<T>): Promise<T> {
  const deadline = { deadlineMs: ANSWER_DEADLINE_MS, pids: () => pidsOf(paths.pooler) };
  return inTime(answer, deadline, () => new Error('PgBouncer did not answer in time'));
}

// The databases of services whose PgBouncer must know them: an old one asks each database for
// verifiers, and keeps clients of a database that does not exist waiting.

/** Names that a key of pgbouncer.ini may have, but for those of our pools and of the console. */
const NAMES = `
  select datname::text as name from pg_database
  where datallowconn and not datistemplate and datname ~ '^[A-Za-z0-9_.-]+$'
    and datname not in ('${DATABASE_NAME}', '${TRANSACTION_POOL_NAME}', 'pgbouncer')
  order by oid limit 200`;

type PoolerDatabases = ReturnType<typeof createPoolerDatabases>;

/** @param changed called with the id of a service that has other databases than before */
function createPoolerDatabases(monitor: Monitored, rounds: Rounds, changed: (id: string) => void) {
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

// Makes the role of a pooler in its server, and the function that gives it verifiers.

const TAKEN =
  `the service has a role ${POOLER_ROLE} that one of its users made; the pooler needs the name: ` +
  `drop role ${POOLER_ROLE}`;
const IS_GOVERNED = `exists (select from pg_auth_members m join pg_roles r on r.oid = m.roleid
  where r.rolname = '${POOLER_ROLE}')`;

/** Why a primary cannot have a pooler; null: it can. */
export async function whyNoPoolerRole(paths: InstancePaths, port: number): Promise<string | null> {
  return withSuperuserSession({ server: paths, port, name: 'howdah' }, async (client) => {
    const { rows } = await client.query<{ governed: boolean }>(`select ${IS_GOVERNED} as governed`);
    return rows[0]?.governed === true ? TAKEN : null;
  });
}

/**
 * Makes sure that a primary has the pooler's role and the function that only it may call.
 *
 * @param where where the pooler calls the function. In each database, the template of new ones
 *   included: a database that is made of template0 later has none until this is called again
 * @returns the position in the WAL that a standby must have replayed to have them too
 * @throws Error when a user of the service has made a role of that name
 */
export async function createPoolerRole(
  server: InstancePaths,
  port: number,
  where: 'each database' | 'the database of the service' = 'the database of the service',
): Promise<bigint> {
  const inDatabase = <T>(database: string, work: (client: Client) => Promise<T>): Promise<T> =>
    withSuperuserSession({ server, port, name: 'howdah', database }, work);
  const body = where === 'each database' ? LOOKUP_BODY_IN_EACH_DATABASE : LOOKUP_BODY;
  const others = await inDatabase(DATABASE_NAME, async (client) => {
    await createRole(client);
    await createLookup(client, body);
    return where === 'each database' ? listOthers(client) : [];
  });
  for (const database of others)
    await inDatabase(database, (client) => createLookup(client, body)).catch((error: unknown) => {
      if (!isWithoutDatabase(error)) throw error;
    });
  return inDatabase(DATABASE_NAME, async (client) => {
    const { rows } = await client.query<{ lsn: string }>(
      'select pg_current_wal_flush_lsn()::text as lsn',
    );
    return parseLsn(rows[0]?.lsn ?? '');
  });
}

async function listOthers(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    'select datname::text as name from pg_database where datallowconn and datname <> $1',
    [DATABASE_NAME],
  );
  return rows.map(({ name }) => name);
}

async function createRole(client: Client): Promise<void> {
  const { rows } = await client.query<{ role: boolean; governed: boolean }>(
    `select exists (select from pg_roles where rolname = '${POOLER_ROLE}') as role,
       ${IS_GOVERNED} as governed`,
  );
  const [found] = rows;
  // The creator of a role may grant it: a user who has created this one could read the verifiers of
  // all others.
  if (found?.governed === true) throw new Error(TAKEN);
  // The commit is flushed when it returns, whatever the service has set.
  await client.query('begin; set local synchronous_commit = local');
  if (found?.role !== true) await client.query(`create role ${POOLER_ROLE}`);
  await client.query(
    `alter role ${POOLER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls
       connection limit -1 password null valid until 'infinity'`,
  );
  await client.query('commit');
}

/** The prefix of the schema is reserved, so no user can have taken the name. */
async function createLookup(client: Client, body: string): Promise<void> {
  const { rows } = await client.query<{ body: string; isGranted: boolean }>(
    `select prosrc as body, has_function_privilege($2, oid, 'execute')
       and has_schema_privilege($2, pronamespace, 'usage') as "isGranted"
     from pg_proc where oid = to_regprocedure($1)`,
    [`${VERIFIER_FUNCTION}(text)`, POOLER_ROLE],
  );
  if (rows[0]?.body === body && rows[0].isGranted) return;
  await client.query(
    'begin; set local synchronous_commit = local; set local allow_system_table_mods = on',
  );
  await client.query(`create schema if not exists ${POOLER_SCHEMA}`);
  for (const statement of lookupStatements(body)) await client.query(statement);
  await client.query('commit');
}
