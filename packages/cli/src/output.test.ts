import { expect, test } from 'vitest';
import { withIds } from './output.ts';

test('an id is beside a name that several entries share, and hidden otherwise', () => {
  const rows = [
    ['orders', 'READY'],
    ['shop', 'READY'],
    ['orders', 'PAUSED'],
  ];
  expect(withIds(rows, ['aaa', 'bbb', 'ccc'])).toEqual([
    ['orders (aaa)', 'READY'],
    ['shop', 'READY'],
    ['orders (ccc)', 'PAUSED'],
  ]);
  // Things without a name have their id as a column.
  expect(withIds(rows, [undefined, undefined, undefined])).toEqual(rows);
  expect(withIds([], [])).toEqual([]);
});
