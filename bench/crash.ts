/**
 * G15: the control plane is killed while clients work; their queries go on, and the next control
 * plane takes the services over.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import type { Bench } from './lib/bench.ts';
import {
  ask,
  connectOverTls,
  create,
  openCloud,
  openMetadata,
  untilStatus,
  type Cloud,
  type Service,
} from './lib/cloud.ts';
import {
  idle,
  interleave,
  measured,
  partOf,
  stopwatch,
  valuesOf,
  type Sample,
} from './lib/measure.ts';
import { bounded } from './lib/table.ts';

const SERVICES = 20;
/** For how long clients work while there is no control plane. */
const DEAD_MS = 2000;
/** A pause between the queries of a client: the load must show failures, not fill the machine. */
const THINK_MS = 10;

export const crash: Bench = {
  name: 'crash',
  title: `G15: kill -9 of the control plane under load on ${SERVICES} services`,
  run: async ({ here, rounds }) => {
    const cloud = await openCloud(here.directory);
    const services: Service[] = [];
    for (let count = 0; count < SERVICES; count++) services.push(await create(cloud));
    const spare = services.pop();
    if (spare === undefined) throw new Error('no services');
    const load = await startLoad(cloud, services);
    const takenOver = measured(() => killAndReturn(cloud, spare));
    await interleave(rounds, [takenOver]);
    const { queries, failures } = await load.end();
    await cloud.end();
    const part = (name: string) => `${name} ${partOf(takenOver, name).median.toFixed(0)}`;
    return [
      bounded({
        goal: 'G15',
        what:
          `failed queries of ${queries} on ${services.length} services while the control ` +
          `plane was killed ${rounds} times`,
        unit: 'queries',
        ours: { median: failures, min: failures, max: failures, n: 1 },
        bound: { atMost: 0 },
        limit: 'servers are detached and log to files: nothing ties them to the control plane',
      }),
      bounded({
        goal: 'G15',
        what: `start of the next control plane → all ${SERVICES} taken over and one stopped`,
        unit: 'ms',
        ours: valuesOf(takenOver),
        bound: { atMost: 2000 },
        limit: `ms: ${['serving', 'all looked at', 'a stop done'].map(part).join(', ')}`,
      }),
    ];
  },
};

async function killAndReturn(cloud: Cloud, service: Service): Promise<Sample> {
  await cloud.stop('SIGKILL');
  await sleep(DEAD_MS);
  await idle();
  const watch = stopwatch();
  await cloud.up();
  watch.lap('serving');
  const metadata = await openMetadata(cloud);
  for (;;) {
    // Looked at and settled: no lease, and the next reconciliation is far away.
    const { rowCount } = await metadata.query(
      "select from services where status <> 'READY' or lease_token is not null " +
        "or due_at < now() + interval '1 minute'",
    );
    if (rowCount === 0) break;
    await sleep(5);
  }
  watch.lap('all looked at');
  await ask(cloud, 'POST', `/services/${service.id}/stop`);
  await untilStatus(cloud, service.id, 'PAUSED');
  watch.lap('a stop done');
  const sample = watch.sample();
  await metadata.end();
  await ask(cloud, 'POST', `/services/${service.id}/start`);
  await untilStatus(cloud, service.id, 'READY');
  return sample;
}

/** A client on each service that writes and reads without end. */
async function startLoad(cloud: Cloud, services: readonly Service[]) {
  const ending = new AbortController();
  let queries = 0;
  let failures = 0;
  const work = async (client: Client): Promise<void> => {
    await client.query('create table work (n int)');
    while (!ending.signal.aborted) {
      try {
        await client.query('insert into work values ($1)', [queries]);
        await client.query('select max(n) from work');
        queries += 2;
      } catch (error) {
        failures++;
        process.stderr.write(`a query failed: ${String(error)}\n`);
        await sleep(100);
      }
      await sleep(THINK_MS);
    }
    await client.end();
  };
  const clients = await Promise.all(
    services.map(({ port, password }) => connectOverTls(cloud.ca, port, password)),
  );
  const working = clients.map(work);
  return {
    end: async () => {
      ending.abort();
      await Promise.all(working);
      return { queries, failures };
    },
  };
}
