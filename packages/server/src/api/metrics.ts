/** Metrics of the control plane in Prometheus' text format. */
import { LIVE_STATUSES } from '@howdah/contract';
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { statusCounts } from '../store/services.ts';
import type { ApiContext, App } from './app.ts';

export function createMetrics(app: App, { store }: ApiContext) {
  const register = new Registry();
  collectDefaultMetrics({ register });
  const requests = new Histogram({
    name: 'howdah_http_request_duration_seconds',
    help: 'Time from a request to the end of its answer, by operation and status.',
    labelNames: ['operation', 'status'],
    buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3],
    registers: [register],
  });
  const services = new Gauge({ name: 'howdah_services', help: 'Services by status.', labelNames: ['status'], registers: [register] });

  app.addHook('onResponse', async (request, reply) => {
    const operation = request.routeOptions.schema?.operationId ?? 'none';
    requests.observe({ operation, status: String(reply.statusCode) }, reply.elapsedTime / 1000);
  });

  return {
    contentType: register.contentType,
    text: async (): Promise<string> => {
      for (const status of LIVE_STATUSES) services.set({ status }, 0);
      for (const { status, count } of await statusCounts(store.db)) services.set({ status }, count);
      return register.metrics();
    },
  };
}
export type Metrics = ReturnType<typeof createMetrics>;
