import { expect, test } from 'vitest';
import { closingLine, failuresIn, passedAloneIn, tableOf, totalsIn, type Row } from './report.ts';

const VITEST = '\u001B[2m      Tests \u001B[22m \u001B[31m1 failed\u001B[39m | 12 passed (13)\n';

test('the totals of a step are those of vitest, in colours or not', () => {
  expect(totalsIn(`…\n${VITEST}…`)).toEqual({ passed: 12, failed: 1 });
  expect(totalsIn('      Tests  3 passed | 2 skipped (5)\n')).toEqual({ passed: 3, failed: 0 });
  expect(totalsIn('no tests here\n')).toBe(null);
});

test('totals with the tests that ran again replace those of vitest', () => {
  expect(totalsIn(`${VITEST}${VITEST}Altogether: 13 passed, 0 failed, 2 skipped\n`)).toEqual({
    passed: 13,
    failed: 0,
  });
});

test('the lines that name failures are found, with the reason below', () => {
  expect(failuresIn('a\n FAIL  x.test.ts > y\nexpected 1\n…\nb\nE: no package\n')).toEqual([
    ' FAIL  x.test.ts > y',
    'expected 1',
    '…',
    'E: no package',
    '',
  ]);
});

test('tests that passed alone are found', () => {
  expect(passedAloneIn('a\npassed alone: x > y (load 9)\nb\n')).toEqual([
    'passed alone: x > y (load 9)',
  ]);
  expect(passedAloneIn('a\n')).toEqual([]);
});

const row = (name: string, more: Partial<Row>): Row => ({
  name,
  tests: null,
  seconds: 1.4,
  result: 'ok',
  isRed: false,
  ...more,
});

test('the table has a line for each part', () => {
  const rows = [
    row('check', { tests: { passed: 9, failed: 1 }, result: 'FAILED (1)', isRed: true }),
    row('tour', { seconds: null, result: 'skipped, green at abc' }),
  ];
  expect(tableOf(rows)).toEqual([
    'part   tests  seconds  result',
    'check     10        1  FAILED (1)',
    'tour                   skipped, green at abc',
  ]);
});

test('a red part without a failed test counts as a failure in the last line', () => {
  const tests = { passed: 9, failed: 2 };
  expect(closingLine([row('a', { tests, isRed: true }), row('b', { isRed: true })])).toBe(
    '9 passed, 3 failed',
  );
});
