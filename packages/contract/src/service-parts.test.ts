import { expect, test } from 'vitest';
import { partsOf } from './service-parts.ts';

const plain = { ha_replicas: { replica_count: 0 }, read_replica_sets: [] };

test('the list names replicas, pooler, read replica sets and VPC, each where there is one', () => {
  expect(partsOf(plain)).toEqual([]);
  expect(partsOf({ ...plain, ha_replicas: { replica_count: 1 } })).toEqual(['HA']);
  expect(partsOf({ ...plain, read_replica_sets: [{}] })).toEqual(['replica set']);
  expect(
    partsOf({
      ha_replicas: { replica_count: 2 },
      connection_pooler: {},
      read_replica_sets: [{}, {}],
      vpc_endpoint: {},
    }),
  ).toEqual(['HA with 2', 'pooler', '2 replica sets', 'VPC']);
});
