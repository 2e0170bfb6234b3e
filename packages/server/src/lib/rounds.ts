/**
 * Work that is repeated for as long as something runs: the timer, no overlap, the log line of an
 * error, the figures, and the end. `tuning.ts` has the table of all rounds.
 */
import type { Log } from './log.ts';
import type { Interval, RoundName, Tuning } from './tuning.ts';

/** The work of a round. `closing` is aborted when the round must end. @throws any error: logged */
export type Work = (closing: AbortSignal) => Promise<void> | void;

export type Round = Readonly<{
  /** Runs now, and again at its interval after the end of each run. */
  start: () => void;
  /** Runs for the first time after one interval. */
  startLater: () => void;
  /**
   * Runs now; if a run is in progress, once more after it. @returns when a run has ended that began
   * after this call; at once if the round is closed. An error is logged, not thrown
   */
  run: () => Promise<void>;
  /**
   * Begins no further run and waits for the one in progress, if `graceMs` is given not longer than
   * this. Never throws.
   */
  close: (graceMs?: number) => Promise<void>;
}>;

/** Figures of all rounds of a name since the start. */
export type RoundFigures = {
  name: RoundName;
  runs: number;
  failures: number;
  /** Duration of the last run; null: none has ended. */
  lastMs: number | null;
  /** When the last run ended. */
  lastEnd: Date | null;
};

export type Rounds = ReturnType<typeof createRounds>;

export function createRounds(intervals: Tuning['rounds'], log: Log) {
  const open = new Set<Readonly<{ name: RoundName; round: Round }>>();
  const figures = new Map<RoundName, RoundFigures>();

  const figuresOf = (name: RoundName): RoundFigures => {
    const found = figures.get(name) ?? { name, runs: 0, failures: 0, lastMs: null, lastEnd: null };
    figures.set(name, found);
    return found;
  };

  return {
    /**
     * Makes a round; it begins with `start` or `startLater`.
     *
     * @param ownLog gets the errors, such as that of a region; default: the log of all rounds
     */
    every: (name: RoundName, work: Work, ownLog = log): Round => {
      const counted = figuresOf(name);
      const attempt = async (closing: AbortSignal): Promise<boolean> => {
        const begun = performance.now();
        let succeeded = true;
        try {
          await work(closing);
        } catch (error) {
          succeeded = false;
          counted.failures += 1;
          if (!closing.aborted)
            ownLog.warn({ round: name, err: error }, `round failed: ${name}; trying again`);
        }
        counted.runs += 1;
        counted.lastMs = performance.now() - begun;
        counted.lastEnd = new Date();
        return succeeded;
      };
      const repeated = repeat(attempt, intervals[name]);
      const entry = { name, round: repeated };
      const close: Round['close'] = async (graceMs) => {
        open.delete(entry);
        await repeated.close(graceMs);
      };
      open.add(entry);
      return { ...repeated, close };
    },
    /** Runs all rounds of a name now. @returns when each has run. @throws Error: there is none */
    run: async (name: RoundName): Promise<void> => {
      const named = [...open].filter((one) => one.name === name);
      if (named.length === 0) throw new Error(`no round of the name ${name} is open`);
      await Promise.all(named.map(({ round }) => round.run()));
    },
    /** Begins no further run of any round; those in progress go on. */
    endAll: (): void => {
      for (const { round } of open) void round.close(0);
    },
    /** The figures of each name of which a round was made. */
    figures: (): readonly RoundFigures[] => [...figures.values()],
  };
}

/** @param attempt never rejects; false: it failed */
function repeat(
  attempt: (closing: AbortSignal) => Promise<boolean>,
  { everyMs, againMs = everyMs }: Interval,
): Round {
  const closing = new AbortController();
  const { signal } = closing;
  let timer: NodeJS.Timeout | undefined;
  let isStarted = false;
  let running: Promise<void> | null = null;
  /** The run that follows the one in progress, for everyone who asked for it. */
  let next: Promise<void> | null = null;

  const schedule = (afterMs: number): void => {
    clearTimeout(timer);
    if (isStarted && !signal.aborted) timer = setTimeout(() => void run(), afterMs).unref();
  };
  const runOnce = async (): Promise<void> => {
    const succeeded = await attempt(signal);
    running = null;
    schedule(succeeded ? everyMs : againMs);
  };
  const begin = (): Promise<void> => {
    clearTimeout(timer);
    running = runOnce();
    return running;
  };
  const run = (): Promise<void> => {
    if (signal.aborted) return Promise.resolve();
    if (running === null) return begin();
    next ??= running.then(() => {
      next = null;
      return run();
    });
    return next;
  };

  return {
    start: () => {
      isStarted = true;
      void run();
    },
    startLater: () => {
      isStarted = true;
      schedule(everyMs);
    },
    run,
    close: async (graceMs) => {
      closing.abort();
      clearTimeout(timer);
      const ended = running ?? Promise.resolve();
      await (graceMs === undefined ? ended : Promise.race([ended, pause(graceMs)]));
    },
  };
}

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => void setTimeout(resolve, ms).unref());
