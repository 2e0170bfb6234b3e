/** Samples of what services use, and series made of them. */
import type { SeriesFunction, SeriesName } from '@howdah/contract';
import { sql } from 'kysely';
import type { Db } from './database.ts';

export const KEPT_DAYS = 30;

export type Sample = {
  serviceId: string;
  at: Date;
  cpuMillis: number;
  memoryBytes: number;
  storageBytes: number;
  connections: number;
  transactionsPerSecond: number;
};

export async function insertSamples(db: Db, samples: readonly Sample[]): Promise<void> {
  if (samples.length === 0) return;
  await db
    .insertInto('samples')
    .values(
      samples.map((sample) => ({
        service_id: sample.serviceId,
        at: sample.at,
        cpu_millis: sample.cpuMillis,
        memory_bytes: sample.memoryBytes,
        storage_bytes: sample.storageBytes,
        connections: sample.connections,
        transactions_per_second: sample.transactionsPerSecond,
      })),
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

export async function deleteOldSamples(db: Db): Promise<void> {
  await db
    .deleteFrom('samples')
    .where('at', '<', sql<Date>`now() - ${`${KEPT_DAYS} days`}::interval`)
    .execute();
}

const AGGREGATE: Record<SeriesFunction, (column: ReturnType<typeof sql.ref>) => ReturnType<typeof sql>> = {
  avg: (column) => sql`avg(${column})`,
  min: (column) => sql`min(${column})`,
  max: (column) => sql`max(${column})`,
  sum: (column) => sql`sum(${column})`,
  last: (column) => sql`(array_agg(${column} order by at desc))[1]`,
};

/** A value for every bucket of a span that has samples; buckets begin at whole multiples of their length since `from`. */
export async function readSeries(
  db: Db,
  serviceId: string,
  query: { name: SeriesName; from: Date; to: Date; bucketSeconds: number; fn: SeriesFunction },
): Promise<Map<number, number>> {
  const { rows } = await sql<{ bucket: number; value: number }>`
    select floor(extract(epoch from at - ${query.from}::timestamptz) / ${query.bucketSeconds})::int as bucket,
           ${AGGREGATE[query.fn](sql.ref(query.name))}::float8 as value
    from samples
    where service_id = ${serviceId} and at >= ${query.from} and at < ${query.to}
    group by bucket`.execute(db);
  return new Map(rows.map(({ bucket, value }) => [bucket, value]));
}
