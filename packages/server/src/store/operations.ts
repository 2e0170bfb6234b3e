/** The SQL of operations: requests, their requester, their progress and their end. */
import {
  BESIDE_KINDS,
  OPERATION_KINDS,
  type BesideKind,
  type OperationKind,
  type OperationStatus,
} from '@howdah/contract';
import { sql } from 'kysely';
import type { OperationRequest, OperationRow, RecordedStep } from '../domain/operation.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { newId } from '../lib/ids.ts';
import type { AuditNote } from './audit-log.ts';
import type { Db, Tx } from './tables.ts';

/** The requester of operations without a request: repairs, failovers. */
export const HOWDAH = 'howdah';

/** The error of a cancelled operation begins with this; the public key of the caller follows. */
export const CANCELLED_BY = 'cancelled by ';

/**
 * The requester of an operation: the caller of a request, whose entry in the audit log is written
 * with it, or a name.
 */
export type Requester = string | { publicKey: string; audit: AuditNote | null };

/**
 * Begins an operation. It supersedes an unfinished one; a delete also supersedes those beside it.
 *
 * @param request what was asked for, where the row of the service does not say it
 */
export async function beginOperation(
  tx: Tx,
  service: Pick<ServiceRow, 'id' | 'project_id'>,
  kind: OperationKind,
  requester: Requester,
  current: OperationRow | null,
  request: OperationRequest | null = null,
): Promise<OperationRow> {
  if (current !== null) await endOperation(tx, current.id, 'failed', `superseded by ${kind}`);
  if (kind === 'delete')
    for (const beside of BESIDE_KINDS) {
      const underWay = await besideUnderWay(tx, service.id, beside);
      if (underWay !== null) await endOperation(tx, underWay.id, 'failed', `superseded by ${kind}`);
    }
  return insertOperation(tx, service, requester, {
    kind,
    status: 'queued',
    steps: '[]',
    finished: null,
    request: request === null ? null : JSON.stringify(request),
  });
}

/**
 * Inserts the operation and its entry in the audit log in one statement, which saves a round trip.
 */
async function insertOperation(
  tx: Tx,
  service: Pick<ServiceRow, 'id' | 'project_id'>,
  requester: Requester,
  operation: {
    kind: OperationKind;
    status: 'queued' | 'succeeded';
    steps: string;
    finished: Date | null;
    request: string | null;
  },
): Promise<OperationRow> {
  const id = newId();
  const row = {
    ...operation,
    id,
    project_id: service.project_id,
    service_id: service.id,
    requested_by: typeof requester === 'string' ? requester : requester.publicKey,
    error: null,
  };
  const audit = typeof requester === 'string' ? null : requester.audit;
  if (audit === null)
    return tx.insertInto('operations').values(row).returningAll().executeTakeFirstOrThrow();
  const inserted = await tx
    .with('audited', (db) =>
      db
        .insertInto('audit_log')
        .values({ ...audit.facts, service_id: service.id, operation_id: id }),
    )
    .insertInto('operations')
    .values(row)
    .returningAll()
    .executeTakeFirstOrThrow();
  audit.recorded = true;
  return inserted;
}

/** The unfinished operation of a kind beside the others of a service; null: there is none. */
export async function besideUnderWay(
  db: Db,
  serviceId: string,
  kind: BesideKind,
): Promise<OperationRow | null> {
  const row = await db
    .selectFrom('operations')
    .selectAll()
    .where('service_id', '=', serviceId)
    .where('kind', '=', kind)
    .where('finished', 'is', null)
    .executeTakeFirst();
  return row ?? null;
}

/** Records what an operation does not carry over. */
export async function recordNotCarried(
  tx: Tx,
  id: string,
  lines: readonly string[],
): Promise<void> {
  await tx
    .updateTable('operations')
    .set({ not_carried: [...lines] })
    .where('id', '=', id)
    .execute();
}

/** Whether an operation has not ended. */
export async function isUnderWay(db: Db, id: string): Promise<boolean> {
  return (
    (await db
      .selectFrom('operations')
      .select('id')
      .where('id', '=', id)
      .where('finished', 'is', null)
      .executeTakeFirst()) !== undefined
  );
}

/** Whether an operation of a kind has not ended in a region. */
export async function isUnderWayInRegion(
  db: Db,
  region: string,
  kind: OperationKind,
): Promise<boolean> {
  const found = await db
    .selectFrom('operations')
    .innerJoin('services', 'services.id', 'operations.service_id')
    .select('operations.id')
    .where('operations.kind', '=', kind)
    .where('operations.finished', 'is', null)
    .where('services.region_code', '=', region)
    .executeTakeFirst();
  return found !== undefined;
}

/** Records an operation that is done when its request is answered. */
export async function recordOperation(
  tx: Tx,
  service: Pick<ServiceRow, 'id' | 'project_id'>,
  kind: OperationKind,
  requester: Requester,
  steps: readonly RecordedStep[] = [],
): Promise<string> {
  const row = await insertOperation(tx, service, requester, {
    kind,
    status: 'succeeded',
    steps: JSON.stringify(steps),
    finished: new Date(),
    request: null,
  });
  return row.id;
}

/**
 * @param steps the steps that were made, if they are more than those recorded
 * @returns whether it had not ended before
 */
export async function endOperation(
  db: Db,
  id: string,
  status: 'succeeded' | 'failed',
  error: string | null,
  steps?: readonly RecordedStep[],
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('operations')
    .set({
      status,
      error,
      finished: sql<Date>`clock_timestamp()`,
      ...(steps === undefined ? {} : { steps: JSON.stringify(steps) }),
    })
    .where('id', '=', id)
    .where('finished', 'is', null)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Operations that one statement removes. */
const PRUNE_BATCH = 1000;

/**
 * Removes operations that ended longer ago than this, except those that
 * created an existing service.
 *
 * @returns whether there may be more
 */
export async function pruneOperations(db: Db, keptMs: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from operations where id = any (array(
      select o.id from operations o
      where o.kind = any(${[...OPERATION_KINDS]}::text[])
        and o.finished < now() - ${`${keptMs} ms`}::interval
        and not (o.kind in ('create', 'adopt', 'fork')
          and exists (select from services s where s.id = o.service_id))
      limit ${PRUNE_BATCH}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}

/**
 * Records the progress of an operation.
 *
 * @param error why its last attempt failed; null: it did not
 */
export async function progressOperation(
  db: Db,
  id: string,
  steps: readonly RecordedStep[],
  error: string | null,
): Promise<OperationRow> {
  return db
    .updateTable('operations')
    .set({ status: 'running', steps: JSON.stringify(steps), error })
    .where('id', '=', id)
    .where('finished', 'is', null)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/**
 * Reads the unfinished operation of a service that the transaction has locked, and marks a queued
 * one as running. null: there is none.
 */
export async function takeUpOperation(
  tx: Tx,
  { operation_id: id }: Pick<ServiceRow, 'operation_id'>,
): Promise<OperationRow | null> {
  if (id === null) return null;
  const begun = await tx
    .updateTable('operations')
    .set({ status: 'running' })
    .where('id', '=', id)
    .where('finished', 'is', null)
    .returningAll()
    .executeTakeFirst();
  return begun ?? null;
}

/**
 * The progress of an operation. failing: its last attempt failed, or another operation has
 * superseded it.
 */
export async function howItGoes(db: Db, id: string): Promise<'underway' | 'failing' | 'done'> {
  const { status, error } = await db
    .selectFrom('operations')
    .select(['status', 'error'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return status === 'succeeded' ? 'done' : error === null ? 'underway' : 'failing';
}

export type OperationFilter = {
  serviceId?: string;
  kind?: OperationKind;
  status?: OperationStatus;
};

/** An operation with its position in the list. */
export type ListedOperation = OperationRow & { position: string };

/**
 * A page of a project's operations, newest first.
 *
 * @param after the position of the last one before the page: microseconds since
 * the epoch, and an id
 */
export async function listOperations(
  db: Db,
  projectId: string,
  filter: OperationFilter,
  after: string | null,
  limit: number,
): Promise<ListedOperation[]> {
  let query = db
    .selectFrom('operations')
    .selectAll()
    .select(
      sql<string>`(extract(epoch from created) * 1000000)::bigint || '-' || id`.as('position'),
    )
    .where('project_id', '=', projectId);
  if (filter.serviceId !== undefined) query = query.where('service_id', '=', filter.serviceId);
  if (filter.kind !== undefined) query = query.where('kind', '=', filter.kind);
  if (filter.status !== undefined) query = query.where('status', '=', filter.status);
  // These conditions follow from the status; with them the planner uses the index.
  if (filter.status === 'failed') query = query.where('error', 'is not', null);
  if (filter.status === 'queued' || filter.status === 'running')
    query = query.where('finished', 'is', null);
  if (after !== null) {
    const [micros = '', id = ''] = after.split('-');
    const moment = sql<Date>`'epoch'::timestamptz + ${micros}::bigint * interval '1 microsecond'`;
    query = query
      .where('created', '<=', moment)
      .where((where) => where.or([where('created', '<', moment), where('id', '>', id)]));
  }
  return query.orderBy('created', 'desc').orderBy('id').limit(limit).execute();
}

/** Reads an operation that is known to exist. */
export async function readOperation(db: Db, id: string): Promise<OperationRow> {
  return db.selectFrom('operations').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
}

export async function findOperation(
  db: Db,
  projectId: string,
  id: string,
): Promise<OperationRow | null> {
  return (
    (await db
      .selectFrom('operations')
      .selectAll()
      .where('project_id', '=', projectId)
      .where('id', '=', id)
      .executeTakeFirst()) ?? null
  );
}

/** How many past runs the estimate of the next one uses. */
const PAST_RUNS = 20;

/**
 * The durations of the last successful operations of a kind, in seconds: half of them took less
 * than `median`, all of them at most `longest`.
 */
export async function pastDurations(
  db: Db,
  kind: OperationKind,
): Promise<{ median: number; longest: number } | null> {
  const { rows } = await sql<{ median: number | null; longest: number }>`
    select percentile_cont(0.5) within group (order by seconds) as median,
      max(seconds)::float8 as longest
    from (
      select extract(epoch from finished - created)::float8 as seconds from operations
      where kind = ${kind} and finished is not null and status = 'succeeded' order by finished desc
        limit ${PAST_RUNS}
    ) as past`.execute(db);
  const [row] = rows;
  return row === undefined || row.median === null
    ? null
    : { median: row.median, longest: row.longest };
}
