import { expect, test } from 'vitest';
import { SPEC, up } from '../cluster/decide.testing.ts';
import { desiredOf } from '../cluster/desired-state.ts';
import { findOriginBackup } from './origin-snapshots.ts';

const FORK = {
  ...SPEC,
  origin: { parent: 'parent1234', strategy: 'NOW', targetTime: null },
} as const;

/** @param storageGb of the parent @param minutes since the backup was asked for */
const problemOf = (isTaken: boolean, storageGb: number, minutes: number): string | null => {
  const askedMs = Date.now() - minutes * 60_000;
  const backup = { askedMs, isTaken, isAwaited: true, problem: null };
  const parent = up(SPEC, { desired: { ...desiredOf(SPEC), storageGb } }).cluster;
  const cache = { originBackup: () => backup, cluster: () => parent };
  return findOriginBackup({ cache }, FORK)?.problem ?? null;
};

test('a backup that does not end is given up, and one of a volume that has grown is no use', () => {
  expect(problemOf(false, SPEC.storageGb, 1)).toBeNull();
  expect(problemOf(false, SPEC.storageGb, 60)).toMatch(/^it has not ended within \d+ minutes$/);
  expect(problemOf(true, SPEC.storageGb, 60)).toBeNull();
  expect(problemOf(true, SPEC.storageGb + 1, 1)).toBe(
    'the volume of its parent has grown meanwhile',
  );
});
