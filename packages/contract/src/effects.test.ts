import { expect, test } from 'vitest';
import { ACTIONS } from './actions.ts';
import { asksForName, describeEffects, EFFECTS, requiresName } from './effects.ts';

test('a DEV service is changed without its name', () => {
  for (const action of ACTIONS) {
    expect(asksForName(action, 'DEV'), action).toBe(false);
    expect(requiresName(action, 'DEV'), action).toBe(false);
  }
});

test('a PROD service asks for its name before each action that takes something away', () => {
  const without = ACTIONS.filter((action) => !asksForName(action, 'PROD'));
  expect(without).toEqual([
    'start',
    'forkNow',
    'forkPast',
    'enablePooler',
    'rename',
    'setExpiry',
    'verifyBackup',
    'runBackup',
    'createReplicaSet',
    'query',
  ]);
});

test('the API requires the name where no client of Tiger makes the call', () => {
  expect(ACTIONS.filter((action) => requiresName(action, 'PROD'))).toEqual([
    'restart',
    'recover',
    'reset',
    'upgrade',
    'undoUpgrade',
    'move',
    'switchover',
    'drill',
    'setAutoSuspend',
    'enableExtension',
    'disableExtension',
  ]);
});

test('effects are described in words', () => {
  expect(describeEffects('delete')).toBe(
    'ends sessions, closes an endpoint for its clients and loses data',
  );
  expect(describeEffects('switchover')).toBe('ends sessions');
  for (const action of ACTIONS)
    expect(describeEffects(action) === '', action).toBe(EFFECTS[action].length === 0);
});
