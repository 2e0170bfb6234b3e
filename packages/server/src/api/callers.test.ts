import { ACCESS } from '@howdah/contract';
import { expect, test } from 'vitest';
import { CALLERS, RESTRICTED } from '../../test/callers.ts';
import { ROUTES } from '../../test/document.ts';

test('every operation stands in the table of who may call it, and nothing else does', () => {
  expect(Object.keys(CALLERS).toSorted()).toEqual(
    ROUTES.map(({ operationId }) => operationId).toSorted(),
  );
});

test('every operation is in the tables of restricted keys and, unless public, the contract', () => {
  const operations = ROUTES.map(({ operationId }) => operationId).toSorted();
  expect(Object.keys(RESTRICTED).toSorted()).toEqual(operations);
  expect(
    [...Object.keys(ACCESS), 'openLink', 'startDeviceLogin', 'collectDeviceLogin'].toSorted(),
  ).toEqual(operations);
});

test('a call that changes something has a dry run; a call that only reads has none', () => {
  for (const { operationId, changes } of ROUTES) {
    const row = CALLERS[operationId];
    expect(changes, operationId).toBe(
      !['read', 'session', 'data'].includes(row?.needs ?? 'read') && row?.reads !== true,
    );
  }
});
