import { expect, test } from 'vitest';
import { whyNotReset, type Resettable, type ResetParent } from './reset.ts';

const SERVICE: Resettable = {
  id: 'fork',
  isShared: false,
  name: 'try',
  origin: { parent: 'origin', strategy: 'NOW', targetTime: null },
  pg_version: 18,
  read_replica_sets: [],
  recovery: null,
  region_code: 'local',
  storage_gb: 10,
  upgrade: null,
};
const PARENT: ResetParent = {
  id: 'origin',
  name: 'orders',
  deleted_at: null,
  deleting: false,
  pg_version: 18,
  region_code: 'local',
  status: 'READY',
  usedGb: 1,
};
const UPGRADE = { id: 'u', to: 18, undo: false, problem: null };

test('a fork whose parent is there can be reset', () => {
  expect(whyNotReset(SERVICE, PARENT, true)).toBe(null);
  expect(whyNotReset(SERVICE, { ...PARENT, status: 'PAUSED' }, true)).toBe(null);
  // An upgrade that was given up is over.
  const upgrade = { ...UPGRADE, problem: 'no room' };
  expect(whyNotReset({ ...SERVICE, upgrade }, PARENT, false)).toBe(null);
});

test.each<[string, Partial<Resettable>, Partial<ResetParent> | null, RegExp]>([
  ['is no fork', { origin: null }, {}, /no fork.*howdah service fork/],
  ['has databases of leases', { isShared: true }, {}, /leases have.*lease take origin --reset/],
  ['has an upgrade under way', { upgrade: UPGRADE }, {}, /being replaced already/],
  [
    'is being restored',
    { recovery: { id: 'r', repository: null, at: null } },
    {},
    /being replaced already/,
  ],
  ['has a parent that is gone', {}, null, /parent origin is gone for good/],
  ['has a deleted parent', {}, { deleted_at: new Date() }, /howdah service restore origin/],
  ['has a parent that is being deleted', {}, { deleting: true }, /howdah service restore origin/],
  ['has a parent elsewhere', {}, { region_code: 'kube' }, /in the region kube, and it is in local/],
  ['has an upgraded parent', {}, { pg_version: 19 }, /PostgreSQL 19, and it is of 18; fork it/],
  ['has a parent that is being made', {}, { status: 'CONFIGURING' }, /orders.*CONFIGURING/],
  ['is too small', {}, { usedGb: 10.4 }, /10\.40 GB.*resize try --storage-gb 11/],
])('a service that %s is not reset, and the reason is said', (_title, change, parent, why) => {
  const of = parent === null ? null : { ...PARENT, ...parent };
  expect(whyNotReset({ ...SERVICE, ...change }, of, true)).toMatch(why);
});

test('the present of an unstable parent cannot be had, and its past can', () => {
  const parent: ResetParent = { ...PARENT, status: 'UNSTABLE' };
  expect(whyNotReset(SERVICE, parent, true)).toMatch(/fork \(NOW\)/);
  expect(whyNotReset(SERVICE, parent, false)).toBe(null);
});

test('read replica sets are deleted first', () => {
  const sets: Resettable['read_replica_sets'] = [
    {
      id: 'set',
      name: 'readers',
      nodes: 1,
      cpu_millis: 500,
      memory_gbs: 2,
      endpoint: { host: '127.0.0.1', port: 1 },
      metadata: { environment: 'DEV' },
      purpose: 'reports',
      status: 'active',
    },
  ];
  expect(whyNotReset({ ...SERVICE, read_replica_sets: sets }, PARENT, true)).toMatch(
    /readers; delete them first/,
  );
});
