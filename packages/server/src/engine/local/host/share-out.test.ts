import { describe, expect, test } from 'vitest';
import { budgetOf, isLowered, judgeDisk, shareRates, type Writer } from './share-out.ts';

const MIB = 1024 ** 2;

describe('the weight of a server', () => {
  const use = { guaranteed: 500, used: 1500, isLowered: false };
  test('is lower while it uses more than its guarantee and others wait', () => {
    expect(isLowered(use, true)).toBe(true);
    expect(isLowered({ ...use, used: 500 }, true)).toBe(false);
  });
  test('is not lower while a processor is idle', () => {
    expect(isLowered(use, false)).toBe(false);
    expect(isLowered({ ...use, isLowered: true }, false)).toBe(false);
  });
  test('does not change by a use near the guarantee', () => {
    for (const used of [460, 540])
      for (const was of [true, false])
        expect(isLowered({ guaranteed: 500, used, isLowered: was }, true)).toBe(was);
    expect(isLowered({ guaranteed: 500, used: 440, isLowered: true }, true)).toBe(false);
  });
});

describe('the limits of writes', () => {
  const BUDGET = 400 * MIB;
  const CPU_MILLIS = 2000;
  const idle: Writer = { guaranteed: 500, rate: 0, limit: 100 * MIB, isActive: false };
  const commits: Writer = { ...idle, rate: MIB, isActive: true };
  const flood: Writer = { ...idle, rate: 100 * MIB, isActive: true };
  const limitsOf = (...writers: Writer[]) =>
    shareRates(BUDGET, CPU_MILLIS, writers).map((limit) => limit / MIB);

  test('are all of the budget for one that writes alone', () => {
    expect(limitsOf(flood, idle)).toEqual([400, 100]);
  });
  test('are the guarantees while others commit, if only a little', () => {
    const before = { ...flood, rate: 390 * MIB, limit: 400 * MIB };
    expect(limitsOf(before, commits)).toEqual([100, 100]);
    expect(limitsOf({ ...before, guaranteed: 1000 }, commits)).toEqual([200, 100]);
  });
  test('are parts of the budget by guarantees when these are more than the machine', () => {
    const floods = Array.from({ length: 40 }, () => flood);
    const limits = limitsOf(...floods, { ...flood, guaranteed: 20_000 });
    expect(limits.reduce((sum, one) => sum + one, 0)).toBeCloseTo(400);
    expect(limits.at(-1)).toBeCloseTo(200);
  });
  test('grow slowly after a flood among many, so that bursts in turns gain nothing', () => {
    let one: Writer = { ...idle, limit: 10 * MIB };
    const seen: number[] = [];
    for (let round = 0; round < 60; round++) {
      const [limit = 0] = limitsOf(one);
      seen.push(limit);
      one = { ...one, limit: limit * MIB };
    }
    expect(seen[0]).toBeCloseTo(11);
    expect(seen[3]).toBeLessThan(20);
    expect(seen.at(-1)).toBe(100);
  });
  test('are more than the rate of a server that is not held up', () => {
    const busy = { ...flood, rate: 150 * MIB, limit: 400 * MIB };
    expect(limitsOf(busy)).toEqual([225]);
    expect(limitsOf({ ...busy, guaranteed: 2000 }, commits)).toEqual([225, 100]);
  });
});

describe('the rate of the disk', () => {
  const RATE = 400 * MIB;
  test('becomes one that was seen', () => {
    const use = { rate: 500 * MIB, writeMs: 2 };
    let found = RATE;
    for (let round = 0; round < 10; round++) found = judgeDisk(found, use, false);
    expect(found).toBe(500 * MIB);
  });
  test('follows a burst slowly, and comes back from it fast', () => {
    let found = RATE;
    for (let round = 0; round < 4; round++)
      found = judgeDisk(found, { rate: 5000 * MIB, writeMs: 1 }, true);
    expect(found).toBeLessThan(1.25 * RATE);
    for (let round = 0; round < 2; round++)
      found = judgeDisk(found, { rate: RATE, writeMs: 300 }, true);
    expect(found).toBe(RATE);
  });
  test('is less when writes take long: its credit is used up', () => {
    expect(judgeDisk(RATE, { rate: 150 * MIB, writeMs: 200 }, true)).toBe(RATE * 0.8);
    expect(judgeDisk(16 * MIB, { rate: 10 * MIB, writeMs: 200 }, true)).toBe(16 * MIB);
  });
  test('is not judged by a few slow writes, or by none', () => {
    expect(judgeDisk(RATE, { rate: MIB, writeMs: 200 }, true)).toBe(RATE);
    expect(judgeDisk(RATE, { rate: 0, writeMs: null }, true)).toBe(RATE);
  });
  test('is tried for more while writes are short and somebody waits', () => {
    const use = { rate: budgetOf(RATE), writeMs: 1 };
    expect(judgeDisk(RATE, use, true)).toBeGreaterThan(RATE);
    expect(judgeDisk(RATE, use, false)).toBe(RATE);
  });
});
