import { describe, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { decide, HEALTHY, type Step } from './decide.ts';
import { desiredOf } from './desired.ts';
import type { ClusterState, Observed, ServerState } from './observed.ts';

const SPEC: ServiceSpec = {
  id: 'abcde12345',
  projectId: 'proj123456',
  addons: [],
  major: 17,
  preload: [],
  extension: null,
  size: { cpuMillis: 500, memoryGbs: 2 },
  storageGb: 10,
  restarts: 0,
  provisioned: false,
  power: 'running',
  endpoint: { host: 'nodes.example.com', port: 30_001 },
  firstVerifier: 'SCRAM-SHA-256$…',
  origin: null,
  recovery: null,
  upgrade: null,
  pooler: null,
  ha: null,
  vpc: null,
  allowedNetworks: null,
  set: null,
};
const PAUSED: ServiceSpec = { ...SPEC, power: 'paused' };
const REPLICATED: ServiceSpec = {
  ...SPEC,
  ha: { replicas: 1, sync: 1, switchover: false, drill: null },
};
const REACHED = true;

const server = (n: number, change: Partial<ServerState> = {}): ServerState => ({
  n,
  ready: true,
  leaving: false,
  limits: { cpu: '500m', memory: '2Gi' },
  restarts: '0',
  ...change,
});

function up(spec: ServiceSpec, change: Partial<ClusterState> = {}): Observed {
  const instances = 1 + (spec.ha?.replicas ?? 0);
  return {
    cluster: {
      namespace: 'howdah-proj123456',
      projectId: 'proj123456',
      nodePort: 30_001,
      leaving: false,
      desired: desiredOf(spec),
      provisioned: true,
      awaited: null,
      phase: HEALTHY,
      phaseReason: null,
      instances,
      ready: instances,
      hibernated: false,
      primary: 1,
      ...change,
    },
    servers: Array.from({ length: instances }, (_, index) => server(index + 1)),
    obstacle: null,
  };
}
const NOTHING: Observed = { cluster: null, servers: [], obstacle: null };
const name = (step: Step): string => ('name' in step ? step.name : step.kind);

describe('a service that runs', () => {
  test.each<[string, ServiceSpec, Observed, boolean, string]>([
    ['is created', SPEC, NOTHING, REACHED, 'create Cluster'],
    ['is not created while it is paused', PAUSED, NOTHING, REACHED, 'settled'],
    ['is settled', SPEC, up(SPEC), REACHED, 'settled'],
    ['is connected first', SPEC, up(SPEC), !REACHED, 'connect'],
    ['is stopped', PAUSED, up(SPEC), REACHED, 'stop PostgreSQL'],
    ['is started', SPEC, up(PAUSED, { hibernated: true }), REACHED, 'start PostgreSQL'],
    ['gets a standby', REPLICATED, up(SPEC), REACHED, 'add standby'],
    ['loses a standby', SPEC, up(REPLICATED), REACHED, 'remove standby'],
    ['gets another size', { ...SPEC, size: 'shared' }, up(SPEC), REACHED, 'restart PostgreSQL'],
    ['is restarted', { ...SPEC, restarts: 1 }, up(SPEC), REACHED, 'restart PostgreSQL'],
    ['loads a library', { ...SPEC, preload: ['x'] }, up(SPEC), REACHED, 'restart PostgreSQL'],
    ['gets more storage', { ...SPEC, storageGb: 20 }, up(SPEC), REACHED, 'grow volume'],
    ['is not created again', { ...SPEC, provisioned: true }, NOTHING, REACHED, 'refuse'],
    ['waits for its deletion', SPEC, up(SPEC, { leaving: true }), REACHED, 'wait'],
    ['is written again', SPEC, up(SPEC, { desired: null }), REACHED, 'write configuration'],
  ])('%s', (_, spec, observed, isReachable, expected) => {
    expect(name(decide(spec, observed, isReachable))).toBe(expected);
  });
});

describe('a start has not ended', () => {
  const waiting = up(SPEC, { awaited: 'start PostgreSQL' });
  test('before it is what it must be', () => {
    expect(decide(SPEC, waiting, REACHED).kind).toBe('ended');
    const rows: Observed[] = [
      { ...waiting, servers: [] },
      { ...waiting, servers: [server(1, { ready: false })] },
      { ...waiting, servers: [server(1, { limits: { memory: '1Gi' } })] },
      { ...waiting, servers: [server(1, { leaving: true })] },
      up(SPEC, { awaited: 'start PostgreSQL', ready: 0 }),
      up(SPEC, { awaited: 'start PostgreSQL', hibernated: true }),
      up(SPEC, { awaited: 'start PostgreSQL', phase: 'Setting up primary' }),
    ];
    for (const observed of rows) expect(decide(SPEC, observed, REACHED).kind).toBe('wait');
  });

  test('and says what is in the way', () => {
    // The pod of initdb, before there is a server.
    const obstacle = 'pod s-abcde12345-1-initdb-x: ErrImagePull: no such image';
    expect(decide(SPEC, { ...waiting, servers: [], obstacle }, REACHED)).toMatchObject({
      why: obstacle,
      isObstacle: true,
    });
    const phase = up(SPEC, {
      awaited: 'start PostgreSQL',
      phase: 'Failing over',
      phaseReason: 'the primary is gone',
    });
    expect(decide(SPEC, phase, REACHED)).toMatchObject({
      why: 'CloudNativePG: Failing over (the primary is gone)',
    });
  });
});

test('a stop has ended when all servers are gone', () => {
  const stopping = { ...up(PAUSED, { awaited: 'stop PostgreSQL' }), servers: [server(1)] };
  expect(decide(PAUSED, stopping, REACHED).kind).toBe('wait');
  const stopped = { ...stopping, servers: [] };
  expect(decide(PAUSED, stopped, REACHED).kind).toBe('wait');
  const hibernated = up(PAUSED, { awaited: 'stop PostgreSQL', hibernated: true, ready: 0 });
  expect(decide(PAUSED, { ...hibernated, servers: [] }, REACHED).kind).toBe('ended');
});

test('a server that dies is waited for by a step of its own', () => {
  const dead = { ...up(SPEC, { ready: 0 }), servers: [server(1, { ready: false })] };
  expect(decide(SPEC, dead, REACHED)).toEqual({ kind: 'expect', name: 'start PostgreSQL' });
});
