import { describe, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { decide } from '../cluster/decide.ts';
import {
  name,
  NOTHING,
  PAUSED,
  server,
  SPEC,
  UNREACHED,
  up,
  REACHED,
} from '../cluster/decide.testing.ts';
import { desiredOf } from '../cluster/desired-state.ts';
import type { Observed, SnapshotState } from '../cluster/state.ts';

describe('a fork', () => {
  const parent = up(SPEC).cluster;
  const FORK: ServiceSpec = {
    ...SPEC,
    origin: { parent: 'parent1234', strategy: 'NOW', targetTime: null },
  };
  const copying = { ...desiredOf(SPEC), parent: 'parent1234' };
  const begun: Observed = {
    ...up(FORK, { desired: copying, provisioned: false, awaited: 'start PostgreSQL', ready: 0 }),
    servers: [],
    parent,
  };
  const off: Observed[] = [
    { ...begun, parent: null },
    up(SPEC, { leaving: true }),
    up(SPEC, { desired: desiredOf(PAUSED) }),
    up(SPEC, { hibernated: true }),
    up(SPEC, { fenced: true }),
  ].map(({ cluster }, index) => ({ ...begun, parent: index === 0 ? null : cluster }));

  test('copies its parent, and is detached from it before anybody connects', () => {
    expect(decide(FORK, { ...NOTHING, parent }, UNREACHED)).toMatchObject({
      kind: 'write',
      name: 'create Cluster',
      detail: 'PostgreSQL 17 with the data of parent1234',
      desired: copying,
    });
    expect(decide(FORK, begun, UNREACHED)).toMatchObject({ kind: 'wait', isObstacle: false });
    const change = { desired: copying, provisioned: false } as const;
    const started = { ...up(FORK, change), parent };
    expect(decide(FORK, started, UNREACHED)).toMatchObject({
      kind: 'write',
      name: 'detach from parent',
      awaits: false,
      desired: desiredOf(FORK),
    });
    const detached = up(FORK, { provisioned: false });
    expect(decide(FORK, detached, UNREACHED).kind).toBe('connect');
    // A detached fork is never attached again.
    expect(name(decide(FORK, { ...detached, servers: [] }, UNREACHED))).toBe('start PostgreSQL');
    expect(name(decide({ ...FORK, provisioned: true }, up(FORK), REACHED))).toBe('settled');
  });

  test('stays attached while it copies, although somebody has changed its annotation', () => {
    const unknown = up(FORK, { desired: null, provisioned: false, awaited: 'start PostgreSQL' });
    expect(decide(FORK, { ...unknown, servers: [], parent }, UNREACHED)).toMatchObject({
      kind: 'write',
      desired: copying,
    });
  });

  test('says that its parent does not run or is gone, before and while it copies', () => {
    const whys = off.map((observed) => {
      const steps = [{ ...observed, cluster: null }, observed].map((one) =>
        decide(FORK, one, UNREACHED),
      );
      expect(steps).toMatchObject([
        { kind: 'wait', what: 'create Cluster', isObstacle: true },
        { kind: 'wait', what: 'start PostgreSQL', isObstacle: true },
      ]);
      return steps.map((step) => ('why' in step ? step.why : ''));
    });
    const gone = 'its parent parent1234 has no Cluster any more; delete the fork';
    const down = 'its parent parent1234 does not run; start that, or delete the fork';
    expect(whys.flat()).toEqual([gone, gone, gone, gone, down, down, down, down, down, down]);
  });

  test('does not need its parent once it has the data, and can be stopped without it', () => {
    const waiting = { ...begun, parent: null, servers: [server(0, { ready: false })] };
    expect(decide(FORK, waiting, UNREACHED)).toMatchObject({ kind: 'wait', isObstacle: false });
    const stopped: ServiceSpec = { ...FORK, power: 'paused' };
    expect(name(decide(stopped, { ...begun, parent: null }, UNREACHED))).toBe('stop PostgreSQL');
    const stopping = up(stopped, {
      desired: { ...copying, running: false },
      provisioned: false,
      awaited: 'stop PostgreSQL',
    });
    expect(decide(stopped, { ...stopping, servers: [] }, UNREACHED)).toMatchObject({
      kind: 'wait',
      isObstacle: false,
    });
  });
});

describe('a fork of a stopped service', () => {
  const parent = up(SPEC, { desired: desiredOf(PAUSED), hibernated: true, primary: 1 }).cluster;
  const FORK: ServiceSpec = {
    ...SPEC,
    origin: { parent: 'parent1234', strategy: 'NOW', targetTime: null },
  };
  const snapshot: SnapshotState = { ready: true, isAwaited: false, problem: null };
  const known = { ...UNREACHED, snapshotClass: 'snap' };
  const source = { parent: 'parent1234', snapshot: 's-abcde12345-origin', targetTime: null };
  const restoring = desiredOf(FORK, source, 'snap');

  test('is made of a snapshot of the volume of the primary', () => {
    expect(decide(FORK, { ...NOTHING, parent }, known)).toEqual({
      kind: 'snapshot',
      name: 'take snapshot',
      parent: 'parent1234',
      primary: 1,
    });
    const taking: Observed = { ...NOTHING, parent, snapshot: { ...snapshot, ready: false } };
    expect(decide(FORK, taking, known)).toMatchObject({ kind: 'wait', isObstacle: false });
    const failing = { ...snapshot, ready: false, problem: 'no room' };
    expect(decide(FORK, { ...taking, snapshot: failing }, known)).toMatchObject({
      kind: 'wait',
      what: 'take snapshot',
      why: 'no room',
      isObstacle: true,
    });
    const taken = { ...NOTHING, snapshot: { ...snapshot, isAwaited: true } };
    expect(decide(FORK, taken, known).kind).toBe('taken');
    // Whatever has become of the parent.
    expect(decide(FORK, { ...NOTHING, snapshot }, known)).toMatchObject({
      kind: 'write',
      name: 'create Cluster',
      desired: restoring,
    });
  });

  test('does not need its parent, and is detached once it runs', () => {
    const change = { desired: restoring, provisioned: false } as const;
    const starting = up(FORK, { ...change, awaited: 'start PostgreSQL', ready: 0 });
    expect(decide(FORK, { ...starting, servers: [] }, known)).toMatchObject({
      kind: 'wait',
      isObstacle: false,
    });
    expect(decide(FORK, up(FORK, change), known)).toMatchObject({
      kind: 'write',
      name: 'detach from parent',
      desired: desiredOf(FORK, null, 'snap'),
    });
    // Somebody has changed its annotation.
    const unknown = { ...starting, servers: [], snapshot };
    const cluster = starting.cluster === null ? null : { ...starting.cluster, desired: null };
    expect(decide(FORK, { ...unknown, cluster }, known)).toMatchObject({ desired: restoring });
  });

  test.each([
    ['no class', parent, UNREACHED],
    ['a stop that has not ended', parent && { ...parent, awaited: 'stop PostgreSQL' }, known],
    ['a primary that is not known', parent && { ...parent, primary: null }, known],
  ])('waits with its reason: %s', (_, state, knowing) => {
    expect(decide(FORK, { ...NOTHING, parent: state }, knowing)).toMatchObject({
      kind: 'wait',
      what: 'create Cluster',
      why: 'its parent parent1234 does not run; start that, or delete the fork',
    });
  });
});

describe('a fork of a running service in a region with snapshots', () => {
  const FORK: ServiceSpec = {
    ...SPEC,
    origin: { parent: 'parent1234', strategy: 'NOW', targetTime: null },
  };
  const known = { ...UNREACHED, snapshotClass: 'snap' };
  const running: Observed = { ...NOTHING, parent: up(SPEC).cluster };
  const backup: SnapshotState = { ready: true, isAwaited: false, problem: null };
  const restoring = desiredOf(
    FORK,
    { parent: 'parent1234', snapshot: 's-abcde12345-online', targetTime: null },
    'snap',
  );
  const copying = desiredOf(
    FORK,
    { parent: 'parent1234', snapshot: null, targetTime: null },
    'snap',
  );
  const withBackup = (change: Partial<SnapshotState>): Observed => ({
    ...running,
    backup: { ...backup, ...change },
    // One of before the call.
    newestSnapshot: 's-parent1234-20261126000000',
  });

  test('is made of a snapshot that is taken for it', () => {
    expect(decide(FORK, running, known)).toEqual({
      kind: 'backUp',
      name: 'take snapshot',
      parent: 'parent1234',
      primary: 0,
    });
    // The next primary may lack what this one has acknowledged.
    const parent = up(SPEC, { isChangingPrimary: true }).cluster;
    expect(decide(FORK, { ...running, parent }, known)).toMatchObject({
      kind: 'wait',
      what: 'take snapshot',
      why: 'the primary of its parent parent1234 is changing',
      isObstacle: false,
    });
    expect(decide(FORK, withBackup({ ready: false, isAwaited: true }), known)).toMatchObject({
      kind: 'wait',
      what: 'take snapshot',
      isObstacle: false,
    });
    expect(decide(FORK, withBackup({ isAwaited: true }), known)).toMatchObject({
      kind: 'taken',
      of: 'backup',
    });
    // Whatever has become of the parent.
    for (const parent of [running.parent, null])
      expect(decide(FORK, { ...withBackup({}), parent }, known)).toMatchObject({
        kind: 'write',
        name: 'create Cluster',
        detail: 'PostgreSQL 17 with the data of parent1234',
        desired: restoring,
      });
  });

  test('stays with its snapshot, and is detached once it runs', () => {
    const change = { desired: restoring, provisioned: false } as const;
    const starting = up(FORK, { ...change, awaited: 'start PostgreSQL', ready: 0 });
    const observed = { ...withBackup({}), ...starting, servers: [], parent: null };
    expect(decide(FORK, observed, known)).toMatchObject({ kind: 'wait', isObstacle: false });
    expect(decide(FORK, up(FORK, change), known)).toMatchObject({
      name: 'detach from parent',
      desired: desiredOf(FORK, null, 'snap'),
    });
    // Somebody has changed its annotation.
    const cluster = starting.cluster === null ? null : { ...starting.cluster, desired: null };
    const unknown = { ...withBackup({}), cluster, servers: [] };
    expect(decide(FORK, unknown, known)).toMatchObject({ kind: 'write', desired: restoring });
  });

  test('copies the server if there is no snapshot, and says why', () => {
    const failed = withBackup({ ready: false, isAwaited: true, problem: 'no room' });
    expect(decide(FORK, failed, known)).toMatchObject({
      kind: 'taken',
      of: 'backup',
      detail: 'none of parent1234, which is copied if it runs: no room',
    });
    const detail = (why: string) =>
      `PostgreSQL 17 with the data of parent1234, which is copied without a snapshot: ${why}`;
    const ended = withBackup({ ready: false, problem: 'no room' });
    expect(decide(FORK, ended, known)).toMatchObject({
      kind: 'write',
      detail: detail('no room'),
      desired: copying,
    });
    const busy = { ...running, whyNoBackup: 'a base backup of it is under way' };
    expect(decide(FORK, withBackup({ problem: 'no use' }), known)).toMatchObject({
      kind: 'write',
      detail: detail('no use'),
      desired: copying,
    });
    expect(decide(FORK, busy, known)).toMatchObject({
      kind: 'write',
      detail: detail('a base backup of it is under way'),
      desired: copying,
    });
  });

  test('says why it waits for a parent that does not run, and goes on without it', () => {
    const taking = withBackup({ ready: false, isAwaited: true });
    const stopping = up(SPEC, { desired: desiredOf(PAUSED), awaited: 'stop PostgreSQL' }).cluster;
    for (const [parent, why] of [
      [null, 'its parent parent1234 has no Cluster any more; delete the fork'],
      [stopping, 'its parent parent1234 does not run; start that, or delete the fork'],
    ] as const)
      expect(decide(FORK, { ...taking, parent }, known)).toMatchObject({
        kind: 'wait',
        what: 'take snapshot',
        why,
        isObstacle: true,
      });
    const failed = withBackup({ ready: false, problem: 'cannot backup a hibernated cluster' });
    expect(decide(FORK, { ...failed, parent: stopping }, known)).toMatchObject({
      kind: 'wait',
      what: 'create Cluster',
    });
    const parent = up(SPEC, { desired: desiredOf(PAUSED), hibernated: true }).cluster;
    expect(decide(FORK, { ...failed, parent }, known)).toMatchObject({ kind: 'snapshot' });
    const snapshot = { ready: true, isAwaited: false, problem: null };
    expect(decide(FORK, { ...failed, parent, snapshot }, known)).toMatchObject({
      kind: 'write',
      desired: { snapshot: 's-abcde12345-origin' },
    });
  });
});

describe('a fork of the last snapshot', () => {
  const FORK: ServiceSpec = {
    ...SPEC,
    origin: { parent: 'parent1234', strategy: 'LAST_SNAPSHOT', targetTime: null },
  };
  const newestSnapshot = 's-parent1234-20261126000000';

  test('is made of the newest one, of a running parent too', () => {
    const parent = up(SPEC).cluster;
    expect(decide(FORK, { ...NOTHING, parent, newestSnapshot }, UNREACHED)).toMatchObject({
      kind: 'write',
      name: 'create Cluster',
      desired: { parent: 'parent1234', snapshot: newestSnapshot },
    });
    expect(decide(FORK, { ...NOTHING, parent }, UNREACHED)).toMatchObject({
      kind: 'wait',
      isObstacle: true,
      why: expect.stringContaining('has no snapshot'),
    });
  });

  test('stays with its snapshot when there is a newer one', () => {
    const older = { parent: 'parent1234', snapshot: 'older', targetTime: null };
    const desired = desiredOf(FORK, older);
    const starting = up(FORK, { desired, provisioned: false, awaited: 'start PostgreSQL' });
    const observed = { ...starting, servers: [], newestSnapshot };
    expect(decide(FORK, observed, UNREACHED)).toMatchObject({ kind: 'wait', isObstacle: false });
  });
});

test('a service gets the class of snapshots without a restart', () => {
  expect(decide(SPEC, up(SPEC), { ...REACHED, snapshotClass: 'snap' })).toMatchObject({
    name: 'write configuration',
    detail: 'the class of snapshots',
    awaits: true,
  });
});
