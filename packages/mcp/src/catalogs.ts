/** Statements that read the catalogs of a database. Each is one statement and changes nothing. */
import { escapeIdentifier, escapeLiteral } from 'pg';
import type { DatabaseObject } from './diff.ts';

/** Schemas of PostgreSQL and of TimescaleDB, as a regular expression of PostgreSQL. */
const INTERNAL = `'^(pg_|information_schema$|_timescaledb|timescaledb_)'`;

const isOfExtension = (catalog: string, oid: string): string =>
  `exists (select from pg_depend e
           where e.classid = '${catalog}'::regclass and e.objid = ${oid} and e.deptype = 'e')`;

/**
 * Tables and views with what belongs to them. $1: only this schema; $2: only tables of this name;
 * null: all. Internal objects, and those of extensions, are left out.
 */
export const TABLES_SQL = `
select n.nspname as schema, c.relname as name,
       case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'v' then 'view'
                      when 'm' then 'materialized view' else 'foreign table' end as kind,
       case when c.reltuples < 0 then null else c.reltuples::bigint end as estimated_rows,
       pg_total_relation_size(c.oid) as bytes,
       (select json_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                        || case when a.attnotnull then ' not null' else '' end
                        || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
                        order by a.attnum)
        from pg_attribute a
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
       (select json_agg(k.conname || ': ' || pg_get_constraintdef(k.oid)
                        order by k.contype desc, k.conname)
        from pg_constraint k
        where k.conrelid = c.oid and k.contype in ('p', 'f', 'u', 'c', 'x')) as keys,
       (select json_agg(pg_get_indexdef(i.indexrelid) order by i.indexrelid)
        from pg_index i where i.indrelid = c.oid and not i.indisprimary) as indexes,
       obj_description(c.oid, 'pg_class') as comment
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition and n.nspname !~ ${INTERNAL}
  and ($1::text is null or n.nspname = $1) and ($2::text is null or c.relname = $2)
  and not ${isOfExtension('pg_class', 'c.oid')}
order by 1, 2`;

/**
 * All objects of users, for a comparison: kind, name, the table that they belong to, definition,
 * and for tables the schema, the name and an estimate of the rows.
 */
export const OBJECTS_SQL = `
with relations as (
  select c.*, n.nspname, format('%I.%I', n.nspname, c.relname) as called,
         c.relkind in ('r', 'p', 'm') as has_rows
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname !~ ${INTERNAL} and not ${isOfExtension('pg_class', 'c.oid')}
), objects (kind, name, of, definition, nspname, relname, estimated_rows) as (
  select case c.relkind when 'r' then 'table' when 'p' then 'table' when 'v' then 'view'
                        when 'm' then 'materialized view' when 'S' then 'sequence'
                        else 'foreign table' end,
         c.called, null,
         concat_ws(' ', 'owner ' || pg_get_userbyid(c.relowner),
                   case c.relpersistence when 'u' then 'unlogged' end,
                   'partition by ' || pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid),
                   case when c.relrowsecurity then 'row security' end,
                   array_to_string(c.reloptions, ', '),
                   'privileges ' || array_to_string(c.relacl, ', '),
                   case when c.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end,
                   (select format('%s start %s increment %s', format_type(s.seqtypid, null),
                                  s.seqstart, s.seqincrement)
                    from pg_sequence s where s.seqrelid = c.oid)),
         case when c.has_rows then c.nspname end, case when c.has_rows then c.relname end,
         case when c.reltuples >= 0 then c.reltuples::bigint end
  from relations c where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
  union all
  select 'schema', format('%I', n.nspname), null, 'owner ' || pg_get_userbyid(n.nspowner),
         null, null, null
  from pg_namespace n
  where n.nspname !~ ${INTERNAL} and not ${isOfExtension('pg_namespace', 'n.oid')}
  union all
  select 'column', format('%s.%I', c.called, a.attname), c.called,
         concat_ws(' ', format_type(a.atttypid, a.atttypmod),
                   case when a.attnotnull then 'not null' end,
                   case when a.attgenerated <> '' then 'generated as'
                        when d.adbin is not null then 'default' end,
                   pg_get_expr(d.adbin, d.adrelid),
                   case when a.attidentity <> '' then 'identity' end,
                   case when a.attcollation <> t.typcollation
                        then 'collate ' || a.attcollation::regcollation end),
         null, null, null
  from relations c join pg_attribute a on a.attrelid = c.oid join pg_type t on t.oid = a.atttypid
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  where c.relkind in ('r', 'p', 'f') and a.attnum > 0 and not a.attisdropped
  union all
  select 'constraint', format('%I on %s', k.conname, c.called), c.called,
         pg_get_constraintdef(k.oid), null, null, null
  from relations c join pg_constraint k on k.conrelid = c.oid
  where k.contype in ('p', 'f', 'u', 'c', 'x')
  union all
  select 'index', format('%I.%I', c.nspname, x.relname), c.called,
         pg_get_indexdef(i.indexrelid) || case when i.indisvalid then '' else ' (invalid)' end,
         null, null, null
  from relations c join pg_index i on i.indrelid = c.oid join pg_class x on x.oid = i.indexrelid
  where not exists (select from pg_constraint k
                    where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))
  union all
  select 'trigger', format('%I on %s', t.tgname, c.called), c.called,
         pg_get_triggerdef(t.oid) || case t.tgenabled when 'D' then ' (disabled)' else '' end,
         null, null, null
  from relations c join pg_trigger t on t.tgrelid = c.oid where not t.tgisinternal
  union all
  select 'policy', format('%I on %s', p.polname, c.called), c.called,
         concat_ws(' ', case p.polcmd when '*' then 'all' when 'r' then 'select'
                                      when 'a' then 'insert' when 'w' then 'update'
                                      else 'delete' end,
                   case when p.polpermissive then 'permissive' else 'restrictive' end,
                   'using ' || pg_get_expr(p.polqual, p.polrelid),
                   'check ' || pg_get_expr(p.polwithcheck, p.polrelid)), null, null, null
  from relations c join pg_policy p on p.polrelid = c.oid
  union all
  select case p.prokind when 'p' then 'procedure' when 'a' then 'aggregate' else 'function' end,
         format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
         null,
         case when p.prokind = 'a' then format_type(p.prorettype, null)
              else pg_get_functiondef(p.oid) end, null, null, null
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where n.nspname !~ ${INTERNAL} and not ${isOfExtension('pg_proc', 'p.oid')}
  union all
  select 'type', format('%I.%I', n.nspname, t.typname), null,
         case t.typtype
           when 'e' then 'enum ' || (
             select string_agg(quote_literal(e.enumlabel), ', ' order by e.enumsortorder)
             from pg_enum e where e.enumtypid = t.oid)
           when 'd' then concat_ws(' ', 'domain', format_type(t.typbasetype, t.typtypmod), (
             select string_agg(pg_get_constraintdef(k.oid), ' ' order by k.conname)
             from pg_constraint k where k.contypid = t.oid))
           when 'c' then 'composite ' || (
             select string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)),
                               ', ' order by a.attnum)
             from pg_attribute a
             where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped)
           else 'range' end, null, null, null
  from pg_type t join pg_namespace n on n.oid = t.typnamespace
  left join pg_class r on r.oid = t.typrelid
  where n.nspname !~ ${INTERNAL} and t.typtype in ('e', 'd', 'c', 'r')
    and (r.oid is null or r.relkind = 'c') and not ${isOfExtension('pg_type', 't.oid')}
  union all
  select 'extension', format('%I', x.extname), null, x.extversion, null, null, null
  from pg_extension x
)
select * from objects order by kind, name`;

/** A table with what is known of its rows without a scan. */
export type CountedTable = {
  schema: string;
  name: string;
  called: string;
  estimated: number | null;
};

type Row = readonly (string | null)[];

/** The rows of {@link OBJECTS_SQL}. */
export function objectsIn(rows: readonly Row[]): {
  objects: DatabaseObject[];
  tables: CountedTable[];
} {
  const tables: CountedTable[] = [];
  const objects = rows.map(([kind, name, of, definition, schema, table, estimated]) => {
    const called = name ?? '';
    if (schema != null && table != null)
      tables.push({
        schema,
        name: table,
        called,
        estimated: estimated == null ? null : Number(estimated),
      });
    return { kind: kind ?? '', name: called, of: of ?? null, definition: definition ?? '' };
  });
  return { objects, tables };
}

/** One statement that counts the rows of tables: for each its place in the list, and the rows. */
export function countSql(tables: readonly CountedTable[]): string {
  return tables
    .map(
      ({ schema, name }, index) =>
        `select ${index}, count(*) from ${escapeIdentifier(schema)}.${escapeIdentifier(name)}`,
    )
    .join(' union all ');
}

/** The table locks that this session holds, of tables of users. */
export const LOCKS_SQL = `
select l.relation::text, l.mode from pg_locks l
where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.granted
  and l.database = (select oid from pg_database where datname = current_database())`;

/** Tables of users by their oids, before a migration that may drop or rename them. */
export const TABLE_NAMES_SQL = `
select c.oid::text, format('%I.%I', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'm', 'v', 'f') and n.nspname !~ ${INTERNAL}`;

/**
 * One statement that runs a migration. Inside a transaction, a DO block refuses statements that
 * begin or end one, so that all of the migration is kept or nothing.
 */
export const migrationSql = (sql: string): string =>
  `do ${escapeLiteral(`begin execute ${escapeLiteral(sql)}; end`)}`;
