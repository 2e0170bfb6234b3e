import { expect, test } from 'vitest';
import type { ServiceRow } from './row.ts';
import { autoSuspendByDefault, type SleepFacts, whyNotAsleep } from './sleep.ts';

const PLAIN: SleepFacts & Pick<ServiceRow, 'environment'> = {
  environment: 'DEV',
  addons: [],
  has_gateway: false,
  pooler: false,
  vpc_id: null,
  read_replica_sets: [],
};
const SLEEPERS = { autoSuspendSeconds: 300 };
const OTHERS = { autoSuspendSeconds: null };

test.each([
  ['nothing says so', OTHERS, {}, null, null],
  ['as its key says', SLEEPERS, {}, null, 300],
  ['as its parent does', OTHERS, {}, { auto_suspend_seconds: 60 }, 60],
  ['its key comes before its parent', SLEEPERS, {}, { auto_suspend_seconds: 60 }, 300],
  ['its parent never sleeps', OTHERS, {}, { auto_suspend_seconds: null }, null],
  ['it is PROD', SLEEPERS, { environment: 'PROD' }, { auto_suspend_seconds: 60 }, null],
  ['it has replicas', SLEEPERS, { has_gateway: true }, null, null],
  ['it is in a VPC', SLEEPERS, { vpc_id: 'vpc' }, { auto_suspend_seconds: 60 }, null],
] as const)('a new service falls asleep: %s', (_, key, made, parent, seconds) => {
  expect(autoSuspendByDefault(key, { ...PLAIN, ...made }, parent)).toBe(seconds);
});

test('each reason against sleep says what to do', () => {
  expect(whyNotAsleep(PLAIN)).toBeNull();
  expect(whyNotAsleep({ ...PLAIN, addons: ['time-series'] })).toContain('type POSTGRES');
  expect(whyNotAsleep({ ...PLAIN, has_gateway: true })).toContain('fork it');
  expect(whyNotAsleep({ ...PLAIN, pooler: true })).toContain('disable that');
  expect(whyNotAsleep({ ...PLAIN, vpc_id: 'vpc' })).toContain('detach it');
});
