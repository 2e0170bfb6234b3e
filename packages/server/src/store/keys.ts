import { ENDED_KEYS_KEPT_DAYS, type Key, type Role } from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import type { Pool } from 'pg';
import type { KeyBounds } from '../domain/service/lifetime.ts';
import { coalesced } from './coalesced-reads.ts';
import type { Db, Tables, Tx } from './tables.ts';

/** A key as the guard needs it. */
export type KeyRow = {
  key: string;
  project_id: string;
  project_name: string;
  /** Whether its project is the one whose admin keys manage projects. */
  operator: boolean;
  name: string;
  role: Role;
  dry_run_only: boolean;
  fork_only: boolean;
  service_ttl_seconds: number | null;
  max_service_ttl_seconds: number | null;
  service_auto_suspend_seconds: number | null;
  max_services: number | null;
  secret_hash: Buffer;
  created: Date;
  last_used: Date | null;
  /** Neither revoked nor expired, by the database's clock. */
  valid: boolean;
};

/** The columns of a {@link KeyRow} but its `key`, of the tables `api_keys k` and `projects p`. */
export const KEY_COLUMNS = `k.project_id, p.name as project_name, p.operator, k.name, k.role,
            k.dry_run_only, k.fork_only, k.secret_hash,
            k.service_ttl_seconds, k.max_service_ttl_seconds, k.max_services,
            k.service_auto_suspend_seconds, k.created, k.last_used,
            k.revoked_at is null and (k.expires_at is null or k.expires_at > now()) as valid`;

/** Looks keys up by their public half. */
export function keyReader(pool: Pool): (publicKey: string) => Promise<KeyRow | null> {
  return coalesced<KeyRow>(
    pool,
    'keys',
    `select k.public_key as key, ${KEY_COLUMNS}
     from api_keys k join projects p on p.id = k.project_id
     where k.public_key = any($1)`,
  );
}

export type NewKey = {
  publicKey: string;
  secretHash: Buffer;
  projectId: string;
  name: string;
  role: Role;
  expiresAt?: Date;
  dryRunOnly?: boolean;
  forkOnly?: boolean;
  bounds?: KeyBounds;
  createdBy?: string;
};

export async function insertKey(db: Db, key: NewKey): Promise<Key> {
  const row = await db
    .insertInto('api_keys')
    .values({
      public_key: key.publicKey,
      secret_hash: key.secretHash,
      project_id: key.projectId,
      name: key.name,
      role: key.role,
      dry_run_only: key.dryRunOnly ?? false,
      fork_only: key.forkOnly ?? false,
      service_ttl_seconds: key.bounds?.serviceTtlSeconds ?? null,
      max_service_ttl_seconds: key.bounds?.maxTtlSeconds ?? null,
      service_auto_suspend_seconds: key.bounds?.autoSuspendSeconds ?? null,
      max_services: key.bounds?.maxServices ?? null,
      created_by: key.createdBy ?? null,
      expires_at: key.expiresAt ?? null,
      revoked_at: null,
      last_used: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  return keyDocument(row);
}

/** The number of keys of a project, ended ones too; at most `most` are counted. */
export async function countKeys(tx: Tx, projectId: string, most: number): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count
      from (select from api_keys where project_id = ${projectId} limit ${most}) as keys`.execute(
    tx,
  );
  return rows[0]?.count ?? 0;
}

const PRUNE_BATCH = 1000;

/** Removes keys that were revoked or expired long ago. @returns whether there may be more */
export async function pruneKeys(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from api_keys where public_key = any (array(
      select public_key from api_keys
      where (revoked_at is not null or expires_at is not null)
        and least(revoked_at, expires_at) < now() - ${`${ENDED_KEYS_KEPT_DAYS} days`}::interval
      order by least(revoked_at, expires_at) limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}

/** The bounds of the services that a key makes, as the API returns them. */
export function boundsDocument({
  service_ttl_seconds: ttl,
  max_service_ttl_seconds: most,
  service_auto_suspend_seconds: sleep,
  max_services: count,
}: Pick<
  KeyRow,
  | 'service_ttl_seconds'
  | 'max_service_ttl_seconds'
  | 'service_auto_suspend_seconds'
  | 'max_services'
>) {
  return {
    ...(ttl === null ? {} : { service_ttl_seconds: ttl }),
    ...(most === null ? {} : { max_service_ttl_seconds: most }),
    ...(sleep === null ? {} : { service_auto_suspend_seconds: sleep }),
    ...(count === null ? {} : { max_services: count }),
  };
}

/** A key as the API returns it. */
function keyDocument(row: Selectable<Tables['api_keys']>): Key {
  const moment = (at: Date | null) => at?.toISOString() ?? null;
  return {
    public_key: row.public_key,
    name: row.name,
    role: row.role,
    dry_run_only: row.dry_run_only,
    fork_only: row.fork_only,
    ...boundsDocument(row),
    created: row.created.toISOString(),
    created_by: row.created_by,
    expires_at: moment(row.expires_at),
    revoked_at: moment(row.revoked_at),
    last_used: moment(row.last_used),
  };
}

/** The keys of a project, oldest first, revoked and expired ones too. */
export async function listKeys(db: Db, projectId: string): Promise<Key[]> {
  const rows = await db
    .selectFrom('api_keys')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('created')
    .orderBy('public_key')
    .execute();
  return rows.map(keyDocument);
}

export async function findKey(db: Db, projectId: string, publicKey: string): Promise<Key | null> {
  const row = await db
    .selectFrom('api_keys')
    .selectAll()
    .where('project_id', '=', projectId)
    .where('public_key', '=', publicKey)
    .executeTakeFirst();
  return row === undefined ? null : keyDocument(row);
}

/**
 * Ends a key, for every process at once: each request reads its key. A key that was revoked earlier
 * keeps its time.
 */
export async function revokeKey(tx: Tx, publicKey: string): Promise<void> {
  await tx
    .updateTable('api_keys')
    .set({ revoked_at: sql<Date>`clock_timestamp()` })
    .where('public_key', '=', publicKey)
    .where('revoked_at', 'is', null)
    .execute();
}

/** Whether a project has another admin key that can manage keys, now and without an end. */
export async function hasAnotherAdminKey(
  tx: Tx,
  projectId: string,
  publicKey: string,
): Promise<boolean> {
  const row = await tx
    .selectFrom('api_keys')
    .select('public_key')
    .where('project_id', '=', projectId)
    .where('public_key', '<>', publicKey)
    .where('role', '=', 'admin')
    .where('dry_run_only', '=', false)
    .where('fork_only', '=', false)
    .where('revoked_at', 'is', null)
    .where('expires_at', 'is', null)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Whether there is such a key, with any role. */
export async function isKey(db: Db, publicKey: string): Promise<boolean> {
  return (
    (await db
      .selectFrom('api_keys')
      .select('public_key')
      .where('public_key', '=', publicKey)
      .executeTakeFirst()) !== undefined
  );
}

/** Records that a key was used. */
export async function touchKey(db: Db, publicKey: string): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ last_used: new Date() })
    .where('public_key', '=', publicKey)
    .execute();
}

/** Whether a key is neither revoked nor expired. */
export async function isKeyValid(db: Db, publicKey: string): Promise<boolean> {
  const row = await db
    .selectFrom('api_keys')
    .select('public_key')
    .where('public_key', '=', publicKey)
    .where('revoked_at', 'is', null)
    .where((where) =>
      where.or([where('expires_at', 'is', null), where('expires_at', '>', sql<Date>`now()`)]),
    )
    .executeTakeFirst();
  return row !== undefined;
}

/** The project of a key that may make keys now; null: it may not, or has ended. */
export async function findApprover(tx: Tx, publicKey: string): Promise<string | null> {
  const row = await tx
    .selectFrom('api_keys')
    .select('project_id')
    .where('public_key', '=', publicKey)
    .where('role', '=', 'admin')
    .where('dry_run_only', '=', false)
    .where('fork_only', '=', false)
    .where('revoked_at', 'is', null)
    .where((where) =>
      where.or([where('expires_at', 'is', null), where('expires_at', '>', sql<Date>`now()`)]),
    )
    .executeTakeFirst();
  return row?.project_id ?? null;
}
