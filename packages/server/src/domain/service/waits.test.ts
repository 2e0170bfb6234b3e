import { expect, test } from 'vitest';
import { notableWaits } from './waits.ts';

const used = (cpuMillis: number, cpu: number, writes: number | null, neighbours = 0) => ({
  cpuMillis,
  waits: {
    cpu: { millis: cpu, neighbours },
    writes: writes === null ? null : { millis: writes, neighbours },
  },
});

test('a short wait is not worth a word, and one beside much work neither', () => {
  expect(notableWaits([used(10, 150, 99)])).toBeNull();
  expect(notableWaits([used(1900, 450, null)])).toBeNull();
  expect(notableWaits([{ cpuMillis: 1900, waits: { cpu: null, writes: null } }])).toBeNull();
  expect(notableWaits([])).toBeNull();
});

test('a long wait is, with the number of neighbours if it is known', () => {
  expect(notableWaits([used(400, 600, 20, 2)])).toEqual({ cpu: { millis: 600, neighbours: 2 } });
  expect(notableWaits([used(400, 20, 500, 1)])).toEqual({ writes: { millis: 500, neighbours: 1 } });
  const unknown = {
    cpuMillis: 100,
    waits: { cpu: { millis: 900, neighbours: null }, writes: null },
  };
  expect(notableWaits([unknown])).toEqual({ cpu: { millis: 900 } });
});

test('the node of a set that waits longest counts', () => {
  expect(notableWaits([used(400, 300, 0, 1), used(400, 900, 100, 2)])).toEqual({
    cpu: { millis: 900, neighbours: 2 },
    writes: { millis: 100, neighbours: 2 },
  });
});
