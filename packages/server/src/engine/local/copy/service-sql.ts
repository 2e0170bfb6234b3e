/**
 * SQL that makes the data of a service of Kubernetes that of a service of this machine. It runs in
 * single-user mode: no session of another exists, and no setting or trigger of a database or role
 * holds there. Each statement can be repeated.
 */
import { MOVE_ROLES, OPERATOR_ROLES } from '../../moves.ts';
import { statisticsStatements } from '../postgres/contents.ts';
import { CONTROL_ROLE } from '../postgres/files.ts';

const MADE = 'superuser createdb createrole replication bypassrls login';

/**
 * The superuser of this machine. A tenant cannot make a superuser: a role of this name that is none
 * is a tenant's, and gets another name, since what owns it could become it.
 */
const CONTROL = `do $body$
  declare other text := 'former_${CONTROL_ROLE}';
  begin
    if exists (select from pg_authid where rolname = '${CONTROL_ROLE}' and not rolsuper) then
      for n in 1 .. 1000000 loop
        exit when not exists (select from pg_authid where rolname = other);
        other := format('former_${CONTROL_ROLE}_%s', n);
      end loop;
      execute format('alter role ${CONTROL_ROLE} rename to %I', other);
    end if;
    if not exists (select from pg_authid where rolname = '${CONTROL_ROLE}') then
      create role ${CONTROL_ROLE} ${MADE};
    end if;
    alter role ${CONTROL_ROLE} ${MADE} connection limit -1 password null valid until 'infinity';
    alter role ${CONTROL_ROLE} reset all;
  end $body$`;

/**
 * Nobody may log in as a role of CloudNativePG or of the control plane there. If nobody has been
 * granted it, it is none of a tenant's: it is dropped if nothing depends on it. pg_checkpoint shows
 * that another one is ours: no tenant can grant it.
 */
const closeRole = (name: string): string => `do $body$
  begin
    if not exists (select from pg_authid where rolname = '${name}') then return; end if;
    alter role ${name} nologin noreplication password null;
    if exists (select from pg_authid where rolname = '${name}' and rolsuper)
       or exists (select from pg_auth_members where roleid = '${name}'::regrole) then
      return;
    end if;
    begin
      drop owned by ${name};
      drop role ${name};
    exception when others then
      grant pg_checkpoint to ${name};
    end;
  end $body$`;

/** The text that it prints at its end. */
export const DONE = 'howdah has promoted it';

/**
 * The extension that services of this machine have in the database of users, and others lack. It
 * fails where a tenant has the extension already.
 */
export const databaseSql = (): readonly string[] => statisticsStatements();

/** The roles of a service of this machine. */
export function serviceSql(): readonly string[] {
  const closed = [...MOVE_ROLES, ...OPERATOR_ROLES].map(closeRole);
  return [CONTROL, ...closed, `select '${DONE}' as done`];
}
