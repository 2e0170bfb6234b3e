import { expect, test } from 'vitest';
import type { OffMachineState } from '../../engine/off-machine.ts';
import { chooseRepository } from './fork-source.ts';

test('a moment is restored from the oldest repository that has it', () => {
  const state: OffMachineState = {
    backups: [],
    earliestMs: 10,
    safeToMs: 50,
    gaps: [{ afterMs: 20, beforeMs: 30 }],
    backlog: { files: 0, bytes: 0, oldestMs: null },
    problem: null,
    verification: null,
  };
  const open: OffMachineState = {
    ...state,
    earliestMs: 15,
    safeToMs: 60,
    gaps: [{ afterMs: 40, beforeMs: null }],
  };
  const unknown: OffMachineState = { ...state, safeToMs: null };
  const chosen = (ms: number) =>
    chooseRepository(
      new Map([
        ['unknown', unknown],
        ['one', state],
        ['two', open],
      ]),
      ms,
    );
  const expected = { 9: null, 10: 'one', 20: 'one', 25: 'two', 30: 'one', 50: 'one', 51: null };
  for (const [ms, repository] of Object.entries(expected))
    expect(chosen(Number(ms)), ms).toBe(repository);
  expect(chooseRepository(new Map([['none', { ...state, earliestMs: null }]]), 20)).toBeNull();
});
