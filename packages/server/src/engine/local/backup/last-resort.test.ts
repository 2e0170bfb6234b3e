import { expect, test } from 'vitest';
import { chooseWal, type Archive } from './last-resort.ts';

const MB = 1e6;
const segment = (n: number): string => n.toString(16).toUpperCase().padStart(24, '0');
const archive = (id: string, segments: number): Archive => ({
  id,
  directory: `/${id}`,
  names: Array.from({ length: segments }, (_, n) => segment(n)),
});

test('the oldest segments of the largest archive are removed, and no more than needed', () => {
  const [only, ...others] = chooseWal([archive('a', 20), archive('b', 100)], 50 * MB);
  expect(others).toEqual([]);
  expect(only).toMatchObject({ id: 'b', names: [segment(0), segment(1), segment(2)] });
});

test('the next archive follows when the largest does not suffice; small ones stay', () => {
  const chosen = chooseWal([archive('a', 10), archive('b', 12), archive('c', 7)], 1000 * MB);
  expect(chosen.map(({ id, names }) => [id, names.length])).toEqual([
    ['b', 12],
    ['a', 10],
  ]);
});

test('nothing is removed when nothing is needed', () => {
  expect(chooseWal([archive('a', 10)], 0)).toEqual([]);
});
