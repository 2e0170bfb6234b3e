/**
 * Following a source: a publication and a replication slot there, and in the service the position
 * up to which changes are applied, which is written in the transaction that applies them.
 */
import { escapeIdentifier, type Client } from 'pg';
import { sqlOf, type Table } from './catalog.ts';
import { open } from './endpoint.ts';
import { Failure } from '../exit.ts';
import { applicationOf, slotOf, type State } from './state.ts';
import { only } from './steps.ts';

/** Sessions on both sides that live as long as the import. */
export type Sessions = { source: Client; target: Client };

/** A snapshot of the source, valid until it is released. */
export type HeldSnapshot = { snapshot: string; release: () => Promise<void> };

/** The position of a source's WAL, as PostgreSQL writes it: `16/B374D848`. */
export type Lsn = string;

/** Publishes the tables. The slot comes later: it reads the publication as of each change. */
export async function beginFollowing(
  state: State,
  tables: readonly Table[],
  source: Client,
): Promise<void> {
  const named = tables.length === 0 ? '' : ` for table only ${tables.map(sqlOf).join(', only ')}`;
  await source.query(`create publication ${escapeIdentifier(slotOf(state))}${named}`);
}

/** Creates the slot, and holds the snapshot in which it begins. */
export async function createSlot(state: State, target: Client): Promise<HeldSnapshot> {
  const client = await open(state.source, applicationOf(state), { replication: 'database' });
  const { rows } = await client.query<{ consistent_point: Lsn; snapshot_name: string }>(
    `CREATE_REPLICATION_SLOT ${escapeIdentifier(slotOf(state))} LOGICAL pgoutput EXPORT_SNAPSHOT`,
  );
  const { consistent_point: start, snapshot_name: snapshot } = only(rows, 'the new slot');
  await target.query('update howdah_import.progress set applied = $1', [start]);
  return { snapshot, release: () => client.end() };
}

/** Marks the service as incomplete, until the transaction that finishes its schema. */
export async function markUnfinished(target: Client): Promise<void> {
  await target.query(
    `drop schema if exists howdah_import cascade; create schema howdah_import;
     create table howdah_import.progress (applied pg_lsn not null, stop boolean not null);
     insert into howdah_import.progress values ('0/0', false)`,
  );
}

/** Drops everything that following needs, on both sides. Can be repeated. */
export async function dropFollowing(state: State, { source, target }: Sessions): Promise<void> {
  await dropSlot(state, source);
  await target.query('drop schema if exists howdah_import cascade');
}

/** Drops the slot, for which the source keeps WAL, and the publication. */
export async function dropSlot(state: State, source: Client): Promise<void> {
  const slot = slotOf(state);
  // A session of an attempt that was killed may still use it.
  await endOthers(source, applicationOf(state));
  await source.query(
    `select pg_catalog.pg_drop_replication_slot(slot_name) from pg_catalog.pg_replication_slots
     where slot_name = $1`,
    [slot],
  );
  await source.query(`drop publication if exists ${escapeIdentifier(slot)}`);
}

/** Ends the sessions of programs of this import whose parent was killed. */
export async function endOthers(client: Client, application: string): Promise<void> {
  for (;;) {
    const { rows } = await client.query(
      `select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
       where application_name = $1 and usename = current_user
         and pid <> pg_catalog.pg_backend_pid()`,
      [application],
    );
    if (rows.length === 0) return;
    await client.query('select pg_catalog.pg_sleep(0.1)');
  }
}

/** How far an import is, from its beginning to the end of its schema. */
export type Progress = {
  applied: Lsn;
  /** Another command asks the follower to end. */
  stop: boolean;
};

/** null: the service has the whole schema. */
export async function readProgress(target: Client): Promise<Progress | null> {
  const { rows } = await target.query<{ there: boolean }>(
    "select pg_catalog.to_regclass('howdah_import.progress') is not null as there",
  );
  if (!only(rows, 'the progress').there) return null;
  const found = await target.query<Progress>(
    'select applied::text, stop from howdah_import.progress',
  );
  return only(found.rows, 'the progress');
}

/** The bytes of WAL that the source keeps for the slot, and those that were not read yet. */
export async function readLag(
  source: Client,
  state: State,
): Promise<{ keptBytes: number; behindBytes: number }> {
  const { rows } = await source.query<{ kept: string | null; behind: string }>(
    `select (pg_catalog.pg_current_wal_lsn() - restart_lsn)::text as kept,
       greatest(pg_catalog.pg_current_wal_lsn() - confirmed_flush_lsn, 0)::text as behind
     from pg_catalog.pg_replication_slots where slot_name = $1`,
    [slotOf(state)],
  );
  const [row] = rows;
  if (row === undefined)
    throw new Failure(
      `the replication slot ${slotOf(state)} is gone from the source: howdah import cancel ` +
        `${state.service.id}, and begin again`,
    );
  return { keptBytes: Number(row.kept ?? 0), behindBytes: Number(row.behind) };
}

/** The position up to which the source has written its WAL. */
export async function readPosition(source: Client): Promise<Lsn> {
  const { rows } = await source.query<{ lsn: Lsn }>(
    'select pg_catalog.pg_current_wal_flush_lsn()::text as lsn',
  );
  return only(rows, 'the position of the WAL').lsn;
}

/** The number of the advisory lock of the process that works on an import. */
const LOCK = 1_468_239;

/** Whether this session now is the one that works on the import into its service. */
export async function tryLock(target: Client): Promise<boolean> {
  const { rows } = await target.query<{ locked: boolean }>(
    'select pg_catalog.pg_try_advisory_lock($1) as locked',
    [LOCK],
  );
  return only(rows, 'the lock').locked;
}
