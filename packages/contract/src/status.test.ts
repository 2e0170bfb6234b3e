import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { ACTIONS, ALLOWED, type Action } from './actions.ts';
import {
  IS_TRANSITIONAL,
  LIVE_STATUSES,
  OPERATION_KINDS,
  REPLICA_SET_STATUS,
  REPLICA_SET_STATUSES,
  REPLICA_SET_TRANSITIONS,
  SERVICE_STATUSES,
  statusOf,
  statusOfReplicaSet,
  TRANSITIONS,
  type LiveStatus,
  type OperationKind,
  type UnderWay,
} from './status.ts';

/** The statuses that the API description names. */
const DESCRIBED =
  'QUEUED, DELETING, CONFIGURING, READY, DELETED, UNSTABLE, PAUSING, PAUSED, RESUMING, ' +
  'UPGRADING, OPTIMIZING';

test('the statuses are those of the description', () => {
  expect([...SERVICE_STATUSES].toSorted()).toEqual(DESCRIBED.split(', ').toSorted());
  expect(LIVE_STATUSES).not.toContain('DELETED');
  expect(LIVE_STATUSES).not.toContain('OPTIMIZING');
  expect(LIVE_STATUSES.filter((status) => !IS_TRANSITIONAL[status])).toEqual([
    'READY',
    'UNSTABLE',
    'PAUSED',
  ]);
});

test('without an operation, the status follows from the desired and observed state', () => {
  expect(statusOf('running', true, null)).toBe('READY');
  expect(statusOf('running', false, null)).toBe('UNSTABLE');
  expect(statusOf('paused', false, null)).toBe('PAUSED');
  expect(statusOf('paused', true, null)).toBe('PAUSED');
});

const operation = (kind: OperationKind, more: Partial<UnderWay> = {}): UnderWay => ({
  kind,
  begun: true,
  failing: false,
  ...more,
});

test('an operation without an error shows its transitional status in any observed state', () => {
  for (const reachable of [true, false]) {
    expect(statusOf('running', reachable, operation('create', { begun: false }))).toBe('QUEUED');
    expect(statusOf('running', reachable, operation('create'))).toBe('CONFIGURING');
    for (const begun of [true, false]) {
      expect(statusOf('running', reachable, operation('start', { begun }))).toBe('RESUMING');
      expect(statusOf('paused', reachable, operation('stop', { begun }))).toBe('PAUSING');
      expect(statusOf('running', reachable, operation('resize', { begun }))).toBe('UPGRADING');
      expect(statusOf('paused', reachable, operation('resize', { begun }))).toBe('PAUSED');
      for (const kind of [
        'enablePooler',
        'disablePooler',
        'attachToVPC',
        'detachFromVPC',
        'attachToAllowList',
        'detachFromAllowList',
      ] as const) {
        expect(statusOf('running', reachable, operation(kind, { begun }))).toBe('CONFIGURING');
        expect(statusOf('paused', reachable, operation(kind, { begun }))).toBe('PAUSED');
      }
      expect(statusOf('running', reachable, operation('repair', { begun }))).toBe('UNSTABLE');
      expect(statusOf('running', reachable, operation('failover', { begun }))).toBe('UNSTABLE');
      for (const kind of [
        'setHA',
        'switchover',
        'drill',
        'enableExtension',
        'disableExtension',
      ] as const)
        expect(statusOf('running', reachable, operation(kind, { begun }))).toBe('CONFIGURING');
    }
  }
});

test('delete wins over everything, failing or not', () => {
  for (const wanted of ['running', 'paused'] as const)
    for (const reachable of [true, false])
      for (const begun of [true, false])
        for (const failing of [true, false])
          expect(statusOf(wanted, reachable, { kind: 'delete', begun, failing })).toBe('DELETING');
});

test('a failing operation makes a service unstable, unless it is paused and stays paused', () => {
  for (const kind of ['create', 'start', 'resize', 'repair', 'enablePooler'] as const)
    expect(statusOf('running', false, operation(kind, { failing: true }))).toBe('UNSTABLE');
  expect(statusOf('paused', false, operation('stop', { failing: true }))).toBe('UNSTABLE');
  expect(statusOf('paused', false, operation('resize', { failing: true }))).toBe('PAUSED');
});

test('changes that need no engine show the settled status', () => {
  for (const kind of [
    'updatePassword',
    'setEnvironment',
    'setPurpose',
    'rename',
    'setExpiry',
    'setBackupRetention',
    'verifyBackup',
    'runBackup',
    'tryUpgrade',
  ] as const)
    expect(statusOf('running', true, operation(kind))).toBe('READY');
});

test('every combination has a status', () => {
  for (const kind of OPERATION_KINDS)
    for (const wanted of ['running', 'paused'] as const)
      for (const reachable of [true, false])
        for (const begun of [true, false])
          for (const failing of [true, false])
            expect(LIVE_STATUSES).toContain(statusOf(wanted, reachable, { kind, begun, failing }));
});

// ── sequences ────────────────────────────────────────────────────────────────────────────────────

/**
 * The facts of a service as the metadata database has them, and the moves that users and the
 * reconciler can make.
 */
type Facts = { wanted: 'running' | 'paused'; reachable: boolean; underWay: UnderWay | null };
type Event =
  | { by: 'user'; action: Action }
  | { by: 'engine'; outcome: 'begun' | 'again' | 'failed' | 'settled'; reachable: boolean };

function move(facts: Facts, event: Event): Facts | null {
  const { underWay } = facts;
  if (event.by === 'user') {
    if (ALLOWED[statusOf(facts.wanted, facts.reachable, underWay)][event.action] !== 'accept')
      return facts;
    const begin = (kind: OperationKind, wanted = facts.wanted): Facts => ({
      ...facts,
      wanted,
      underWay: operation(kind, { begun: false }),
    });
    switch (event.action) {
      case 'start':
      case 'recover':
      case 'reset':
      case 'undoUpgrade':
        return begin(event.action, 'running');
      case 'stop':
        return begin('stop', 'paused');
      case 'restart':
      case 'resize':
      case 'upgrade':
      case 'move':
      case 'enablePooler':
      case 'disablePooler':
      case 'setAutoSuspend':
      case 'setHA':
      case 'switchover':
      case 'drill':
      case 'attachToVPC':
      case 'detachFromVPC':
      case 'enableExtension':
      case 'disableExtension':
      case 'attachToAllowList':
      case 'detachFromAllowList':
      case 'delete':
        return begin(event.action);
      case 'updatePassword':
      case 'setEnvironment':
      case 'rename':
      case 'setExpiry':
      case 'setBackupRetention':
      case 'forkNow':
      case 'forkPast':
      case 'verifyBackup':
      case 'runBackup':
      case 'createReplicaSet':
      case 'changeReplicaSet':
      case 'deleteReplicaSet':
      case 'query':
        return facts; // recorded beside whatever is under way, or a service of its own
      default:
        return event.action satisfies never;
    }
  }
  const reachable = event.reachable && facts.wanted === 'running';
  const going = underWay === null ? null : { ...underWay, begun: true };
  switch (event.outcome) {
    case 'begun':
      // With nothing under way only a service that does not run has something begun on it: a
      // repair, announced before it.
      return going !== null
        ? { ...facts, underWay: { ...going, failing: false } }
        : facts.wanted === 'running'
          ? { ...facts, reachable: false, underWay: operation('repair') }
          : facts;
    case 'again':
      return {
        ...facts,
        reachable,
        underWay: going === null ? null : { ...going, failing: false },
      };
    case 'failed':
      return { ...facts, reachable, underWay: going === null ? null : { ...going, failing: true } };
    case 'settled':
      if (underWay?.kind === 'delete') return null;
      return { ...facts, reachable: facts.wanted === 'running', underWay: null };
    default:
      return event.outcome satisfies never;
  }
}

function* statusesOf(facts: Facts, events: readonly Event[]): Generator<LiveStatus> {
  let now: Facts | null = facts;
  yield statusOf(now.wanted, now.reachable, now.underWay);
  for (const event of events) {
    now = move(now, event);
    if (now === null) return;
    yield statusOf(now.wanted, now.reachable, now.underWay);
  }
}

const anyEvent: fc.Arbitrary<Event> = fc.oneof(
  fc.record({ by: fc.constant('user' as const), action: fc.constantFrom(...ACTIONS) }),
  fc.record({
    by: fc.constant('engine' as const),
    outcome: fc.constantFrom(
      'begun' as const,
      'again' as const,
      'failed' as const,
      'settled' as const,
    ),
    reachable: fc.boolean(),
  }),
);
const PROVISIONING: Facts = {
  wanted: 'running',
  reachable: false,
  underWay: operation('create', { begun: false }),
};

test('every change of a status is a transition of the table', () => {
  fc.assert(
    fc.property(fc.array(anyEvent, { maxLength: 60 }), (events) => {
      const seen = [...statusesOf(PROVISIONING, events)];
      for (const [index, status] of seen.entries()) {
        const before = seen[index - 1];
        if (before === undefined || before === status) continue;
        expect(TRANSITIONS[before], `${before} → ${status}`).toContain(status);
      }
    }),
    { numRuns: 2000 },
  );
});

const user = (action: Action): Event => ({ by: 'user', action });
const engine = (outcome: 'begun' | 'again' | 'failed' | 'settled', reachable = false): Event => ({
  by: 'engine',
  outcome,
  reachable,
});
const ready = [engine('begun'), engine('settled')];
const path = (events: readonly Event[]): string => {
  const seen = [...statusesOf(PROVISIONING, events)];
  return seen.filter((status, index) => status !== seen[index - 1]).join('→');
};

test('statuses follow the documented sequences', () => {
  expect(path(ready)).toBe('QUEUED→CONFIGURING→READY');
  const stop = [...ready, user('stop'), engine('begun', true), engine('settled')];
  expect(path(stop)).toBe('QUEUED→CONFIGURING→READY→PAUSING→PAUSED');
  expect(
    path([...stop, user('start'), engine('begun'), engine('again', true), engine('settled')]),
  ).toMatch(/→PAUSED→RESUMING→READY$/);
  expect(path([...stop, user('resize'), engine('begun'), engine('settled')])).toMatch(/→PAUSED$/);
  expect(
    path([...ready, user('resize'), engine('begun', true), engine('again'), engine('settled')]),
  ).toMatch(/→READY→UPGRADING→READY$/);
  expect(path([...ready, engine('begun'), engine('again'), engine('settled')])).toMatch(
    /→READY→UNSTABLE→READY$/,
  );
  expect(path([...ready, user('enablePooler'), engine('begun', true), engine('settled')])).toMatch(
    /→READY→CONFIGURING→READY$/,
  );
  expect(path([...stop, user('disablePooler'), engine('begun'), engine('settled')])).toMatch(
    /→PAUSED$/,
  );
  expect(path([...ready, user('delete'), engine('begun'), engine('settled')])).toMatch(
    /→READY→DELETING$/,
  );
  expect(path([engine('begun'), engine('failed'), engine('again'), engine('settled')])).toBe(
    'QUEUED→CONFIGURING→UNSTABLE→CONFIGURING→READY',
  );
});

test('a read replica set is creating, active, resizing, deleting or in error', () => {
  const shown = (
    underWay: UnderWay | null,
    reachable = true,
    wanted: 'running' | 'paused' = 'running',
  ) => REPLICA_SET_STATUS[statusOfReplicaSet(wanted, reachable, underWay)];
  expect(REPLICA_SET_STATUSES).toEqual(['creating', 'active', 'resizing', 'deleting', 'error']);
  expect(shown(null)).toBe('active');
  expect(shown(null, false)).toBe('error');
  expect(statusOfReplicaSet('running', false, operation('create', { begun: false }))).toBe(
    'CONFIGURING',
  );
  expect(shown(operation('create'), false)).toBe('creating');
  expect(shown(operation('create', { failing: true }), false)).toBe('error');
  expect(shown(operation('resize'))).toBe('resizing');
  expect(shown(operation('delete'))).toBe('deleting');
  expect(shown(operation('enablePooler'))).toBe('active');
  expect(shown(operation('enablePooler', { failing: true }))).toBe('error');
  expect(shown(null, false, 'paused')).toBe('active');
  // The service can be stopped whatever becomes of the set, and whatever is seen is a move of the
  // table.
  for (const kind of ['create', 'start', 'resize', 'repair', 'enablePooler'] as const)
    for (const reachable of [true, false]) {
      const before = statusOfReplicaSet('running', reachable, operation(kind));
      expect(REPLICA_SET_TRANSITIONS[before]).toContain(
        statusOfReplicaSet('paused', reachable, operation('stop')),
      );
      expect(REPLICA_SET_TRANSITIONS[before]).toContain('DELETING');
    }
});
