/** Regions, and the ports that their services have. */
import { sql } from 'kysely';
import { NoPortLeft, type PortLedger } from '../engine/spec.ts';
import type { Region } from '../engine/regions.ts';
import { LOCAL_REGION } from '../settings.ts';
import { isIn } from './predicates.ts';
import type { Db, Tx } from './tables.ts';

/** Inserts a region, unless it exists. */
export async function insertRegion(db: Db, code: string, firstPort: number): Promise<void> {
  await db
    .insertInto('regions')
    .values({ code, last_port: firstPort - 1 })
    .onConflict((conflict) => conflict.column('code').doNothing())
    .execute();
}

/** Keeps new services out of a region until the end of the transaction: each refers to its row. */
export async function lockRegion(tx: Tx, code: string): Promise<void> {
  await tx.selectFrom('regions').select('code').where('code', '=', code).forUpdate().execute();
}

/**
 * Whether a region has services, spares and deleted ones among them, copies of services that move
 * to it, or former servers of moved ones. A copy that is to be removed keeps no region: the removal
 * of a region whose cluster is gone ends it.
 */
export async function isInUse(db: Db, region: string): Promise<boolean> {
  const service = db.selectFrom('services').select('id').where(isIn(region)).limit(1);
  if ((await service.executeTakeFirst()) !== undefined) return true;
  const moving = db
    .selectFrom('services')
    .select('id')
    .where('move', 'is not', null)
    .where(
      sql<boolean>`move ->> 'from' = ${region}
        or (move ->> 'to' = ${region} and move ->> 'state' <> 'abort')`,
    )
    .limit(1);
  return (await moving.executeTakeFirst()) !== undefined;
}

/** Offers the free ports of a region to an engine, one after the other, for one reservation. */
export function createPortLedger(
  tx: Tx,
  { code, portRange }: Pick<Region, 'code' | 'portRange'>,
): PortLedger {
  let first: number | null = null;
  let last: number | null = null;
  return {
    take: async () => {
      const port = await takeNextPort(tx, code, portRange, last);
      if (port === null || port === first) throw new NoPortLeft(whyNoPort(code, portRange));
      first ??= port;
      last = port;
      return port;
    },
  };
}

function whyNoPort(code: string, portRange: readonly [number, number]): string {
  const setting = code === LOCAL_REGION ? 'HOWDAH_PORT_RANGE' : `${code} in HOWDAH_REGIONS,`;
  return (
    `no port is left: all of ${setting} ${portRange.join('-')} are taken; widen the range, or ` +
    'delete services and wait: deleted ones keep theirs for HOWDAH_RESTORE_HOURS'
  );
}

/**
 * Takes the next free port of a region, beginning after the last one taken, so that a port that a
 * service has left is reused as late as possible. Locks the region until the transaction ends.
 *
 * @param after the port to continue after, if it cannot be used
 * @returns null: no port is free
 */
export async function takeNextPort(
  tx: Tx,
  region: string,
  [first, last]: readonly [number, number],
  after: number | null,
): Promise<number | null> {
  const { last_port } = await tx
    .selectFrom('regions')
    .select('last_port')
    .where('code', '=', region)
    .forUpdate()
    .executeTakeFirstOrThrow();
  const port = await findFreePort(tx, region, [first, last], after ?? last_port);
  if (port !== null)
    await tx.updateTable('regions').set({ last_port: port }).where('code', '=', region).execute();
  return port;
}

/** Waits until no other transaction adopts a service. */
export async function lockAdoptions(tx: Tx): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtext('howdah adoptions'))`.execute(tx);
}

/** Whether a port is promised already. Locks the region until the transaction ends. */
export async function isPromised(tx: Tx, region: string, port: number): Promise<boolean> {
  await tx.selectFrom('regions').select('code').where('code', '=', region).forUpdate().execute();
  const promised = tx
    .selectFrom('promised_ports')
    .select('port')
    .where('region_code', '=', region)
    .where('port', '=', port);
  return (await promised.limit(1).executeTakeFirst()) !== undefined;
}

/**
 * Whether another project has services outside of these regions, also deleted ones. Locks all
 * regions until the transaction ends.
 */
export async function isAnotherProjectOutside(
  tx: Tx,
  regions: readonly string[],
  projectId: string,
): Promise<boolean> {
  await tx.selectFrom('regions').select('code').orderBy('code').forUpdate().execute();
  const other = tx
    .selectFrom('services')
    .select('id')
    .where('project_id', 'is not', null)
    .where('project_id', '!=', projectId)
    .where(sql<boolean>`region_code <> all(${[...regions]}::text[])`);
  return (await other.limit(1).executeTakeFirst()) !== undefined;
}

/**
 * Finds the first port after another that is not promised, continuing at the begin of the range
 * after its end. There is no `order by`: the series is in order already, and sorting would look
 * every port up.
 */
async function findFreePort(
  tx: Tx,
  region: string,
  [first, last]: readonly [number, number],
  after: number,
): Promise<number | null> {
  const begin = after >= first && after < last ? after + 1 : first;
  const { rows } = await sql<{ port: number }>`
    select port
    from (select ${begin}::int as begin, ${first}::int as first, ${last}::int as last) as range,
         generate_series(0, last - first) as step,
         lateral (select first + (begin - first + step) % (last - first + 1) as port) as candidate
    where (select count(*) from promised_ports as promised where promised.region_code = ${region}
      and promised.port = candidate.port) = 0
    limit 1`.execute(tx);
  return rows[0]?.port ?? null;
}
