/** Makes the role of a pooler in its server, and the function that gives it verifiers. */
import { DATABASE_NAME } from '@howdah/contract';
import type { InstancePaths } from '../host/layout.ts';
import { LOOKUP_STATEMENTS, POOLER_ROLE, POOLER_SCHEMA } from '../../pooler/lookup.ts';
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
 * @returns the position in the WAL that a standby must have replayed to have them too
 * @throws Error when a user of the service has made a role of that name
 */
export async function createPoolerRole(paths: InstancePaths, port: number): Promise<bigint> {
  return withSuperuserSession(
    { server: paths, port, name: 'howdah', database: DATABASE_NAME },
    async (client) => {
      const { rows } = await client.query<{ role: boolean; governed: boolean; schema: boolean }>(
        `select exists (select from pg_roles where rolname = '${POOLER_ROLE}') as role,
              ${IS_GOVERNED} as governed,
              exists (select from pg_namespace where nspname = '${POOLER_SCHEMA}') as schema`,
      );
      const [found] = rows;
      // The creator of a role may grant it: a user who has created this one could read the
      // verifiers of all others.
      if (found?.governed === true) throw new Error(TAKEN);
      await client.query('begin');
      // The commit is flushed when it returns, whatever the service has set.
      await client.query('set local synchronous_commit = local');
      if (found?.role !== true) await client.query(`create role ${POOLER_ROLE}`);
      await client.query(
        `alter role ${POOLER_ROLE} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls connection limit -1 password null valid until 'infinity'`,
      );
      // The prefix is reserved, so no user can have taken the name.
      await client.query('set local allow_system_table_mods = on');
      if (found?.schema !== true) await client.query(`create schema ${POOLER_SCHEMA}`);
      for (const statement of LOOKUP_STATEMENTS) await client.query(statement);
      await client.query('commit');
      const { rows: positions } = await client.query<{ lsn: string }>(
        'select pg_current_wal_flush_lsn()::text as lsn',
      );
      return parseLsn(positions[0]?.lsn ?? '');
    },
  );
}
