import { expect, test } from 'vitest';
import type { BackupState } from './state.ts';
import { chooseVerified } from './verification-choice.ts';

const HOUR_MS = 3_600_000;

/** A backup that has taken a minute. @param verifiedMs when a verification of it began */
function backup(
  kind: BackupState['kind'],
  askedMs: number,
  verifiedMs: number | null = null,
): BackupState {
  return {
    kind,
    name: `${kind}-${askedMs}`,
    namespace: 'howdah-proj',
    askedMs,
    isTaken: true,
    snapshot: kind === 'snapshot' ? `of-${askedMs}` : null,
    problem: null,
    verification: null,
    verifiedMs,
    takenMs: askedMs + 60_000,
  };
}

const ARCHIVE = { latestMs: 5 * HOUR_MS, sinceMs: 0 };

test('a snapshot comes first, then the archive, then the one that was verified longer ago', () => {
  const base = backup('base', 3 * HOUR_MS);
  const snapshot = backup('snapshot', 2 * HOUR_MS);
  expect(chooseVerified([base, snapshot], ARCHIVE)).toEqual({ backup: snapshot, toMs: null });
  const verified = backup('snapshot', 2 * HOUR_MS, 4 * HOUR_MS);
  const archive = { backup: base, toMs: ARCHIVE.latestMs };
  expect(chooseVerified([base, verified], ARCHIVE)).toEqual(archive);
  // The newest snapshot was not verified yet, but one before was.
  const newer = backup('snapshot', 4 * HOUR_MS);
  expect(chooseVerified([newer, base, verified], ARCHIVE)).toEqual(archive);
  const later = backup('base', 3 * HOUR_MS, 4.5 * HOUR_MS);
  expect(chooseVerified([newer, later, verified], ARCHIVE)).toEqual({ backup: newer, toMs: null });
});

test('an archive that reaches no moment, or begins later, is not verified', () => {
  const base = backup('base', 3 * HOUR_MS);
  const snapshot = backup('snapshot', HOUR_MS, 2 * HOUR_MS);
  expect(chooseVerified([base], ARCHIVE)).toEqual({ backup: base, toMs: ARCHIVE.latestMs });
  expect(chooseVerified([base], null)).toBe(null);
  expect(chooseVerified([base, snapshot], null)).toEqual({ backup: snapshot, toMs: null });
  // This backup is in the bucket of before.
  expect(chooseVerified([base], { ...ARCHIVE, sinceMs: 4 * HOUR_MS })).toBe(null);
  expect(chooseVerified([{ ...base, isTaken: false, takenMs: null }], ARCHIVE)).toBe(null);
  // A recovery to that moment cannot begin with it.
  expect(chooseVerified([backup('base', 5 * HOUR_MS - 1)], ARCHIVE)).toBe(null);
  expect(chooseVerified([], ARCHIVE)).toBe(null);
});
