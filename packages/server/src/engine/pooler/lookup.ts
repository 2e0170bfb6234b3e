/** The role of a pooler in its server, and the function that gives it verifiers. */
import { READER_ROLE } from '../statements/session.ts';

/** Only a pooler connects with it, which may read the verifiers of others. */
export const POOLER_ROLE = 'howdah_pooler';

/**
 * Users cannot make schemas whose name begins like this, psql does not list them, and pg_dump
 * leaves them out.
 */
export const POOLER_SCHEMA = 'pg_howdah';
export const VERIFIER_FUNCTION = `${POOLER_SCHEMA}.verifier`;

/** The body of the function; another one is that of an earlier release. */
export const LOOKUP_BODY = `select r.rolname::text, r.rolpassword
         from pg_catalog.pg_authid as r
         where r.rolname = $1 and r.rolcanlogin and not r.rolsuper
           and r.rolname not in ('${POOLER_ROLE}', '${READER_ROLE}')
           and r.rolconnlimit <> 0
           and r.rolpassword is not null
           and (r.rolvaliduntil is null or r.rolvaliduntil > pg_catalog.now())`;

/**
 * The body of the function where PgBouncer asks in the database that the client named. Such a
 * version keeps a client waiting for two minutes where PostgreSQL refuses a connection since a
 * limit is reached. So a role without connections in the pool gets a verifier only while there is
 * room for one; a role that has some waits for one of them, as at any pool.
 */
export const LOOKUP_BODY_IN_EACH_DATABASE = `with sessions as (
           select usename, datname, client_port from pg_catalog.pg_stat_activity
           where backend_type = 'client backend')
         select found.* from (${LOOKUP_BODY}) as found (role, verifier)
         join pg_catalog.pg_roles as r on r.rolname = found.role
         join pg_catalog.pg_database as d on d.datname = pg_catalog.current_database()
         where exists (select from sessions as s
             where s.usename = r.rolname and s.datname = d.datname and s.client_port = -1)
           or (r.rolconnlimit < 0
             or r.rolconnlimit > (select count(*) from sessions as s where s.usename = r.rolname))
           and (d.datconnlimit < 0
             or d.datconnlimit > (select count(*) from sessions as s where s.datname = d.datname))
           and (select count(*) from sessions) <
             pg_catalog.current_setting('max_connections')::int
               - pg_catalog.current_setting('superuser_reserved_connections')::int
               - coalesce(pg_catalog.current_setting('reserved_connections', true)::int, 0)`;

/**
 * Statements of a superuser, once the role and the schema are there. They make a function that
 * gives the verifier of a role that may log in at this moment, to the pooler's role alone.
 * PgBouncer refuses clients that name a role of ours.
 *
 * A role that PostgreSQL would refuse is refused here: PgBouncer would keep its clients waiting for
 * a connection for two minutes, or give them one that it still has.
 *
 * @param body of the function
 */
export const lookupStatements = (body = LOOKUP_BODY): readonly string[] => [
  `create or replace function ${VERIFIER_FUNCTION}(name text)
     returns table (role text, verifier text)
   language sql stable security definer set search_path = ''
   as $lookup$${body}$lookup$`,
  `revoke all on function ${VERIFIER_FUNCTION}(text) from public`,
  `grant usage on schema ${POOLER_SCHEMA} to ${POOLER_ROLE}`,
  `grant execute on function ${VERIFIER_FUNCTION}(text) to ${POOLER_ROLE}`,
];
