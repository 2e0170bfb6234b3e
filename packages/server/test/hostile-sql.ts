/** Objects by which a tenant has its own code run by somebody else's SQL. */
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The schema of the traps. */
export const TRAP = 'trap';

/**
 * As what traps report that they ran as superuser: into the server's log, which no rollback takes
 * back, and by an error.
 */
export const SPRUNG = 'TRAP SPRUNG';

/** The lines about traps in the server logs of an installation. */
export async function sprungIn(home: string): Promise<string[]> {
  const root = join(home, 'data', 'services');
  const files = (await namesBelow(root)).filter((name) => /\/logs\/[^/]+\.json$/.test(name));
  const texts = await Promise.all(
    files.map((name) => readFile(join(root, name), 'utf8').catch(() => '')),
  );
  return texts.flatMap((text) => text.split('\n').filter((line) => line.includes(SPRUNG)));
}

/** All names below a directory. It is read again while directories in it are being removed. */
async function namesBelow(directory: string): Promise<string[]> {
  for (;;) {
    try {
      return await readdir(directory, { recursive: true });
    } catch (error) {
      if (Reflect.get(Object(error), 'code') !== 'ENOENT' || !existsSync(directory)) throw error;
    }
  }
}

const spring = (condition: string): string => `
  begin
    if ${condition} then
      raise log '${SPRUNG} by %, as %, in %', what, current_user,
        pg_catalog.current_setting('application_name');
      raise exception '${SPRUNG} by %', what;
    end if;
    return true;
  end`;
const isSuper = (role: string): string =>
  `(select r.rolsuper from pg_catalog.pg_roles r where r.rolname = ${role})`;

/**
 * Look-alikes of all relations, functions and operators of pg_catalog, in one schema: each calls a
 * trap and does what the original does.
 */
const lookAlikes = (schema: string): string[] => [
  `do $do$ declare r record; begin
     for r in select c.relname from pg_catalog.pg_class c
              where c.relnamespace = 11 and c.relkind in ('r', 'v') loop
       begin
         execute format('create view ${schema}.%1$I as select t.* from pg_catalog.%1$I t
           where trap.spring(%2$L)', r.relname, 'view ' || r.relname);
       exception when others then null;
       end;
     end loop;
   end $do$`,
  `do $do$ declare r record; begin
     for r in select p.proname, pg_catalog.oidvectortypes(p.proargtypes) as takes,
                     pg_catalog.format_type(p.prorettype, null) as gives,
                     (select pg_catalog.string_agg('$' || n, ', ')
                      from pg_catalog.generate_series(1, p.pronargs) n) as args
              from pg_catalog.pg_proc p
              where p.pronamespace = 11 and p.prokind = 'f'
                and not p.proretset and p.provariadic = 0
                and p.prorettype
                  <> all ('{internal,trigger,event_trigger,record}'::pg_catalog.regtype[]) loop
       begin
         execute format(
           'create function ${schema}.%1$I(%2$s) returns %3$s language plpgsql as %4$L',
           r.proname, r.takes, r.gives,
           format('begin perform trap.spring(%L); %s pg_catalog.%I(%s); end',
             'function ' || r.proname,
             case r.gives when 'void' then 'perform' else 'return' end, r.proname, r.args));
       exception when others then null;
       end;
     end loop;
   end $do$`,
  `do $do$ declare r record; begin
     for r in select o.oprname, pg_catalog.format_type(o.oprleft, null) as l,
                     pg_catalog.format_type(o.oprright, null) as r,
                     o.oprleft = 0 as prefix, p.proname
              from pg_catalog.pg_operator o join pg_catalog.pg_proc p on p.oid = o.oprcode
              where o.oprnamespace = 11 loop
       begin
         execute format(
           'create operator ${schema}.%s (%s rightarg = %s, function = ${schema}.%I)', r.oprname,
           case when r.prefix then '' else format('leftarg = %s,', r.l) end, r.r, r.proname);
       exception when others then null;
       end;
     end loop;
   end $do$`,
  `do $do$ declare t text; begin
     foreach t in array '{text,name,oid,regclass,regrole,regtype,regproc,regprocedure,inet,pg_lsn,
       int4,int8,bool,float8,json,jsonb}'::text[] loop
       execute format('create domain ${schema}.%1$I as pg_catalog.%1$I check (trap.spring(%2$L))',
         t, 'domain ' || t);
     end loop;
   end $do$`,
  `create function ${schema}.step(bigint) returns bigint language plpgsql as $$
     begin perform trap.spring('count'); return $1 operator(pg_catalog.+) 1; end $$`,
  `create aggregate ${schema}.count(*) (sfunc = ${schema}.step, stype = bigint, initcond = '0')`,
  // Earlier objects must not be in the way of later ones.
  'set search_path = pg_catalog',
];

/** A table with indexes that notice in whose session they are evaluated. */
const spyingIndex = (schema: string): string[] => [
  `create function ${schema}.expression(n int) returns int immutable
     language plpgsql set search_path = pg_catalog as $$
   declare what text := 'index'; begin
     if ${isSuper('session_user')} and pg_catalog.current_setting('application_name') like 'howdah%'
     then
       raise log '${SPRUNG} by an index'; raise exception '${SPRUNG} by an index';
     end if;
     return n;
   end $$`,
  `create table ${schema}.probe (id int primary key)`,
  `insert into ${schema}.probe select generate_series(1, 100)`,
  `create index on ${schema}.probe (${schema}.expression(id))`,
  `create index on ${schema}.probe (id) where ${schema}.expression(id) > 0`,
];

/** The same for a database without traps. */
export const SPYING_INDEX: readonly string[] = ['create schema spying', ...spyingIndex('spying')];

export const TRAPS: readonly string[] = [
  'set search_path = pg_catalog',
  `create schema ${TRAP}`,
  `grant usage on schema ${TRAP} to public`,
  `create function ${TRAP}.spring(what text) returns boolean
     language plpgsql set search_path = pg_catalog as $$ ${spring(isSuper('current_user'))} $$`,
  ...lookAlikes(TRAP),
  ...lookAlikes('public'),
  // Nothing of ours evaluates an index's expression in a session of a superuser, not even as the
  // table's owner.
  ...spyingIndex(TRAP),
  'create schema _howdah',
  `create table _howdah.probe (id int primary key default (${TRAP}.spring('default')::int))`,
  `create function ${TRAP}.fire() returns trigger language plpgsql as $$
     begin perform ${TRAP}.spring('trigger'); return new; end $$`,
  `create trigger t before insert or update or delete on _howdah.probe
     for each row execute function ${TRAP}.fire()`,
  `create rule r as on insert to _howdah.probe do also select ${TRAP}.spring('rule')`,
  `create type ${TRAP}.mine as (v text)`,
  ...['text', 'name', 'oid', 'regclass', 'int8', 'bool'].flatMap((type) => [
    `create function ${TRAP}.to_mine(v pg_catalog.${type}) returns ${TRAP}.mine
       language plpgsql as $$ begin perform ${TRAP}.spring('cast'); return row('x'); end $$`,
    `create cast (pg_catalog.${type} as ${TRAP}.mine)
       with function ${TRAP}.to_mine(pg_catalog.${type}) as implicit`,
  ]),
  'alter default privileges grant all on tables to public',
  'alter default privileges in schema public grant all on functions to public',
  `create role ${TRAP}_role`,
  `create role "a'b\n\u202e"`,
  `comment on database tsdb is 'it''s "\n\u202e\u001b[31m'`,
  `create table ${TRAP}."t'\n""\u202e" (id int)`,
];

/** Statements that a tenant must not be able to run in the first place. */
export const FORBIDDEN: readonly string[] = [
  `create event trigger e on ddl_command_start execute function ${TRAP}.fire()`,
  `create function pg_catalog.pwn() returns int language sql as 'select 1'`,
  'create schema pg_howdah_too',
  'create role pg_howdah_too',
  'alter default privileges for role howdah grant all on tables to public',
  `alter role howdah set search_path = ${TRAP}`,
  `alter role all set search_path = ${TRAP}`,
  `alter database postgres set search_path = ${TRAP}`,
  'alter role howdah_pooler password $$x$$',
  `alter function pg_catalog.now() set search_path = ${TRAP}`,
  'create access method a type table handler heap_tableam_handler',
  'drop extension plpgsql',
  'alter system set search_path = $$trap$$',
];

/**
 * Sets every parameter that may be set for the database, to something that is in the way; those
 * that need more privileges fail. With tsdb_admin.read_only_role the tenant itself could not go on.
 */
export const SETTINGS = `do $do$ declare s record; v text; begin
  for s in select name, vartype, enumvals, setting, min_val from pg_catalog.pg_settings
           where context in ('user', 'superuser') and name <> 'tsdb_admin.read_only_role'
           order by name loop
    v := case s.name
           when 'search_path' then '${TRAP}, public, pg_catalog'
           when 'role' then '${TRAP}_role'
           when 'local_preload_libraries' then 'nothing_there'
           when 'session_preload_libraries' then 'nothing_there'
           when 'DateStyle' then 'SQL, DMY'
           when 'TimeZone' then 'Etc/GMT+12'
           when 'client_encoding' then 'LATIN1'
           else case s.vartype
             when 'bool' then case s.setting when 'on' then 'off' else 'on' end
             when 'enum' then s.enumvals[pg_catalog.array_length(s.enumvals, 1)]
             when 'string' then s.setting
             else case when s.min_val in ('0', '-1') then '1' else s.min_val end
           end
         end;
    begin
      if s.name in ('search_path', 'DateStyle') then
        execute pg_catalog.format('alter database tsdb set %I = %s', s.name, v);
      else execute pg_catalog.format('alter database tsdb set %I = %L', s.name, v);
      end if;
    exception when others then null;
    end;
  end loop;
end $do$`;

/** With these the tenant itself still gets along. */
export const TENANT_OPTIONS = [
  'search_path=pg_catalog',
  'role=none',
  'local_preload_libraries=',
  'statement_timeout=0',
  'lock_timeout=0',
  'transaction_timeout=0',
  'idle_in_transaction_session_timeout=0',
  'idle_session_timeout=0',
  'default_transaction_read_only=off',
  // A parallel worker begins with the settings of the database, transaction_timeout among them.
  'max_parallel_workers_per_gather=0',
  'client_encoding=UTF8',
]
  .map((setting) => `-c ${setting}`)
  .join(' ');
