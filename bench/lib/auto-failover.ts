/**
 * The peer of `failover`: pg_auto_failover from Debian's packages, with a monitor and a synchronous
 * pair by its defaults. Its servers have the certificate of a service, so that a session costs its
 * clients as much as one of ours.
 */
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { writeOwned } from '../../packages/server/src/engine/local/backup/running-clone.ts';
import { findProcess, signal, waitUntilGone } from '../../packages/server/src/lib/processes.ts';
import { setPassword, type BareKit } from './bare.ts';
import { atEnd } from './cleanup.ts';
import { debianMajor } from './copies.ts';
import { treeOf } from './processes.ts';
import { freePort, has } from './run.ts';

export const AUTO_FAILOVER_MISSING =
  "pg_auto_failover is missing (apt-get install pg-auto-failover-cli 'postgresql-*-auto-failover')";

/**
 * A PostgreSQL server, and the process of the keeper that started it and leads its process group.
 */
export type Node = { data: string; port: number; keeper: number };

export type AutoFailover = {
  major: string;
  /** The directory of data, configuration, logs and sockets of all nodes. */
  directory: string;
  pair: Node[];
  /** The monitor's metadata. */
  metadata: Client;
  /** The password of the user tsdbadmin. */
  password: string;
};

/** The newest major of Debian's that pg_auto_failover can run; null: there is none. */
export async function autoFailoverMajor(): Promise<string | null> {
  return (await has('pg_autoctl')) ? debianMajor('bin/pg_rewind', 'lib/pgautofailover.so') : null;
}

/** Where the nodes of a pair are, and those that were started. */
type Site = { kit: BareKit; major: string; directory: string; nodes: Node[] };

/**
 * Makes a monitor and a synchronous pair with a table `t` to write to, and removes them at the end.
 */
export async function startAutoFailover(
  kit: BareKit,
  major: string,
): Promise<{ peer: AutoFailover; end: () => Promise<void> }> {
  const directory = await makeDirectory(kit);
  const site: Site = { kit, major, directory, nodes: [] };
  const end = atEnd(() => removeNodes(site));
  const monitor = await makeNode(site, 'monitor', 'monitor', []);
  const metadata = await connectToMonitor(site, monitor);
  const options = nodeOptions(directory, monitor);
  const first = await makeNode(site, 'postgres', 'first', options);
  await eventually('the first node of pg_auto_failover', async () => {
    const { rows } = await metadata.query(
      `select from pgautofailover.node where reportedstate = 'single' and health = 1`,
    );
    if (rows.length === 0) throw new Error('it is not in charge yet');
  });
  const password = await prepareUser(kit, directory, first);
  const second = await makeNode(site, 'postgres', 'second', options);
  const peer = { major, directory, pair: [first, second], metadata, password };
  await untilPaired(peer);
  return { peer, end };
}

/** Makes the directory of all nodes, with the certificate that they show. */
async function makeDirectory({ machine, certificate, ca, directory: parent }: BareKit) {
  const directory = await mkdtemp(join(parent, 'af-'));
  if (machine.owner !== null) await chown(directory, machine.owner.uid, machine.owner.gid);
  const files = {
    'ca.pem': ca,
    'server.crt': certificate.certificatePem,
    'server.key': certificate.keyPem,
  };
  for (const [name, text] of Object.entries(files))
    await writeOwned(machine.owner, join(directory, name), text);
  return directory;
}

/** Kills the keepers with all that they started, and removes the directory. */
async function removeNodes({ directory, nodes }: Site): Promise<void> {
  const pids = nodes.map(({ keeper }) => keeper);
  const trees = (await Promise.all(pids.map(treeOf))).flat();
  const found = (await Promise.all(trees.map(findProcess))).filter((one) => one !== null);
  for (const pid of pids) signal(-pid, 'SIGKILL');
  for (const { pid } of found) signal(pid, 'SIGKILL');
  for (const one of found) await waitUntilGone(one, 10_000);
  await rm(directory, { recursive: true, force: true, maxRetries: 10 });
}

/** Creates a node and starts its keeper. */
async function makeNode(
  { kit, major, directory, nodes }: Site,
  kind: 'monitor' | 'postgres',
  name: string,
  more: readonly string[],
): Promise<Node> {
  const [data, port] = [join(directory, name), await freePort()];
  const options = {
    '--pgdata': data,
    '--pgport': String(port),
    '--hostname': '127.0.0.1',
    '--auth': 'trust',
    '--ssl-mode': 'verify-full',
    '--ssl-ca-file': join(directory, 'ca.pem'),
    '--server-cert': join(directory, 'server.crt'),
    '--server-key': join(directory, 'server.key'),
  };
  const args = ['create', kind, '--run', ...Object.entries(options).flat(), ...more];
  const node = { data, port, keeper: launch(kit, major, directory, args) };
  nodes.push(node);
  return node;
}

/** The options of a node that the monitor manages. */
function nodeOptions(directory: string, monitor: Node): string[] {
  const address =
    `postgres://autoctl_node@127.0.0.1:${monitor.port}/pg_auto_failover` +
    `?sslmode=verify-full&sslrootcert=${join(directory, 'ca.pem')}`;
  const options = {
    '--pghost': directory,
    '--listen': '127.0.0.1',
    '--dbname': 'tsdb',
    '--monitor': address,
  };
  return Object.entries(options).flat();
}

/** Waits until the monitor has its schema. @returns a session on its database */
function connectToMonitor({ kit, directory }: Site, monitor: Node): Promise<Client> {
  return eventually('the monitor of pg_auto_failover', async () => {
    const client = await connectAsOwner(kit, directory, monitor.port, 'pg_auto_failover');
    await client.query('select from pgautofailover.node').catch(async (error: unknown) => {
      await client.end();
      throw error;
    });
    return client;
  });
}

/**
 * Makes the user of the measurements, with a password as in a service, and the table. The second
 * node copies both.
 */
async function prepareUser(kit: BareKit, directory: string, node: Node): Promise<string> {
  const rules = join(node.data, 'pg_hba.conf');
  const before = await readFile(rules, 'utf8');
  await writeFile(rules, `hostssl tsdb tsdbadmin 127.0.0.1/32 scram-sha-256\n${before}`);
  const admin = await connectAsOwner(kit, directory, node.port, 'tsdb');
  await admin.query('select pg_reload_conf()');
  await admin.query('create role tsdbadmin login');
  const password = await setPassword(admin);
  await admin.query('create table t (n int)');
  await admin.query('grant insert on t to tsdbadmin');
  await admin.end();
  return password;
}

/** The shortest intervals of the monitor, in ms: keepers report once a second. */
const TUNED_MONITOR = {
  'pgautofailover.health_check_period': 200,
  'pgautofailover.health_check_timeout': 1000,
  'pgautofailover.health_check_max_retries': 1,
  'pgautofailover.health_check_retry_delay': 100,
  'pgautofailover.node_considered_unhealthy_timeout': 1000,
  'pgautofailover.primary_demote_timeout': 1000,
  'pgautofailover.startup_grace_period': 1000,
};
/**
 * By default a standby that lost its primary tries every 5 s, and as long no synchronous write of a
 * restarted primary is acknowledged.
 */
const TUNED_NODE = { wal_retrieve_retry_interval: 10 };

/** Changes settings for the next failover. */
export async function tune(
  kit: BareKit,
  { directory, metadata, pair }: AutoFailover,
  settings: 'defaults' | 'tuned',
): Promise<void> {
  const apply = async (client: Client, tuned: Record<string, number>): Promise<void> => {
    for (const [name, value] of Object.entries(tuned))
      await client.query(
        settings === 'tuned' ? `alter system set ${name} = ${value}` : `alter system reset ${name}`,
      );
    await client.query('select pg_reload_conf()');
  };
  await apply(metadata, TUNED_MONITOR);
  for (const { port } of pair) {
    const client = await connectAsOwner(kit, directory, port, 'tsdb');
    await apply(client, TUNED_NODE);
    await client.end();
  }
}

/**
 * Waits until the monitor reports both nodes as healthy, one of them as a primary that waits for
 * the other.
 *
 * @returns the primary
 */
export async function untilPaired({ metadata, pair }: AutoFailover): Promise<Node> {
  return eventually('the pair of pg_auto_failover', async () => {
    const { rows } = await metadata.query<{ port: number; state: string }>(
      `select nodeport as port, reportedstate::text as state from pgautofailover.node
       where reportedstate = goalstate and health = 1 and reportedpgisrunning
         and (reportedstate = 'secondary' or reportedrepstate = 'quorum')
       order by 2`,
    );
    const primary = pair.find(({ port }) => port === rows[0]?.port);
    if (primary === undefined || rows.map(({ state }) => state).join() !== 'primary,secondary')
      throw new Error(JSON.stringify(rows));
    return primary;
  });
}

/** The waits of a failover that took so long, from the events that the monitor recorded. */
export async function partsOfFailover(
  { metadata }: AutoFailover,
  begunMs: number,
  tookMs: number,
): Promise<Record<string, number>> {
  const { rows } = await metadata.query<{ seen: number; released: number }>(
    `select min(ms) filter (where state = 'draining') as seen,
       min(ms) filter (where state = 'wait_primary') as released
     from (select goalstate::text as state, (extract(epoch from eventtime) * 1000)::float - $1 as ms
       from pgautofailover.event) e where ms > 0`,
    [begunMs],
  );
  const [{ seen, released } = { seen: Number.NaN, released: Number.NaN }] = rows;
  return {
    seen,
    'old primary given up': released - seen,
    'promoted, session, write': tookMs - released,
  };
}

/** Kills a server, or the node: also its keeper, which would start the server again. */
export async function killNode({ data, keeper }: Node, what: 'server' | 'node'): Promise<void> {
  const [server] = (await readFile(join(data, 'postmaster.pid'), 'utf8')).split('\n').map(Number);
  if (server === undefined) throw new Error(`nothing runs on ${data}`);
  signal(what === 'node' ? -keeper : server, 'SIGKILL');
}

/** Starts the keeper of a killed node, which starts its server. */
export function reviveNode(kit: BareKit, { major, directory }: AutoFailover, node: Node): void {
  node.keeper = launch(kit, major, directory, ['run', '--pgdata', node.data]);
}

/**
 * Starts a keeper.
 *
 * @returns its process, which leads a group of its own: the group is killed with the node, and not
 * by Ctrl-C
 */
function launch(kit: BareKit, major: string, directory: string, args: readonly string[]): number {
  const { owner } = kit.machine;
  const log = openSync(join(directory, 'log'), 'a', 0o600);
  const child = spawn('pg_autoctl', args, {
    cwd: '/',
    env: {
      PATH: `/usr/lib/postgresql/${major}/bin:/usr/bin:/bin`,
      LANG: 'C.UTF-8',
      HOME: directory,
      XDG_CONFIG_HOME: directory,
      XDG_DATA_HOME: directory,
      XDG_RUNTIME_DIR: directory,
      // Where its servers put their sockets and where it looks for them: Debian's own place belongs
      // to another user.
      PG_REGRESS_SOCK_DIR: directory,
      PGHOST: directory,
    },
    stdio: ['ignore', log, log],
    detached: true,
    ...(owner === null ? {} : { uid: owner.uid, gid: owner.gid }),
  });
  closeSync(log);
  child.on('error', () => undefined);
  if (child.pid === undefined) throw new Error('pg_autoctl cannot be started');
  return child.pid;
}

/** A superuser over the Unix socket. The caller ends it. */
async function connectAsOwner(
  { machine }: BareKit,
  directory: string,
  port: number,
  database: string,
): Promise<Client> {
  const client = new Client({
    host: directory,
    port,
    user: machine.owner?.name ?? userInfo().username,
    database,
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

const DEADLINE_MS = 180_000;

async function eventually<T>(what: string, attempt: () => Promise<T>): Promise<T> {
  const end = performance.now() + DEADLINE_MS;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (performance.now() > end)
        throw new Error(`${what} is not ready after ${DEADLINE_MS / 1000} s`, { cause: error });
      await sleep(100);
    }
  }
}
