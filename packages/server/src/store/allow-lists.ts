/**
 * The SQL of allow lists. Locks are taken in one order: services, then the list. A change of a list
 * writes the list alone; {@link refreshAllowLists} passes it on to its services.
 */
import { type Selectable, sql } from 'kysely';
import { newId } from '../lib/ids.ts';
import { notifyVpcs } from './events.ts';
import type { Db, Tables, Tx } from './tables.ts';

export type AllowListRow = Selectable<Tables['allow_lists']>;

/** The allow lists of a project, oldest first. There are few. */
export async function listAllowLists(db: Db, projectId: string): Promise<AllowListRow[]> {
  return db
    .selectFrom('allow_lists')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

const allowListOf = (db: Db, projectId: string, id: string) =>
  db.selectFrom('allow_lists').selectAll().where('project_id', '=', projectId).where('id', '=', id);

export async function findAllowList(
  db: Db,
  projectId: string,
  id: string,
): Promise<AllowListRow | null> {
  return (await allowListOf(db, projectId, id).executeTakeFirst()) ?? null;
}

/** Locks a list for the transaction: it stays as it is; `update`: no service gets it. */
export async function lockAllowList(
  tx: Tx,
  projectId: string,
  id: string,
  how: 'share' | 'update',
): Promise<AllowListRow | null> {
  const query = allowListOf(tx, projectId, id);
  return (
    (await (how === 'share' ? query.forShare() : query.forUpdate()).executeTakeFirst()) ?? null
  );
}

/** The networks of a service's allow list, which stay as they are; null: it has none. */
export async function readNetworksOfList(tx: Tx, id: string | null): Promise<string[] | null> {
  if (id === null) return null;
  const row = await tx
    .selectFrom('allow_lists')
    .select('cidr_blocks')
    .where('id', '=', id)
    .forShare()
    .executeTakeFirstOrThrow();
  return row.cidr_blocks;
}

type AllowListFacts = Pick<AllowListRow, 'description' | 'cidr_blocks'>;

export async function insertAllowList(
  tx: Tx,
  projectId: string,
  facts: AllowListFacts,
): Promise<AllowListRow> {
  return tx
    .insertInto('allow_lists')
    .values({ id: newId(), project_id: projectId, ...facts })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Changes a locked list, and has it passed on to its services. */
export async function updateAllowListRow(
  tx: Tx,
  id: string,
  facts: AllowListFacts,
): Promise<AllowListRow> {
  const row = await tx
    .updateTable('allow_lists')
    .set(facts)
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
  await notifyVpcs(tx);
  return row;
}

export async function deleteAllowListRow(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('allow_lists').where('id', '=', id).execute();
}

/**
 * Passes changed allow lists on to the services of a region, and makes them due.
 *
 * @returns their ids
 */
export async function refreshAllowLists(db: Db, region: string): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    with other as (
      select s.id from services s join allow_lists a on a.id = s.allow_list_id
      where s.region_code = ${region} and s.vpc_id is null
        and s.allowed_networks is distinct from a.cidr_blocks
      -- as all who lock services with their sets
      order by s.parent_id nulls first, s.id for update of s
    )
    update services s set allowed_networks = a.cidr_blocks, due_at = now() from allow_lists a
    where s.id = any (array(select id from other)) and a.id = s.allow_list_id and s.vpc_id is null
    returning s.id`.execute(db);
  return rows.map(({ id }) => id);
}
