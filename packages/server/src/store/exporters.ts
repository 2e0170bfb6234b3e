/**
 * The SQL of exporters. The samples that they push are those of the table `samples`, from the time
 * `exported_until` of each service on: there is no other queue.
 */
import { SHARED_CPU_MILLIS, type ExporterType } from '@howdah/contract';
import { randomUUID } from 'node:crypto';
import { type Selectable, sql } from 'kysely';
import type { PublicConfig } from '../domain/exporter/document.ts';
import type { ExportedSample } from '../domain/exporter/figures.ts';
import { PRIMARY } from './engine-records.ts';
import type { Db, Tables, Tx } from './tables.ts';

export type ExporterRow = Selectable<Tables['exporters']>;

/** Samples that are older are not pushed: receivers refuse old ones, and the queue must end. */
const PUSHED_WITHIN = '1 hour';
/** Samples of one request. All samples of one moment are in the same request. */
const BATCH = 500;

export async function listExporters(db: Db, projectId: string): Promise<ExporterRow[]> {
  return db
    .selectFrom('exporters')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

/** @param id its id, or the one that it had before */
export async function findExporter(
  db: Db,
  projectId: string,
  id: string,
): Promise<ExporterRow | null> {
  const row = await exporterById(db, id).where('project_id', '=', projectId).executeTakeFirst();
  return row ?? null;
}

/** The exporter with this id in any project: its endpoint is reached without a key. */
export async function readExporter(db: Db, id: string): Promise<ExporterRow | null> {
  return (await exporterById(db, id).executeTakeFirst()) ?? null;
}

const exporterById = (db: Db, id: string) =>
  db
    .selectFrom('exporters')
    .selectAll()
    .where((where) => where.or([where('id', '=', id), where('former_id', '=', id)]));

/** Locks an exporter for the transaction. `share`: it stays; `update`: no service gets it. */
export async function lockExporter(
  tx: Tx,
  projectId: string,
  id: string,
  how: 'share' | 'update',
): Promise<ExporterRow | null> {
  const query = tx
    .selectFrom('exporters')
    .selectAll()
    .where('project_id', '=', projectId)
    .where('id', '=', id);
  const row = await (how === 'share' ? query.forKeyShare() : query.forUpdate()).executeTakeFirst();
  return row ?? null;
}

export type NewExporter = {
  project_id: string;
  region_code: string;
  region_alias: string | null;
  name: string;
  type: ExporterType;
  config: PublicConfig;
  secret: Buffer | null;
};

export async function insertExporter(tx: Tx, exporter: NewExporter): Promise<ExporterRow> {
  return tx
    .insertInto('exporters')
    .values({
      id: randomUUID(),
      former_id: null,
      ...exporter,
      config: JSON.stringify(exporter.config),
      last_success: null,
      last_error: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Changes an exporter, which is tried again at once. */
export async function updateExporterRow(
  tx: Tx,
  id: string,
  { config, ...more }: Pick<NewExporter, 'name' | 'config' | 'secret'>,
): Promise<ExporterRow> {
  return tx
    .updateTable('exporters')
    .set({ ...more, config: JSON.stringify(config), next_at: sql<Date>`now()`, failures: 0 })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

export async function deleteExporterRow(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('exporters').where('id', '=', id).execute();
}

/** Has the samples of a locked service and of its sets pushed from now on. */
export async function exportFromNow(tx: Tx, serviceId: string): Promise<void> {
  await tx
    .updateTable('services')
    .set({ exported_until: sql<Date>`now()` })
    .where((where) => where.or([where('id', '=', serviceId), where('parent_id', '=', serviceId)]))
    .execute();
}

/** In SQL: the services that an exporter gets samples of, with their read replica sets. */
const attachedTo = (exporter: string) => `
  select id, coalesce(region_alias, region_code) as region, project_id, parent_id,
         cpu_millis, memory_gbs, exported_until
  from services
  where metric_exporter_id = ${exporter} and project_id is not null and deleted_at is null
  union all
  select c.id, coalesce(c.region_alias, c.region_code), c.project_id, c.parent_id,
         c.cpu_millis, c.memory_gbs, c.exported_until
  from services p join services c on c.parent_id = p.id
  where p.metric_exporter_id = ${exporter} and p.project_id is not null and p.deleted_at is null`;

/** In SQL: samples `t` of services `s` of {@link attachedTo}, as {@link ExportedSample}. */
const EXPORTED = `
  s.project_id as "projectId", s.id as "serviceId", s.region, t.node, t.at,
  case when s.parent_id is null and t.node = ${PRIMARY} then 'primary' else 'replica' end as role,
  t.cpu_millis, t.memory_bytes::float8 as memory_bytes, t.storage_bytes::float8 as storage_bytes,
  t.connections, t.transactions_per_second, t.lag_bytes::float8 as lag_bytes, t.lag_seconds,
  t.cpu_wait_millis, t.write_wait_millis,
  coalesce(s.cpu_millis, ${SHARED_CPU_MILLIS}) as cpu_guaranteed_millis,
  s.memory_gbs * 1073741824::float8 as memory_limit_bytes`;

const UNSENT = `t.service_id = s.id
  and t.at > greatest(s.exported_until, now() - interval '${PUSHED_WITHIN}')`;

/** Exporters that push, have samples to push, and do not wait after a failure. */
export async function listDueExporters(db: Db): Promise<ExporterRow[]> {
  const { rows } = await sql<ExporterRow>`
    select e.* from exporters e
    where e.type <> 'PROMETHEUS_METRICS' and e.next_at <= now()
      and exists (
        select from (${sql.raw(attachedTo('e.id'))}) s join samples t on ${sql.raw(UNSENT)}
      )`.execute(db);
  return rows;
}

/** The oldest samples that an exporter has not pushed. */
export async function readUnsent(db: Db, exporterId: string): Promise<ExportedSample[]> {
  const { rows } = await sql<ExportedSample>`
    with e as (select ${exporterId}::text as id)
    select ${sql.raw(EXPORTED)}
    from e, lateral (${sql.raw(attachedTo('e.id'))}) s join samples t on ${sql.raw(UNSENT)}
    order by t.at fetch first ${sql.lit(BATCH)} rows with ties`.execute(db);
  return rows;
}

/** The last sample of each server of an exporter, none older than two rounds of the sampler. */
export async function readLatest(db: Db, exporterId: string): Promise<ExportedSample[]> {
  const { rows } = await sql<ExportedSample>`
    with e as (select ${exporterId}::text as id)
    select distinct on (s.id, t.node) ${sql.raw(EXPORTED)}
    from e, lateral (${sql.raw(attachedTo('e.id'))}) s join samples t on t.service_id = s.id
    where t.at between now() - interval '150 seconds' and now() + interval '150 seconds'
    order by s.id, t.node, t.at desc`.execute(db);
  return rows;
}

/**
 * Records that the samples of a service up to a time are pushed, or given up. The time never goes
 * back: another exporter, attached meanwhile, gets none from before.
 */
export async function noteExported(db: Db, serviceId: string, until: Date): Promise<void> {
  await db
    .updateTable('services')
    .set({ exported_until: until })
    .where('id', '=', serviceId)
    .where(sql<boolean>`coalesce(exported_until < ${until}, true)`)
    .execute();
}

/** Records a push. @param failure null: the receiver accepted it */
export async function notePush(
  db: Db,
  id: string,
  failure: { error: string; retryAfterMs: number } | null,
): Promise<void> {
  await db
    .updateTable('exporters')
    .set(
      failure === null
        ? { last_success: sql<Date>`now()`, last_error: null, failures: 0 }
        : {
            last_error: failure.error,
            failures: sql<number>`failures + 1`,
            next_at: sql<Date>`now() + ${`${failure.retryAfterMs} ms`}::interval`,
          },
    )
    .where('id', '=', id)
    .execute();
}
