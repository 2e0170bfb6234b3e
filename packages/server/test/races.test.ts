/** Two calls on one service at the same time, by two API processes: they end as one after the other would, in one of the two orders. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { openTrack } from './race-track.ts';
import {
  ALL_STARTS,
  CALLS,
  inTurn,
  worldFor,
  type Call,
  type Slot,
  type Start,
  type World,
} from './races.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

type Track = Awaited<ReturnType<typeof openTrack>>;

/** @returns a text when two calls end as neither order does */
async function problemOf(
  track: Track,
  start: Start,
  [nameOfOne, one]: [string, Call],
  [nameOfTwo, two]: [string, Call],
): Promise<string | null> {
  const world = worldFor(start, one, two);
  const found = JSON.stringify(await track.race(world, { one, two }));
  const orders = [
    inTurn(world, { one, two }, ['one', 'two']),
    inTurn(world, { one, two }, ['two', 'one']),
  ].map((ending) => JSON.stringify(ending));
  return orders.includes(found)
    ? null
    : `${start}: ${nameOfOne}, ${nameOfTwo}:\n  found   ${found}\n  allowed ${[...new Set(orders)].join('\n       or ')}`;
}

/** Whether a call that comes alone would change anything. Two of which neither would find and answer the same in either order. */
const changes = (world: World, call: Call, slot: Slot): boolean =>
  call.act(world, slot).world !== world;

describe('every ordered pair of calls of which one changes something', () => {
  let track: Track;
  beforeAll(async () => {
    track = await openTrack(cloud);
  });
  afterAll(async () => {
    await track?.close();
  });

  test.each(ALL_STARTS)(
    'of a service that is %s',
    async (start) => {
      const problems: string[] = [];
      let raced = 0;
      for (const one of Object.entries(CALLS)) {
        for (const two of Object.entries(CALLS)) {
          const world = worldFor(start, one[1], two[1]);
          if (!changes(world, one[1], 'one') && !changes(world, two[1], 'two')) continue;
          raced += 1;
          const problem = await problemOf(track, start, one, two);
          if (problem !== null) problems.push(problem);
        }
      }
      expect(problems.join('\n')).toBe('');
      expect(raced).toBeGreaterThan(Object.keys(CALLS).length);
    },
    1_200_000,
  );
});

test('processes that lock nothing are found out', async () => {
  const track = await openTrack(cloud, 'no-lock');
  try {
    const calls = Object.entries(CALLS).filter(([name]) =>
      ['delete', 'stop', 'resize', 'rename', 'environment'].includes(name),
    );
    const problems: string[] = [];
    for (const one of calls)
      for (const two of calls)
        problems.push(
          ...[await problemOf(track, 'READY', one, two)].filter((text) => text !== null),
        );
    expect(problems.length).toBeGreaterThan(calls.length);
  } finally {
    await track.close();
  }
});
