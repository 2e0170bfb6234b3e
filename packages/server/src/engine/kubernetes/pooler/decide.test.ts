import { expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import { decidePooler, decidePoolerStop, type KnownPooler } from './decide.ts';
import type { PoolerState } from './state.ts';

type Wanted = Pick<ServiceSpec, 'pooler' | 'power'>;
const POOLED: Wanted = { pooler: { port: 30_002 }, power: 'running' };
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
  return step?.name ?? null;
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
