import { expect, test } from 'vitest';
import { largestNode } from './nodes.ts';

const node = (cpu: string, memory: string, more: object = {}) => ({
  status: { allocatable: { cpu, memory } },
  ...more,
});

test('the largest node is the one that takes the largest size', () => {
  const found = largestNode([
    node('3920m', '14Gi'),
    node('64', '32Gi'),
    node('16', '64Gi'),
    node('4', '512Gi'),
  ]);
  expect(found).toMatchObject({ cpuMillis: 16_000, memoryBytes: 64 * 1024 ** 3, isNode: true });
});

test('a node that takes no pods does not count', () => {
  const cordoned = node('64', '256Gi', { spec: { unschedulable: true } });
  expect(largestNode([cordoned, node('2', '8Gi')])?.cpuMillis).toBe(2000);
});

test('where no node says what it has, the room is not known', () => {
  for (const nodes of [[], [{}], [node('many', '8Gi')], [{ status: {} }]])
    expect(largestNode(nodes)).toBeNull();
});
