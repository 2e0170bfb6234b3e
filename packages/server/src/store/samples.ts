/** Samples of the resources that services use, and series made of them. */
import { SHARED_CPU_MILLIS, type SeriesFunction, type SeriesName } from '@howdah/contract';
import { sql } from 'kysely';
import type { Db } from './tables.ts';

const KEPT_DAYS = 30;
const PRUNE_BATCH = 1000;

export type Sample = {
  serviceId: string;
  /** The number of the member or node. */
  node: number;
  at: Date;
  cpuMillis: number;
  memoryBytes: number;
  storageBytes: number;
  connections: number;
  transactionsPerSecond: number;
  lag: { bytes: number; seconds: number } | null;
  /** As `waits` of the engine's usage has them; null: not measured. */
  cpuWaitMillis: number | null;
  writeWaitMillis: number | null;
};

/** A sample as figures, with the guarantee of the size that the service has now. */
export type LatestSample = Omit<Sample, 'at' | 'lag'> & { cpuGuaranteedMillis: number };

export async function insertSamples(db: Db, samples: readonly Sample[]): Promise<void> {
  if (samples.length === 0) return;
  await db
    .insertInto('samples')
    .values(
      samples.map((sample) => ({
        service_id: sample.serviceId,
        node: sample.node,
        at: sample.at,
        cpu_millis: sample.cpuMillis,
        memory_bytes: sample.memoryBytes,
        storage_bytes: sample.storageBytes,
        connections: sample.connections,
        transactions_per_second: sample.transactionsPerSecond,
        lag_bytes: sample.lag?.bytes ?? null,
        lag_seconds: sample.lag?.seconds ?? null,
        cpu_wait_millis: sample.cpuWaitMillis,
        write_wait_millis: sample.writeWaitMillis,
      })),
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/**
 * The last sample of each server of running services, unless it is older than
 * two rounds of the sampler.
 */
export async function latestSamples(db: Db): Promise<LatestSample[]> {
  const { rows } = await sql<LatestSample>`
    select distinct on (s.service_id, s.node)
           s.service_id as "serviceId", s.node, s.cpu_millis as "cpuMillis",
           s.memory_bytes::float8 as "memoryBytes",
           s.storage_bytes::float8 as "storageBytes", s.connections,
           s.transactions_per_second as "transactionsPerSecond",
           s.cpu_wait_millis as "cpuWaitMillis", s.write_wait_millis as "writeWaitMillis",
           coalesce(v.cpu_millis, ${sql.lit(SHARED_CPU_MILLIS)}) as "cpuGuaranteedMillis"
    from samples s join services v on v.id = s.service_id
    where s.at between now() - interval '150 seconds' and now() + interval '150 seconds'
      and v.status = 'READY' and v.project_id is not null and v.deleted_at is null
    order by s.service_id, s.node, s.at desc`.execute(db);
  return rows;
}

/** Removes old samples. @returns whether there may be more */
export async function pruneSamples(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from samples where ctid = any (array(
      select ctid from samples where at < now() - ${`${KEPT_DAYS} days`}::interval
        limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}

const percentile = (part: number) => sql`percentile_cont(${part}) within group (order by value)`;

/** A counter that decreases has begun again at zero. */
const INCREASE = sql`sum(case when change < 0 then value else change end)`;

/** Combines `value`, and its `change` since the sample before, in a bucket of some seconds. */
const AGGREGATE: Record<SeriesFunction, (bucketSeconds: number) => ReturnType<typeof sql>> = {
  avg: () => sql`avg(value)`,
  min: () => sql`min(value)`,
  max: () => sql`max(value)`,
  sum: () => sql`sum(value)`,
  last: () => sql`(array_agg(value order by at desc))[1]`,
  min_total: () => sql`min(value)`,
  max_total: () => sql`max(value)`,
  count: () => sql`nullif(count(value), 0)`,
  p50: () => percentile(0.5),
  p90: () => percentile(0.9),
  p99: () => percentile(0.99),
  increase: () => INCREASE,
  rate: (seconds) => sql`${INCREASE} / ${seconds}::float8`,
};

/** CPU that the size of a service guarantees. */
const GUARANTEED = sql`(select coalesce(cpu_millis, ${sql.lit(SHARED_CPU_MILLIS)})
  from services where id = service_id)`;

/** Figures of the size that a service has now, which are no samples. */
const OF_SIZE = {
  cpu_guaranteed_millis: GUARANTEED,
  cpu_beyond_millis: sql`greatest(0, cpu_millis - ${GUARANTEED})`,
  memory_limit_bytes: sql`(
    select memory_gbs * 1073741824::float8 from services where id = service_id)`,
};
export type SeriesColumn = SeriesName | keyof typeof OF_SIZE;

function isOfSize(name: SeriesColumn): name is keyof typeof OF_SIZE {
  return Object.hasOwn(OF_SIZE, name);
}

/** The servers of a service that have samples in a span. */
export async function sampledNodes(
  db: Db,
  serviceId: string,
  { from, to }: Pick<SeriesQuery, 'from' | 'to'>,
): Promise<number[]> {
  const rows = await db
    .selectFrom('samples')
    .select('node')
    .distinct()
    .where('service_id', '=', serviceId)
    .where('at', '>=', from)
    .where('at', '<', to)
    .orderBy('node')
    .execute();
  return rows.map(({ node }) => node);
}

export type SeriesQuery = {
  name: SeriesColumn;
  from: Date;
  to: Date;
  bucketSeconds: number;
  fn: SeriesFunction;
  nodes: readonly number[];
  /** Whether to add up the values of the nodes at each moment, as {@link TOTAL_NODE}. */
  isTotal: boolean;
};

/** The node number of values that are added up over all nodes of a service. */
export const TOTAL_NODE = 0;

/**
 * For each node, a value for every bucket of a span that has samples; buckets begin at whole
 * multiples of their length since `from`.
 */
export async function readSeries(
  db: Db,
  serviceId: string,
  query: SeriesQuery,
): Promise<Map<number, Map<number, number | null>>> {
  const { name, from, to, bucketSeconds, nodes, isTotal } = query;
  const column = isOfSize(name) ? OF_SIZE[name] : sql.ref(name);
  const { rows } = await sql<{ node: number; bucket: number; value: number | null }>`
    select node, bucket, (${AGGREGATE[query.fn](bucketSeconds)})::float8 as value
    from (
      select node, at, value, value - lag(value) over (partition by node order by at) as change,
             floor(extract(epoch from at - ${from}::timestamptz) / ${bucketSeconds})::int as bucket
      from (
        select ${isTotal ? sql.lit(TOTAL_NODE) : sql.ref('node')} as node, at,
          ${isTotal ? sql`sum(${column}::float8)` : sql`${column}::float8`} as value
        from samples
        where service_id = ${serviceId} and at >= ${from} and at < ${to}
          and node = any(${[...nodes]}::int[])
        ${isTotal ? sql`group by at` : sql``}
      ) as taken
    ) as changing
    group by node, bucket order by node`.execute(db);
  const series = new Map<number, Map<number, number | null>>();
  for (const { node, bucket, value } of rows)
    series.set(node, (series.get(node) ?? new Map<number, number | null>()).set(bucket, value));
  return series;
}
