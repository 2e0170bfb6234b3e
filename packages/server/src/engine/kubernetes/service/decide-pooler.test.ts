import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { decidePooler, decidePoolerStop, type KnownPooler } from './decide-pooler.ts';
import type { PoolerState } from './pooler-state.ts';

type Wanted = Pick<ServiceSpec, 'pooler' | 'power' | 'allowedNetworks'>;
const POOLED: Wanted = { pooler: { port: 30_002 }, power: 'running', allowedNetworks: null };
const LIMITED: Wanted = { ...POOLED, allowedNetworks: ['192.0.2.0/24'] };
const PAUSED: Wanted = { ...POOLED, power: 'paused' };
const DISABLED: Wanted = { ...POOLED, pooler: null };
const RUNS: PoolerState = { hash: 'h', isWanted: true, isReady: true };
const SCALED: PoolerState = { hash: 'h', isWanted: false, isReady: false };
const CURRENT: KnownPooler = { isCurrent: true, starting: null };
const OTHER: KnownPooler = { isCurrent: false, starting: null };

const START = 'start connection pooler';
const RELOAD = 'reload connection pooler';

function next(wanted: Wanted, seen: PoolerState | null, known = CURRENT): string | null {
  const step = decidePoolerStop(wanted, seen) ?? decidePooler(wanted, seen, known);
  if (step === null) return null;
  return step.kind === 'refuse' ? step.why : step.name;
}

test('a pooler is started, and again when its pod is gone', () => {
  expect(next(POOLED, null, OTHER)).toBe(START);
  expect(next(POOLED, SCALED, OTHER)).toBe(START);
  expect(next(POOLED, { ...RUNS, isReady: false })).toBe(START);
  expect(next(POOLED, RUNS)).toBe(null);
});

test('a pooler that has not answered yet is waited for by the same step', () => {
  expect(next(POOLED, RUNS, OTHER)).toBe(RELOAD);
  expect(next(POOLED, RUNS, { isCurrent: true, starting: RELOAD })).toBe(RELOAD);
});

test('a pooler is stopped once, when it is disabled or its server is about to be', () => {
  for (const wanted of [PAUSED, DISABLED])
    expect(next(wanted, RUNS)).toBe('stop connection pooler');
  expect(decidePoolerStop(PAUSED, SCALED)).toBe(null);
  expect(next(DISABLED, SCALED)).toBe(null);
  expect(next(DISABLED, null)).toBe(null);
});

test('a service whose networks are limited has no pooler, which would let in all of them', () => {
  expect(next(LIMITED, RUNS)).toBe('stop connection pooler');
  for (const seen of [null, SCALED])
    expect(next(LIMITED, seen)).toContain('Disable the poolers, or detach the list');
  expect(next({ ...LIMITED, pooler: null }, null)).toBe(null);
});
