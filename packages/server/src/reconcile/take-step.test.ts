import { expect, test } from 'vitest';
import { QUIET } from '../lib/log.ts';
import { takeStep } from './take-step.ts';

test.each([
  ['a sleeper, which is not woken by that', new Date(), true],
  ['a service that runs', null, false],
])('an engine fails unexpectedly at %s', async (_which, suspended, asleep) => {
  const converge = async () => {
    throw new Error('the activator has ended');
  };
  const service = {
    id: 'sleeper',
    project_id: 'project',
    parent_id: null,
    read_replica_sets: [],
    power: 'running',
    deleting: false,
    move: null,
    upgrade: null,
    suspended_at: suspended,
  };
  const context = Object({ region: { engine: { lifecycle: { converge } } }, log: QUIET });
  const work = Object({ id: 'sleeper', service, operation: null, steps: [] });
  expect(await takeStep(context, work)).toMatchObject({
    outcome: 'failed',
    reason: 'the activator has ended',
    seen: { reachable: false, asleep },
  });
});
