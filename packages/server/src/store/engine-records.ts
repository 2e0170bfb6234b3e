/**
 * Engines record the primary of a service with replicas here, and the ports of servers behind a
 * gateway. Only engines read these tables, the integrity check, and the labels of series.
 */
import { sql } from 'kysely';
import { takeUsablePort } from '../engine/spec.ts';
import type { ClusterRecord, ServerPort } from '../engine/records.ts';
import type { Region } from '../engine/regions.ts';
import { createPortLedger } from './regions.ts';
import type { Db, Tx } from './tables.ts';

/** In SQL: the servers of `services s` that have a port, as JSON. */
export const SERVERS = `coalesce((
  select json_agg(json_build_object('n', p.server, 'port', p.port) order by p.server)
  from server_ports p where p.service_id = s.id), '[]')`;
/** In SQL: the recorded primary of `services s`. */
export const PRIMARY = `coalesce((select r.server from recorded_primaries r
  where r.service_id = s.id), 0)`;

/** The recorded placement of a service at one moment; null: the service is gone. */
export async function readRecord(db: Db, id: string): Promise<ClusterRecord | null> {
  const { rows } = await sql<ClusterRecord>`
    select ${sql.raw(PRIMARY)} as primary, ${sql.raw(SERVERS)} as servers, s.switchover
    from services s where s.id = ${id}`.execute(db);
  return rows[0] ?? null;
}

/**
 * Records another server as the primary, if `from` is the recorded one, and ends the request for a
 * switchover in the same statement. The caller promotes it afterwards.
 *
 * @returns the recorded primary now; null: the service is gone
 */
export async function recordPrimary(
  db: Db,
  id: string,
  from: number,
  to: number,
): Promise<number | null> {
  const { rows } = await sql`
    with service as (
      update services set switchover = false
      -- Without a row it is server 0.
      where id = ${id} and ${from}::int = coalesce(
        (select server from recorded_primaries where service_id = ${id}), 0)
      returning id
    )
    insert into recorded_primaries as known (service_id, server)
    select id, ${to}::int from service
    on conflict (service_id) do update set server = excluded.server
      where known.server = ${from}::int
    returning server`.execute(db);
  return rows.length > 0 ? to : ((await readRecord(db, id))?.primary ?? null);
}

/** Makes server 0 the recorded primary: all servers of the service are lost. */
export async function forgetPrimary(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('recorded_primaries').where('service_id', '=', id).execute();
}

/** Forgets the primary and the ports of all servers of a service: its data is removed. */
export async function forgetServers(tx: Tx, id: string): Promise<void> {
  await forgetPrimary(tx, id);
  await tx.deleteFrom('server_ports').where('service_id', '=', id).execute();
}

/**
 * Reserves a port for each of these servers that has none.
 *
 * @returns all servers of the service that have a port
 * @throws NoPortLeft
 */
export async function reserveServers(
  tx: Tx,
  region: Pick<Region, 'code' | 'portRange'>,
  id: string,
  numbers: readonly number[],
  isUsable: (port: number) => Promise<boolean>,
): Promise<readonly ServerPort[]> {
  // The service before its region, as a request locks them.
  const service = tx.selectFrom('services').select('id').where('id', '=', id).forKeyShare();
  if ((await service.executeTakeFirst()) === undefined) throw gone(id);
  const { servers } = (await readRecord(tx, id)) ?? { servers: [] };
  const reserved = [...servers];
  for (const n of numbers) {
    if (servers.some((server) => server.n === n)) continue;
    const port = await takeUsablePort(createPortLedger(tx, region), isUsable);
    await tx
      .insertInto('server_ports')
      .values({ service_id: id, server: n, region_code: region.code, port })
      .execute();
    reserved.push({ n, port });
  }
  return reserved.toSorted((a, b) => a.n - b.n);
}

export async function releaseServers(
  db: Db,
  id: string,
  numbers: readonly number[],
): Promise<void> {
  await db
    .deleteFrom('server_ports')
    .where('service_id', '=', id)
    .where('server', 'in', [...numbers])
    .execute();
}

/**
 * Removes the request for a drill before it begins, so that an interrupted one is not repeated.
 *
 * @returns whether there was one
 */
export async function takeDrill(db: Db, id: string): Promise<boolean> {
  const result = await db
    .updateTable('services')
    .set({ drill: null })
    .where('id', '=', id)
    .where('drill', 'is not', null)
    .executeTakeFirst();
  return result.numUpdatedRows > 0n;
}

/** The answer for a service that was removed meanwhile. */
function gone(id: string): Error {
  return new Error(`service ${id} is not in the metadata database any more`);
}
