import { describe, expect, test } from 'vitest';
import {
  denialOfLease,
  permissionOfAction,
  PURGE,
  refusalOfCall,
  subjectOf,
} from './permissions.ts';

const tagged = (environment: 'DEV' | 'PROD') => ({ metadata: { environment } });
const service = (environment: 'DEV' | 'PROD', ...sets: ('DEV' | 'PROD')[]) =>
  subjectOf({
    ...tagged(environment),
    read_replica_sets: sets.map(tagged),
    created_by: 'HDother',
  });
const key = { public_key: 'HDown', role: 'developer' as const };

describe('refusalOfCall', () => {
  test('a developer stops DEV, and neither PROD nor a service with a PROD set', () => {
    const stop = permissionOfAction('stop');
    expect(refusalOfCall(key, stop, service('DEV', 'DEV'))).toBeNull();
    expect(refusalOfCall(key, stop, service('PROD'))).toContain('admin');
    expect(refusalOfCall(key, stop, service('DEV', 'PROD'))).toContain('admin');
    expect(refusalOfCall({ ...key, role: 'admin' }, stop, service('PROD'))).toBeNull();
  });

  test('a fork_only key deletes its own forks only', () => {
    const forkOnly = { ...key, fork_only: true };
    const remove = permissionOfAction('delete');
    expect(refusalOfCall(forkOnly, remove, service('DEV'))).toContain('fork_only');
    expect(refusalOfCall(forkOnly, remove, { createdBy: 'HDown' })).toBeNull();
  });

  test('a dry_run_only key asks for changes, and does not read data', () => {
    const dryRunOnly = { ...key, dry_run_only: true };
    expect(refusalOfCall(dryRunOnly, permissionOfAction('stop'), service('DEV'))).toBeNull();
    expect(refusalOfCall(dryRunOnly, permissionOfAction('query'))).toContain('dry_run_only');
    expect(refusalOfCall(dryRunOnly, PURGE)).toContain('admin');
  });
});

test.each([
  ['developer', false, 'own', null, null],
  ['developer', false, 'other', null, 'gone for good'],
  ['admin', false, 'other', null, null],
  ['developer', true, 'own', null, null],
  ['developer', true, 'other', 'fork_only', 'fork_only'],
  ['admin', true, 'other', 'fork_only', 'fork_only'],
  ['developer', true, null, 'fork_only', 'fork_only'],
] as const)('a lease: %s, fork_only %s, of %s', (role, forkOnly, takenBy, extend, give) => {
  const own = { publicKey: 'own', role, forkOnly };
  for (const [change, why] of [
    ['extend', extend],
    ['return', give],
  ] as const) {
    const said = denialOfLease(own, takenBy, change);
    if (why === null) expect(said).toBeNull();
    else expect(said).toContain(why);
  }
});
