/** Regions, and the ports that their services have. */
import { sql } from 'kysely';
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

/** Whether a region has services, spares and deleted ones among them. */
export async function isInUse(db: Db, region: string): Promise<boolean> {
  const service = db.selectFrom('services').select('id').where(isIn(region)).limit(1);
  return (await service.executeTakeFirst()) !== undefined;
}

/**
 * Takes the next free port of a region, beginning after the last one taken, so that a port that a
 * service has left is reused as late as possible. Locks the region until the transaction ends.
 *
 * @param after the port to continue after, if another program on the machine holds it
 * @param besides ports that the transaction has taken and not written yet
 * @returns null: no port is free
 */
export async function takeNextPort(
  tx: Tx,
  region: string,
  [first, last]: readonly [number, number],
  after: number | null,
  besides: readonly number[] = [],
): Promise<number | null> {
  const { last_port } = await tx
    .selectFrom('regions')
    .select('last_port')
    .where('code', '=', region)
    .forUpdate()
    .executeTakeFirstOrThrow();
  const port = await findFreePort(tx, region, [first, last], after ?? last_port, besides);
  if (port !== null)
    await tx.updateTable('regions').set({ last_port: port }).where('code', '=', region).execute();
  return port;
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
  besides: readonly number[],
): Promise<number | null> {
  const begin = after >= first && after < last ? after + 1 : first;
  const { rows } = await sql<{ port: number }>`
    select port
    from (select ${begin}::int as begin, ${first}::int as first, ${last}::int as last) as range,
         generate_series(0, last - first) as step,
         lateral (select first + (begin - first + step) % (last - first + 1) as port) as candidate
    where port <> all(${[...besides]}::int[])
      and (select count(*) from promised_ports as promised where promised.region_code = ${region} and promised.port = candidate.port) = 0
    limit 1`.execute(tx);
  return rows[0]?.port ?? null;
}
