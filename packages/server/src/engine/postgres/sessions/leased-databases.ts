/**
 * Databases that are leases, in a server that they share. They are copies of a template, which is a
 * copy of the database of the service: sessions in that one do not delay them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import { DatabaseError, escapeIdentifier, escapeLiteral, type Client } from 'pg';
import { isOfUsers, REMOVED_LIMIT } from '../../../domain/postgres/databases.ts';
import type { LeasedDatabase } from '../../engine.ts';

/** The copy that all databases are made of. Nobody can connect to it. */
const TEMPLATE = '_howdah_lease';

/** The first major version of PostgreSQL that clones files in place of copying them. */
const CLONES_SINCE = 180000;

/** Runs work in a session of the superuser in a database. */
export type InDatabase = <T>(database: string, work: (client: Client) => Promise<T>) => Promise<T>;

/**
 * Makes a database and its role, or what is missing of them.
 *
 * @param inDatabase opens sessions in the server
 * @param maintenance the database that nobody of the tenant works in
 */
export async function makeLeasedDatabase(
  inDatabase: InDatabase,
  maintenance: string,
  { database, role, verifier }: LeasedDatabase,
): Promise<void> {
  const [name, owner] = [escapeIdentifier(database), escapeIdentifier(role)];
  await inDatabase(maintenance, async (client) => {
    await makeTemplate(client);
    const { rows } = await client.query('select from pg_roles where rolname = $1', [role]);
    const verb = rows.length === 0 ? 'create' : 'alter';
    await client.query(`${verb} role ${owner} login password ${escapeLiteral(verifier)}`);
    await copyDatabase(client, TEMPLATE, database, `owner ${owner} allow_connections false`);
    await client.query(COPY_SETTINGS, [database, role, DATABASE_NAME, ADMIN_ROLE]);
    // Before anybody can connect: the other leases could.
    await client.query(`revoke all on database ${name} from public`);
    await client.query(`alter database ${name} allow_connections true`);
  });
  await inDatabase(database, (client) =>
    client.query(`reassign owned by ${escapeIdentifier(ADMIN_ROLE)} to ${owner}`),
  );
}

/**
 * The settings of the database of the service, and of its admin role, for the database and the role
 * of a lease. Sessions of ours do not obey them (`startup-options.ts`). The entries are copied as
 * they are: their values are input, and a statement that sets a list would quote it as one value.
 */
const COPY_SETTINGS = `
  insert into pg_db_role_setting (setdatabase, setrole, setconfig)
  select made.setdatabase, made.setrole, s.setconfig
  from (select d.oid as database, r.oid as role, o.oid as from_database, a.oid as from_role
        from pg_database d, pg_roles r, pg_database o, pg_roles a
        where d.datname = $1 and r.rolname = $2 and o.datname = $3 and a.rolname = $4) at
    join pg_db_role_setting s
      on s.setdatabase in (0, at.from_database) and s.setrole in (0, at.from_role)
        and (s.setdatabase, s.setrole) <> (0, 0)
    cross join lateral (
      select case s.setdatabase when 0 then 0::oid else at.database end as setdatabase,
             case s.setrole when 0 then 0::oid else at.role end as setrole) made
  where not exists (select from pg_db_role_setting own
    where (own.setdatabase, own.setrole) = (made.setdatabase, made.setrole))`;

/**
 * Statements after which PUBLIC reaches no database of users: neither by a grant of the owner, nor
 * by one of a role that the owner lets grant. The admin role then owns none.
 */
const CLOSE_OTHERS = `
  select statement from pg_database d, unnest(
    case when pg_get_userbyid(datdba) = $1 or datname = $2
      then array[format('alter database %I owner to current_user', datname)]
      else '{}' end
    || array(select format('revoke grant option for all on database %I from %I cascade',
               datname, r.rolname)
             from aclexplode(datacl) a join pg_roles r on r.oid = a.grantee
             where a.is_grantable and a.grantee <> datdba)
    || format('revoke all on database %I from public', datname)) as statement
  where ${isOfUsers('d')}`;

/** Makes the template, once in a server. */
async function makeTemplate(client: Client): Promise<void> {
  const { rows } = await client.query(
    'select from pg_database where datname = $1 and datistemplate',
    [TEMPLATE],
  );
  if (rows.length > 0) return;
  // A lease must not become the owner of a database of the service, nor reach one.
  const { rows: closing } = await client.query<{ statement: string }>(CLOSE_OTHERS, [
    ADMIN_ROLE,
    DATABASE_NAME,
  ]);
  for (const { statement } of closing) await client.query(statement);
  await client.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [
    DATABASE_NAME,
  ]);
  await copyDatabase(client, DATABASE_NAME, TEMPLATE, 'allow_connections false');
  await client.query(`alter database ${TEMPLATE} is_template true`);
}

/** Copies a database, unless the copy is there. A copy that was interrupted is made again. */
async function copyDatabase(
  client: Client,
  from: string,
  to: string,
  options: string,
): Promise<void> {
  const { rows } = await client.query<{ is_whole: boolean; version: number }>(
    `select datconnlimit <> -2 as is_whole from pg_database where datname = $1`,
    [to],
  );
  if (rows[0]?.is_whole === true) return;
  if (rows[0] !== undefined) await client.query(`drop database ${escapeIdentifier(to)}`);
  const clones = `select set_config('file_copy_method', 'clone', false)
    where current_setting('server_version_num')::int >= ${CLONES_SINCE}`;
  await client.query(clones);
  await client.query(
    `create database ${escapeIdentifier(to)} template ${escapeIdentifier(from)} ` +
      `strategy file_copy ${options}`,
  );
}

/**
 * Drops a database with its sessions, and its role. The role loses its login first, since the role
 * may have prepared what prevents the rest.
 */
export async function dropLeasedDatabase(
  inDatabase: InDatabase,
  maintenance: string,
  { database, role }: Omit<LeasedDatabase, 'verifier'>,
): Promise<void> {
  const isRole = await inDatabase(maintenance, (client) =>
    inDatabase(maintenance, (helper) =>
      endingSessions({ client, helper, role }, () => closeAndDrop(client, database, role)),
    ),
  );
  if (isRole) await dropRole(inDatabase, maintenance, role);
}

/**
 * The sessions of a role, and those of users that hold a lock which a session of ours waits for.
 * Others may hold such a lock: the owner of a database can let them grant rights on it.
 */
const END_SESSIONS = `
  select pg_terminate_backend(pid) from pg_stat_activity left join pg_roles r on r.oid = usesysid
  where usename = $1 or (pid = any (pg_blocking_pids($2)) and r.rolsuper is false)`;
const END_EVERY_MS = 20;

/** Ends the sessions that are in the way of some work, for as long as it takes. */
async function endingSessions<T>(
  { client, helper, role }: { client: Client; helper: Client; role: string },
  work: () => Promise<T>,
): Promise<T> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  let isDone = false;
  const end = async (): Promise<void> => {
    while (!isDone) {
      await helper.query(END_SESSIONS, [role, rows[0]?.pid]);
      await sleep(END_EVERY_MS);
    }
  };
  const working = work().finally(() => {
    isDone = true;
  });
  const [result] = await Promise.all([working, end()]);
  return result;
}

/** @returns whether the role exists */
async function closeAndDrop(client: Client, database: string, role: string): Promise<boolean> {
  const name = escapeIdentifier(database);
  const { rows } = await client.query<{ is_role: boolean; is_template: boolean }>(
    `select exists (select from pg_roles where rolname = $1) as is_role,
            exists (select from pg_database where datname = $2 and datistemplate) as is_template`,
    [role, database],
  );
  const isRole = rows[0]?.is_role === true;
  if (isRole) await client.query(`alter role ${escapeIdentifier(role)} nologin password null`);
  if (rows[0]?.is_template === true) await client.query(`alter database ${name} is_template false`);
  await client.query(`drop database if exists ${name} with (force)`);
  return isRole;
}

/** The databases where something depends on a role. */
const DEPENDENTS = `
  select distinct datname::text as name
  from pg_shdepend join pg_database d on d.oid = dbid
  where refclassid = 'pg_authid'::regclass and datallowconn and datconnlimit <> ${REMOVED_LIMIT}
    and refobjid = (select oid from pg_roles where rolname = $1)`;

/**
 * Drops a role that cannot log in, with its objects and rights in other databases. Objects of other
 * leases may depend on those, or be locked. Then the role stays until the server goes.
 */
async function dropRole(inDatabase: InDatabase, maintenance: string, role: string): Promise<void> {
  const name = escapeIdentifier(role);
  const { rows } = await inDatabase(maintenance, (client) =>
    client.query<{ name: string }>(DEPENDENTS, [role]),
  );
  for (const database of new Set([...rows.map((row) => row.name), maintenance]))
    await inDatabase(database, (client) => attempt(client, `drop owned by ${name}`));
  await inDatabase(maintenance, (client) => attempt(client, `drop role ${name}`));
}

/** Runs a statement that the server may refuse. */
async function attempt(client: Client, statement: string): Promise<void> {
  try {
    await client.query(statement);
  } catch (error) {
    if (!(error instanceof DatabaseError)) throw error;
  }
}
