import { expect, test } from 'vitest';
import { movedAmiss } from './integrity.ts';

const MOVED = { moved: [{ id: 'abcdefghij', region: 'local' }] };

test('a server of a service that has moved away is a finding', () => {
  const found = { processes: ['abcdefghij', 'others0000'] };
  expect(movedAmiss(MOVED, MOVED, found)).toEqual([
    'service abcdefghij has moved to another region and has a process here',
  ]);
  // It moved while the machine was inspected.
  expect(movedAmiss({ moved: [] }, MOVED, found)).toEqual([]);
  expect(movedAmiss(MOVED, MOVED, { processes: ['others0000'] })).toEqual([]);
});
