import { expect, test } from 'vitest';
import type { ServiceRow, Upgraded } from './row.ts';
import {
  presentUpgrades,
  upgradedWith,
  upgradedWithout,
  upgradesOf,
  UPGRADES_MAX,
  withDataOf,
} from './upgrades.ts';

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

test.each([
  ['resets', [], 0],
  ['resets, of which the first one came after two upgrades', [FIRST, SECOND], 2],
  ['resets since an older release recorded any number of them', manyResets(5000), 0],
])('a thousand %s leave no more than are read', (_name, before, upgrades) => {
  let last: Upgraded | null = null;
  for (const one of before) last = { ...one, before: last };
  for (let n = 0; n < 1000; n++) last = upgradedWith(last, { id: `r${n}`, from: null, at: null });
  const ids = upgradesOf(row({ upgraded: last }));
  expect(ids).toHaveLength(UPGRADES_MAX + 1);
  const newest = Array.from({ length: UPGRADES_MAX - upgrades }, (_, n) => `r${999 - n}`);
  expect(ids).toEqual([...newest, ...['second', 'first'].slice(2 - upgrades), null]);
});

function manyResets(count: number): Upgraded[] {
  return Array.from({ length: count }, (_, n) => ({ id: `old${n}`, from: null, at: null }));
}

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
