import { OPERATION_KINDS } from '@howdah/contract';
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { planOf } from './plan.ts';

const SPEC: ServiceSpec = {
  id: 'aaaaaaaaaa',
  addons: [],
  major: null,
  preload: [],
  extension: null,
  size: 'shared',
  storageGb: 10,
  restarts: 0,
  provisioned: false,
  power: 'running',
  endpoint: { host: '127.0.0.1', port: 20000 },
  projectId: null,
  firstVerifier: null,
  origin: null,
  recovery: null,
  upgrade: null,
  pooler: null,
  ha: null,
  set: null,
  vpc: null,
  allowedNetworks: null,
};
const VPC = { id: 'cccccccccc', address: null };
const allowedNetworks = ['10.0.0.0/24'];
const origin = { parent: 'bbbbbbbbbb', strategy: 'NOW', targetTime: null } as const;

test.each([
  ['create', {}, true, ['set password']],
  ['create', {}, false, ['clone template', 'start PostgreSQL', 'set password']],
  ['create', { pooler: { port: 20003 } }, true, ['set password', 'start connection pooler']],
  ['fork', { origin }, false, ['clone parent', 'start PostgreSQL', 'set password']],
  [
    'reset',
    { upgrade: { id: 'r', to: 18, undo: false, before: null, reset: origin } },
    true,
    ['clone parent, beside the service', 'exchange data', 'start PostgreSQL'],
  ],
  [
    'reset',
    { upgrade: { id: 'r', to: 18, undo: false, before: null, reset: origin } },
    false,
    ['start PostgreSQL', 'clone parent, beside the service', 'exchange data', 'start PostgreSQL'],
  ],
  ['stop', { power: 'paused' }, true, ['stop PostgreSQL']],
  [
    'stop',
    { power: 'paused', pooler: { port: 20003 } },
    true,
    ['stop connection pooler', 'stop PostgreSQL'],
  ],
  ['delete', { power: 'paused' }, false, []],
  ['resize', { power: 'paused' }, false, []],
  ['start', { pooler: { port: 20003 } }, false, ['start PostgreSQL', 'start connection pooler']],
  ['enablePooler', { pooler: { port: 20003 } }, true, ['start connection pooler']],
  ['enablePooler', { pooler: { port: 20003 }, power: 'paused' }, false, []],
  ['disablePooler', {}, true, ['stop connection pooler']],
  [
    'attachToVPC',
    { vpc: VPC, allowedNetworks },
    true,
    ['reload configuration', 'terminate disallowed sessions'],
  ],
  ['detachFromVPC', {}, true, ['reload configuration']],
  [
    'enableExtension',
    { extension: { name: 'hypopg', wanted: 'created' } },
    true,
    ['create extension'],
  ],
  [
    'enableExtension',
    { preload: ['pgaudit'], extension: { name: 'pgaudit', wanted: 'created' } },
    true,
    ['stop PostgreSQL', 'write configuration', 'start PostgreSQL', 'create extension'],
  ],
  [
    'disableExtension',
    { extension: { name: 'pgaudit', wanted: 'dropped' } },
    true,
    ['drop extension', 'stop PostgreSQL', 'write configuration', 'start PostgreSQL'],
  ],
  ['attachToVPC', { vpc: VPC, allowedNetworks }, false, []],
  [
    'attachToAllowList',
    { allowedNetworks },
    true,
    ['reload configuration', 'terminate disallowed sessions'],
  ],
  ['attachToAllowList', { vpc: VPC, allowedNetworks }, true, []],
  ['attachToAllowList', { allowedNetworks }, false, []],
  ['detachFromAllowList', {}, true, ['reload configuration']],
  ['rename', {}, true, []],
  ['setBackupRetention', {}, true, []],
] as const)('%s of %j, running: %s', (kind, more, running, steps) => {
  expect(planOf(kind, { ...SPEC, ...more }, running)).toEqual(steps);
});

test('a resize that keeps the size reloads the configuration, without a restart', () => {
  expect(planOf('resize', SPEC, true)).toEqual(['reload configuration']);
  expect(planOf('resize', { ...SPEC, power: 'paused' }, false)).toEqual([]);
});

test('every kind of operation has a plan', () => {
  for (const kind of OPERATION_KINDS)
    expect(Array.isArray(planOf(kind, SPEC, true)), kind).toBe(true);
});

test('where a VPC is a network, the server and its pooler move into it and out of it', () => {
  const there = { hasGateway: false, primary: 0, servers: [], movesIntoVpc: true };
  const inside = { ...SPEC, vpc: { ...VPC, address: '10.0.0.2' }, pooler: { port: 20003 } };
  expect(planOf('attachToVPC', inside, true, 'shared', there)).toEqual([
    'stop connection pooler',
    'stop PostgreSQL',
    'write configuration',
    'start PostgreSQL',
    'start connection pooler',
  ]);
  expect(planOf('detachFromVPC', SPEC, true, 'shared', there)).toEqual([
    'stop PostgreSQL',
    'write configuration',
    'start PostgreSQL',
  ]);
});

const SMALL = { cpuMillis: 500, memoryGbs: 2 } as const;
const LARGE = { cpuMillis: 1000, memoryGbs: 4 } as const;

test('a resize restarts the server', () => {
  expect(planOf('resize', { ...SPEC, size: LARGE }, true, SMALL)).toEqual([
    'stop PostgreSQL',
    'write configuration',
    'start PostgreSQL',
  ]);
});

const withReplicas = (replicas: number, more: Partial<ServiceSpec> = {}): ServiceSpec => ({
  ...SPEC,
  ha: { replicas, sync: Math.min(1, replicas), switchover: false, drill: null },
  ...more,
});
const SET: ServiceSpec = { ...SPEC, set: { parent: 'bbbbbbbbbb', nodes: 2, purpose: 'reports' } };
const THREE = { hasGateway: true, primary: 0, servers: [0, 1, 2], movesIntoVpc: true };
const ALONE = { ...THREE, hasGateway: false, servers: [0] };

test('the first replica puts a gateway in front of the primary', () => {
  expect(planOf('setHA', withReplicas(1), true, 'shared', ALONE)).toEqual([
    'start gateway in front of primary',
    'clone primary (member 1)',
    'start PostgreSQL (member 1)',
    'reload configuration (member 0)',
  ]);
});

test('a replica that goes is not waited for before it is removed', () => {
  expect(planOf('setHA', withReplicas(1), true, 'shared', THREE)).toEqual([
    'reload configuration (member 0)',
    'remove member 2',
    'configure replication slots',
  ]);
});

test('a cluster stops with its primary first', () => {
  expect(planOf('stop', withReplicas(2, { power: 'paused' }), true, 'shared', THREE)).toEqual([
    'stop PostgreSQL (member 0)',
    'stop PostgreSQL (member 1)',
    'stop PostgreSQL (member 2)',
    'stop gateway',
  ]);
});

/** The steps of a plan without those that bring files, slots and routes up to date. */
const without = (steps: readonly string[]): string[] =>
  steps.filter((step) => !/configuration|slots|route/.test(step));

test('replicas get more memory before their primary, and less after it', () => {
  const two = { ...THREE, servers: [0, 1] };
  const replica = ['stop PostgreSQL (member 1)', 'start PostgreSQL (member 1)'];
  const larger = withReplicas(1, { size: LARGE });
  expect(without(planOf('resize', larger, true, SMALL, two))).toEqual([
    ...replica,
    'switch over to member 1',
    'start PostgreSQL (member 0)',
  ]);
  const smaller = withReplicas(1, { size: SMALL });
  expect(without(planOf('resize', smaller, true, LARGE, two))).toEqual([
    'restart primary',
    ...replica,
  ]);
});

test('a restart restarts standbys and nodes first, then a standby becomes the primary', () => {
  expect(planOf('restart', SPEC, true)).toEqual(['stop PostgreSQL', 'start PostgreSQL']);
  expect(planOf('restart', { ...SPEC, power: 'paused' }, false)).toEqual([]);
  const two = { ...THREE, servers: [0, 1] };
  expect(without(planOf('restart', withReplicas(1), true, 'shared', two))).toEqual([
    'stop PostgreSQL (member 1)',
    'start PostgreSQL (member 1)',
    'switch over to member 1',
    'start PostgreSQL (member 0)',
  ]);
  expect(without(planOf('restart', SET, true))).toEqual(['restart node 1', 'restart node 2']);
});

test('a former primary follows after a switchover, and is made again after a failover', () => {
  const { ha } = withReplicas(1);
  if (ha === null) return expect.unreachable();
  const two = { ...THREE, servers: [0, 1] };
  const asked = (more: Partial<typeof ha>) => ({ ...SPEC, ha: { ...ha, ...more } });
  const switchover = planOf('switchover', asked({ switchover: true }), true, 'shared', two);
  expect(without(switchover)).toEqual(['switch over to member 1', 'start PostgreSQL (member 0)']);
  const drill = planOf('drill', asked({ drill: 'failover' }), true, 'shared', two);
  expect(without(drill)).toEqual([
    'drill',
    'clone primary (member 0)',
    'start PostgreSQL (member 0)',
  ]);
});

test('a cluster moves into a VPC with its pooler, its gateway and its replicas', () => {
  const two = { ...THREE, servers: [0, 1] };
  const vpc = { ...VPC, address: '10.0.0.2' };
  const inside = withReplicas(1, { vpc, pooler: { port: 20003 } });
  expect(without(planOf('attachToVPC', inside, true, 'shared', two))).toEqual([
    'stop connection pooler (member 0)',
    'move primary and gateway',
    'start connection pooler (member 0)',
    'stop PostgreSQL (member 1)',
    'start PostgreSQL (member 1)',
  ]);
  const rules = withReplicas(1, { vpc: VPC, allowedNetworks });
  expect(planOf('attachToVPC', rules, true, 'shared', two)).toEqual(['configure allowed networks']);
});

test('a spare gets its gateway before its password', () => {
  expect(planOf('create', withReplicas(1), true, 'shared', ALONE).slice(0, 2)).toEqual([
    'start gateway in front of primary',
    'set password (member 0)',
  ]);
});

test('the nodes of a read replica set are made and restarted one after the other', () => {
  expect(planOf('create', SET, false)).toEqual([
    'create directory',
    'start gateway',
    'configure replication slots',
    'clone primary (node 1)',
    'start PostgreSQL (node 1)',
    'route gateway to nodes',
    'clone primary (node 2)',
    'start PostgreSQL (node 2)',
    'route gateway to nodes',
  ]);
  expect(without(planOf('resize', { ...SET, size: LARGE }, true, SMALL))).toEqual([
    'restart node 1',
    'restart node 2',
  ]);
  expect(planOf('stop', { ...SET, power: 'paused' }, true)).toEqual([
    'stop PostgreSQL (node 1)',
    'stop PostgreSQL (node 2)',
    'stop gateway',
  ]);
});
