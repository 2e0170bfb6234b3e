import { expect, test } from 'vitest';
import { isDue, restAfter, type Rest } from './quiet.ts';

/** The rounds in which a log is read. @param isQuiet by the round */
function readIn(rounds: number, random: number, isQuiet: (round: number) => boolean): number[] {
  let rest: Rest | undefined;
  const read: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    if (!isDue(rest)) continue;
    read.push(round);
    rest = restAfter(!isQuiet(round), rest, random);
  }
  return read;
}

test('a log with new lines is read in each round', () => {
  expect(readIn(5, 0.999, () => false)).toEqual([0, 1, 2, 3, 4]);
});

test('a quiet log is read ever less often, and at least once in eight rounds', () => {
  const [often, seldom] = [0, 0.999].map((random) => readIn(40, random, () => true));
  expect(often).toEqual([0, 2, 5, 10, 15, 20, 25, 30, 35]);
  expect(seldom).toEqual([0, 2, 6, 14, 22, 30, 38]);
});

test('a log that is quiet no more is read in each round again', () => {
  expect(readIn(20, 0.999, (round) => round < 10)).toEqual([0, 2, 6, 14, 15, 16, 17, 18, 19]);
});
