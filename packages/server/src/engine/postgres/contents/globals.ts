/**
 * The roles and databases of a cluster, as they are read from one and written into another. Read
 * and written in the maintenance database, where no setting and no object of a tenant counts.
 */
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import { DatabaseError, type Client } from 'pg';
import { isOfUsers, REMOVED_LIMIT } from '../../../domain/postgres/databases.ts';
import { READER_ROLE } from '../../statements/session.ts';
import { POOLER_ROLE } from '../../pooler/lookup.ts';
import { PROBE_ROLE, SLOTS_ROLE } from '../roles.ts';

/** A setting that was made by ALTER ROLE or ALTER DATABASE. */
type Setting = { database: string | null; role: string | null; values: string[] };

export type Database = {
  name: string;
  /** The statement that creates it with its owner and locale. */
  create: string;
  /** The database's connection limit, and who may do what with it. */
  finish: string[];
};

export type Globals = {
  /** The names of roles of the tenant, quoted, without tsdbadmin. */
  roles: string[];
  /** The roles' attributes and passwords, and those of tsdbadmin. */
  attributes: string[];
  /** Each depends on the right of its grantor to grant. */
  memberships: string[];
  databases: Database[];
  settings: Setting[];
};

/** Roles of ours that the control plane creates. */
const OURS = `('${READER_ROLE}', '${POOLER_ROLE}', '${PROBE_ROLE}', '${SLOTS_ROLE}')`;
const isTenants = (role: string): string =>
  `(not ${role}.rolsuper and ${role}.rolname !~ '^pg_' and ${role}.rolname not in ${OURS})`;

const isTenantsDatabase = (database: string): string =>
  `(${isOfUsers(database)} and ${database}.datconnlimit <> ${REMOVED_LIMIT})`;

const FLAGS = ['inherit', 'createrole', 'createdb', 'login', 'replication', 'bypassrls'] as const;
const COLUMN: Record<(typeof FLAGS)[number], string> = {
  inherit: 'rolinherit',
  createrole: 'rolcreaterole',
  createdb: 'rolcreatedb',
  login: 'rolcanlogin',
  replication: 'rolreplication',
  bypassrls: 'rolbypassrls',
};

const ATTRIBUTES = `select format(
    'alter role %I ${FLAGS.map(() => '%s').join(' ')} connection limit %s password %L
       valid until %L', rolname, ${FLAGS.map(
         (flag) => `case when ${COLUMN[flag]} then '${flag}' else 'no${flag}' end`,
       ).join(', ')},
    rolconnlimit, rolpassword, coalesce(rolvaliduntil::text, 'infinity')) as statement
  from pg_authid a where ${isTenants('a')}`;

const truth = (column: string): string => `case when ${column} then 'true' else 'false' end`;

const MEMBERSHIPS = `select format('grant %I to %I with admin %s, inherit %s, set %s granted by %I',
    r.rolname, u.rolname, ${truth('m.admin_option')}, ${truth('m.inherit_option')},
    ${truth('m.set_option')}, g.rolname) as statement
  from pg_auth_members m
    join pg_roles r on r.oid = m.roleid join pg_roles u on u.oid = m.member
    join pg_roles g on g.oid = m.grantor
  where ${isTenants('u')} and not r.rolsuper and r.rolname not in ${OURS}
  order by m.oid`;

/** A locale is named only where it is not that of the cluster: it differs between versions. */
const DATABASES = `select d.datname as name,
    format('create database %I owner %I', d.datname, o.rolname) || case
      when (d.datcollate, d.datctype, d.encoding, d.datlocprovider)
         = (t.datcollate, t.datctype, t.encoding, t.datlocprovider) then ''
      else format(' template template0 encoding %L locale_provider %s lc_collate %L lc_ctype %L',
        pg_encoding_to_char(d.encoding), p.name, d.datcollate, d.datctype)
        || case when p.name = 'libc' then '' else format(' %s_locale %L', p.name, coalesce(
             to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale')) end
      end as create,
    array[format('alter database %I owner to %I', d.datname, o.rolname),
          format('alter database %I connection limit %s allow_connections %s is_template %s',
            d.datname, d.datconnlimit, ${truth('d.datallowconn')}, ${truth('d.datistemplate')})]
    || case when d.datacl is null then array[]::text[]
       else array[format('revoke all on database %I from public', d.datname)] end
    || array(select format('grant %s on database %I to %s%s', a.privilege_type, d.datname,
           case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
           case when a.is_grantable then ' with grant option' else '' end)
         from aclexplode(d.datacl) a
         where a.grantee = 0 or pg_get_userbyid(a.grantee) not in ${OURS}) as finish
  from pg_database d join pg_roles o on o.oid = d.datdba
    join pg_database t on t.datname = 'template1'
    cross join lateral (select case d.datlocprovider
      when 'c' then 'libc' when 'i' then 'icu' else 'builtin' end as name) p
  where ${isTenantsDatabase('d')}
  order by d.datname`;

const SETTINGS = `select d.datname as database, r.rolname as role, s.setconfig as values
  from pg_db_role_setting s
    left join pg_database d on d.oid = s.setdatabase left join pg_roles r on r.oid = s.setrole
  where (s.setrole = 0 or ${isTenants('r')}) and (s.setdatabase <> 0 or s.setrole <> 0)`;

/** Reads the roles and databases of a cluster. */
export async function readGlobals(client: Client): Promise<Globals> {
  const statements = async (query: string): Promise<string[]> => {
    const { rows } = await client.query<{ statement: string }>(query);
    return rows.map(({ statement }) => statement);
  };
  const { rows: databases } = await client.query<Database>(DATABASES);
  const { rows: settings } = await client.query<Setting>(SETTINGS);
  return {
    roles: await statements(
      `select quote_ident(rolname) as statement from pg_roles a
       where ${isTenants('a')} and rolname <> '${ADMIN_ROLE}'`,
    ),
    attributes: await statements(ATTRIBUTES),
    memberships: await statements(MEMBERSHIPS),
    databases,
    settings,
  };
}

/**
 * Lets tsdbadmin read all of a copy, and takes away the settings that would hold for its sessions.
 */
export async function openForDump(client: Client): Promise<void> {
  await client.query(`alter role ${ADMIN_ROLE} login inherit bypassrls connection limit -1`);
  await client.query(`grant pg_read_all_data to ${ADMIN_ROLE}`);
  await changeSettings(client, async () => void (await client.query(NO_SETTINGS)));
  const { rows } = await client.query<{ statement: string }>(
    `select format('alter database %I connection limit -1 allow_connections true', datname)
       as statement
     from pg_database d where ${isTenantsDatabase('d')}`,
  );
  for (const { statement } of rows) await client.query(statement);
}
const NO_SETTINGS = `delete from pg_db_role_setting s where s.setrole = 0
  or exists (select from pg_roles r where r.oid = s.setrole and ${isTenants('r')})`;

/**
 * Creates roles and databases, and makes tsdbadmin the one that may give objects to every role:
 * PostgreSQL asks that it may become the new owner, and that the owner may create in the schema.
 *
 * @param creators the name of a role, that all others are members of until the end
 */
export async function beginGlobals(
  client: Client,
  { roles, databases }: Globals,
  creators: string,
): Promise<void> {
  await client.query(`create role ${creators}`);
  await changeSettings(client, async () => void (await client.query(NO_SETTINGS)));
  await client.query(`alter role ${ADMIN_ROLE} bypassrls`);
  for (const role of roles) {
    await client.query(`create role ${role}`);
    await client.query(`grant ${role} to ${ADMIN_ROLE} with inherit true, set true`);
  }
  for (const role of [...roles, ADMIN_ROLE]) await client.query(`grant ${creators} to ${role}`);
  for (const { name, create } of databases) if (name !== DATABASE_NAME) await client.query(create);
}

/** Gives the roles and databases of {@link beginGlobals} all that they are to have. */
export async function finishGlobals(
  client: Client,
  { roles, attributes, memberships, databases, settings }: Globals,
  creators: string,
): Promise<void> {
  for (const role of roles) await client.query(`revoke ${role} from ${ADMIN_ROLE}`);
  // The drop fails if the role may still create anything.
  await client.query(`drop role ${creators}`);
  await grantInOrder(client, memberships);
  for (const statement of attributes) await client.query(statement);
  for (const { finish } of databases) for (const statement of finish) await client.query(statement);
  await changeSettings(client, async () => {
    for (const { database, role, values } of settings)
      await client.query(
        `insert into pg_db_role_setting (setdatabase, setrole, setconfig)
         select coalesce((select oid from pg_database where datname = $1), 0),
                coalesce((select oid from pg_roles where rolname = $2), 0), $3::text[]`,
        [database, role, values],
      );
  });
}

/** A grantor may have got its right by another of these grants. */
async function grantInOrder(client: Client, memberships: readonly string[]): Promise<void> {
  let left = memberships;
  while (left.length > 0) {
    const failed: string[] = [];
    let reason: unknown;
    for (const statement of left) {
      try {
        await client.query(statement);
      } catch (error) {
        if (!(error instanceof DatabaseError)) throw error;
        failed.push(statement);
        reason = error;
      }
    }
    if (failed.length === left.length) throw reason;
    left = failed;
  }
}

/** In one transaction, which may change what PostgreSQL protects as part of the system. */
async function changeSettings(client: Client, change: () => Promise<void>): Promise<void> {
  await client.query('begin; set local allow_system_table_mods = on');
  await change();
  await client.query('commit');
}
