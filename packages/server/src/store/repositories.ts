/** The SQL of repositories, where backups are kept off the machine. There are few. */
import { sql, type Selectable } from 'kysely';
import type { ServiceRow } from '../domain/service/row.ts';
import { isPassing } from './predicates.ts';
import type { Db, Tables, Tx } from './tables.ts';

export type RepositoryRow = Selectable<Tables['repositories']>;

/** All repositories, oldest first. */
export async function listRepositories(db: Db): Promise<RepositoryRow[]> {
  return db.selectFrom('repositories').selectAll().orderBy('created').orderBy('id').execute();
}

/** The services of the installation, deleted ones too, of these ids, as removals need them. */
export async function listUpgradesOf(
  db: Db,
  ids: readonly string[],
): Promise<Pick<ServiceRow, 'id' | 'upgrade' | 'upgraded' | 'kept' | 'backup_retention_days'>[]> {
  if (ids.length === 0) return [];
  return db
    .selectFrom('services')
    .select(['id', 'upgrade', 'upgraded', 'kept', 'backup_retention_days'])
    .where('id', 'in', ids)
    .execute();
}

export async function findRepository(db: Db, id: string): Promise<RepositoryRow | null> {
  const row = await db
    .selectFrom('repositories')
    .selectAll()
    .where('id', '=', id)
    .executeTakeFirst();
  return row ?? null;
}

/** Locks the repositories against other creates, and reads them. */
export async function lockRepositories(tx: Tx): Promise<RepositoryRow[]> {
  await sql`select pg_advisory_xact_lock(hashtext('howdah repositories'))`.execute(tx);
  return listRepositories(tx);
}

export type NewRepository = Pick<
  RepositoryRow,
  'id' | 'name' | 'type' | 'location' | 'sealed' | 'owner' | 'retention_days'
>;

export async function insertRepository(tx: Tx, made: NewRepository): Promise<RepositoryRow> {
  return tx.insertInto('repositories').values(made).returningAll().executeTakeFirstOrThrow();
}

export async function deleteRepositoryRow(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('repositories').where('id', '=', id).execute();
}

/** A repository that was removed, or whose adding was interrupted. */
export type FormerRepository = Pick<RepositoryRow, 'id' | 'location' | 'sealed' | 'owner'>;

/** The most that are remembered: the newest. */
const FORMER_MAX = 16;

export async function findFormerRepository(
  db: Db,
  location: string,
): Promise<FormerRepository | null> {
  const row = await db
    .selectFrom('former_repositories')
    .select(['id', 'location', 'sealed', 'owner'])
    .where('location', '=', location)
    .executeTakeFirst();
  return row ?? null;
}

export async function noteFormerRepository(
  db: Db,
  { id, location, sealed, owner }: FormerRepository,
): Promise<void> {
  const noted = { id, sealed, owner, noted: new Date() };
  await db
    .insertInto('former_repositories')
    .values({ location, ...noted })
    .onConflict((conflict) => conflict.column('location').doUpdateSet(noted))
    .execute();
  await db
    .deleteFrom('former_repositories')
    .where('location', 'not in', (newest) =>
      newest
        .selectFrom('former_repositories')
        .select('location')
        .orderBy('noted', 'desc')
        .limit(FORMER_MAX),
    )
    .execute();
}

export async function deleteFormerRepository(tx: Tx, location: string): Promise<void> {
  await tx.deleteFrom('former_repositories').where('location', '=', location).execute();
}

/** The names of some services that are being restored from a repository. */
export async function namesInRecovery(tx: Tx, id: string, limit: number): Promise<string[]> {
  const rows = await tx
    .selectFrom('services')
    .select('name')
    .where('recovery', 'is not', null)
    .where(sql<boolean>`recovery ->> 'repository' = ${id}`)
    .orderBy('name')
    .limit(limit)
    .execute();
  return rows.map(({ name }) => name);
}

/** Has all services reconciled: their servers switch WAL files while there is a repository. */
export async function makeAllServicesDue(db: Db): Promise<void> {
  await sql`
    with running as (
      select id from services where deleted_at is null and power = 'running'
      order by parent_id nulls first, id for update -- as all who lock services with their sets
    ), due as (
      update services set due_at = now() where id = any (array(select id from running))
      returning id
    )
    select pg_notify('howdah_service', id) from due`.execute(db);
}

/** Records why the data of the control plane could not be sent; `isLost`: another owner has it. */
export async function recordControlProblem(
  db: Db,
  id: string,
  problem: { text: string; isLost: boolean },
): Promise<void> {
  await db
    .updateTable('repositories')
    .set({ control_problem: problem.text, is_lost: problem.isLost })
    .where('id', '=', id)
    .execute();
}

/** A repository was checked: it can be written, and is this installation's. */
export async function recordChecked(db: Db, id: string): Promise<void> {
  await db
    .updateTable('repositories')
    .set({ control_problem: null, is_lost: false })
    .where('id', '=', id)
    .execute();
}

/** Records the moment of the data of the control plane that a repository has. */
export async function recordControlSaved(db: Db, id: string, savedMs: number): Promise<void> {
  await db
    .updateTable('repositories')
    .set({ control_saved: new Date(savedMs), control_problem: null, is_lost: false })
    .where('id', '=', id)
    .execute();
}

/** A service with backups of its own. */
export type ShippedService = Pick<ServiceRow, 'id' | 'backup_retention_days'> & {
  isDeleted: boolean;
};

/**
 * The services of a region with backups of their own: not sets, spares, leases, and lost ones.
 * Deleted ones are among them: their last WAL is archived when they stop.
 */
export async function servicesWithBackups(db: Db, region: string): Promise<ShippedService[]> {
  return (
    db
      .selectFrom('services')
      .select(['id', 'deleting as isDeleted', 'backup_retention_days'])
      .where('region_code', '=', region)
      .where('project_id', 'is not', null)
      .where('parent_id', 'is', null)
      .where('purge', '=', false)
      .where('kept', 'is', null)
      .where('recovery', 'is', null)
      .where((where) => where.not(isPassing(where)))
      // PROD first: a repository that is far behind gets what matters most.
      .orderBy(sql`environment = 'PROD'`, 'desc')
      .orderBy('id')
      .execute()
  );
}
