/**
 * `npm run soak:crash -- --minutes N --seed S [--family creates|power|changes|vpcs|sets|replicas]
 * [--scene PATTERN] [--effect TEXT]`: the control plane and the databases killed at points of every
 * operation, chosen at random, until the time is over.
 *
 * `npm run soak:crash -- --all [--from N] [--victim TEXT]`: every point of every operation once, in
 * their order; interrupted, it says where to go on. `--victim "control plane"` leaves the databases
 * alone.
 *
 * Ends with 1 and says where when something was lost, left over or did not heal.
 */
import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { crashFamilies } from './crash-scenes.ts';
import { describeHit, hitsOf, randomFrom, type Hit, type Point } from './crash-points.ts';
import { explore, installCrashing, type Playable, type Resumed, type Testbed } from './crash.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    seed: { type: 'string' },
    family: { type: 'string', default: '' },
    scene: { type: 'string', default: '' },
    effect: { type: 'string', default: '' },
    victim: { type: 'string', default: '' },
    all: { type: 'boolean', default: false },
    from: { type: 'string', default: '1' },
  },
});
const seed = Number(values.seed ?? randomBytes(4).readUInt32LE());
const random = randomFrom(seed);
const minutes =
  values.minutes === undefined ? (values.all ? Infinity : 10) : Number(values.minutes);
let endMs = Date.now() + minutes * 60_000;
process.on('SIGINT', () => (endMs = 0));
process.on('SIGTERM', () => (endMs = 0));
const scenesWanted = new RegExp(values.scene);
const say = (line: string): void => void process.stdout.write(`${line}\n`);
/** Hits of a scene before it is the next one's turn. */
const AT_A_TIME = 20;

const FAMILIES = (await crashFamilies()).filter(
  ({ name, playable }) => playable && name.includes(values.family),
);

const resumed: Resumed[] = [];
let [hits, injected] = [0, 0];
const failures = values.all ? await goThroughAll() : await wander();
say(`${injected} of ${hits} hits came about`);
if (resumed.length > 0)
  say(
    `after ${resumed.length} kills of the control plane: ` +
      `serving ${spread(resumed.map(({ servingMs }) => servingMs))}; ` +
      `what was interrupted had ended ${spread(resumed.map(({ endedMs }) => endedMs))} ` +
      'after the next start',
  );
say(
  failures.length === 0
    ? `nothing lost, nothing left over (seed ${seed})`
    : `${failures.length} failures (seed ${seed}):\n${failures.join('\n')}`,
);
process.exitCode = failures.length === 0 ? 0 : 1;

/** Hits chosen at random, some of each scene in turn. */
async function wander(): Promise<string[]> {
  say(`seed ${seed}, until ${new Date(endMs).toISOString()}`);
  const stands: Testbed[] = [];
  const found: string[] = [];
  try {
    const scenes: [Testbed, Playable][] = [];
    for (const { settings, make } of FAMILIES) {
      const testbed = await installCrashing(
        typeof settings === 'function' ? await settings() : settings,
      );
      stands.push(testbed);
      say(`in ${testbed.cloud.home}`);
      for (const scene of await make(testbed))
        if (scenesWanted.test(scene.name)) scenes.push([testbed, scene]);
    }
    while (Date.now() < endMs) {
      for (const [testbed, scene] of scenes) {
        if (Date.now() >= endMs) break;
        found.push(
          ...tallied(await explore(testbed, scene, (points) => somehow(points, scene), say))
            .failures,
        );
      }
    }
  } finally {
    for (const testbed of stands) found.push(...(await testbed.destroy()));
  }
  return found;
}

/** Every hit of every scene, numbered; what a failure left behind is not met by the next scene. */
async function goThroughAll(): Promise<string[]> {
  const found: string[] = [];
  const from = Number(values.from);
  let number = 0;
  const inOrder = function* (points: readonly Point[], scene: Playable): Iterable<Hit> {
    for (const hit of wanted(points, scene)) {
      if (Date.now() >= endMs) return;
      number += 1;
      if (number >= from) yield hit;
    }
  };
  for (const { settings, make } of FAMILIES) {
    if (Date.now() >= endMs) break;
    let testbed = await installCrashing(
      typeof settings === 'function' ? await settings() : settings,
    );
    try {
      let scenes = await make(testbed);
      for (const [index] of scenes.entries()) {
        const scene = scenes[index];
        if (scene === undefined || Date.now() >= endMs || !scenesWanted.test(scene.name)) continue;
        const before = number;
        const result = tallied(
          await explore(
            testbed,
            scene,
            (points) => inOrder(points, scene),
            (line) => say(`#${number} ${line}`),
          ),
        );
        found.push(...result.failures);
        say(
          `── ${scene.name}: #${before + 1} to #${number}, ` +
            `${result.injected} of ${result.hits} came about, ` +
            `${result.failures.length} failures`,
        );
        if (result.failures.length === 0) continue;
        await testbed.destroy();
        testbed = await installCrashing(
          typeof settings === 'function' ? await settings() : settings,
        );
        scenes = await make(testbed);
      }
    } finally {
      found.push(...(await testbed.destroy()));
    }
  }
  if (Date.now() >= endMs) say(`interrupted: go on with --from ${number + 1}`);
  return found;
}

function tallied<T extends { hits: number; injected: number; resumed: Resumed[] }>(result: T): T {
  hits += result.hits;
  injected += result.injected;
  resumed.push(...result.resumed);
  return result;
}

/** The middle one and the longest, of times in milliseconds. */
function spread(times: readonly number[]): string {
  const sorted = times.toSorted((a, b) => a - b);
  const shown = (ms: number | undefined) => `${((ms ?? 0) / 1000).toFixed(2)} s`;
  return (
    `within ${shown(sorted[Math.floor(sorted.length / 2)])} in half of them, ` +
    `${shown(sorted.at(-1))} in all`
  );
}

function wanted(points: readonly Point[], scene: Playable): Hit[] {
  return hitsOf(points, scene).filter(
    (hit) => hit.effect.includes(values.effect) && describeHit(hit).includes(values.victim),
  );
}

function* somehow(points: readonly Point[], scene: Playable): Iterable<Hit> {
  const all = wanted(points, scene);
  for (let hits = 0; hits < AT_A_TIME && Date.now() < endMs; hits++)
    yield { ...pick(all), delayMs: pick([0, 1, 2, 5, 10, 20, 50, 100]) };
}

function pick<T>(of: readonly T[]): T {
  const one = of[Math.floor(random() * of.length)];
  if (one === undefined) throw new Error('nothing to choose from');
  return one;
}
