import { expect, test } from 'vitest';
import { ACTIONS, ALLOWED, refusal, type Action, type Verdict } from './actions.ts';
import { LIVE_STATUSES, type LiveStatus } from './status.ts';

const COLUMNS = [
  'QUEUED',
  'CONFIGURING',
  'READY',
  'UNSTABLE',
  'PAUSING',
  'PAUSED',
  'RESUMING',
  'UPGRADING',
  'DELETING',
] as const;

/** As the contract prints it. */
const TABLE: Record<Action, string> = {
  delete: '| + | + | + | + | + | + | + | + | ~ |',
  start: '| x | x | x | + | x | + | ~ | x | x |',
  stop: '| x | x | + | + | ~ | x | x | x | x |',
  restart: '| x | x | + | + | x | x | x | x | x |',
  recover: '| x | x | x | + | x | + | x | x | x |',
  reset: '| x | x | + | x | x | + | x | x | x |',
  upgrade: '| x | x | + | x | x | x | x | x | x |',
  undoUpgrade: '| x | x | + | + | x | x | x | x | x |',
  move: '| x | x | + | x | x | x | x | x | x |',
  resize: '| x | x | + | + | x | + | x | x | x |',
  forkNow: '| x | x | + | x | x | + | x | x | x |',
  forkPast: '| x | x | + | + | x | + | x | x | x |',
  enablePooler: '| x | x | + | + | x | + | x | x | x |',
  disablePooler: '| x | x | + | + | x | + | x | x | x |',
  updatePassword: '| x | x | + | + | x | + | x | x | x |',
  setHA: '| x | x | + | x | x | x | x | x | x |',
  switchover: '| x | x | + | x | x | x | x | x | x |',
  drill: '| x | x | + | x | x | x | x | x | x |',
  attachToVPC: '| x | x | + | + | x | + | x | x | x |',
  detachFromVPC: '| x | x | + | + | x | + | x | x | x |',
  attachToAllowList: '| x | x | + | + | x | + | x | x | x |',
  detachFromAllowList: '| x | x | + | + | x | + | x | x | x |',
  setEnvironment: '| + | + | + | + | + | + | + | + | x |',
  rename: '| + | + | + | + | + | + | + | + | x |',
  setExpiry: '| + | + | + | + | + | + | + | + | x |',
  setAutoSuspend: '| x | x | + | x | x | + | x | x | x |',
  setBackupRetention: '| + | + | + | + | + | + | + | + | x |',
  verifyBackup: '| x | x | + | + | x | + | x | x | x |',
  runBackup: '| x | x | + | + | x | + | x | x | x |',
  createReplicaSet: '| x | x | + | x | x | x | x | x | x |',
  changeReplicaSet: '| x | x | + | + | x | x | x | x | x |',
  query: '| x | x | + | x | x | x | x | x | x |',
  enableExtension: '| x | x | + | x | x | x | x | x | x |',
  disableExtension: '| x | x | + | x | x | x | x | x | x |',
  deleteReplicaSet: '| x | + | + | + | + | + | + | + | ~ |',
};
const SIGN: Record<Verdict, string> = { accept: '+', underway: '~', refuse: 'x' };

test('the table has a column for every status', () => {
  expect([...COLUMNS].toSorted()).toEqual([...LIVE_STATUSES].toSorted());
});

test.each(ACTIONS)('%s is allowed as the contract prints it', (action) => {
  expect(`| ${COLUMNS.map((status) => SIGN[ALLOWED[status][action]]).join(' | ')} |`).toBe(
    TABLE[action],
  );
});

const NAMES: Partial<Record<Action, string>> = {
  forkNow: 'fork (NOW)',
  forkPast: 'fork (LAST_SNAPSHOT, PITR)',
};

test('a refusal names the action, the state, where it is allowed and what is allowed now', () => {
  expect(refusal('start', 'READY')).toBe(
    'cannot start a service that is READY: start is allowed when it is UNSTABLE or PAUSED; ' +
      'now allowed: delete, stop, restart, reset, upgrade, undoUpgrade, move, resize, fork ' +
      '(NOW), fork (LAST_SNAPSHOT, PITR), enablePooler, disablePooler, setHA, switchover, ' +
      'drill, attachToVPC, detachFromVPC, attachToAllowList, detachFromAllowList, ' +
      'updatePassword, setEnvironment, rename, setExpiry, setAutoSuspend, setBackupRetention, ' +
      'verifyBackup, runBackup, createReplicaSet, changeReplicaSet, deleteReplicaSet, query, ' +
      'enableExtension, disableExtension',
  );
  const refused = COLUMNS.flatMap((status) =>
    ACTIONS.filter((action) => ALLOWED[status][action] === 'refuse').map(
      (action): [Action, LiveStatus] => [action, status],
    ),
  );
  expect(refused.length).toBeGreaterThan(20);
  for (const [action, status] of refused) {
    const text = refusal(action, status);
    expect(text).toContain(`cannot ${NAMES[action] ?? action} a service that is ${status}`);
    // No call has these names.
    expect(text).not.toMatch(/forkNow|forkPast/);
    for (const other of COLUMNS.filter((candidate) => ALLOWED[candidate][action] === 'accept'))
      expect(text).toContain(other);
  }
  expect(refusal('stop', 'DELETING')).toContain('nothing but waiting');
});
