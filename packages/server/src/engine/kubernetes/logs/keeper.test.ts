import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { QUIET } from '../../../lib/log.ts';
import { createRounds } from '../../../lib/rounds.ts';
import { TUNING } from '../../../lib/tuning.ts';
import type { LogQuery } from '../../engine.ts';
import {
  CLUSTER,
  ID,
  LABELS,
  newSpec,
  openCloud,
  POD,
  podAt,
  runServers,
  stopServers,
  until,
  untilAwaited,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import { createMemoryLogs } from '../../conformance/memory-records.ts';
import { server } from '../cluster/decide.testing.ts';
import { clusterState } from '../cluster/state.ts';
import { createLogKeeper, isDue, restAfter, type Rest } from './keeper.ts';
import { logLine, type FakeOutput } from './fake-log.testing.ts';
import { unpack } from './page.ts';

const BEGIN = Date.parse('2026-11-26T10:00:00Z');
const QUERY: LogQuery = {
  sinceMs: null,
  untilMs: null,
  cursor: null,
  search: [],
  severities: [],
  limit: 1000,
};

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud(50);
});
afterEach(() => cloud.close());

const lines = (first: number, last: number): FakeOutput =>
  Array.from({ length: last - first + 1 }, (_, n) =>
    logLine(BEGIN + first + n, `line ${first + n}`),
  );
const named = (first: number, last: number): string[] =>
  Array.from({ length: last - first + 1 }, (_, n) => `line ${first + n}`);

/** The messages of all parts of a server, oldest first. */
async function kept(server = 0): Promise<string[]> {
  const parts = cloud.logs.rows.filter((row) => row.server === server);
  const read = await Promise.all(parts.map((part) => unpack(part.lines)));
  return read.flatMap((part) => part.lines.toReversed().map(({ entry }) => entry.message));
}
const untilKept = (messages: readonly string[], server = 0) =>
  until(async () => (await kept(server)).join() === messages.join());

async function shown(node: number | null = null): Promise<string[]> {
  const { signal } = new AbortController();
  const { entries } = await cloud.engine.observe.logs(ID, node, QUERY, signal);
  return entries.map(({ message }) => message).toReversed();
}

async function ready() {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  return spec;
}

/** Some rounds. */
const rounds = () => sleep(300);

test('a round keeps new lines once, also after another start of the control plane', async () => {
  await ready();
  cloud.fake.logs.set(POD, { output: lines(0, 4) });
  await untilKept(named(0, 4));
  cloud.fake.logs.set(POD, { output: lines(0, 9) });
  await untilKept(named(0, 9));
  await rounds();
  expect(cloud.logs.rows).toHaveLength(2);
  await cloud.engine.close();
  cloud.engine = cloud.openEngine();
  await rounds();
  expect(cloud.logs.rows).toHaveLength(2);
  cloud.fake.logs.set(POD, { output: lines(0, 10) });
  await untilKept(named(0, 10));
  expect(await shown()).toEqual(named(0, 10));
});

test('a control plane that may not write keeps nothing', async () => {
  await ready();
  cloud.mayWrite = false;
  cloud.fake.logs.set(POD, { output: lines(0, 4) });
  await rounds();
  expect(cloud.logs.rows).toEqual([]);
  cloud.mayWrite = true;
  await untilKept(named(0, 4));
});

test('the log of a container that has ended is kept once it is started again', async () => {
  await ready();
  cloud.fake.logs.set(POD, { output: lines(0, 4) });
  await untilKept(named(0, 4));
  cloud.fake.logs.set(POD, { output: lines(20, 24), previous: lines(0, 9) });
  await untilKept([...named(0, 9), ...named(20, 24)]);
  cloud.fake.logs.set(POD, { output: lines(20, 29), previous: lines(0, 9) });
  await untilKept([...named(0, 9), ...named(20, 29)]);
});

test('a stop keeps the log of before, and a paused service shows it', async () => {
  await cloud.close();
  // Rounds that are as long as in a region.
  cloud = await openCloud();
  const spec = await ready();
  const paused = { ...spec, power: 'paused' } as const;
  cloud.fake.logs.set(POD, { output: lines(0, 9) });
  await untilAwaited(cloud, paused);
  expect(await kept()).toEqual(named(0, 9));
  stopServers(cloud);
  await untilStep(cloud, paused, 'settled');
  expect(await shown()).toEqual(named(0, 9));
  expect(await shown(0)).toEqual(named(0, 9));
  // A Cluster that somebody has deleted leaves its log.
  cloud.fake.take(CLUSTER);
  await until(async () => (await cloud.engine.lifecycle.majorOf(ID)) === null);
  expect(await shown()).toEqual(named(0, 9));
});

test('the log of a pod that is ending is read until it is gone', async () => {
  await cloud.close();
  cloud = await openCloud();
  await ready();
  runServers(cloud, 2, 2);
  cloud.fake.logs.set(POD, { output: lines(0, 4) });
  const leaving = { labels: LABELS, deletionTimestamp: new Date().toISOString() };
  cloud.fake.put(POD, { ...cloud.fake.objects.get(POD), metadata: leaving });
  await untilKept(named(0, 4));
  cloud.fake.logs.set(POD, { output: lines(0, 6) });
  await untilKept(named(0, 6));
  cloud.fake.take(POD);
  cloud.fake.logs.delete(POD);
  cloud.fake.logs.set(podAt(2), { output: lines(50, 51) });
  expect(await shown(0)).toEqual(named(0, 6));
  expect(await shown(1)).toEqual(named(50, 51));
});

const CLUSTER_OBJECT = {
  metadata: { name: `s-${ID}`, namespace: 'howdah-p', uid: 'u', resourceVersion: '1' },
  spec: { instances: 1 },
};
const NEVER = new Promise<never>(() => undefined);
const PARTS = {
  kube: { text: async () => `2026-11-26T10:00:00Z ${logLine(BEGIN, 'a line')[1]}\n` },
  cache: {
    cluster: () => clusterState(CLUSTER_OBJECT),
    servers: () => [server(0)],
    ids: () => [ID],
    staleWhy: () => null,
  },
  keptLogs: createMemoryLogs().store,
  rounds: createRounds(TUNING.rounds, QUIET),
  mayWrite: () => true,
  stepWithinMs: 60_000,
};

test('neither a silent cluster nor a silent metadata database holds up a step', async () => {
  for (const silent of [
    { kube: { text: () => NEVER } },
    { keptLogs: { ...PARTS.keptLogs, add: () => NEVER } },
    { keptLogs: { ...PARTS.keptLogs, list: () => NEVER } },
  ]) {
    const keeper = createLogKeeper({
      ...PARTS,
      ...silent,
      stepWithinMs: 20,
      failed: () => undefined,
    });
    await keeper.keepBefore(ID);
    await keeper.close();
  }
});

test('a step goes on when its log cannot be kept, and that is reported', async () => {
  const failures: unknown[] = [];
  const add = async () => Promise.reject(new Error('the disk is full'));
  const failed = (error: unknown) => failures.push(error);
  const keeper = createLogKeeper({ ...PARTS, keptLogs: { ...PARTS.keptLogs, add }, failed });
  await keeper.keepBefore(ID);
  expect(failures).toEqual([new Error('the disk is full')]);
  await keeper.close();
});

test('a control plane that loses its lock while it reads keeps nothing', async () => {
  const logs = createMemoryLogs();
  let isHeld = true;
  const text = async (): Promise<string> => {
    isHeld = false;
    return PARTS.kube.text();
  };
  const keeper = createLogKeeper({
    ...PARTS,
    kube: { text },
    keptLogs: logs.store,
    mayWrite: () => isHeld,
    failed: () => undefined,
  });
  await keeper.keepBefore(ID);
  expect(logs.rows).toEqual([]);
  await keeper.close();
});

test('a read that fails does not end the reads of a pod that is ending', async () => {
  const logs = createMemoryLogs();
  const failures: unknown[] = [];
  const leaving = server(0, { leaving: true });
  let servers = [leaving];
  const texts = [() => Promise.reject(new Error('the kubelet is busy'))];
  const keeper = createLogKeeper({
    ...PARTS,
    kube: { text: async () => (texts.shift() ?? PARTS.kube.text)() },
    cache: { ...PARTS.cache, servers: () => servers },
    keptLogs: logs.store,
    failed: (error) => failures.push(error),
  });
  keeper.notice(ID);
  await expect.poll(() => logs.rows.length, { timeout: 60_000 }).toBe(1);
  expect(failures).toEqual([new Error('the kubelet is busy')]);
  servers = [];
  await keeper.close();
});

test('lines of a pod that is replaced while they are read are not kept', async () => {
  const logs = createMemoryLogs();
  let servers = [server(0)];
  const text = async (): Promise<string> => {
    servers = [server(0, { uid: 'another' })];
    return PARTS.kube.text();
  };
  const cache = { ...PARTS.cache, servers: () => servers };
  const parts = { ...PARTS, kube: { text }, cache, keptLogs: logs.store };
  const keeper = createLogKeeper({ ...parts, failed: () => undefined });
  await keeper.keepBefore(ID);
  expect(logs.rows).toEqual([]);
  await keeper.keepBefore(ID);
  expect(logs.rows).toHaveLength(1);
  await keeper.close();
});

test('four logs are read at a time, and none while the watch is behind', async () => {
  const ends: (() => void)[] = [];
  let isBehind = true;
  const text = () => new Promise<string>((resolve) => ends.push(() => resolve('')));
  const servers = () => [server(0), server(1, { leaving: true }), server(2), server(3)];
  const staleWhy = () => (isBehind ? 'no answer' : null);
  const parts = { ...PARTS, kube: { text }, cache: { ...PARTS.cache, servers, staleWhy } };
  const keeper = createLogKeeper({ ...parts, keptLogs: createMemoryLogs().store, failed: () => 0 });
  await keeper.keepBefore(ID);
  expect(ends).toEqual([]);
  isBehind = false;
  const kept = [keeper.keepBefore(ID), keeper.keepBefore('other')];
  keeper.notice(ID);
  await expect.poll(() => ends.length).toBe(4);
  await sleep(20);
  expect(ends).toHaveLength(4);
  const closing = keeper.close();
  for (let n = 0; n < 200; n += 1, await sleep(5)) for (const end of ends.splice(0)) end();
  await Promise.all([closing, ...kept]);
});

/** The rounds in which a log is read. @param isQuiet by the round */
function readIn(rounds: number, random: number, isQuiet: (round: number) => boolean): number[] {
  let rest: Rest | undefined;
  const read: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    if (!isDue(rest)) continue;
    read.push(round);
    rest = restAfter(!isQuiet(round), rest, random);
  }
  return read;
}

test('a log with new lines is read in each round', () => {
  expect(readIn(5, 0.999, () => false)).toEqual([0, 1, 2, 3, 4]);
});

test('a quiet log is read ever less often, and at least once in eight rounds', () => {
  const [often, seldom] = [0, 0.999].map((random) => readIn(40, random, () => true));
  expect(often).toEqual([0, 2, 5, 10, 15, 20, 25, 30, 35]);
  expect(seldom).toEqual([0, 2, 6, 14, 22, 30, 38]);
});

test('a log that is quiet no more is read in each round again', () => {
  expect(readIn(20, 0.999, (round) => round < 10)).toEqual([0, 2, 6, 14, 15, 16, 17, 18, 19]);
});
