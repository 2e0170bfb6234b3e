/**
 * The clock of a model engine. It runs in real time, or stops until it is advanced. It never
 * goes back.
 */

/** A clock, and alarms that ring when it reaches their time. */
export type ModelClock = {
  nowMs: () => number;
  /** Whether time passes by itself. */
  isRunning: () => boolean;
  /** Sets its time: where an earlier clock was. Before the first alarm only. */
  startAt: (ms: number) => void;
  /** Lets time pass by itself from now on, or not. */
  setRunning: (isRunning: boolean) => void;
  /** Lets time pass at once. Alarms ring in the order of their times, each at its own time. */
  advance: (ms: number) => Promise<void>;
  /** Calls back once, when the clock reaches a time. @returns what removes the alarm */
  alarmAt: (atMs: number, ring: () => Promise<void>) => () => void;
  /** Ends the timers of the process. */
  close: () => void;
};

type Alarm = { readonly atMs: number; readonly ring: () => Promise<void> };

/** The longest wait of a timer of Node; an alarm that is later is set again. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** @param realMs the time that it begins with and follows, in ms since the epoch */
export function createModelClock(realMs: () => number): ModelClock {
  const alarms = new Set<Alarm>();
  let [baseMs, sinceMs, running, closed] = [realMs(), realMs(), true, false];
  let timer: NodeJS.Timeout | undefined;

  const nowMs = (): number => baseMs + (running ? Math.max(0, realMs() - sinceMs) : 0);
  const settle = (): void => {
    [baseMs, sinceMs] = [nowMs(), realMs()];
  };
  const next = (): Alarm | undefined => [...alarms].toSorted((a, b) => a.atMs - b.atMs)[0];
  const ringUntil = async (endMs: number): Promise<void> => {
    for (let alarm = next(); alarm !== undefined && alarm.atMs <= endMs; alarm = next()) {
      alarms.delete(alarm);
      if (alarm.atMs > nowMs()) [baseMs, sinceMs] = [alarm.atMs, realMs()];
      await alarm.ring();
    }
  };
  const setTimer = (): void => {
    clearTimeout(timer);
    const alarm = next();
    if (!running || closed || alarm === undefined) return;
    const waitMs = Math.min(MAX_TIMER_MS, Math.max(0, alarm.atMs - nowMs()));
    timer = setTimeout(() => void ringUntil(nowMs()).finally(setTimer), waitMs).unref();
  };

  return {
    nowMs,
    isRunning: () => running,
    startAt: (ms) => {
      [baseMs, sinceMs] = [ms, realMs()];
    },
    setRunning: (isRunning) => {
      settle();
      running = isRunning;
      setTimer();
    },
    advance: async (ms) => {
      if (!Number.isFinite(ms) || ms < 0)
        throw new RangeError(`the clock cannot be advanced by ${ms} ms: give 0 or more`);
      settle();
      const endMs = baseMs + ms;
      await ringUntil(endMs);
      if (nowMs() < endMs) [baseMs, sinceMs] = [endMs, realMs()];
      setTimer();
    },
    alarmAt: (atMs, ring) => {
      const alarm: Alarm = { atMs, ring };
      alarms.add(alarm);
      setTimer();
      return () => {
        alarms.delete(alarm);
      };
    },
    close: () => {
      closed = true;
      alarms.clear();
      clearTimeout(timer);
    },
  };
}
