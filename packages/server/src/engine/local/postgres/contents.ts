/**
 * The roles, rights and functions of ours in every server of a service. Templates have them; a
 * server that an older release made gets them when it is connected.
 */
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
import { REVOKE_WRITERS } from '../../statements/writers.ts';
import { COPY_ROLE } from '../../moves.ts';
import type { InstancePaths } from '../host/layout.ts';
import { MAINTENANCE_DATABASE } from './files.ts';
import type { Monitor } from './monitor.ts';
import { loginGuardStatements, ROLE_PARAMETER, CONNECTION_PARAMETER } from './read-only-sql.ts';
import { ownExtensionStatements } from '../../../domain/postgres/own-extension.ts';
import { CREATE_SLOTS_ROLE, IS_SLOTS_ROLE_CURRENT } from './slots-role.ts';
import { withSuperuserSession } from './superuser.ts';
import { roleFunctionStatements } from './role-functions.ts';

/** A server, and how to reach it. */
type At = { paths: Pick<InstancePaths, 'socket'>; port: number; limitMs?: number };

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
export async function areContentsCurrent(monitor: Monitor, key: string): Promise<boolean> {
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
