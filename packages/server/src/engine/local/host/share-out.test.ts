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
  const quiet: Writer = { guaranteed: 500, rate: MIB, limit: 100 * MIB };
  const flood: Writer = { guaranteed: 500, rate: 100 * MIB, limit: 100 * MIB };

  test('are all of the budget for one that writes alone', () => {
    expect(shareRates(BUDGET, [flood, quiet])).toEqual([398.5 * MIB, 100 * MIB]);
  });
  test('go by guarantees where several servers would write more', () => {
    const larger = { ...flood, guaranteed: 1500 };
    const [small = 0, large = 0] = shareRates(BUDGET, [flood, larger, quiet]);
    expect([small, large]).toEqual([398.5 * MIB * 0.25, 398.5 * MIB * 0.75]);
  });
  test('are parts at once when another flood begins', () => {
    const before = { ...flood, rate: 390 * MIB, limit: 400 * MIB };
    const begins = { ...quiet, rate: 90 * MIB };
    expect(shareRates(BUDGET, [before, begins])).toEqual([200 * MIB, 200 * MIB]);
  });
  test('are never more together than the budget', () => {
    const floods = Array.from({ length: 40 }, () => flood);
    const sum = shareRates(BUDGET, floods).reduce((all, one) => all + one, 0);
    expect(sum).toBeLessThanOrEqual(BUDGET * 1.001);
  });
  test('grow slowly after a flood among many, so that bursts in turns gain nothing', () => {
    let one: Writer = { ...quiet, rate: 0, limit: 10 * MIB };
    const seen: number[] = [];
    for (let round = 0; round < 60; round++) {
      const [limit = 0] = shareRates(BUDGET, [one]);
      seen.push(limit);
      one = { ...one, limit };
    }
    expect(seen[0]).toBeCloseTo(11 * MIB);
    expect(seen[3]).toBeLessThan(20 * MIB);
    expect(seen.at(-1)).toBe(100 * MIB);
  });
  test('are more than the rate of a server that is not held up', () => {
    const busy = { ...quiet, rate: 150 * MIB, limit: 400 * MIB };
    expect(shareRates(BUDGET, [busy])).toEqual([225 * MIB]);
  });
  test('are the budget together, also where none holds a server up', () => {
    const busy = { ...quiet, rate: 200 * MIB, limit: 300 * MIB };
    expect(shareRates(BUDGET, [busy, busy, quiet])).toEqual([
      199.25 * MIB,
      199.25 * MIB,
      100 * MIB,
    ]);
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
