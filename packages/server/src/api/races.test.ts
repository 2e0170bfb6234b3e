import { ACTIONS, type Action } from '@howdah/contract';
import { expect, test } from 'vitest';
import { CALLS, RACING } from '../../test/races.ts';

test('every operation that changes a service is raced against every other', () => {
  expect(
    [...new Set(Object.values(CALLS).map(({ operationId }) => operationId))].toSorted(),
  ).toEqual(RACING.toSorted());
});

/** Actions that change nothing. */
const READS: readonly Action[] = ['query'];

test('every action of the table of statuses that changes something is raced', () => {
  const raced = new Set(Object.values(CALLS).map(({ action }) => action));
  expect(ACTIONS.filter((action) => !raced.has(action) && !READS.includes(action))).toEqual([]);
});
