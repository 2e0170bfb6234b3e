import { expect, test } from 'vitest';
import type { Service } from './api.ts';
import { forkTree } from './tree.ts';

const service = (id: string, parent?: string): Service => ({
  service_id: id,
  project_id: 'p',
  name: id,
  service_type: 'POSTGRES',
  status: 'READY',
  region_code: 'local',
  created: '2026-01-01T00:00:00Z',
  endpoint: { host: 'localhost', port: 1 },
  ...(parent === undefined
    ? {}
    : { forked_from: { project_id: 'p', service_id: parent, is_standby: false } }),
  ha_replicas: { replica_count: 0, sync_replica_count: 0 },
  metadata: { environment: 'DEV' },
  metrics: { memory_mb: null, milli_cpu: null, storage_mb: null },
  read_replica_sets: [],
  resources: [],
});
const shape = (services: Service[]): [string, number][] =>
  forkTree(services).map(({ service: { service_id: id }, depth }) => [id, depth]);

test('a fork follows its parent, and a fork of a fork follows the fork', () => {
  const services = [
    service('a'),
    service('b'),
    service('b1', 'b'),
    service('a1', 'a'),
    service('a11', 'a1'),
    service('a2', 'a'),
  ];
  expect(shape(services)).toEqual([
    ['a', 0],
    ['a1', 1],
    ['a11', 2],
    ['a2', 1],
    ['b', 0],
    ['b1', 1],
  ]);
});

test('a fork without its parent is a root, and no service is lost', () => {
  expect(shape([service('x', 'gone'), service('y', 'x')])).toEqual([
    ['x', 0],
    ['y', 1],
  ]);
});
