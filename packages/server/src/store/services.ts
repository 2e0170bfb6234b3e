/** The metadata database of services. {@link changeService} is the only writer of what users see: status and document. */
import {
  defaultStorageGb,
  REPLICA_SET_STATUS,
  REPLICA_SET_TRANSITIONS,
  statusOf,
  statusOfReplicaSet,
  TRANSITIONS,
  type Addon,
  type Environment,
  type LiveStatus,
  type OperationKind,
  type ReadReplicaSet,
  type Service,
  type ServiceStatus,
  type ServiceType,
  type Size,
  type VpcEndpoint,
  type Warning,
} from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import type { Pool } from 'pg';
import type { HighAvailability, Origin, ServiceSpec, ServiceVpc } from '../engine/engine.ts';
import { notifyService, type Db, type Tables, type Tx } from './database.ts';
import { beginOperation, HOWDAH, type OperationRow } from './operations.ts';
import { newId } from '../lib/ids.ts';
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
    | 'created_by'
    | 'cpu_millis'
    | 'memory_gbs'
    | 'storage_gb'
    | 'purge'
    | 'power'
    | 'deleting'
    | 'deleted_at'
    | 'first_verifier'
    | 'replica_count'
    | 'sync_replica_count'
    | 'leave_member'
    | 'drill'
    | 'members'
    | 'primary_member'
    | 'read_replica_sets'
    | 'reachable'
    | 'memory_mb'
    | 'milli_cpu'
    | 'storage_mb'
    | 'warnings'
    | 'pooler'
    | 'pooler_port'
    | 'vpc_id'
    | 'vpc_address'
    | 'allowed_networks'
    | 'due_at'
    | 'attempt'
    | 'lease_token'
    | 'lease_until'
  >
>;

/** A status move that the contract's table does not know; a defect of ours. */
export class UnknownMove extends Error {}

// ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

export type ServiceDoc = {
  key: string;
  project_id: string;
  status: LiveStatus;
  environment: Environment;
  /** The key that asked for it. */
  created_by: string | null;
  doc: string;
  deleted: boolean;
  /** Of a read replica set: the service that it follows. */
  parent_id: string | null;
};

/** Looks finished documents up by service id, whatever the project; spares are nobody's and not found. */
export function docReader(pool: Pool): (id: string) => Promise<ServiceDoc | null> {
  return coalesced<ServiceDoc>(
    pool,
    'service_docs',
    'select id as key, project_id, status, environment, created_by, doc, deleted_at is not null as deleted, parent_id from services where id = any($1) and project_id is not null',
  );
}

/**
 * A page of the finished documents of a project's services, oldest first, separated by commas.
 *
 * @param status only those with this status; null: all
 * @param after the position of the last one before the page: microseconds since the epoch, and an id; null: the first page
 * @returns next: the position of the last one, where there are more
 */
export async function listDocs(
  pool: Pool,
  projectId: string,
  status: ServiceStatus | null,
  after: string | null,
  limit: number,
): Promise<{ json: string; next: string | null }> {
  const values: unknown[] = [projectId, limit];
  const conditions = ['project_id = $1', 'deleted_at is null', 'parent_id is null'];
  if (status !== null) conditions.push(`status = $${values.push(status)}`);
  if (after !== null) {
    const [micros, id] = after.split('-');
    conditions.push(
      `(created, id) > ('epoch'::timestamptz + $${values.push(micros)}::bigint * interval '1 microsecond', $${values.push(id)}::text)`,
    );
  }
  const page = `from services where ${conditions.join(' and ')} order by created, id`;
  const name = [
    'service_list',
    ...(status === null ? [] : ['status']),
    ...(after === null ? [] : ['after']),
  ].join(' ');
  // The documents arrive in the order of the index; to sort them once more would take longer than to read them.
  const { rows } = await pool.query<{ docs: string | null; full: boolean }>({
    name,
    text: `select string_agg(doc, ',') as docs, count(*) = $2 as full from (select doc ${page} limit $2) as page`,
    values,
  });
  const { docs, full } = rows[0] ?? { docs: null, full: false };
  return {
    json: docs ?? '',
    next: full ? await positionOfLast(pool, `${name} last`, page, values) : null,
  };
}

/** Where a full page ends, if there is more after it; null: it is the last one. */
async function positionOfLast(
  pool: Pool,
  name: string,
  page: string,
  values: unknown[],
): Promise<string | null> {
  const { rows } = await pool.query<{ position: string }>({
    name,
    text: `select (extract(epoch from created) * 1000000)::bigint || '-' || id as position ${page} offset $2 - 1 limit 2`,
    values,
  });
  return rows.length < 2 ? null : (rows[0]?.position ?? null);
}

/** The services of a project that are deleted and can be restored, newest first. */
export async function listDeleted(db: Db, projectId: string) {
  return db
    .selectFrom('services')
    .select(['id', 'name', 'service_type', 'environment', 'created_by', 'deleted_at'])
    .where('project_id', '=', projectId)
    .where('parent_id', 'is', null)
    .where('deleted_at', 'is not', null)
    .orderBy('deleted_at', 'desc')
    .execute();
}

/** A service with the operation under way. */
export type Locked = { service: ServiceRow; operation: OperationRow | null };

/** A service and its operation, locked for the rest of the transaction; null when it is gone. */
export async function lockService(tx: Tx, id: string): Promise<Locked | null> {
  const service = await lockRow(tx, id);
  return service === undefined
    ? null
    : { service, operation: await operationUnderWay(tx, service) };
}

/** Locks a service; of a read replica set its parent first, whose document changes with it: in this order everywhere, so that nobody waits in a circle. */
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

/** The operation under way on a service that the transaction holds locked. */
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

/** What the engine has to know of a service. */
export function specOf(row: ServiceRow): ServiceSpec {
  return {
    id: row.id,
    addons: row.addons,
    size: sizeOf(row),
    storageGb: row.storage_gb,
    // What is deleted stops; its desired state after a restore is kept.
    power: row.deleting ? 'paused' : row.power,
    endpoint: { host: row.host, port: row.port },
    firstVerifier: row.first_verifier,
    origin: row.origin,
    pooler: poolerOf(row),
    ha: highAvailabilityOf(row),
    vpc: vpcOf(row),
    set: row.parent_id === null ? null : { parent: row.parent_id, nodes: row.members },
  };
}

/** Where a service's pooler listens; null: it has none. */
function poolerOf(row: ServiceRow): { port: number } | null {
  return row.pooler && row.pooler_port !== null ? { port: row.pooler_port } : null;
}

function highAvailabilityOf(row: ServiceRow): HighAvailability | null {
  if (row.members.length === 0 || row.parent_id !== null) return null;
  return {
    members: row.members,
    primary: row.primary_member,
    sync: row.sync_replica_count,
    leave: row.leave_member,
    drill: row.drill,
  };
}

/** Of a service that is in a VPC: which, where, and whom it lets in. */
function vpcOf(row: ServiceRow): ServiceVpc | null {
  return row.vpc_id === null || row.allowed_networks === null
    ? null
    : { id: row.vpc_id, address: row.vpc_address, allowedNetworks: row.allowed_networks };
}

export function sizeOf(row: Pick<ServiceRow, 'cpu_millis' | 'memory_gbs'>): Size {
  return row.cpu_millis === null || row.memory_gbs === null
    ? 'shared'
    : { cpuMillis: row.cpu_millis, memoryGbs: row.memory_gbs };
}

export function sizeColumns(size: Size): { cpu_millis: number | null; memory_gbs: number | null } {
  return size === 'shared'
    ? { cpu_millis: null, memory_gbs: null }
    : { cpu_millis: size.cpuMillis, memory_gbs: size.memoryGbs };
}

// ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** The status of a service with this operation under way. */
export function statusWith(service: ServiceRow, operation: OperationRow | null): LiveStatus {
  if (service.deleting) return 'DELETING';
  const underWay =
    operation === null
      ? null
      : {
          kind: operation.kind,
          begun: operation.status === 'running',
          failing: operation.error !== null,
        };
  return (service.parent_id === null ? statusOf : statusOfReplicaSet)(
    service.power,
    service.reachable,
    underWay,
  );
}

const movesOf = ({ parent_id: parentId }: ServiceRow) =>
  parentId === null ? TRANSITIONS : REPLICA_SET_TRANSITIONS;

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
  const status = statusWith(changed, operation);
  if (
    status !== before.status &&
    before.project_id !== null &&
    !movesOf(before)[before.status].includes(status)
  ) {
    throw new UnknownMove(
      `service ${before.id}: ${before.status} → ${status} is no move of the contract`,
    );
  }
  const usage = status === 'READY' ? {} : { memory_mb: null, milli_cpu: null, storage_mb: null };
  const row: ServiceRow = { ...changed, ...usage, status, doc: '' };
  row.doc = JSON.stringify(documentOf(row));
  const { warnings, members, read_replica_sets: sets, ...facts } = change;
  const after = await tx
    .updateTable('services')
    .set({
      ...facts,
      ...usage,
      ...(warnings === undefined ? {} : { warnings: JSON.stringify(warnings) }),
      ...(members === undefined ? {} : { members: JSON.stringify(members) }),
      ...(sets === undefined ? {} : { read_replica_sets: JSON.stringify(sets) }),
      operation_id: row.operation_id,
      status,
      doc: row.doc,
    })
    .where('id', '=', before.id)
    .returningAll()
    .executeTakeFirstOrThrow();
  if (after.parent_id !== null) await showSets(tx, after.parent_id);
  if (after.read_replica_sets.length === 0 || !WHAT_SETS_FOLLOW.some((fact) => fact in change))
    return after;
  await takeSetsAlong(tx, after);
  return tx.selectFrom('services').selectAll().where('id', '=', after.id).executeTakeFirstOrThrow();
}

// ── read replica sets ────────────────────────────────────────────────────────────────────────────────────────────

/** What of a service changes its sets as well: whether they run and are seen, and where; and a larger primary asks more of those who follow it. */
const WHAT_SETS_FOLLOW = [
  'power',
  'deleting',
  'deleted_at',
  'cpu_millis',
  'vpc_id',
] as const satisfies (keyof ServiceChange)[];

/** The sets of a service, in the order of their creation. The service is locked, so that nobody changes them. */
async function setsOf(tx: Tx, parentId: string): Promise<ServiceRow[]> {
  return tx
    .selectFrom('services')
    .selectAll()
    .where('parent_id', '=', parentId)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

/** What users see of the sets of a service. */
export async function replicaSetsOf(db: Db, parentId: string): Promise<ReadReplicaSet[]> {
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
export async function setsGoOn(db: Db, parentId: string): Promise<boolean> {
  const row = await db
    .selectFrom('services')
    .select('id')
    .where('parent_id', '=', parentId)
    .where('operation_id', 'is not', null)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** The parents of forks that may still have to be made, whatever they are told to do by now: nothing that these may begin with is removed. */
export async function parentsOfForks(db: Db): Promise<Set<string>> {
  const rows = await db
    .selectFrom('operations')
    .innerJoin('services', 'services.id', 'operations.service_id')
    .select('services.origin')
    .where('operations.finished', 'is', null)
    .where('operations.kind', 'not in', ['verifyBackup', 'delete'])
    .where('services.origin', 'is not', null)
    .where((where) => {
      const made = where
        .selectFrom('operations as done')
        .select('done.id')
        .whereRef('done.service_id', '=', 'services.id')
        .where('done.status', '=', 'succeeded')
        .where('done.kind', 'in', ['fork', 'start', 'resize', 'restore', 'repair']);
      return where.not(where.exists(made));
    })
    .execute();
  return new Set(rows.flatMap(({ origin }) => origin?.parent ?? []));
}

/** Writes what users see of a service's sets into its document. */
async function showSets(tx: Tx, parentId: string): Promise<void> {
  const locked = await lockService(tx, parentId);
  if (locked === null) return;
  const shown = (await setsOf(tx, parentId)).map(replicaSetDocument);
  if (JSON.stringify(shown) === JSON.stringify(locked.service.read_replica_sets)) return;
  await changeService(tx, locked.service, { read_replica_sets: shown }, locked.operation);
}

/** Where a service stands. Its sets stand there too: at its address, each on the port of its own. */
export function standingOf({ vpc_id, vpc_address, allowed_networks }: ServiceRow): ServiceChange {
  return { vpc_id, vpc_address, allowed_networks };
}

/** Sets run while their service does, are seen while it is, and stand where it does; each stops, starts and moves by an operation of its own. */
async function takeSetsAlong(tx: Tx, parent: ServiceRow): Promise<void> {
  const power = parent.deleting ? 'paused' : parent.power;
  for (const { id } of await setsOf(tx, parent.id)) {
    const locked = await lockService(tx, id);
    if (locked === null) continue;
    const { service: set, operation } = locked;
    const change = { ...standingOf(parent), attempt: 0, due_at: new Date() };
    if (set.deleting) await changeService(tx, set, change, operation);
    else {
      const kind = whatTakesAlong(set, parent, power, operation);
      const begun =
        kind === null ? operation : await beginOperation(tx, set, kind, HOWDAH, operation);
      await changeService(tx, set, { ...change, power, deleted_at: parent.deleted_at }, begun);
    }
    await notifyService(tx, id);
  }
}

/** The operation by which a set follows its service; null: none, or the one that is under way. */
function whatTakesAlong(
  set: ServiceRow,
  parent: ServiceRow,
  power: ServiceRow['power'],
  underWay: OperationRow | null,
): OperationKind | null {
  if (power !== set.power) return power === 'running' ? 'start' : 'stop';
  if (set.vpc_id === parent.vpc_id || underWay !== null || parent.deleted_at !== null) return null;
  return parent.vpc_id === null ? 'detachFromVPC' : 'attachToVPC';
}

/** Before a service is removed, its sets are. */
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

/** Where clients inside its VPC reach it; null: it is in none. */
function vpcEndpointOf({ vpc_id, vpc_address, host, port }: ServiceRow): VpcEndpoint | null {
  return vpc_id === null ? null : { host: vpc_address ?? host, port, vpc_id };
}

/** What users see of a read replica set beside its document as a service. */
export function replicaSetDocument(row: ServiceRow): ReadReplicaSet {
  const [pooler, vpcEndpoint] = [poolerOf(row), vpcEndpointOf(row)];
  return {
    id: row.id,
    name: row.name,
    nodes: row.members.length,
    cpu_millis: row.cpu_millis ?? 0,
    memory_gbs: row.memory_gbs ?? 0,
    endpoint: { host: row.host, port: row.port },
    ...(pooler === null
      ? {}
      : { connection_pooler: { endpoint: { host: row.host, port: pooler.port } } }),
    ...(vpcEndpoint === null ? {} : { vpc_endpoint: vpcEndpoint }),
    metadata: { environment: row.environment },
    status: REPLICA_SET_STATUS[row.status],
  };
}

/** The document of a service as the API answers it. */
export function documentOf(row: ServiceRow): Service {
  const [pooler, vpcEndpoint] = [poolerOf(row), vpcEndpointOf(row)];
  return {
    service_id: row.id,
    project_id: row.project_id ?? '',
    name: row.name,
    service_type: row.service_type,
    status: row.status,
    region_code: row.region_code,
    created: row.created.toISOString(),
    ...(row.created_by === null ? {} : { created_by: row.created_by }),
    endpoint: { host: row.host, port: row.port },
    ...(pooler === null
      ? {}
      : { connection_pooler: { endpoint: { host: row.host, port: pooler.port } } }),
    ...(vpcEndpoint === null ? {} : { vpc_endpoint: vpcEndpoint, vpcEndpoint }),
    ...(row.origin === null
      ? {}
      : {
          forked_from: {
            project_id: row.project_id ?? '',
            service_id: row.origin.parent,
            is_standby: false,
          },
        }),
    ...(row.parent_id === null
      ? {}
      : {
          forked_from: {
            project_id: row.project_id ?? '',
            service_id: row.parent_id,
            is_standby: true,
          },
        }),
    ha_replicas: { replica_count: row.replica_count, sync_replica_count: row.sync_replica_count },
    metadata: { environment: row.environment },
    metrics: { memory_mb: row.memory_mb, milli_cpu: row.milli_cpu, storage_mb: row.storage_mb },
    read_replica_sets: row.read_replica_sets,
    resources: [
      {
        id: row.resource_id,
        spec: {
          ...(row.cpu_millis === null || row.memory_gbs === null
            ? {}
            : { cpu_millis: row.cpu_millis, memory_gbs: row.memory_gbs }),
          storage_gb: row.storage_gb,
          volume_type: 'local',
        },
      },
    ],
    ...(row.warnings.length === 0 ? {} : { warnings: row.warnings }),
  };
}

export type NewService = {
  region: string;
  serviceType: ServiceType;
  addons: readonly Addon[];
  size: Size;
  /** Default: by the size. */
  storageGb?: number;
  host: string;
  port: number;
  origin: Origin | null;
  /** Of a read replica set: the service that it follows. */
  parent?: string;
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
      storage_gb: spare.storageGb ?? defaultStorageGb(spare.size),
      power: 'running',
      first_verifier: null,
      origin: spare.origin === null ? null : JSON.stringify(spare.origin),
      parent_id: spare.parent ?? null,
      deleted_at: null,
      leave_member: null,
      drill: null,
      vpc_id: null,
      vpc_address: null,
      allowed_networks: null,
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
export async function takeSpare(
  tx: Tx,
  wanted: { region: string; addons: readonly Addon[]; size: Size },
): Promise<ServiceRow | null> {
  const { cpu_millis, memory_gbs } = sizeColumns(wanted.size);
  const row = await tx
    .selectFrom('services')
    .selectAll()
    .where('project_id', 'is', null)
    .where('region_code', '=', wanted.region)
    .where('reachable', '=', true)
    .where('deleting', '=', false)
    .where(sql<boolean>`addons = ${[...wanted.addons]}::text[]`)
    .where(
      sql<boolean>`(cpu_millis, memory_gbs) is not distinct from (${cpu_millis}::int, ${memory_gbs}::int)`,
    )
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
 * @param besides ports that the transaction has handed out and not written yet
 * @returns null when all are taken
 */
export async function nextPort(
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
  const port = await nextFree(tx, region, [first, last], after ?? last_port, besides);
  if (port !== null)
    await tx.updateTable('regions').set({ last_port: port }).where('code', '=', region).execute();
  return port;
}

/** Whether another project has services in a region, or deleted ones that can be restored. Others who ask wait for the end of the transaction. */
export async function isAnotherProjectIn(
  tx: Tx,
  region: string,
  projectId: string,
): Promise<boolean> {
  await tx.selectFrom('regions').select('code').where('code', '=', region).forUpdate().execute();
  const other = tx
    .selectFrom('services')
    .select('id')
    .where('project_id', 'is not', null)
    .where('project_id', '!=', projectId);
  return (await other.where('region_code', '=', region).limit(1).executeTakeFirst()) !== undefined;
}

/**
 * The first port after another that is not promised, around the end of the range. One after the other is looked up until one is free: the series
 * comes in its order, and to ask for that order would have all of them looked up.
 */
async function nextFree(
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

/**
 * Records another member as the primary, if `from` is recorded now; it is promoted afterwards.
 *
 * @returns the primary from now on; null: the service is gone
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
  return result.numUpdatedRows > 0n ? to : primaryOf(db, id);
}

/** The primary of a service, by the metadata database; null: the service is gone. */
export async function primaryOf(db: Db, id: string): Promise<number | null> {
  const row = await db
    .selectFrom('services')
    .select('primary_member')
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.primary_member ?? null;
}

/** Takes up a drill that was asked for. One that is interrupted is not begun again. @returns whether there was one to take up */
export async function takeDrill(db: Db, id: string): Promise<boolean> {
  const result = await db
    .updateTable('services')
    .set({ drill: null })
    .where('id', '=', id)
    .where('drill', 'is not', null)
    .executeTakeFirst();
  return result.numUpdatedRows > 0n;
}

export async function deleteService(
  tx: Tx,
  { id, parent_id: parentId }: ServiceRow,
): Promise<void> {
  await tx.deleteFrom('services').where('id', '=', id).execute();
  if (parentId !== null) await showSets(tx, parentId);
}

/**
 * Ends the time for a restore of a deleted service that the transaction holds locked: from here on it is nobody's, and its data is removed.
 *
 * @param reason for the project's events
 */
export async function purgeDeleted(
  tx: Tx,
  service: ServiceRow,
  reason: 'requested' | 'disk full',
): Promise<void> {
  const facts = JSON.stringify({ service_id: service.id, name: service.name, reason });
  await changeService(tx, service, { project_id: null, attempt: 0, due_at: new Date() }, null);
  await notifyService(tx, service.id);
  await sql`select emit_event(${service.project_id}, 'service.purged', ${facts}::json)`.execute(tx);
}

/** What each service that runs may take of the disk, read replica sets and spares among them. */
export async function storageQuotas(
  db: Db,
): Promise<{ id: string; storageGb: number; hasOwner: boolean }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'storage_gb', 'project_id', 'parent_id'])
    .where('power', '=', 'running')
    .where('deleting', '=', false)
    .execute();
  return rows.map((row) => ({
    id: row.id,
    storageGb: row.storage_gb,
    hasOwner: row.project_id !== null && row.parent_id === null,
  }));
}

/** The deleted service that can be restored and was deleted first; null: there is none, or one is being purged already. */
export async function nextToPurge(db: Db): Promise<string | null> {
  const deleted = db
    .selectFrom('services')
    .where('deleted_at', 'is not', null)
    .where('parent_id', 'is', null);
  if (
    (await deleted.select('id').where('project_id', 'is', null).limit(1).executeTakeFirst()) !==
    undefined
  )
    return null;
  const row = await deleted
    .select('id')
    .where('project_id', 'is not', null)
    .orderBy('deleted_at')
    .limit(1)
    .executeTakeFirst();
  return row?.id ?? null;
}

/** How many services are in each status. */
export async function statusCounts(db: Db): Promise<{ status: LiveStatus; count: number }[]> {
  return db
    .selectFrom('services')
    .select(['status', sql<number>`count(*)::int`.as('count')])
    .where('project_id', 'is not', null)
    .where('deleted_at', 'is', null)
    .where('parent_id', 'is', null)
    .groupBy('status')
    .execute();
}

/** Services that run or should: those that accept connections, and those that cannot be reached. */
export async function servicesByReach(
  db: Db,
): Promise<{ id: string; type: ServiceType; up: boolean }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'service_type', 'status'])
    .where('project_id', 'is not', null)
    .where('deleted_at', 'is', null)
    .where('parent_id', 'is', null)
    .where('status', 'in', ['READY', 'UNSTABLE'])
    .execute();
  return rows.map(({ id, service_type: type, status }) => ({ id, type, up: status === 'READY' }));
}

/** Services that run with replicas, and read replica sets that run. */
export async function replicatedServices(db: Db): Promise<{ id: string; isSet: boolean }[]> {
  const rows = await db
    .selectFrom('services')
    .select(['id', 'parent_id'])
    .where('project_id', 'is not', null)
    .where('power', '=', 'running')
    .where('deleting', '=', false)
    .where((where) =>
      where.or([where('parent_id', 'is not', null), where('replica_count', '>', 0)]),
    )
    .execute();
  return rows.map(({ id, parent_id: parent }) => ({ id, isSet: parent !== null }));
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
  const fits = (row: { host: string; addons: Addon[] }) =>
    row.host === wanted.host && row.addons.join() === wanted.addons.join();
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

/** Services whose desired state is to run: READY or UNSTABLE. They are checked for warnings. */
export async function readyOrUnstableServices(db: Db): Promise<string[]> {
  const rows = await db
    .selectFrom('services')
    .select('id')
    .where('project_id', 'is not', null)
    .where('deleted_at', 'is', null)
    .where('parent_id', 'is', null)
    .where('status', 'in', ['READY', 'UNSTABLE'])
    .execute();
  return rows.map(({ id }) => id);
}

/** Services that accept connections: those whose use is sampled, read replica sets among them where they are asked for. */
export async function runningServices(
  db: Db,
  sets: 'with sets' | 'without sets' = 'without sets',
): Promise<string[]> {
  let query = db
    .selectFrom('services')
    .select('id')
    .where('project_id', 'is not', null)
    .where('deleted_at', 'is', null)
    .where('status', '=', 'READY');
  if (sets === 'without sets') query = query.where('parent_id', 'is', null);
  return (await query.execute()).map(({ id }) => id);
}

/**
 * Services that do not run and warn of another disk than this: what else they warn of is looked at while they run.
 *
 * @param disk the warning of the disk; null: there is nothing to warn of
 */
export async function silentServicesWithoutWarning(
  db: Db,
  disk: Warning | null,
): Promise<string[]> {
  let query = db
    .selectFrom('services')
    .select('id')
    .where('project_id', 'is not', null)
    .where('deleting', '=', false)
    .where('parent_id', 'is', null)
    .where('status', 'not in', ['READY', 'UNSTABLE'])
    .where(
      sql<boolean>`(select warning from jsonb_array_elements(warnings) as warning where warning ->> 'code' = 'DISK')
                   is distinct from ${disk === null ? null : JSON.stringify(disk)}::jsonb`,
    );
  // As it is nearly always: only those that warn of something can warn of a disk that is well.
  if (disk === null) query = query.where(sql<boolean>`warnings <> '[]'`);
  const rows = await query.execute();
  return rows.map(({ id }) => id);
}
