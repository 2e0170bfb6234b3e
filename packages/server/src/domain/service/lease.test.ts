import { expect, test } from 'vitest';
import {
  defaultLeaseTtl,
  isIdle,
  roomForWarm,
  storageGbOfDatabases,
  warmFor,
  type LeaseRoom,
} from './lease.ts';

const MINUTE_MS = 60_000;
const NOW_MS = Date.parse('2026-01-31T12:00:00Z');

test.each([
  ['one lease at a time has the next one ready beside it', 1, 0, 2],
  ['as many as there were at a time', 7, 0, 7],
  ['no more than a machine can start at once', 300, 0, 16],
  ['still, after a pause', 7, 14 * MINUTE_MS, 7],
  ['none after the last run', 7, 15 * MINUTE_MS, 0],
])('%s', (_name, peak, agoMs, wanted) => {
  const demand = { peak, takenMs: NOW_MS - agoMs };
  expect(warmFor(demand, NOW_MS)).toBe(wanted);
  expect(isIdle(demand, NOW_MS)).toBe(wanted === 0);
});

const ROOMY: LeaseRoom = {
  freeMemoryBytes: 8e9,
  memoryBytes: 16e9,
  freePorts: 900,
  ports: 1000,
  diskUsedPercent: 50,
};

test.each([
  ['by its memory', {}, 114],
  ['by its ports, of which a fifth is left to services', { freePorts: 230 }, 30],
  ['where the services have no disk in common', { diskUsedPercent: null }, 114],
  ['and asks for some back when memory gets scarce', { freeMemoryBytes: 3.1e9 }, -3],
  ['and asks for some back when ports get scarce', { freePorts: 195 }, -5],
  ['and asks for all back on a full disk', { diskUsedPercent: 97 }, -Infinity],
])('a machine has room %s', (_name, more: Partial<LeaseRoom>, room) => {
  expect(roomForWarm({ ...ROOMY, ...more })).toBe(room);
});

test('databases take their space beside the one that they are copies of, and its template', () => {
  expect(storageGbOfDatabases(20, 2)).toBe(44);
});

test('a lease ends after ten minutes, or as its key has it', () => {
  const none = {
    serviceTtlSeconds: null,
    maxTtlSeconds: null,
    autoSuspendSeconds: null,
    maxServices: null,
  };
  expect(defaultLeaseTtl(none)).toBe(600);
  expect(defaultLeaseTtl({ ...none, serviceTtlSeconds: 7200 })).toBe(600);
  expect(defaultLeaseTtl({ ...none, serviceTtlSeconds: 7200, maxTtlSeconds: 60 })).toBe(60);
});
