/** The rights of tsdbadmin, the role of a service's owner. */
import { ADMIN_ROLE } from '@howdah/contract';

/**
 * SQL that gives an existing role its rights, for a superuser, in any database: make and grant
 * roles, monitor the server, ask for checkpoints, replicate logically. (A connection for that takes
 * the commands of physical replication too: all that they reach is its own server's. pg_hba.conf
 * refuses the connections that are for nothing else.) What it may not, because it is no superuser
 * and belongs to none of the roles for it: read or write the server's files, run programs, add
 * untrusted languages, change our settings or our role.
 */
export function adminRights(): string[] {
  const admin = ADMIN_ROLE;
  return [
    `alter role ${admin} createdb createrole replication`,
    // tsdbadmin may become a role that it creates, and may end its sessions.
    `alter role ${admin} set createrole_self_grant = 'set, inherit'`,
    // Not pg_write_all_data: it covers tables of extensions, and TimescaleDB runs the jobs in its
    // table as their owner.
    // Not pg_maintain: it locks the catalogs of all databases, which every login reads.
    `grant pg_read_all_stats, pg_read_all_settings, pg_stat_scan_tables, pg_read_all_data,
     pg_monitor, pg_checkpoint to ${admin} with admin option`,
    'revoke all on database postgres, template1 from public',
    GRANT_LOGGING,
  ];
}

/**
 * Parameters of the server log that tsdbadmin may set, for a database, a role or a session. Not
 * log_statement: it logs the passwords in statements.
 */
const LOGGING_PARAMETERS = [
  'log_min_duration_statement',
  'log_min_duration_sample',
  'log_statement_sample_rate',
  'log_temp_files',
  'log_lock_waits',
] as const;
const NAMES = LOGGING_PARAMETERS.join(', ');
export const GRANT_LOGGING = `grant set on parameter ${NAMES} to ${ADMIN_ROLE}`;
/** Whether tsdbadmin may, in SQL of any role. */
const [FIRST] = LOGGING_PARAMETERS;
export const MAY_SET_LOGGING = `has_parameter_privilege('${ADMIN_ROLE}', '${FIRST}', 'set')`;

/**
 * SQL that opens the database `postgres`, for a superuser in it: createdb, dropdb and most tools
 * that create databases connect there. Nobody can leave anything in it: it has no tables of users,
 * temporary ones included, no large objects, and no dump contains it.
 */
export const OPEN_MAINTENANCE: readonly string[] = [
  'revoke all on schema public from public',
  `revoke execute on function lo_create(oid), lo_creat(integer), lo_from_bytea(oid, bytea)
   from public`,
  'grant connect on database postgres to public',
];

/** Whether the database `postgres` is open, in SQL of a superuser. */
export const IS_MAINTENANCE_OPEN = `has_database_privilege('public', 'postgres', 'connect')`;

/**
 * The right to end sessions of other roles, and to grant it. Only where superusers alone end
 * sessions that may not go on: on Kubernetes a role of ours does, whose session could be ended.
 */
export const GRANT_SIGNALS = `grant pg_signal_backend to ${ADMIN_ROLE} with admin option`;
