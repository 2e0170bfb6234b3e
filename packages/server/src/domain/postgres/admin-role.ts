/** The rights of tsdbadmin, the role of a service's owner. */
import { ADMIN_ROLE } from '@howdah/contract';

/**
 * SQL that gives an existing role its rights, for a superuser, in any database: make and grant
 * roles, see all statistics, replicate logically. (A connection for that takes the commands of
 * physical replication too: all that they reach is its own server's. pg_hba.conf refuses the
 * connections that are for nothing else.) What it may not, because it is no superuser and belongs
 * to none of the roles for it: read or write the server's files, run programs, add untrusted
 * languages, change our settings or our role.
 */
export function adminRights(): string[] {
  const admin = ADMIN_ROLE;
  return [
    `alter role ${admin} createdb createrole replication`,
    // tsdbadmin may become a role that it creates, and may end its sessions.
    `alter role ${admin} set createrole_self_grant = 'set, inherit'`,
    // Not pg_write_all_data: it covers tables of extensions, and TimescaleDB runs the jobs in its
    // table as their owner.
    `grant pg_read_all_stats, pg_read_all_settings, pg_stat_scan_tables, pg_read_all_data
     to ${admin} with admin option`,
    'revoke all on database postgres, template1 from public',
  ];
}
