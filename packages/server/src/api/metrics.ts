/** Metrics of the control plane in Prometheus' text format. */
import { LIVE_STATUSES } from '@howdah/contract';
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Regions } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import { latestSamples, type LatestSample } from '../store/samples.ts';
import {
  countServicesByStatus,
  listReplicatedServices,
  listServicesThatMustRun,
} from '../store/service-lists.ts';
import type { ApiContext, App } from './context.ts';

type Gauges = ReturnType<typeof createGauges>;

export function createMetrics(app: App, { store, regions, events, rounds }: ApiContext) {
  const register = new Registry();
  collectDefaultMetrics({ register });
  observeRequests(app, register);
  const gauges = createGauges(register);
  return {
    contentType: register.contentType,
    text: async (): Promise<string> => {
      await countServices(gauges, store);
      gauges.streams.set(events.count());
      showRounds(gauges, rounds);
      await readServices(gauges, store, regions);
      await readReplicas(gauges, store, regions);
      return register.metrics();
    },
  };
}
export type Metrics = ReturnType<typeof createMetrics>;

function observeRequests(app: App, register: Registry): void {
  const requests = new Histogram({
    name: 'howdah_http_request_duration_seconds',
    help: 'Time from a request to the end of its answer, by operation and status.',
    labelNames: ['operation', 'status'],
    buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3],
    registers: [register],
  });
  app.addHook('onResponse', (request, reply, done) => {
    const operation = request.routeOptions.schema?.operationId ?? 'none';
    requests.observe({ operation, status: String(reply.statusCode) }, reply.elapsedTime / 1000);
    done();
  });
}

/** A figure of a server; null: not measured. */
type Figure = (sample: LatestSample) => number | null;

/** The figures of each server, and their parts of a sample. */
const FIGURES: readonly { name: string; help: string; of: Figure }[] = [
  {
    name: 'cpu_millis',
    help: 'Thousandths of a core that a server of a service uses, of the last minute.',
    of: ({ cpuMillis }) => cpuMillis,
  },
  {
    name: 'cpu_guaranteed_millis',
    help: 'Thousandths of a core that the size of a service guarantees its server.',
    of: ({ cpuGuaranteedMillis }) => cpuGuaranteedMillis,
  },
  {
    name: 'cpu_wait_millis',
    help: 'Processes of a server that waited for a processor, in thousandths, of the last minute.',
    of: ({ cpuWaitMillis }) => cpuWaitMillis,
  },
  {
    name: 'write_wait_millis',
    help: 'Thousandths of the last minute in which the writes of a server were held back.',
    of: ({ writeWaitMillis }) => writeWaitMillis,
  },
  {
    name: 'memory_bytes',
    help: 'Memory that a server of a service uses.',
    of: ({ memoryBytes }) => memoryBytes,
  },
  {
    name: 'storage_bytes',
    help: 'Disk space that the data of a server uses.',
    of: ({ storageBytes }) => storageBytes,
  },
  {
    name: 'connections',
    help: 'Sessions of clients on a server.',
    of: ({ connections }) => connections,
  },
  {
    name: 'transactions_per_second',
    help: 'Commits and rollbacks per second, of the last minute.',
    of: ({ transactionsPerSecond }) => transactionsPerSecond,
  },
];

function createGauges(register: Registry) {
  const gauge = <Label extends string>(name: string, help: string, labelNames: Label[]) =>
    new Gauge({ name: `howdah_${name}`, help, labelNames, registers: [register] });
  const replica = (name: string, help: string) =>
    gauge(`replica_${name}`, help, ['service', 'node']);
  return {
    services: gauge('services', 'Services by status.', ['status']),
    streams: gauge('event_streams', 'Open event streams.', []),
    roundSeconds: gauge('round_seconds', 'Duration of the last run of a round.', ['round']),
    roundEnd: gauge(
      'round_end_timestamp_seconds',
      'When the last run of a round ended, in seconds since 1970.',
      ['round'],
    ),
    roundRuns: gauge('round_runs', 'Runs of a round since the start.', ['round']),
    roundFailures: gauge('round_failures', 'Runs of a round that failed.', ['round']),
    up: gauge(
      'service_up',
      '1 for a service that accepts connections, 0 for one that should and cannot be reached.',
      ['service', 'type'],
    ),
    figures: FIGURES.map(({ name, help, of }) => ({
      gauge: gauge(`service_${name}`, help, ['service', 'node']),
      of,
    })),
    lagBytes: replica(
      'lag_bytes',
      'WAL that a replica has not replayed; of members of a service, ' +
        'and nodes of a read replica set.',
    ),
    lagSeconds: replica('lag_seconds', 'Age of the data that a replica shows.'),
    following: replica('following', '1 where it is known how far a replica is behind, else 0.'),
    serving: replica(
      'serving',
      '1 where the endpoint of a read replica set routes to the node, else 0.',
    ),
  };
}

function showRounds(
  { roundSeconds, roundEnd, roundRuns, roundFailures }: Gauges,
  rounds: ApiContext['rounds'],
): void {
  for (const { name: round, runs, failures, lastMs, lastEnd } of rounds.figures()) {
    roundRuns.set({ round }, runs);
    roundFailures.set({ round }, failures);
    if (lastMs !== null) roundSeconds.set({ round }, lastMs / 1000);
    if (lastEnd !== null) roundEnd.set({ round }, lastEnd.getTime() / 1000);
  }
}

async function countServices({ services }: Gauges, store: Store): Promise<void> {
  for (const status of LIVE_STATUSES) services.set({ status }, 0);
  for (const { status, count } of await countServicesByStatus(store.db))
    services.set({ status }, count);
}

async function readServices(
  { up, figures }: Gauges,
  store: Store,
  regions: Regions,
): Promise<void> {
  for (const gauge of [up, ...figures.map((one) => one.gauge)]) gauge.reset();
  for (const { code } of regions.all)
    for (const { id, type, up: isUp } of await listServicesThatMustRun(store.db, code))
      up.set({ service: id, type }, isUp ? 1 : 0);
  for (const sample of await latestSamples(store.db)) {
    const labels = { service: sample.serviceId, node: String(sample.node) };
    for (const { gauge, of } of figures) {
      const figure = of(sample);
      if (figure !== null) gauge.set(labels, figure);
    }
  }
}

async function readReplicas(gauges: Gauges, store: Store, regions: Regions): Promise<void> {
  const { lagBytes, lagSeconds, following, serving } = gauges;
  for (const gauge of [lagBytes, lagSeconds, following, serving]) gauge.reset();
  for (const { code, engine } of regions.all) {
    for (const { id, isSet } of await listReplicatedServices(store.db, code)) {
      for (const state of await engine.observe.replicas(id)) {
        const labels = { service: id, node: String(state.node) };
        following.set(labels, state.lag_bytes === null ? 0 : 1);
        if (state.lag_bytes !== null) lagBytes.set(labels, state.lag_bytes);
        if (state.lag_seconds !== null) lagSeconds.set(labels, state.lag_seconds);
        if (isSet) serving.set(labels, state.serving ? 1 : 0);
      }
    }
  }
}
