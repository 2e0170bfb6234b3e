import { expect, test } from 'vitest';
import type { ServiceRow, Upgraded } from './row.ts';
import { presentUpgrades, upgradedWithout, upgradesOf, withDataOf } from './upgrades.ts';

const FIRST: Upgraded = { id: 'first', from: 16, at: '2026-01-01T00:00:00.000Z', before: null };
const SECOND: Upgraded = { id: 'second', from: 17, at: '2026-02-01T00:00:00.000Z', before: FIRST };
const NEXT = { id: 'next', to: 19, undo: false, problem: null };

type Row = Pick<ServiceRow, 'pg_version' | 'upgrade' | 'upgraded'>;
const row = (more: Partial<Row>): Row => ({
  pg_version: 18,
  upgrade: null,
  upgraded: SECOND,
  ...more,
});

test('the data of a service is that of its last upgrade, or of one that is under way', () => {
  expect(upgradesOf(row({ upgraded: null }))).toEqual([null]);
  expect(upgradesOf(row({}))).toEqual(['second', 'first', null]);
  expect(upgradesOf(row({ upgrade: NEXT }))).toEqual(['next', 'second', 'first', null]);
  const failed = row({ upgrade: { ...NEXT, problem: 'why' } });
  expect(upgradesOf(failed)).toEqual(['second', 'first', null]);
  const undoLast = { id: 'second', to: 17, undo: true, problem: null };
  expect(upgradesOf(row({ upgrade: undoLast }))).toEqual(['first', null, 'second']);
  const undoNext = row({ upgrade: { ...NEXT, undo: true } });
  expect(upgradesOf(undoNext)).toEqual(['second', 'first', null, 'next']);
  // An older release did not record the upgrade before.
  const { before: _, ...old } = SECOND;
  expect(upgradesOf(row({ upgraded: old }))).toEqual(['second', null]);
  expect(presentUpgrades(row({}))).toEqual(['second']);
  expect(presentUpgrades(row({ upgrade: NEXT }))).toEqual(['next', 'second']);
  expect(upgradedWithout(SECOND, 'second')).toEqual(FIRST);
  expect(upgradedWithout(SECOND, 'next')).toEqual(SECOND);
  expect(upgradedWithout(FIRST, 'first')).toBeNull();
});

test('a service whose newest data is in no repository is again what it was before', () => {
  const nowMs = Date.parse('2026-03-01T00:00:00.000Z');
  const back = (of: Row, upgradeId: string | null, major: number) =>
    withDataOf(of, upgradeId, major, nowMs);
  expect(back(row({}), 'second', 18)).toEqual({ pg_version: 18, upgrade: null, upgraded: SECOND });
  expect(back(row({}), 'first', 17)).toEqual({ pg_version: 17, upgrade: null, upgraded: FIRST });
  expect(back(row({}), null, 16)).toEqual({ pg_version: 16, upgrade: null, upgraded: null });
  const underWay = row({ upgrade: NEXT });
  expect(back(underWay, 'next', 19)).toEqual({
    pg_version: 19,
    upgrade: null,
    upgraded: { id: 'next', from: 18, before: SECOND, at: '2026-03-01T00:00:00.000Z' },
  });
  // The operation of the upgrade fails with the reason.
  expect(back(underWay, 'second', 18)).toEqual({
    pg_version: 18,
    upgrade: { ...NEXT, problem: expect.stringContaining('was lost') },
    upgraded: SECOND,
  });
  const undo = { id: 'second', to: 17, undo: true, problem: null };
  expect(back(row({ upgrade: undo }), 'first', 17)).toEqual({
    pg_version: 17,
    upgrade: null,
    upgraded: FIRST,
  });
  expect(back(row({ upgrade: undo }), 'second', 18)).toMatchObject({
    pg_version: 18,
    upgrade: { problem: expect.stringContaining('was lost') },
    upgraded: SECOND,
  });
});
