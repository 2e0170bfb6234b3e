/** Reads of finished service documents. */
import type { Addon, Environment, LiveStatus, ServiceStatus } from '@howdah/contract';
import { sql } from 'kysely';
import type { Pool } from 'pg';
import { coalesced } from './coalesced-reads.ts';
import type { Db } from './tables.ts';

export type ServiceDoc = {
  key: string;
  project_id: string;
  region_code: string;
  status: LiveStatus;
  environment: Environment;
  /** The key that requested it. */
  created_by: string | null;
  doc: string;
  deleted: boolean;
  /** The service that a read replica set follows. */
  parent_id: string | null;
};

/** Which service, and in which region. */
export type ServicePlace = Pick<ServiceDoc, 'key' | 'region_code'>;

/** Reads finished documents by service id, of any project. Spares are not found. */
export function createDocumentReader(pool: Pool): (id: string) => Promise<ServiceDoc | null> {
  return coalesced<ServiceDoc>(
    pool,
    'service_docs',
    'select id as key, project_id, region_code, status, environment, created_by, doc, ' +
      'deleted_at is not null as deleted, parent_id from services where id = any($1) ' +
      'and project_id is not null',
  );
}

/** The add-ons that a service was created with; none if it is gone. */
export async function readAddons(db: Db, id: string): Promise<readonly Addon[]> {
  const row = await db
    .selectFrom('services')
    .select('addons')
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.addons ?? [];
}

/**
 * Reads a page of the documents of a project's services, oldest first, separated by commas.
 *
 * @param status null: any
 * @param after the last position of the page before (microseconds since the epoch, and an id);
 * null: the first page
 * @returns next: the position of the last one; null: there are no more
 */
export async function listServiceDocuments(
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
      `(created, id) > ('epoch'::timestamptz + $${values.push(micros)}::bigint * interval ` +
        `'1 microsecond', $${values.push(id)}::text)`,
    );
  }
  const page = `from services where ${conditions.join(' and ')} order by created, id`;
  const name = [
    'service_list',
    ...(status === null ? [] : ['status']),
    ...(after === null ? [] : ['after']),
  ].join(' ');
  // The documents arrive in index order. Sorting them again would take longer than reading them.
  const { rows } = await pool.query<{ docs: string | null; full: boolean }>({
    name,
    text:
      "select string_agg(doc, ',') as docs, count(*) = $2 as full from " +
      `(select doc ${page} limit $2) as page`,
    values,
  });
  const { docs, full } = rows[0] ?? { docs: null, full: false };
  return {
    json: docs ?? '',
    next: full ? await positionOfLastDocument(pool, `${name} last`, page, values) : null,
  };
}

/** The position of the last document of a full page; null: no document follows it. */
async function positionOfLastDocument(
  pool: Pool,
  name: string,
  page: string,
  values: unknown[],
): Promise<string | null> {
  const { rows } = await pool.query<{ position: string }>({
    name,
    text:
      "select (extract(epoch from created) * 1000000)::bigint || '-' || id " +
      `as position ${page} offset $2 - 1 limit 2`,
    values,
  });
  return rows.length < 2 ? null : (rows[0]?.position ?? null);
}

/**
 * The deleted services of a project that can be restored, newest first; `repository`: the name of
 * the one that has the backups, where nothing is left on this machine.
 */
export async function listDeletedServices(db: Db, projectId: string) {
  return db
    .selectFrom('services')
    .select(['id', 'name', 'service_type', 'environment', 'created_by', 'deleted_at', 'kept'])
    .select('region_code')
    .select((row) =>
      row
        .selectFrom('repositories')
        .select('repositories.name')
        .where(sql<boolean>`repositories.id = services.kept ->> 'repository'`)
        .as('repository'),
    )
    .where('project_id', '=', projectId)
    .where('parent_id', 'is', null)
    .where('deleted_at', 'is not', null)
    .orderBy('deleted_at', 'desc')
    .execute();
}
