import { totalmem } from 'node:os';
import { expect, test } from 'vitest';
import { coresOf, measureCapacity } from './capacity.ts';

test('a container has the part of the processors that its cgroup allows', () => {
  expect(coresOf('150000', '100000')).toBe(1.5);
  for (const [quota, period] of [
    ['max', '100000'],
    ['-1', '100000'],
    ['', ''],
    ['1', '0'],
  ])
    expect(coresOf(quota, period)).toBeNull();
});

test('this machine has at least a processor, and not more memory than it says', async () => {
  const { cpuMillis, memoryBytes } = await measureCapacity();
  expect(cpuMillis).toBeGreaterThan(0);
  expect(memoryBytes).toBeGreaterThan(0);
  expect(memoryBytes).toBeLessThanOrEqual(totalmem());
});
