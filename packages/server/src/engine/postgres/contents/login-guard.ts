/**
 * Read-only sessions where the module is not loaded: a login trigger refuses them, since nothing
 * would enforce what was asked for (docs/decisions/0038-read-only-connections.md).
 */

/** Set in the startup packet of a session that must not write. */
export const CONNECTION_PARAMETER = 'tsdb_admin.read_only_connection';
/** Set for roles whose sessions must not write. */
export const ROLE_PARAMETER = 'tsdb_admin.read_only_role';

/** The first major version of PostgreSQL that has triggers for logins. */
export const LOGIN_TRIGGERS_SINCE = 17;

const TRIGGER = 'howdah_read_only';
const FUNCTION = 'pg_howdah.refuse_unenforced';
const CHECK = 'pg_howdah.check_read_only';

const HINT = [
  `Connect without ${CONNECTION_PARAMETER}, as a role without ${ROLE_PARAMETER};`,
  'or ask the operator to install a C compiler and the headers of the PostgreSQL server.',
].join(' ');

const IS_OFF = "in ('', 'off', 'of', 'false', 'f', 'no', 'n', '0')";

/**
 * The trigger of a database, for PostgreSQL 17 and newer. Users can neither drop nor disable it: it
 * is the superuser's, as are the functions in a schema of the reserved prefix. As a part of an
 * extension it is in no dump.
 *
 * The trigger's function runs at each login, so it does no more than look whether one of the
 * parameters is set. The value of the role's is then read from the catalog: the startup packet may
 * override it.
 */
export function loginGuardStatements(): string[] {
  return [
    'create schema if not exists pg_howdah',
    `create or replace function ${CHECK}() returns void
     language plpgsql set search_path = pg_catalog, pg_temp as $body$
     begin
       if coalesce(lower(current_setting('${CONNECTION_PARAMETER}', true)) ${IS_OFF}, true)
          and not exists (
         select from pg_db_role_setting s, unnest(s.setconfig) as parameter(text)
         where s.setrole in (0, (select oid from pg_roles where rolname = session_user))
           and s.setdatabase in
             (0, (select oid from pg_database where datname = current_database()))
           and split_part(parameter.text, '=', 1) = '${ROLE_PARAMETER}'
           and not lower(split_part(parameter.text, '=', 2)) ${IS_OFF}
       ) then return; end if;
       -- A parameter that nothing defines is in no view.
       if exists (select from pg_settings where name = '${CONNECTION_PARAMETER}') then
         return;
       end if;
       raise exception using errcode = 'feature_not_supported',
         message = 'this service cannot enforce read-only sessions',
         detail = 'A session that asked to be read-only could write, so it is refused.',
         hint = '${HINT}';
     end $body$`,
    `grant usage on schema pg_howdah to public`,
    `create or replace function ${FUNCTION}() returns event_trigger language plpgsql as $body$
     begin
       if pg_catalog.current_setting('${CONNECTION_PARAMETER}', true) is not null
          or pg_catalog.current_setting('${ROLE_PARAMETER}', true) is not null then
         perform ${CHECK}();
       end if;
     end $body$`,
    `do $body$ begin
       if not exists (select from pg_event_trigger where evtname = '${TRIGGER}') then
         create event trigger ${TRIGGER} on login execute function ${FUNCTION}();
         alter event trigger ${TRIGGER} enable always;
         alter extension plpgsql add event trigger ${TRIGGER};
       end if;
     end $body$`,
  ];
}

/** The names of roles that are read-only by a setting. */
export const READ_ONLY_ROLES = `
  select distinct coalesce(r.rolname::text, 'all') as name
  from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole,
    unnest(s.setconfig) as parameter(text)
  where split_part(parameter.text, '=', 1) = '${ROLE_PARAMETER}'`;
