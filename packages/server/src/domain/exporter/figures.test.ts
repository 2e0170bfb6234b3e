import { expect, test } from 'vitest';
import { FIGURE_NAMES, figuresOf, labelsOf, type ExportedSample } from './figures.ts';

const SAMPLE: ExportedSample = {
  projectId: 'project',
  serviceId: 'service',
  region: 'region',
  node: 2,
  role: 'replica',
  at: new Date('2026-11-27T10:00:00Z'),
  cpu_millis: 250,
  memory_bytes: 1e9,
  storage_bytes: 2e9,
  connections: 3,
  transactions_per_second: 4.5,
  lag_bytes: 0,
  lag_seconds: null,
  cpu_wait_millis: 0,
  write_wait_millis: null,
  cpu_guaranteed_millis: 100,
  memory_limit_bytes: null,
};

test('labels name the server, sorted by their names, as remote write requires', () => {
  const labels = labelsOf(SAMPLE);
  expect(Object.fromEntries(labels)).toEqual({
    node: '2',
    project_id: 'project',
    region: 'region',
    role: 'replica',
    service_id: 'service',
  });
  const names = labels.map(([name]) => name);
  expect(names).toEqual(names.toSorted());
});

test('a figure of 0 is exported, one that is unknown is not', () => {
  const values = new Map(figuresOf(SAMPLE).map(({ name, value }) => [name, value]));
  expect(values.get('howdah_replica_lag_bytes')).toBe(0);
  expect(values.has('howdah_replica_lag_seconds')).toBe(false);
  expect([...values.keys()].every((name) => FIGURE_NAMES.includes(name))).toBe(true);
});
