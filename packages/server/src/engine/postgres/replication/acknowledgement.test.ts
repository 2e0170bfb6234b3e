/** When clients of a service with replicas can write, as its status says it. */
import { expect, test } from 'vitest';
import { HANGS_AFTER_MS, type InstanceSeen } from '../decisions/decide-ha.ts';
import { DEAD, seen } from '../decisions/decide-ha.testing.ts';
import { WAITS_FOR_NOBODY } from './replication-conf.ts';
import { isWritable } from './acknowledgement.ts';

const server = { phase: 'ready', size: 'current', port: 20001, placed: true } as const;

const canWrite = (primary: Partial<InstanceSeen>, running = true): boolean =>
  isWritable(seen(primary).instances[0], { running }, null, {
    streaming: [],
    current: WAITS_FOR_NOBODY,
  });

test('a primary that has missed a heartbeat is slow, and the service serves', () => {
  expect(canWrite({})).toBe(true);
  expect(canWrite({ silentMs: 750 })).toBe(true);
  expect(canWrite({ silentMs: HANGS_AFTER_MS - 1 })).toBe(true);
});

test('a primary that hangs, is frozen or is dead does not serve', () => {
  expect(canWrite({ silentMs: HANGS_AFTER_MS })).toBe(false);
  expect(canWrite({ silentMs: 750, server: { ...server, frozen: true } })).toBe(false);
  expect(canWrite(DEAD)).toBe(false);
  expect(canWrite({ data: 'standby' })).toBe(false);
});

test('without its gateway no client reaches the primary', () => {
  expect(canWrite({}, false)).toBe(false);
});
