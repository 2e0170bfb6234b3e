/**
 * Whether a run of tests is green, after the files of those that failed ran once more, alone.
 *
 * A slow machine can fail a few tests that are right. A run with many of them has found something.
 * Files are counted: one test that fails takes those with it that build on it.
 */
export const MAX_FILES_PASSED_ALONE = 3;
/** A broken build fails hundreds; more than this many are not run again. */
export const MAX_RUN_AGAIN = 10;

export type Failure = Readonly<{
  /** Names a test, or a file whose hooks or imports failed. */
  name: string;
  file: string;
  /** The load when it failed. */
  load: string;
  alone: 'passed' | 'failed' | 'not run';
}>;

export type FirstRun = Readonly<{
  passed: number;
  skipped: number;
  failures: readonly Failure[];
  /** Errors outside of tests, which no second run can take back. */
  errors: number;
}>;

export type Verdict = Readonly<{ isGreen: boolean; lines: readonly string[] }>;

/** @returns the last lines of the output, of which `Altogether: …` has the totals */
export function verdictOf({ passed, skipped, failures, errors }: FirstRun): Verdict {
  const passedAlone = failures.filter(({ alone }) => alone === 'passed');
  const failed = failures.filter(({ alone }) => alone !== 'passed');
  const files = new Set(passedAlone.map(({ file }) => file)).size;
  const isTooMany = files > MAX_FILES_PASSED_ALONE;
  const lines = passedAlone.map(({ name, load }) => `passed alone: ${name} (${load})`);
  for (const { name, load, alone } of failed)
    lines.push(`FAILED${alone === 'failed' ? ' alone too' : ''}: ${name} (${load})`);
  if (errors > 0) lines.push(`FAILED: ${errors} errors outside of tests`);
  if (isTooMany)
    lines.push(
      `FAILED: tests of ${files} files passed only alone; at most ${MAX_FILES_PASSED_ALONE} may`,
    );
  const alone = passedAlone.length === 0 ? '' : `, ${passedAlone.length} of them only alone`;
  lines.push(
    `Altogether: ${passed + passedAlone.length} passed, ${failed.length} failed, ` +
      `${skipped} skipped${alone}`,
  );
  return { isGreen: failed.length === 0 && errors === 0 && !isTooMany, lines };
}
