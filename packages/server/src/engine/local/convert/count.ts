/** Compares what two databases contain, by their catalogs. */
import type { Client } from 'pg';

/** How many objects there are of each kind. */
type Counts = ReadonlyMap<string, number>;

/** Not of extensions, whose versions differ, and none of PostgreSQL's own. */
const own = (catalog: string, namespace: string): string =>
  `exists (select from pg_namespace n where n.oid = ${namespace} and n.nspname !~ '^pg_'
     and n.nspname <> 'information_schema')
   and not exists (select from pg_depend d where d.classid = '${catalog}'::regclass
     and d.objid = o.oid and d.deptype = 'e')`;

const ofRelations = (catalog: string, relation: string, more: string): string =>
  `select '${catalog}' as kind, count(*)::int as number from ${catalog} o
   join pg_class c on c.oid = o.${relation}
   where exists (select from pg_namespace n where n.oid = c.relnamespace and n.nspname !~ '^pg_'
     and n.nspname <> 'information_schema') and ${more}`;

const QUERY = `select 'relations of kind ' || relkind::text as kind, count(*)::int as number
    from pg_class o where ${own('pg_class', 'o.relnamespace')} group by relkind
  union all select 'functions', count(*)::int from pg_proc o
    where ${own('pg_proc', 'o.pronamespace')}
  union all select 'types', count(*)::int from pg_type o
    where o.typtype in ('d', 'e', 'r') and ${own('pg_type', 'o.typnamespace')}
  union all ${ofRelations('pg_trigger', 'tgrelid', 'not tgisinternal')}
  union all ${ofRelations('pg_policy', 'polrelid', 'true')}
  union all ${ofRelations('pg_constraint', 'conrelid', "contype in ('c', 'f', 'p', 'u', 'x')")}
  union all select 'large objects', count(*)::int from pg_largeobject_metadata`;

/** Counts the objects of a database. */
export async function countObjects(client: Client): Promise<Counts> {
  const { rows } = await client.query<{ kind: string; number: number }>(QUERY);
  return new Map(rows.map(({ kind, number }) => [kind, number]));
}

/** @returns what the second has not as the first; null: they agree */
export function describeDifference(before: Counts, after: Counts): string | null {
  const kinds = [...new Set([...before.keys(), ...after.keys()])];
  const differing = kinds.flatMap((kind) => {
    const [old, now] = [before.get(kind) ?? 0, after.get(kind) ?? 0];
    return old === now ? [] : [`${kind}: ${old} before, ${now} after`];
  });
  return differing.length === 0 ? null : differing.join('; ');
}
