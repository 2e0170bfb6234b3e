import { expect, test } from 'vitest';
import { nextReserveStep, reserveBytes } from './reserve.ts';

const disk = (usedPercent: number, totalBytes = 100e9) => ({
  usedPercent,
  totalBytes,
  freeBytes: totalBytes * (1 - usedPercent / 100),
});

test('the reserve is one percent of the disk, from 64 MiB to 1 GiB', () => {
  expect(reserveBytes(1.5e9)).toBe(64 * 1024 ** 2);
  expect(reserveBytes(50e9)).toBe(5e8);
  expect(reserveBytes(1e12)).toBe(1024 ** 3);
});

test('the reserve is given up at 98 % and made again when the disk stays below 95 %', () => {
  expect(nextReserveStep(disk(97.9), 1e9)).toBe('keep');
  expect(nextReserveStep(disk(98), 1e9)).toBe('release');
  expect(nextReserveStep(disk(98), 0)).toBe('keep');
  expect(nextReserveStep(disk(94.5), 0)).toBe('keep');
  expect(nextReserveStep(disk(93.9), 0)).toBe('make');
  // On a small disk the reserve is more than a percent: it must not be made and given up in turns.
  expect(nextReserveStep(disk(92, 1e9), 0)).toBe('keep');
});
