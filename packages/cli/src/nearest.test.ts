import { expect, test } from 'vitest';
import { nearestOf, slipsBetween } from './nearest.ts';

test('slips are counted: a letter left out, added, exchanged, or swapped', () => {
  expect(slipsBetween('first', 'first')).toBe(0);
  expect(slipsBetween('frst', 'first')).toBe(1);
  expect(slipsBetween('fiirst', 'first')).toBe(1);
  expect(slipsBetween('fitst', 'first')).toBe(1);
  expect(slipsBetween('frist', 'first')).toBe(1);
  expect(slipsBetween('', 'first')).toBe(5);
});

test('the nearest name is offered, and none that is far', () => {
  const names = ['orders', 'first', 'first-fork'];
  expect(nearestOf('frist', names)).toBe('first');
  expect(nearestOf('Order', names)).toBe('orders');
  expect(nearestOf('frist-fokr', names)).toBe('first-fork');
  expect(nearestOf('shop', names)).toBeNull();
  expect(nearestOf('ab', ['cd'])).toBeNull();
  expect(nearestOf('first', [])).toBeNull();
});
