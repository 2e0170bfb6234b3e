/** Promises about the life of a service: its steps, its presence, its listeners, its removal. */
import assert from 'node:assert/strict';
import type { OperationKind } from '@howdah/contract';
import { newId } from '../../lib/ids.ts';
import { NoPortLeft, type ServiceSpec } from '../spec.ts';
import { EngineUnavailable, type Seen } from '../engine.ts';
import {
  can,
  hasPooler,
  removeAll,
  replicated,
  hasGateway,
  settle,
  until,
  withService,
  type Promised,
  type Subject,
} from './subject.ts';

const paused = (spec: ServiceSpec): ServiceSpec => ({ ...spec, power: 'paused' });
const MAX_ROUNDS = 5000;
const LARGER = { cpuMillis: 1000, memoryGbs: 4 } as const;

export const LIFECYCLE_PROMISES: readonly Promised[] = [
  {
    name: 'a settled service stays settled, and no step begins',
    check: (subject) =>
      withService(subject, {}, async (spec) => {
        const { steps, begun } = await settle(subject, spec);
        assert.deepEqual({ steps, begun }, { steps: [], begun: [] });
      }),
  },
  { name: 'each step is announced before it changes anything', check: announcedFirst },
  { name: 'an interrupted step is made again', check: interruptedAgain },
  { name: 'an engine that ends between two steps continues', check: endsBetweenSteps },
  { name: 'the plan of a change has the steps that are made', check: planIsMade },
  {
    name: 'a requested extension is created and dropped, with a restart for its library',
    applies: can('enableExtension'),
    check: extensionsChange,
  },
  {
    name: 'the plan of replicas has the steps that are made',
    applies: hasGateway,
    check: planOfReplicas,
  },
  {
    name: 'the plan of a read replica set has the steps that are made',
    applies: can('createReplicaSet'),
    check: planOfSet,
  },
  { name: 'runs, reachable and present say what there is', check: truthful },
  { name: 'another desired state replaces the one before it', check: newestSpecWins },
  { name: 'the death of a server is reported and repaired', check: deathIsRepaired },
  { name: 'a removal leaves nothing', check: removalLeavesNothing },
  {
    name: 'the removal of a service that never existed settles',
    check: async (subject) => {
      const { id } = await subject.newSpec();
      const { steps, last } = await removeAll(subject, id);
      assert.deepEqual([steps, last.seen.present], [[], false]);
    },
  },
  {
    name: 'a service listens at its endpoint',
    check: (subject) =>
      withService(subject, {}, async ({ endpoint }) => {
        assert.equal(await subject.listens(endpoint.port), true);
      }),
  },
  { name: 'addresses are unique', check: addressesAreUnique },
  { name: 'a pooler listens while it is wanted', applies: hasPooler, check: poolerListens },
  { name: 'a closed engine leaves its services running', check: closeStopsNothing },
];

async function announcedFirst(subject: Subject): Promise<void> {
  const { lifecycle } = subject.engine;
  const spec = await subject.newSpec();
  const before = new Map<string, { runs: boolean; seen: Seen }>();
  try {
    const { steps, begun } = await settle(subject, spec, async (step, seen) => {
      // A step that waits is announced again.
      if (!before.has(step)) before.set(step, { runs: await lifecycle.runs(spec.id), seen });
    });
    assert.deepEqual(begun, steps);
    const [first] = steps;
    assert.equal(before.get(first ?? '')?.seen.present, false);
    assert.equal(before.get('start PostgreSQL')?.runs, false);
  } finally {
    await removeAll(subject, spec.id);
  }
}

/** The caller of a step dies right before it: once before each step. */
async function interruptedAgain(subject: Subject): Promise<void> {
  const spec = await subject.newSpec();
  const interrupted = new Set<string>();
  const interrupt = async (step: string): Promise<void> => {
    if (interrupted.has(step)) return;
    interrupted.add(step);
    throw new Error('interrupted');
  };
  try {
    for (let last = -1; last !== interrupted.size;) {
      last = interrupted.size;
      await settle(subject, spec, interrupt).catch((error: unknown) => {
        if (!(error instanceof Error && error.message.includes('interrupted'))) throw error;
      });
    }
    const { last } = await settle(subject, spec);
    assert.ok(interrupted.size > 1, `${interrupted.size} steps were interrupted`);
    assert.equal(last.seen.reachable, true);
  } finally {
    await removeAll(subject, spec.id);
  }
}

async function endsBetweenSteps(subject: Subject): Promise<void> {
  const spec = await subject.newSpec();
  try {
    for (const wanted of [spec, paused(spec), spec]) {
      // A new engine may have to connect first: each step ends one engine only.
      const made = new Set<string>();
      for (let [outcome, rounds] = ['again', 0]; outcome !== 'settled'; rounds += 1) {
        assert.ok(rounds < MAX_ROUNDS, 'it does not settle');
        const verdict = await subject.engine.lifecycle.converge(wanted, async () => undefined);
        outcome = verdict.outcome;
        assert.notEqual(outcome, 'failed', JSON.stringify(verdict));
        if (verdict.outcome === 'again') await subject.wait(verdict.waitMs);
        if (verdict.did === null || made.has(verdict.did)) continue;
        made.add(verdict.did);
        await subject.recreate();
      }
    }
    assert.equal((await settle(subject, spec)).last.seen.reachable, true);
  } finally {
    await removeAll(subject, spec.id);
  }
}

async function assertPlanned(
  subject: Subject,
  kind: OperationKind,
  spec: ServiceSpec,
  running: boolean,
  sizeBefore = spec.size,
): Promise<void> {
  const planned = subject.engine.lifecycle.plan(kind, spec, running, sizeBefore);
  const { steps } = await settle(subject, spec);
  assert.deepEqual(steps, planned, `the plan of ${kind}`);
}

/** Extensions that every engine has: one with a library, and one without. */
const EXTENSIONS = ['pg_prewarm', 'pgstattuple'] as const;

async function extensionsChange(subject: Subject): Promise<void> {
  const { lifecycle, extensions } = subject.engine;
  assert.ok(extensions !== null, 'the capability says that extensions can be created');
  const [installed] = await extensions.installed();
  for (const name of EXTENSIONS) {
    const found = installed?.extensions.find((one) => one.name === name);
    assert.ok(found?.allowed, `${name} is installed and allowed`);
    await withService(subject, {}, async (spec) => {
      const stateOf = async () =>
        (await extensions.of(spec.id)).find((one) => one.name === name)?.state;
      assert.equal(await stateOf(), 'disabled');
      const preload = found.preload ? [name] : [];
      const created = { ...spec, preload, extension: { name, wanted: 'created' as const } };
      const planned = lifecycle.plan('enableExtension', created, true, spec.size);
      assert.equal(planned.includes('start PostgreSQL'), found.preload, planned.join());
      assert.equal(planned.at(-1), 'create extension');
      await assertPlanned(subject, 'enableExtension', created, true);
      assert.equal(await stateOf(), 'enabled');
      await settle(subject, { ...created, extension: null, power: 'paused' });
      assert.equal(await stateOf(), 'unknown', 'while it does not run');
      await settle(subject, { ...created, extension: null });
      assert.equal(await stateOf(), 'enabled', 'after a start');
      const dropped = { ...spec, extension: { name, wanted: 'dropped' as const } };
      await assertPlanned(subject, 'disableExtension', dropped, true);
      assert.equal(await stateOf(), 'disabled');
    });
  }
}

async function planIsMade(subject: Subject): Promise<void> {
  await withService(subject, {}, async ({ id }) => {
    await removeAll(subject, id); // the first create of an engine makes its template
  });
  const spec = await subject.newSpec();
  let larger = { ...spec, size: LARGER };
  try {
    await assertPlanned(subject, 'create', spec, false);
    await assertPlanned(subject, 'stop', paused(spec), true);
    await assertPlanned(subject, 'start', spec, false);
    await assertPlanned(subject, 'resize', larger, true, spec.size);
    larger = { ...larger, restarts: 1 };
    await assertPlanned(subject, 'restart', larger, true);
    if (hasPooler(subject.engine)) {
      const pooled = { ...larger, pooler: { port: await subject.newPort() } };
      await assertPlanned(subject, 'enablePooler', pooled, true);
      await assertPlanned(subject, 'stop', paused(pooled), true);
      await assertPlanned(subject, 'start', pooled, false);
      await assertPlanned(subject, 'disablePooler', larger, true);
    }
    await assertPlanned(subject, 'stop', paused(larger), true);
  } finally {
    await removeAll(subject, spec.id);
  }
}

/** Files, slots and routes follow from the steps that a user asks for, as soon as they can. */
const asked = (steps: readonly string[]): string[] =>
  steps.filter((step) => !/configuration|slots|^connect|^route/.test(step));

/** Compares the steps of a change with its plan, without those that bring the rest up to date. */
async function assertAsked(
  subject: Subject,
  kind: OperationKind,
  spec: ServiceSpec,
  { running = true, sizeBefore = spec.size } = {},
): Promise<void> {
  const planned = subject.engine.lifecycle.plan(kind, spec, running, sizeBefore);
  assert.notDeepEqual(planned, [], `the plan of ${kind}`);
  const { steps } = await settle(subject, spec);
  assert.deepEqual(asked(steps), asked(planned), `the plan of ${kind}`);
}

async function planOfReplicas(subject: Subject): Promise<void> {
  await withService(subject, {}, async (spec) => {
    let wanted = replicated(subject, spec, 1);
    const { ha } = wanted;
    if (ha === null) return assert.fail('it has replicas');
    const larger = { ...wanted, size: LARGER };
    await assertAsked(subject, 'setHA', wanted);
    await assertAsked(subject, 'stop', paused(wanted));
    await assertAsked(subject, 'start', wanted, { running: false });
    await assertAsked(subject, 'resize', larger, { sizeBefore: wanted.size });
    await assertAsked(subject, 'resize', wanted, { sizeBefore: LARGER });
    wanted = { ...wanted, restarts: 1 };
    await assertAsked(subject, 'restart', wanted);
    await assertAsked(subject, 'setHA', { ...wanted, ha: { ...ha, replicas: 0, sync: 0 } });
  });
}

async function planOfSet(subject: Subject): Promise<void> {
  await withService(subject, {}, async ({ id }) => {
    const base = await subject.newSpec();
    const set: ServiceSpec = {
      ...base,
      firstVerifier: null,
      set: { parent: id, nodes: 2, purpose: 'reports' },
    };
    const larger = { ...set, size: LARGER, restarts: 1 };
    try {
      await assertAsked(subject, 'create', set, { running: false });
      await assertAsked(subject, 'resize', { ...larger, restarts: 0 }, { sizeBefore: set.size });
      await assertAsked(subject, 'restart', larger);
      await assertAsked(subject, 'stop', paused(larger));
      await assertAsked(subject, 'start', larger, { running: false });
    } finally {
      await removeAll(subject, set.id, id);
    }
  });
}

async function truthful(subject: Subject): Promise<void> {
  const { lifecycle } = subject.engine;
  const spec = await subject.newSpec();
  const found = async (wanted: ServiceSpec) => ({
    ...(await settle(subject, wanted)).last.seen,
    runs: await lifecycle.runs(spec.id),
  });
  try {
    const nothing = { reachable: false, present: false, provisioned: false, runs: false };
    assert.deepEqual(await found(paused(spec)), nothing, 'before its create');
    const all = { reachable: true, present: true, provisioned: true, runs: true };
    assert.deepEqual(await found(spec), all, 'after its create');
    const kept = { ...nothing, present: true, provisioned: true };
    assert.deepEqual(await found(paused(spec)), kept, 'paused');
    assert.deepEqual(await found(spec), all, 'started again');
    assert.deepEqual((await removeAll(subject, spec.id)).last.seen.present, false, 'removed');
  } finally {
    await removeAll(subject, spec.id);
  }
}

async function newestSpecWins(subject: Subject): Promise<void> {
  const spec = await subject.newSpec();
  const converge = (wanted: ServiceSpec) =>
    subject.engine.lifecycle.converge(wanted, async () => undefined);
  try {
    while (!(await subject.engine.lifecycle.runs(spec.id))) await converge(spec);
    const { last } = await settle(subject, paused(spec));
    assert.equal(last.seen.reachable, false);
    assert.equal((await settle(subject, spec)).last.seen.reachable, true);
  } finally {
    await removeAll(subject, spec.id);
  }
}

function deathIsRepaired(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await subject.kill(spec.id, 0);
    await until(subject, 'its death is reported', async () => subject.changed.has(spec.id));
    const { steps, last } = await settle(subject, spec);
    assert.ok(steps.includes('start PostgreSQL'), steps.join(', '));
    assert.equal(last.seen.reachable, true);
  });
}

async function removalLeavesNothing(subject: Subject): Promise<void> {
  const { engine } = subject;
  const spec = await subject.newSpec();
  await settle(subject, spec);
  assert.notDeepEqual(await subject.leftovers(spec.id), []);
  await removeAll(subject, spec.id);
  assert.deepEqual(await subject.leftovers(spec.id), []);
  assert.equal(await engine.lifecycle.runs(spec.id), false);
  assert.equal(await subject.listens(spec.endpoint.port), false);
  await assert.rejects(engine.observe.usage(spec.id), EngineUnavailable);
  assert.deepEqual(await engine.observe.servers(spec.id), []);
  assert.deepEqual((await engine.backups.describe(spec.id)).snapshots, []);
}

/** An engine gives out what it is offered, each address once, all at hosts of today. */
async function addressesAreUnique(subject: Subject): Promise<void> {
  const { addresses } = subject.engine;
  const offered: number[] = [];
  const take = async (): Promise<number> => {
    offered.push(await subject.newPort());
    return offered.at(-1) ?? 0;
  };
  const endpoints = [
    await addresses.reserve({ take }, { id: newId(), poolerOf: null }),
    await addresses.reserve({ take }, { id: newId(), poolerOf: null }),
    await addresses.reserve({ take }, { id: newId(), poolerOf: null }),
  ];
  const names = endpoints.map(({ host, port }) => `${host}:${port}`);
  assert.equal(new Set(names).size, names.length, names.join(', '));
  for (const endpoint of endpoints) {
    assert.ok(offered.includes(endpoint.port), `${endpoint.port} was offered`);
    assert.equal(addresses.isCurrent(endpoint), true);
  }
  const none = (): Promise<number> => Promise.reject(new NoPortLeft('none is left'));
  await assert.rejects(
    addresses.reserve({ take: none }, { id: newId(), poolerOf: null }),
    NoPortLeft,
  );
}

function poolerListens(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    const port = await subject.newPort();
    const { steps } = await settle(subject, { ...spec, pooler: { port } });
    assert.deepEqual(steps, ['start connection pooler']);
    assert.equal(await subject.listens(port), true, 'it listens');
    assert.deepEqual((await settle(subject, spec)).steps, ['stop connection pooler']);
    await until(subject, 'its port is free again', async () => !(await subject.listens(port)));
  });
}

function closeStopsNothing(subject: Subject): Promise<void> {
  return withService(subject, {}, async (spec) => {
    await subject.engine.close();
    await subject.recreate();
    assert.equal(await subject.engine.lifecycle.runs(spec.id), true);
    const { steps, last } = await settle(subject, spec);
    assert.ok(!steps.includes('start PostgreSQL'), steps.join(', '));
    assert.equal(last.seen.reachable, true);
  });
}
