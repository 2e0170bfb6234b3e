/** Records of a fleet: thousands of services, copied from one, and what was done to them. */
import { sql } from 'kysely';
import { type Db, newId } from './probe.ts';

/**
 * Far beyond real ports, which the metadata database's own uniqueness would have them collide with.
 */
const FIRST_PORT = 1_000_000;

/**
 * Copies a service that is paused or simulated, and gives the copies operations, events and entries
 * in the audit log. No triggers run.
 *
 * @returns what takes it all out of the metadata database again
 */
export async function insertFleet(
  db: Db,
  model: string,
  counts: {
    services: number;
    operations: number;
    events: number;
    audit: number;
    deliveries: number;
  },
): Promise<() => Promise<void>> {
  const ids = Array.from({ length: counts.services }, newId);
  const { rows } = await sql<{ column_name: string }>`
    select column_name from information_schema.columns
    where table_name = 'services' and table_schema = 'public' and is_generated = 'NEVER'`.execute(
    db,
  );
  const columns = rows.map(({ column_name: name }) => name);
  await db.transaction().execute(async (tx) => {
    await sql`set local session_replication_role = replica`.execute(tx);
    await sql`create table fleet (number bigint primary key, id text not null)`.execute(tx);
    await sql`insert into fleet select number, id
      from unnest(${ids}::text[]) with ordinality as fresh (id, number)`.execute(tx);
    await sql`
      insert into services (${sql.raw(columns.join(', '))})
      select ${sql.raw(columns.map(copied).join(', '))} from services s, fleet
        where s.id = ${model}`.execute(tx);
    await copyDocuments(tx, model);
    await sql`
      insert into operations (id, project_id, service_id, kind, status, requested_by, steps,
        created, finished)
      select 'f' || lpad(n::text, 9, '0'), s.project_id, fleet.id,
        (array['create', 'stop', 'start', 'resize', 'rename'])[1 + n % 5], 'succeeded', 'howdah',
             '[{"name": "stop PostgreSQL", "started": "2026-01-01T00:00:00.000Z",
                "finished": "2026-01-01T00:00:00.100Z", "detail": null}]',
             moment, moment + interval '0.2 second'
      from generate_series(1, ${counts.operations}::int) as n
      -- Some were accepted at the same moment, and some a microsecond apart.
      cross join lateral (select now() - n / 4 * interval '1 second' - n % 2 *
        interval '1 microsecond' as moment) as accepted
      join fleet on fleet.number = 1 + n % ${counts.services}, services s
        where s.id = ${model}`.execute(tx);
    await sql`
      insert into events (seq, project_id, at, type, doc)
      select nextval('event_seq'), s.project_id, now(), 'service.status',
             '{"id": "0", "type": "service.status", "timestamp": "2026-01-01T00:00:00.000Z", ' ||
             '"data": {"service_id": "' || s.id || '", "status": "PAUSED"}}'
      from generate_series(1, ${counts.events}::int), services s where s.id = ${model}`.execute(tx);
    await sql`
      insert into audit_log (project_id, public_key, address, call, method, path, service_id,
        status, request_id)
      select s.project_id, 'HDfleet', '127.0.0.1', 'stopService', 'POST',
        '/public/api/v1/projects/p/services/s/stop', fleet.id, 202, gen_random_uuid()
      from generate_series(1, ${counts.audit}::int) as n
      join fleet on fleet.number = 1 + n % ${counts.services}, services s
        where s.id = ${model}`.execute(tx);
    await sql`
      insert into webhooks (id, project_id, url, types, secret, fanned_out)
      select 'webhook000', project_id, 'http://receiver.invalid/', '{}', '',
        (select max(seq) from events) from services where id = ${model}`.execute(tx);
    await sql`
      insert into deliveries (webhook_id, message_id, type, body, status, attempts, finished)
      select 'webhook000', 'event_' || n, 'service.status', '{}', 'delivered', 1, now()
        from generate_series(1, ${counts.deliveries}::int) as n`.execute(tx);
  });
  for (const table of ['deliveries', 'services', 'operations', 'events', 'audit_log'])
    await sql`vacuum analyze ${sql.table(table)}`.execute(db);
  return async () => {
    await db.transaction().execute(async (tx) => {
      await sql`set local session_replication_role = replica`.execute(tx);
      await sql`delete from operations where service_id in (select id from fleet)`.execute(tx);
      await sql`delete from services where id in (select id from fleet)`.execute(tx);
      await sql`delete from simulated_documents
        where key in (select 'service/' || id from fleet)`.execute(tx);
      await sql`delete from deliveries`.execute(tx);
      await sql`delete from webhooks`.execute(tx);
      await sql`drop table fleet`.execute(tx);
    });
  };
}

/** Copies what the engine of a simulated service keeps of it; others have nothing there. */
async function copyDocuments(db: Db, model: string): Promise<void> {
  await sql`
    insert into simulated_documents (region_code, key, document)
    select region_code, 'service/' || fleet.id, document || jsonb_build_object('id', fleet.id)
    from simulated_documents, fleet where key = 'service/' || ${model}`.execute(db);
}

/** The value of a column in a copy: `s` is the service that it was copied from. */
function copied(column: string): string {
  switch (column) {
    case 'id':
      return 'fleet.id';
    case 'port':
      return `${FIRST_PORT} + fleet.number::int`;
    case 'name':
      return `'paused ' || fleet.number`;
    case 'created':
      return `s.created + fleet.number * interval '1 millisecond'`;
    case 'doc':
      return (
        `replace(replace(s.doc, '"' || s.id || '"', '"' || fleet.id || '"'), ` +
        `'"name":"' || s.name || '"', '"name":"paused ' || fleet.number || '"')`
      );
    default:
      return `s.${column}`;
  }
}
