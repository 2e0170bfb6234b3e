/**
 * Samples as a request of OTLP over HTTP, in JSON. Source: opentelemetry.io/docs/specs/otlp, and
 * the definitions of ExportMetricsServiceRequest in open-telemetry/opentelemetry-proto.
 */
import { figuresOf, labelsOf, type ExportedSample } from './figures.ts';

export const OTLP_HEADERS = { 'Content-Type': 'application/json' } as const;

/** One resource for each server: its labels are attributes of the resource and of each point. */
export function otlpRequest(samples: readonly ExportedSample[]): string {
  return JSON.stringify({
    resourceMetrics: samples.map((sample) => {
      const attributes = labelsOf(sample).map(([key, value]) => attribute(key, value));
      return {
        resource: { attributes: [attribute('service.name', 'howdah'), ...attributes] },
        scopeMetrics: [
          {
            scope: { name: 'howdah' },
            metrics: figuresOf(sample).map(({ name, value }) => ({
              name,
              gauge: {
                dataPoints: [
                  // A 64-bit integer is a string in JSON. Ms since the epoch have no fraction.
                  { attributes, timeUnixNano: `${sample.at.getTime()}000000`, asDouble: value },
                ],
              },
            })),
          },
        ],
      };
    }),
  });
}

const attribute = (key: string, value: string) => ({ key, value: { stringValue: value } });
