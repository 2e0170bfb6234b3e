/** Reads the data of a service that a move to another region would copy, from its catalogs. */
import type { Client } from 'pg';
import { DATABASE_NAME } from '@howdah/contract';
import { EngineUnavailable } from './engine.ts';
import type { ExtensionVersion, MovedData } from './moves.ts';

/** The time limit of all databases: meanwhile they have a place of the reconciler. */
export const EXAMINED_WITHIN_MS = 60_000;
/** The time limit of a statement: catalogs are as large as their owners make them. */
export const STATEMENT_MS = 10_000;
/** A tenant can make any number of databases, each of which costs a session. */
export const MAX_DATABASES = 100;

/** Refuses to begin work for a service while the same is under way for it. */
export function oneAtATime<T>(work: (id: string) => Promise<T>): (id: string) => Promise<T> {
  const running = new Set<string>();
  return async (id) => {
    if (running.has(id)) throw new EngineUnavailable('it is being examined for a move already');
    running.add(id);
    try {
      return await work(id);
    } finally {
      running.delete(id);
    }
  };
}

type Session = Pick<Client, 'query'>;

/** How the catalogs of a service are read. */
export type Reader = Readonly<{
  /** Databases that no tenant may connect to, which hold nothing of theirs. */
  closed: readonly string[];
  /** SQL for the names of roles without those of the region itself, as `name`. */
  roles: string;
  /** Reads what the role of the session must have more rights for. */
  readMore: (session: Session) => Promise<Pick<MovedData, 'readOnlyRoles' | 'systemSettings'>>;
  /**
   * Runs work in a session with the rest of the time. Its parameters are those of
   * docs/decisions/0026-sessions-in-tenants-servers.md.
   *
   * @param database null: the one of the operator of the region
   * @returns null: the role of the session may not connect to it
   */
  inSession: <T>(
    database: string | null,
    work: (session: Session) => Promise<T>,
  ) => Promise<T | null>;
}>;

/** Reads the catalogs of all databases, as far as sessions can. */
export async function readMovedData(
  reader: Reader,
): Promise<Omit<MovedData, 'architecture'> | null> {
  const read = await reader.inSession(null, (session) => readCluster(session, reader));
  if (read === null) return null;
  const { databases, ...cluster } = read;
  const found: OfDatabase[] = [];
  const unreadDatabases: string[] = [];
  for (const [index, { name, isOpen }] of databases.entries()) {
    const seen =
      isOpen && index < MAX_DATABASES ? await reader.inSession(name, readDatabase) : null;
    if (seen === null) unreadDatabases.push(name);
    else found.push(seen);
  }
  const all = (part: 'unlogged' | 'collations') => [...new Set(found.flatMap((one) => one[part]))];
  return {
    ...cluster,
    extensions: distinct(found.flatMap(({ extensions }) => extensions)),
    unlogged: all('unlogged'),
    collations: all('collations'),
    unreadDatabases,
  };
}

const distinct = (all: readonly ExtensionVersion[]): ExtensionVersion[] =>
  all.filter(
    (one, index) =>
      index === all.findIndex(({ name, version }) => name === one.name && version === one.version),
  );

type Database = { name: string; isOpen: boolean };

/** `template0` never changes. */
async function readCluster(
  session: Session,
  { closed, roles, readMore }: Pick<Reader, 'closed' | 'roles' | 'readMore'>,
): Promise<
  Omit<MovedData, 'architecture' | 'unreadDatabases' | keyof OfDatabase> & {
    databases: Database[];
  }
> {
  const { rows: databases } = await session.query<Database & { bytes: string }>(
    `select datname::text as name, datallowconn as "isOpen", pg_database_size(oid)::text as bytes
     from pg_database where datname <> 'template0'
     order by datallowconn desc, datname in ('${DATABASE_NAME}', 'postgres', 'template1') desc,
       datname`,
  );
  return {
    databases: databases.filter(({ name }) => !closed.includes(name)),
    hasDatabase: databases.some(({ name }) => name === DATABASE_NAME),
    bytes: databases.reduce((sum, { bytes }) => sum + Number(bytes), 0),
    roles: await readNames(session, roles),
    ...(await readMore(session)),
    slots: await readNames(session, LOGICAL_SLOTS),
  };
}

export const LOGICAL_SLOTS = `
  select slot_name::text as name from pg_replication_slots where slot_type = 'logical'`;
export const UNLOGGED = `
  select relname::text as name from pg_class
  where relpersistence = 'u' and relkind in ('r', 'S', 'm') order by relname limit 100`;

type OfDatabase = Pick<MovedData, 'extensions' | 'unlogged' | 'collations'>;

async function readDatabase(session: Session): Promise<OfDatabase> {
  return {
    extensions: await readExtensions(session),
    unlogged: await readNames(session, UNLOGGED),
    collations: await readNames(session, COLLATIONS),
  };
}

/**
 * The collations of indexes and partition keys: their own, those in their expressions, and those in
 * their types, which may be ranges, rows, domains and arrays. C and C.UTF-8 have no version, and
 * the order of PostgreSQL's own provider does not change.
 */
const COLLATIONS = `
  with recursive types (id) as (
    select a.atttypid from pg_index i join pg_attribute a on a.attrelid = i.indexrelid
    union select a.atttypid from pg_partitioned_table p
      join pg_attribute a on a.attrelid = p.partrelid and a.attnum = any (p.partattrs)
    union select part.id from types
      join pg_type t on t.oid = types.id
      cross join lateral (
        select t.typelem union all select t.typbasetype
        union all select rngsubtype from pg_range where t.oid in (rngtypid, rngmultitypid)
        union all select atttypid from pg_attribute
          where attrelid = t.typrelid and attnum > 0 and not attisdropped) as part (id)
    where part.id <> 0),
  used (id) as (
    select unnest(indcollation) from pg_index
    union select unnest(partcollation) from pg_partitioned_table
    union select refobjid from pg_depend
      where refclassid = 'pg_collation'::regclass and classid = 'pg_class'::regclass
        and (objid in (select indexrelid from pg_index)
          or objid in (select partrelid from pg_partitioned_table))
    union select rngcollation from pg_range join types on types.id in (rngtypid, rngmultitypid)
    union select a.attcollation from types join pg_type t on t.oid = types.id
      join pg_attribute a on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped)
  select c.collname::text as name from used join pg_collation c on c.oid = used.id
  where c.collprovider in ('c', 'i') and c.collversion is not null
  union
  select d.datcollate::text from used join pg_collation c on c.oid = used.id, pg_database d
  where c.collprovider = 'd' and d.datname = current_database()
    and d.datlocprovider in ('c', 'i') and d.datcollversion is not null
  order by name`;

async function readExtensions(session: Session): Promise<ExtensionVersion[]> {
  const { rows } = await session.query<ExtensionVersion>(
    'select extname::text as name, extversion as version from pg_extension',
  );
  return rows;
}

export async function readNames(session: Session, sql: string): Promise<string[]> {
  return (await session.query<{ name: string }>(sql)).rows.map(({ name }) => name);
}
