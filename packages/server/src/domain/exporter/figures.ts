/** The figures of a sample by the names that receivers of metrics see, with their labels. */
import { TIGER_SERIES } from '@howdah/contract';

/** A sample of one server, with what is known of its service. */
export type ExportedSample = {
  projectId: string;
  /** A node of a read replica set has the id of the set. */
  serviceId: string;
  region: string;
  node: number;
  role: 'primary' | 'replica';
  at: Date;
  cpu_millis: number;
  memory_bytes: number;
  storage_bytes: number;
  connections: number;
  transactions_per_second: number;
  lag_bytes: number | null;
  lag_seconds: number | null;
  /** null: not measured. */
  cpu_wait_millis: number | null;
  write_wait_millis: number | null;
  cpu_guaranteed_millis: number;
  /** The limit of the size; null: the shared size has none. */
  memory_limit_bytes: number | null;
};

export type Figure = { name: string; value: number };

type Column = (typeof TIGER_SERIES)[keyof typeof TIGER_SERIES] | keyof typeof OWN_NAMES;

/** Howdah's names, as `/metrics` has them (docs/monitoring.md). */
const OWN_NAMES = {
  cpu_millis: 'howdah_service_cpu_millis',
  cpu_guaranteed_millis: 'howdah_service_cpu_guaranteed_millis',
  cpu_wait_millis: 'howdah_service_cpu_wait_millis',
  write_wait_millis: 'howdah_service_write_wait_millis',
  memory_bytes: 'howdah_service_memory_bytes',
  storage_bytes: 'howdah_service_storage_bytes',
  connections: 'howdah_service_connections',
  transactions_per_second: 'howdah_service_transactions_per_second',
  lag_bytes: 'howdah_replica_lag_bytes',
  lag_seconds: 'howdah_replica_lag_seconds',
} as const;

const NAMES: readonly (readonly [name: string, column: Column])[] = [
  ...Object.entries(TIGER_SERIES),
  ...columnsOf(OWN_NAMES).map((column) => [OWN_NAMES[column], column] as const),
];

function columnsOf<Names extends object>(names: Names): (keyof Names)[] {
  return Object.keys(names).filter((name): name is keyof Names & string => name in names);
}

/** All names of figures, in the order of {@link figuresOf}. */
export const FIGURE_NAMES: readonly string[] = NAMES.map(([name]) => name);

/** The figures that a sample has. */
export function figuresOf(sample: ExportedSample): Figure[] {
  return NAMES.flatMap(([name, column]) => {
    const value = sample[column];
    return value === null ? [] : [{ name, value }];
  });
}

/** The labels of a sample, sorted by their names, as remote write requires. */
export function labelsOf(sample: ExportedSample): [name: string, value: string][] {
  return [
    ['node', String(sample.node)],
    ['project_id', sample.projectId],
    ['region', sample.region],
    ['role', sample.role],
    ['service_id', sample.serviceId],
  ];
}
