import { describe, expect, test } from 'vitest';
import { addContention, noContention } from './shares.ts';
import { waitsBetween, type WaitCounters } from './usage.ts';

const NONE: WaitCounters = {
  atMs: 0,
  processes: new Map(),
  throttledMs: 0,
  cpu: null,
  writes: null,
};
const MINUTE_MS = 60_000;
const LATER = { ...NONE, atMs: MINUTE_MS };
/** A process that has waited so many seconds. */
const waited = (seconds: Record<string, number>): Map<string, number> =>
  new Map(Object.entries(seconds).map(([process, s]) => [process, s * 1e9]));

describe('the wait for a processor', () => {
  test('is the mean number of processes that waited, in thousandths', () => {
    const before = { ...NONE, processes: waited({ '1 10': 100, '2 11': 5 }) };
    const now = { ...LATER, processes: waited({ '1 10': 160, '2 11': 35 }) };
    expect(waitsBetween(before, now).cpu).toEqual({ millis: 1500, neighbours: null });
  });

  test('has all of a new process, and nothing of one that has ended', () => {
    const before = { ...NONE, processes: waited({ '1 10': 100, '2 11': 500 }) };
    const now = { ...LATER, processes: waited({ '1 10': 100, '2 99': 6 }) };
    expect(waitsBetween(before, now).cpu?.millis).toBe(100);
  });

  test('is at least the time in which a quota held the server back', () => {
    const now = { ...LATER, processes: waited({ '1 10': 6 }), throttledMs: 30_000 };
    expect(waitsBetween(NONE, now).cpu?.millis).toBe(500);
    const none = { ...LATER, processes: new Map(), throttledMs: 30_000 };
    expect(waitsBetween(null, none).cpu?.millis).toBe(0);
  });

  test('is 0 at first, and unknown where the kernel does not count it', () => {
    const now = { ...LATER, processes: waited({ '1 10': 100 }) };
    expect(waitsBetween(null, now).cpu?.millis).toBe(0);
    expect(waitsBetween(NONE, { ...LATER, processes: null }).cpu).toBeNull();
  });
});

describe('the wait for the disk', () => {
  test('is the part of the time in which the limit held writes back', () => {
    const before = { ...NONE, writes: { ms: 1000, neighbourMs: 0 } };
    const now = { ...LATER, writes: { ms: 16_000, neighbourMs: 30_000 } };
    expect(waitsBetween(before, now).writes).toEqual({ millis: 250, neighbours: 2 });
  });

  test('counts from zero when the server gets its shares again, and is at most all', () => {
    const before = { ...NONE, writes: { ms: 90_000, neighbourMs: 90_000 } };
    const now = { ...LATER, writes: { ms: 6000, neighbourMs: 0 } };
    expect(waitsBetween(before, now).writes).toEqual({ millis: 100, neighbours: 0 });
    const all = { ...LATER, writes: { ms: 61_000, neighbourMs: 0 } };
    expect(waitsBetween({ ...NONE, writes: noContention() }, all).writes?.millis).toBe(1000);
  });

  test('is unknown where writes have no limit', () => {
    expect(waitsBetween(NONE, LATER).writes).toBeNull();
  });
});

test('neighbours are other services: no standbys of its own, no copies of files', () => {
  const counted = noContention();
  addContention(counted, 250, ['orders', 'orders-1', 'copies', 'b', 'b-1', 'c'], 'orders');
  addContention(counted, 250, ['orders'], 'orders');
  expect(counted).toEqual({ ms: 500, neighbourMs: 500 });
});
