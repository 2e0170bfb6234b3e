/** The SQL of kept server logs (docs/decisions/0061-kept-logs.md). */
import { sql } from 'kysely';
import type { KeptLogs, KeptPart } from '../engine/records.ts';
import type { Store } from './database.ts';
import type { Db } from './tables.ts';

const KEPT_DAYS = 30;
const PRUNE_BATCH = 1000;

/** Kept of each service, with the cost of a row: many short parts are bounded too. */
export const KEPT_BYTES = 1_000_000;
const ROW_BYTES = 400;

/** @param region the code of the region whose logs these are */
export function createKeptLogs({ db }: Pick<Store, 'db'>, region: string): KeptLogs {
  return {
    list: (serviceId, server) => listParts(db, region, serviceId, server),
    read: async (ids) => {
      if (ids.length === 0) return new Map();
      const rows = await db
        .selectFrom('kept_logs')
        .select(['id', 'lines'])
        .where('id', 'in', [...ids])
        .execute();
      return new Map(rows.map(({ id, lines }) => [id, lines]));
    },
    add: (serviceId, server, { pod, from, until, lines }) =>
      db.transaction().execute(async (tx) => {
        // Two control planes may add the same lines at once. And the removal of a service locks it
        // before its parts.
        await sql`select from services where id = ${serviceId} for no key update`.execute(tx);
        const { numAffectedRows } = await sql`
          insert into kept_logs (service_id, region_code, server, pod, from_ns, until_ns, lines)
          select id, ${region}, ${server}::integer, ${pod}, ${from}::bigint, ${until}::bigint,
                 ${lines}::bytea
          from services where id = ${serviceId} and not exists (
            select from kept_logs k where k.service_id = ${serviceId} and k.region_code = ${region}
              and k.server = ${server}::integer and k.pod = ${pod}
              and k.until_ns >= ${from}::bigint)`.execute(tx);
        if (numAffectedRows !== 1n) return false;
        await removeBeyond(tx, serviceId);
        return true;
      }),
  };
}

async function listParts(
  db: Db,
  region: string,
  serviceId: string,
  server: number,
): Promise<KeptPart[]> {
  const rows = await db
    .selectFrom('kept_logs')
    .select(['id', 'pod', 'from_ns', 'until_ns'])
    .where('service_id', '=', serviceId)
    .where('region_code', '=', region)
    .where('server', '=', server)
    .orderBy('id', 'desc')
    .execute();
  return rows.map(({ id, pod, from_ns: from, until_ns: until }) => ({ id, pod, from, until }));
}

async function removeBeyond(db: Db, serviceId: string): Promise<void> {
  await sql`
    delete from kept_logs where id in (
      select id from (
        select id, sum(length(lines) + ${ROW_BYTES}::integer) over (order by id desc) as bytes
        from kept_logs where service_id = ${serviceId}
      ) as counted where bytes > ${KEPT_BYTES}::integer)`.execute(db);
}

/** Removes old parts. @returns whether there may be more */
export async function pruneKeptLogs(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from kept_logs where ctid = any (array(
      select ctid from kept_logs where kept < now() - ${`${KEPT_DAYS} days`}::interval
      limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}
