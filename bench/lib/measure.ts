/**
 * How the benchmarks measure: interleaved, on an idle machine, without the first round, as medians
 * with their range.
 */
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from './run.ts';

/** One measurement: a value, and its parts or figures beside it. */
export type Sample = { value: number; parts: Record<string, number> };

export type Case = {
  take: () => Promise<Sample>;
  /** The samples after the first round. */
  samples: Sample[];
};

/**
 * A case for {@link interleave}. `take` may prepare something first and then
 * calls {@link idle} itself.
 */
export function measured(take: () => Promise<Sample | number>): Case {
  return {
    take: async () => {
      const sample = await take();
      return typeof sample === 'number' ? { value: sample, parts: {} } : sample;
    },
    samples: [],
  };
}

/**
 * Takes a sample of each case in turn, `rounds` times, so that other work of the machine affects
 * all of them alike. Data that the previous case left to be written is written first: no case pays
 * for another's disk work.
 */
export async function interleave(rounds: number, cases: readonly Case[]): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (const one of cases) {
      await run('sync', []);
      await idle();
      const sample = await one.take();
      if (round > 0) one.samples.push(sample);
    }
  }
}

const IDLE_SHARE = 0.8;
const IDLE_WINDOW_MS = 200;
let patienceMs = 15_000;

/**
 * Sets how long {@link idle} waits at the most: less for a quick measurement on a machine that
 * others use.
 */
export function setIdlePatience(ms: number): void {
  patienceMs = ms;
}

/**
 * Waits until the machine's CPUs were idle for a moment; after the longest wait
 * the sample is taken anyway.
 */
export async function idle(): Promise<void> {
  const end = Date.now() + patienceMs;
  for (;;) {
    const before = await cpuTimes();
    await sleep(IDLE_WINDOW_MS);
    const after = await cpuTimes();
    if (
      (after.idle - before.idle) / Math.max(1, after.all - before.all) >= IDLE_SHARE ||
      Date.now() > end
    )
      return;
  }
}

async function cpuTimes(): Promise<{ idle: number; all: number }> {
  const line = (await readFile('/proc/stat', 'utf8')).split('\n')[0] ?? '';
  const fields = line.trim().split(/\s+/).slice(1, 9).map(Number);
  return {
    idle: (fields[3] ?? 0) + (fields[4] ?? 0),
    all: fields.reduce((sum, field) => sum + field, 0),
  };
}

export type Summary = { median: number; min: number; max: number; n: number };

export function summarize(values: readonly number[]): Summary {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? Number.NaN;
  const middle = (sorted.length - 1) / 2;
  return {
    median: (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2,
    min: at(0),
    max: at(sorted.length - 1),
    n: sorted.length,
  };
}

export function valuesOf(one: Case): Summary {
  return summarize(one.samples.map(({ value }) => value));
}

export function partOf(one: Case, part: string): Summary {
  return summarize(one.samples.flatMap(({ parts }) => parts[part] ?? []));
}

/** The medians of all parts in words: `clone 61, start 40`. */
export function partsInWords(one: Case): string {
  const names = new Set(one.samples.flatMap(({ parts }) => Object.keys(parts)));
  return [...names].map((name) => `${name} ${round(partOf(one, name).median)}`).join(', ');
}

/** Runs work. @returns how long it took, in ms */
export async function time<T>(work: () => Promise<T>): Promise<{ ms: number; result: T }> {
  const begun = performance.now();
  const result = await work();
  return { ms: performance.now() - begun, result };
}

/** Measures the parts of a sequence. */
export function stopwatch() {
  const begun = performance.now();
  const parts: Record<string, number> = {};
  let last = begun;
  return {
    parts,
    /** Ends a part. */
    lap: (part: string): void => {
      const now = performance.now();
      parts[part] = now - last;
      last = now;
    },
    sample: (): Sample => ({ value: performance.now() - begun, parts }),
  };
}

/** As many digits as are significant. */
export function round(value: number): string {
  return Math.abs(value) >= 100
    ? value.toFixed(0)
    : Math.abs(value) >= 10
      ? value.toFixed(1)
      : value.toFixed(2);
}
