/** The tuning of control planes of tests; `up.mjs` gives it to them. */
import { TUNING, type RoundName, type Tuning } from './probe.ts';

/** A part of the tuning: what it does not name is as users have it. */
export type TestTuning = Partial<Omit<Tuning, 'rounds'>> & { rounds?: Partial<Tuning['rounds']> };

/**
 * Several installations of tests run side by side, on disks that may be small, and on machines that
 * are smaller than the sizes which tests ask for.
 */
const SMALL = {
  reserveMaxBytes: 64 * 1024 ** 2,
  capacity: { cpuMillis: 64_000, memoryBytes: 256 * 1024 ** 3 },
};

/** Rounds that find what nothing reported; 3 s instead of 30 s. */
const HURRIED: readonly RoundName[] = ['deaths', 'dueVerifications', 'warnings', 'vpcs'];

/** A setting of an installation that gives its control plane a tuning. */
export const tuned = (tuning: TestTuning): Record<string, string> => ({
  TEST_TUNING: JSON.stringify({ ...SMALL, ...tuning }),
});

/**
 * A setting of an installation whose rounds of 30 s run every 3 s: for tests of what is seen, not
 * of when. Prefer `Installation.round`, which runs a round and waits for it.
 */
export const hurried = (more: TestTuning = {}): Record<string, string> =>
  tuned({
    ...more,
    rounds: {
      ...Object.fromEntries(
        HURRIED.map((name) => [name, { ...TUNING.rounds[name], everyMs: 3000 }]),
      ),
      ...more.rounds,
    },
  });
