import { expect, test } from 'vitest';
import { bucketFor, SERIES_DETAILS } from './series.ts';

const HOUR_MS = 3_600_000;

test('the length of a bucket follows from the span', () => {
  for (const [hours, seconds] of [
    [0.01, 60],
    [1, 60],
    [1.01, 3600],
    [24, 3600],
    [720, 3600],
    [721, 86_400],
  ] as const)
    expect(bucketFor(hours * HOUR_MS), `${hours} h`).toBe(seconds);
});

test('each series has a unit and a description', () => {
  expect(
    SERIES_DETAILS.find(({ name }) => name === 'timescale_cloud_system_memory_total_bytes'),
  ).toMatchObject({
    unit: 'bytes',
    description: expect.stringContaining('memory'),
    labels: ['node', 'role'],
    functions: expect.arrayContaining(['max_total', 'p99']),
  });
});
