/** Samples in Prometheus' text format, as a scrape gets them: without timestamps. */
import { Gauge, Registry } from 'prom-client';
import { FIGURE_NAMES, figuresOf, labelsOf, type ExportedSample } from './figures.ts';

/** The content type of {@link expositionOf}. */
export const EXPOSITION_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

/** @param samples the last one of each server */
export async function expositionOf(samples: readonly ExportedSample[]): Promise<string> {
  const register = new Registry();
  const gauges = new Map(
    FIGURE_NAMES.map((name) => [
      name,
      new Gauge({
        name,
        help: 'A figure of a server of a service; docs/monitoring.md of Howdah describes it.',
        labelNames: ['node', 'project_id', 'region', 'role', 'service_id'],
        registers: [register],
      }),
    ]),
  );
  for (const sample of samples)
    for (const { name, value } of figuresOf(sample))
      gauges.get(name)?.set(Object.fromEntries(labelsOf(sample)), value);
  return register.metrics();
}
