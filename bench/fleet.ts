/** P10: the cost of a fleet of paused services for readers, for a start, and for the machine. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench } from './lib/bench.ts';
import { ask, call, create, openCloud, untilStatus, type Cloud } from './lib/cloud.ts';
import { idle, summarize, type Summary } from './lib/measure.ts';
import { treeCpuMs } from './lib/processes.ts';
import { bounded } from './lib/table.ts';
import { prepareMachine } from '../packages/server/src/engine/local/host/machine.ts';
import { readOrNull } from '../packages/server/src/lib/processes.ts';
import { insertFleet } from '../packages/server/test/fleet.ts';
import { openMetadata } from '../packages/server/test/metadata.ts';

const COUNTS = {
  services: 10_000,
  operations: 100_000,
  events: 100_000,
  audit: 100_000,
  deliveries: 0,
};
const GETS = 4000;
const AT_A_TIME = 8;
const LISTS = 9;
const RESTARTS = 5;
const CPU_WINDOW_MS = 30_000;

export const fleet: Bench = {
  name: 'fleet',
  title: `P10: ${COUNTS.services} paused services, ${COUNTS.operations} operations`,
  run: async ({ here, say }) => {
    const cloud = await openCloud(here.directory);
    const model = await create(cloud);
    await ask(cloud, 'POST', `/services/${model.id}/stop`);
    await untilStatus(cloud, model.id, 'PAUSED');
    const metadata = await openMetadata(cloud.home);
    const remove = await insertFleet(metadata.db, model.id, COUNTS);
    const listed = await timed(async () => call(cloud, 'GET', '/services'));
    const services: { service_id: string }[] = JSON.parse(listed.result.text);
    const ids = services.map(({ service_id: id }) => id);
    if (ids.length !== COUNTS.services + 1) throw new Error(`${ids.length} services are listed`);
    await idle();
    const p99s = await getP99s(cloud, ids);
    await idle();
    const lists = await repeat(
      LISTS,
      async () => (await timed(async () => call(cloud, 'GET', '/services'))).ms,
    );
    const restarts = await repeat(RESTARTS, async () => {
      await cloud.stop('SIGKILL');
      await idle();
      return (await timed(cloud.up)).ms;
    });
    say(`   idle for ${CPU_WINDOW_MS / 1000} s`);
    await sleep(10_000);
    const cpu = await idlePercent(cloud);
    await remove();
    await metadata.close();
    await cloud.end();
    const row = { goal: 'P10', limit: '' } as const;
    return [
      bounded({
        ...row,
        what: `GET one, ${AT_A_TIME} at a time, p99 of ${GETS}`,
        unit: 'ms',
        ours: p99s,
        bound: { atMost: 20 },
      }),
      bounded({
        ...row,
        what: 'list of all, streamed',
        unit: 'ms',
        ours: lists,
        bound: { atMost: 400 },
      }),
      bounded({
        ...row,
        what: 'kill -9, howdah up until ready',
        unit: 'ms',
        ours: restarts,
        bound: { atMost: 5000 },
      }),
      bounded({
        ...row,
        what: 'idle CPU, control plane and metadata',
        unit: '% of a core',
        ours: cpu,
        bound: { atMost: 2 },
      }),
    ];
  },
};

async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; result: T }> {
  const begun = performance.now();
  const result = await work();
  return { ms: performance.now() - begun, result };
}

/** The first is dropped. */
async function repeat(times: number, take: () => Promise<number>): Promise<Summary> {
  const values: number[] = [];
  for (let n = 0; n < times; n++) values.push(await take());
  return summarize(values.slice(1));
}

async function getP99s(cloud: Cloud, ids: readonly string[]): Promise<Summary> {
  return repeat(5, async () => {
    const latencies: number[] = [];
    let left = GETS;
    const client = async (): Promise<void> => {
      while (left-- > 0) {
        const id = ids[Math.floor(Math.random() * ids.length)] ?? '';
        latencies.push((await timed(async () => call(cloud, 'GET', `/services/${id}`))).ms);
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, client));
    return latencies.toSorted((a, b) => a - b)[Math.floor(latencies.length * 0.99)] ?? Number.NaN;
  });
}

export async function idlePercent(cloud: Cloud): Promise<Summary> {
  const store = Number(await readOrNull((await prepareMachine(cloud.home)).layout.store.pidFile));
  const pids = [cloud.planePid() ?? 0, store];
  const spent = async () =>
    (await Promise.all(pids.map(treeCpuMs))).reduce((sum, ms) => sum + ms, 0);
  const before = await spent();
  await sleep(CPU_WINDOW_MS);
  return summarize([((await spent()) - before) / (CPU_WINDOW_MS / 100)]);
}
