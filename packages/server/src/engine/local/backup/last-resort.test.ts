import { expect, test } from 'vitest';
import { chooseKeptPoints } from './kept-points.ts';
import { chooseWal, type Archive } from './last-resort.ts';

const MB = 1e6;
const NONE: ReadonlySet<string> = new Set();
const segment = (n: number): string => n.toString(16).toUpperCase().padStart(24, '0');
const archive = (id: string, segments: number): Archive => ({
  id,
  directory: `/${id}`,
  names: Array.from({ length: segments }, (_, n) => segment(n)),
  kept: null,
});

test('the oldest segments of the largest archive are removed, and no more than needed', () => {
  const [only, ...others] = chooseWal([archive('a', 20), archive('b', 100)], NONE, 50 * MB);
  expect(others).toEqual([]);
  expect(only).toMatchObject({ id: 'b', names: [segment(0), segment(1), segment(2)] });
});

test('the next archive follows when the largest does not suffice; small ones stay', () => {
  const chosen = chooseWal([archive('a', 10), archive('b', 12), archive('c', 7)], NONE, 1000 * MB);
  expect(chosen.map(({ id, names }) => [id, names.length])).toEqual([
    ['b', 12],
    ['a', 10],
  ]);
});

test('nothing is removed when nothing is needed', () => {
  expect(chooseWal([archive('a', 10)], NONE, 0)).toEqual([]);
});

test('a service that grew gives its archive before a larger one of a service that did not', () => {
  const chosen = chooseWal([archive('a', 10), archive('b', 100)], new Set(['a']), 200 * MB);
  expect(chosen.map(({ id, names }) => [id, names.length])).toEqual([
    ['a', 10],
    ['b', 2],
  ]);
});

test('the points from before a growth are the last that a service gives', () => {
  const [kept] = [
    chooseKeptPoints(
      [{ id: 's', takenMs: 0, firstWal: segment(2) }],
      [2, 3, 4].map(segment),
      100 * MB,
      0,
    ),
  ].map((one) => one && { ...one, endWal: segment(4) });
  const of = (hasGrown: boolean, segments: number) =>
    chooseWal(
      [{ ...archive('a', 10), kept: kept ?? null }],
      new Set(hasGrown ? ['a'] : []),
      segments * 16 * 1024 ** 2,
    )[0]?.names;
  expect(of(true, 3)).toEqual([9, 8, 7].map(segment));
  expect(of(false, 3)).toEqual([0, 1, 4].map(segment));
  expect(of(true, 10)?.slice(-2)).toEqual([3, 2].map(segment));
});
