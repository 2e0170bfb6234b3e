/** The SQL of leases: the forks that are kept warm for them, and those that are taken. */
import { isId } from '@howdah/contract';
import { sql } from 'kysely';
import { COLUMNS_OF_LEASED_FORK } from '../domain/service/fork.ts';
import type { LeaseDemand } from '../domain/service/lease.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { isForLeases, isIn } from './predicates.ts';
import type { Db, LeaseRow, Tx } from './tables.ts';

const columnsOf = (table: 'p' | 'services') =>
  sql.join(COLUMNS_OF_LEASED_FORK.map((column) => sql.ref(`${table}.${column}`)));

/** Whether a fork still is what its parent would be forked to now. */
const isLikeParent = (storage: '=' | '<=') => sql<boolean>`exists (
  select from services p where p.id = leased_servers.parent_id
    and p.storage_gb ${sql.raw(storage)} services.storage_gb
    and (${columnsOf('p')}) is not distinct from (${columnsOf('services')}))`;

const IS_LIKE_PARENT = isLikeParent('=');

/** A server that leases share may have got more storage for them. */
export const MAY_BE_SHARED = isLikeParent('<=');

/** Records that a new fork is for leases. @param committed null: it is taken at once */
export async function insertLeasedServer(
  tx: Tx,
  made: { id: string; parent: string; committed: string | null },
): Promise<void> {
  const { id, parent, committed } = made;
  await tx
    .insertInto('leased_servers')
    .values({ service_id: id, parent_id: parent, committed })
    .execute();
}

/**
 * Locks warm forks that have all that was committed in their parent.
 *
 * @param committed the transactions of the parent that have ended
 */
export async function lockWarm(
  tx: Tx,
  parentId: string,
  committed: string,
  count: number,
): Promise<ServiceRow[]> {
  return tx
    .selectFrom('services')
    .innerJoin('leased_servers', 'leased_servers.service_id', 'services.id')
    .selectAll('services')
    .where(sql<boolean>`services.project_id is null and not services.deleting`)
    .where('leased_servers.parent_id', '=', parentId)
    .where('leased_servers.committed', '=', committed)
    .where('services.reachable', '=', true)
    .where('services.provisioned', '=', true)
    .where(IS_LIKE_PARENT)
    .orderBy('services.created')
    .limit(count)
    .forUpdate('services')
    .skipLocked()
    .execute();
}

/** A warm fork. */
export type Warm = Readonly<{
  id: string;
  parentId: string;
  committed: string | null;
  /** Whether it has run: it is made. */
  isReady: boolean;
  /** Whether its parent has the size, version and libraries that it had. */
  isLikeParent: boolean;
}>;

/** The warm forks of a region, oldest first. */
export async function listWarm(db: Db, region: string): Promise<Warm[]> {
  return db
    .selectFrom('services')
    .innerJoin('leased_servers', 'leased_servers.service_id', 'services.id')
    .select(['services.id', 'leased_servers.parent_id as parentId', 'leased_servers.committed'])
    .select(['services.provisioned as isReady', IS_LIKE_PARENT.as('isLikeParent')])
    .where(sql<boolean>`services.project_id is null and not services.deleting`)
    .where('services.region_code', '=', region)
    .orderBy('services.created')
    .execute();
}

/** Whether services of a region are being made: they have the machine first. */
export async function isMaking(db: Db, region: string): Promise<boolean> {
  const making = db
    .selectFrom('services')
    .select('id')
    .where(isIn(region))
    .where('status', 'in', ['QUEUED', 'CONFIGURING'])
    .where('project_id', 'is not', null)
    .limit(1);
  return (await making.executeTakeFirst()) !== undefined;
}

/** How many ports of a region are promised. */
export async function countPromisedPorts(db: Db, region: string): Promise<number> {
  const { count } = await db
    .selectFrom('promised_ports')
    .select(sql<number>`count(distinct port)::int`.as('count'))
    .where('region_code', '=', region)
    .executeTakeFirstOrThrow();
  return count;
}

/** Has a fork that is taken hold databases that are leases. */
export async function noteShared(tx: Tx, id: string, committed: string | null): Promise<void> {
  await tx
    .updateTable('leased_servers')
    .set({ is_shared: true, committed })
    .where('service_id', '=', id)
    .execute();
}

/** Whether a service has databases that are leases, in place of being one. */
export async function isShared(db: Db, id: string): Promise<boolean> {
  const row = await db
    .selectFrom('leased_servers')
    .select('is_shared')
    .where('service_id', '=', id)
    .executeTakeFirst();
  return row?.is_shared === true;
}

// How many leases of a service there are.

/** Records that leases of a locked service were taken. */
export async function noteDemand(
  tx: Tx,
  parentId: string,
  committed: string | null,
): Promise<void> {
  await sql`
    insert into lease_demands (parent_id, peak, committed)
    select ${parentId}, count(distinct service_id), ${committed}
    from leases l where l.parent_id = ${parentId}
    on conflict (parent_id) do update set
      peak = greatest(lease_demands.peak, excluded.peak), taken_at = now()`.execute(tx);
}

/** The demand for leases of a service. */
export type Demand = LeaseDemand &
  Readonly<{
    parentId: string;
    /** The transactions of the parent that had ended when it was last asked. */
    committed: string | null;
    /** Whether the parent runs: warm forks of it can be made. */
    canFork: boolean;
    /** Whether no warm fork of it is of use: it is deleted, or has a network of its own. */
    isOver: boolean;
  }>;

/** The services of a region of which leases were taken lately. */
export async function listDemands(db: Db, region: string): Promise<Demand[]> {
  const rows = await db
    .selectFrom('lease_demands')
    .innerJoin('services', 'services.id', 'lease_demands.parent_id')
    .select(['lease_demands.parent_id as parentId', 'peak', 'taken_at', 'committed'])
    .select(
      sql<boolean>`services.status = 'READY' and vpc_id is null and allow_list_id is null`.as(
        'canFork',
      ),
    )
    .select(
      sql<boolean>`services.deleting or deleted_at is not null or vpc_id is not null
        or allow_list_id is not null`.as('isOver'),
    )
    .where('services.region_code', '=', region)
    .execute();
  return rows.map(({ taken_at: takenAt, ...row }) => ({
    ...row,
    takenMs: takenAt.getTime(),
  }));
}

/** Records what a service had committed. */
export async function noteCommitted(db: Db, parentId: string, committed: string): Promise<void> {
  await db
    .updateTable('lease_demands')
    .set({ committed })
    .where('parent_id', '=', parentId)
    .execute();
}

/** Forgets the demand for leases of a service, unless some were taken meanwhile. */
export async function forgetDemand(db: Db, { parentId, takenMs }: Demand): Promise<void> {
  await db
    .deleteFrom('lease_demands')
    .where('parent_id', '=', parentId)
    .where('taken_at', '<=', new Date(takenMs + 1))
    .execute();
}

/** Whether a fork is still warm. */
export async function isWarm(tx: Tx, id: string): Promise<boolean> {
  const row = await tx
    .selectFrom('services')
    .select('id')
    .where('id', '=', id)
    .where('project_id', 'is', null)
    .where('deleting', '=', false)
    .where(isForLeases)
    .executeTakeFirst();
  return row !== undefined;
}

// Leases, as users see them.

/** The leases with these ids, of a project. PostgreSQL takes no text with a zero byte. */
export async function readLeases(
  db: Db,
  projectId: string,
  asked: readonly string[],
): Promise<LeaseRow[]> {
  const ids = asked.filter(isId);
  if (ids.length === 0) return [];
  return db
    .selectFrom('leases')
    .selectAll()
    .where('project_id', '=', projectId)
    .where('id', 'in', ids)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

/**
 * A page of the leases of a project, oldest first.
 *
 * @param after the position of the last one of the page before: microseconds, and an id
 */
export async function listLeases(
  db: Db,
  projectId: string,
  after: string | null,
  limit: number,
): Promise<(LeaseRow & { position: string })[]> {
  const [micros = '0', id = ''] = after?.split('-') ?? [];
  const position = sql<string>`(extract(epoch from created) * 1000000)::bigint || '-' || id`;
  return db
    .selectFrom('leases')
    .selectAll()
    .select(position.as('position'))
    .where('project_id', '=', projectId)
    .where(
      sql<boolean>`(created, id) > ('epoch'::timestamptz
        + ${micros}::bigint * interval '1 microsecond', ${id}::text)`,
    )
    .orderBy('created')
    .orderBy('id')
    .limit(limit)
    .execute();
}
