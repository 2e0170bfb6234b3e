import { describe, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { changeOf } from './cluster-change.ts';
import { decide, FENCE_AFTER_MS, type Known, type Step } from './decide.ts';
import {
  LOOSE,
  name,
  NOTHING,
  PAUSED,
  REACHED,
  REPLICATED,
  server,
  SPEC,
  UNREACHED,
  up,
} from './decide.testing.ts';
import { desiredOf, type Desired } from './desired-state.ts';
import type { Observed } from './state.ts';

test('a pooler is stopped before its server, and started after that is reached', () => {
  const pooled = { ...SPEC, pooler: { port: 30_002 } };
  const pooler = { hash: 'h', isWanted: true, isReady: false };
  const stopped: ServiceSpec = { ...pooled, power: 'paused' };
  expect(name(decide(stopped, { ...up(SPEC), pooler }, REACHED))).toBe('stop connection pooler');
  expect(name(decide(pooled, up(SPEC), UNREACHED))).toBe('connect');
  expect(name(decide(pooled, up(SPEC), REACHED))).toBe('start connection pooler');
});

describe('a service that runs', () => {
  test.each<[string, ServiceSpec, Observed, Known, string]>([
    ['is created', SPEC, NOTHING, REACHED, 'create Cluster'],
    ['is not created while it is paused', PAUSED, NOTHING, REACHED, 'settled'],
    ['is settled', SPEC, up(SPEC), REACHED, 'settled'],
    ['is connected first', SPEC, up(SPEC), UNREACHED, 'connect'],
    ['is stopped', PAUSED, up(SPEC), REACHED, 'stop PostgreSQL'],
    ['is started', SPEC, up(PAUSED, { hibernated: true }), REACHED, 'start PostgreSQL'],
    ['gets a standby', REPLICATED, up(SPEC), REACHED, 'add standby'],
    ['loses a standby', SPEC, up(LOOSE), REACHED, 'remove standby'],
    ['waits for no standby any more', LOOSE, up(REPLICATED), REACHED, 'write configuration'],
    ['gets another size', { ...SPEC, size: 'shared' }, up(SPEC), REACHED, 'restart PostgreSQL'],
    ['is restarted', { ...SPEC, restarts: 1 }, up(SPEC), REACHED, 'restart PostgreSQL'],
    ['loads a library', { ...SPEC, preload: ['x'] }, up(SPEC), REACHED, 'restart PostgreSQL'],
    ['gets more storage', { ...SPEC, storageGb: 20 }, up(SPEC), REACHED, 'grow volume'],
    ['is not created again', { ...SPEC, provisioned: true }, NOTHING, REACHED, 'refuse'],
    ['waits for its deletion', SPEC, up(SPEC, { leaving: true }), REACHED, 'wait'],
    ['is written again', SPEC, up(SPEC, { desired: null }), REACHED, 'write configuration'],
  ])('%s', (_, spec, observed, known, expected) => {
    expect(name(decide(spec, observed, known))).toBe(expected);
  });
});

describe('a start has not ended', () => {
  const waiting = up(SPEC, { awaited: 'start PostgreSQL' });
  test('before it is what it must be', () => {
    expect(decide(SPEC, waiting, REACHED).kind).toBe('ended');
    const rows: Observed[] = [
      { ...waiting, servers: [] },
      { ...waiting, servers: [server(0, { ready: false })] },
      { ...waiting, servers: [server(0, { limits: { memory: '1Gi' } })] },
      { ...waiting, servers: [server(0, { leaving: true })] },
      up(SPEC, { awaited: 'start PostgreSQL', ready: 0 }),
      up(SPEC, { awaited: 'start PostgreSQL', hibernated: true }),
      up(SPEC, { awaited: 'start PostgreSQL', phase: 'Setting up primary' }),
      up(SPEC, { awaited: 'start PostgreSQL', isChangingPrimary: true }),
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
  const stopping = { ...up(PAUSED, { awaited: 'stop PostgreSQL' }), servers: [server(0)] };
  expect(decide(PAUSED, stopping, REACHED).kind).toBe('wait');
  const stopped = { ...stopping, servers: [] };
  expect(decide(PAUSED, stopped, REACHED).kind).toBe('wait');
  const hibernated = up(PAUSED, { awaited: 'stop PostgreSQL', hibernated: true, ready: 0 });
  expect(decide(PAUSED, { ...hibernated, servers: [] }, REACHED).kind).toBe('ended');
});

test('a server that dies is waited for by a step of its own', () => {
  const dead = { ...up(SPEC, { ready: 0 }), servers: [server(0, { ready: false })] };
  expect(decide(SPEC, dead, REACHED)).toEqual({ kind: 'expect', name: 'start PostgreSQL' });
});

describe('another primary', () => {
  const asked: Known = { ...REACHED, isSwitchoverAsked: true };
  const drilled = (drill: 'failover' | 'switchover'): ServiceSpec => ({
    ...REPLICATED,
    ha: { replicas: 1, sync: 1, switchover: false, drill },
  });

  test.each<[string, ServiceSpec, Observed, Known, Step]>([
    [
      'is asked for',
      REPLICATED,
      up(REPLICATED),
      asked,
      { kind: 'switchOver', name: 'switch over to member 1', to: 1 },
    ],
    [
      'is the first that runs',
      REPLICATED,
      up(REPLICATED, { primary: 1 }),
      asked,
      { kind: 'switchOver', name: 'switch over to member 0', to: 0 },
    ],
    [
      'is not asked for after a failover',
      REPLICATED,
      up(REPLICATED, { primary: 1 }),
      REACHED,
      { kind: 'settled' },
    ],
    [
      'is made by a drill',
      drilled('failover'),
      up(REPLICATED),
      REACHED,
      { kind: 'drill', name: 'drill', drill: 'failover', to: 1 },
    ],
  ])('%s', (_, spec, observed, known, expected) => {
    expect(decide(spec, observed, known)).toEqual(expected);
  });

  test('is asked for once all servers run, and no drill begins before', () => {
    const lacking = { ...up(REPLICATED, { ready: 1 }), servers: [server(0)] };
    for (const spec of [REPLICATED, drilled('switchover')])
      expect(decide(spec, lacking, asked)).toEqual({ kind: 'expect', name: 'start PostgreSQL' });
  });

  test('is asked for again if the request is lost, until it is the primary', () => {
    const awaited = 'switch over to member 1';
    const before = up(REPLICATED, { awaited });
    expect(decide(REPLICATED, before, asked)).toEqual({ kind: 'switchOver', name: awaited, to: 1 });
    const during = up(REPLICATED, { awaited, isChangingPrimary: true });
    expect(decide(REPLICATED, during, asked).kind).toBe('wait');
    const after = up(REPLICATED, { awaited, primary: 1 });
    expect(decide(REPLICATED, after, asked)).toMatchObject({ kind: 'ended', name: awaited });
    // A failover has made another one the primary.
    expect(decide(REPLICATED, before, REACHED).kind).toBe('ended');
  });

  test('by itself is waited for until it is recorded', () => {
    const failing: Known = { ...REACHED, isFailingOver: true };
    expect(decide(REPLICATED, up(REPLICATED), failing)).toMatchObject({
      kind: 'wait',
      what: 'fail over',
    });
    const paused: ServiceSpec = { ...REPLICATED, power: 'paused' };
    expect(name(decide(paused, up(REPLICATED), failing))).toBe('stop PostgreSQL');
  });
});

describe('a stop whose servers do not become healthy', () => {
  const stuck = up(PAUSED, { awaited: 'stop PostgreSQL', waitsForHealthy: true, ready: 0 });
  const waited: Known = { ...REACHED, waitedMs: FENCE_AFTER_MS };

  test('stops PostgreSQL in their pods after a while', () => {
    const obstacle = 'pod s-abcde12345-1-initdb-x: ErrImagePull: no such image';
    // The pod is no obstacle: the stop goes on without it.
    expect(decide(PAUSED, { ...stuck, obstacle }, REACHED)).toMatchObject({
      kind: 'wait',
      isObstacle: false,
    });
    expect(decide(PAUSED, stuck, waited)).toEqual({ kind: 'fence', name: 'stop PostgreSQL' });
  });

  test('has ended when nothing answers, and is undone by a start', () => {
    const cluster = { awaited: 'stop PostgreSQL', waitsForHealthy: true, fenced: true } as const;
    const fenced = up(PAUSED, cluster);
    expect(decide(PAUSED, fenced, waited)).toEqual({
      kind: 'expectSilence',
      name: 'stop PostgreSQL',
    });
    const stopped = up(PAUSED, { ...cluster, awaited: null });
    expect(decide(PAUSED, stopped, REACHED).kind).toBe('settled');
    expect(name(decide(SPEC, stopped, REACHED))).toBe('start PostgreSQL');
  });
});

test('no write waits for a standby before it exists, or after it must go', () => {
  const names = (from: Desired, to: Desired): unknown[] => {
    const steps: unknown[] = [];
    for (let before = from; ;) {
      const change = changeOf(before, to);
      if (change === null) return steps;
      before = change.desired;
      steps.push([change.name, before.replicas, before.sync]);
    }
  };
  const none = desiredOf(SPEC);
  const one = { ...none, replicas: 1, sync: 1 };
  const loose = { ...none, replicas: 2 };
  expect(names(none, one)).toEqual([
    ['add standby', 1, 0],
    ['write configuration', 1, 1],
  ]);
  expect(names(one, none)).toEqual([
    ['write configuration', 1, 0],
    ['remove standby', 0, 0],
  ]);
  expect(names(loose, one)).toEqual([
    ['remove standby', 1, 0],
    ['write configuration', 1, 1],
  ]);
  expect(names(one, { ...one, replicas: 2 })).toEqual([['add standby', 2, 1]]);
});

test('writes wait for a standby once it has been added', () => {
  const added = desiredOf(LOOSE);
  const adding = up(REPLICATED, { desired: added, awaited: 'add standby', ready: 1 });
  expect(decide(REPLICATED, adding, REACHED)).toMatchObject({ kind: 'wait', what: 'add standby' });
  const there = up(REPLICATED, { desired: added, awaited: 'add standby' });
  expect(decide(REPLICATED, there, REACHED)).toMatchObject({ kind: 'ended', name: 'add standby' });
  const next = up(REPLICATED, { desired: added });
  expect(decide(REPLICATED, next, REACHED)).toMatchObject({ name: 'write configuration' });
  // Another change does not wait.
  expect(name(decide(SPEC, adding, REACHED))).toBe('remove standby');
});
