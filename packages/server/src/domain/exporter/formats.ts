/**
 * Samples as a request of OTLP over HTTP, in JSON. Source: opentelemetry.io/docs/specs/otlp, and
 * the definitions of ExportMetricsServiceRequest in open-telemetry/opentelemetry-proto.
 */
import { Gauge, Registry } from 'prom-client';
import { figuresOf, labelsOf, type ExportedSample, FIGURE_NAMES } from './figures.ts';

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

// Samples as a request of Prometheus remote write 1.0: a protocol buffer, in snappy's block format.
// Sources: prometheus.io/docs/specs/prw/remote_write_spec, the message definitions there;
// protobuf.dev/programming-guides/encoding; format_description.txt of google/snappy.

export const REMOTE_WRITE_HEADERS = {
  'Content-Type': 'application/x-protobuf',
  'Content-Encoding': 'snappy',
  'X-Prometheus-Remote-Write-Version': '0.1.0',
} as const;

export function remoteWriteRequest(samples: readonly ExportedSample[]): Buffer {
  const series = samples.flatMap((sample) =>
    figuresOf(sample).map(({ name, value }) => timeSeries(name, sample, value)),
  );
  // WriteRequest: repeated TimeSeries timeseries = 1
  return snappy(Buffer.concat(series.map((one) => field(1, one))));
}

/** TimeSeries: repeated Label labels = 1, repeated Sample samples = 2 */
function timeSeries(name: string, sample: ExportedSample, value: number): Buffer {
  const labels = [['__name__', name] as const, ...labelsOf(sample)];
  return Buffer.concat([
    ...labels.map(([label, text]) => field(1, labelMessage(label, text))),
    field(2, sampleMessage(value, sample.at)),
  ]);
}

/** Label: string name = 1, string value = 2 */
const labelMessage = (name: string, value: string): Buffer =>
  Buffer.concat([field(1, Buffer.from(name)), field(2, Buffer.from(value))]);

/** Sample: double value = 1, int64 timestamp = 2, in ms since the epoch */
function sampleMessage(value: number, at: Date): Buffer {
  const double = Buffer.alloc(9);
  double.writeUInt8((1 << 3) | FIXED_64, 0);
  double.writeDoubleLE(value, 1);
  return Buffer.concat([double, varint((2 << 3) | VARINT), varint(at.getTime())]);
}

/** The wire types of protocol buffers. */
const [VARINT, FIXED_64, LENGTH_DELIMITED] = [0, 1, 2];

const field = (number: number, content: Buffer): Buffer =>
  Buffer.concat([varint((number << 3) | LENGTH_DELIMITED), varint(content.length), content]);

/** @param value whole, 0 or more, below 2^53 */
function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]);
}

/** The longest literal whose length is written in two bytes. */
const LITERAL_BYTES = 65_536;
/** The tag of such a literal: type 0, and 61 for a length in two bytes. */
const LITERAL_TAG = 61 << 2;

/**
 * Snappy's block format without compression, which every decoder reads: the length, then literals.
 * A request has some kilobytes, once a minute; compression would need a library.
 */
function snappy(content: Buffer): Buffer {
  const parts = [varint(content.length)];
  for (let at = 0; at < content.length; at += LITERAL_BYTES) {
    const literal = content.subarray(at, at + LITERAL_BYTES);
    const tag = Buffer.alloc(3);
    tag.writeUInt8(LITERAL_TAG, 0);
    tag.writeUInt16LE(literal.length - 1, 1);
    parts.push(tag, literal);
  }
  return Buffer.concat(parts);
}

// Samples in Prometheus' text format, as a scrape gets them: without timestamps.

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

// Headers that a user adds to the requests of an exporter.

/** RFC 9110, 5.6.2: the characters of a header's name. */
const NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/;
/** Visible ASCII and spaces: what every receiver reads alike. */
const VALUE = /^[\x20-\x7e]*$/;
/** Those that the request has by itself, and those that would change how it is read. */
const RESERVED = [
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'user-agent',
];

/** Why headers cannot be sent; null: they can. */
export function headersProblem(headers: Readonly<Record<string, string>>): string | null {
  const names = Object.keys(headers);
  const misshapen = names.find((name) => !NAME.test(name));
  if (misshapen !== undefined)
    return `found the name ${JSON.stringify(misshapen.slice(0, 64))}, which no header can have`;
  const reserved = names.find((name) => RESERVED.includes(name.toLowerCase()));
  if (reserved !== undefined) return `found ${reserved}, which Howdah sets itself`;
  if (new Set(names.map((name) => name.toLowerCase())).size < names.length)
    return 'found a name twice, in different spellings';
  const bad = names.find((name) => !VALUE.test(headers[name] ?? ''));
  return bad === undefined
    ? null
    : `${bad}: found a character that is no visible ASCII; encode the value`;
}
