import { expect, test } from 'vitest';
import { createGroups } from './groups.ts';

test('an item is in the group it was put into last, or in none', () => {
  const groups = createGroups();
  groups.put('a', 'x');
  groups.put('b', 'x');
  groups.put('a', 'x');
  expect([...groups.of('x')]).toEqual(['a', 'b']);
  groups.put('a', 'y');
  expect([[...groups.of('x')], [...groups.of('y')]]).toEqual([['b'], ['a']]);
  groups.put('b', null);
  groups.put('c', null);
  expect([...groups.of('x')]).toEqual([]);
  groups.clear();
  expect([...groups.of('y')]).toEqual([]);
});
