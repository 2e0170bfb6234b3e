/** The memory and disk that a service takes of its machine, and why. */
import type { Backups, ServiceUsage } from '@howdah/contract';
import { quoted } from '@howdah/contract/shell';
import { restorableUntilMs } from './removal.ts';
import type { ServiceRow } from './row.ts';
import { whyNotAsleep, type SleepFacts } from './sleep.ts';

/** The facts of a service that say what it takes, and why. */
export type UsageFacts = SleepFacts &
  Pick<
    ServiceRow,
    | 'id'
    | 'name'
    | 'status'
    | 'environment'
    | 'created'
    | 'created_by'
    | 'origin'
    | 'parent_id'
    | 'nodes'
    | 'replica_count'
    | 'deleted_at'
    | 'kept'
    | 'expires_at'
    | 'suspended_at'
    | 'auto_suspend_seconds'
    | 'power'
    | 'milli_cpu'
    | 'memory_mb'
  > & { key_name: string | null; isForLeases: boolean };

/**
 * The measures of a service: `storage` of one of its servers. null: not measured. `problem`: why
 * its region could not be asked; null: it was.
 */
export type Measured = Readonly<{
  storage: Backups['storage'];
  backupsMb: number | null;
  problem: string | null;
}>;

export function usageDocument(
  row: UsageFacts,
  { storage, backupsMb, problem }: Measured,
  restoreWindowMs: number,
): ServiceUsage {
  const servers = serversOf(row);
  const why = whyItTakes(row, restoreWindowMs);
  const parent = row.origin?.parent ?? null;
  return {
    service_id: row.id,
    name: row.name,
    status: row.status,
    environment: row.environment,
    created: row.created.toISOString(),
    ...(row.created_by === null ? {} : { created_by: row.created_by }),
    ...(row.key_name === null ? {} : { key_name: row.key_name }),
    ...(parent === null ? {} : { forked_from: parent }),
    ...(row.parent_id === null ? {} : { read_replicas_of: row.parent_id }),
    ...(row.deleted_at === null ? {} : { deleted: row.deleted_at.toISOString() }),
    ...(row.expires_at === null ? {} : { expires_at: row.expires_at.toISOString() }),
    ...(row.suspended_at === null ? {} : { suspended: true }),
    servers,
    milli_cpu: row.milli_cpu,
    memory_mb: row.memory_mb,
    // Each further server has a copy of its own.
    own_mb: storage === null ? null : storage.owned_mb + (servers - 1) * storage.total_mb,
    shared_mb: storage?.shared_mb ?? null,
    backups_mb: backupsMb,
    why: problem === null ? why : `${why}; its disk was not measured: ${problem}`,
  };
}

const serversOf = ({ parent_id: parent, nodes, replica_count: replicas }: UsageFacts): number =>
  parent === null ? 1 + replicas : nodes;

/** Why a service takes what it takes, and which command makes it less. */
export function whyItTakes(row: UsageFacts, restoreWindowMs: number): string {
  if (row.deleted_at !== null) return whyDeleted(row, restoreWindowMs);
  if (row.parent_id !== null)
    return `a read replica set of ${row.parent_id}: ${copies(row.nodes, 'node')} of its data`;
  if (row.isForLeases) return 'it is for leases, which end (howdah lease list)';
  return [
    whyAwake(row),
    ...(row.replica_count === 0 ? [] : [`${copies(row.replica_count, 'replica')} of its data`]),
    ...(row.origin === null || row.expires_at !== null
      ? []
      : [`a fork without an end (howdah service set-expiry ${quoted(row.name)} +7d gives it one)`]),
  ].join('; ');
}

function whyDeleted(row: UsageFacts, restoreWindowMs: number): string {
  const untilMs = restorableUntilMs(row, restoreWindowMs) ?? 0;
  const until = new Date(untilMs).toISOString();
  return row.kept === null
    ? `deleted, and kept for a restore until ${until} ` +
        `(howdah service purge ${row.id} removes it)`
    : `deleted; only its backups in a repository are left, until ${until}`;
}

const copies = (count: number, what: string): string =>
  count === 1 ? `1 ${what} with a copy` : `${count} ${what}s, each with a copy`;

function whyAwake(row: UsageFacts): string {
  if (row.suspended_at !== null) return 'it sleeps, and takes disk only';
  if (row.power === 'paused') return 'it is stopped, and takes disk only';
  const name = quoted(row.name);
  if (row.auto_suspend_seconds !== null)
    return `it is awake (howdah service awake ${name} says what for)`;
  const why = whyNotAsleep(row);
  return why === null
    ? `it never falls asleep (howdah service set-auto-suspend ${name} 5m lets it)`
    : `it cannot fall asleep: ${why}`;
}
