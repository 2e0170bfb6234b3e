/** The recorded primary of a service with replicas. */
import type { Db } from './tables.ts';

/**
 * Records another member as the primary, if `from` is the recorded one. The
 * caller promotes it afterwards.
 *
 * @returns the recorded primary now; null: the service is gone
 */
export async function recordPrimary(
  db: Db,
  id: string,
  from: number,
  to: number,
): Promise<number | null> {
  const result = await db
    .updateTable('services')
    .set({ primary_member: to, leave_member: null })
    .where('id', '=', id)
    .where('primary_member', '=', from)
    .executeTakeFirst();
  return result.numUpdatedRows > 0n ? to : readPrimary(db, id);
}

/** The recorded primary of a service; null: the service is gone. */
export async function readPrimary(db: Db, id: string): Promise<number | null> {
  const row = await db
    .selectFrom('services')
    .select('primary_member')
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.primary_member ?? null;
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
