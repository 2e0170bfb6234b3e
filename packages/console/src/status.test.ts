import { ACTIONS, ALLOWED, refusal, type Action } from '@howdah/contract/actions';
import { LIVE_STATUSES, OPERATION_KINDS } from '@howdah/contract/status';
import { expect, test } from 'vitest';
import type { Me, Operation, Service } from './api.ts';
import type { ReplicaSet } from './api-project.ts';
import { kindLabel, problemOf, whyNot, whyNotPurge, whyReadOnly } from './status.ts';

const me = (role: Me['role'], restrictions: Pick<Me, 'fork_only' | 'dry_run_only'> = {}): Me => ({
  ...restrictions,
  public_key: 'HDx',
  name: 'x',
  role,
  created: '2026-01-01T00:00:00Z',
  project: { id: 'p', name: 'p', plan_type: 'x' },
  issuing_user: { id: 'o', name: 'o', email: 'o@o.local' },
});
type Shown = Pick<Service, 'status' | 'metadata' | 'read_replica_sets' | 'created_by'>;
type Environment = 'DEV' | 'PROD';

const setIn = (environment: Environment): ReplicaSet => ({
  id: 'set0000000',
  name: 'set',
  nodes: 1,
  cpu_millis: 250,
  memory_gbs: 1,
  endpoint: { host: 'localhost', port: 5432 },
  metadata: { environment },
  purpose: 'reports',
  status: 'active',
  lag_limit: { bytes: 0, seconds: 0 },
  node_states: [],
});
const service = (
  status: Service['status'],
  environment: Environment = 'DEV',
  sets: ReplicaSet[] = [],
): Shown => ({
  status,
  metadata: { environment },
  read_replica_sets: sets,
});

test('an action is refused exactly where the API refuses it, in its words', () => {
  for (const status of LIVE_STATUSES)
    for (const action of ACTIONS)
      expect(whyNot(action, service(status), me('admin')), `${action} ${status}`).toBe(
        ALLOWED[status][action] === 'accept' ? null : refusal(action, status),
      );
});

test('only admins may end or upgrade a PROD service, or a service with a PROD set', () => {
  for (const action of ['stop', 'restart', 'delete'] as const) {
    for (const shown of [service('READY', 'PROD'), service('READY', 'DEV', [setIn('PROD')])]) {
      expect(whyNot(action, shown, me('developer')), action).toContain('PROD');
      expect(whyNot(action, shown, me('admin'))).toBeNull();
    }
    expect(whyNot(action, service('READY', 'DEV', [setIn('DEV')]), me('developer'))).toBeNull();
  }
  expect(whyNot('deleteReplicaSet', service('READY'), me('developer'), setIn('PROD'))).toContain(
    'PROD',
  );
  expect(
    whyNot('deleteReplicaSet', service('READY', 'PROD'), me('developer'), setIn('DEV')),
  ).toBeNull();
  for (const action of ['resize', 'setHA', 'disablePooler', 'detachFromVPC'] as const)
    expect(whyNot(action, service('READY', 'PROD'), me('developer')), action).toBeNull();
  expect(whyNot('setEnvironment', service('READY', 'PROD'), me('developer'))).toContain('PROD');
  const withSet = service('READY', 'DEV', [setIn('PROD')]);
  expect(whyNot('setEnvironment', withSet, me('developer'))).toBeNull();
});

test('a viewer may change nothing, and only admins may delete PROD', () => {
  for (const action of ACTIONS)
    expect(whyNot(action, service('READY'), me('viewer'))).toContain('viewer');
  expect(whyNot('delete', service('READY', 'PROD'), me('developer'))).toContain('PROD');
  expect(whyNot('delete', service('READY', 'PROD'), me('admin'))).toBeNull();
  expect(whyNot('delete', service('READY'), me('developer'))).toBeNull();
});

test('a fork_only key changes its own forks only, and forks everything', () => {
  const restricted = me('developer', { fork_only: true });
  const own = { ...service('READY'), created_by: 'HDx' };
  const admins: readonly Action[] = ['recover', 'setBackupRetention'];
  for (const action of ACTIONS.filter((one) => !admins.includes(one))) {
    const forks = action === 'forkNow' || action === 'forkPast';
    for (const shown of [service('READY'), { ...service('READY'), created_by: 'HDy' }])
      expect(whyNot(action, shown, restricted) ?? 'allowed', action).toContain(
        forks ? 'allowed' : 'fork_only',
      );
    expect(whyNot(action, own, restricted), action).toBe(
      ALLOWED.READY[action] === 'accept' ? null : refusal(action, 'READY'),
    );
  }
  for (const action of admins) expect(whyNot(action, own, restricted)).toContain('role admin');
  expect(whyReadOnly(restricted)).toContain('fork_only');
  expect(whyReadOnly(restricted, 'HDx')).toBeNull();
});

test('a dry_run_only key is offered no action', () => {
  for (const action of ACTIONS)
    expect(whyNot(action, service('READY'), me('admin', { dry_run_only: true })), action).toContain(
      'dry_run_only',
    );
  expect(whyReadOnly(me('admin', { dry_run_only: true }))).toContain('dry_run_only');
});

test('only admin keys purge, and fork_only keys their own forks only', () => {
  expect(whyNotPurge(me('admin'))).toBeNull();
  expect(whyNotPurge(me('developer'))).toContain('admin');
  expect(whyNotPurge(me('viewer'))).toContain('admin');
  expect(whyNotPurge(me('admin', { fork_only: true }), 'HDy')).toContain('fork_only');
  expect(whyNotPurge(me('admin', { fork_only: true }), 'HDx')).toBeNull();
});

test('kinds of operations have readable labels', () => {
  expect(
    ['create', 'enablePooler', 'setHA', 'attachToVPC', 'createVpc', 'verifyBackup'].map((kind) =>
      kindLabel(kind),
    ),
  ).toEqual(['Create', 'Enable pooler', 'Set HA', 'Attach to VPC', 'Create VPC', 'Verify backup']);
  for (const kind of OPERATION_KINDS) expect(kindLabel(kind)).toMatch(/^[A-Z][A-Za-z ]+$/);
});

const operation = (kind: Operation['kind'], error?: string): Operation => ({
  id: 'o',
  kind,
  service_id: 's',
  status: 'running',
  requested_by: 'howdah',
  created: '2026-01-01T00:00:00Z',
  finished: null,
  steps: [
    {
      name: 'start PostgreSQL',
      started: '2026-01-01T00:00:00Z',
      finished: null,
      outcome: 'running' as const,
      detail: null,
    },
  ],
  ...(error === undefined ? {} : { error }),
});

test('the problem of an UNSTABLE service is the error of its operation, with a remedy', () => {
  const unstable = { service_id: 's', status: 'UNSTABLE' } as const;
  expect(problemOf({ service_id: 's', status: 'READY' }, [operation('repair', 'e')])).toBeNull();
  expect(problemOf(unstable, [operation('repair', 'start: no room')])).toEqual({
    problem: 'start: no room',
    remedy: expect.stringContaining('tries again'),
  });
  expect(problemOf(unstable, [operation('failover')])).toEqual({
    problem: 'The primary does not answer',
    remedy: 'Wait: failover in progress (start PostgreSQL).',
  });
  // An operation of another service, and one that verifies a backup, are no reason.
  expect(
    problemOf({ ...unstable, service_id: 't' }, [operation('repair', 'e')])?.problem,
  ).toContain('does not accept connections');
  expect(problemOf(unstable, [operation('verifyBackup', 'e')])?.problem).toContain('connections');
});
