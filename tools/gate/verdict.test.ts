import { expect, test } from 'vitest';
import { pressureIn } from './load.ts';
import { MAX_FILES_PASSED_ALONE, verdictOf, type Failure } from './verdict.ts';

const first = { passed: 10, skipped: 2, errors: 0 };
const failures = (count: number, alone: Failure['alone'], ofOne?: 'file'): Failure[] =>
  Array.from({ length: count }, (_, index) => ({
    name: `a > ${index}`,
    file: ofOne ?? `file ${index}`,
    load: 'load 9',
    alone,
  }));

test('a run without failures is green, and its last line has the totals', () => {
  expect(verdictOf({ ...first, failures: [] })).toEqual({
    isGreen: true,
    lines: ['Altogether: 10 passed, 0 failed, 2 skipped'],
  });
});

test('tests that pass alone are listed with the load of their failure', () => {
  expect(verdictOf({ ...first, failures: failures(1, 'passed') })).toEqual({
    isGreen: true,
    lines: [
      'passed alone: a > 0 (load 9)',
      'Altogether: 11 passed, 0 failed, 2 skipped, 1 of them only alone',
    ],
  });
  expect(
    verdictOf({ ...first, failures: failures(MAX_FILES_PASSED_ALONE, 'passed') }).isGreen,
  ).toBe(true);
});

test('more files with tests that pass only alone than the limit make the run red', () => {
  const { isGreen, lines } = verdictOf({
    ...first,
    failures: failures(MAX_FILES_PASSED_ALONE + 1, 'passed'),
  });
  expect(isGreen).toBe(false);
  expect(lines.at(-2)).toBe('FAILED: tests of 4 files passed only alone; at most 3 may');
  expect(verdictOf({ ...first, failures: failures(4, 'passed', 'file') }).isGreen).toBe(true);
});

test('a test that fails alone, one that did not run again, and other errors make it red', () => {
  for (const alone of ['failed', 'not run'] as const)
    expect(verdictOf({ ...first, failures: failures(1, alone) }).isGreen).toBe(false);
  expect(verdictOf({ ...first, failures: [], errors: 1 }).isGreen).toBe(false);
  expect(verdictOf({ ...first, failures: failures(1, 'failed') }).lines).toEqual([
    'FAILED alone too: a > 0 (load 9)',
    'Altogether: 10 passed, 1 failed, 2 skipped',
  ]);
});

test('the pressure of the last 10 s is read where the kernel has it', () => {
  expect(pressureIn('some avg10=22.88 avg60=1.00\nfull avg10=3.00\n')).toBe(23);
  expect(pressureIn('')).toBe(null);
});
