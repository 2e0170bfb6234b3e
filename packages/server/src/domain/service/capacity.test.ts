import { DEFAULT_SIZE, SERVICE_SIZES } from '@howdah/contract';
import { expect, test } from 'vitest';
import type { Room } from '../../engine/engine.ts';
import { hasRoom, largestSize, overcommitment, whyNoDisk, whyNoRoom } from './capacity.ts';

const GIB = 1024 ** 3;
const machine = (cores: number, gib: number): Room => ({
  cpuMillis: cores * 1000,
  memoryBytes: gib * GIB,
  place: 'the machine',
  isNode: false,
});
const node = (cores: number, gib: number): Room => ({ ...machine(cores, gib), isNode: true });

test('a size has room if neither its processors nor its memory are more than there is', () => {
  const [large, half] = [
    { cpuMillis: 64_000, memoryGbs: 256 },
    { cpuMillis: 4000, memoryGbs: 16 },
  ];
  for (const room of [machine(2, 24), machine(2, 512), machine(128, 24)])
    expect(whyNoRoom(large, room, 'local')).toContain('64000/256 is more than the machine');
  expect(hasRoom(half, machine(4, 16))).toBe(true);
  expect(hasRoom(half, machine(3, 16))).toBe(false);
  expect(hasRoom(half, machine(4, 8))).toBe(false);
});

test('memory that a kernel keeps takes no size from a machine, and does from a node', () => {
  const size = { cpuMillis: 4000, memoryGbs: 16 };
  expect(hasRoom(size, machine(4, 15.5))).toBe(true);
  expect(hasRoom(size, node(4, 15.5))).toBe(false);
  expect(hasRoom(size, node(4, 16))).toBe(true);
});

test('the default size, a smaller one, and the shared one are never refused', () => {
  for (const size of [DEFAULT_SIZE, { cpuMillis: 250, memoryGbs: 1 }, 'shared'] as const)
    for (const room of [machine(0.1, 0.25), node(0.1, 0.25)])
      expect(whyNoRoom(size, room, 'local')).toBeNull();
});

test('where the room is not known, every size has it', () => {
  for (const size of SERVICE_SIZES) expect(hasRoom(size, null)).toBe(true);
});

test('a refusal names what there is, the largest size that has room, and how to force it', () => {
  expect(largestSize(machine(2, 24))).toEqual({ cpuMillis: 2000, memoryGbs: 8 });
  expect(largestSize(machine(1, 0.5))).toEqual(DEFAULT_SIZE);
  const why = whyNoRoom({ cpuMillis: 8000, memoryGbs: 32 }, machine(2, 23.45), 'local');
  expect(why).toContain('of the region local has, 2 CPU and 23.5 GB of memory');
  expect(why).toContain('Choose 2000/8 or a smaller size');
  expect(why).toContain('force=true');
});

test('a quota is refused that the whole disk could not hold', () => {
  expect(whyNoDisk(100, 100e9, 'local')).toBeNull();
  expect(whyNoDisk(101, 100.9e9, 'local')).toContain('the disk of the region local has, 100 GB');
});

test('an overcommitment names what there is less of', () => {
  const committed = { servers: 3, cpu_millis: 6000, memory_gbs: 24, storage_gb: 30 };
  expect(overcommitment(committed, machine(8, 24), 40e9)).toBeNull();
  expect(overcommitment(committed, machine(4, 24), 20e9)).toBe('6 of 4 CPU, 30 of 20 GB of disk');
});
