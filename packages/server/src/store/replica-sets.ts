/** Reads of read replica sets. */
import type { ReadReplicaSet } from '@howdah/contract';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Db } from './tables.ts';

/** The documents of the sets of a service. */
export async function listReplicaSets(db: Db, parentId: string): Promise<ReadReplicaSet[]> {
  const row = await db
    .selectFrom('services')
    .select('read_replica_sets')
    .where('id', '=', parentId)
    .executeTakeFirst();
  return row?.read_replica_sets ?? [];
}

export async function findReplicaSet(
  db: Db,
  parentId: string,
  id: string,
): Promise<ServiceRow | null> {
  return (
    (await db
      .selectFrom('services')
      .selectAll()
      .where('id', '=', id)
      .where('parent_id', '=', parentId)
      .executeTakeFirst()) ?? null
  );
}

/** Whether an operation on a set of this service is under way. */
export async function haveSetsOperations(db: Db, parentId: string): Promise<boolean> {
  const row = await db
    .selectFrom('services')
    .select('id')
    .where('parent_id', '=', parentId)
    .where('operation_id', 'is not', null)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}
