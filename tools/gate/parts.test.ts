import { expect, test } from 'vitest';
import { partsOf, planOf } from './parts.ts';

const parts = partsOf(7).slice(0, 4);
const [check, unit, first, second] = parts.map(({ name }) => name);
const run = { fingerprint: 'f1', commit: 'abc', tests: null };
const planned = (...args: Parameters<typeof planOf>): string[] =>
  planOf(...args).map(({ part, green }) => `${part.name} ${green ?? 'due'}`);

test('a part is skipped while its files are those of its last green run', () => {
  const runs = { check: run, unit: run };
  expect(planned(parts, {}, runs, { check: 'f1', unit: 'f2' })).toEqual([
    `${check} abc`,
    `${unit} due`,
    `${first} due`,
    `${second} due`,
  ]);
});

test('--from leaves out earlier parts; --only leaves out all others, and runs a green one', () => {
  const fingerprints = { check: 'f1' };
  expect(planned(parts, { from: first }, { check: run }, fingerprints)).toHaveLength(2);
  expect(planned(parts, { only: check }, { check: run }, fingerprints)).toEqual([`${check} due`]);
});

test('a part that does not exist is refused with the names of all', () => {
  expect(() => planOf(parts, { only: 'nothing' }, {}, {})).toThrow(
    'no part is named nothing; the parts are: check, unit, system-1, system-2',
  );
});

test('soaks have the seed, and names are unique', () => {
  const all = partsOf(7);
  expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
  expect(all.filter(({ command }) => command.includes('--seed 7'))).toHaveLength(3);
});
