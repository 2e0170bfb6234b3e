/** The records of operations: what was asked for, by whom, how far it is and how it ended. */
import type { Operation, OperationKind, OperationStep } from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import { newId } from '../ids.ts';
import type { Db, Tables, Tx } from './database.ts';
import type { ServiceRow } from './services.ts';

export type OperationRow = Selectable<Tables['operations']>;

/** Begins an operation; one that is under way is ended as superseded by it. */
export async function beginOperation(
  tx: Tx,
  service: Pick<ServiceRow, 'id' | 'project_id'>,
  kind: OperationKind,
  requestedBy: string,
  current: OperationRow | null,
): Promise<OperationRow> {
  if (current !== null) await endOperation(tx, current.id, 'failed', `superseded by ${kind}`);
  return tx
    .insertInto('operations')
    .values({
      id: newId(),
      project_id: service.project_id,
      service_id: service.id,
      kind,
      status: 'queued',
      requested_by: requestedBy,
      steps: '[]',
      error: null,
      finished: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Records an operation that is done when its request is answered. */
export async function recordOperation(
  tx: Tx,
  service: Pick<ServiceRow, 'id' | 'project_id'>,
  kind: OperationKind,
  requestedBy: string,
): Promise<string> {
  const id = newId();
  await tx
    .insertInto('operations')
    .values({
      id,
      project_id: service.project_id,
      service_id: service.id,
      kind,
      status: 'succeeded',
      requested_by: requestedBy,
      steps: '[]',
      error: null,
      finished: new Date(),
    })
    .execute();
  return id;
}

export async function endOperation(tx: Tx, id: string, status: 'succeeded' | 'failed', error: string | null): Promise<void> {
  await tx
    .updateTable('operations')
    .set({ status, error, finished: sql<Date>`clock_timestamp()` })
    .where('id', '=', id)
    .where('finished', 'is', null)
    .execute();
}

/** Notes how far an operation is. @param error why its last attempt failed, null where it goes well */
export async function progressOperation(tx: Tx, id: string, steps: readonly OperationStep[], error: string | null): Promise<OperationRow> {
  return tx
    .updateTable('operations')
    .set({ status: 'running', steps: JSON.stringify(steps), error })
    .where('id', '=', id)
    .where('finished', 'is', null)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** An operation as the API answers it. */
export function operationDocument(row: OperationRow): Operation {
  return {
    id: row.id,
    kind: row.kind,
    service_id: row.service_id,
    status: row.status,
    requested_by: row.requested_by,
    steps: row.steps,
    ...(row.error === null ? {} : { error: row.error }),
    created: row.created.toISOString(),
    finished: row.finished === null ? null : row.finished.toISOString(),
  };
}

/** A project's operations, newest first, of one service or of all. */
export async function listOperations(db: Db, projectId: string, serviceId: string | null): Promise<OperationRow[]> {
  let query = db.selectFrom('operations').selectAll().where('project_id', '=', projectId);
  if (serviceId !== null) query = query.where('service_id', '=', serviceId);
  return query.orderBy('created', 'desc').orderBy('id').limit(1000).execute();
}

export async function findOperation(db: Db, projectId: string, id: string): Promise<OperationRow | null> {
  return (
    (await db.selectFrom('operations').selectAll().where('project_id', '=', projectId).where('id', '=', id).executeTakeFirst()) ?? null
  );
}
