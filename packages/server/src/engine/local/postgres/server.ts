/** Starting, finding and ending the processes of one PostgreSQL server. */
import { lstat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Size } from '@howdah/contract';
import { launchDetached, type Detached } from '../host/detached-program.ts';
import { LOCAL_LISTENER, launchOptionsOf, type Listener } from '../network/listener.ts';
import type { InstancePaths } from '../host/layout.ts';
import { readLogs } from '../../postgres/logs.ts';
import { withRemedy } from './start-problem.ts';
import type { Machine } from '../host/machine-record.ts';
import { type Owner, SERVICE_USER } from '../host/users.ts';
import {
  allPids,
  argumentsOf,
  childrenOf,
  findProcess,
  isOwnersProcess,
  pauseMs,
  readEnd,
  readOrNull,
  signal,
  waitUntilGone,
  type Process,
} from '../../../lib/processes.ts';
import {
  HIDDEN,
  workingDirectoriesOf,
  workingDirectoryOf,
} from '../../../lib/working-directories.ts';
import { chmod, chown, mkdir, rename, rm, writeFile } from '../host/root-files.ts';
import { lastLines } from '../../../lib/run.ts';
import { encloseServer, sharedMemoryBytes } from '../host/sandbox.ts';
import { emptyDirectory, removeEntry } from '../../../lib/untrusted-files.ts';
import { trustedControls } from './extension-files.ts';
import { phaseOf, portOfServer, type StopMode } from '../../postgres/postmaster-file.ts';
import { sizeLabel } from '../../postgres/size-label.ts';

/** A server that runs. */
export type Server = {
  postmaster: Process;
  /** The port it listens on, by its own pid file; null: it has only just begun. */
  port: number | null;
} & Started;

/** All that the start of a server needs, as plain data: another process can perform it. */
export type LaunchPlan = Readonly<{
  paths: InstancePaths;
  /** Whether processes of a server that was killed may be left. */
  mayHaveOrphans: boolean;
  program: Detached;
}>;

/**
 * Plans the start of a server.
 *
 * @param owner the user that it runs as; null: our own
 * @param others the directories of services that it reads beside its own
 */
export async function planLaunch(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
  bin: string,
  start: Start,
  listener: Listener = LOCAL_LISTENER,
  others: readonly string[] = [],
): Promise<LaunchPlan> {
  const program = join(bin, 'postgres');
  const command = [
    program,
    '-D',
    paths.data,
    '-c',
    `config_file=${join(paths.config, 'postgresql.conf')}`,
    ...argumentsOfStart(start),
  ];
  return {
    paths,
    mayHaveOrphans: machine.namespaces === 'none',
    program: {
      command,
      owner,
      cwd: '/',
      pidFile: paths.pidFile,
      log: paths.startLog,
      ...launchOptionsOf(listener),
      // The members of a service have one marker, in the directory that all of them are below.
      enclosure: await encloseServer(machine, {
        program,
        own: dirname(paths.marker),
        others,
        config: paths.config,
        instead: await trustedControls(bin, machine.layout),
        sharedMemoryBytes: sharedMemoryBytes(start.size),
      }),
    },
  };
}

/**
 * Starts a server, detached: it outlives the control plane. Returns at once; ask {@link findServer}
 * and {@link phaseOf}. The caller made sure that none runs. The parameters are those of
 * {@link planLaunch}.
 */
export async function launch(...start: Parameters<typeof planLaunch>): Promise<void> {
  await launchPlanned(await planLaunch(...start));
}

/** {@link launch}, planned before, maybe by another process. */
export async function launchPlanned({ paths, mayHaveOrphans, program }: LaunchPlan): Promise<void> {
  if (mayHaveOrphans) await endOrphans(paths);
  // A server that was killed leaves these; with nothing running they only mislead
  // (docs/reliability.md, trap 1).
  await Promise.all([
    removeEntry(join(paths.data, 'postmaster.pid')),
    rm(paths.pidFile, { force: true }),
    emptyDirectory(paths.socket),
  ]);
  await launchDetached(program);
}

/**
 * The fence: ends all processes that work on an instance's data, and waits until they are gone. A
 * dead server may have backends that acknowledge writes for some 15 ms more (docs/performance.md,
 * section 3). In a PID namespace `unshare` ends last, and so shows that none is left.
 *
 * @returns whether nothing is left
 */
export async function fence(paths: InstancePaths): Promise<boolean> {
  const launched = await findProcess(Number((await readOrNull(paths.pidFile)) ?? '0'));
  const ours = launched !== null && (await isOf(launched.pid, paths));
  const server = await findServer(paths);
  if (server !== null) signal(server.postmaster.pid, 'SIGKILL');
  if (ours && !(await waitUntilGone(launched, ORPHAN_DEADLINE_MS))) return false;
  return endOrphans(paths);
}

/**
 * Whether a process is the one that {@link launch} started for an instance. Its pid may belong to
 * another process by now.
 */
async function isOf(pid: number, paths: InstancePaths): Promise<boolean> {
  return (await argumentsOf(pid)).includes(paths.data);
}

/**
 * Ends the backends that a killed server left behind: a busy one outlives it for as long as it
 * likes, holds its shared memory, and no new server can start (docs/performance.md, section 3). In
 * a PID namespace they went with it.
 */
async function endOrphans(paths: InstancePaths): Promise<boolean> {
  const candidates = (await allPids()).filter((pid) => isOwnersProcess(pid, paths.data));
  for (const [pid, directory] of await workingDirectoriesOf(candidates)) {
    if (directory !== paths.data) continue;
    const orphan = await findProcess(pid);
    if (orphan?.command !== 'postgres') continue;
    signal(pid, 'SIGKILL');
    if (!(await waitUntilGone(orphan, ORPHAN_DEADLINE_MS))) return false;
  }
  return true;
}
/** Nothing can be done with the data before: a process on a slow disk is waited for. */
const ORPHAN_DEADLINE_MS = 60_000;

/**
 * The server of an instance, if one runs: by the pid file, or, where that names no server of it, by
 * looking at every process.
 */
export async function findServer(paths: InstancePaths): Promise<Server | null> {
  const noted = Number((await readOrNull(paths.pidFile)) ?? '0');
  if (noted === 0) return null;
  for (const pid of [noted, ...(await childrenOf(noted))]) {
    const server = await serverAt(pid, paths);
    if (server !== null) return server;
  }
  for (const pid of await allPids()) {
    const server = await serverAt(pid, paths);
    if (server !== null && (await serverAt(server.postmaster.parentPid, paths)) === null)
      return server;
  }
  return null;
}

async function serverAt(pid: number, paths: InstancePaths): Promise<Server | null> {
  const [program, flag, directory, ...rest] = await argumentsOf(pid);
  if (program?.endsWith('/postgres') !== true || flag !== '-D' || directory !== paths.data)
    return null;
  // A process that has just begun has another working directory, and is found a moment later.
  const at = workingDirectoryOf(pid);
  if (at !== HIDDEN && at !== paths.data) return null;
  if (!isOwnersProcess(pid, paths.data)) return null;
  const postmaster = await findProcess(pid);
  if (postmaster === null) return null;
  // Asking as its user takes milliseconds, and servers are looked for all the time: our own record
  // of what was started is enough.
  if (at === HIDDEN && !(await isLaunched(postmaster, paths))) return null;
  return {
    postmaster,
    ...startedBy(rest),
    port: portOfServer(paths),
  };
}

/** Whether a process was started for an instance, by the pid file, which only root can write. */
async function isLaunched(
  { pid, parentPid }: Process,
  { pidFile }: InstancePaths,
): Promise<boolean> {
  const noted = Number((await readOrNull(pidFile)) ?? '0');
  return noted === pid || noted === parentPid;
}

/**
 * The data directory of every server on the machine that Howdah started, of any installation; once
 * for each server.
 */
export async function runningServers(): Promise<string[]> {
  return (await runningPostmasters()).map(({ data }) => data);
}

/** The same, with the process of each. */
export async function runningPostmasters(): Promise<{ data: string; pid: number }[]> {
  const candidates = await Promise.all(
    (await allPids()).map(async (pid) => ({ pid, args: await argumentsOf(pid) })),
  );
  const servers = candidates.filter(
    ({ args }) =>
      args[0]?.endsWith('/postgres') === true && args[1] === '-D' && startedBy(args).size !== null,
  );
  const pids = new Set(servers.map(({ pid }) => pid));
  const directories = await workingDirectoriesOf([...pids]);
  const tops = await Promise.all(
    servers.map(async ({ pid, args }) => {
      const found = await findProcess(pid);
      // A process that was just forked still carries its parent's command line.
      const data = args[2];
      return found === null ||
        pids.has(found.parentPid) ||
        data === undefined ||
        directories.get(pid) !== data ||
        !isOwnersProcess(pid, data)
        ? undefined
        : { data, pid };
    }),
  );
  return tops.filter((server) => server !== undefined);
}

/**
 * Waits until a server that was just launched, or found running, is ready, has ended, or the time
 * is up.
 */
export async function waitUntilReady(
  paths: InstancePaths,
  deadlineMs: number,
): Promise<'ready' | 'starting' | 'ended'> {
  const begun = Date.now();
  const end = begun + deadlineMs;
  let launched = 0;
  for (;;) {
    if ((await phaseOf(paths)) === 'ready') return 'ready';
    const noted = Number((await readOrNull(paths.pidFile)) ?? '0');
    // Another process has stopped it, and removed its pid file.
    if (noted === 0 && launched !== 0) return 'ended';
    launched = noted;
    if (launched !== 0 && (await findProcess(launched)) === null) return 'ended';
    if (Date.now() > end) return launched === 0 ? 'ended' : 'starting';
    await sleep(pauseMs(begun));
  }
}

const STOP_SIGNAL = {
  fast: 'SIGINT',
  immediate: 'SIGQUIT',
  kill: 'SIGKILL',
} as const satisfies Record<StopMode, NodeJS.Signals>;

/**
 * Ends a server and sees it gone, with all its backends: in a PID namespace they go with it;
 * without one they are waited for, since a busy backend outlives its postmaster
 * (docs/performance.md, section 3).
 *
 * @returns whether it was gone before the deadline
 */
export async function stopServer(
  { namespaces }: Pick<Machine, 'namespaces'>,
  { postmaster }: Server,
  mode: StopMode,
  deadlineMs: number,
): Promise<boolean> {
  const backends = namespaces === 'none' ? await childrenOf(postmaster.pid) : [];
  signal(postmaster.pid, STOP_SIGNAL[mode]);
  if (!(await waitUntilGone(postmaster, deadlineMs))) return false;
  for (const pid of backends) {
    const backend = await findProcess(pid);
    if (backend === null) continue;
    if (mode === 'kill') signal(pid, 'SIGKILL');
    if (!(await waitUntilGone(backend, deadlineMs))) return false;
  }
  return true;
}

/**
 * Why a server ended: what it printed before its log collector took over, or the last fatal entry
 * of its log.
 *
 * @param launchedMs when it was launched, in ms since the epoch; earlier entries belong to
 *   earlier servers
 */
export async function whyItEnded(paths: InstancePaths, launchedMs: number): Promise<string> {
  const started = (await readEnd(paths.startLog)) ?? '';
  const early = started.split('\n').findLast((line) => /(FATAL|PANIC): /.test(line));
  const why =
    early ??
    (await lastEntry(paths, launchedMs, ['FATAL', 'PANIC'])) ??
    // The end of a process that the kernel kills is no error of its own.
    (await lastEntry(paths, launchedMs, ['LOG'], 'was terminated by signal 9'));
  if (why !== null) return withRemedy(why, started);
  return (
    lastLines(started) ||
    'it said nothing; if the kernel has killed it, journalctl -k --grep oom shows why'
  );
}

async function lastEntry(
  paths: InstancePaths,
  sinceMs: number,
  severities: readonly string[],
  text?: string,
): Promise<string | null> {
  const search = text === undefined ? [] : [text];
  const query = { sinceMs, untilMs: null, cursor: null, search, severities, limit: 1 };
  const { entries } = await readLogs(paths.logs, query).catch(() => ({ entries: [] }));
  return entries[0]?.message.replaceAll('\n', '; ') ?? null;
}

/**
 * Makes the directories of an instance, all but its data. Those that the server writes belong to
 * its user.
 */
export async function makeInstanceDirectories(
  owner: Owner | null,
  paths: InstancePaths,
): Promise<void> {
  await mkdir(paths.root, { recursive: true, mode: 0o710 });
  // A link of the operator's to another disk is left as it is: a disk that is not there must not
  // keep a server from starting.
  const ownArchive = (await lstat(paths.archive).catch(() => null))?.isDirectory() ?? true;
  const made = [
    [paths.config, 0o750],
    [paths.socket, 0o700],
    [paths.logs, 0o700],
    ...(ownArchive ? ([[paths.archive, 0o700]] as const) : []),
    [paths.snapshots, 0o700],
  ] as const;
  await Promise.all(made.map(([path, mode]) => mkdir(path, { recursive: true, mode })));
  if (owner === null) return;
  const { uid, gid } = owner;
  await Promise.all([
    chown(paths.root, 0, gid),
    chown(paths.config, 0, gid),
    chown(paths.socket, uid, gid),
    // The gateway of a read replica set is in this group: it connects to the sockets of the nodes.
    ...(owner.name === SERVICE_USER ? [chmod(paths.socket, 0o710)] : []),
    closeSnapshots(paths),
    chown(paths.logs, uid, gid),
    ...(ownArchive ? [chown(paths.archive, uid, gid)] : []),
  ]);
}

/**
 * Only root enters the snapshots of a service: they are what is restored, and backed up off this
 * machine. Older releases let the service's user in.
 */
export async function closeSnapshots({ snapshots }: InstancePaths): Promise<void> {
  await chown(snapshots, 0, 0);
  await chmod(snapshots, 0o700);
}

/**
 * Writes configuration files: root's, readable by the server's group (PostgreSQL takes a key of
 * root's at 0640).
 */
export async function writeConfig(
  owner: Owner | null,
  paths: InstancePaths,
  files: Readonly<Record<string, string>>,
): Promise<void> {
  const mode = owner === null ? 0o600 : 0o640;
  const write = async ([name, text]: [string, string]): Promise<void> => {
    const path = join(paths.config, name);
    // Written under another name: a disk without space must not leave a server with half of its
    // settings, nor stop one that has all of them.
    const isWritten = (await readOrNull(path)) === text;
    if (!isWritten) await writeFile(`${path}.new`, text, { mode });
    if (owner !== null) await chown(isWritten ? path : `${path}.new`, 0, owner.gid);
    if (!isWritten) await rename(`${path}.new`, path);
  };
  await Promise.all(Object.entries(files).map(write));
}

/** Whether nothing listens on a port of this address. */
export async function portIsFree(address: string, port: number): Promise<boolean> {
  const probe = createServer();
  return new Promise((resolve) => {
    probe.once('error', () => resolve(false));
    probe.listen({ host: address, port, exclusive: true }, () => probe.close(() => resolve(true)));
  });
}

// How a server was started, as its command line says.

/**
 * How a server is started: with the settings of a size, with libraries beside those of its add-ons
 * (`preload`), and after so many requested restarts.
 */
type Start = Readonly<{ size: Size; preload: readonly string[]; restarts: number }>;

/** That of a server which is no service's: it is never resized or restarted on request. */
export const PLAIN_START: Start = { size: 'shared', preload: [], restarts: 0 };

/** The start of a running server; `size` is a {@link sizeLabel}. */
export type Started = { size: string | null; restarts: number };

/**
 * On the command line of every server of ours: the size it was started with. A newer Howdah may
 * write other settings for the same size; they wait for the next start, since an upgrade of the
 * control plane must not end sessions.
 */
const SIZE_SETTING = 'howdah.size=';

/** Beside it: how many restarts of the service had been requested. */
const RESTARTS_SETTING = 'howdah.restarts=';

export function argumentsOfStart({ size, preload, restarts }: Start): string[] {
  return [
    '-c',
    `${SIZE_SETTING}${sizeLabel(size, preload)}`,
    '-c',
    `${RESTARTS_SETTING}${restarts}`,
  ];
}

/** @param args of a server's command line */
export function startedBy(args: readonly string[]): Started {
  const valueOf = (setting: string): string | undefined =>
    args.find((argument) => argument.startsWith(setting))?.slice(setting.length);
  return {
    size: valueOf(SIZE_SETTING) ?? null,
    // Older releases did not count them.
    restarts: Number(valueOf(RESTARTS_SETTING) ?? '0'),
  };
}
