import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { EngineUnavailable } from '../../engine.ts';
import { STEPS } from './steps.ts';
import { failed } from './verdicts.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const SEEN = { reachable: false, present: true, provisioned: true };

test.each([
  [STEPS.connect, 60],
  [STEPS.write, 8],
])('%s fails after what may pass by itself has lasted %i s', (step, limitSeconds) => {
  const region = { waiting: new Map() };
  const attempt = () => failed(region, 'one', step, SEEN, new EngineUnavailable('refused'));
  expect(attempt()).toMatchObject({ outcome: 'again', detail: 'refused' });
  vi.advanceTimersByTime(limitSeconds * 1000 - 1);
  expect(attempt()).toMatchObject({ outcome: 'again' });
  vi.advanceTimersByTime(1);
  expect(attempt()).toMatchObject({ outcome: 'failed', reason: `${step}: refused` });
});
