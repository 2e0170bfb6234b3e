/** The metadata database of an installation, for tests that prepare or hold something there. */
import { Kysely, PostgresDialect } from 'kysely';
import { Pool } from 'pg';
import { prepareMachine, storeConnection, type Tables } from './probe.ts';

export async function openMetadata(home: string) {
  const pool = new Pool({
    ...storeConnection(await prepareMachine(home)),
    max: 4,
    application_name: 'howdah test',
  });
  pool.on('error', () => undefined);
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });

  /** Has statements of a kind wait while `work` runs. Nothing else is locked. */
  const holding = async <T>(table: string, column: string, work: () => Promise<T>): Promise<T> => {
    const holder = await pool.connect();
    try {
      await holder.query(HOLD);
      await holder.query(
        `create or replace trigger hold_${table} before update of ${column} ` +
          `on ${table} for each statement execute function hold()`,
      );
      await holder.query(`select pg_advisory_lock(hashtext('hold_${table}'))`);
      return await work();
    } finally {
      await holder.query('select pg_advisory_unlock_all()');
      holder.release();
    }
  };

  /**
   * Keeps the reconciler from beginning to look at any service while `work` runs, so that what a
   * request recorded stays as it is: taking a claim waits.
   */
  const holdingReconciler = <T>(work: () => Promise<T>): Promise<T> =>
    holding('services', 'lease_token', work);

  /** Keeps answers to calls with an Idempotency-Key from being kept while `work` runs. */
  const holdingAnswers = <T>(work: () => Promise<T>): Promise<T> =>
    holding('kept_answers', 'sealed', work);

  /** Whether anybody waits for what is held. */
  const isAwaited = async (): Promise<boolean> =>
    (await pool.query(`select from pg_locks where locktype = 'advisory' and not granted`)).rows
      .length > 0;

  return { db, holdingReconciler, holdingAnswers, isAwaited, close: () => db.destroy() };
}

/** A trigger for each statement runs before any row is locked. */
const HOLD = `
  create or replace function hold() returns trigger language plpgsql as
  'begin perform pg_advisory_xact_lock_shared(hashtext(tg_name)); return null; end'`;

/** Statements that take back the migrations from 0057 on, for tests of an older release. */
export const SINCE_0057 = [
  'drop view leases; drop table leased_databases, leased_servers, lease_demands',
  'alter table services drop column cpu_bound, drop column waits',
  'alter table services drop column expires_at, drop column purge_on_expiry, ' +
    'drop column expiry_warning_at',
  'alter table services drop column auto_suspend_seconds, drop column suspended_at, ' +
    'drop column last_active_at',
  'alter table api_keys drop column service_ttl_seconds, drop column max_service_ttl_seconds, ' +
    'drop column service_auto_suspend_seconds, drop column max_services',
  'alter table samples drop column cpu_wait_millis, drop column write_wait_millis',
  'drop table certificates, certificate_keys',
  'drop table alert_messages, alert_incidents, alert_rules, alert_destinations',
];
