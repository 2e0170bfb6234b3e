/**
 * Functions of PostgreSQL that everybody may call and that write WAL or files in a transaction that
 * only reads. In a tenant's database they are tsdbadmin's alone, who cannot grant them: a grant to
 * a role that both it and the reader are members of could not be revoked
 * (docs/decisions/0021-query.md). `query.test.ts` classifies the others.
 */
import { ADMIN_ROLE } from '@howdah/contract';

/** `pg_export_snapshot` makes a file with each call. */
export const WRITERS = ['pg_logical_emit_message', 'pg_export_snapshot'] as const;

const NAMES = `array[${WRITERS.map((name) => `'${name}'`).join(', ')}]::pg_catalog.name[]`;

/** In SQL, of a session of any search path: whether its role may call one of them. */
export const CAN_WRITE = `exists (
  select from pg_catalog.pg_proc p
  where p.pronamespace operator(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
    and p.proname operator(pg_catalog.=) any (${NAMES})
    and pg_catalog.has_function_privilege(p.oid, 'execute'))`;

const FOUND = `pronamespace = 'pg_catalog'::regnamespace and proname = any (${NAMES})`;

/**
 * One statement of a superuser in a database: takes the functions from everybody but tsdbadmin.
 *
 * pg_dump shows what differs from the privileges that initdb made: these are as if it had, or each
 * dump would have errors when it is restored.
 */
export const REVOKE_WRITERS = `do $body$
declare signature text;
begin
  perform set_config('allow_system_table_mods', 'on', true);
  for signature in select oid::regprocedure::text from pg_proc where ${FOUND} loop
    execute format('revoke all on function %s from public, ${ADMIN_ROLE} cascade', signature);
    execute format('grant execute on function %s to ${ADMIN_ROLE}', signature);
  end loop;
  delete from pg_init_privs where classoid = 'pg_proc'::regclass
    and objoid in (select oid from pg_proc where ${FOUND});
  insert into pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
    select oid, 'pg_proc'::regclass, 0, 'i', proacl from pg_proc where ${FOUND};
end $body$`;
