/** Series of measured values: their buckets, and what each of them is. */
import {
  SERIES_FUNCTIONS,
  SERIES_NAMES,
  TIGER_SERIES,
  type SeriesDetails,
  type SeriesName,
  type SeriesUnit,
} from '@howdah/contract';

const HOUR_SECONDS = 3600;
const DAY_SECONDS = 24 * HOUR_SECONDS;

/**
 * The length of a bucket where a request leaves it out, in seconds: as Tiger Cloud's API describes.
 */
export function bucketFor(spanMs: number): number {
  if (spanMs <= HOUR_SECONDS * 1000) return 60;
  return spanMs <= 30 * DAY_SECONDS * 1000 ? HOUR_SECONDS : DAY_SECONDS;
}

type Column = SeriesName | (typeof TIGER_SERIES)[keyof typeof TIGER_SERIES];

const COLUMNS: Record<Column, { unit: SeriesUnit; description: string }> = {
  cpu_millis: { unit: 'millicores', description: 'CPU that the server uses' },
  cpu_guaranteed_millis: {
    unit: 'millicores',
    description: 'CPU that the size of the service guarantees, as it is now',
  },
  cpu_beyond_millis: { unit: 'millicores', description: 'CPU that it uses beyond its guarantee' },
  cpu_wait_millis: {
    unit: 'thousandths',
    description: 'processes that waited for a processor, in the mean: 1500 are one and a half',
  },
  write_wait_millis: {
    unit: 'thousandths',
    description: 'part of the time in which its writes were held back at its part of the disk',
  },
  memory_bytes: { unit: 'bytes', description: 'memory that the server uses, without caches' },
  memory_limit_bytes: { unit: 'bytes', description: 'memory of the size that it has now' },
  storage_bytes: { unit: 'bytes', description: 'disk that the data of the server uses' },
  connections: { unit: 'connections', description: 'connections of clients' },
  transactions_per_second: { unit: '1/s', description: 'transactions of all databases' },
  lag_bytes: { unit: 'bytes', description: 'WAL that a replica has not replayed yet' },
  lag_seconds: { unit: 'seconds', description: 'how far a replica is behind' },
};

const LABELS = ['node', 'role'];

/** A description of each series. */
export const SERIES_DETAILS: SeriesDetails[] = [
  ...SERIES_NAMES.map((name) => [name, name] as const),
  ...Object.entries(TIGER_SERIES),
].map(([name, column]) => ({
  name,
  ...COLUMNS[column],
  labels: LABELS,
  functions: [...SERIES_FUNCTIONS],
}));
