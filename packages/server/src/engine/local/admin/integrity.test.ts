import { expect, test } from 'vitest';
import { createLayout } from '../host/layout.ts';
import { copiesAmiss, movedAmiss } from './integrity.ts';

const MOVED = { moved: [{ id: 'abcdefghij', region: 'local' }] };

test('a server of a service that has moved away is a finding', () => {
  const found = { processes: ['abcdefghij', 'others0000'] };
  expect(movedAmiss(MOVED, MOVED, found)).toEqual([
    'service abcdefghij has moved to another region and has a process here',
  ]);
  // The service moved while the machine was inspected.
  expect(movedAmiss({ moved: [] }, MOVED, found)).toEqual([]);
  expect(movedAmiss(MOVED, MOVED, { processes: ['others0000'] })).toEqual([]);
});

test('a copy of a service that does not move here is a finding', () => {
  const site = { layout: createLayout('/data') };
  const found = { copies: ['abcdefghij', 'others0000'] };
  const copied = { copied: [{ id: 'abcdefghij', region: 'local' }], services: [] };
  const none = { copied: [], services: [] };
  expect(copiesAmiss(copied, none, found, site)).toEqual([
    'copy of others0000, which does not move to this region: end what runs in ' +
      '/data/copies/others0000, and remove it',
  ]);
  expect(copiesAmiss(none, none, { copies: ['abcdefghij'] }, site)).toHaveLength(1);
  // The service began to move while the machine was inspected, or has become a service.
  expect(copiesAmiss(none, copied, { copies: ['abcdefghij'] }, site)).toEqual([]);
  expect(copiesAmiss(none, none, { copies: [] }, site)).toEqual([]);
});
