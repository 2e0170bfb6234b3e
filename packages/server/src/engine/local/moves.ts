/** Reads the data of a service that a move to another region would copy, from its primary. */
import { ADMIN_ROLE } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { escapeIdentifier, type Client } from 'pg';
import { EngineUnavailable } from '../engine.ts';
import {
  EXAMINED_WITHIN_MS,
  oneAtATime,
  readMovedData,
  readNames,
  STATEMENT_MS,
  MAX_DATABASES,
} from '../moved-data.ts';
import {
  type MovedData,
  type Moves,
  COPY_ROLE,
  MOVE_ROLES,
  MoveRefused,
  type CopyProgress,
  type Keep,
  type Stopping,
  type MoveRoles,
  type MoveSource,
} from '../moves.ts';
import { withinTime, READER_ROLE, type Within } from '../statements/session.ts';
import { architecture, createMoveTarget } from './copy/target.ts';
import type { Local } from './local.ts';
import { ANSWER_DEADLINE_MS, withSuperuserSession } from '../postgres/sessions/superuser.ts';
import { READ_ONLY_ROLES } from '../postgres/contents/login-guard.ts';
import { portOf, atPrimary } from './primary-session.ts';
import { primaryPaths } from './topology/instances.ts';
import { POOLER_ROLE } from '../pooler/lookup.ts';
import { memberKey } from './host/layout.ts';
import { readShutdown } from '../postgres/data/identity.ts';
import { findUncopied, allowRoleFunctions } from '../postgres/contents/contents.ts';
import { findServer } from './postgres/server.ts';
import { stopInstance } from './topology/start-stop.ts';
import { isWithoutDatabase } from '../postgres/contents/catalogs.ts';

export function createMoves(local: Pick<Local, 'machine' | 'topology' | 'notices'>): Moves {
  const read = oneAtATime((id: string) => readPrimary(local, id));
  return {
    place: 'machine',
    from: { read, ...createMoveActions(local) },
    to: createMoveTarget(local),
  };
}

async function readPrimary({ machine }: Pick<Local, 'machine'>, id: string): Promise<MovedData> {
  const paths = primaryPaths(machine, id);
  const where = { server: paths, port: await portOf(paths), name: 'howdah move', readOnly: true };
  const within = withinTime(EXAMINED_WITHIN_MS, () => performance.now());
  try {
    const data = await readMovedData({
      closed: [],
      roles: `select rolname::text as name from pg_roles r where not ${IS_OURS}`,
      readMore: async (session) => ({
        readOnlyRoles: await readNames(session, READ_ONLY_ROLES),
        systemSettings: await readNames(session, SYSTEM_SETTINGS),
      }),
      inSession: (database, work) =>
        withSuperuserSession(
          {
            ...where,
            ...(database === null ? {} : { database }),
            limitMs: within(STATEMENT_MS),
            answerMs: within(ANSWER_DEADLINE_MS),
          },
          work,
        ),
    });
    if (data === null) throw new Error('it cannot be read');
    return { architecture: architecture(), ...data };
  } catch (error) {
    const reason = messageOf(error);
    throw new EngineUnavailable(reason, { cause: error });
  }
}

const SYSTEM_SETTINGS = `
  select distinct name from pg_file_settings
  where sourcefile like '%/postgresql.auto.conf' limit 100`;

// A service on this machine acts for its copy in another region, beside its usual rounds. The
// owner of the service may be hostile: roles and databases are input.

/** A checkpoint writes all that is not on the disk. */
const CHECKPOINT_MS = 120_000;
/** A stop that takes longer would leave the copy no time to report that it has all. */
const STOP_MS = 40_000;
/** To close the roles of a copy takes moments; tenants can make it longer to drop them. */
const DISMISS_MS = 10_000;

/** No session of another can make, alter, grant or drop a role until the transaction ends. */
const LOCK_ROLES = 'lock table pg_authid, pg_auth_members in share row exclusive mode';

/**
 * In SQL, of a role `r`: whether nobody may become it, and only a superuser can have made it what
 * it is. No tenant can make a superuser, or grant the memberships. The roles of statements and
 * poolers are made without them; what their makers may have set is reset before they are used.
 */
const IS_OURS = `(not exists (select from pg_auth_members m where m.roleid = r.oid)
  and (r.rolsuper
    or exists (select from pg_auth_members m where m.member = r.oid
      and m.roleid in
        (select oid from pg_roles where rolname in ('pg_signal_backend', 'pg_checkpoint')))
    or r.rolname in ('${READER_ROLE}', '${POOLER_ROLE}')))`;

type Place = Pick<Local, 'machine' | 'topology' | 'notices'>;

/** @param stopMs how long the server may take to stop before it is killed */
export function createMoveActions(local: Place, stopMs = STOP_MS): Omit<MoveSource, 'read'> {
  return {
    login: async (id) => ({
      verifier: await atPrimary(local, id, readVerifier),
      certificate: null,
    }),
    withhold: (id) => allowFunctions(local, id, false),
    admit: async (id, roles) => {
      await atPrimary(local, id, (client) => makeRoles(client, roles));
      for (const { name, sql } of roles.databases)
        await atPrimary(local, id, (client) => transact(client, sql), { database: name });
    },
    progress: (id) => atPrimary(local, id, readProgress),
    checkpoint: (id) =>
      atPrimary(local, id, async (client) => void (await client.query('checkpoint')), {
        limitMs: CHECKPOINT_MS,
      }),
    stop: (id, stopping) => stop(local, id, stopping, stopMs),
    dismiss: (id) => {
      const within = withinTime(DISMISS_MS, () => performance.now());
      return atPrimary(local, id, (client) => dismiss(client, within), { within });
    },
    giveBack: (id) => allowFunctions(local, id, true),
    // A stopped server has nothing but its disk.
    retire: (id, { former, current }) => local.notices.open(id, former.port, current),
  };
}

async function readVerifier(client: Pick<Client, 'query'>): Promise<string | null> {
  const { rows } = await client.query<{ verifier: string | null }>(
    'select rolpassword as verifier from pg_authid where rolname = $1',
    [ADMIN_ROLE],
  );
  return rows[0]?.verifier ?? null;
}

/**
 * Makes the roles of a copy. Nobody can take one of the names between the check and the end of the
 * transaction: its owner would be what the role is made into.
 *
 * @throws MoveRefused when a tenant has one of them
 */
export async function makeRoles(
  client: Pick<Client, 'query'>,
  { reserved, roles }: Pick<MoveRoles, 'reserved' | 'roles'>,
): Promise<void> {
  await client.query('begin');
  await client.query(LOCK_ROLES);
  await refuseTaken(client, reserved);
  for (const statement of roles) await client.query(statement);
  await client.query('commit');
}

async function refuseTaken(client: Pick<Client, 'query'>, names: readonly string[]): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select rolname::text as name from pg_roles r where rolname = any ($1) and not ${IS_OURS}`,
    [names],
  );
  const [taken] = rows;
  if (taken !== undefined)
    throw new MoveRefused(
      `it has a role ${taken.name}, which the target makes for itself; rename it first`,
    );
}

async function refuseReadOnly(client: Pick<Client, 'query'>): Promise<void> {
  const { rows } = await client.query(READ_ONLY_ROLES);
  if (rows.length > 0)
    throw new MoveRefused('it has got read-only roles, by a setting that no image enforces');
}

/** In one transaction, which may make a schema of a reserved name. */
async function transact(client: Client, statements: readonly string[]): Promise<void> {
  await client.query(
    `begin; set local allow_system_table_mods = on; ${statements.join('; ')}; commit`,
  );
}

async function readProgress(client: Client): Promise<CopyProgress> {
  const { rows } = await client.query<{ mayLogIn: boolean; lag: string | null }>(
    `select exists (select from pg_authid
         where rolname = $1 and rolsuper and rolcanlogin and rolpassword is not null)
         as "mayLogIn",
       (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::text
        from pg_stat_replication
        where usename = $1 and state = 'streaming' and replay_lsn is not null) as lag`,
    [COPY_ROLE],
  );
  const [found] = rows;
  const lag = found?.lag ?? null;
  return {
    mayLogIn: found?.mayLogIn === true,
    lagBytes: lag === null ? null : Math.max(0, Number(lag)),
  };
}

async function stop(
  { machine, topology }: Place,
  id: string,
  { isOver, isKept, keep }: Stopping,
  stopMs: number,
): Promise<bigint> {
  const paths = primaryPaths(machine, id);
  const server = await findServer(paths);
  const key = memberKey(id, machine.layout.primaryOf(id));
  const why = whyNotStopped(server !== null, { isOver, isKept });
  if (why !== null) throw new MoveRefused(why);
  if (server !== null)
    await atPrimary({ machine }, id, (client) =>
      closeAndStop(client, keep, () =>
        stopInstance(topology.executor, key, paths, server, 'fast', stopMs),
      ),
    );
  const end = await readShutdown(paths.data);
  if (end === null) throw new MoveRefused('its server was not shut down in order');
  const left = await findUncopied(paths.data);
  if (left !== null) throw new MoveRefused(left);
  return end;
}

/** The service was examined too long ago, or its password may have changed since it was read. */
export function whyNotStopped(
  isRunning: boolean,
  { isOver, isKept }: Pick<Stopping, 'isOver' | 'isKept'>,
): string | null {
  if (isRunning) return isOver ? 'it could not be stopped in time' : null;
  return isKept ? null : 'its server was stopped meanwhile';
}

/**
 * Stops a server while no role can change: a password that was set after it was read would be
 * acknowledged, and lost in the copy, which gets what was kept.
 *
 * @throws MoveRefused when a tenant has a role of a reserved name
 */
export async function closeAndStop(
  client: Pick<Client, 'query'>,
  keep: Keep,
  stopServer: () => Promise<void>,
): Promise<void> {
  // The copy is connected, and nobody can log in as its superuser once it is promoted.
  await client.query(`alter role ${COPY_ROLE} password null`);
  await client.query('begin');
  await client.query(LOCK_ROLES);
  // A role that was made after the examination would have the rights that its name has there.
  await refuseTaken(client, await keep(await readVerifier(client)));
  await refuseReadOnly(client);
  // A stop waits until each of them has all WAL, and tenants have some that read nothing.
  await client.query(END_OTHER_WALSENDERS, [COPY_ROLE]);
  await stopServer();
}

/** A base backup that is left over from the copy is none that streams. */
const END_OTHER_WALSENDERS = `
  select pg_terminate_backend(pid) from pg_stat_replication
  where not (usename is not distinct from $1 and state = 'streaming')`;

/** A tenant may have granted something to the roles, which keeps them from being dropped. */
async function dismiss(client: Client, within: Within): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select rolname::text as name from pg_roles r where rolname = any ($1) and ${IS_OURS}`,
    [MOVE_ROLES],
  );
  const left = rows.map(({ name }) => escapeIdentifier(name));
  for (const name of left) await client.query(`alter role ${name} nologin password null`);
  await client.query('select pg_terminate_backend(pid) from pg_stat_activity where usename = $1', [
    COPY_ROLE,
  ]);
  for (const name of left)
    // Objects of the tenant may depend on it, or be locked: then it stays, and may not log in.
    await dropRole(client, name, within).catch(() => undefined);
}

async function dropRole(client: Client, name: string, within: Within): Promise<void> {
  for (const sql of [`drop owned by ${name}`, `drop role ${name}`]) {
    await client.query(`set statement_timeout = ${within(DISMISS_MS)}`);
    await client.query(sql);
  }
}

// The functions that make read-only roles, which no other region can enforce. A move takes them
// from the owner of a service right before its last examination, and an abort gives them back.

/** The time limit of all databases: a tenant can have each of them wait for a lock. */
const FUNCTIONS_WITHIN_MS = 60_000;

/**
 * In all databases: a tenant can copy the one that has the functions.
 *
 * @throws EngineUnavailable when it was not possible in each of them, or took too long
 */
async function allowFunctions(
  place: Pick<Local, 'machine'>,
  id: string,
  isAllowed: boolean,
): Promise<void> {
  const within = withinTime(FUNCTIONS_WITHIN_MS, () => performance.now());
  const names = await atPrimary(place, id, readDatabases, { within });
  await inEach(names, within, (database) =>
    atPrimary(
      place,
      id,
      async (client) => void (await client.query(allowRoleFunctions(isAllowed))),
      { database, within },
    ),
  );
}

/**
 * Works in each database. A locked one keeps none of the others back.
 *
 * @throws EngineUnavailable the first problem, once all others are done or the time is over
 */
export async function inEach(
  databases: readonly string[],
  within: Within,
  work: (database: string) => Promise<void>,
): Promise<void> {
  let problem: EngineUnavailable | null = null;
  for (const database of databases) {
    within(1);
    try {
      await work(database);
    } catch (error) {
      if (!(error instanceof EngineUnavailable)) throw error;
      // The owner has dropped the database, or closed it.
      if (!isWithoutDatabase(error.cause)) problem ??= error;
    }
  }
  if (problem !== null) throw problem;
}

/** The first ones: a service with more does not move. */
async function readDatabases(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select datname::text as name from pg_database where datallowconn
     order by datname = 'tsdb' desc, datname limit ${MAX_DATABASES}`,
  );
  return rows.map(({ name }) => name);
}
