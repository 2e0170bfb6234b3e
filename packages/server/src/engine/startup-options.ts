/**
 * The parameters of sessions of ours in the servers of tenants, as the startup packet has them:
 * they take precedence over ALTER DATABASE and ALTER ROLE (PostgreSQL source: GucSource in
 * src/include/utils/guc.h; docs/decisions/0026-sessions-in-tenants-servers.md).
 */

/**
 * Locks are waited for no longer: a tenant may hold one for ever. Shorter than what a heartbeat is
 * given.
 */
const LOCK_TIMEOUT_MS = 2000;
const IDLE_TRANSACTION_TIMEOUT_MS = 60_000;

/**
 * Parameters of every session of ours, whatever a database's owner has set; a role without rights
 * may set these too.
 */
const FOR_ANYBODY: Readonly<Record<string, string>> = {
  // pg_temp last: unnamed, it would come before pg_catalog for tables and types.
  search_path: 'pg_catalog,pg_temp',
  role: 'none',
  local_preload_libraries: '',
  row_security: 'off',
  synchronous_commit: 'local',
  default_transaction_isolation: 'read committed',
  // With serializable and read only, a transaction would wait for those of others.
  default_transaction_deferrable: 'off',
  idle_session_timeout: '0',
  jit: 'off',
  max_parallel_workers_per_gather: '0',
  check_function_bodies: 'on',
  default_tablespace: '',
  temp_tablespaces: '',
  default_table_access_method: 'heap',
  default_toast_compression: 'pglz',
  client_min_messages: 'warning',
  // How values are read and written.
  DateStyle: 'ISO,MDY',
  IntervalStyle: 'postgres',
  TimeZone: 'UTC',
  extra_float_digits: '1',
  bytea_output: 'hex',
  standard_conforming_strings: 'on',
  backslash_quote: 'safe_encoding',
  array_nulls: 'on',
  transform_null_equals: 'off',
  quote_all_identifiers: 'off',
  xmloption: 'content',
};
const FOR_SUPERUSER: Readonly<Record<string, string>> = {
  session_preload_libraries: '',
  session_replication_role: 'origin',
  allow_system_table_mods: 'off',
  // A statement of ours may have the verifier of a password.
  log_min_duration_statement: '-1',
  log_min_duration_sample: '-1',
};
/** Known from a major version on. */
const SINCE: readonly { major: number; anybody: boolean; name: string; value: string }[] = [
  { major: 17, anybody: false, name: 'event_triggers', value: 'off' },
  { major: 17, anybody: true, name: 'transaction_timeout', value: '0' },
];

type SessionOptions = {
  /** The time limit of one statement. */
  limitMs: number;
  readOnly?: boolean;
  major: number | null;
  superuser: boolean;
};

/**
 * The parameters of a session, as the startup packet takes them.
 *
 * @param major null: of any version; for a database without a tenant's settings
 */
export function startupOptions({
  limitMs,
  readOnly = false,
  major,
  superuser,
}: SessionOptions): string {
  const later = SINCE.filter(
    (setting) => major !== null && major >= setting.major && (superuser || setting.anybody),
  );
  const settings = {
    ...FOR_ANYBODY,
    ...(superuser ? FOR_SUPERUSER : {}),
    ...Object.fromEntries(later.map(({ name, value }) => [name, value])),
    default_transaction_read_only: readOnly ? 'on' : 'off',
    statement_timeout: String(limitMs),
    lock_timeout: String(LOCK_TIMEOUT_MS),
    idle_in_transaction_session_timeout: String(IDLE_TRANSACTION_TIMEOUT_MS),
  };
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value.replaceAll(/[\\ ]/g, String.raw`\$&`)}`)
    .join(' ');
}
