import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { DEFAULT_SIZE, parseSize, sameSize, SERVICE_SIZES, type SizeInput } from './sizes.ts';

/** As the contract prints them. */
const PRINTED =
  '500/2, 1000/4, 2000/8, 4000/16, 8000/32, 16000/64, 32000/128, 48000/192, 64000/256';
const create = { fallback: DEFAULT_SIZE, sharedAllowed: true };
const resize = { fallback: null, sharedAllowed: false };

test('the sizes are those of the contract, smallest first, the smallest being the default', () => {
  expect(
    SERVICE_SIZES.map(({ cpuMillis, memoryGbs }) => `${cpuMillis}/${memoryGbs}`).join(', '),
  ).toBe(PRINTED);
  expect(DEFAULT_SIZE).toEqual({ cpuMillis: 500, memoryGbs: 2 });
});

const forms = (value: number): SizeInput[] => [value, String(value)];

test('CPU implies memory and the reverse, as digits or as an integer', () => {
  for (const size of SERVICE_SIZES) {
    for (const rules of [create, resize]) {
      for (const cpu of [undefined, ...forms(size.cpuMillis)])
        for (const memory of [undefined, ...forms(size.memoryGbs)])
          if (cpu !== undefined || memory !== undefined)
            expect(parseSize(cpu, memory, rules)).toEqual({ size });
    }
  }
});

test('a missing size is the default on create, and refused on resize', () => {
  expect(parseSize(undefined, undefined, create)).toEqual({ size: DEFAULT_SIZE });
  expect(parseSize(undefined, undefined, resize)).toEqual({
    problem: expect.stringContaining(PRINTED),
  });
});

test('shared is allowed on create only, and for both fields', () => {
  expect(parseSize('shared', 'shared', create)).toEqual({ size: 'shared' });
  expect(parseSize('shared', undefined, create)).toEqual({ size: 'shared' });
  expect(parseSize(undefined, 'shared', create)).toEqual({ size: 'shared' });
  expect(parseSize('shared', '2', create)).toEqual({
    problem: expect.stringContaining('shared/shared'),
  });
  expect(parseSize('500', 'shared', create)).toHaveProperty('problem');
  const refused = parseSize('shared', 'shared', resize);
  expect(refused).toEqual({ problem: expect.stringContaining('"shared"') });
  expect(refused).toEqual({ problem: expect.not.stringContaining('shared/shared') });
});

test('every other pair is refused with what was found and what is allowed', () => {
  const input = fc.oneof(
    fc.integer({ min: -1, max: 70_000 }),
    fc.string(),
    fc.constantFrom('500', '2', '4', '1000', '0500', '5e2', ' 500'),
  );
  fc.assert(
    fc.property(input, input, (cpu, memory) => {
      const known = SERVICE_SIZES.some(
        (size) => Number(cpu) === size.cpuMillis && Number(memory) === size.memoryGbs,
      );
      fc.pre(!known && cpu !== 'shared' && memory !== 'shared');
      const parsed = parseSize(cpu, memory, create);
      expect(parsed).toEqual({ problem: expect.stringContaining(PRINTED) });
      expect(parsed).toEqual({ problem: expect.stringContaining(JSON.stringify(cpu)) });
    }),
  );
});

test('a number in another spelling is refused', () => {
  for (const cpu of ['5e2', ' 500', '500 ', '0x1f4', '+500', '500.0', ''])
    expect(parseSize(cpu, undefined, create), cpu).toHaveProperty('problem');
});

test('sizes are compared by both fields', () => {
  expect(sameSize('shared', 'shared')).toBe(true);
  expect(sameSize('shared', DEFAULT_SIZE)).toBe(false);
  for (const a of SERVICE_SIZES)
    for (const b of SERVICE_SIZES) expect(sameSize(a, { ...b })).toBe(a === b);
});
