/** Makes the role of a pooler in its server, and the function that gives it verifiers. */
import { DATABASE_NAME } from '@howdah/contract';
import type { Client } from 'pg';
import type { InstancePaths } from '../host/layout.ts';
import {
  LOOKUP_BODY,
  LOOKUP_BODY_IN_EACH_DATABASE,
  lookupStatements,
  POOLER_ROLE,
  POOLER_SCHEMA,
  VERIFIER_FUNCTION,
} from '../../pooler/lookup.ts';
import { isWithoutDatabase } from '../postgres/databases.ts';
import { withSuperuserSession } from '../postgres/superuser.ts';
import { parseLsn } from '../postgres/wal.ts';

const TAKEN =
  `the service has a role ${POOLER_ROLE} that one of its users made; the pooler needs the name: ` +
  `drop role ${POOLER_ROLE}`;
const IS_GOVERNED = `exists (select from pg_auth_members m join pg_roles r on r.oid = m.roleid
  where r.rolname = '${POOLER_ROLE}')`;

/** Why a primary cannot have a pooler; null: it can. */
export async function whyNoPoolerRole(paths: InstancePaths, port: number): Promise<string | null> {
  return withSuperuserSession({ server: paths, port, name: 'howdah' }, async (client) => {
    const { rows } = await client.query<{ governed: boolean }>(`select ${IS_GOVERNED} as governed`);
    return rows[0]?.governed === true ? TAKEN : null;
  });
}

/**
 * Makes sure that a primary has the pooler's role and the function that only it may call.
 *
 * @param where where the pooler calls the function. In each database, the template of new ones
 *   included: a database that is made of template0 later has none until this is called again
 * @returns the position in the WAL that a standby must have replayed to have them too
 * @throws Error when a user of the service has made a role of that name
 */
export async function createPoolerRole(
  server: InstancePaths,
  port: number,
  where: 'each database' | 'the database of the service' = 'the database of the service',
): Promise<bigint> {
  const inDatabase = <T>(database: string, work: (client: Client) => Promise<T>): Promise<T> =>
    withSuperuserSession({ server, port, name: 'howdah', database }, work);
  const body = where === 'each database' ? LOOKUP_BODY_IN_EACH_DATABASE : LOOKUP_BODY;
  const others = await inDatabase(DATABASE_NAME, async (client) => {
    await createRole(client);
    await createLookup(client, body);
    return where === 'each database' ? listOthers(client) : [];
  });
  for (const database of others)
    await inDatabase(database, (client) => createLookup(client, body)).catch((error: unknown) => {
      if (!isWithoutDatabase(error)) throw error;
    });
  return inDatabase(DATABASE_NAME, async (client) => {
    const { rows } = await client.query<{ lsn: string }>(
      'select pg_current_wal_flush_lsn()::text as lsn',
    );
    return parseLsn(rows[0]?.lsn ?? '');
  });
}

async function listOthers(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    'select datname::text as name from pg_database where datallowconn and datname <> $1',
    [DATABASE_NAME],
  );
  return rows.map(({ name }) => name);
}

async function createRole(client: Client): Promise<void> {
  const { rows } = await client.query<{ role: boolean; governed: boolean }>(
    `select exists (select from pg_roles where rolname = '${POOLER_ROLE}') as role,
       ${IS_GOVERNED} as governed`,
  );
  const [found] = rows;
  // The creator of a role may grant it: a user who has created this one could read the verifiers of
  // all others.
  if (found?.governed === true) throw new Error(TAKEN);
  // The commit is flushed when it returns, whatever the service has set.
  await client.query('begin; set local synchronous_commit = local');
  if (found?.role !== true) await client.query(`create role ${POOLER_ROLE}`);
  await client.query(
    `alter role ${POOLER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls
       connection limit -1 password null valid until 'infinity'`,
  );
  await client.query('commit');
}

/** The prefix of the schema is reserved, so no user can have taken the name. */
async function createLookup(client: Client, body: string): Promise<void> {
  const { rows } = await client.query<{ body: string; isGranted: boolean }>(
    `select prosrc as body, has_function_privilege($2, oid, 'execute')
       and has_schema_privilege($2, pronamespace, 'usage') as "isGranted"
     from pg_proc where oid = to_regprocedure($1)`,
    [`${VERIFIER_FUNCTION}(text)`, POOLER_ROLE],
  );
  if (rows[0]?.body === body && rows[0].isGranted) return;
  await client.query(
    'begin; set local synchronous_commit = local; set local allow_system_table_mods = on',
  );
  await client.query(`create schema if not exists ${POOLER_SCHEMA}`);
  for (const statement of lookupStatements(body)) await client.query(statement);
  await client.query('commit');
}
