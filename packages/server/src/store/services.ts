/**
 * Locks and writes of services. {@link changeService} is the only writer of status and document.
 */
import { sql } from 'kysely';
import type { ReadReplicaSet } from '@howdah/contract';
import {
  INHERITED_COLUMNS,
  inheritedOperation,
  replicaSetDocument,
} from '../domain/replica-set.ts';
import { serviceDocument } from '../domain/service/document.ts';
import type { Kept, ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { networkColumnsOf } from '../domain/service/spec.ts';
import { refuseUnknownTransition, serviceStatus } from '../domain/service/status.ts';
import { notifyService } from './events.ts';
import type { OperationRow } from '../domain/operation.ts';
import { beginOperation, HOWDAH } from './operations.ts';
import type { Db, Tx } from './tables.ts';
import { isListed } from './predicates.ts';

/** A locked service with its running operation. */
export type LockedService = { service: ServiceRow; operation: OperationRow | null };

/** Locks a service for the rest of the transaction; null: it is gone. */
export async function lockService(tx: Tx, id: string): Promise<LockedService | null> {
  const service = await lockRow(tx, id);
  return service === undefined
    ? null
    : { service, operation: await operationUnderWay(tx, service) };
}

/**
 * Locks a service. For a read replica set it locks the parent first, whose document changes with
 * it. All locks are taken in this order, so that transactions cannot deadlock.
 */
export async function lockRow(tx: Tx, id: string): Promise<ServiceRow | undefined> {
  const rows = await tx
    .selectFrom('services')
    .selectAll()
    .where((where) =>
      where.or([
        where('id', '=', id),
        where(
          'id',
          '=',
          where.selectFrom('services as s').select('s.parent_id').where('s.id', '=', id),
        ),
      ]),
    )
    .orderBy('parent_id', (order) => order.nullsFirst())
    .forUpdate()
    .execute();
  return rows.find((row) => row.id === id);
}

/** The unfinished operation of a locked service. */
export async function operationUnderWay(tx: Tx, service: ServiceRow): Promise<OperationRow | null> {
  if (service.operation_id === null) return null;
  const operation = await tx
    .selectFrom('operations')
    .selectAll()
    .where('id', '=', service.operation_id)
    .where('finished', 'is', null)
    .executeTakeFirst();
  return operation ?? null;
}

/** Columns of JSON that are to be written, without those that are not to be changed. */
function jsonColumns(columns: Record<string, unknown>): Record<string, string | null> {
  return Object.fromEntries(
    Object.entries(columns)
      .filter(([, value]) => value !== undefined)
      .map(([column, value]) => [column, value === null ? null : JSON.stringify(value)]),
  );
}

/**
 * Changes a locked service: writes the facts, and the status and document that follow from them and
 * from its operation. No other statement writes these two.
 *
 * @param operation the unfinished operation after the change; null: none
 * @returns the row after the change
 */
export async function changeService(
  tx: Tx,
  before: ServiceRow,
  change: ServiceChange,
  operation: OperationRow | null,
): Promise<ServiceRow> {
  const changed = { ...before, ...change, operation_id: operation?.id ?? null };
  const status = serviceStatus(changed, operation);
  refuseUnknownTransition(before, status);
  const isRunning = status === 'READY' && changed.suspended_at === null;
  const usage = isRunning ? {} : { memory_mb: null, milli_cpu: null, storage_mb: null };
  const waits = isRunning ? changed.waits : null;
  const row: ServiceRow = { ...changed, ...usage, waits, status, doc: '' };
  row.doc = JSON.stringify(serviceDocument(row));
  const {
    warnings,
    read_replica_sets: sets,
    kept,
    recovery,
    upgrade,
    upgraded,
    move,
    waits: _waits,
    ...facts
  } = change;
  const after = await tx
    .updateTable('services')
    .set({
      ...facts,
      ...usage,
      ...jsonColumns({
        warnings,
        kept,
        recovery,
        upgrade,
        upgraded,
        move,
        waits,
        read_replica_sets: sets,
      }),
      operation_id: row.operation_id,
      status,
      doc: row.doc,
    })
    .where('id', '=', before.id)
    .returningAll()
    .executeTakeFirstOrThrow();
  if (after.parent_id !== null) await writeSetsIntoDocument(tx, after.parent_id);
  if (after.read_replica_sets.length === 0 || !INHERITED_COLUMNS.some((fact) => fact in change))
    return after;
  await passOnToSets(tx, after);
  return tx.selectFrom('services').selectAll().where('id', '=', after.id).executeTakeFirstOrThrow();
}

/** The region of a service of a project; null: it has no such service. */
export async function readPlace(
  db: Db,
  projectId: string,
  id: string,
): Promise<Pick<ServiceRow, 'region_code'> | null> {
  const row = await db
    .selectFrom('services')
    .select('region_code')
    .where('id', '=', id)
    .where('project_id', '=', projectId)
    .where(isListed)
    .executeTakeFirst();
  return row ?? null;
}

/** The backups of a deleted service whose data was removed from this machine; null: it was not. */
export async function readKept(db: Db, id: string): Promise<Kept | null> {
  const row = await db
    .selectFrom('services')
    .select('kept')
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.kept ?? null;
}

/** For how many days repositories keep the backups of a service; null: as they say themselves. */
export async function readOwnRetention(db: Db, id: string): Promise<number | null> {
  const row = await db
    .selectFrom('services')
    .select('backup_retention_days')
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.backup_retention_days ?? null;
}

/** A service, as it is now; null: there is none. */
export async function readService(db: Db, id: string): Promise<ServiceRow | null> {
  const row = await db.selectFrom('services').selectAll().where('id', '=', id).executeTakeFirst();
  return row ?? null;
}

/** The upgrades of a service; none for one that is gone. */
export async function readUpgrades(
  db: Db,
  id: string,
): Promise<Pick<ServiceRow, 'upgrade' | 'upgraded'>> {
  const row = await db
    .selectFrom('services')
    .select(['upgrade', 'upgraded'])
    .where('id', '=', id)
    .executeTakeFirst();
  return row ?? { upgrade: null, upgraded: null };
}

/** The sets of a locked service, in the order of their creation. */
async function setsOf(tx: Tx, parentId: string): Promise<ServiceRow[]> {
  return tx
    .selectFrom('services')
    .selectAll()
    .where('parent_id', '=', parentId)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

/** Writes the documents of a service's sets into the document of the service. */
async function writeSetsIntoDocument(tx: Tx, parentId: string): Promise<void> {
  const locked = await lockService(tx, parentId);
  if (locked === null) return;
  const shown = (await setsOf(tx, parentId)).map(replicaSetDocument);
  if (JSON.stringify(shown) === JSON.stringify(locked.service.read_replica_sets)) return;
  await changeService(tx, locked.service, { read_replica_sets: shown }, locked.operation);
}

/**
 * Passes power, visibility, libraries, networks and the bound of the CPU of a service on to its
 * sets. Each follows in an operation of its own.
 */
async function passOnToSets(tx: Tx, parent: ServiceRow): Promise<void> {
  const power = parent.deleting ? 'paused' : parent.power;
  for (const { id } of await setsOf(tx, parent.id)) {
    const locked = await lockService(tx, id);
    if (locked === null) continue;
    const { service: set, operation } = locked;
    const { preload, restarts, pg_version, cpu_bound } = parent;
    const inherited = { ...networkColumnsOf(parent), preload, restarts, pg_version, cpu_bound };
    const change = { ...inherited, attempt: 0, due_at: new Date() };
    if (set.deleting) await changeService(tx, set, change, operation);
    else {
      const kind = inheritedOperation(set, parent, power, operation);
      const begun =
        kind === null ? operation : await beginOperation(tx, set, kind, HOWDAH, operation);
      await changeService(tx, set, { ...change, power, deleted_at: parent.deleted_at }, begun);
    }
    await notifyService(tx, id);
  }
}

/** Begins to delete the sets of a service that is going to be removed. */
export async function removeSets(tx: Tx, parentId: string): Promise<void> {
  if ((await lockRow(tx, parentId)) === undefined) return;
  for (const { id } of await setsOf(tx, parentId)) {
    const locked = await lockService(tx, id);
    if (locked === null || locked.service.deleting) continue;
    const begun = await beginOperation(tx, locked.service, 'delete', HOWDAH, locked.operation);
    await changeService(
      tx,
      locked.service,
      { deleting: true, attempt: 0, due_at: new Date() },
      begun,
    );
    await notifyService(tx, id);
  }
}

export async function deleteServiceRow(
  tx: Tx,
  { id, parent_id: parentId }: ServiceRow,
): Promise<void> {
  await tx.deleteFrom('services').where('id', '=', id).execute();
  if (parentId !== null) await writeSetsIntoDocument(tx, parentId);
}

/**
 * Ends the time in which a locked, deleted service is restored from this machine: its data is
 * removed.
 *
 * @param kept its backups in a repository; null: it cannot be restored any more, and loses its
 *   project
 */
export async function endRestoreTime(
  tx: Tx,
  service: ServiceRow,
  kept: Kept | null,
): Promise<ServiceRow> {
  const change = kept === null ? { project_id: null } : { kept, warnings: [] };
  return changeService(tx, service, { ...change, attempt: 0, due_at: new Date() }, null);
}

/**
 * Ends the time for a restore of a locked, deleted service before it is over.
 *
 * @param reason goes into the project's event
 */
export async function purgeDeleted(
  tx: Tx,
  service: ServiceRow,
  reason: 'requested' | 'disk full',
): Promise<void> {
  const facts = JSON.stringify({ service_id: service.id, name: service.name, reason });
  await endRestoreTime(tx, service, null);
  await notifyService(tx, service.id);
  await sql`select emit_event(${service.project_id}, 'service.purged', ${facts}::json)`.execute(tx);
}

// Names of the services of a project.

/**
 * The services of a project that have one of these names. Until the transaction ends, others that
 * ask wait.
 */
export async function lockServicesNamed(
  tx: Tx,
  projectId: string,
  names: readonly string[],
): Promise<readonly { id: string; name: string }[]> {
  const lock = sql`pg_advisory_xact_lock(hashtext('howdah service names'), hashtext(${projectId}))`;
  await sql`select ${lock}`.execute(tx);
  return tx
    .selectFrom('services')
    .select(['id', 'name'])
    .where('project_id', '=', projectId)
    .where(isListed)
    .where('name', 'in', names)
    .orderBy('id')
    .execute();
}

// Reads of read replica sets.

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
