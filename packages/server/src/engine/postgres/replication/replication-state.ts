/** Asks primaries and standbys for the state of their replication. */
import type { QueryResultRow } from 'pg';
import type { Monitored } from '../sessions/monitor.ts';
import { FLOORS, MEMBER } from './replication-conf.ts';
import { HAS_SLOTS_ROLE } from '../contents/slots-role.ts';
import { parseLsn } from '../data/wal.ts';
import { REHEARSED } from './drill.ts';

/** The standbys and slots of a primary that accepts writes. */
type PrimaryState = {
  /** Standbys that have caught up. */
  readonly streaming: readonly string[];
  /** Standbys that have caught up, or are catching up. */
  readonly receiving: readonly string[];
  readonly slots: readonly string[];
  /** Slots whose WAL was removed. */
  readonly lost: readonly string[];
  /** The end of its WAL on the disk. */
  readonly end: string;
};

/**
 * In SQL, the columns of {@link PrimaryState}. A standby that asks for WAL that is gone is also
 * "catching up" for a moment, until its connection ends and it asks again.
 */
const PRIMARY_STATE = `
  pg_current_wal_flush_lsn()::text as end,
  array(select application_name from pg_stat_replication where state = 'streaming') as streaming,
  array(select application_name from pg_stat_replication
        where state = 'streaming'
           or (state = 'catchup' and backend_start < clock_timestamp() - interval '1 s')
       ) as receiving,
  array(select slot_name::text from pg_replication_slots where slot_type = 'physical') as slots,
  array(select slot_name::text from pg_replication_slots
        where slot_type = 'physical' and wal_status = 'lost') as lost`;

/** Whether a server is connected and has answered its last heartbeat. */
function answers(monitor: Monitored, key: string): boolean {
  return monitor.isConnected(key) && monitor.silentMs(key) === null;
}

/** @returns null if the server does not answer, or does not accept writes yet */
async function askPrimary<Row extends PrimaryState & QueryResultRow>(
  monitor: Monitored,
  key: string,
  columns: string,
  values: unknown[] = [],
): Promise<Row | null> {
  if (!answers(monitor, key)) return null;
  try {
    const [row] = await monitor.query<Row>(
      key,
      // The positions of a primary cannot be asked for during recovery.
      `select ${PRIMARY_STATE}, ${columns} where not pg_is_in_recovery()`,
      values,
    );
    return row ?? null;
  } catch {
    return null; // it is dying: the next round sees it
  }
}

/** The standbys of a cluster, as its primary sees them. */
export type Followers = PrimaryState & {
  /** Up to where each of those that stream has flushed WAL. */
  readonly flushed: Readonly<Record<string, string | null>>;
  /** The current synchronous_standby_names. */
  readonly setting: string;
  /**
   * Whether the checkpointer is idle: then it has applied the setting, and commits wait by it.
   */
  readonly attentive: boolean;
  /** Whether a drill is running, or an interrupted one has left something. */
  readonly rehearsed: boolean;
  /** Whether standbys can follow as the role that reads failover slots. */
  readonly hasSlotsRole: boolean;
  /** The current synchronized_standby_slots; null: the server is older. */
  readonly slotsAhead: string | null;
};

/** The standbys of a cluster; null if its primary does not answer, or accepts no writes yet. */
export async function followersOf(monitor: Monitored, key: string): Promise<Followers | null> {
  const state = await askPrimary<Followers>(
    monitor,
    key,
    `(select coalesce(json_object_agg(application_name, flush_lsn::text), '{}')
      from pg_stat_replication where state = 'streaming') as flushed,
     current_setting('synchronous_standby_names') as setting,
     exists (select from pg_stat_activity where backend_type = 'checkpointer'
             and wait_event in ('CheckpointerMain', 'CheckpointWriteDelay')) as attentive,
     ${REHEARSED} as rehearsed,
     ${HAS_SLOTS_ROLE} as "hasSlotsRole",
     current_setting('synchronized_standby_slots', true) as "slotsAhead"`,
  );
  if (state === null) return null;
  // Slots of read replica sets are not the cluster's.
  return { ...state, slots: state.slots.filter((name) => name.startsWith(MEMBER)) };
}

/** The primary that read replica sets follow, as it sees all that follow it. */
export type Upstream = PrimaryState & {
  /** The settings that a standby must have at least as large. */
  readonly floors: Readonly<Record<string, number>>;
};

/** The primary of a read replica set; null if it does not answer, or does not accept writes. */
export async function askUpstream(monitor: Monitored, key: string): Promise<Upstream | null> {
  return askPrimary<Upstream>(
    monitor,
    key,
    `(select jsonb_object_agg(name, setting::int) from pg_settings
      where name = any ($1::text[])) as floors`,
    [FLOORS],
  );
}

/** How far a node has replayed. */
export type Replay = { readonly recovering: boolean; readonly replayed: string | null };

/** Asks a node how far it has replayed; null: it does not answer. */
export async function askReplay(
  monitor: Monitored,
  key: string,
): Promise<(Replay & { readonly paused: boolean }) | null> {
  if (!answers(monitor, key)) return null;
  const [row] = await monitor
    .query<Replay & { paused: boolean }>(
      key,
      `select pg_is_in_recovery() as recovering, pg_last_wal_replay_lsn()::text as replayed,
              case when pg_is_in_recovery() then pg_get_wal_replay_pause_state() <> 'not paused'
                   else false end as paused`,
    )
    .catch(() => []);
  return row ?? null;
}

/** Asks a standby how much WAL it has on the disk; null: it does not answer. */
export async function askReceived(monitor: Monitored, key: string): Promise<bigint | null> {
  const [row] = await monitor
    .query<{ received: string }>(
      key,
      'select greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::text as received',
    )
    .catch(() => []);
  return row === undefined ? null : parseLsn(row.received);
}

/** A server that follows, as its primary sees it; lags are measured to its replay. */
export type FollowerRow = {
  readonly name: string;
  readonly state: string;
  readonly synchronous: boolean;
  /** Behind what the primary has on the disk, and behind what it has written. */
  readonly flushed_bytes: number;
  readonly written_bytes: number | null;
  readonly seconds: number | null;
};

/** All that follow a server; none if it does not answer, or is no primary. */
export async function followerRows(monitor: Monitored, key: string): Promise<FollowerRow[]> {
  if (!monitor.isConnected(key)) return [];
  return monitor
    .query<FollowerRow>(
      key,
      `select application_name as name, state,
              sync_state in ('sync', 'quorum') as synchronous,
              greatest(0, pg_current_wal_flush_lsn() - replay_lsn)::float8 as flushed_bytes,
              pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::float8 as written_bytes,
              extract(epoch from replay_lag)::float8 as seconds
       from pg_stat_replication where not pg_is_in_recovery()`,
    )
    .catch(() => []); // it is dying, or no longer a primary: the next round sees it
}
