/**
 * The functions by which Tiger's clients create roles that inherit tsdbadmin and are read-only.
 * Names and parameters are Tiger's (`tiger db create role --from tsdbadmin --read-only`; a dump of
 * a Tiger service shows the relatives).
 */
import { ADMIN_ROLE } from '@howdah/contract';
import { ROLE_PARAMETER } from './read-only-sql.ts';

const SCHEMA = 'timescale_functions';

const HEAD = 'returns void language plpgsql security definer set search_path = pg_catalog, pg_temp';

/** In PL/pgSQL: raises an error unless the role exists and is none of ours. */
const checkRole = (parameter: string): string => `
  if not exists (select from pg_roles where rolname = ${parameter}) then
    raise exception using errcode = 'undefined_object',
      message = format('role %I does not exist', ${parameter});
  end if;
  if ${parameter} like any (array['howdah%', '\\_howdah%', 'pg\\_%'])
     or ${parameter} = '${ADMIN_ROLE}'
     or (select rolsuper from pg_roles where rolname = ${parameter}) then
    raise exception using errcode = 'insufficient_privilege',
      message = format('role %I cannot be changed', ${parameter});
  end if;`;

/**
 * Each signature and body. A role that inherits tsdbadmin cannot be administered by it, so a
 * superuser creates and drops it. The password is in a statement of its own that does not fail: a
 * statement that fails is logged.
 */
const FUNCTIONS: readonly { name: string; parameters: string; body: string }[] = [
  {
    name: 'create_bare_readonly_role',
    parameters: 'role_name text, role_password text',
    body: `
  if coalesce(role_password, '') = '' then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'the password must not be empty';
  end if;
  if role_name like any (array['howdah%', '\\_howdah%']) then
    raise exception using errcode = 'reserved_name',
      message = format('role name %I is reserved', role_name);
  end if;
  execute format('create role %I login', role_name);
  execute format('alter role %I set ${ROLE_PARAMETER} = true', role_name);
  execute format('alter role %I password %L', role_name, role_password);`,
  },
  {
    name: 'delete_bare_readonly_role',
    parameters: 'role_name text',
    body: `${checkRole('role_name')}
  if exists (select from pg_auth_members m where m.roleid = quote_ident(role_name)::regrole)
     or not exists (select from pg_db_role_setting s
                    where s.setrole = quote_ident(role_name)::regrole and s.setdatabase = 0
                      and '${ROLE_PARAMETER}=true' = any (s.setconfig)) then
    raise exception using errcode = 'wrong_object_type',
      message = format('role %I was not made by create_bare_readonly_role', role_name),
      hint = 'Use DROP ROLE.';
  end if;
  execute format('drop role %I', role_name);`,
  },
  {
    name: 'grant_tsdbadmin_to_role',
    parameters: 'rolename text',
    body: `${checkRole('rolename')}
  execute format('grant ${ADMIN_ROLE} to %I with inherit true, set true', rolename);`,
  },
  {
    name: 'revoke_tsdbadmin_from_role',
    parameters: 'rolename text',
    body: `${checkRole('rolename')}
  execute format('revoke ${ADMIN_ROLE} from %I', rolename);`,
  },
];

/**
 * Lets tsdbadmin call the functions, or not: what they promise holds only where a module enforces
 * it. A schema that a user has made has none of them.
 */
export function allowRoleFunctions(isAllowed: boolean): string {
  const [verb, to] = isAllowed ? ['grant', 'to'] : ['revoke', 'from'];
  return `do $body$
    declare found regprocedure;
    begin
      for found in
        select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace
          join pg_roles r on r.oid = p.proowner
        where n.nspname = '${SCHEMA}' and r.rolsuper
          and p.proname in (${FUNCTIONS.map(({ name }) => `'${name}'`).join(', ')})
      loop
        execute format('${verb} execute on function %s ${to} ${ADMIN_ROLE}', found);
      end loop;
    end $body$`;
}

/**
 * The functions in the database of a service, for tsdbadmin alone, unless a user has taken the name
 * of the schema. As parts of an extension they are in no dump.
 */
export function roleFunctionStatements(): string[] {
  const made = FUNCTIONS.flatMap(({ name, parameters, body }) => {
    const signature = `${SCHEMA}.${name}(${parameters.replaceAll(/\w+ text/g, 'text')})`;
    return [
      `create function ${SCHEMA}.${name}(${parameters}) ${HEAD}
       as $body$ begin${body}\n end $body$`,
      `revoke all on function ${signature} from public`,
      `grant execute on function ${signature} to ${ADMIN_ROLE}`,
      `alter extension plpgsql add function ${signature}`,
    ];
  });
  const statements = [
    `create schema ${SCHEMA}`,
    `grant usage on schema ${SCHEMA} to ${ADMIN_ROLE}`,
    `alter extension plpgsql add schema ${SCHEMA}`,
    ...made,
  ];
  return [
    `do $outer$ begin
       if not exists (select from pg_namespace where nspname = '${SCHEMA}') then
         ${statements.join('; ')};
       end if;
     end $outer$`,
  ];
}
