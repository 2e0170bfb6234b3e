/** Reads the data of a service that a move to another region would copy, from its primary. */
import { arch } from 'node:process';
import type { Client } from 'pg';
import { EngineUnavailable } from '../engine.ts';
import type { ExtensionVersion, MovedData, Moves } from '../moves.ts';
import type { Local } from './local.ts';
import { MAINTENANCE_DATABASE } from './postgres/files.ts';
import { ANSWER_DEADLINE_MS, withSuperuserSession, type Where } from './postgres/superuser.ts';
import { READ_ONLY_ROLES } from './postgres/read-only-sql.ts';
import { LIMIT_MS, portOf } from './at-primary.ts';
import { createMoveActions, IS_OURS } from './move-actions.ts';
import { MAX_DATABASES } from './move-functions.ts';
import { withinTime } from './time-limit.ts';
import { primaryPaths } from './topology/instances.ts';

/** The time limit of all of them: meanwhile they have a place of the reconciler. */
const EXAMINED_WITHIN_MS = 60_000;

export function createMoves(local: Pick<Local, 'machine' | 'topology'>): Moves {
  const read = oneAtATime((id: string) => readMovedData(local, id));
  return {
    from: { read, ...createMoveActions(local) },
    to: { why: 'services do not move to a region on a machine yet; copy the data with pg_dump' },
  };
}

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

async function readMovedData({ machine }: Pick<Local, 'machine'>, id: string): Promise<MovedData> {
  const paths = primaryPaths(machine, id);
  const where = { server: paths, port: await portOf(paths), name: 'howdah move', readOnly: true };
  const within = withinTime(EXAMINED_WITHIN_MS, () => performance.now());
  try {
    return await readFrom(() => ({
      ...where,
      limitMs: within(LIMIT_MS),
      answerMs: within(ANSWER_DEADLINE_MS),
    }));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new EngineUnavailable(reason, { cause: error });
  }
}

/** @param where with the time that is left */
async function readFrom(where: () => Where): Promise<MovedData> {
  const { databases, ...cluster } = await withSuperuserSession(where(), readCluster);
  const open = databases.filter(({ isOpen }) => isOpen).map(({ name }) => name);
  const readable = open.slice(0, MAX_DATABASES);
  const found: OfDatabase[] = [];
  for (const database of readable)
    found.push(await withSuperuserSession({ ...where(), database }, readDatabase));
  const all = (part: 'unlogged' | 'collations') => [...new Set(found.flatMap((one) => one[part]))];
  return {
    architecture: ARCHITECTURES[arch] ?? arch,
    ...cluster,
    extensions: distinct(found.flatMap(({ extensions }) => extensions)),
    unlogged: all('unlogged'),
    collations: all('collations'),
    unreadDatabases: databases.map(({ name }) => name).filter((name) => !readable.includes(name)),
  };
}

const distinct = (all: readonly ExtensionVersion[]): ExtensionVersion[] =>
  all.filter(
    (one, index) =>
      index === all.findIndex(({ name, version }) => name === one.name && version === one.version),
  );

/** Kubernetes' names of those that Node.js names in another way. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64' };

type Database = { name: string; isOpen: boolean };

/** `template0` never changes. */
async function readCluster(client: Client): Promise<
  Pick<MovedData, 'bytes' | 'roles' | 'readOnlyRoles' | 'systemSettings' | 'slots'> & {
    databases: Database[];
  }
> {
  const { rows: databases } = await client.query<Database & { bytes: string }>(
    `select datname::text as name, datallowconn as "isOpen", pg_database_size(oid)::text as bytes
     from pg_database where datname <> 'template0'
     order by datname in ('tsdb', '${MAINTENANCE_DATABASE}', 'template1') desc, datname`,
  );
  return {
    databases,
    bytes: databases.reduce((sum, { bytes }) => sum + Number(bytes), 0),
    roles: await readNames(
      client,
      `select rolname::text as name from pg_roles r where not ${IS_OURS}`,
    ),
    readOnlyRoles: await readNames(client, READ_ONLY_ROLES),
    systemSettings: await readNames(
      client,
      `select distinct name from pg_file_settings
       where sourcefile like '%/postgresql.auto.conf' limit 100`,
    ),
    slots: await readNames(
      client,
      `select slot_name::text as name from pg_replication_slots where slot_type = 'logical'`,
    ),
  };
}

type OfDatabase = Pick<MovedData, 'extensions' | 'unlogged' | 'collations'>;

async function readDatabase(client: Client): Promise<OfDatabase> {
  return {
    extensions: await readExtensions(client),
    unlogged: await readNames(
      client,
      `select relname::text as name from pg_class
       where relpersistence = 'u' and relkind in ('r', 'S', 'm') order by relname limit 100`,
    ),
    collations: await readNames(client, COLLATIONS),
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

async function readExtensions(client: Client): Promise<ExtensionVersion[]> {
  const { rows } = await client.query<ExtensionVersion>(
    'select extname::text as name, extversion as version from pg_extension',
  );
  return rows;
}

async function readNames(client: Client, sql: string): Promise<string[]> {
  return (await client.query<{ name: string }>(sql)).rows.map(({ name }) => name);
}
