import { expect, test } from 'vitest';
import { cpuQuota, delegatedGroup } from './limits.ts';

test.each([
  [250, { quotaUs: 10_000, periodUs: 40_000 }],
  [500, { quotaUs: 10_000, periodUs: 20_000 }],
  [1000, { quotaUs: 20_000, periodUs: 20_000 }],
  [8000, { quotaUs: 160_000, periodUs: 20_000 }],
])(
  '%i millicores are a share of a short period, two slices of the kernel at least',
  (cpuMillis, quota) => {
    expect(cpuQuota(cpuMillis)).toEqual(quota);
  },
);

test.each([
  ['/', '/'],
  ['/system.slice/howdah.service', '/system.slice/howdah.service'],
  ['/system.slice/howdah.service/control', '/system.slice/howdah.service'],
  ['/user.slice/user-1000.slice/session-3.scope', '/user.slice/user-1000.slice/session-3.scope'],
])('the delegated group of a process in %s is %s', (own, delegated) => {
  expect(delegatedGroup(own)).toBe(delegated);
});
