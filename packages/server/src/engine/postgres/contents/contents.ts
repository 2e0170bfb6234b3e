/**
 * The roles, rights and functions of ours in every server of a service. Templates have them; a
 * server that an older release made gets them when it is connected.
 */
import { join } from 'node:path';
import { ADMIN_ROLE, DATABASE_NAME, type AddonExtension } from '@howdah/contract';
import { escapeIdentifier, type Client } from 'pg';
import {
  adminRights,
  GRANT_LOGGING,
  GRANT_SIGNALS,
  IS_MAINTENANCE_OPEN,
  MAY_SET_LOGGING,
  OPEN_MAINTENANCE,
} from '../../../domain/postgres/admin-role.ts';
import { REVOKE_WRITERS } from '../../statements/session.ts';
import { COPY_ROLE } from '../../moves.ts';
import { MAINTENANCE_DATABASE } from '../roles.ts';
import type { Monitored } from '../sessions/monitor.ts';
import { loginGuardStatements, ROLE_PARAMETER, CONNECTION_PARAMETER } from './login-guard.ts';
import { ownExtensionStatements } from '../../../domain/postgres/own-extension.ts';
import { CREATE_SLOTS_ROLE, IS_SLOTS_ROLE_CURRENT } from './slots-role.ts';
import { withSuperuserSession } from '../sessions/superuser.ts';
import type { SocketPlace } from '../server-files.ts';
import { entryExists, listEntries, readBytes } from '../../../lib/untrusted-files.ts';

/** A server, and how to reach it. */
type At = { paths: SocketPlace; port: number; limitMs?: number };

function inDatabase(
  { paths, port, limitMs }: At,
  database: string,
  work: (client: Client) => Promise<void>,
): Promise<void> {
  return withSuperuserSession(
    {
      server: paths,
      port,
      name: 'howdah',
      database,
      ...(limitMs === undefined ? {} : { limitMs }),
    },
    work,
  );
}

/** In one transaction, which may change what PostgreSQL protects as part of the system. */
async function transact(client: Client, statements: readonly string[]): Promise<void> {
  await client.query(
    `begin; set local allow_system_table_mods = on; ${statements.join('; ')}; commit`,
  );
}

/** Fills the server of a new template without extensions. */
export async function fillPlainTemplate(at: At): Promise<void> {
  await inDatabase(at, MAINTENANCE_DATABASE, (client) =>
    transact(client, [`create role ${ADMIN_ROLE} login`, ...adminRights()]),
  );
  await inDatabase(at, MAINTENANCE_DATABASE, async (client) => {
    await client.query(`create database ${DATABASE_NAME} owner ${ADMIN_ROLE}`);
  });
  await inDatabase(at, DATABASE_NAME, async (client) => {
    await transact(client, statisticsStatements());
    await client.query(REVOKE_WRITERS);
  });
  // Databases of users are copies of it.
  await inDatabase(at, 'template1', async (client) => {
    await client.query(REVOKE_WRITERS);
  });
  await updateContents(at);
}

/** Adds the extensions of add-ons to a template. */
export async function addExtensions(at: At, extensions: readonly AddonExtension[]): Promise<void> {
  await inDatabase(at, DATABASE_NAME, async (client) => {
    for (const extension of extensions) {
      await client.query(`create extension ${extension} schema public`);
      await transact(client, ownExtensionStatements(extension));
    }
    await client.query('vacuum (freeze, analyze)');
    await client.query('checkpoint');
  });
}

/**
 * The extension is in pg_catalog: tools that compare a schema with the desired one would drop its
 * views from public. Its privileges are as if it had come with them, so that no dump grants them.
 */
export function statisticsStatements(): string[] {
  const functions = `(select objid from pg_depend
    where deptype = 'e' and classid = 'pg_proc'::regclass
      and refobjid = (select oid from pg_extension where extname = 'pg_stat_statements'))`;
  return [
    'create extension pg_stat_statements schema pg_catalog',
    ...ownExtensionStatements('pg_stat_statements'),
    `do $$ begin
       execute (select string_agg(
         format('grant execute on function %s to ${ADMIN_ROLE}', objid::regprocedure), '; ')
         from unnest(array${functions}) as objid);
     end $$`,
    `delete from pg_init_privs where classoid = 'pg_proc'::regclass and objoid in ${functions}`,
    `insert into pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
     select oid, 'pg_proc'::regclass, 0, 'e', proacl from pg_proc
     where oid in ${functions} and proacl is not null`,
  ];
}

type DatabaseRow = { name: string; closed: boolean };

/**
 * Brings a server that accepts writes up to this release. Can be interrupted and repeated: the
 * rights that {@link areContentsCurrent} looks at come last.
 */
export async function updateContents(at: At): Promise<void> {
  await inDatabase(at, DATABASE_NAME, (client) => transact(client, roleFunctionStatements()));
  const databases = await databasesToGuard(at);
  for (const { name, closed } of databases) {
    const allow = (allowed: boolean) =>
      inDatabase(at, MAINTENANCE_DATABASE, async (client) => {
        const database = escapeIdentifier(name);
        await client.query(`alter database ${database} allow_connections ${allowed}`);
      });
    if (closed) await allow(true);
    try {
      await inDatabase(at, name, (client) => transact(client, loginGuardStatements()));
    } finally {
      if (closed) await allow(false);
    }
  }
  await inDatabase(at, MAINTENANCE_DATABASE, async (client) => {
    await client.query(CLOSE_COPY_ROLE);
    await client.query(CREATE_SLOTS_ROLE);
    await client.query(
      `grant set on parameter ${ROLE_PARAMETER} to ${ADMIN_ROLE};
       grant pg_monitor, pg_checkpoint to ${ADMIN_ROLE} with admin option;
       ${GRANT_SIGNALS};
       alter role ${ADMIN_ROLE} createdb`,
    );
    await client.query(REVOKE_WRITERS);
    await client.query(GRANT_LOGGING);
    await transact(client, OPEN_MAINTENANCE);
  });
}

/**
 * A fork of a service that is being copied, and a restore to a moment of that, have the superuser
 * of the copy, and no rules that reject it. The service itself gets its login again.
 */
const HAS_COPY_ROLE = `exists (select from pg_roles
  where rolname = '${COPY_ROLE}' and rolsuper and rolcanlogin)`;
const CLOSE_COPY_ROLE = `do $body$ begin
  if ${HAS_COPY_ROLE} then alter role ${COPY_ROLE} nologin password null; end if;
end $body$`;

/** The databases whose logins nothing guards yet. PostgreSQL 16 has no triggers for that. */
async function databasesToGuard(at: At): Promise<DatabaseRow[]> {
  let databases: DatabaseRow[] = [];
  await inDatabase(at, MAINTENANCE_DATABASE, async (client) => {
    const { rows } = await client.query<DatabaseRow>(
      `select datname as name, not datallowconn as closed from pg_database d
       where ${IS_UNGUARDED}`,
    );
    databases = rows;
  });
  return databases;
}

/** Without the module, a database whose logins no trigger guards. */
const IS_UNGUARDED = `current_setting('${CONNECTION_PARAMETER}', true) is null
  and (to_jsonb(d) ->> 'dathasloginevt')::boolean is false`;

/** Whether a server has the contents of this release; a standby gets them from its primary. */
export async function areContentsCurrent(monitor: Monitored, key: string): Promise<boolean> {
  const [row] = await monitor.query<{ current: boolean }>(
    key,
    `select pg_is_in_recovery()
            or (exists (select from pg_roles where rolname = $1 and rolcreatedb
                  and pg_has_role(oid, 'pg_signal_backend', 'member'))
                and exists (select from pg_parameter_acl where parname = $2)
                and ${IS_MAINTENANCE_OPEN}
                and ${MAY_SET_LOGGING}
                and not ${HAS_COPY_ROLE}
                and ${IS_SLOTS_ROLE_CURRENT}
                and not exists (select from pg_database d where ${IS_UNGUARDED})) as current`,
    [ADMIN_ROLE, ROLE_PARAMETER],
  );
  return row?.current !== false;
}

// The functions by which Tiger's clients create roles that inherit tsdbadmin and are read-only.
// Names and parameters are Tiger's (`tiger db create role --from tsdbadmin --read-only`; a dump of
// a Tiger service shows the relatives).

const SCHEMA = 'timescale_functions';

const HEAD = 'returns void language plpgsql security definer set search_path = pg_catalog, pg_temp';

/** In PL/pgSQL: raises an error unless the role exists and is none of ours. */
const checkRole = (parameter: string): string => `
  if not exists (select from pg_roles where rolname = ${parameter}) then
    raise exception using errcode = 'undefined_object',
      message = format('role %I does not exist', ${parameter});
  end if;
  if ${parameter} like any (array['howdah%', '\\_howdah%', 'pg\\_%'])
     or ${parameter} = '${ADMIN_ROLE}'
     or (select rolsuper from pg_roles where rolname = ${parameter}) then
    raise exception using errcode = 'insufficient_privilege',
      message = format('role %I cannot be changed', ${parameter});
  end if;`;

/**
 * Each signature and body. A role that inherits tsdbadmin cannot be administered by it, so a
 * superuser creates and drops it. The password is in a statement of its own that does not fail: a
 * statement that fails is logged.
 */
const FUNCTIONS: readonly { name: string; parameters: string; body: string }[] = [
  {
    name: 'create_bare_readonly_role',
    parameters: 'role_name text, role_password text',
    body: `
  if coalesce(role_password, '') = '' then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'the password must not be empty';
  end if;
  if role_name like any (array['howdah%', '\\_howdah%']) then
    raise exception using errcode = 'reserved_name',
      message = format('role name %I is reserved', role_name);
  end if;
  execute format('create role %I login', role_name);
  execute format('alter role %I set ${ROLE_PARAMETER} = true', role_name);
  execute format('alter role %I password %L', role_name, role_password);`,
  },
  {
    name: 'delete_bare_readonly_role',
    parameters: 'role_name text',
    body: `${checkRole('role_name')}
  if exists (select from pg_auth_members m where m.roleid = quote_ident(role_name)::regrole)
     or not exists (select from pg_db_role_setting s
                    where s.setrole = quote_ident(role_name)::regrole and s.setdatabase = 0
                      and '${ROLE_PARAMETER}=true' = any (s.setconfig)) then
    raise exception using errcode = 'wrong_object_type',
      message = format('role %I was not made by create_bare_readonly_role', role_name),
      hint = 'Use DROP ROLE.';
  end if;
  execute format('drop role %I', role_name);`,
  },
  {
    name: 'grant_tsdbadmin_to_role',
    parameters: 'rolename text',
    body: `${checkRole('rolename')}
  execute format('grant ${ADMIN_ROLE} to %I with inherit true, set true', rolename);`,
  },
  {
    name: 'revoke_tsdbadmin_from_role',
    parameters: 'rolename text',
    body: `${checkRole('rolename')}
  execute format('revoke ${ADMIN_ROLE} from %I', rolename);`,
  },
];

/**
 * Lets tsdbadmin call the functions, or not: what they promise holds only where a module enforces
 * it. A schema that a user has made has none of them.
 */
export function allowRoleFunctions(isAllowed: boolean): string {
  const [verb, to] = isAllowed ? ['grant', 'to'] : ['revoke', 'from'];
  return `do $body$
    declare found regprocedure;
    begin
      for found in
        select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace
          join pg_roles r on r.oid = p.proowner
        where n.nspname = '${SCHEMA}' and r.rolsuper
          and p.proname in (${FUNCTIONS.map(({ name }) => `'${name}'`).join(', ')})
      loop
        execute format('${verb} execute on function %s ${to} ${ADMIN_ROLE}', found);
      end loop;
    end $body$`;
}

/**
 * The functions in the database of a service, for tsdbadmin alone, unless a user has taken the name
 * of the schema. As parts of an extension they are in no dump.
 */
function roleFunctionStatements(): string[] {
  const made = FUNCTIONS.flatMap(({ name, parameters, body }) => {
    const signature = `${SCHEMA}.${name}(${parameters.replaceAll(/\w+ text/g, 'text')})`;
    return [
      `create function ${SCHEMA}.${name}(${parameters}) ${HEAD}
       as $body$ begin${body}\n end $body$`,
      `revoke all on function ${signature} from public`,
      `grant execute on function ${signature} to ${ADMIN_ROLE}`,
      `alter extension plpgsql add function ${signature}`,
    ];
  });
  const statements = [
    `create schema ${SCHEMA}`,
    `grant usage on schema ${SCHEMA} to ${ADMIN_ROLE}`,
    `alter extension plpgsql add schema ${SCHEMA}`,
    ...made,
  ];
  return [
    `do $outer$ begin
       if not exists (select from pg_namespace where nspname = '${SCHEMA}') then
         ${statements.join('; ')};
       end if;
     end $outer$`,
  ];
}

// A base backup lacks some of the files of a server that is stopped: nobody can add to them
// any more. The names of files are input.

/** PostgreSQL keeps an empty copy of each unlogged table, sequence and index, the init fork. */
const INIT_FORK = /^\d+_init$/;
/** The database of a slot, behind the head of its file and its name; a physical slot has none. */
const SLOT_DATABASE_OFFSET = 16 + 64;
const SLOT_MAX_BYTES = 4096;

/** @returns what it has, in words; null: nothing */
export async function findUncopied(dataDirectory: string): Promise<string | null> {
  const base = join(dataDirectory, 'base');
  for (const database of await listEntries(base))
    if (/^\d+$/.test(database)) {
      const files = await listEntries(join(base, database));
      if (files.some((name) => INIT_FORK.test(name)))
        return 'it has got unlogged tables or sequences, whose rows a copy has not';
    }
  const slots = join(dataDirectory, 'pg_replslot');
  for (const slot of await listEntries(slots))
    if (await isLogical(join(slots, slot, 'state')))
      return 'it has got logical slots, which a copy has not';
  return null;
}

async function isLogical(path: string): Promise<boolean> {
  if (!entryExists(path)) return false;
  const state = await readBytes(path, SLOT_MAX_BYTES);
  return state.length >= SLOT_DATABASE_OFFSET + 4 && state.readUInt32LE(SLOT_DATABASE_OFFSET) !== 0;
}
