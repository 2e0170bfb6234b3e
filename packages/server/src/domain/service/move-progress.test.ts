import { expect, test } from 'vitest';
import {
  decideSwitch,
  describeOutage,
  isClose,
  isKeptTimeOver,
  isLost,
  isSuperseded,
  isSwitchOver,
  msUntilNotKept,
  silentFrom,
  type SwitchSeen,
} from './move-progress.ts';
import type { Move } from './row.ts';

const MOVE: Move = {
  id: 'movemovemo',
  state: 'copy',
  from: 'local',
  source: { host: '192.0.2.1', port: 20_000 },
  to: 'kube',
  toAlias: null,
  endpoint: { host: '192.0.2.2', port: 30_000 },
  prepared: true,
  kept: false,
  silent: null,
  switched: null,
  until: null,
  problem: null,
};

/** A title of its own: a bigint is no JSON. */
test.each<[string, Partial<SwitchSeen>, string]>([
  ['has all', { replayed: 101n }, 'hand over'],
  ['has not the last record', { replayed: 100n }, 'wait'],
  ['is behind', { replayed: 99n, isOver: false }, 'wait'],
  ['is behind for too long', { replayed: 100n, isOver: true }, 'abort'],
  // A control plane that was away finds that all is there.
  ['has all, late', { replayed: 101n, isOver: true }, 'hand over'],
  ['has the shutdown', { end: 'shutdown', hasShutdown: true }, 'hand over'],
  ['has much, but not the shutdown', { end: 'shutdown', replayed: 101n }, 'wait'],
  ['never has the shutdown', { end: 'shutdown', isOver: true }, 'abort'],
  ['was promoted by somebody', { replayed: 101n, isFollowing: false }, 'abort'],
])('a switch to a copy that %s', (_, seen, decided) => {
  const usual = {
    end: 100n,
    replayed: 0n,
    isFollowing: true,
    awaitsRestart: false,
    hasShutdown: false,
    isOver: false,
  };
  expect(decideSwitch({ ...usual, ...seen })).toBe(decided);
});

test.each<[Move['state'], Parameters<typeof isSuperseded>[1], boolean]>([
  ['copy', 'move', false],
  ['switch', 'move', false],
  ['copy', 'delete', true],
  ['switch', 'resize', true],
  ['switch', null, true],
  // Writes may have been acknowledged in the other region.
  ['moved', 'restart', false],
  ['moved', null, false],
  ['kept', 'delete', false],
  ['abort', null, false],
])('a move in the state %s with the operation %s is superseded: %s', (state, kind, expected) => {
  expect(isSuperseded({ ...MOVE, state }, kind)).toBe(expected);
});

test('only a copy that streams and is close is switched to', () => {
  const of = (lagBytes: number | null) => isClose({ mayLogIn: true, lagBytes });
  expect([null, 0, 1e6, 1e9].map(of)).toEqual([false, true, true, false]);
});

test('the time without writes is that since the begin of the switch', () => {
  const switched = '2026-01-01T00:00:00.000Z';
  expect(describeOutage({ ...MOVE, switched }, Date.parse(switched) + 2340)).toBe(
    'nobody could write for 2.3 s',
  );
});

test('a switch has half a minute, also across a restart of the control plane', () => {
  const switched = '2026-01-01T00:00:00.000Z';
  const at = (ms: number) => isSwitchOver({ ...MOVE, switched }, Date.parse(switched) + ms);
  expect([at(0), at(59_999), at(60_000), at(3_600_000)]).toEqual([false, false, true, true]);
});

test('the former server is kept until its time is over', () => {
  const until = '2026-01-02T00:00:00.000Z';
  const at = (ms: number) => isKeptTimeOver({ ...MOVE, until }, Date.parse(until) + ms);
  expect([at(-1), at(0), isKeptTimeOver(MOVE, Date.parse(until))]).toEqual([false, true, false]);
});

test('the removal of a former server is tried once a minute from then on', () => {
  const until = '2026-01-02T00:00:00.000Z';
  const at = (ms: number) => msUntilNotKept({ until }, Date.parse(until) + ms);
  expect([at(-3_600_000), at(0), at(3_600_000)]).toEqual([3_600_000, 60_000, 60_000]);
  expect(msUntilNotKept({ until: null }, 0)).toBe(null);
});

test('a copy that runs and does not stream is given up after ten minutes', () => {
  const beganMs = Date.parse('2026-01-01T00:00:00.000Z');
  const silent = silentFrom(MOVE, { mayLogIn: true, lagBytes: null }, beganMs);
  expect(silent).toBe('2026-01-01T00:00:00.000Z');
  const still = { ...MOVE, silent };
  const none = { mayLogIn: true, lagBytes: null };
  expect(silentFrom(still, none, beganMs + 1000)).toBe(silent);
  expect([599_999, 600_000].map((ms) => isLost(still, beganMs + ms))).toEqual([false, true]);
  // The copy may be restarted, and follow again.
  expect(silentFrom(still, { ...none, lagBytes: 5 }, beganMs + 1000)).toBe(null);
  expect(isLost(MOVE, beganMs)).toBe(false);
});
