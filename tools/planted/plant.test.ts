import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import {
  applyEdits,
  CAPABILITIES,
  groupsOf,
  PROMISES,
  rowOf,
  shortcomings,
  tableOf,
  type Plant,
  type Result,
} from './plant.ts';
import { PLANTS } from './plants.ts';
import { outcomeOf } from './vitest.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const read = (file: string): string => readFileSync(`${ROOT}${file}`, 'utf8');

test.each(PLANTS.map((plant) => [plant.name, plant] as const))(
  '%s: each anchor occurs once, and the tests exist',
  (_, plant) => {
    for (const [file, text] of applyEdits(plant, read)) expect(text).not.toBe(read(file));
    for (const { file } of plant.caughtBy.tests)
      expect(existsSync(`${ROOT}${file}`), file).toBe(true);
  },
);

test('each promise and each capability has a plant, and each plant a name of its own', () => {
  const broken = new Set<string>(PLANTS.flatMap(({ breaks }) => breaks));
  expect([...PROMISES, ...CAPABILITIES].filter((one) => !broken.has(one))).toEqual([]);
  expect(new Set(PLANTS.map(({ name }) => name)).size).toBe(PLANTS.length);
});

const PLANT: Plant = {
  name: 'no-fence',
  breaks: ['P5', 'fencing'],
  effect: 'two servers accept writes',
  edits: [{ file: 'a.ts', from: 'end(server);', to: 'log("$&");' }],
  caughtBy: { gate: 'A', tests: [{ file: 'a.test.ts' }] },
};

test('an edit replaces its anchor literally; one that does not occur once is an error', () => {
  expect(applyEdits(PLANT, () => 'x; end(server); y').get('a.ts')).toBe('x; log("$&"); y');
  for (const [text, count] of [
    ['', 0],
    ['end(server); end(server);', 2],
  ] as const)
    expect(() => applyEdits(PLANT, () => text)).toThrow(
      `plant no-fence: its anchor occurs ${count} times in a.ts`,
    );
});

test('edits of one file are applied one after the other', () => {
  const edits = [...PLANT.edits, { file: 'a.ts', from: 'log', to: 'note' }];
  expect(applyEdits({ ...PLANT, edits }, () => 'end(server);').get('a.ts')).toBe('note("$&");');
});

test('plants that change the same text are in different groups', () => {
  const other = { ...PLANT, edits: [{ file: 'a.ts', from: 'end', to: 'begin' }] };
  const third = { ...PLANT, edits: [{ file: 'b.ts', from: 'end', to: 'begin' }] };
  const groups = groupsOf([PLANT, other, third], () => 'end(server);');
  expect(groups.map((group) => [...group])).toEqual([
    [
      ['a.ts', 'log("$&");'],
      ['b.ts', 'begin(server);'],
    ],
    [['a.ts', 'begin(server);']],
  ]);
  const missing = { ...PLANT, edits: [{ file: 'a.ts', from: 'stop', to: '' }] };
  expect(() => groupsOf([missing], () => '')).toThrow('its anchor occurs 0 times');
});

const found: Result = { plant: PLANT, failed: ['a test'], problem: null, seconds: 1 };
const missed: Result = { ...found, failed: [] };
const IN_B: Plant = {
  ...PLANT,
  caughtBy: { gate: 'B', tests: [], reason: 'it takes a power cut' },
};

test('nine of ten plants are found by gate A, and the others by gate B', () => {
  const nine = Array.from({ length: 9 }, () => found);
  expect(shortcomings([...nine, found], true)).toEqual([]);
  expect(shortcomings([...nine, { ...found, plant: IN_B }], true)).toEqual([]);
  expect(shortcomings([...nine, missed], true)).toEqual([]);
  expect(shortcomings([...nine, { ...missed, plant: IN_B }], true)).toEqual([
    'no-fence: gate B did not find it',
  ]);
  expect(shortcomings([...nine, missed, missed], true)).toEqual([
    'gate A found 9 of 11 defects; at least 10 are needed',
  ]);
  expect(shortcomings([found, missed], false)).toEqual(['no-fence: gate A did not find it']);
});

test('a row says which test found the plant, or that none did', () => {
  expect(
    tableOf([rowOf(found)])
      .split('\n')
      .at(-1),
  ).toBe('| no-fence | P5, fencing | A | a test | 1 |');
  expect(rowOf({ ...found, failed: ['a', 'b', 'c'], plant: IN_B })).toContain(
    'a; b and 1 more (it takes a power cut)',
  );
  expect(rowOf(missed)).toContain('NOT CAUGHT');
  expect(rowOf({ ...found, problem: 'it does not build' })).toContain(
    'NOT CAUGHT: it does not build',
  );
});

test('a test that fails is a finding; a file that cannot be loaded is none', () => {
  const file = { name: 'a.test.ts', status: 'failed', message: 'no such module\nat x' };
  const passed = { fullName: 'fine', status: 'passed' };
  const report = (...assertionResults: { fullName: string; status: string }[]) => ({
    testResults: [{ ...file, assertionResults }],
  });
  expect(outcomeOf(report(passed, { fullName: 'red', status: 'failed' }), '', [])).toEqual({
    failed: ['red'],
    problem: null,
  });
  expect(outcomeOf(report(), '', [])).toEqual({
    failed: [],
    problem: 'a.test.ts cannot be loaded: no such module',
  });
  expect(outcomeOf(report({ fullName: 'later', status: 'skipped' }), '', [])).toEqual({
    failed: ['before the tests: no such module'],
    problem: null,
  });
  expect(outcomeOf({ testResults: [] }, '', ['a.test.ts'])).toEqual({
    failed: [],
    problem: 'no test ran of a.test.ts',
  });
  expect(outcomeOf(null, 'npx: not found\n', []).problem).toBe('vitest ended: npx: not found');
});
