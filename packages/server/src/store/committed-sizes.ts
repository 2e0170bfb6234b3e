/** The sizes of the services of a region together. */
import { sql } from 'kysely';
import type { ClientConfig } from 'pg';
import type { Committed } from '../domain/service/capacity.ts';
import { inCommandSession } from './command-session.ts';
import type { Db } from './tables.ts';

type Row = Committed & { region_code: string };

/** Paused services count: no start of one is refused. A spare has the size of the next create. */
const COMMITTED = `
  select region_code,
         sum(servers)::int as servers,
         coalesce(sum(cpu_millis * servers), 0)::float8 as cpu_millis,
         coalesce(sum(memory_gbs * servers), 0)::float8 as memory_gbs,
         sum(storage_gb * servers)::float8 as storage_gb
  from (
    select region_code, cpu_millis, memory_gbs, storage_gb,
           case when parent_id is null then replica_count + 1 else nodes end as servers
    from services
    where project_id is not null and deleted_at is null
  ) as sized
  group by region_code`;

/** The doctor has other findings. */
const CONNECT_WITHIN_MS = 3000;

/** By the code of the region; one without services is missing. */
export async function readCommitted(db: Db): Promise<ReadonlyMap<string, Committed>> {
  return byRegion((await sql<Row>`${sql.raw(COMMITTED)}`.execute(db)).rows);
}

/** The same, whether or not the control plane runs. @throws Error: the database does not answer */
export async function readCommittedOf(
  connection: ClientConfig,
): Promise<ReadonlyMap<string, Committed>> {
  const within = { ...connection, connectionTimeoutMillis: CONNECT_WITHIN_MS };
  return inCommandSession(within, 'howdah doctor', async (client) =>
    byRegion((await client.query<Row>(COMMITTED)).rows),
  );
}

const byRegion = (rows: readonly Row[]): ReadonlyMap<string, Committed> =>
  new Map(rows.map(({ region_code: code, ...committed }) => [code, committed]));
