import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createMemoryRecords, type MemoryRecords } from '../../conformance/memory-records.ts';
import { HEALTHY } from './decide.ts';
import { createFailovers, findingOf, type Failovers } from './failovers.ts';
import type { ClusterState } from './state.ts';

const ID = 'abcde12345';

const state = (change: Partial<ClusterState> = {}): ClusterState => ({
  name: `s-${ID}`,
  namespace: 'howdah-proj123456',
  uid: 'uid-of-a-cluster',
  version: '1',
  projectId: 'proj123456',
  nodePort: 30_001,
  leaving: false,
  desired: {
    major: 17,
    running: true,
    size: null,
    storageGb: 10,
    replicas: 1,
    sync: 1,
    restarts: 0,
    preload: [],
  },
  provisioned: true,
  awaited: null,
  phase: HEALTHY,
  phaseReason: null,
  walClass: null,
  image: 'pg:17',
  instances: 2,
  ready: 2,
  hibernated: false,
  waitsForHealthy: false,
  fenced: false,
  stoppedByMove: false,
  primary: 0,
  isChangingPrimary: false,
  foreign: [],
  ...change,
});

describe('a look at a Cluster', () => {
  test.each<[string, Partial<ClusterState>, string]>([
    ['finds nothing in a healthy one', {}, 'nothing'],
    ['finds the death of its primary', { isChangingPrimary: true }, 'failover'],
    ['finds no failover in its phase alone', { phase: 'Failing over' }, 'nothing'],
    ['finds a failover that is over', { primary: 1 }, 'failover'],
    ['finds one beside a repair', { primary: 1, awaited: 'start PostgreSQL' }, 'failover'],
    ['finds a switchover as asked', { primary: 1, awaited: 'switch over to member 1' }, 'record'],
    ['finds the primary after a resize', { primary: 1, awaited: 'restart PostgreSQL' }, 'record'],
    [
      'waits for the end of a change',
      { primary: 1, awaited: 'restart PostgreSQL', isChangingPrimary: true },
      'nothing',
    ],
    ['leaves a single server alone', { instances: 1, isChangingPrimary: true }, 'nothing'],
    ['leaves a deletion alone', { leaving: true, primary: 1 }, 'nothing'],
  ])('%s', (_, change, expected) => {
    expect(findingOf(state(change), 0, false)).toBe(expected);
  });

  test('finds no failover in a drill', () => {
    expect(findingOf(state({ primary: 1 }), 0, true)).toBe('record');
    expect(findingOf(state({ isChangingPrimary: true }), 0, true)).toBe('nothing');
  });
});

let records: MemoryRecords;
let cluster: ClusterState | null;
let isAnswering: boolean;
let failovers: Failovers;
const errors: unknown[] = [];
const changed: string[] = [];

beforeEach(() => {
  records = createMemoryRecords({ take: async () => 1 });
  records.add(ID, 0);
  cluster = state();
  isAnswering = true;
  errors.length = 0;
  changed.length = 0;
  failovers = createFailovers({
    cache: { cluster: () => cluster },
    records: records.store,
    answers: async () => isAnswering,
    primaryChanged: (id) => changed.push(id),
    failed: (error) => errors.push(error),
  });
});
afterEach(async () => {
  await failovers.close();
  expect(errors).toEqual([]);
});

async function change(to: ClusterState | null): Promise<void> {
  cluster = to;
  failovers.notice(ID);
  await sleep(20);
}

async function until(holds: () => boolean): Promise<void> {
  for (let round = 0; round < 500 && !holds(); round += 1) await sleep(20);
  expect(holds()).toBe(true);
}

test('a failover is shown, recorded when it is seen, and ends with an answer', async () => {
  await change(state({ isChangingPrimary: true }));
  await until(() => records.begun.length === 1);
  expect(failovers.isRunning(ID)).toBe(true);
  isAnswering = false;
  await change(state({ primary: 1 }));
  await until(() => records.primary(ID) === 1);
  expect(records.ended).toEqual([]);
  isAnswering = true;
  await until(() => !failovers.isRunning(ID));
  expect(records.ended).toMatchObject([
    { why: null, steps: [{ name: 'fail over', detail: 'member 1 is the primary' }] },
  ]);
  // The phase stays for a moment.
  await change(state({ primary: 1, phase: 'Failing over' }));
  await change(state({ primary: 1 }));
  expect([records.begun, records.ended.length]).toEqual([[ID], 1]);
  // The new primary may have sessions that its rules do not let in.
  expect(changed).toEqual([ID]);
});

test('a primary that comes back is shown as one', async () => {
  await change(state({ isChangingPrimary: true }));
  // The wanted primary returns to the old one for a moment: that is no end.
  await change(state({ phase: 'Failing over' }));
  await sleep(300);
  expect(records.ended).toEqual([]);
  await change(state());
  await until(() => records.ended.length === 1);
  expect(records.ended[0]?.steps[0]?.detail).toContain('member 0 is the primary again');
  expect(records.primary(ID)).toBe(0);
  expect(changed).toEqual([]);
});

test('a change of the primary as asked is recorded, and reported as nothing', async () => {
  records.ask(ID, { switchover: true });
  await change(state({ primary: 1, awaited: 'switch over to member 1' }));
  await until(() => records.primary(ID) === 1);
  expect([records.begun, records.ended]).toEqual([[], []]);
  expect((await records.store.read(ID))?.switchover).toBe(false);
});

test('a failover ends with the Cluster', async () => {
  await change(state({ isChangingPrimary: true }));
  await until(() => failovers.isRunning(ID));
  await change(null);
  await until(() => !failovers.isRunning(ID));
  expect(records.ended).toEqual([]);
});
