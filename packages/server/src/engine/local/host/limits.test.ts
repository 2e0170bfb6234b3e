import { expect, test } from 'vitest';
import { delegatedGroup } from './limits.ts';

test.each([
  ['/', '/'],
  ['/system.slice/howdah.service', '/system.slice/howdah.service'],
  ['/system.slice/howdah.service/control', '/system.slice/howdah.service'],
  ['/user.slice/user-1000.slice/session-3.scope', '/user.slice/user-1000.slice/session-3.scope'],
])('the delegated group of a process in %s is %s', (own, delegated) => {
  expect(delegatedGroup(own)).toBe(delegated);
});
