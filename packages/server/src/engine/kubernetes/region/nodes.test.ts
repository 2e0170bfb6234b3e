import { expect, test } from 'vitest';
import { largestNode, quantityIn } from './nodes.ts';

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

test.each([
  ['0', 0],
  ['1', 1],
  ['1500000n', 0.0015],
  ['250m', 0.25],
  ['0.5', 0.5],
  ['31234Ki', 31_983_616],
  ['2Gi', 2_147_483_648],
  ['3M', 3_000_000],
])('%s is a quantity', (text, number) => {
  expect(quantityIn(text)).toBeCloseTo(number, 6);
});

test.each(['', '-1', '1 Gi', '1Xi', 'many', '1e400', '1constructor'])(
  '"%s" is no quantity that is used',
  (text) => {
    expect(quantityIn(text)).toBe(null);
  },
);
