/** The texts that a gate prints: totals of tests, lines that name failures, and a table. */
import { stripVTControlCharacters } from 'node:util';

export type Totals = Readonly<{ passed: number; failed: number }>;
export type Row = Readonly<{
  name: string;
  /** null: the step has no tests. */
  tests: Totals | null;
  seconds: number | null;
  result: string;
  isRed: boolean;
}>;

/** Failures of one step that are repeated at the end. */
const MAX_FAILURE_LINES = 36;

/** @returns the totals that test-run.ts printed, or else those of vitest, null if there are none */
export function totalsIn(log: string): Totals | null {
  const text = stripVTControlCharacters(log);
  const own = [...text.matchAll(/^Altogether: .*$/gm)];
  const lines = own.length > 0 ? own : [...text.matchAll(/^ +Tests +(\d+ .*)$/gm)];
  if (lines.length === 0) return null;
  const sum = (word: string): number =>
    lines.reduce(
      (total, [line]) => total + Number(new RegExp(`(\\d+) ${word}`).exec(line)?.[1] ?? 0),
      0,
    );
  return { passed: sum('passed'), failed: sum('failed') };
}

/** @returns the lines that name failures, each with the two after it */
export function failuresIn(log: string): string[] {
  const lines = stripVTControlCharacters(log).split('\n');
  const at = lines.flatMap((line, index) =>
    / FAIL |^(FAILED|not ok|error|E:) /.test(line) ? [index, index + 1, index + 2] : [],
  );
  return [...new Set(at)]
    .flatMap((index) => lines[index]?.slice(0, 300) ?? [])
    .slice(0, MAX_FAILURE_LINES);
}

/** @returns the lines about tests that passed only when they ran once more, alone */
export function passedAloneIn(log: string): string[] {
  return stripVTControlCharacters(log).match(/^passed alone: .*$/gm) ?? [];
}

/** @returns the lines of the table; a seconds column that is null was not measured */
export function tableOf(rows: readonly Row[]): string[] {
  const width = Math.max(...rows.map(({ name }) => name.length), 4);
  const line = (name: string, tests: string, seconds: string, result: string): string =>
    `${name.padEnd(width)} ${tests.padStart(6)} ${seconds.padStart(8)}  ${result}`;
  return [
    line('part', 'tests', 'seconds', 'result'),
    ...rows.map(({ name, tests, seconds, result }) =>
      line(
        name,
        tests === null ? '' : String(tests.passed + tests.failed),
        seconds === null ? '' : String(Math.round(seconds)),
        result,
      ),
    ),
  ];
}

/** @returns `N passed, N failed`: a red step without a failed test counts as one */
export function closingLine(rows: readonly Row[]): string {
  const passed = rows.reduce((sum, { tests }) => sum + (tests?.passed ?? 0), 0);
  const failed = rows.reduce(
    (sum, { tests, isRed }) => sum + Math.max(tests?.failed ?? 0, isRed ? 1 : 0),
    0,
  );
  return `${passed} passed, ${failed} failed`;
}
