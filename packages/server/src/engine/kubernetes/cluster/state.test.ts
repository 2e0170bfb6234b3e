import { expect, test } from 'vitest';
import { obstacleIn, serverState, type PodObject } from './state.ts';

const pod = (name: string, phase: string, message?: string): PodObject => ({
  metadata: { name, namespace: 'howdah-p', uid: name, resourceVersion: '1' },
  spec: { containers: [{ name: 'pgbasebackup' }] },
  status: { phase, ...(message === undefined ? {} : { message }) },
});

test('pods that have failed are an obstacle until another one is made', () => {
  const failed = [pod('copy-a', 'Failed'), pod('copy-b', 'Failed')];
  expect(obstacleIn(failed)).toBe(
    'pod copy-a: failed, 2 times in a row: kubectl logs --namespace howdah-p copy-a',
  );
  expect(obstacleIn([...failed, pod('copy-c', 'Running')])).toBeNull();
  expect(obstacleIn([pod('copy-a', 'Failed', 'Evicted: no room')])).toContain('Evicted: no room');
  expect(obstacleIn([])).toBeNull();
});

test('a pod that no node can run is an obstacle, unless its volume is just being asked for', () => {
  const waiting = (message: string): PodObject => ({
    ...pod('s-1', 'Pending'),
    status: {
      phase: 'Pending',
      conditions: [{ type: 'PodScheduled', status: 'False', message }],
    },
  });
  expect(obstacleIn([waiting('0/1 nodes are available: 1 Insufficient cpu.')])).toContain(
    'no node can run it: 0/1 nodes are available: 1 Insufficient cpu.',
  );
  const early = '0/1 nodes are available: persistentvolumeclaim "s-1" not found. not found';
  expect(obstacleIn([waiting(early)])).toBeNull();
});

test('a volume that is full is an obstacle until the server runs', () => {
  const ended = { terminated: { exitCode: 4 } };
  const waiting = { waiting: { reason: 'CrashLoopBackOff', message: 'back-off 20s' } };
  const inState = (state: object, name = 'postgres'): PodObject => ({
    ...pod('s-1', 'Running'),
    status: { phase: 'Running', containerStatuses: [{ name, state, lastState: ended }] },
  });
  const full = 'pod s-1: its volume is full: resize it to more storage_gb';
  expect(obstacleIn([inState(ended)])).toContain(full);
  expect(obstacleIn([inState(waiting)])).toContain(full);
  expect(obstacleIn([inState(waiting, 'other')])).toContain('CrashLoopBackOff');
  expect(obstacleIn([inState({ running: {} })])).toBeNull();
});

test('a container before PostgreSQL is an obstacle if its image cannot be pulled', () => {
  const state = { waiting: { reason: 'ImagePullBackOff', message: 'no such image' } };
  const status = {
    phase: 'Pending',
    initContainerStatuses: [{ name: 'plugin-barman-cloud', state }],
    containerStatuses: [{ name: 'postgres', state: { waiting: { reason: 'PodInitializing' } } }],
  };
  expect(obstacleIn([{ ...pod('s-1', 'Pending'), status }])).toBe(
    'pod s-1: ImagePullBackOff: no such image',
  );
});

test.each([
  ['it ended without an error and waits', 'CrashLoopBackOff', 0, true],
  ['it failed', 'CrashLoopBackOff', 1, false],
  ['its volume is full', 'CrashLoopBackOff', 4, false],
  ['its container is being made', 'ContainerCreating', 0, false],
] as const)('a server is held back or not: %s', (_, reason, exitCode, isHeldBack) => {
  const waits = { state: { waiting: { reason } }, lastState: { terminated: { exitCode } } };
  const containerStatuses = [{ name: 'postgres', ...waits }];
  const server = {
    ...pod('s-abcde12345-2', 'Running'),
    spec: { containers: [{ name: 'postgres' }] },
  };
  expect(serverState({ ...server, status: { phase: 'Running', containerStatuses } })).toMatchObject(
    {
      isHeldBack,
    },
  );
});
