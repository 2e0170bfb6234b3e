/** The records of services. {@link changeService} is the only writer of what users see: status and document. */
import {
  statusOf,
  TRANSITIONS,
  type Addon,
  type Environment,
  type LiveStatus,
  type Service,
  type ServiceType,
  type Size,
} from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import type { Pool } from 'pg';
import type { Origin, ServiceSpec } from '../engine/engine.ts';
import type { Db, Tables, Tx } from './database.ts';
import type { OperationRow } from './operations.ts';
import { newId } from '../ids.ts';
import { coalesced } from './read.ts';

export type ServiceRow = Selectable<Tables['services']>;

/** The facts of a service that callers may change. Everything else follows from them. */
export type ServiceChange = Partial<
  Pick<
    ServiceRow,
    | 'project_id'
    | 'name'
    | 'environment'
    | 'created'
    | 'cpu_millis'
    | 'memory_gbs'
    | 'power'
    | 'deleting'
    | 'deleted_at'
    | 'first_verifier'
    | 'reachable'
    | 'memory_mb'
    | 'milli_cpu'
    | 'storage_mb'
    | 'due_at'
    | 'attempt'
  >
>;

/** A status move that the contract's table does not know; a defect of ours. */
export class UnknownMove extends Error {}

// ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

export type ServiceDoc = { key: string; project_id: string; status: LiveStatus; environment: Environment; doc: string; deleted: boolean };

/** Looks finished documents up by service id, whatever the project; spares are nobody's and not found. */
export function docReader(pool: Pool): (id: string) => Promise<ServiceDoc | null> {
  return coalesced<ServiceDoc>(
    pool,
    'service_docs',
    'select id as key, project_id, status, environment, doc, deleted_at is not null as deleted from services where id = any($1) and project_id is not null',
  );
}

/** The finished JSON array of a project's services, oldest first. */
export async function listDocs(pool: Pool, projectId: string): Promise<string> {
  const { rows } = await pool.query<{ docs: string | null }>({
    name: 'service_list',
    text: "select string_agg(doc, ',' order by created, id) as docs from services where project_id = $1 and deleted_at is null",
    values: [projectId],
  });
  return `[${rows[0]?.docs ?? ''}]`;
}

/** A service with the operation under way, locked for the rest of the transaction; null when it is gone. */
export async function lockService(tx: Tx, id: string): Promise<{ service: ServiceRow; operation: OperationRow | null } | null> {
  const service = await tx.selectFrom('services').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
  if (service === undefined) return null;
  const operation =
    service.operation_id === null
      ? undefined
      : await tx
          .selectFrom('operations')
          .selectAll()
          .where('id', '=', service.operation_id)
          .where('finished', 'is', null)
          .executeTakeFirst();
  return { service, operation: operation ?? null };
}

/** What the engine has to know of a service. */
export function specOf(row: ServiceRow): ServiceSpec {
  return {
    id: row.id,
    addons: row.addons,
    size: sizeOf(row),
    // What is deleted stops; what it shall do after a restore is not forgotten.
    power: row.deleting ? 'paused' : row.power,
    endpoint: { host: row.host, port: row.port },
    firstVerifier: row.first_verifier,
    origin: row.origin,
  };
}

export function sizeOf(row: Pick<ServiceRow, 'cpu_millis' | 'memory_gbs'>): Size {
  return row.cpu_millis === null || row.memory_gbs === null ? 'shared' : { cpuMillis: row.cpu_millis, memoryGbs: row.memory_gbs };
}

export function sizeColumns(size: Size): { cpu_millis: number | null; memory_gbs: number | null } {
  return size === 'shared' ? { cpu_millis: null, memory_gbs: null } : { cpu_millis: size.cpuMillis, memory_gbs: size.memoryGbs };
}

// ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Changes a service that the transaction holds locked: writes the facts, and the status and document that follow from them and
 * from the operation under way. No other statement touches those two.
 *
 * @param operation the operation under way after the change; null: none
 * @returns the row as it is now
 */
export async function changeService(
  tx: Tx,
  before: ServiceRow,
  change: ServiceChange,
  operation: OperationRow | null,
): Promise<ServiceRow> {
  const changed = { ...before, ...change, operation_id: operation?.id ?? null };
  const underWay =
    operation === null ? null : { kind: operation.kind, begun: operation.status === 'running', failing: operation.error !== null };
  const status = changed.deleting ? 'DELETING' : statusOf(changed.power, changed.reachable, underWay);
  if (status !== before.status && before.project_id !== null && !TRANSITIONS[before.status].includes(status)) {
    throw new UnknownMove(`service ${before.id}: ${before.status} → ${status} is no move of the contract`);
  }
  const usage = status === 'READY' ? {} : { memory_mb: null, milli_cpu: null, storage_mb: null };
  const row: ServiceRow = { ...changed, ...usage, status, doc: '' };
  row.doc = JSON.stringify(documentOf(row));
  return tx
    .updateTable('services')
    .set({ ...change, ...usage, operation_id: row.operation_id, status, doc: row.doc })
    .where('id', '=', before.id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** The document of a service as the API answers it. */
export function documentOf(row: ServiceRow): Service {
  return {
    service_id: row.id,
    project_id: row.project_id ?? '',
    name: row.name,
    service_type: row.service_type,
    status: row.status,
    region_code: row.region_code,
    created: row.created.toISOString(),
    endpoint: { host: row.host, port: row.port },
    ...(row.origin === null ? {} : { forked_from: { project_id: row.project_id ?? '', service_id: row.origin.parent, is_standby: false } }),
    ha_replicas: { replica_count: 0, sync_replica_count: 0 },
    metadata: { environment: row.environment },
    metrics: { memory_mb: row.memory_mb, milli_cpu: row.milli_cpu, storage_mb: row.storage_mb },
    read_replica_sets: [],
    resources: [
      {
        id: row.resource_id,
        spec: {
          ...(row.cpu_millis === null || row.memory_gbs === null ? {} : { cpu_millis: row.cpu_millis, memory_gbs: row.memory_gbs }),
          volume_type: 'local',
        },
      },
    ],
  };
}

export type NewService = {
  region: string;
  serviceType: ServiceType;
  addons: readonly Addon[];
  size: Size;
  host: string;
  port: number;
  origin: Origin | null;
};

/** Inserts a service that nobody owns yet: a spare. {@link changeService} makes it somebody's. */
export async function insertSpare(tx: Tx, spare: NewService): Promise<ServiceRow> {
  return tx
    .insertInto('services')
    .values({
      id: newId(),
      project_id: null,
      region_code: spare.region,
      name: 'spare',
      service_type: spare.serviceType,
      addons: [...spare.addons],
      environment: 'DEV',
      host: spare.host,
      port: spare.port,
      resource_id: newId(),
      ...sizeColumns(spare.size),
      power: 'running',
      first_verifier: null,
      origin: spare.origin === null ? null : JSON.stringify(spare.origin),
      deleted_at: null,
      memory_mb: null,
      milli_cpu: null,
      storage_mb: null,
      operation_id: null,
      status: 'QUEUED',
      doc: '',
      lease_token: null,
      lease_until: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** A running spare for these add-ons and this size, locked; null where there is none. */
export async function takeSpare(tx: Tx, wanted: { region: string; addons: readonly Addon[]; size: Size }): Promise<ServiceRow | null> {
  const { cpu_millis, memory_gbs } = sizeColumns(wanted.size);
  const row = await tx
    .selectFrom('services')
    .selectAll()
    .where('project_id', 'is', null)
    .where('region_code', '=', wanted.region)
    .where('reachable', '=', true)
    .where('deleting', '=', false)
    .where(sql<boolean>`addons = ${[...wanted.addons]}::text[]`)
    .where(sql<boolean>`(cpu_millis, memory_gbs) is not distinct from (${cpu_millis}::int, ${memory_gbs}::int)`)
    .orderBy('created')
    .limit(1)
    .forUpdate()
    .skipLocked()
    .executeTakeFirst();
  return row ?? null;
}

/** Spares that are there or on their way, by their add-ons. */
export async function countSpares(db: Db, region: string): Promise<Map<string, number>> {
  const rows = await db
    .selectFrom('services')
    .select(['addons', sql<number>`count(*)::int`.as('count')])
    .where('project_id', 'is', null)
    .where('region_code', '=', region)
    .where('deleting', '=', false)
    .groupBy('addons')
    .execute();
  return new Map(rows.map(({ addons, count }) => [addons.join('+'), count]));
}

/** Makes sure that a region is known. */
export async function insertRegion(db: Db, code: string, firstPort: number): Promise<void> {
  await db
    .insertInto('regions')
    .values({ code, last_port: firstPort - 1 })
    .onConflict((conflict) => conflict.column('code').doNothing())
    .execute();
}

/**
 * The next port of a region that no service has, beginning after the one handed out last, so that a port rests
 * before somebody else gets it. Locks the region until the transaction ends: two creates take turns.
 *
 * @param after where to go on when the port before it turned out to be taken on the machine
 * @returns null when all are taken
 */
export async function nextPort(
  tx: Tx,
  region: string,
  [first, last]: readonly [number, number],
  after: number | null,
): Promise<number | null> {
  const { last_port } = await tx.selectFrom('regions').select('last_port').where('code', '=', region).forUpdate().executeTakeFirstOrThrow();
  const from = after ?? last_port;
  const { rows } = await sql<{ port: number }>`
    select port from (
      select generate_series(greatest(${from}::int + 1, ${first}::int), ${last}::int) as port
      union all
      select generate_series(${first}::int, least(${from}::int, ${last}::int))
    ) as candidates
    where not exists (select from services where region_code = ${region} and services.port = candidates.port)
    limit 1`.execute(tx);
  const port = rows[0]?.port ?? null;
  if (port !== null) await tx.updateTable('regions').set({ last_port: port }).where('code', '=', region).execute();
  return port;
}

export async function deleteService(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('services').where('id', '=', id).execute();
}

/** How many services are in each status. */
export async function statusCounts(db: Db): Promise<{ status: LiveStatus; count: number }[]> {
  return db
    .selectFrom('services')
    .select(['status', sql<number>`count(*)::int`.as('count')])
    .where('project_id', 'is not', null)
    .where('deleted_at', 'is', null)
    .groupBy('status')
    .execute();
}

/** Spares that no create will take: of another kind or host than wanted now, or more than are kept. */
export async function staleSpares(
  db: Db,
  region: string,
  wanted: { addons: readonly Addon[]; host: string; keep: number },
): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'host', 'addons'])
    .where('project_id', 'is', null)
    .where('region_code', '=', region)
    .where('deleting', '=', false)
    .orderBy('created')
    .execute();
  const fits = (row: { host: string; addons: Addon[] }) => row.host === wanted.host && row.addons.join() === wanted.addons.join();
  const kept = new Set(
    rows
      .filter(fits)
      .slice(0, wanted.keep)
      .map(({ id }) => id),
  );
  return rows.map(({ id }) => id).filter((id) => !kept.has(id));
}

/** Services that were last seen to accept connections, spares among them. */
export async function reachableServices(db: Db): Promise<string[]> {
  const rows = await db.selectFrom('services').select('id').where('reachable', '=', true).execute();
  return rows.map(({ id }) => id);
}

/** Services that accept connections: those whose use is sampled. */
export async function runningServices(db: Db): Promise<string[]> {
  const rows = await db.selectFrom('services').select('id').where('project_id', 'is not', null).where('status', '=', 'READY').execute();
  return rows.map(({ id }) => id);
}
