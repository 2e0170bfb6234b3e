import { ACTIONS, ALLOWED, refusal } from '@howdah/contract/actions';
import { LIVE_STATUSES, OPERATION_KINDS } from '@howdah/contract/status';
import { expect, test } from 'vitest';
import type { Me, Service } from './api.ts';
import { kindLabel, whyNot } from './status.ts';

const me = (role: Me['role']): Me => ({
  public_key: 'HDx',
  name: 'x',
  role,
  created: '2026-01-01T00:00:00Z',
  project: { id: 'p', name: 'p', plan_type: 'x' },
  issuing_user: { id: 'o', name: 'o', email: 'o@o.local' },
});
const service = (status: Service['status'], environment: 'DEV' | 'PROD' = 'DEV'): Pick<Service, 'status' | 'metadata'> => ({
  status,
  metadata: { environment },
});

test('an action is refused exactly where the API refuses it, in its words', () => {
  for (const status of LIVE_STATUSES)
    for (const action of ACTIONS)
      expect(whyNot(action, service(status), me('admin')), `${action} ${status}`).toBe(
        ALLOWED[status][action] === 'accept' ? null : refusal(action, status),
      );
});

test('a viewer may nothing, and only admin may delete PROD', () => {
  for (const action of ACTIONS) expect(whyNot(action, service('READY'), me('viewer'))).toContain('viewer');
  expect(whyNot('delete', service('READY', 'PROD'), me('developer'))).toContain('PROD');
  expect(whyNot('delete', service('READY', 'PROD'), me('admin'))).toBeNull();
  expect(whyNot('delete', service('READY'), me('developer'))).toBeNull();
});

test('kinds of operations in words', () => {
  expect(['create', 'enablePooler', 'setHA', 'attachToVPC', 'createVpc', 'verifyBackup'].map((kind) => kindLabel(kind))).toEqual([
    'Create',
    'Enable pooler',
    'Set HA',
    'Attach to VPC',
    'Create VPC',
    'Verify backup',
  ]);
  for (const kind of OPERATION_KINDS) expect(kindLabel(kind)).toMatch(/^[A-Z][A-Za-z ]+$/);
});
