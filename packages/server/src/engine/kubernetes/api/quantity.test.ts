import { expect, test } from 'vitest';
import { quantityIn } from './quantity.ts';

test.each([
  ['0', 0],
  ['1', 1],
  ['1500000n', 0.0015],
  ['250m', 0.25],
  ['0.5', 0.5],
  ['31234Ki', 31_983_616],
  ['2Gi', 2_147_483_648],
  ['3M', 3_000_000],
])('%s is a quantity', (text, number) => {
  expect(quantityIn(text)).toBeCloseTo(number, 6);
});

test.each(['', '-1', '1 Gi', '1Xi', 'many', '1e400', '1constructor'])(
  '"%s" is no quantity that is used',
  (text) => {
    expect(quantityIn(text)).toBe(null);
  },
);
