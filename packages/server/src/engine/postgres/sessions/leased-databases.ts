/**
 * Databases that are leases, in a server that they share. They are copies of a template, which is a
 * copy of the database of the service: sessions in that one do not delay them.
 */
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import { escapeIdentifier, escapeLiteral, type Client } from 'pg';
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
    // Before anybody can connect: the other leases could.
    await client.query(`revoke all on database ${name} from public`);
    await client.query(`alter database ${name} allow_connections true`);
  });
  await inDatabase(database, (client) =>
    client.query(`reassign owned by ${escapeIdentifier(ADMIN_ROLE)} to ${owner}`),
  );
}

/** Makes the template, once in a server. */
async function makeTemplate(client: Client): Promise<void> {
  const { rows } = await client.query(
    'select from pg_database where datname = $1 and datistemplate',
    [TEMPLATE],
  );
  if (rows.length > 0) return;
  // A lease must not become the owner of the database that others are made of, nor reach it.
  const { rows: owned } = await client.query<{ name: string }>(
    `select quote_ident(datname) as name from pg_database d
     where datname = $1 or pg_get_userbyid(datdba) = $2`,
    [DATABASE_NAME, ADMIN_ROLE],
  );
  for (const { name } of owned) {
    await client.query(`alter database ${name} owner to current_user`);
    await client.query(`revoke all on database ${name} from public`);
  }
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

/** Drops a database with its sessions, and its role. */
export async function dropLeasedDatabase(
  inDatabase: InDatabase,
  maintenance: string,
  { database, role }: Omit<LeasedDatabase, 'verifier'>,
): Promise<void> {
  await inDatabase(maintenance, async (client) => {
    await client.query(`drop database if exists ${escapeIdentifier(database)} with (force)`);
    await client.query(`drop role if exists ${escapeIdentifier(role)}`);
  });
}
