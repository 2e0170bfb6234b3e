/** Rounds ask for each of thousands of services: no question may be slower with each of them. */
import { expect, test, vi } from 'vitest';
import { createMemoryRecords } from '../conformance/memory-records.ts';
import { createModelEngine } from './index.ts';
import { between } from './random.ts';
import { createMemoryStore } from './state.ts';
import { newSpec } from './subject.testing.ts';

const walks = vi.hoisted(() => ({ count: 0 }));
vi.mock(import('./random.ts'), { spy: true });
vi.mock(import('./state.ts'), async (importOriginal) => {
  const original = await importOriginal();
  const createState: typeof original.createState = (...given) => {
    const state = original.createState(...given);
    const list = () => {
      walks.count += 1;
      return state.list();
    };
    return { ...state, list };
  };
  return { ...original, createState };
});

async function makeFleet() {
  const engine = createModelEngine({
    seed: 'test',
    records: createMemoryRecords({ take: async () => 1 }).store,
    changed: () => undefined,
    policy: { windowMs: 86_400_000, snapshotEveryMs: 60_000, failoverCooldownMs: 60_000 },
    readLagLimit: { bytes: 1, seconds: 1 },
    store: createMemoryStore(),
  });
  const spec = newSpec(1);
  for (let rounds = 0; rounds < 100; rounds += 1)
    if ((await engine.lifecycle.converge(spec, async () => undefined)).outcome === 'settled') break;
  return { engine, id: spec.id };
}

test('a question about one simulated service goes through no others', async () => {
  const { engine, id } = await makeFleet();
  const { observe, backups, storage, lifecycle } = engine;
  walks.count = 0;
  for (const ask of [
    () => observe.warnings(id),
    () => observe.usage(id),
    () => observe.replicas(id),
    () => observe.servers(id),
    () => backups.keep(id, { removes: true, quotaBytes: 1e9 }),
    () => backups.describe(id),
    () => storage.disk?.(),
    () => storage.usedBytes(id),
    () => lifecycle.runs(id),
    () => lifecycle.remove(id, null, async () => undefined),
  ])
    await ask();
  expect(walks.count).toBe(0);
});

test('the disk of the region is not computed service by service', async () => {
  const { engine } = await makeFleet();
  vi.mocked(between).mockClear();
  const usage = await engine.storage.disk?.();
  expect(usage?.freeBytes).toBeLessThan(usage?.totalBytes ?? 0);
  expect(between).not.toHaveBeenCalled();
});
