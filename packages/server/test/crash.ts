/**
 * Crashes at every effect of an operation: once uncrashed to learn the effects and how it ends,
 * then again and again with a fault at one of them, which must end the same way. crash-at.mjs
 * faults; the scenes are in crash-scenes.ts.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '@howdah/contract/thrown';
import { connectTo, install, makeHome, type Installation, preload } from './harness.ts';
import { describeHit, type Hit, type Point, pointsOf } from './crash-points.ts';
import { findProcess, probeCloneMethod } from './probe.ts';
import { until } from './until.ts';

/**
 * Whether files are cloned one by one here. A snapshot of btrfs has no middle in which anything
 * could happen.
 */
export const COPIES_FILES = (await probeCloneMethod(tmpdir())) !== 'subvolume';

/** A thing to crash in. A stage is what one run of it needs and makes. */
export type Scene<Stage> = {
  name: string;
  /** Whose servers are worth killing in the middle of it, by role. */
  servers: readonly string[];
  prepare: () => Promise<Stage>;
  /** Services by role; all others that are there are none of its business. */
  roles: (stage: Stage) => Record<string, string>;
  /** Asks for it; may be asked again when no answer came. */
  act: (stage: Stage) => Promise<void>;
  /** Whether it has come to its end. */
  done: (stage: Stage) => Promise<boolean>;
  /** How it ended, in words and figures that are the same each time. */
  outcome: (stage: Stage) => Promise<unknown>;
  clear: (stage: Stage) => Promise<void>;
};

/** How one run of a scene ended. */
export type Run = {
  trace: string[];
  injected: boolean;
  outcome: unknown;
  problems: string[];
  resumed: Resumed | null;
};

/**
 * After a kill of the control plane, from the next one's start: until it serves, and until what was
 * interrupted has ended; in ms.
 */
export type Resumed = { servingMs: number; endedMs: number };

export type Testbed = Awaited<ReturnType<typeof installCrashing>>;

/** An installation whose control plane can be injected at any effect. */
export async function installCrashing(settings: Record<string, string> = {}) {
  const directory = await mkdtemp(join(tmpdir(), 'crash-at-'));
  const cloud = await install({ ...crashingAt(directory), ...settings });
  const planPath = join(directory, 'plan.json');
  const file = (name: string) => join(directory, name);

  /** From now on effects are noted, and one of them is injected at. */
  const arm = async (roles: Record<string, string>, at: Hit | null): Promise<void> => {
    for (const name of ['trace', 'injected', 'release']) await rm(file(name), { force: true });
    const others = (await everyId(cloud)).filter((id) => !(id in roles)).map((id) => [id, 'other']);
    // As a whole: it is read at any moment.
    await writeFile(
      `${planPath}.new`,
      JSON.stringify({ roles: { ...Object.fromEntries(others), ...roles }, at }),
    );
    await rename(`${planPath}.new`, planPath);
  };

  return {
    cloud,
    arm,
    disarm: () => disarm(directory),
    trace: async () =>
      existsSync(file('trace')) ? (await readFile(file('trace'), 'utf8')).trim().split('\n') : [],
    /**
     * From now on the control plane stops before the nth time of an effect; what else it does goes
     * on.
     */
    holdAt: (roles: Record<string, string>, effect: string, nth = 1) =>
      arm(roles, { effect, nth, when: 'before', delayMs: 0, fault: 'hold' }),
    /** Waits until it stands there. */
    held: () =>
      until('the control plane comes to the point where it is held', () =>
        existsSync(file('injected')),
      ),
    /** Operations under way and the last lines of the log, for a test that does not go on. */
    state: () => stateOf(cloud),
    /** Lets it go on. */
    release: () => writeFile(file('release'), ''),
    destroy: async (): Promise<string[]> => {
      await disarm(directory);
      const problems = await cloud.destroy();
      await rm(directory, { recursive: true, force: true });
      return problems;
    },
  };
}

/** A scene, whatever its stages are. */
export type Playable = {
  name: string;
  servers: readonly string[];
  play: (testbed: Testbed, at: Hit | null) => Promise<Run>;
};

export function playable<Stage>(scene: Scene<Stage>): Playable {
  return {
    name: scene.name,
    servers: scene.servers,
    play: (testbed, at) => play(testbed, scene, at),
  };
}

/** Runs a scene once. @param at where to fault; null: nowhere */
async function play<Stage>(testbed: Testbed, scene: Scene<Stage>, at: Hit | null): Promise<Run> {
  const { cloud } = testbed;
  const stage = await scene.prepare();
  await testbed.arm(scene.roles(stage), at);
  const ask = () =>
    scene.act(stage).then(
      () => true,
      () => false,
    );
  const down = async () => !(await isUp(cloud));
  let answered = false;
  await until(
    `${scene.name} is accepted or interrupted`,
    async () => (answered = await ask()) || (await down()),
  );
  await until(
    `${scene.name} ends or is interrupted`,
    async () => (await scene.done(stage).catch(() => false)) || (await down()),
  );
  const trace = await testbed.trace();
  const injected = await testbed.disarm();
  if (injected && at?.fault === 'kill') await untilDown(cloud);
  const wasKilled = await down();
  const begun = performance.now();
  if (wasKilled) await cloud.up();
  const servingMs = performance.now() - begun;
  if (!answered) await until(`${scene.name} is accepted after the fault`, ask);
  await until(`${scene.name} ends after the fault`, () => scene.done(stage));
  const resumed = wasKilled ? { servingMs, endedMs: performance.now() - begun } : null;
  const problems = await leftovers(cloud);
  const outcome = await scene.outcome(stage);
  await scene.clear(stage);
  return { trace, injected, outcome, problems, resumed };
}

/**
 * Plays a scene uncrashed, then with a fault at each of the hits chosen.
 *
 * @returns a text for each hit after which it did not end as it does uncrashed, and how many of the
 *   hits came about
 */
export async function explore(
  testbed: Testbed,
  scene: Playable,
  choose: (points: Point[]) => Iterable<Hit>,
  say: (line: string) => void,
  tell: (hit: Hit, came: boolean) => void = () => undefined,
): Promise<{ failures: string[]; hits: number; injected: number; resumed: Resumed[] }> {
  const undisturbed = await scene.play(testbed, null);
  const expected = JSON.stringify(undisturbed.outcome);
  const failures = undisturbed.problems.map((problem) => `${scene.name}: uncrashed: ${problem}`);
  const resumed: Resumed[] = [];
  let [hits, injected] = [0, 0];
  for (const hit of choose(pointsOf(undisturbed.trace))) {
    hits += 1;
    const begun = performance.now();
    const {
      problems,
      injected: came,
      resumed: after,
    } = await problemsOf(testbed, scene, hit, expected);
    if (came) injected += 1;
    tell(hit, came);
    if (after !== null) resumed.push(after);
    say(
      `${scene.name}: ${describeHit(hit)}: ${came ? 'done' : 'it did not come to that'} ` +
        `(${Math.round(performance.now() - begun)} ms)`,
    );
    const found = problems.map(
      (problem) =>
        `${scene.name}: ${describeHit(hit)}: ${problem}\n${marked(undisturbed.trace, hit)}`,
    );
    for (const failure of found) say(`FAILED ${failure}`);
    failures.push(...found);
    if (failures.length >= GIVE_UP_AFTER) {
      say(`${scene.name}: given up after ${failures.length} failures`);
      break;
    }
  }
  return { failures, hits, injected, resumed };
}

/** A failure leaves things behind that make others; a scene is not worth more of them. */
const GIVE_UP_AFTER = 3;

async function problemsOf(
  testbed: Testbed,
  scene: Playable,
  hit: Hit,
  expected: string,
): Promise<{ problems: string[]; injected: boolean; resumed: Resumed | null }> {
  try {
    const { outcome, problems, injected, resumed } = await scene.play(testbed, hit);
    const found = JSON.stringify(outcome);
    return {
      injected,
      resumed,
      problems:
        found === expected ? problems : [...problems, `ended as ${found} instead of ${expected}`],
    };
  } catch (error) {
    const injected = await testbed.disarm();
    const state = await stateOf(testbed.cloud).catch((unread: unknown) => [
      `its state cannot be had: ${String(unread)}`,
    ]);
    if (!(await isUp(testbed.cloud))) await testbed.cloud.up();
    return {
      injected,
      resumed: null,
      problems: [[messageOf(error), ...state].join('\n      ')],
    };
  }
}

/**
 * The unfinished operations and the last lines of the control log: for a scene that did not end.
 */
async function stateOf(cloud: Installation): Promise<string[]> {
  const noted = (await readFile(join(cloud.home, 'logs', 'control.log'), 'utf8'))
    .trimEnd()
    .split('\n')
    .slice(-40);
  const open = (await cloud.operations()).filter(({ finished }) => finished === null);
  const services = await Promise.all(
    [...new Set(open.map(({ service_id: id }) => id))].map((id) =>
      cloud.request('GET', `/services/${id}`),
    ),
  );
  const shown = [...open, ...services.map(({ body }) => body)].map((one) => JSON.stringify(one));
  return [...shown, ...(await cloud.audit()), ...noted.map((line) => line.slice(0, 500))];
}

/** The effects of a run, with a mark at the one that was injected at. */
function marked(trace: readonly string[], hit: Hit): string {
  const kinds = [...new Set(trace)];
  return kinds.map((effect) => `${effect === hit.effect ? '  → ' : '    '}${effect}`).join('\n');
}

/** The very first start, which makes everything; injected at, it is followed by another one. */
export function firstStart(): Playable {
  const play = async (at: Hit | null): Promise<Run> => {
    const [directory, home] = [await mkdtemp(join(tmpdir(), 'crash-at-')), await makeHome()];
    const plan = join(directory, 'plan.json');
    await writeFile(plan, JSON.stringify({ roles: {}, first: true, at }));
    const settings = { ...crashingAt(directory), HOWDAH_HOME: home };
    const cloud = await install(settings).catch(() => null);
    const injected = await disarm(directory);
    const next = cloud ?? (await install(settings));
    if (cloud !== null && injected && at?.fault === 'kill') {
      // The installation had answered, and was killed then.
      await untilDown(cloud);
      await cloud.up();
    }
    const service = await next.create({ name: 'first', service_type: 'POSTGRES' });
    await (await connectTo(next, service, service.initial_password)).end();
    const trace = (await readFile(join(directory, 'trace'), 'utf8')).trim().split('\n');
    await rm(directory, { recursive: true });
    return { trace, injected, outcome: 'a service', problems: await next.destroy(), resumed: null };
  };
  return { name: 'first start', servers: [], play: (_, at) => play(at) };
}

/** The environment of a control plane that is injected by what stands in a directory. */
function crashingAt(directory: string): Record<string, string> {
  return { ...preload('crash-at.mjs'), CRASH_AT: directory };
}

/**
 * The findings of the integrity check, and of a search for unfinished things, once nothing is under
 * way; [] as soon as there are none.
 */
async function leftovers(cloud: Installation): Promise<string[]> {
  let found: string[] = [];
  const services = join(cloud.home, 'data', 'services');
  const clean = async (): Promise<boolean> => {
    const unfinished = (await readdir(services)).filter((name) => name.endsWith('.new'));
    const snapshots = await Promise.all(
      (await readdir(services)).map((id) =>
        readdir(join(services, id, 'snapshots')).catch(() => []),
      ),
    );
    const open = (await cloud.operations())
      .filter(({ finished }) => finished === null)
      .map(({ kind }) => `operation ${kind} goes on`);
    found = [
      ...(await cloud.audit()),
      ...unfinished,
      ...snapshots.flat().filter((name) => name.endsWith('.new')),
      ...open,
    ];
    return found.length === 0;
  };
  await until('nothing is left over', clean).catch(() => undefined);
  return found;
}

/**
 * From now on nothing is injected at, not even by a fault that was under way. @returns whether it
 * was injected at before
 */
async function disarm(directory: string): Promise<boolean> {
  const claim = join(directory, 'injected');
  const free = await writeFile(claim, 'no', { flag: 'wx' }).then(
    () => true,
    () => false,
  );
  await rm(join(directory, 'plan.json'), { force: true });
  return !free && (await readFile(claim, 'utf8')) !== 'no';
}

/** Killed a moment ago, a control plane may not have ended yet. */
const untilDown = (cloud: Installation): Promise<boolean> =>
  until('the killed control plane has ended', async () => !(await isUp(cloud)));

async function isUp(cloud: Installation): Promise<boolean> {
  const pid = cloud.planePid();
  return pid !== undefined && (await findProcess(pid)) !== null;
}

/** Every service that has a directory, deleted ones among them. */
async function everyId(cloud: Installation): Promise<string[]> {
  return (await readdir(join(cloud.home, 'data', 'services'))).map((name) =>
    name.replace(/\.new$/, ''),
  );
}
