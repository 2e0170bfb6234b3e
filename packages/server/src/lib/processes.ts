/**
 * Facts about processes from the kernel. Linux only: /proc is the one source that also shows
 * zombies and start times, without which a recycled pid or a `<defunct>` server looks alive
 * (docs/reliability.md, trap 1).
 */
import { constants, lstatSync, readFileSync } from 'node:fs';
import { lstat, open, readFile, readdir, type FileHandle } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A process that exists and is not a zombie. The start time distinguishes it from a later one with
 * the same pid.
 */
export type Process = {
  pid: number;
  parentPid: number;
  command: string;
  startTicks: string;
  /** Stopped by a signal or a debugger. */
  frozen: boolean;
  /** Waiting for something to happen. */
  asleep: boolean;
  cpuTicks: number;
  childCpuTicks: number;
};

/** Finds a process; null: there is none, or only its zombie. */
export async function findProcess(pid: number): Promise<Process | null> {
  const stat = await readOrNull(`/proc/${pid}/stat`);
  if (stat === null) return null;
  // The command is in parentheses and may itself contain any character: fields are counted from the
  // last parenthesis.
  const close = stat.lastIndexOf(')');
  const fields = stat.slice(close + 2).split(' ');
  const [state, parent] = fields;
  if (state === undefined || state === 'Z' || state === 'X') return null;
  return {
    pid,
    parentPid: Number(parent),
    frozen: state === 'T' || state === 't',
    asleep: state === 'S',
    command: stat.slice(stat.indexOf('(') + 1, close),
    cpuTicks: Number(fields[11]) + Number(fields[12]),
    childCpuTicks: Number(fields[13]) + Number(fields[14]),
    startTicks: fields[19] ?? '',
  };
}

/** The arguments a process was started with; empty when it is gone. */
export async function argumentsOf(pid: number): Promise<string[]> {
  return ((await readOrNull(`/proc/${pid}/cmdline`)) ?? '').split('\0');
}

/** The user that a process runs as; null: it is gone, or about to change it. */
export function uidOf(pid: number): number | null {
  return idsOf(pid)?.uid ?? null;
}

/** The same with its group. */
export function idsOf(pid: number): { uid: number; gid: number } | null {
  const status = readNow(`/proc/${pid}/status`) ?? '';
  const [uid, gid] = ['Uid', 'Gid'].map((which) => {
    const ids = new RegExp(`^${which}:\\t(\\d+)\\t(\\d+)\\t(\\d+)`, 'm').exec(status) ?? [];
    const [, real, effective, saved] = ids;
    return real === undefined || real !== effective || real !== saved ? null : Number(real);
  });
  return uid == null || gid == null ? null : { uid, gid };
}

/**
 * Whether a process runs as the owner of a directory that is inside one of root's. A process
 * chooses its command line and working directory: one of another service must not be taken for the
 * server of this one.
 */
export function isOwnersProcess(pid: number, directory: string): boolean {
  const uid = uidOf(pid);
  return uid !== null && uid === lstatSync(directory, { throwIfNoEntry: false })?.uid;
}

/** The direct children of a process. */
export async function childrenOf(pid: number): Promise<number[]> {
  return ((await readOrNull(`/proc/${pid}/task/${pid}/children`)) ?? '')
    .split(' ')
    .filter(Boolean)
    .map(Number);
}

/**
 * The memory of a process, with its share of shared pages; without them where the kernel does not
 * show that share. 0 when it is gone.
 */
export async function proportionalBytes(pid: number): Promise<number> {
  // The kernel walks the process' page tables for it, which takes time: nothing must wait for it.
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8').catch((error: unknown) =>
    isErrno(error, 'EACCES', 'EPERM') ? readNow(`/proc/${pid}/status`) : null,
  );
  return Number(/^(?:Pss|RssAnon):\s+(\d+) kB/m.exec(rollup ?? '')?.[1] ?? 0) * 1024;
}

/** The wait of a process for a processor, in ns; null: it is gone, or the kernel does not count. */
export function runDelayNs(pid: number): number | null {
  const waited = /^\d+ (\d+) /.exec(readNow(`/proc/${pid}/schedstat`) ?? '')?.[1];
  return waited === undefined ? null : Number(waited);
}

/** All pids of the machine. */
export async function allPids(): Promise<number[]> {
  return (await readdir('/proc')).filter((entry) => /^[0-9]+$/.test(entry)).map(Number);
}

/** Sends a signal; a process that is gone already is no error. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (!isErrno(error, 'ESRCH')) throw error;
  }
}

/** Waits until a process is gone. @returns whether it went before the deadline */
export async function waitUntilGone(target: Process, deadlineMs: number): Promise<boolean> {
  const begun = Date.now();
  const end = begun + deadlineMs;
  for (;;) {
    const now = await findProcess(target.pid);
    if (now === null || now.startTicks !== target.startTicks) return true;
    if (Date.now() > end) return false;
    await sleep(pauseMs(begun));
  }
}

/**
 * The pause before the next check of work that takes time: a twentieth of the time so far, at least
 * a millisecond. So the end is noticed with little delay, and many such waits at the same time
 * leave the processors to the work that they wait for.
 *
 * @param begunMs when the wait began, in ms since the epoch
 */
export function pauseMs(begunMs: number): number {
  return Math.min(Math.max((Date.now() - begunMs) / 20, 1), 100);
}

/** Whether an error is this operating system error. */
export function isErrno(error: unknown, ...codes: string[]): boolean {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'string' &&
    codes.includes(error.code)
  );
}

/**
 * A small file's text, or null where there is none (processes vanish at any moment). It is read
 * synchronously: an observation reads a dozen of them, and through the thread pool each takes ten
 * times as long.
 */
export async function readOrNull(path: string): Promise<string | null> {
  return readNow(path);
}

/** The same for callers that cannot wait. */
export function readNow(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ESRCH', 'ENOTDIR', 'EACCES', 'EPERM')) return null;
    throw error;
  }
}

/** Read of a file that grows: its reader looks for the last lines. */
const END_BYTES = 64 * 1024;

/**
 * The end of a file of any size, or null where there is none; a link or a FIFO in its place is
 * neither followed nor waited for.
 */
export async function readEnd(path: string): Promise<string | null> {
  const file = await openRegular(path);
  if (file === null) return null;
  try {
    const { size } = await file.stat();
    const end = Buffer.alloc(Math.min(size, END_BYTES));
    await file.read(end, 0, end.length, size - end.length);
    return end.toString('utf8');
  } finally {
    await file.close();
  }
}

/**
 * Opens a regular file without a second name for reading; null: there is none, or something else
 * has its name.
 */
export async function openRegular(path: string): Promise<FileHandle | null> {
  let file: FileHandle;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES', 'ELOOP', 'ENXIO')) return null;
    throw error;
  }
  const found = await file.stat();
  // The second name (hard link) may be that of another user's file.
  if (found.isFile() && found.nlink <= 1) return file;
  await file.close();
  return null;
}

/** Whether anything has this path, even a link to nothing. */
export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES')) return false;
    throw error;
  }
}

/** For `catch`: returns null for these operating system errors. */
export const noneOf =
  (...codes: string[]) =>
  (error: unknown): null => {
    if (isErrno(error, ...codes)) return null;
    throw error;
  };
