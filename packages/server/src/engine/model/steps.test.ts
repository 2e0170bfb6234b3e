import { expect, test } from 'vitest';
import { haStepName } from '../postgres/decisions/decide-ha.ts';
import { setStepName } from '../postgres/decisions/decide-set.ts';
import { STEP_NAME } from '../postgres/decisions/decide.ts';
import { planOf } from '../postgres/decisions/plan.ts';
import * as step from './steps.ts';
import { newSpec } from './subject.testing.ts';

test('the steps are called as those of the local engine', () => {
  const { STEP } = step;
  const local = new Set([
    ...Object.values(STEP_NAME),
    ...(['openGateway', 'failOver', 'promote', 'moveToGateway', 'allowNetworks'] as const).map(
      (kind) => haStepName({ kind }),
    ),
    haStepName({ kind: 'closeGateway', why: '' }),
    haStepName({ kind: 'restart', why: '' }),
    haStepName({ kind: 'move', why: '' }),
    setStepName({ kind: 'balance' }),
    setStepName({ kind: 'make' }),
    'remove data',
  ]);
  expect(Object.values(STEP).filter((name) => !local.has(name))).toEqual([]);
});

test('steps at one server are called as those of the local engine', () => {
  const start = { kind: 'server', n: 2, step: { kind: 'start' } } as const;
  expect(step.onServer(step.STEP.start, 2)).toBe(haStepName(start));
  expect(step.onNode(step.STEP.start, 2)).toBe(setStepName(start));
  expect(step.seedName(2)).toBe(haStepName({ kind: 'seed', n: 2, why: '' }));
  expect(step.seedNodeName(2)).toBe(setStepName({ kind: 'seed', n: 2, why: '' }));
  expect(step.startWithGatewayName(2)).toBe(haStepName({ kind: 'startWithGateway', n: 2 }));
  expect(step.stopSecondWriterName(2)).toBe(haStepName({ kind: 'fence', n: 2 }));
  expect(step.switchOverName(2)).toBe(haStepName({ kind: 'switchOver', to: 2, why: '' }));
  expect(step.retireName(2)).toBe(haStepName({ kind: 'retire', n: 2 }));
  expect(step.restartNodeName(2)).toBe(setStepName({ kind: 'restart', n: 2 }));
  expect([...step.VERIFY_STEPS]).toEqual(planOf('verifyBackup', newSpec(1), true));
});
