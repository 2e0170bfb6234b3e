import { expect, test } from 'vitest';
import { CALLERS } from '../../test/callers.ts';
import { ROUTES } from '../../test/document.ts';

test('every operation stands in the table of who may call it, and nothing else does', () => {
  expect(Object.keys(CALLERS).toSorted()).toEqual(ROUTES.map(({ operationId }) => operationId).toSorted());
});

test('what changes something can be asked about; what only reads cannot', () => {
  for (const { operationId, changes } of ROUTES) {
    const row = CALLERS[operationId];
    expect(changes, operationId).toBe(!['read', 'data'].includes(row?.needs ?? 'read') && row?.reads !== true);
  }
});
