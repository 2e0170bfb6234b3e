/**
 * Two calls on one service at the same time, by two APIs: they end as one after the other would, in
 * one of the two orders.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { openTrack } from './race-track.ts';
import { ALL_STARTS, inTurn, worldFor, type Start } from './race-endings.ts';
import { CALLS } from './races.ts';
import { type Call, type Slot, type World } from './race-world.ts';

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
    : `${start}: ${nameOfOne}, ${nameOfTwo}:\n  found   ${found}\n` +
        `  allowed ${[...new Set(orders)].join('\n       or ')}`;
}

/**
 * Whether a call that comes alone would change anything. Two of which neither would find and answer
 * the same in either order.
 */
const changes = (world: World, call: Call, slot: Slot): boolean =>
  call.act(world, slot).world !== world;

const TRACKS = 3;

/** The default run takes one pair of so many, other ones for each start. */
const SAMPLE_OF = 12;

function pairsThatChange(start: Start): [[string, Call], [string, Call]][] {
  const calls = Object.entries(CALLS);
  return calls
    .flatMap((one) => calls.map((two): [[string, Call], [string, Call]] => [one, two]))
    .filter(([[, one], [, two]]) => {
      const world = worldFor(start, one, two);
      return changes(world, one, 'one') || changes(world, two, 'two');
    });
}

describe('every ordered pair of calls of which one changes something', () => {
  // A pair waits for locks much of its time: several are under way, each in a database of its own.
  const tracks: Track[] = [];
  beforeAll(async () => {
    // One after the other: each tries out what the machine can do, in the same directory.
    for (let n = 0; n < TRACKS; n++) tracks.push(await openTrack(cloud));
  });
  afterAll(async () => {
    await Promise.all(tracks.map((track) => track.close()));
  });

  test.each(ALL_STARTS)('a sample of the pairs, of a service that is %s', (start) =>
    race(start, (position) => position % SAMPLE_OF === ALL_STARTS.indexOf(start) % SAMPLE_OF),
  );

  test.each(ALL_STARTS)('the other pairs, of a service that is %s', { tags: 'slow' }, (start) =>
    race(start, (position) => position % SAMPLE_OF !== ALL_STARTS.indexOf(start) % SAMPLE_OF),
  );

  async function race(start: Start, isChosen: (position: number) => boolean): Promise<void> {
    const pairs = pairsThatChange(start).filter((_, position) => isChosen(position));
    expect(pairs.length).toBeGreaterThan(Object.keys(CALLS).length / SAMPLE_OF);
    const problems: string[] = [];
    const left = pairs.values();
    await Promise.all(
      tracks.map(async (track) => {
        for (const [one, two] of left) {
          const problem = await problemOf(track, start, one, two);
          if (problem !== null) problems.push(problem);
        }
      }),
    );
    expect(problems.join('\n')).toBe('');
  }
});

test('APIs that lock nothing are found out', async () => {
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
