/** Metrics of the control plane in Prometheus' text format. */
import { LIVE_STATUSES } from '@howdah/contract';
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { latestSamples, type Sample } from '../store/samples.ts';
import {
  countServicesByStatus,
  listReplicatedServices,
  listServicesThatMustRun,
} from '../store/service-lists.ts';
import type { ApiContext, App } from './context.ts';

type Figures = Omit<Sample, 'at' | 'lag'>;

export function createMetrics(app: App, { store, region, events }: ApiContext) {
  const register = new Registry();
  collectDefaultMetrics({ register });
  const requests = new Histogram({
    name: 'howdah_http_request_duration_seconds',
    help: 'Time from a request to the end of its answer, by operation and status.',
    labelNames: ['operation', 'status'],
    buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3],
    registers: [register],
  });
  const services = new Gauge({
    name: 'howdah_services',
    help: 'Services by status.',
    labelNames: ['status'],
    registers: [register],
  });
  const streams = new Gauge({
    name: 'howdah_event_streams',
    help: 'Open event streams.',
    registers: [register],
  });

  const up = new Gauge({
    name: 'howdah_service_up',
    help: '1 for a service that accepts connections, 0 for one that should and cannot be reached.',
    labelNames: ['service', 'type'],
    registers: [register],
  });
  const figure = (name: string, help: string, of: (sample: Figures) => number) => ({
    gauge: new Gauge({
      name: `howdah_service_${name}`,
      help,
      labelNames: ['service', 'node'],
      registers: [register],
    }),
    of,
  });
  const figures = [
    figure(
      'cpu_millis',
      'Thousandths of a core that a server of a service uses, of the last minute.',
      ({ cpuMillis }) => cpuMillis,
    ),
    figure(
      'memory_bytes',
      'Memory that a server of a service uses.',
      ({ memoryBytes }) => memoryBytes,
    ),
    figure(
      'storage_bytes',
      'Disk that the data of a server takes.',
      ({ storageBytes }) => storageBytes,
    ),
    figure('connections', 'Sessions of clients on a server.', ({ connections }) => connections),
    figure(
      'transactions_per_second',
      'Commits and rollbacks a second, of the last minute.',
      (sample) => sample.transactionsPerSecond,
    ),
  ];

  const lookAtServices = async (): Promise<void> => {
    for (const gauge of [up, ...figures.map((one) => one.gauge)]) gauge.reset();
    for (const { id, type, up: isUp } of await listServicesThatMustRun(store.db))
      up.set({ service: id, type }, isUp ? 1 : 0);
    for (const sample of await latestSamples(store.db)) {
      const labels = { service: sample.serviceId, node: String(sample.node) };
      for (const { gauge, of } of figures) gauge.set(labels, of(sample));
    }
  };

  const replica = (name: string, help: string) =>
    new Gauge({
      name: `howdah_replica_${name}`,
      help,
      labelNames: ['service', 'node'],
      registers: [register],
    });
  const lagBytes = replica(
    'lag_bytes',
    'What a replica has not replayed; of members of a service, and nodes of a read replica set.',
  );
  const lagSeconds = replica('lag_seconds', 'How old what a replica shows is.');
  const following = replica(
    'following',
    '1 where it can be told how far a replica is behind, else 0.',
  );
  const serving = replica(
    'serving',
    '1 where the endpoint of a read replica set routes to the node, else 0.',
  );

  const lookAtReplicas = async (): Promise<void> => {
    for (const gauge of [lagBytes, lagSeconds, following, serving]) gauge.reset();
    for (const { id, isSet } of await listReplicatedServices(store.db)) {
      for (const state of await region.engine.replicas(id)) {
        const labels = { service: id, node: String(state.node) };
        following.set(labels, state.lag_bytes === null ? 0 : 1);
        if (state.lag_bytes !== null) lagBytes.set(labels, state.lag_bytes);
        if (state.lag_seconds !== null) lagSeconds.set(labels, state.lag_seconds);
        if (isSet) serving.set(labels, state.serving ? 1 : 0);
      }
    }
  };

  app.addHook('onResponse', (request, reply, done) => {
    const operation = request.routeOptions.schema?.operationId ?? 'none';
    requests.observe({ operation, status: String(reply.statusCode) }, reply.elapsedTime / 1000);
    done();
  });

  return {
    contentType: register.contentType,
    text: async (): Promise<string> => {
      for (const status of LIVE_STATUSES) services.set({ status }, 0);
      for (const { status, count } of await countServicesByStatus(store.db))
        services.set({ status }, count);
      streams.set(events.count());
      await lookAtServices();
      await lookAtReplicas();
      return register.metrics();
    },
  };
}
export type Metrics = ReturnType<typeof createMetrics>;
