import { expect, test } from 'vitest';
import { describeDifference } from './convert.ts';

test('a database that lacks something, or has more, is not taken for the same', () => {
  const before = new Map([
    ['functions', 2],
    ['types', 1],
  ]);
  expect(describeDifference(before, new Map(before))).toBeNull();
  expect(describeDifference(before, new Map([['functions', 3]]))).toBe(
    'functions: 2 before, 3 after; types: 1 before, 0 after',
  );
});
