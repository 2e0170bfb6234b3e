/** The SQL of what services take. */
import { sql } from 'kysely';
import type { UsageFacts } from '../domain/service/usage.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Db } from './tables.ts';

export type UsageRow = UsageFacts & Pick<ServiceRow, 'region_code'> & { position: string };

/**
 * A page of the services of a project, oldest first: deleted ones and read replica sets too.
 *
 * @param after the position of the last one of the page before: microseconds, and an id
 */
export async function listUsageFacts(
  db: Db,
  projectId: string,
  after: string | null,
  limit: number,
): Promise<UsageRow[]> {
  const [micros = '0', id = ''] = after?.split('-') ?? [];
  const position = sql<string>`
    (extract(epoch from services.created) * 1000000)::bigint || '-' || services.id`;
  return db
    .selectFrom('services')
    .leftJoin('api_keys', 'api_keys.public_key', 'services.created_by')
    .select([
      'services.id',
      'services.name',
      'services.region_code',
      'services.status',
      'services.environment',
      'services.created',
      'services.created_by',
      'services.origin',
      'services.parent_id',
      'services.nodes',
      'services.replica_count',
      'services.deleted_at',
      'services.kept',
      'services.expires_at',
      'services.suspended_at',
      'services.auto_suspend_seconds',
      'services.power',
      'services.milli_cpu',
      'services.memory_mb',
      'services.has_gateway',
      'services.pooler',
      'services.vpc_id',
      'services.read_replica_sets',
      'services.addons',
      'api_keys.name as key_name',
      sql<boolean>`exists (
        select from leased_servers l where l.service_id = services.id)`.as('isForLeases'),
      position.as('position'),
    ])
    .where('services.project_id', '=', projectId)
    .where(
      sql<boolean>`(services.created, services.id) > ('epoch'::timestamptz
        + ${micros}::bigint * interval '1 microsecond', ${id}::text)`,
    )
    .orderBy('services.created')
    .orderBy('services.id')
    .limit(limit)
    .execute();
}
