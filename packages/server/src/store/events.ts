/**
 * The SQL of events. Triggers write them when a transaction commits (migrations/0009_events.sql,
 * 0011_vpc_events.sql): so an event is in the transaction of its change, costs no round trip, and
 * cannot be forgotten.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { EventType } from '@howdah/contract';
import { sql, type RawBuilder } from 'kysely';
import { LOCAL_REGION } from '../settings.ts';
import type { Db } from './tables.ts';

/** seq: its number, as digits. doc: the finished document. */
export type EventRow = { seq: string; type: EventType; doc: string };

/** How long events are kept. */
const KEPT_DAYS = 7;
/** Events that one statement removes. */
const PRUNE_BATCH = 1000;
const FLUSH_POLL_MS = 10;

/**
 * A project's events after a number, oldest first. All of them are on the disk: an event that a
 * reader has seen does not vanish in a crash of the metadata database, though some transactions
 * commit without waiting for the disk.
 */
export async function readEvents(
  db: Db,
  projectId: string,
  after: string,
  limit: number,
): Promise<EventRow[]> {
  const { rows } = await sql<EventRow & { written: string; flushed: boolean }>`
    select seq, type, doc, position.written::text, pg_current_wal_flush_lsn() >= position.written
      as flushed
    from events, (select pg_current_wal_insert_lsn() as written) as position
    where project_id = ${projectId} and seq > ${after}
    order by seq
    limit ${limit}`.execute(db);
  const [first] = rows;
  if (first !== undefined && !first.flushed) await untilFlushed(db, first.written);
  return rows.map(({ seq, type, doc }) => ({ seq, type, doc }));
}

async function untilFlushed(db: Db, position: string): Promise<void> {
  for (;;) {
    const { rows } = await sql<{
      flushed: boolean;
    }>`select pg_current_wal_flush_lsn() >= ${position}::pg_lsn as flushed`.execute(db);
    if (rows[0]?.flushed === true) return;
    await sleep(FLUSH_POLL_MS);
  }
}

/**
 * The number of the last event that a reader can have seen, and that of the
 * last one that was removed.
 */
export async function eventBounds(db: Db): Promise<{ last: string; pruned: string }> {
  const { rows } = await sql<{ last: string; pruned: string }>`
    select greatest(pruned, (select seq from events order by seq desc limit 1)) as last, pruned
    from (select coalesce(max(pruned), 0) as pruned from event_horizon) as horizon`.execute(db);
  return rows[0] ?? { last: '0', pruned: '0' };
}

/** Removes old events. @returns whether there may be more */
export async function pruneEvents(db: Db): Promise<boolean> {
  // Events are as old as their numbers are low: the first ones show whether
  // there is anything to remove.
  const { rows } = await sql<{ gone: number }>`
    with oldest as (select seq, at from events order by seq limit ${PRUNE_BATCH}),
         bound as (select max(seq) as seq from oldest
           where at < now() - ${`${KEPT_DAYS} days`}::interval),
         gone as (delete from events where seq <= (select seq from bound) returning seq),
         forgotten as (delete from event_horizon
           where exists (select from bound where seq is not null)),
         noted as (insert into event_horizon select seq from bound where seq is not null)
    select count(*)::int as gone from gone`.execute(db);
  return rows[0]?.gone === PRUNE_BATCH;
}

/**
 * Removes old deliveries, also those that were never attempted: their events are gone.
 *
 * @returns whether there may be more
 */
export async function pruneDeliveries(db: Db): Promise<boolean> {
  const { numAffectedRows } = await sql`
    delete from deliveries where id = any (array(
      select id from deliveries where created < now() - ${`${KEPT_DAYS} days`}::interval
        order by created limit ${sql.lit(PRUNE_BATCH)}))`.execute(db);
  return numAffectedRows === BigInt(PRUNE_BATCH);
}

/**
 * Writes an event of the operator's project when the reserve of a region's disk was released, and
 * when it is held again. The same state twice, or a reserve that was never released, is no event.
 *
 * @param bytes the size of the reserve
 */
export async function reportReserve(
  db: Db,
  region: string,
  state: 'held' | 'released',
  bytes: number,
): Promise<void> {
  const facts = JSON.stringify({ region_code: region, state, bytes });
  await sql`
    select emit_event(id, 'disk.reserve', ${facts}::json)
    from projects
    where operator
      and ${state} <> coalesce(
        (select doc::json #>> '{data,state}' from events
         where project_id = projects.id and type = 'disk.reserve'
           -- events of older versions name no region
           and coalesce(doc::json #>> '{data,region_code}', ${LOCAL_REGION}) = ${region}
         order by seq desc limit 1), 'held')`.execute(db);
}

/** How many services one call reports. */
const REPORTED_AT_ONCE = 100;

/**
 * Reports, once for each deletion, that deleted services of a region may be purged before their
 * time for a restore is over. Those that only a repository has are not affected.
 *
 * @param facts `restorableMs`: for how long they could be restored
 * @returns those that were reported
 */
export async function reportRestoreRisk(
  db: Db,
  region: string,
  facts: { usedPercent: number; purgedAtPercent: number; restorableMs: number },
): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    with reported as (
      update services set risk_reported_of = deleted_at
      where id = any (array(
        select id from services
        where region_code = ${region} and deleted_at is not null and project_id is not null
          and parent_id is null and kept is null and not purge
          and risk_reported_of is distinct from deleted_at
        order by deleted_at
        limit ${REPORTED_AT_ONCE}
        for update skip locked))
      returning id, project_id, name, deleted_at)
    select id, emit_event(project_id, 'service.restore_at_risk', json_build_object(
      'service_id', id, 'name', name,
      'restorable_until', utc_text(deleted_at + ${`${facts.restorableMs} ms`}::interval),
      'used_percent', ${Math.floor(facts.usedPercent)}::int,
      'purged_at_percent', ${facts.purgedAtPercent}::int))
    from reported`.execute(db);
  return rows.map(({ id }) => id);
}

// Notifications between transactions and control planes. They are hints: timers
// make up for lost ones.

/**
 * Payloads: the id of a service that is due; none for VPCs; the project of new events; the public
 * half of a changed key.
 */
export const CHANNELS = [
  'howdah_service',
  'howdah_vpcs',
  'howdah_event',
  'howdah_key',
  'howdah_leases',
] as const;

export type Channel = (typeof CHANNELS)[number];

export type OnNotification = (payload: string | null) => void;

/** Notifies the reconciler of a service, when the transaction commits. */
export async function notifyService(tx: Db, id: string): Promise<void> {
  await serviceNotification(id).execute(tx);
}

/** The statement of {@link notifyService}. */
export const serviceNotification = (id: string): RawBuilder<unknown> =>
  sql`select pg_notify('howdah_service', ${id})`;

/** Notifies the reconciler of VPCs, when the transaction commits. */
export async function notifyVpcs(tx: Db): Promise<void> {
  await sql`notify howdah_vpcs`.execute(tx);
}
