/**
 * Decodes a request of Prometheus remote write with libraries that Howdah does not use: protobufjs,
 * with the message definitions of the specification, and snappyjs.
 */
import protobuf from 'protobufjs';
import { uncompress } from 'snappyjs';

const { root } = protobuf.parse(`
  syntax = "proto3";
  message WriteRequest { repeated TimeSeries timeseries = 1; }
  message TimeSeries { repeated Label labels = 1; repeated Sample samples = 2; }
  message Label { string name = 1; string value = 2; }
  message Sample { double value = 1; int64 timestamp = 2; }`);
const WriteRequest = root.lookupType('WriteRequest');

export type Series = {
  labels: Record<string, string>;
  samples: { value: number; timestamp: number }[];
};

type Decoded = {
  timeseries: {
    labels: { name: string; value: string }[];
    samples: { value: number; timestamp: number }[];
  }[];
};

export function decodeRemoteWrite(body: Buffer): Series[] {
  const message = WriteRequest.decode(uncompress(new Uint8Array(body)));
  const options = { longs: Number, arrays: true, defaults: true };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the definitions above
  const { timeseries } = WriteRequest.toObject(message, options) as Decoded;
  return timeseries.map(({ labels, samples }) => ({
    labels: Object.fromEntries(labels.map(({ name, value }) => [name, value])),
    samples,
  }));
}
