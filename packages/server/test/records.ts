/** The records of an installation, for tests that prepare or hold something there. */
import { Kysely, PostgresDialect } from 'kysely';
import { Pool } from 'pg';
import { prepareMachine } from '../src/engine/local/machine.ts';
import { storeConnection } from '../src/engine/local/store-instance.ts';
import type { Tables } from '../src/store/database.ts';

export async function openRecords(home: string) {
  const pool = new Pool({ ...storeConnection(await prepareMachine(home)), max: 4, application_name: 'howdah test' });
  pool.on('error', () => undefined);
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });

  /**
   * Keeps the reconciler from beginning to look at any service while `work` runs, so that what a request recorded stays as it is:
   * taking a lease waits. Nothing else is locked.
   */
  const holdingReconciler = async <T>(work: () => Promise<T>): Promise<T> => {
    const holder = await pool.connect();
    try {
      await holder.query(HOLD);
      await holder.query('select pg_advisory_lock(7)');
      return await work();
    } finally {
      await holder.query('select pg_advisory_unlock_all()');
      holder.release();
    }
  };

  return { db, holdingReconciler, close: () => db.destroy() };
}

/** A trigger for each statement runs before any row is locked. */
const HOLD = `
  create or replace function hold_lease() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock_shared(7); return null; end';
  create or replace trigger hold_lease before update of lease_token on services for each statement execute function hold_lease()`;
