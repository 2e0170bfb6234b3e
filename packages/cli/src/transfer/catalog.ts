/**
 * What a source database has, from its catalogs. Everything that it says is input: names are quoted
 * where they become SQL, and shown with escapes.
 */
import { escapeIdentifier, type ClientBase } from 'pg';
import { only } from './steps.ts';

/** A table with rows of its own: no partitioned table, no view. */
export type Table = {
  oid: string;
  schema: string;
  name: string;
  bytes: number;
  /** Those that COPY names: not the generated ones. */
  columns: string[];
  /** All columns, which are compared. */
  allColumns: string[];
  isHypertable: boolean;
  /** Why its updates and deletes could not be followed; null: they could. */
  cannotFollow: string | null;
  isReadable: boolean;
  /** Whether policies hide rows from the user. */
  isFiltered: boolean;
};

export type Named = { schema: string; name: string };

/** The name as SQL. */
export const sqlOf = ({ schema, name }: Named): string =>
  `${escapeIdentifier(schema)}.${escapeIdentifier(name)}`;

export const shownOf = ({ schema, name }: Named): string => `${schema}.${name}`;

/** Schemas that are not the system's, TimescaleDB's or this program's. */
const USER_SCHEMA = `n.nspname !~ '^(pg_|_timescaledb_)'
  and n.nspname not in ('information_schema', 'howdah_import')`;

const noExtension = (catalog: string, oid: string): string =>
  `not exists (select from pg_catalog.pg_depend e where e.classid = '${catalog}'::regclass
     and e.objid = ${oid} and e.deptype = 'e')`;

/** The relations of users, of some kinds. @param joins further tables */
const relations = (kinds: string, joins = ''): string =>
  `pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace ${joins}
   where c.relkind in (${kinds}) and ${USER_SCHEMA}
     and ${noExtension('pg_catalog.pg_class', 'c.oid')}`;

type TableRow = Omit<
  Table,
  'bytes' | 'isHypertable' | 'cannotFollow' | 'isReadable' | 'isFiltered'
> & {
  bytes: string;
  identity: string;
  persistence: string;
  has_key: boolean;
  is_owned: boolean;
  is_readable: boolean;
  is_filtered: boolean;
};

/** The tables with rows, largest first. */
export async function readTables(
  client: ClientBase,
  hypertables: readonly Named[],
): Promise<Table[]> {
  const { rows } = await client.query<TableRow>(
    `select c.oid::text, n.nspname as schema, c.relname as name,
       pg_catalog.pg_table_size(c.oid)::text as bytes,
       array(select a.attname::text from pg_catalog.pg_attribute a where a.attrelid = c.oid
         and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
         order by a.attnum) as columns,
       array(select a.attname::text from pg_catalog.pg_attribute a where a.attrelid = c.oid
         and a.attnum > 0 and not a.attisdropped order by a.attnum) as "allColumns",
       c.relreplident::text as identity, c.relpersistence::text as persistence,
       exists (select from pg_catalog.pg_index i
         where i.indrelid = c.oid and i.indisprimary) as has_key,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') as is_owned,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE')
         and pg_catalog.has_table_privilege(c.oid, 'SELECT') as is_readable,
       pg_catalog.row_security_active(c.oid) as is_filtered
     from ${relations("'r'")} and c.relpersistence <> 't'
     order by pg_catalog.pg_table_size(c.oid) desc, c.oid`,
  );
  const known = new Set(hypertables.map(sqlOf));
  return rows.map((row) => {
    const { bytes, identity, persistence, has_key, is_owned, is_readable, is_filtered, ...table } =
      row;
    const isHypertable = known.has(sqlOf(table));
    const followable = { identity, persistence, has_key, is_owned, isHypertable };
    return {
      ...table,
      bytes: Number(bytes),
      isHypertable,
      cannotFollow: whyNotFollowed(followable),
      isReadable: is_readable,
      isFiltered: is_filtered,
    };
  });
}

function whyNotFollowed(
  row: Pick<TableRow, 'identity' | 'persistence' | 'has_key' | 'is_owned'> & {
    isHypertable: boolean;
  },
): string | null {
  if (row.isHypertable)
    return 'is a hypertable: its changes come from chunks that the service does not have';
  if (row.persistence === 'u') return 'is unlogged: alter table … set logged';
  if (!row.is_owned) return 'belongs to a role whose rights the user of the URL does not have';
  if (row.identity === 'n' || (row.identity === 'd' && !row.has_key))
    return 'has no replica identity: add a primary key, or alter table … replica identity full';
  return null;
}

/** The objects of TimescaleDB. */
export type Timescale = {
  hypertables: Hypertable[];
  /** Names of continuous aggregates, and of hypertables with compression. */
  refused: { aggregates: string[]; compressed: string[] };
  /** Names of the procedures of jobs: retention, reordering, actions of users. */
  jobs: string[];
};
export type Hypertable = Named & {
  dimensions: Dimension[];
  /** Those to other tables. */
  foreignKeys: { name: string; definition: string }[];
};
export type Dimension = {
  column: string;
  isTime: boolean;
  timeInterval: string | null;
  integerInterval: string | null;
  integerNow: string | null;
  partitions: number | null;
};

/** null: the extension is not in the database. */
export async function readTimescale(client: ClientBase): Promise<Timescale | null> {
  const { rows } = await client.query(
    "select from pg_catalog.pg_extension where extname = 'timescaledb'",
  );
  if (rows.length === 0) return null;
  const tables = await client.query<Named & { compressed: boolean }>(
    `select hypertable_schema::text as schema, hypertable_name::text as name,
       compression_enabled as compressed from timescaledb_information.hypertables
     where hypertable_schema !~ '^_timescaledb_' order by 1, 2`,
  );
  const dimensions = await client.query<Named & Dimension>(
    `select hypertable_schema::text as schema, hypertable_name::text as name,
       column_name::text as column, dimension_type = 'Time' as "isTime",
       time_interval::text as "timeInterval", integer_interval::text as "integerInterval",
       integer_now_func::text as "integerNow", num_partitions::int as partitions
     from timescaledb_information.dimensions order by 1, 2, dimension_number`,
  );
  const aggregates = await client.query<Named>(
    `select view_schema::text as schema, view_name::text as name
     from timescaledb_information.continuous_aggregates order by 1, 2`,
  );
  const jobs = await client.query<{ name: string }>(
    `select proc_name::text as name from timescaledb_information.jobs
     where job_id >= 1000 order by job_id`,
  );
  const foreignKeys = await client.query<Named & { constraint: string; definition: string }>(
    `select n.nspname as schema, c.relname as name, k.conname as constraint,
       pg_catalog.pg_get_constraintdef(k.oid) as definition
     from pg_catalog.pg_constraint k join pg_catalog.pg_class c on c.oid = k.conrelid
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace where k.contype = 'f'`,
  );
  const isOf =
    (table: Named) =>
    (one: Named): boolean =>
      sqlOf(one) === sqlOf(table);
  return {
    hypertables: tables.rows.map(({ schema, name }) => ({
      schema,
      name,
      dimensions: dimensions.rows.filter(isOf({ schema, name })),
      foreignKeys: foreignKeys.rows
        .filter(isOf({ schema, name }))
        .map((key) => ({ name: key.constraint, definition: key.definition })),
    })),
    refused: {
      aggregates: aggregates.rows.map(shownOf),
      compressed: tables.rows.filter(({ compressed }) => compressed).map(shownOf),
    },
    jobs: jobs.rows.map(({ name }) => name),
  };
}

/** Names of sequences whose values the user may not read. */
export async function readClosedSequences(client: ClientBase): Promise<string[]> {
  const { rows } = await client.query<Named>(
    `select n.nspname as schema, c.relname as name from ${relations("'S'")}
       and case when c.relkind = 'S'
         then not pg_catalog.has_sequence_privilege(c.oid, 'SELECT') end order by 1, 2`,
  );
  return rows.map(shownOf);
}

export type Extension = { name: string; schema: string; version: string };

/** The extensions of a database, in the order in which they were created. */
export async function readExtensions(client: ClientBase): Promise<Extension[]> {
  const { rows } = await client.query<Extension>(
    `select e.extname as name, n.nspname as schema, e.extversion as version
     from pg_catalog.pg_extension e join pg_catalog.pg_namespace n on n.oid = e.extnamespace
     where e.extname <> 'plpgsql' order by e.oid`,
  );
  return rows;
}

/** The roles that own something in the database or have rights on it. */
export async function readRoles(client: ClientBase): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select distinct r.rolname as name
     from pg_catalog.pg_shdepend s join pg_catalog.pg_roles r on r.oid = s.refobjid
     where s.refclassid = 'pg_catalog.pg_authid'::regclass and r.rolname !~ '^pg_'
       and s.dbid = (select oid from pg_catalog.pg_database where datname = current_database())
     order by 1`,
  );
  return rows.map(({ name }) => name);
}

/** The schemas of users. Every database has the schema public. */
export async function readSchemas(client: ClientBase): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select n.nspname as name from pg_catalog.pg_namespace n
     where ${USER_SCHEMA} and n.nspname <> 'public'
       and ${noExtension('pg_catalog.pg_namespace', 'n.oid')} order by 1`,
  );
  return rows.map(({ name }) => name);
}

export type Server = {
  version: number;
  bytes: number;
  largeObjects: number;
  isStandby: boolean;
  walLevel: string;
  mayReplicate: boolean;
  mayCreate: boolean;
  freeSlots: number;
};

/** The server and the size of the database. */
export async function readServer(client: ClientBase): Promise<Server> {
  const { rows } = await client.query<Omit<Server, 'bytes'> & { bytes: string }>(
    `select current_setting('server_version_num')::int as version,
       pg_catalog.pg_database_size(current_database())::text as bytes,
       (select count(*)::int from pg_catalog.pg_largeobject_metadata) as "largeObjects",
       pg_catalog.pg_is_in_recovery() as "isStandby",
       current_setting('wal_level') as "walLevel",
       coalesce((select bool_or(r.rolsuper or r.rolreplication) from pg_catalog.pg_roles r
         where r.rolname = current_user), false)
         or exists (select from pg_catalog.pg_roles r where r.rolname = 'rds_replication'
           and pg_catalog.pg_has_role(r.oid, 'USAGE')) as "mayReplicate",
       pg_catalog.has_database_privilege(current_database(), 'CREATE') as "mayCreate",
       current_setting('max_replication_slots')::int
         - (select count(*)::int from pg_catalog.pg_replication_slots) as "freeSlots"`,
  );
  const row = only(rows, 'the state of the source');
  return { ...row, bytes: Number(row.bytes) };
}

/** The sequences of users. */
export async function readSequences(client: ClientBase): Promise<Named[]> {
  const { rows } = await client.query<Named>(
    `select n.nspname as schema, c.relname as name from ${relations("'S'")} order by 1, 2`,
  );
  return rows;
}

/** The materialized views that have rows, in the order in which they were created. */
export async function readMaterialized(client: ClientBase): Promise<Named[]> {
  const { rows } = await client.query<Named>(
    `select n.nspname as schema, c.relname as name from ${relations("'m'")}
     and c.relispopulated order by c.oid`,
  );
  return rows;
}

/** The names of indexes, by the ids of the entries that make them: the index, or its constraint. */
export async function readIndexes(client: ClientBase): Promise<Map<string, string>> {
  const { rows } = await client.query<Named & { oid: string; constraint: string | null }>(
    `select n.nspname as schema, c.relname as name, c.oid::text, k.oid::text as constraint
     from ${relations(
       "'i', 'I'",
       `left join pg_catalog.pg_constraint k
        on k.conindid = c.oid and k.contype in ('p', 'u', 'x')`,
     )}`,
  );
  return new Map(
    rows.map((row) => [
      row.constraint === null ? `${PG_CLASS} ${row.oid}` : `${PG_CONSTRAINT} ${row.constraint}`,
      sqlOf(row),
    ]),
  );
}

/** The ids of the two catalogs are the same in all versions. */
const [PG_CLASS, PG_CONSTRAINT] = [1259, 2606];

/**
 * The ids of entries of an archive that belong to hypertables: keys and indexes, and what is not
 * restored from it: TimescaleDB's trigger, and foreign keys.
 */
export async function readPartsOf(
  client: ClientBase,
  hypertables: readonly Named[],
): Promise<{ keys: Set<string>; skipped: Set<string> }> {
  const tables = hypertables.map(sqlOf);
  const keys = await client.query<{ id: string }>(
    `select 'pg_catalog.pg_class'::regclass::oid || ' ' || indexrelid as id
     from pg_catalog.pg_index where indrelid = any ($1::text[]::regclass[])
     union all select 'pg_catalog.pg_constraint'::regclass::oid || ' ' || oid
     from pg_catalog.pg_constraint where conrelid = any ($1::text[]::regclass[])
       and contype in ('p', 'u', 'x')`,
    [tables],
  );
  const skipped = await client.query<{ id: string }>(
    `select 'pg_catalog.pg_trigger'::regclass::oid || ' ' || oid as id from pg_catalog.pg_trigger
     where tgrelid = any ($1::text[]::regclass[]) and tgname = 'ts_insert_blocker'
     union all select 'pg_catalog.pg_constraint'::regclass::oid || ' ' || oid
     from pg_catalog.pg_constraint where conrelid = any ($1::text[]::regclass[])
       and contype = 'f'`,
    [tables],
  );
  return {
    keys: new Set(keys.rows.map(({ id }) => id)),
    skipped: new Set(skipped.rows.map(({ id }) => id)),
  };
}

/** The names of what a user has made in a database; an import begins in one that is empty. */
export async function readRelations(client: ClientBase): Promise<string[]> {
  const { rows } = await client.query<Named>(
    `select n.nspname as schema, c.relname as name
     from ${relations("'r', 'p', 'v', 'm', 'S', 'f'")} order by 1, 2 limit 100`,
  );
  return rows.map(shownOf);
}
