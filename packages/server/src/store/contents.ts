/** Reads the contents of a database that is, or becomes, a metadata database; changes nothing. */
import type { ClientBase, ClientConfig } from 'pg';
import { inCommandSession } from './command-session.ts';

export type Contents = Readonly<{
  /** Some tables and views of another program, at most four; none beside tables of ours. */
  foreign: readonly string[];
  /** The projects of the installation that it belongs to; none: it is new. */
  projects: readonly string[];
}>;

/** Tables of extensions are nobody's data, and an interrupted first start leaves ours empty. */
const FOREIGN = `select format('%I.%I', n.nspname, c.relname) as name
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and n.nspname <> 'information_schema' and n.nspname !~ '^(pg_|_timescaledb_)'
    and c.relname not in ('kysely_migration', 'kysely_migration_lock')
    and not exists (select from pg_depend d
      where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
  order by 1 limit 4`;

const OURS = `select to_regclass('kysely_migration') is not null
  and to_regclass('projects') is not null and to_regclass('api_keys') is not null as ours`;

/** The contents of a database that nobody has connected to. @throws Error of the connection */
export async function examineContents(connection: ClientConfig): Promise<Contents> {
  return inCommandSession(connection, 'howdah', readContents);
}

/** The name of the service whose server or pooler listens on a port; null: none does. */
export async function serviceAt(connection: ClientConfig, port: number): Promise<string | null> {
  return inCommandSession(connection, 'howdah', async (client) => {
    const { rows } = await client.query<{ name: string }>(
      'select name from services where $1 in (port, pooler_port)',
      [port],
    );
    return rows[0]?.name ?? null;
  });
}

export async function readContents(client: ClientBase): Promise<Contents> {
  const { rows: found } = await client.query<{ ours: boolean }>(OURS);
  if (found[0]?.ours === true && (await hasOurMigrations(client))) {
    const { rows } = await client.query<{ id: string }>('select id from projects');
    return { foreign: [], projects: rows.map(({ id }) => id) };
  }
  const { rows } = await client.query<{ name: string }>(FOREIGN);
  return { foreign: rows.map(({ name }) => name), projects: [] };
}

/** Other programs use the same library for their migrations. */
async function hasOurMigrations(client: ClientBase): Promise<boolean> {
  const { rows } = await client.query('select from kysely_migration where name = $1', [FIRST]);
  return rows.length > 0;
}

/** The first migration that there has ever been. */
const FIRST = '0001_init';

/**
 * Why a database cannot be the metadata database of a home.
 *
 * @param project the project by which the home recognises it; null: the home is new
 * @param mayBeNew whether it may be empty although the home has a project
 */
export function problemOfContents(
  { foreign, projects }: Contents,
  project: string | null,
  mayBeNew: boolean,
): string | null {
  if (foreign.length > 0)
    return (
      `it has tables of another program (${foreign.slice(0, 3).join(', ')}` +
      `${foreign.length > 3 ? ', …' : ''}); ` +
      'give Howdah an empty database that nothing else uses'
    );
  if (project === null)
    return projects.length === 0
      ? null
      : 'it belongs to an installation already, and this home is new: put the credentials.json, ' +
          'ca and secrets.key of that installation into the home first, or give an empty database';
  if (projects.includes(project) || (projects.length === 0 && mayBeNew)) return null;
  return projects.length === 0
    ? `it is empty, and this home has an installation already, with the project ${project}: name ` +
        'the database of that installation, or use another HOWDAH_HOME for a new one'
    : `it belongs to another installation: it lacks the project ${project} of this home`;
}
