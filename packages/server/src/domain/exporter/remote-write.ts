/**
 * Samples as a request of Prometheus remote write 1.0: a protocol buffer, in snappy's block format.
 * Sources: prometheus.io/docs/specs/prw/remote_write_spec, the message definitions there;
 * protobuf.dev/programming-guides/encoding; format_description.txt of google/snappy.
 */
import { figuresOf, labelsOf, type ExportedSample } from './figures.ts';

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
