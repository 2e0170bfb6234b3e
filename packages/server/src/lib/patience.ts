/**
 * Deadlines after which something is killed, replaced or given up. They are short, because the
 * clients of a service wait meanwhile. On a busy machine a healthy process is as late as one that
 * hangs. So these deadlines count work and not wall clock time. No time counts in which
 *
 * - the process that is waited for is runnable and gets no processor,
 * - the disk is saturated: all that could run waits for it,
 * - this process was paused: an answer may be there that it has not read yet.
 *
 * A stopped process, one that waits for a lock and one that spins do not lack a processor. They are
 * found in the documented time, and on the busiest machine in at most {@link MAX_STRETCH} times of
 * it: otherwise a tenant who takes all processors could hide a server that hangs.
 *
 * | deadline | where | why it is short |
 * |---|---|---|
 * | ¾ `HOWDAH_HEARTBEAT_MS` | `regions.ts`, heartbeat | a stopped primary is replaced (P4) |
 * | 5 s | `decide-ha.ts`, HANGS_AFTER_MS | a primary that hangs otherwise is replaced |
 * | 5 s, 20 s | `monitor.ts`; `decide.ts`, KILL_AFTER_MS | a server that hangs is restarted |
 * | 5 s | `metadata-database.ts`, by the monitor | without it the API answers 503 |
 * | 5 s | `monitor.ts`, QUERY_DEADLINE_MS | the round that finds the hang waits for the answer |
 * | 2 s | `gateway.ts`, ANSWER_DEADLINE_MS | the same, and the standby that takes over |
 * | 5 s | `pooler.ts`, ANSWER_DEADLINE_MS | the same |
 * | 5 s | `configuration-reload.ts` | disallowed sessions end only after the reload |
 *
 * Other deadlines are in wall clock time, and a minute or more unless their comment has a reason
 * (docs/decisions/0077-deadlines.md).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { readNow } from './processes.ts';

/** By how much the busiest machine can stretch a deadline. */
export const MAX_STRETCH = 6;

/** A timer that is later than this shows that this process was paused, or its machine was busy. */
const PAUSED_MS = 20;

/** A deadline is examined this many times: enough to see what delays, and cheap. */
const TICKS = 10;

/** The time between two ticks of a wait. */
export type Interval = Readonly<{
  /** The time that the timer was set to, and the time that has passed. */
  plannedMs: number;
  elapsedMs: number;
  /** For how long the process that is waited for was runnable and had no processor. */
  runDelayMs: number;
  /** For how long all that could run waited for the disk. */
  ioStallMs: number;
}>;

/**
 * How much of an interval counts. Several delays may be at the same time, so only the longest one
 * is taken off. A pause of this process counts twice: as time that nobody watched,
 * and as time that the answer needs to arrive after it.
 */
export function countMs({ plannedMs, elapsedMs, runDelayMs, ioStallMs }: Interval): number {
  const lateMs = elapsedMs - plannedMs;
  const isPaused = lateMs > PAUSED_MS;
  const watchedMs = isPaused ? plannedMs : elapsedMs;
  const delayedMs = Math.max(runDelayMs, ioStallMs, isPaused ? lateMs : 0);
  return Math.max(watchedMs / MAX_STRETCH, watchedMs - delayedMs);
}

/** How long a process ran and waited for a processor, since it began. */
export type Scheduled = Readonly<{ ranMs: number; delayedMs: number; isRunnable: boolean }>;

/** The figures of the kernel at a tick. */
export type Sample = Readonly<{
  processes: ReadonlyMap<number, Scheduled>;
  /** Since boot; null: the kernel does not measure it. */
  ioStallMs: number | null;
}>;

/** The longest wait for a processor among some processes, between two samples. */
export function runDelayMs(before: Sample, now: Sample, elapsedMs: number): number {
  const delays = [...now.processes].map(([pid, { ranMs, delayedMs, isRunnable }]) => {
    const earlier = before.processes.get(pid) ?? { ranMs: 0, delayedMs: 0 };
    const grownMs = delayedMs - earlier.delayedMs;
    // The kernel adds a wait once it has ended.
    const hasNotRun = grownMs === 0 && ranMs === earlier.ranMs;
    return isRunnable && hasNotRun ? elapsedMs : grownMs;
  });
  return Math.max(0, ...delays);
}

/** Reads the samples of a wait. @param pids of the processes that are waited for */
export type Sampler = (pids: readonly number[]) => Sample;

export const readSample: Sampler = (pids) => ({
  processes: new Map(
    pids.flatMap((pid) => {
      const scheduled = parseScheduled(
        readIfAny(`/proc/${pid}/schedstat`),
        readIfAny(`/proc/${pid}/stat`),
      );
      return scheduled === null ? [] : [[pid, scheduled]];
    }),
  ),
  ioStallMs: parseStall(readIfAny('/proc/pressure/io')),
});

/**
 * @param schedstat the nanoseconds that a process ran and waited, and its number of turns
 * @param stat its state comes after the command, which may have any characters
 */
export function parseScheduled(schedstat: string, stat: string): Scheduled | null {
  const [, ran, delayed] = /^(\d+) (\d+) /.exec(schedstat) ?? [];
  if (ran === undefined || delayed === undefined) return null;
  const isRunnable = stat.slice(stat.lastIndexOf(')') + 2).startsWith('R');
  return { ranMs: Number(ran) / 1e6, delayedMs: Number(delayed) / 1e6, isRunnable };
}

/** The time in which all that could run waited, in ms; null: it is not measured. */
export function parseStall(pressure: string): number | null {
  const total = /^full .*\btotal=(\d+)$/m.exec(pressure)?.[1];
  return total === undefined ? null : Number(total) / 1000;
}

/** Empty if there is no such file, or the kernel refuses it: then nothing counts as a delay. */
function readIfAny(path: string): string {
  try {
    return readNow(path) ?? '';
  } catch {
    return '';
  }
}

/** A wait for an answer. */
export type Patience = Readonly<{
  /** How much of the wait has counted, at the last tick. */
  countedMs: () => number;
  /** Whether the deadline is over; the count goes on. */
  isOver: () => boolean;
  /** Ends the wait: the answer is here. To be called in any case. */
  stop: () => void;
}>;

export type PatienceOptions = Readonly<{
  deadlineMs: number;
  /** The processes that are waited for. */
  pids: () => Promise<readonly number[]>;
  /** Called once, when the deadline is over. */
  onOver?: () => void;
  sample?: Sampler;
}>;

/** Begins to wait. */
export function startPatience({
  deadlineMs,
  pids,
  onOver = () => undefined,
  sample = readSample,
}: PatienceOptions): Patience {
  const tickMs = deadlineMs / TICKS;
  let counted = 0;
  let isStopped = false;
  // Taken at the first tick: most answers come before it.
  let before: Sample | null = null;
  let timer: NodeJS.Timeout;

  const schedule = (): void => {
    const leftMs = deadlineMs - counted;
    const nextMs = leftMs > 0 ? Math.min(tickMs, leftMs) : tickMs;
    // Timers have whole milliseconds. The rest may become less and less, and no tick is tiny.
    const plannedMs = Math.ceil(Math.max(nextMs, tickMs / TICKS));
    const begunMs = performance.now();
    timer = setTimeout(() => void tick(plannedMs, performance.now() - begunMs), plannedMs);
  };
  const tick = async (plannedMs: number, elapsedMs: number): Promise<void> => {
    const now = sample(await pids().catch(() => []));
    const interval = { plannedMs, elapsedMs, ...delaysOf(before, now, elapsedMs) };
    before = now;
    // An answer that has arrived is read first, and ends the wait.
    await nextTurn();
    if (isStopped) return;
    const wasOver = counted >= deadlineMs;
    counted += countMs(interval);
    schedule();
    if (!wasOver && counted >= deadlineMs) onOver();
  };

  schedule();
  return {
    countedMs: () => counted,
    isOver: () => counted >= deadlineMs,
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}

function delaysOf(
  before: Sample | null,
  now: Sample,
  elapsedMs: number,
): Pick<Interval, 'runDelayMs' | 'ioStallMs'> {
  if (before === null) return { runDelayMs: 0, ioStallMs: 0 };
  return {
    runDelayMs: runDelayMs(before, now, elapsedMs),
    ioStallMs: Math.max(0, (now.ioStallMs ?? 0) - (before.ioStallMs ?? 0)),
  };
}

/**
 * Waits for some work, which may go on after the deadline.
 *
 * @param late the error when the deadline is over; it may also end the work
 */
export async function inTime<T>(
  work: Promise<T>,
  { deadlineMs, pids }: Pick<PatienceOptions, 'deadlineMs' | 'pids'>,
  late: () => Error,
): Promise<T> {
  let patience: Patience | undefined;
  const deadline = new Promise<never>((_, reject) => {
    patience = startPatience({ deadlineMs, pids, onOver: () => reject(late()) });
  });
  try {
    return await Promise.race([work, deadline]);
  } finally {
    patience?.stop();
    work.catch(() => undefined);
  }
}
