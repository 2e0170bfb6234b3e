import { expect, test } from 'vitest';
import { waitingNote } from './waits.ts';

const note = (
  waits: Parameters<typeof waitingNote>[0]['waits'],
  milliCpu: number | null = 300,
  cpuMillis?: number,
) =>
  waitingNote({
    ...(waits === undefined ? {} : { waits }),
    metrics: { milli_cpu: milliCpu },
    resources: [{ spec: cpuMillis === undefined ? {} : { cpu_millis: cpuMillis } }],
  });

test('a service that does not wait has no note', () => {
  expect(note(undefined)).toBeNull();
  expect(note({})).toBeNull();
});

test('the number of neighbours is the reason, if there are any', () => {
  expect(note({ writes: { millis: 400, neighbours: 2 } })).toBe(
    'waits for the disk: 2 neighbours write too',
  );
  expect(note({ writes: { millis: 400, neighbours: 1 } })).toBe(
    'waits for the disk: 1 neighbour writes too',
  );
  expect(note({ writes: { millis: 400, neighbours: 0 } })).toBe(
    'waits for the disk: it writes as much as it may',
  );
  expect(note({ cpu: { millis: 900, neighbours: 1 } }, 300, 500)).toBe(
    'waits for CPU: 1 neighbour uses it too',
  );
});

test('a service beyond its guarantee learns that', () => {
  expect(note({ cpu: { millis: 900, neighbours: 3 } }, 800, 500)).toBe(
    'waits for CPU: 3 neighbours use it too, and it uses more than its guarantee',
  );
  expect(note({ cpu: { millis: 900, neighbours: 0 } }, 200)).toBe(
    'waits for CPU: it uses more than its guarantee',
  );
  expect(note({ cpu: { millis: 900 } }, null, 500)).toBe('waits for CPU');
});

test('a service whose CPU is bounded learns that', () => {
  expect(
    waitingNote({
      waits: { cpu: { millis: 900, neighbours: 1 } },
      metrics: { milli_cpu: 500 },
      resources: [{ spec: { cpu_millis: 500, cpu_bound: true } }],
    }),
  ).toBe('waits for CPU: 1 neighbour uses it too, and its size bounds it');
});

test('the disk comes first when it waits for both', () => {
  expect(note({ cpu: { millis: 900 }, writes: { millis: 200, neighbours: 1 } }, 100, 500)).toBe(
    'waits for the disk: 1 neighbour writes too; waits for CPU',
  );
});
