import { describe, expect, test } from 'vitest';
import { createMemoryRecords } from '../conformance/memory-records.ts';
import { EngineUnavailable, type Verdict } from '../engine.ts';
import type { ServiceSpec } from '../spec.ts';
import { createModelEngine, NO_POSTGRESQL, type ModelEngine } from './index.ts';
import { createMemoryStore, type ModelStore } from './state.ts';
import { newSpec } from './subject.testing.ts';

const START_MS = Date.parse('2026-01-01T00:00:00Z');
const MINUTE_MS = 60_000;

function makeEngine(store: ModelStore = createMemoryStore()) {
  const records = createMemoryRecords({ take: async () => 1 });
  const changed: string[] = [];
  const engine = createModelEngine({
    seed: 'test',
    records: records.store,
    changed: (id) => changed.push(id),
    policy: { windowMs: 86_400_000, snapshotEveryMs: MINUTE_MS, failoverCooldownMs: MINUTE_MS },
    readLagLimit: { bytes: 1, seconds: 1 },
    store,
    realMs: () => START_MS,
  });
  return { engine, records, changed, store };
}

const step = (engine: ModelEngine, spec: ServiceSpec): Promise<Verdict> =>
  engine.lifecycle.converge(spec, async () => undefined);

async function settle(engine: ModelEngine, spec: ServiceSpec): Promise<string[]> {
  const steps: string[] = [];
  for (let rounds = 0; rounds < 100; rounds += 1) {
    const verdict = await step(engine, spec);
    if (verdict.did !== null) steps.push(verdict.did);
    if (verdict.outcome === 'failed') throw new Error(verdict.reason);
    if (verdict.outcome === 'settled') return steps;
  }
  throw new Error(`not settled after ${steps.join(', ')}`);
}

const replicated = (spec: ServiceSpec): ServiceSpec => ({
  ...spec,
  ha: {
    replicas: 1,
    sync: 1,
    switchover: false,
    drill: null,
  },
});

describe('a script', () => {
  test('delays a fork by twenty minutes of its clock', async () => {
    const { engine, changed } = makeEngine();
    const spec = newSpec(1);
    await settle(engine, spec);
    await engine.simulation.setScript({ clock: 'manual', delays_ms: { fork: 20 * MINUTE_MS } });
    const origin = { parent: spec.id, strategy: 'NOW', targetTime: null } as const;
    const fork = { ...newSpec(2), origin };
    await engine.simulation.advance(19 * MINUTE_MS);
    const first = await step(engine, fork);
    expect(first).toMatchObject({
      did: null,
      outcome: 'again',
      detail: 'simulated delay: 1200 s left',
    });
    await engine.simulation.advance(19 * MINUTE_MS);
    expect(await step(engine, fork)).toMatchObject({ did: null, outcome: 'again' });
    expect(changed).not.toContain(fork.id);
    await engine.simulation.advance(MINUTE_MS);
    expect(changed).toContain(fork.id);
    expect(await step(engine, fork)).toMatchObject({ did: 'clone parent' });
    expect(await settle(engine, fork)).toEqual(['start PostgreSQL', 'set password']);
  });

  test('has the third create fail until another script is set', async () => {
    const { engine } = makeEngine();
    await engine.simulation.setScript({ failures: [{ on: 'create', nth: 3, reason: 'no room' }] });
    await settle(engine, newSpec(1));
    await settle(engine, newSpec(2));
    const failed = { did: 'clone template', outcome: 'failed', reason: 'clone template: no room' };
    expect(await step(engine, newSpec(3))).toMatchObject(failed);
    expect(await step(engine, newSpec(3))).toMatchObject(failed);
    await settle(engine, newSpec(4));
    await engine.simulation.setScript({});
    expect(await settle(engine, newSpec(3))).toContain('clone template');
  });

  test('has a failover happen now', async () => {
    const { engine, records, changed } = makeEngine();
    const spec = replicated(newSpec(1));
    records.add(spec.id, 0);
    await settle(engine, spec);
    await engine.simulation.setScript({ events: [{ service_id: spec.id, event: 'kill' }] });
    expect(records.primary(spec.id)).toBe(1);
    expect(records.ended).toMatchObject([{ id: spec.id, why: null }]);
    expect(changed).toContain(spec.id);
    // The spec was read before the failover: the engine knows better.
    expect(await settle(engine, spec)).toEqual([
      'clone primary (member 0)',
      'start PostgreSQL (member 0)',
    ]);
  });

  test('delays a failover, which the reconciler completes', async () => {
    const { engine, records } = makeEngine();
    const spec = replicated(newSpec(1));
    records.add(spec.id, 0);
    await settle(engine, spec);
    await engine.simulation.setScript({
      clock: 'manual',
      delays_ms: { failover: MINUTE_MS },
      events: [{ service_id: spec.id, event: 'kill', after_ms: 5000 }],
    });
    await engine.simulation.advance(4999);
    expect(records.begun).toEqual([]);
    await engine.simulation.advance(1);
    expect(records.begun).toEqual([spec.id]);
    expect(await step(engine, spec)).toMatchObject({
      did: null,
      outcome: 'again',
      seen: { reachable: false },
    });
    await engine.simulation.advance(MINUTE_MS);
    expect(await step(engine, spec)).toMatchObject({ did: 'fail over' });
    expect(records.primary(spec.id)).toBe(1);
  });

  test('that is wrong changes nothing', async () => {
    const { engine } = makeEngine();
    await engine.simulation.setScript({ delays_ms: { create: 5 } });
    await expect(engine.simulation.setScript({ delays_ms: { create: 'long' } })).rejects.toThrow(
      'script.delays_ms.create',
    );
    expect(await engine.simulation.script()).toEqual({ delays_ms: { create: 5 } });
  });
});

test('an engine on the same store continues clock, script, delays and events', async () => {
  const { engine, store } = makeEngine();
  const spec = newSpec(1);
  await settle(engine, spec);
  await engine.simulation.setScript({
    clock: 'manual',
    delays_ms: { stop: MINUTE_MS },
    failures: [{ on: 'create', nth: 2, reason: 'second' }],
    events: [{ service_id: spec.id, event: 'write', rows: 7, after_ms: 90_000 }],
  });
  await settle(engine, newSpec(2));
  await step(engine, { ...spec, power: 'paused' });
  await engine.simulation.advance(59_000);
  await engine.close();

  const { engine: next, changed } = makeEngine(store);
  expect(await next.simulation.nowMs()).toBe(START_MS + 59_000);
  expect(await step(next, newSpec(3))).toMatchObject({ reason: 'clone template: second' });
  expect(await step(next, { ...spec, power: 'paused' })).toMatchObject({ outcome: 'again' });
  expect(await next.lifecycle.runs(spec.id)).toBe(true);
  await next.simulation.advance(1000);
  expect(changed).toEqual([spec.id]);
  await next.simulation.advance(MINUTE_MS);
  expect(await next.simulation.countRows(spec.id)).toBe(7);
  expect(await step(next, { ...spec, power: 'paused' })).toMatchObject({ did: 'stop PostgreSQL' });
});

test('a statement is answered that there is no PostgreSQL', async () => {
  const { engine } = makeEngine();
  await settle(engine, newSpec(1));
  const statement = { sql: 'select 1', parameters: [], maxRows: 1, timeoutMs: 1 };
  const answer = engine.sql.query('s1', null, statement);
  await expect(answer).rejects.toThrow(EngineUnavailable);
  await expect(answer).rejects.toThrow(NO_POSTGRESQL);
});

test('the same calls have the same results', async () => {
  const play = async () => {
    const { engine, records } = makeEngine();
    await engine.simulation.setScript({ clock: 'manual', delays_ms: { start: [1, 1000] } });
    const spec = replicated(newSpec(1));
    records.add(spec.id, 0);
    const seen: unknown[] = [];
    for (let round = 0; round < 40; round += 1) {
      seen.push(await step(engine, spec));
      await engine.simulation.advance(100);
    }
    const { signal } = new AbortController();
    const query = { sinceMs: null, untilMs: null, cursor: null, search: [], severities: [] };
    const logs = await engine.observe.logs(spec.id, 1, { ...query, limit: 100 }, signal);
    return { seen, logs, usage: await engine.observe.usage(spec.id) };
  };
  expect(await play()).toEqual(await play());
});

test('a running clock is ahead by what it was advanced, also after a restart', async () => {
  const { engine, store } = makeEngine();
  await engine.simulation.advance(MINUTE_MS);
  await engine.close();
  const { engine: next } = makeEngine(store);
  expect(await next.simulation.nowMs()).toBe(START_MS + MINUTE_MS);
});
