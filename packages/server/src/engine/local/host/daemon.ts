/**
 * Programs beside PostgreSQL that belong to an installation and outlive the control plane:
 * PgBouncer, HAProxy.
 *
 * Each has a directory of its own as its working directory. It is found again by that and by the
 * name of its program. Its standard input is a pipe, which the kernel closes when the process dies,
 * no matter which control plane started it and how it ends: the reader at the other end notices at
 * once.
 */
import type { Rounds } from '../../../lib/rounds.ts';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { Socket } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { launchDetached } from './detached-program.ts';
import { launchOptionsOf, type Listener } from '../network/listener.ts';
import type { DaemonPaths } from './layout.ts';
import type { Owner } from './users.ts';
import {
  allPids,
  argumentsOf,
  childrenOf,
  findProcess,
  isErrno,
  isOwnersProcess,
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
import { chmod, chown, mkdir, open, rename, rm, truncate, writeFile } from './root-files.ts';
import { lastLines, run } from '../../../lib/run.ts';
import { ACTIVATOR_FILE } from '../../../paths.ts';
import { encloseDaemon, type Encloser } from './sandbox.ts';
import { openPipe, readTextIfSafe, removeEntry } from '../../../lib/untrusted-files.ts';

/** The programs, and the command that adds each. */
export const PROGRAMS = {
  pgbouncer: { what: 'PgBouncer', versionFlag: '--version', remedy: 'apt-get install pgbouncer' },
  haproxy: { what: 'HAProxy', versionFlag: '-v', remedy: 'apt-get install haproxy' },
} as const;
export type ProgramName = keyof typeof PROGRAMS;

/** A program that is installed; its version as digits and points. */
export type Program = { path: string; version: string };

/** A program with its version, for which it is run; null: it is not installed. */
export async function findProgram(name: ProgramName): Promise<Program | null> {
  const path = await pathOfProgram(name);
  if (path === null) return null;
  return {
    path,
    version: /\d+(\.\d+)+/.exec(await run(path, [PROGRAMS[name].versionFlag]))?.[0] ?? 'unknown',
  };
}

/**
 * Where a program is installed; null: it is not. Debian's are in a directory that a user's PATH may
 * lack.
 */
export async function pathOfProgram(name: ProgramName): Promise<string | null> {
  for (const directory of [
    ...(process.env['PATH'] ?? '').split(':').filter(Boolean),
    '/usr/sbin',
  ]) {
    const path = join(directory, name);
    try {
      await access(path, constants.X_OK);
      return path;
    } catch {
      // the next directory may have it
    }
  }
  return null;
}

/**
 * A daemon's first process, if it runs. Its pid file holds its pid from before it began; older
 * releases wrote it into its own directory.
 */
export async function findDaemon(paths: DaemonPaths): Promise<Process | null> {
  const noted = await readOrNull(paths.pidFile);
  const pid = Number(noted ?? readTextIfSafe(join(paths.root, 'pid')) ?? '0');
  if (pid === 0 || !(await runsProgram(pid)) || !isOwnersProcess(pid, paths.root)) return null;
  const at = workingDirectoryOf(pid);
  // Where it is hidden, the pid file is enough, which only root can write.
  return at === paths.root || (at === HIDDEN && noted !== null) ? findProcess(pid) : null;
}

/** The process of a daemon, which answers for it; none: it does not run. */
export async function pidsOf(paths: DaemonPaths): Promise<number[]> {
  const daemon = await findDaemon(paths);
  return daemon === null ? [] : [daemon.pid];
}

/** Every daemon on the machine, of any installation: its directory and its first process. */
export async function runningDaemons(): Promise<{ root: string; process: Process }[]> {
  const pids = await allPids();
  const isOne = await Promise.all(pids.map(runsProgram));
  const directories = await workingDirectoriesOf(pids.filter((_, index) => isOne[index]));
  const found = await Promise.all(
    [...directories].map(async ([pid, root]) => {
      const process = isOwnersProcess(pid, root) ? await findProcess(pid) : null;
      // HAProxy's first process has others below it.
      return process === null || directories.get(process.parentPid) === root
        ? null
        : { root, process };
    }),
  );
  return found.filter((daemon) => daemon !== null);
}

const isActivator = (script: string | undefined): boolean =>
  script !== undefined && basename(script) === basename(ACTIVATOR_FILE);

/** Whether a process runs one of the programs, or is an activator. */
async function runsProgram(pid: number): Promise<boolean> {
  const [program, script] = await argumentsOf(pid);
  return program !== undefined && (basename(program) in PROGRAMS || isActivator(script));
}

/** A program and its arguments. */
export type Command = readonly [string, ...string[]];

/**
 * Starts a daemon. Returns at once; the caller made sure that none runs, and asks it whether it is
 * ready.
 *
 * @param mode of its directory
 */
export async function launchDaemon(
  machine: Encloser,
  owner: Owner | null,
  paths: DaemonPaths,
  [program, ...args]: Command,
  listener: Listener,
  mode = 0o700,
): Promise<void> {
  await mkdir(paths.root, { recursive: true, mode });
  await chmod(paths.root, mode);
  if (owner !== null) await chown(paths.root, owner.uid, owner.gid);
  await rm(paths.pidFile, { force: true });
  await rm(paths.lifeline, { force: true });
  // Files of an older release: the daemon would be searched by them.
  for (const name of ['pid', 'lifeline', 'log']) await removeEntry(join(paths.root, name));
  await run('mkfifo', ['-m', '600', paths.lifeline]);
  // Opened for reading too: otherwise it would wait for a reader.
  const lifeline = await open(paths.lifeline, 'r+');
  try {
    const { pidFile, log, root: cwd } = paths;
    const own = dirname(cwd);
    const enclosure = await encloseDaemon(machine, cwd, {
      program,
      own,
      others: [],
      config: join(own, 'config'),
    });
    const command = [program, ...args];
    await launchDetached({
      command,
      owner,
      cwd,
      pidFile,
      log,
      ...launchOptionsOf(listener),
      enclosure,
      input: lifeline.fd,
    });
  } finally {
    await lifeline.close();
  }
}

/** Takes away what is left of a daemon that has ended. */
export async function removeDaemon({
  root,
  conf,
  pidFile,
  lifeline,
  log,
}: DaemonPaths): Promise<void> {
  for (const path of [root, conf, pidFile, lifeline, log]) await removeEntry(path);
}

/** Why a daemon ended: the end of what it said. */
export async function whyDaemonEnded(paths: DaemonPaths): Promise<string> {
  return lastLines((await readEnd(paths.log)) ?? '') || 'it said nothing';
}

/** Any client can make a daemon print messages: a log larger than this is emptied. */
const LOG_MAX_BYTES = 10e6;

/** Bounds the file that a daemon logs to. */
export async function capLog({ log }: DaemonPaths): Promise<void> {
  const size = (await stat(log).catch(() => null))?.size ?? 0;
  if (size > LOG_MAX_BYTES) await truncate(log);
}

/**
 * Stops a daemon and its child processes: by the given signal, then by SIGKILL.
 *
 * @returns whether all of it was gone in time
 */
export async function stopDaemon(
  daemon: Process,
  name: NodeJS.Signals,
  deadlineMs: number,
): Promise<boolean> {
  const below = (await Promise.all((await childrenOf(daemon.pid)).map(findProcess))).filter(
    (found) => found !== null,
  );
  signal(daemon.pid, name);
  await waitUntilGone(daemon, deadlineMs);
  for (const process of [daemon, ...below]) {
    if (await waitUntilGone(process, 0)) continue;
    signal(process.pid, 'SIGKILL');
    if (!(await waitUntilGone(process, KILL_DEADLINE_MS))) return false;
  }
  return true;
}
/** A killed process is gone at once, unless its machine or its disk is busy. */
const KILL_DEADLINE_MS = 60_000;

/**
 * Replaces a configuration file as a whole, once its checker has accepted it. Root's, readable by
 * the daemon's group.
 *
 * @param check checks the file under a path, and throws its faults
 */
export async function replaceConfig(
  owner: Owner | null,
  path: string,
  text: string,
  check: (path: string) => Promise<unknown>,
): Promise<void> {
  const unfinished = `${path}.new`;
  await writeFile(unfinished, text, { mode: owner === null ? 0o600 : 0o640, flush: true });
  if (owner !== null) await chown(unfinished, 0, owner.gid);
  try {
    await check(unfinished);
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}

/**
 * A pipe that a daemon holds open; that of one which an older release started is in its own
 * directory.
 */
function openLifeline(paths: DaemonPaths): number {
  try {
    return openPipe(paths.lifeline);
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error;
    return openPipe(join(paths.root, 'lifeline'));
  }
}

/**
 * Reports daemons that died or were stopped by a signal.
 *
 * @param changed called with the `id` of the watch
 */
export function createDaemonWatch(rounds: Rounds, changed: (id: string) => void) {
  const watches = new Map<string, { id: string; paths: DaemonPaths; lifeline: Socket }>();

  const checkFrozen = async (): Promise<void> => {
    for (const { id, paths } of watches.values())
      if ((await findDaemon(paths))?.frozen === true) changed(id);
  };
  const round = rounds.every('frozenDaemons', checkFrozen);
  round.startLater();

  const drop = (paths: DaemonPaths): void => {
    const watch = watches.get(paths.root);
    watches.delete(paths.root);
    watch?.lifeline.destroy();
  };

  return {
    /**
     * Watches a daemon that runs.
     *
     * @returns whether it still runs, now that its end would be reported
     */
    watch: async (id: string, paths: DaemonPaths): Promise<boolean> => {
      drop(paths);
      const fd = openLifeline(paths);
      const lifeline = new Socket({ fd, readable: true, writable: false });
      lifeline.on('error', () => undefined); // 'close' follows
      lifeline.once('close', () => {
        if (watches.get(paths.root)?.lifeline !== lifeline) return;
        watches.delete(paths.root);
        changed(id);
      });
      lifeline.resume();
      watches.set(paths.root, { id, paths, lifeline });
      // An end before the pipe was open is not reported.
      if ((await findDaemon(paths)) !== null) return true;
      drop(paths);
      return false;
    },
    /** Ends a watch without a report: before a daemon is stopped on purpose. */
    forget: drop,
    isWatched: (paths: DaemonPaths): boolean => watches.has(paths.root),
    close: (): void => {
      void round.close();
      for (const { paths } of watches.values()) drop(paths);
    },
  };
}
export type DaemonWatch = ReturnType<typeof createDaemonWatch>;
