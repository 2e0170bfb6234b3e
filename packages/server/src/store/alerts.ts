/** The SQL of alerts: destinations, rules and incidents, and the facts that conditions need. */
import type { AlertRuleName, DestinationType, QuietHours } from '@howdah/contract';
import { sql, type Selectable } from 'kysely';
import type {
  Condition,
  Facts,
  KeyFacts,
  RuleSettings,
  ServiceFacts,
} from '../domain/alerts/conditions.ts';
import type { IncidentColumns, ShownConfig } from '../domain/alerts/document.ts';
import { STEADY_MS, type StoredIncident } from '../domain/alerts/incidents.ts';
import { newId } from '../lib/ids.ts';
import type { Db, Tables, Tx } from './tables.ts';

export type DestinationRow = Selectable<Tables['alert_destinations']>;

const PRUNE_BATCH = 1000;
/** How long an incident is kept after it was resolved. */
const KEPT_DAYS = 90;

// Destinations.

export async function listDestinations(db: Db, projectId: string): Promise<DestinationRow[]> {
  return db
    .selectFrom('alert_destinations')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('created')
    .orderBy('id')
    .execute();
}

export async function findDestination(
  db: Db,
  projectId: string,
  id: string,
): Promise<DestinationRow | null> {
  const row = await db
    .selectFrom('alert_destinations')
    .selectAll()
    .where('project_id', '=', projectId)
    .where('id', '=', id)
    .executeTakeFirst();
  return row ?? null;
}

/** A destination as a call sets it. */
export type DestinationSettings = {
  name: string;
  config: ShownConfig;
  secret: Buffer;
  quietHours: QuietHours | null;
};

const columnsOf = ({ name, config, secret, quietHours }: DestinationSettings) => ({
  name,
  config: JSON.stringify(config),
  secret,
  quiet_hours: quietHours === null ? null : JSON.stringify(quietHours),
});

export async function insertDestination(
  tx: Tx,
  projectId: string,
  type: DestinationType,
  settings: DestinationSettings,
): Promise<DestinationRow> {
  return tx
    .insertInto('alert_destinations')
    .values({ id: newId(), project_id: projectId, type, ...columnsOf(settings) })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Changes a destination, if it still exists. */
export async function updateDestinationRow(
  tx: Tx,
  id: string,
  settings: DestinationSettings,
): Promise<DestinationRow | null> {
  const row = await tx
    .updateTable('alert_destinations')
    .set(columnsOf(settings))
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirst();
  return row ?? null;
}

/** Deletes a destination and its messages. */
export async function deleteDestinationRow(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('alert_destinations').where('id', '=', id).execute();
}

// Rules.

/** The rules that a project has set. */
export async function readRules(
  db: Db,
  projectId: string,
): Promise<Map<AlertRuleName, RuleSettings>> {
  const rows = await db
    .selectFrom('alert_rules')
    .selectAll()
    .where('project_id', '=', projectId)
    .execute();
  return new Map(rows.map(({ rule, ...settings }) => [rule, settings]));
}

/** The rules that projects have set. */
export async function readAllRules(
  db: Db,
): Promise<({ project_id: string; rule: AlertRuleName } & RuleSettings)[]> {
  return db.selectFrom('alert_rules').selectAll().execute();
}

export async function writeRule(
  tx: Tx,
  projectId: string,
  rule: AlertRuleName,
  settings: RuleSettings,
): Promise<void> {
  await tx
    .insertInto('alert_rules')
    .values({ project_id: projectId, rule, ...settings })
    .onConflict((conflict) => conflict.columns(['project_id', 'rule']).doUpdateSet(settings))
    .execute();
}

// Incidents.

/** A page of the incidents of a project that have opened, newest first. */
export async function listIncidents(
  db: Db,
  projectId: string,
  status: 'open' | 'resolved' | undefined,
  after: string | null,
  limit: number,
): Promise<IncidentColumns[]> {
  let query = db
    .selectFrom('alert_incidents')
    .select(['id', 'rule', 'service_id', 'about', 'message', 'resolved'])
    // The condition below excludes null.
    .select(sql<Date>`opened`.as('opened'))
    .where('project_id', '=', projectId)
    .where('opened', 'is not', null);
  if (status === 'open') query = query.where('resolved', 'is', null);
  if (status === 'resolved') query = query.where('resolved', 'is not', null);
  if (after !== null) query = query.where('id', '<', after);
  return query.orderBy('id', 'desc').limit(limit).execute();
}

/** The incidents that {@link incidentChanges} needs, locked. */
export async function lockIncidents(tx: Tx): Promise<StoredIncident[]> {
  return tx
    .selectFrom('alert_incidents')
    .selectAll()
    .where((where) =>
      where.or([
        where('resolved', 'is', null),
        where('resolved', '>', sql<Date>`now() - ${`${STEADY_MS} ms`}::interval`),
      ]),
    )
    .forUpdate()
    .execute();
}

/** @returns the incident, which has opened if `opens` */
export async function insertIncident(
  tx: Tx,
  { projectId, rule, subject, serviceId, about, message }: Condition,
  now: Date,
  opens: boolean,
): Promise<StoredIncident> {
  return tx
    .insertInto('alert_incidents')
    .values({
      project_id: projectId,
      rule,
      subject,
      service_id: serviceId,
      about,
      message,
      since: now,
      opened: opens ? now : null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Changes incidents. @param ids of them; none: nothing is done */
export async function updateIncidents(
  tx: Tx,
  ids: readonly string[],
  change: { opened: Date } | { cleared: Date | null } | { resolved: Date },
): Promise<void> {
  if (ids.length === 0) return;
  await tx.updateTable('alert_incidents').set(change).where('id', 'in', ids).execute();
}

/** Shows what is wrong now. */
export async function updateIncidentMessage(tx: Tx, id: string, message: string): Promise<void> {
  await tx.updateTable('alert_incidents').set({ message }).where('id', '=', id).execute();
}

export async function deleteIncidents(tx: Tx, ids: readonly string[]): Promise<void> {
  if (ids.length > 0) await tx.deleteFrom('alert_incidents').where('id', 'in', ids).execute();
}

/** Removes old incidents. @returns whether there may be more */
export async function pruneIncidents(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from alert_incidents where id = any (array(
      select id from alert_incidents
      where resolved < now() - ${`${KEPT_DAYS} days`}::interval
      limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}

// Facts of which conditions are made.

/** A sample counts for two rounds of the sampler. */
const RECENT = '150 seconds';

/**
 * The services of which a condition may hold: those that run, warn of something, are UNSTABLE, had
 * a failover, or wait for a backup. Each part finds its rows by an index: a fleet has many services
 * that are stopped.
 */
export async function readServiceFacts(db: Db): Promise<ServiceFacts[]> {
  const { rows } = await sql<ServiceFacts>`
    with sampled as (
           select service_id as id, max(connections) as connections,
                  max(lag_seconds)::float8 as lag_seconds, max(storage_bytes)::float8 as bytes
           from samples where at > now() - interval '${sql.raw(RECENT)}' group by service_id
         ),
         failed_over as (
           select service_id as id, max(finished) as at from operations
           where kind = 'failover' and finished > now() - interval '1 day' group by service_id
         ),
         waiting as (
           select service_id as id, min(created) as since from operations
           where finished is null and kind = 'runBackup' group by service_id
         ),
         sets as (
           select c.parent_id as id, max(sampled.lag_seconds) as lag_seconds
           from sampled join services c on c.id = sampled.id
           where c.parent_id is not null group by c.parent_id
         ),
         found as (
           select id from sampled union select id from failed_over union select id from waiting
           union select id from services where warnings <> '[]'
           union select id from services
             where status = 'UNSTABLE' and project_id is not null and deleted_at is null
         )
    select s.id, s.project_id, s.name, s.status, s.warnings, s.memory_gbs, s.storage_gb,
           round(sampled.bytes / 1e6) as storage_mb, sampled.connections,
           greatest(sampled.lag_seconds, sets.lag_seconds) as lag_seconds,
           failed_over.at as failed_over, waiting.since as backup_due
    from found join services s using (id)
      left join sampled using (id) left join sets using (id)
      left join failed_over using (id) left join waiting using (id)
    where s.project_id is not null and s.deleted_at is null and s.parent_id is null`.execute(db);
  return rows;
}

/** Keys that expire within the longest time that a rule may have. */
export async function readExpiringKeys(db: Db): Promise<KeyFacts[]> {
  return db
    .selectFrom('api_keys')
    .select(['public_key', 'project_id', 'name'])
    .select(sql<Date>`expires_at`.as('expires_at'))
    .where('revoked_at', 'is', null)
    .where('expires_at', '>', sql<Date>`now()`)
    .where('expires_at', '<', sql<Date>`now() + interval '365 days'`)
    .execute();
}

/** The clock of the metadata database, and the operator's project. */
export async function readInstallationFacts(
  db: Db,
): Promise<Pick<Facts, 'now' | 'operatorProject'>> {
  const { rows } = await sql<Pick<Facts, 'now' | 'operatorProject'>>`
    select clock_timestamp() as now,
           (select id from projects where operator limit 1) as "operatorProject"`.execute(db);
  const [row] = rows;
  if (row === undefined) throw new Error('a select without a table returned no row');
  return row;
}
