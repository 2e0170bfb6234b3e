/**
 * Copies one database from an older server into a newer one with pg_dump and pg_restore, as
 * tsdbadmin in both.
 *
 * A definition that is restored can run functions of the tenant: a partition bound or the start of
 * an aggregate of a domain evaluates the domain's conditions. As tsdbadmin they can do nothing that
 * their owner could not do (docs/decisions/0048-other-major-versions.md).
 */
import { join } from 'node:path';
import { ADMIN_ROLE } from '@howdah/contract';
import { escapeIdentifier, type Client } from 'pg';
import { conninfoValue } from '../../../domain/postgres/settings.ts';
import { runEnclosed } from '../host/enclosed-program.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Owner } from '../host/users.ts';
import { CONTROL_ROLE } from '../../postgres/roles.ts';
import type { Installation } from '../postgres/installations.ts';
import { writeConfig } from '../postgres/server.ts';
import { COPY_PORT } from './private-server.ts';

/** Two servers of a service, which only the control plane and tsdbadmin connect to. */
export type Pair = {
  readonly machine: Machine;
  readonly owner: Owner | null;
  /** The newer PostgreSQL, whose programs read older servers too. */
  readonly to: Installation;
  readonly old: InstancePaths;
  readonly fresh: InstancePaths;
  /** How long a program may take. */
  readonly deadlineMs: number;
};

/** Restores the schemas of a database; from then on objects can be restored into them. */
export async function restoreSchemas(pair: Pair, database: string): Promise<void> {
  const file = fileOf(pair);
  await runProgram(pair, 'pg_dump', [
    `--dbname=${addressOf(pair.old, database)}`,
    '--format=custom',
    '--section=pre-data',
    `--file=${file}`,
  ]);
  const list = await runProgram(pair, 'pg_restore', ['--list', file]);
  const { schemas, rest } = splitList(list);
  await writeConfig(pair.owner, pair.fresh, { [LISTS.schemas]: schemas, [LISTS.rest]: rest });
  await restoreList(pair, database, 'schemas');
}

/** Restores all but the schemas: other definitions, rows, and what is checked against rows. */
export async function restoreObjects(
  pair: Pair,
  database: string,
  leftOut: readonly string[],
): Promise<void> {
  await restoreList(pair, database, 'rest');
  await pipeSection(pair, database, 'data', leftOut);
  await pipeSection(pair, database, 'post-data', []);
}

/** The table data of extensions that only a superuser could restore, as patterns of pg_dump. */
export async function dataOfExtensions(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ pattern: string }>(
    `select format('%I.%I', n.nspname, c.relname) as pattern
     from pg_extension e cross join lateral unnest(e.extconfig) config
       join pg_class c on c.oid = config join pg_namespace n on n.oid = c.relnamespace
     where c.relowner = 10`,
  );
  return rows.map(({ pattern }) => pattern);
}

/** Lets all members of a role create in the schemas of a database, or ends that. */
export async function letCreate(client: Client, creators: string, may: boolean): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select nspname::text as name from pg_namespace
     where nspname !~ '^pg_' and nspname <> 'information_schema' and nspowner <> 10`,
  );
  const { rows: databases } = await client.query<{ name: string }>(
    'select current_database()::text as name',
  );
  const places = [
    ...rows.map(({ name }) => `schema ${escapeIdentifier(name)}`),
    ...databases.map(({ name }) => `database ${escapeIdentifier(name)}`),
  ];
  for (const place of places)
    await client.query(
      may
        ? `grant create on ${place} to ${creators}`
        : `revoke create on ${place} from ${creators}`,
    );
}

const LISTS = { schemas: 'schemas.list', rest: 'rest.list' } as const;

/**
 * Splits the list of a dump. The superuser owns schemas of extensions, which are there
 * already. pg_restore writes each entry on one line, whatever its name contains.
 */
export function splitList(list: string): { schemas: string; rest: string } {
  const lines = list
    .split('\n')
    .filter((line) => /^\d+; /.test(line) && !line.endsWith(` ${CONTROL_ROLE}`));
  const isSchema = (line: string): boolean => /^\d+; \d+ \d+ SCHEMA - /.test(line);
  const text = (chosen: string[]): string => chosen.map((line) => `${line}\n`).join('');
  return {
    schemas: text(lines.filter(isSchema)),
    rest: text(lines.filter((line) => !isSchema(line))),
  };
}

async function restoreList(pair: Pair, database: string, list: keyof typeof LISTS): Promise<void> {
  await runProgram(pair, 'pg_restore', [
    `--dbname=${addressOf(pair.fresh, database)}`,
    '--exit-on-error',
    `--use-list=${join(pair.fresh.config, LISTS[list])}`,
    fileOf(pair),
  ]);
}

/**
 * A dump that ended early must not pass for a whole one: the program that reads it cannot always
 * see that. Arguments: both programs, the addresses of both servers, the section, patterns of
 * tables whose rows are left out.
 */
const PIPE = `umask 077
dump=$1 restore=$2 old=$3 new=$4 section=$5 done=$6; shift 6
rm -f "$done"
{ "$dump" --dbname="$old" --format=custom --compress=0 --section="$section" "$@" && : > "$done"; } |
"$restore" --dbname="$new" --exit-on-error && [ -e "$done" ]`;

async function pipeSection(
  pair: Pair,
  database: string,
  section: 'data' | 'post-data',
  leftOut: readonly string[],
): Promise<void> {
  const { to, old, fresh } = pair;
  await inView(pair, 'pg_restore', [
    '/bin/sh',
    '-c',
    PIPE,
    'howdah',
    join(to.bin, 'pg_dump'),
    join(to.bin, 'pg_restore'),
    addressOf(old, database),
    addressOf(fresh, database),
    section,
    join(fresh.logs, 'dumped'),
    ...leftOut.map((pattern) => `--exclude-table-data=${pattern}`),
  ]);
}

function runProgram(
  pair: Pair,
  name: 'pg_dump' | 'pg_restore',
  args: readonly string[],
): Promise<string> {
  return inView(pair, name, [join(pair.to.bin, name), ...args]);
}

function inView(
  { machine, owner, to, old, fresh, deadlineMs }: Pair,
  name: string,
  command: readonly string[],
): Promise<string> {
  const view = {
    program: join(to.bin, 'pg_restore'),
    own: fresh.root,
    others: [old.root],
    config: fresh.config,
  };
  return runEnclosed({ machine, owner, view, deadlineMs }, name, command);
}

/** A directory that the user of the service writes. */
const fileOf = ({ fresh }: Pair): string => join(fresh.logs, 'definitions.dump');

/** The name of a database is the tenant's: only as a quoted value it is never an address. */
export function addressOf({ socket }: Pick<InstancePaths, 'socket'>, database: string): string {
  const [host, dbname] = [conninfoValue(socket), conninfoValue(database)];
  return `host=${host} port=${COPY_PORT} user=${ADMIN_ROLE} dbname=${dbname}`;
}
