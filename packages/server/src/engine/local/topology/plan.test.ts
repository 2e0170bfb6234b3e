import { OPERATION_KINDS } from '@howdah/contract';
import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { planOf } from './plan.ts';

const SPEC: ServiceSpec = {
  id: 'aaaaaaaaaa',
  addons: [],
  size: 'shared',
  storageGb: 10,
  power: 'running',
  endpoint: { host: '127.0.0.1', port: 20000 },
  firstVerifier: null,
  origin: null,
  pooler: null,
  ha: null,
  set: null,
  vpc: null,
};
const VPC = { id: 'cccccccccc', address: null, allowedNetworks: ['10.0.0.0/24'] };
const origin = { parent: 'bbbbbbbbbb', strategy: 'NOW', targetTime: null } as const;

test.each([
  ['create', {}, true, ['set password']],
  ['create', {}, false, ['clone template', 'start PostgreSQL', 'set password']],
  ['create', { pooler: { port: 20003 } }, true, ['set password', 'start connection pooler']],
  [
    'create',
    { ha: { replicas: 1, sync: 1, switchover: false, drill: null } },
    true,
    ['set password', 'clone primary (member 1)', 'start PostgreSQL (member 1)'],
  ],
  ['fork', { origin }, false, ['clone parent', 'start PostgreSQL', 'set password']],
  ['stop', { power: 'paused' }, true, ['stop PostgreSQL']],
  [
    'stop',
    { power: 'paused', pooler: { port: 20003 } },
    true,
    ['stop connection pooler', 'stop PostgreSQL'],
  ],
  ['delete', { power: 'paused' }, false, []],
  ['resize', {}, true, ['stop PostgreSQL', 'write configuration', 'start PostgreSQL']],
  ['resize', { power: 'paused' }, false, []],
  ['start', { pooler: { port: 20003 } }, false, ['start PostgreSQL', 'start connection pooler']],
  ['enablePooler', { pooler: { port: 20003 } }, true, ['start connection pooler']],
  ['enablePooler', { pooler: { port: 20003 }, power: 'paused' }, false, []],
  ['disablePooler', {}, true, ['stop connection pooler']],
  ['attachToVPC', { vpc: VPC }, true, ['reload configuration', 'terminate disallowed sessions']],
  ['detachFromVPC', {}, true, ['reload configuration']],
  ['attachToVPC', { vpc: VPC }, false, []],
  ['rename', {}, true, []],
] as const)('%s of %j, running: %s', (kind, more, running, steps) => {
  expect(planOf(kind, { ...SPEC, ...more }, running)).toEqual(steps);
});

test('a resize that keeps the size reloads the configuration, without a restart', () => {
  expect(planOf('resize', SPEC, true, true)).toEqual(['reload configuration']);
  expect(planOf('resize', { ...SPEC, power: 'paused' }, false, true)).toEqual([]);
});

test('every kind of operation has a plan', () => {
  for (const kind of OPERATION_KINDS)
    expect(Array.isArray(planOf(kind, SPEC, true)), kind).toBe(true);
});

test('where a VPC is a network, the server and its pooler move into it and out of it', () => {
  const there = { hasGateway: false, primary: 0, servers: [], movesIntoVpc: true };
  const inside = { ...SPEC, vpc: { ...VPC, address: '10.0.0.2' }, pooler: { port: 20003 } };
  expect(planOf('attachToVPC', inside, true, false, there)).toEqual([
    'stop connection pooler',
    'stop PostgreSQL',
    'write configuration',
    'start PostgreSQL',
    'start connection pooler',
  ]);
  expect(planOf('detachFromVPC', SPEC, true, false, there)).toEqual([
    'stop PostgreSQL',
    'write configuration',
    'start PostgreSQL',
  ]);
});
