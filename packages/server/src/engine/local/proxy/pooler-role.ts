/** The role of a pooler in its server, and the function that gives it verifiers. */
import { DATABASE_NAME } from '@howdah/contract';
import type { InstancePaths } from '../host/layout.ts';
import { POOLER_ROLE } from '../postgres/files.ts';
import { withSuperuserSession } from '../postgres/superuser.ts';
import { parseLsn } from '../postgres/wal.ts';

/**
 * Users cannot make schemas whose name begins like this, psql does not list them, and pg_dump
 * leaves them out.
 */
const SCHEMA = 'pg_howdah';
export const VERIFIER_FUNCTION = `${SCHEMA}.verifier`;

/**
 * The verifier of a role that may log in at this moment, for the pooler's role alone; never one of
 * ours.
 */
const FUNCTION_STATEMENTS = [
  `create or replace function ${VERIFIER_FUNCTION}(name text) returns table (role text, verifier text)
   language sql stable security definer set search_path = ''
   as $$ select r.rolname::text, r.rolpassword
         from pg_catalog.pg_authid as r
         where r.rolname = $1 and r.rolcanlogin and not r.rolsuper and r.rolname <> '${POOLER_ROLE}'
           and r.rolpassword is not null and (r.rolvaliduntil is null or r.rolvaliduntil > pg_catalog.now()) $$`,
  `revoke all on function ${VERIFIER_FUNCTION}(text) from public`,
  `grant usage on schema ${SCHEMA} to ${POOLER_ROLE}`,
  `grant execute on function ${VERIFIER_FUNCTION}(text) to ${POOLER_ROLE}`,
];

/**
 * Makes sure that a primary has the pooler's role and the function that only it may call.
 *
 * @returns the position in the WAL that a standby must have replayed to have them too
 * @throws Error when a user of the service has made a role of that name
 */
export async function createPoolerRole(paths: InstancePaths, port: number): Promise<bigint> {
  return withSuperuserSession(
    { server: paths, port, name: 'howdah', database: DATABASE_NAME },
    async (client) => {
      const { rows } = await client.query<{ role: boolean; governed: boolean; schema: boolean }>(
        `select exists (select from pg_roles where rolname = '${POOLER_ROLE}') as role,
              exists (select from pg_auth_members m join pg_roles r on r.oid = m.roleid where r.rolname = '${POOLER_ROLE}') as governed,
              exists (select from pg_namespace where nspname = '${SCHEMA}') as schema`,
      );
      const [found] = rows;
      // The creator of a role may grant it: a user who has created this one could read the
      // verifiers of all others.
      if (found?.governed === true) {
        throw new Error(
          `the service has a role ${POOLER_ROLE} that one of its users made; the pooler needs the name: drop role ${POOLER_ROLE}`,
        );
      }
      await client.query('begin');
      // The commit is flushed when it returns, whatever the service has set.
      await client.query('set local synchronous_commit = local');
      if (found?.role !== true) await client.query(`create role ${POOLER_ROLE}`);
      await client.query(
        `alter role ${POOLER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls connection limit -1 password null valid until 'infinity'`,
      );
      // The prefix is reserved, so no user can have taken the name.
      await client.query('set local allow_system_table_mods = on');
      if (found?.schema !== true) await client.query(`create schema ${SCHEMA}`);
      for (const statement of FUNCTION_STATEMENTS) await client.query(statement);
      await client.query('commit');
      const { rows: positions } = await client.query<{ lsn: string }>(
        'select pg_current_wal_flush_lsn()::text as lsn',
      );
      return parseLsn(positions[0]?.lsn ?? '');
    },
  );
}
