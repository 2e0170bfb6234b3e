import { expect, test } from 'vitest';
import { delegatedGroup, sourceOfMount } from './limits.ts';

test.each([
  ['/', '/'],
  ['/system.slice/howdah.service', '/system.slice/howdah.service'],
  ['/system.slice/howdah.service/control', '/system.slice/howdah.service'],
  ['/user.slice/user-1000.slice/session-3.scope', '/user.slice/user-1000.slice/session-3.scope'],
])('the delegated group of a process in %s is %s', (own, delegated) => {
  expect(delegatedGroup(own)).toBe(delegated);
});

const MOUNTS = `21 1 254:1 / / rw,relatime - ext4 /dev/root rw
30 21 0:40 / /var/lib/data rw,relatime - btrfs /dev/loop3 rw
31 21 0:41 / /var/lib/data\\040of\\040two rw - btrfs /dev/loop4 rw
32 30 0:42 / /var/lib/data/over rw - overlay overlay rw
33 30 0:43 / /var/lib/data/over rw - btrfs /dev/loop5 rw
`;

test.each([
  ['/home', '/dev/root'],
  ['/', '/dev/root'],
  ['/var/lib/data/services/a', '/dev/loop3'],
  ['/var/lib/database', '/dev/root'],
  ['/var/lib/data of two/b', '/dev/loop4'],
  ['/var/lib/data/over', '/dev/loop5'],
])('%s is stored on %s', (path, source) => {
  expect(sourceOfMount(MOUNTS, path)).toBe(source);
});
