/**
 * The settings of a PostgreSQL server as a pure function of its size. Each rule names its source:
 * [PG] the PostgreSQL manual, [tune] timescaledb-tune's published rules, [TC] what Tiger Cloud's
 * documentation states, [H] ours.
 */
import type { Size } from '@howdah/contract';
import { LIBRARIES, needsPreload } from './extension-rules.ts';

export type SettingsInput = {
  size: Size;
  major: number;
  extensions: readonly string[];
  /**
   * The storage quota of the server; null: there is none (the metadata database, a template being
   * made).
   */
  storageGb: number | null;
  /** The path of the module for read-only sessions; none: there is none. */
  readOnlyModule?: string | null;
};

const MB_PER_GB = 1024;

/**
 * Two WAL segments are the least that PostgreSQL takes as min_wal_size; a little more lets it
 * recycle them.
 */
const SMALLEST_MAX_WAL_MB = 96;

/** The size that a shared service counts as: a small part of a machine that others use as well. */
const SHARED = { cpuMillis: 500, memoryGbs: 1 } as const;

/**
 * The connections that a server of a size allows.
 *
 * @param memoryGbs null: the shared size
 */
export function maxConnectionsOf(memoryGbs: number | null): number {
  const gbs = memoryGbs ?? SHARED.memoryGbs;
  // [TC] 100 connections for the smallest size; [H] doubling with each size up to the 1000 beyond
  // which a pooler is the answer.
  return Math.min(1000, gbs <= 2 ? 100 : 50 * gbs);
}

/**
 * Server settings by name, with their units. Everything here takes effect at a start of the server.
 */
export function serverSettings({
  size,
  major,
  extensions,
  storageGb,
  readOnlyModule = null,
}: SettingsInput): Record<string, string> {
  const { cpuMillis, memoryGbs } = size === 'shared' ? SHARED : size;
  const memoryMb = memoryGbs * MB_PER_GB;
  const cores = Math.max(1, Math.floor(cpuMillis / 1000));
  // [PG] 19.4.1: a quarter of the memory. It costs an idle server 5 % of it.
  const sharedBuffersMb = memoryMb / 4;
  const maxConnections = maxConnectionsOf(memoryGbs);
  // [PG] 19.4.2, [tune] what is left after shared buffers, split between connections that sort at
  // the same time; 4 MB at the least.
  const workMemMb = Math.max(4, Math.floor((memoryMb - sharedBuffersMb) / (3 * maxConnections)));
  const timescale = extensions.includes('timescaledb');
  // [tune] a scheduler and a launcher for a database, and as many jobs at a time as there are
  // cores, 2 at the least.
  const timescaleWorkers = timescale ? Math.max(4, 2 + cores) : 0;
  const others = extensions.filter((name) => name !== 'timescaledb' && needsPreload(name));
  const otherWorkers = others.reduce((sum, name) => sum + (LIBRARIES[name]?.workers ?? 0), 0);
  // [PG] 19.4.6: two for a statement, also for a guarantee of one processor: idle ones are used.
  const gathered = Math.max(2, Math.floor(cores / 2));
  return {
    shared_preload_libraries: preloaded(timescale, others, readOnlyModule),
    max_connections: String(maxConnections),
    shared_buffers: `${sharedBuffersMb}MB`,
    // [PG] 19.7.2, [tune] three quarters: what the page cache and the shared buffers will hold
    // together.
    effective_cache_size: `${Math.floor((memoryMb * 3) / 4)}MB`,
    work_mem: `${workMemMb}MB`,
    // [tune] a sixteenth, 2 GB at the most.
    maintenance_work_mem: `${Math.min(2048, Math.max(32, Math.floor(memoryMb / 16)))}MB`,
    // [PG] 19.4.6 background workers: parallel ones, those of extensions, and logical replication's
    // launcher with a worker or two.
    max_worker_processes: String(3 + cores + timescaleWorkers + otherWorkers),
    max_parallel_workers: String(Math.max(gathered, cores)),
    max_parallel_workers_per_gather: String(gathered),
    max_parallel_maintenance_workers: String(gathered),
    ...(timescale
      ? {
          'timescaledb.max_background_workers': String(timescaleWorkers),
          'timescaledb.telemetry_level': 'off',
        }
      : {}),
    ...diskSettings(memoryMb, storageGb),
    // [PG] 19.7.2: random reads of solid state disks cost about as much as sequential ones.
    random_page_cost: '1.1',
    // [PG] 19.4.5, 18 and later: workers for reads take three processes of every server; without a
    // second core they gain nothing.
    ...(major >= 18 && cores < 2 ? { io_method: 'sync' } : {}),
    // [TC] users replicate logically; the manual asks for this level.
    wal_level: 'logical',
    // [H] two replicas, twenty nodes of read replica sets, and what the default leaves to users.
    max_wal_senders: '32',
    max_replication_slots: '32',
    // [PG] 20.5: a clone's first start after a crash of the machine flushes one file system, not
    // each file.
    recovery_init_sync_method: 'syncfs',
    track_io_timing: 'on',
    // [H] a statement whose client is gone ends: nobody waits for what it reads and writes.
    client_connection_check_interval: '10s',
    'pg_stat_statements.track': 'top',
    password_encryption: 'scram-sha-256',
    timezone: quoted('Etc/UTC'),
    ...writtenByInitdb(major),
    ...LOGGING,
  };
}

/** Bounds of WAL and temporary files. @param storageGb quota of the service; null: none */
function diskSettings(memoryMb: number, storageGb: number | null): Record<string, string> {
  const small = memoryMb <= 2 * MB_PER_GB;
  const quotaMb = storageGb === null ? Infinity : storageGb * 1000;
  const partOfQuotaMb = (part: number): number =>
    Math.max(SMALLEST_MAX_WAL_MB, Math.floor(quotaMb / part));
  const maxWalMb = Math.min(small ? 1024 : Math.min(16384, memoryMb / 2), partOfQuotaMb(8));
  const keptForSlotsMb = Math.min(Math.max(1024, memoryMb), partOfQuotaMb(4));
  return {
    // [PG] 19.5.2: checkpoints by time rather than by volume; the smallest size keeps the disk it
    // needs small. [H] an eighth of the quota at the most.
    max_wal_size: `${maxWalMb}MB`,
    min_wal_size: `${Math.min(small ? 80 : 512, Math.floor(maxWalMb / 2))}MB`,
    // [H] a slot without a reader must not fill the disk (docs/reliability.md, trap 7).
    max_slot_wal_keep_size: `${keptForSlotsMb}MB`,
    // [H] of one process; a fifth of the quota. Only a superuser may change it.
    ...(storageGb === null ? {} : { temp_file_limit: `${Math.floor(quotaMb / 5)}MB` }),
  };
}

function preloaded(
  timescale: boolean,
  others: readonly string[],
  readOnlyModule: string | null,
): string {
  return quoted(
    [
      ...(timescale ? ['timescaledb'] : []),
      'pg_stat_statements',
      ...others,
      // In double quotes, its path may hold any character.
      ...(readOnlyModule === null ? [] : [`"${readOnlyModule.replaceAll('"', '""')}"`]),
    ].join(','),
  );
}

/** The locale of the server's messages and formats, as initdb is given it. */
export const localeOf = (major: number): string => (major >= 17 ? 'C' : 'C.UTF-8');

/**
 * Settings that initdb takes from the locale and writes into the file that ours replaces. Without
 * them, full-text search stems no words and knows no stop words.
 */
const writtenByInitdb = (major: number): Record<string, string> => ({
  default_text_search_config: quoted('pg_catalog.english'),
  ...Object.fromEntries(
    ['lc_messages', 'lc_monetary', 'lc_numeric', 'lc_time'].map((name) => [
      name,
      quoted(localeOf(major)),
    ]),
  ),
});

/** Structured logs, rotated by size and by day; `logs.ts` reads them and takes away the oldest. */
const LOGGING = {
  logging_collector: 'on',
  log_destination: quoted('jsonlog'),
  log_filename: quoted('%Y-%m-%dT%H%M%S.log'),
  log_file_mode: '0600',
  log_rotation_age: '1d',
  log_rotation_size: '10MB',
  log_timezone: quoted('Etc/UTC'),
  log_lock_waits: 'on',
  log_min_duration_statement: '10s',
  // A parameter of a logged statement may be a secret.
  log_parameter_max_length: '0',
  log_parameter_max_length_on_error: '0',
} as const;

/** A value as a configuration file takes it. */
export function quoted(value: string): string {
  return `'${value.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}

/** A value in a connection string ([PG] 34.1.1.1), quoted only if necessary. */
export function conninfoValue(value: string): string {
  return /^[\w./-]+$/.test(value) ? value : `'${value.replaceAll(/[\\']/g, String.raw`\$&`)}'`;
}
