import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  countMs,
  MAX_STRETCH,
  parseScheduled,
  parseStall,
  runDelayMs,
  startPatience,
  type Sample,
  type Sampler,
  type Scheduled,
} from './patience.ts';

const QUIET = { plannedMs: 100, elapsedMs: 100, runDelayMs: 0, ioStallMs: 0 };

test.each([
  ['nothing delays it', QUIET, 100],
  ['the timer is a little late', { ...QUIET, elapsedMs: 103 }, 103],
  ['it waits for a processor', { ...QUIET, runDelayMs: 40 }, 60],
  ['the disk is saturated', { ...QUIET, ioStallMs: 70 }, 30],
  ['both at the same time', { ...QUIET, runDelayMs: 40, ioStallMs: 70 }, 30],
  ['it never runs', { ...QUIET, runDelayMs: 100 }, 100 / MAX_STRETCH],
  ['more than all is reported', { ...QUIET, ioStallMs: 300 }, 100 / MAX_STRETCH],
  ['this process was late', { ...QUIET, elapsedMs: 130 }, 70],
  ['it was late, and the other one did not run', { ...QUIET, elapsedMs: 130, runDelayMs: 60 }, 40],
  ['this process was paused for an hour', { ...QUIET, elapsedMs: 3_600_000 }, 100 / MAX_STRETCH],
])('an interval counts without its delays: %s', (_, interval, counted) => {
  expect(countMs(interval)).toBeCloseTo(counted, 6);
});

const sampleOf = (processes: Record<number, Partial<Scheduled>>, ioStallMs = 0): Sample => ({
  processes: new Map(
    Object.entries(processes).map(([pid, scheduled]) => [
      Number(pid),
      { ranMs: 0, delayedMs: 0, isRunnable: false, ...scheduled },
    ]),
  ),
  ioStallMs,
});

test.each([
  ['it sleeps', { 1: { ranMs: 5 } }, { 1: { ranMs: 5 } }, 0],
  ['it was stopped by a signal', { 1: { delayedMs: 9 } }, { 1: { delayedMs: 9 } }, 0],
  ['it spins', { 1: {} }, { 1: { ranMs: 100, isRunnable: true } }, 0],
  [
    'it spins beside another one',
    { 1: {} },
    { 1: { ranMs: 50, delayedMs: 50, isRunnable: true } },
    50,
  ],
  ['it still waits', { 1: { ranMs: 5 } }, { 1: { ranMs: 5, isRunnable: true } }, 100],
  ['the slowest of some', { 1: {}, 2: {} }, { 1: { delayedMs: 20 }, 2: { delayedMs: 30 } }, 30],
  ['one that is new', {}, { 3: { ranMs: 1, delayedMs: 10 } }, 10],
  ['one that has gone', { 1: { delayedMs: 80 } }, {}, 0],
])('the wait for a processor is measured: %s', (_, before, now, expected) => {
  expect(runDelayMs(sampleOf(before), sampleOf(now), 100)).toBe(expected);
});

test('the files of the kernel are read', () => {
  const stat = (state: string) => `77 (a) R (b) ${state} 1 77 77 0 -1`;
  const schedstat = '109422000 60840500 12\n';
  expect(parseScheduled(schedstat, stat('S'))).toEqual({
    ranMs: 109.422,
    delayedMs: 60.8405,
    isRunnable: false,
  });
  expect(parseScheduled(schedstat, stat('R'))?.isRunnable).toBe(true);
  expect(parseScheduled(schedstat, stat('T'))?.isRunnable).toBe(false);
  expect(parseScheduled('', stat('R'))).toBe(null);
  expect(
    parseStall(
      'some avg10=14.49 avg60=11.31 avg300=5.08 total=24672117\n' +
        'full avg10=0.00 avg60=0.06 avg300=0.64 total=7298275\n',
    ),
  ).toBe(7298.275);
  expect(parseStall('')).toBe(null);
});

describe('a wait', () => {
  beforeEach(
    () => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }),
  );
  afterEach(() => void vi.useRealTimers());

  /** Advances the clock in steps that let every tick end. */
  async function pass(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 10) {
      vi.advanceTimersByTime(10);
      await new Promise((resolve) => setImmediate(resolve));
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** @param shareOfDelay how much of the time the process waits for a processor */
  function start(shareOfDelay: number): {
    reports: number[];
    patience: ReturnType<typeof startPatience>;
  } {
    const begunMs = performance.now();
    const reports: number[] = [];
    const sample: Sampler = () =>
      sampleOf({ 1: { delayedMs: (performance.now() - begunMs) * shareOfDelay, ranMs: 1 } });
    const patience = startPatience({
      deadlineMs: 1000,
      pids: () => Promise.resolve([1]),
      onOver: () => reports.push(performance.now() - begunMs),
      sample,
    });
    return { reports, patience };
  }

  test('is over at its deadline on a quiet machine, once, and counts on', async () => {
    const { reports, patience } = start(0);
    await pass(990);
    expect([reports.length, patience.isOver()]).toEqual([0, false]);
    await pass(20);
    expect([reports.length, patience.isOver()]).toEqual([1, true]);
    await pass(1000);
    expect(reports.length).toBe(1);
    expect(patience.countedMs()).toBeGreaterThan(1800);
    patience.stop();
  });

  test('is longer while the process has no processor, and ends all the same', async () => {
    const half = start(0.5);
    const none = start(1);
    await pass(7000);
    // The first interval counts: nothing is known of it.
    expect(half.reports[0]).toBeGreaterThan(1800);
    expect(half.reports[0]).toBeLessThan(2200);
    expect(none.reports[0]).toBeGreaterThan(5000);
    expect(none.reports[0]).toBeLessThan(1000 * MAX_STRETCH);
    half.patience.stop();
    none.patience.stop();
  });

  test('reports nothing after its end', async () => {
    const { reports, patience } = start(0);
    await pass(500);
    patience.stop();
    await pass(2000);
    expect(reports).toEqual([]);
  });
});
