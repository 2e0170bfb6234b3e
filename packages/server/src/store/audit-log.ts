/**
 * The SQL of the audit log. The statement that begins an operation writes the entry of its change.
 * The API writes the entries of changes without an operation and of refused calls when it answers.
 * A request has one entry: the first that is written.
 */
import { ERROR_STATUS, type AuditEntry, type AuditOutcome } from '@howdah/contract';
import { sql, type Insertable, type Selectable } from 'kysely';
import type { Db, Tables, Tx } from './tables.ts';

export type AuditRow = Selectable<Tables['audit_log']>;

/** The facts of a call that are known before it runs. `status` is that of its success. */
export type AuditFacts = Insertable<Tables['audit_log']>;
/**
 * recorded: a transaction has written the entry. If it did not commit, the request was refused, and
 * the entry of a refusal is written.
 */
export type AuditNote = { facts: AuditFacts; recorded: boolean };

/** A statement has at most 65 535 parameters. */
const INSERT_BATCH = 1000;

/** Writes entries, except those of requests that have one already. */
export async function insertAuditEntries(db: Db, entries: readonly AuditFacts[]): Promise<void> {
  for (let first = 0; first < entries.length; first += INSERT_BATCH)
    await db
      .insertInto('audit_log')
      .values(entries.slice(first, first + INSERT_BATCH))
      .onConflict((conflict) => conflict.column('request_id').doNothing())
      .execute();
}

/** How many calls an entry counts. */
export type AuditCount = { requestId: string; count: number; lastAt: Date };

/** Raises the counts of entries. */
export async function raiseAuditCounts(db: Db, counts: readonly AuditCount[]): Promise<void> {
  if (counts.length === 0) return;
  await sql`
    update audit_log a set count = c.count, last_at = c.last_at
    from unnest(${counts.map(({ requestId }) => requestId)}::uuid[],
                ${counts.map(({ count }) => count)}::int[],
                ${counts.map(({ lastAt }) => lastAt.toISOString())}::timestamptz[])
         as c (request_id, count, last_at)
    where a.request_id = c.request_id`.execute(db);
}

/** Writes the entry of a change, unless it was written with the operation. */
export async function recordAudit(
  tx: Tx,
  note: AuditNote | null,
  operationId: string | null,
): Promise<void> {
  if (note === null || note.recorded) return;
  await insertAuditEntries(tx, [{ ...note.facts, operation_id: operationId }]);
  note.recorded = true;
}

/** A removal by the control plane itself, which counts as often as it happens. */
export type Removal = { id: string; count: number; lastAt: Date };

/**
 * Writes into the audit log that the control plane itself removed a service, or points in time of
 * one; a repetition raises the count of its entry. A service without a project has no audit log.
 */
export async function recordRemoval(
  db: Db,
  serviceId: string,
  call: 'removeRecoveryPoints' | 'removeWal' | 'purgeOnFullDisk' | 'expireService',
  { id, count, lastAt }: Removal,
  by: string,
): Promise<void> {
  const ofService = call === 'purgeOnFullDisk' || call === 'expireService';
  const ofBackups = ofService ? '' : '/backups';
  await sql`
    insert into audit_log
      (project_id, public_key, address, call, method, path, service_id, status, request_id)
    select project_id, ${by}, ${by}, ${call}, 'DELETE',
      '/projects/' || project_id || '/services/' || id || ${ofBackups}, id, 200, ${id}::uuid
    from services where id = ${serviceId} and project_id is not null
    on conflict (request_id) do nothing`.execute(db);
  if (count > 1) await raiseAuditCounts(db, [{ requestId: id, count, lastAt }]);
}
/** Entries that one statement removes. */
const PRUNE_BATCH = 1000;

/**
 * Removes older entries, except those of operations that are kept.
 *
 * @returns whether there may be more
 */
export async function pruneAuditLog(db: Db, keptMs: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from audit_log where id = any (array(
      select a.id from audit_log a
      where a.at < now() - ${`${keptMs} ms`}::interval
        and not exists (select from operations o where o.id = a.operation_id)
      limit ${PRUNE_BATCH}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}

export type AuditFilter = {
  serviceId?: string;
  operationId?: string;
  publicKey?: string;
  call?: string;
  outcome?: AuditOutcome;
  /** Inclusive. */
  since?: string;
  /** Exclusive. */
  until?: string;
};

/** A page of a project's entries, newest first, or oldest first for an export. */
export async function listAuditEntries(
  db: Db,
  projectId: string,
  filter: AuditFilter,
  order: 'asc' | 'desc',
  after: string | null,
  limit: number,
): Promise<AuditRow[]> {
  let query = db.selectFrom('audit_log').selectAll().where('project_id', '=', projectId);
  if (filter.serviceId !== undefined) query = query.where('service_id', '=', filter.serviceId);
  if (filter.operationId !== undefined)
    query = query.where('operation_id', '=', filter.operationId);
  if (filter.publicKey !== undefined) query = query.where('public_key', '=', filter.publicKey);
  if (filter.call !== undefined) query = query.where('call', '=', filter.call);
  if (filter.outcome !== undefined)
    query = query.where('code', filter.outcome === 'allowed' ? 'is' : 'is not', null);
  if (filter.since !== undefined)
    query = query.where('at', '>=', sql<Date>`${filter.since}::timestamptz`);
  if (filter.until !== undefined)
    query = query.where('at', '<', sql<Date>`${filter.until}::timestamptz`);
  if (after !== null) query = query.where('id', order === 'asc' ? '>' : '<', after);
  return query.orderBy('id', order).limit(limit).execute();
}

/** An entry as the API returns it. */
export function auditDocument(row: AuditRow): AuditEntry {
  return {
    id: row.id,
    at: row.at.toISOString(),
    public_key: row.public_key,
    address: row.address,
    call: row.call,
    method: row.method,
    path: row.path,
    ...(row.service_id === null ? {} : { service_id: row.service_id }),
    ...(row.operation_id === null ? {} : { operation_id: row.operation_id }),
    outcome: row.code === null ? 'allowed' : 'refused',
    status: row.code === null ? row.status : ERROR_STATUS[row.code],
    ...(row.code === null ? {} : { code: row.code }),
    request_id: row.request_id,
    ...(row.last_at === null ? {} : { count: row.count, last_at: row.last_at.toISOString() }),
  };
}
