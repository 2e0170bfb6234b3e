import { ApiError, REGIONAL_ACTIONS } from '@howdah/contract';
import { expect, test } from 'vitest';
import type { Capabilities, Possibility } from '../engine/engine.ts';
import { refuseImpossible } from './regions.ts';

const yes: Possibility = { possible: true };
const ALL: Capabilities['actions'] = {
  forkNow: yes,
  forkPast: yes,
  reset: yes,
  enablePooler: yes,
  setHA: yes,
  switchover: yes,
  drill: yes,
  attachToVPC: yes,
  attachToAllowList: yes,
  verifyBackup: yes,
  runBackup: yes,
  createReplicaSet: yes,
  query: yes,
  enableExtension: yes,
  disableExtension: yes,
  setAutoSuspend: yes,
};
const why = 'HAProxy is not installed: apt-get install haproxy';

test.each(REGIONAL_ACTIONS)('%s is refused with the reason of a region that lacks it', (action) => {
  const regionWith = (possibility: Possibility) => ({
    engine: { capabilities: { actions: { ...ALL, [action]: possibility } } },
  });
  expect(() => refuseImpossible(regionWith({ possible: false, why }), action, 'asked')).toThrow(
    new ApiError('UNAVAILABLE_HERE', `asked: ${why}`),
  );
  expect(() => refuseImpossible(regionWith(yes), action)).not.toThrow();
});
