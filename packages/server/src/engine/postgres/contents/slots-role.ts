/**
 * The role by which standbys follow and read the failover slots of their primary
 * (docs/decisions/0083-failover-slots.md). It may replicate and log in, and nothing else: the user
 * of the operating system that has it is a superuser in no database.
 */
import { MAINTENANCE_DATABASE, SLOTS_ROLE } from '../roles.ts';

/** PostgreSQL knows failover slots from this version on. */
export const FAILOVER_SLOTS_SINCE = 17;

/** A user of the service who has created a role may become it, and change it. */
const IS_TENANTS = `exists (select from pg_auth_members m join pg_roles r on r.oid = m.roleid
  where r.rolname = '${SLOTS_ROLE}')`;
const IS_KNOWN = `current_setting('server_version_num')::int >= ${FAILOVER_SLOTS_SINCE}0000`;

/** In SQL, in the maintenance database: whether standbys can follow as the role. */
export const HAS_SLOTS_ROLE = `(exists (select from pg_roles where rolname = '${SLOTS_ROLE}'
    and rolcanlogin and rolreplication and not rolsuper) and not ${IS_TENANTS})`;

/** In SQL: whether {@link CREATE_SLOTS_ROLE} would change nothing. */
export const IS_SLOTS_ROLE_CURRENT = `(not ${IS_KNOWN} or ${IS_TENANTS} or ${HAS_SLOTS_ROLE})`;

/**
 * One statement of a superuser in the maintenance database. A role that a user of the service has
 * made stays as it is: slots do not go on then.
 */
export const CREATE_SLOTS_ROLE = `do $body$ begin
  if ${IS_SLOTS_ROLE_CURRENT} then return; end if;
  if not exists (select from pg_roles where rolname = '${SLOTS_ROLE}') then
    create role ${SLOTS_ROLE};
  end if;
  alter role ${SLOTS_ROLE} login replication noinherit nosuperuser nocreatedb nocreaterole
    nobypassrls connection limit -1 password null valid until 'infinity';
  alter role ${SLOTS_ROLE} reset all;
  alter role ${SLOTS_ROLE} in database ${MAINTENANCE_DATABASE} reset all;
end $body$`;
