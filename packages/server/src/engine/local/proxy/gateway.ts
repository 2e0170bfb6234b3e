/**
 * The gateway of a service with replicas: HAProxy, one for each service, on the service's port. It
 * routes to the primary. While there is none it tries again every few milliseconds, so that clients
 * that connect meanwhile wait and are not refused.
 *
 * A gateway's configuration never changes while it runs: its backend is configured over its admin
 * socket. A new gateway routes nowhere until then.
 */
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TypeCapability } from '../../engine.ts';
import {
  findDaemon,
  launchDaemon,
  pidsOf,
  replaceConfig,
  stopDaemon,
  whyDaemonEnded,
  type DaemonWatch,
  findProgram,
  pathOfProgram,
  PROGRAMS,
} from '../host/daemon.ts';
import { ALL_NETWORKS, isAllowed, runsInNetworkOf, type Listener } from '../network/listener.ts';
import type { DaemonPaths } from '../host/layout.ts';
import { untrustedSocket } from '../../../lib/untrusted-socket.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Owner } from '../host/users.ts';
import { findProcess, isErrno, readOrNull } from '../../../lib/processes.ts';
import { inTime } from '../../../lib/patience.ts';
import { mkdir } from '../host/root-files.ts';
import { run } from '../../../lib/run.ts';
import type { GatewaySeen, ListenerSeen } from '../../postgres/decisions/decide-ha.ts';

/** Where a gateway listens. */
export type Listen = { address: string; port: number };

/**
 * Where the gateway routes to while the primary is moved: nothing listens there, and it tries
 * again.
 */
export const NOWHERE = 1;

/**
 * How long a client that connects waits between two attempts to reach the primary, and for how many
 * of them.
 */
const RETRY_MS = 10;
const RETRIES = 3000;
const START_DEADLINE_MS = 60_000;
/**
 * How long a gateway may take to end before it is killed. It has nothing to lose, and one that a
 * signal has stopped is replaced only after this.
 */
const STOP_DEADLINE_MS = 1000;
/** How long a gateway may take to answer. A failover waits for it, and so does every round. */
const ANSWER_DEADLINE_MS = 2000;

/** The directory's group includes the pooler of a read replica set, which connects by a socket. */
const MODE = 0o710;

const ADMIN_SOCKET = 'admin.sock';
const adminSocket = (paths: DaemonPaths): string => join(paths.root, ADMIN_SOCKET);

/** Whether services can have a gateway here. */
export async function gatewayCapability(): Promise<TypeCapability> {
  const program = await findProgram('haproxy');
  const { what, remedy } = PROGRAMS.haproxy;
  return program === null
    ? {
        missing:
          `${what}, which stands before the members of a service with replicas, ` +
          `is not installed: ${remedy}`,
      }
    : { version: program.version };
}

/**
 * The configuration of a gateway. Its paths begin at the gateway's working directory, so that no
 * character in the path of the installation has a meaning in HAProxy's language. Sessions, TLS
 * included, are passed through unchanged. The control plane itself may be unable to reach it, or
 * not be allowed: it uses a socket of its own, for drills.
 */
export function gatewayConfig(paths: DaemonPaths, listen: Listen): string {
  return `${HEAD}${frontend(paths, listen, 'members')}frontend control
  bind ${unixAddress('.', listen.port)} mode 600
  default_backend members
backend members
  server primary 127.0.0.1:${NOWHERE}
`;
}

/** A node of a read replica set, as its gateway reaches it. */
export type GatewayNode = { n: number; port: number; socketDirectory: string };

/**
 * The configuration of the gateway of a read replica set. A new session goes to the node with the
 * fewest, of those that it is configured for; without any, sessions wait. The pooler connects by a
 * Unix socket in the gateway's own directory and is passed to those of the nodes, so that it is
 * authenticated as by a single server.
 */
export function setGatewayConfig(
  paths: DaemonPaths,
  listen: Listen,
  nodes: readonly GatewayNode[],
): string {
  const backend = (name: string, address: (node: GatewayNode) => string) => `backend ${name}
  balance leastconn
${nodes.map((node) => `  server ${nodeServer(node.n)} ${address(node)} disabled`).join('\n')}
  server nowhere 127.0.0.1:${NOWHERE} backup
`;
  const socketOf = ({ port, socketDirectory }: GatewayNode): string =>
    unixAddress(relative(paths.root, socketDirectory), port);
  return `${HEAD}${frontend(paths, listen, 'nodes')}frontend pooler
  bind ${unixAddress('.', listen.port)} mode 660
  default_backend sockets
${backend('nodes', ({ port }) => `127.0.0.1:${port}`)}${backend('sockets', socketOf)}`;
}

const nodeServer = (n: number): string => `node${n}`;
/** PostgreSQL's way to name the socket of a port. */
const unixAddress = (directory: string, port: number): string =>
  `unix@${directory}/.s.PGSQL.${port}`;

const HEAD = `# Written by Howdah; changes are overwritten.
global
  stats socket unix@${ADMIN_SOCKET} mode 600 level admin
  maxconn 4096
  nbthread 1
  no strict-limits
defaults
  mode tcp
  timeout client 24d
  timeout server 24d
  timeout connect ${RETRY_MS}ms
  retries ${RETRIES}
  option redispatch 1
  option abortonclose
  option clitcpka
  option srvtcpka
`;

/**
 * The frontend of clients from the allowed networks. The rule is there where all are allowed too:
 * networks change at run time, a rule only with a restart, which ends all sessions.
 */
const frontend = (
  paths: DaemonPaths,
  { address, port }: Listen,
  backend: string,
): string => `frontend service
  bind ${address}:${port}
  tcp-request connection reject unless \
{ src -f ${relative(paths.root, allowedNetworksFile(paths))} }
  default_backend ${backend}
`;

/** The allowed networks, a line each; changes for a running gateway are written here as well. */
const allowedNetworksFile = (paths: DaemonPaths): string => `${paths.root}.allowed`;

/** Observes a gateway. If it does not answer, its route is unknown. */
export async function observeGateway(paths: DaemonPaths, listener: Listener): Promise<GatewaySeen> {
  const daemon = await findDaemon(paths);
  if (daemon === null || daemon.frozen) return { ...CLOSED, routesToPort: null };
  const seen = { running: true, ...(await observeListener(paths, daemon.pid, listener)) };
  try {
    const state = (await command(paths, 'show servers state members'))
      .split('\n')
      .find((line) => line.includes(' primary '));
    return { ...seen, routesToPort: Number(state?.split(' ')[18] ?? '0') };
  } catch {
    return { ...seen, routesToPort: null };
  }
}

/** A gateway that does not run: a start gives it the desired state. */
const CLOSED = { running: false, placed: true, allowedNetworksCurrent: true };

async function observeListener(
  paths: DaemonPaths,
  pid: number,
  listener: Listener,
): Promise<ListenerSeen> {
  const { allowedNetworks } = listener;
  // A gateway that an older release started has no rule if all networks were allowed then.
  const isRuled = (await findRule(paths)) !== null;
  const placed = (await runsInNetworkOf(pid, listener)) && (isRuled || allowedNetworks === null);
  // A gateway that does not answer reports no sessions either.
  const allowedNetworksCurrent =
    !placed || !isRuled || (await allowsExactly(paths, allowedNetworks).catch(() => true));
  return { placed, allowedNetworksCurrent };
}

/**
 * The name by which a gateway knows its allowed networks: an older release wrote the whole path.
 * null: it has no such rule.
 */
async function findRule({ conf }: DaemonPaths): Promise<string | null> {
  return /\{ src -f (\S+) \}/.exec((await readOrNull(conf)) ?? '')?.[1] ?? null;
}

/** The networks that a gateway lets in now. */
async function currentNetworks(paths: DaemonPaths): Promise<string[]> {
  // "0x55… 10.1.0.0/16"
  return (await command(paths, `show acl ${await findRule(paths)}`))
    .split('\n')
    .flatMap((line) => /^0x\S+ (\S+)/.exec(line)?.[1] ?? []);
}

/**
 * The sessions of clients that may no longer connect. A session that still waits for its server is
 * found once it has one.
 */
async function disallowedSessions(
  paths: DaemonPaths,
  allowedNetworks: readonly string[] | null,
): Promise<string[]> {
  if (allowedNetworks === null) return [];
  const lines = (await command(paths, 'show sess'))
    .split('\n')
    .filter((line) => line.includes(' fe=service '));
  return lines.flatMap((line) => {
    const [, session, address] = /^(0x\S+): .*\bsrc=(\S+):\d+ /.exec(line) ?? [];
    return session === undefined || address === undefined || isAllowed(allowedNetworks, address)
      ? []
      : [session];
  });
}

async function allowsExactly(
  paths: DaemonPaths,
  allowedNetworks: readonly string[] | null,
): Promise<boolean> {
  const now = await currentNetworks(paths);
  return (
    now.toSorted().join() === (allowedNetworks ?? ALL_NETWORKS).toSorted().join() &&
    (await disallowedSessions(paths, allowedNetworks)).length === 0
  );
}

/**
 * Configures the allowed networks of a running gateway, and ends disallowed sessions; others stay.
 * @returns how many
 */
export async function applyAllowedNetworks(
  owner: Owner | null,
  paths: DaemonPaths,
  allowedNetworks: readonly string[] | null,
): Promise<number> {
  const wanted: readonly string[] = allowedNetworks ?? ALL_NETWORKS;
  await writeAllowedNetworks(owner, paths, wanted);
  const now = await currentNetworks(paths);
  const rule = await findRule(paths);
  for (const network of wanted.filter((one) => !now.includes(one)))
    await command(paths, `add acl ${rule} ${network}`);
  for (const network of now.filter((one) => !wanted.includes(one)))
    await command(paths, `del acl ${rule} ${network}`);
  const ended = await disallowedSessions(paths, allowedNetworks);
  for (const session of ended) await command(paths, `shutdown session ${session}`);
  return ended.length;
}

async function writeAllowedNetworks(
  owner: Owner | null,
  paths: DaemonPaths,
  allowedNetworks: readonly string[],
): Promise<void> {
  await replaceConfig(
    owner,
    allowedNetworksFile(paths),
    allowedNetworks.map((network) => `${network}\n`).join(''),
    () => Promise.resolve(),
  );
}

/** Writes the configuration of a gateway, once HAProxy itself has accepted it. */
export async function prepareGateway(
  owner: Owner | null,
  paths: DaemonPaths,
  text: string,
  listener: Listener,
): Promise<void> {
  await mkdir(paths.root, { recursive: true, mode: MODE });
  await writeAllowedNetworks(owner, paths, listener.allowedNetworks ?? ALL_NETWORKS);
  if ((await readOrNull(paths.conf)) === text) return;
  const program = await haproxy();
  await replaceConfig(owner, paths.conf, text, (path) =>
    run(program, ['-c', '-f', path], { cwd: paths.root }),
  );
}

async function haproxy(): Promise<string> {
  const path = await pathOfProgram('haproxy');
  if (path === null) throw new Error(`HAProxy is not installed: ${PROGRAMS.haproxy.remedy}`);
  return path;
}

/** The nodes that the gateway of a set serves from; null: it does not run, or does not answer. */
export async function observeNodes(
  paths: DaemonPaths,
  listener: Listener,
): Promise<ListenerSeen & { running: boolean; serving: number[] | null }> {
  const daemon = await findDaemon(paths);
  if (daemon === null || daemon.frozen) return { ...CLOSED, serving: null };
  const seen = { running: true, ...(await observeListener(paths, daemon.pid, listener)) };
  try {
    const lines = (await command(paths, 'show servers state nodes'))
      .split('\n')
      .map((line) => line.split(' '));
    const serving = lines.flatMap(([, , , name = '', , , state = '']) => {
      const n = /^node(\d+)$/.exec(name)?.[1];
      return n !== undefined && (Number(state) & KEPT_OUT) === 0 ? [Number(n)] : [];
    });
    return { ...seen, serving };
  } catch {
    return { ...seen, serving: null };
  }
}
/**
 * HAProxy's administrative states: in maintenance or draining, for any cause
 * (src/include/haproxy/server-t.h).
 */
const KEPT_OUT = 0x01 | 0x02 | 0x08 | 0x10 | 0x20;

/** How many sessions are routed to a node of a set, including those that have just begun. */
export async function sessionsOf(paths: DaemonPaths, n: number): Promise<number> {
  const rows = (await command(paths, 'show stat')).split('\n').map((line) => line.split(','));
  return rows
    .filter(([, server]) => server === nodeServer(n))
    .reduce((sum, [, , , , current = '0']) => sum + Number(current), 0);
}

/**
 * Has the gateway of a set serve from these of its nodes alone. Sessions that began before go on.
 */
export async function serveFrom(
  paths: DaemonPaths,
  nodes: readonly number[],
  serving: readonly number[],
): Promise<void> {
  const lines = nodes.flatMap((n) =>
    ['nodes', 'sockets'].map(
      (backend) =>
        `set server ${backend}/${nodeServer(n)} state ${serving.includes(n) ? 'ready' : 'maint'}`,
    ),
  );
  const answer = await command(paths, lines.join(';'));
  if (answer !== '')
    throw new Error(`HAProxy does not serve from nodes ${serving.join(', ')}: ${answer}`);
}

/**
 * Starts a prepared gateway, in place of one that hangs. It routes nowhere until it is configured.
 */
export async function openGateway(
  machine: Machine,
  owner: Owner | null,
  paths: DaemonPaths,
  watch: DaemonWatch,
  id: string,
  listener: Listener,
): Promise<void> {
  const program = await haproxy();
  await closeGateway(paths, watch);
  await launchDaemon(machine, owner, paths, [program, '-db', '-f', paths.conf], listener, MODE);
  const end = Date.now() + START_DEADLINE_MS;
  while (!(await answers(paths))) {
    const pid = Number((await readOrNull(paths.pidFile)) ?? '0');
    if (Date.now() > end || (pid !== 0 && (await findProcess(pid)) === null))
      throw new Error(`HAProxy does not start: ${await whyDaemonEnded(paths)}`);
    await sleep(2);
  }
  await watch.watch(id, paths);
}

/** Ends a gateway; its sessions end with it. */
export async function closeGateway(paths: DaemonPaths, watch: DaemonWatch): Promise<void> {
  watch.forget(paths);
  const daemon = await findDaemon(paths);
  if (daemon !== null && !(await stopDaemon(daemon, 'SIGTERM', STOP_DEADLINE_MS)))
    throw new Error(`the gateway (pid ${daemon.pid}) does not end`);
}

/**
 * Routes new sessions to a port of the loopback address. Older sessions end with their server,
 * which has ended before another takes over. HAProxy is not asked to end them: 3.0 leaves a session
 * that was still looking for its server in a state that has no end.
 */
export async function routeTo(paths: DaemonPaths, port: number): Promise<void> {
  const answer = await command(paths, `set server members/primary addr 127.0.0.1 port ${port}`);
  if (!answer.includes('port'))
    throw new Error(`HAProxy does not route to port ${port}: ${answer}`);
}

async function answers(paths: DaemonPaths): Promise<boolean> {
  try {
    await command(paths, 'show info');
    return true;
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ECONNREFUSED')) return false;
    throw error;
  }
}

async function command(paths: DaemonPaths, line: string): Promise<string> {
  const socket = untrustedSocket().connect(adminSocket(paths));
  const answer = new Promise<string>((resolve, reject) => {
    const texts: string[] = [];
    socket.setEncoding('utf8').on('data', (text: string) => texts.push(text));
    socket.on('error', reject);
    socket.on('close', () => resolve(texts.join('').trim()));
    socket.end(`${line}\n`);
  });
  const deadline = { deadlineMs: ANSWER_DEADLINE_MS, pids: () => pidsOf(paths) };
  return inTime(answer, deadline, () => {
    const late = new Error('the gateway did not answer in time');
    socket.destroy(late);
    return late;
  });
}
