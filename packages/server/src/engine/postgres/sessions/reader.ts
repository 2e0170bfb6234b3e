/**
 * Runs statements that users send through the API, on servers of ours. The monitor's connection
 * makes the role, and ends sessions from outside.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, DatabaseError, escapeIdentifier } from 'pg';
import { DATABASE_NAME, type QueryResult } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { createTurns } from '../../../lib/turns.ts';
import { EngineUnavailable, type ReadStatement } from '../../engine.ts';
import {
  READER_ROLE,
  openSession,
  type StatementServer,
  CAN_WRITE,
  REVOKE_WRITERS,
  MAX_STATEMENTS,
  TEMP_FILE_LIMIT,
  whyTaken,
  refusedWithoutDatabase,
} from '../../statements/session.ts';
import { beginReading, runStatement } from '../../statements/run.ts';
import { untrustedSocket } from '../../../lib/untrusted-socket.ts';
import { type Monitored, NoAnswer } from './monitor.ts';
import { MAINTENANCE_DATABASE } from '../roles.ts';
import { withSuperuserSession } from './superuser.ts';
import type { SocketPlace } from '../server-files.ts';

export function createReader(monitor: Monitored) {
  const open = new Set<Client>();
  const creating = new Map<string, Promise<void>>();
  const inTurn = createTurns();

  /** Makes sure of the role, once for all who wait for it. */
  const createReader = async (place: Place, database: string): Promise<void> => {
    const key = `${place.key} ${database}`;
    const role =
      creating.get(key) ??
      // Two databases of a server at a time would change the role at a time.
      inTurn(place.key, () => createReaderRole(monitor, place, database)).finally(() =>
        creating.delete(key),
      );
    creating.set(key, role);
    await role;
  };

  /** @param primary where the role is made: the server itself, or the one that it follows */
  const read = async (
    place: Place,
    primary: Place,
    statement: ReadStatement,
  ): Promise<QueryResult> => {
    const { database = DATABASE_NAME } = statement;
    await createReader(primary, database);
    if (place !== primary) await waitForReaderRole(monitor, place.key);
    const server = serverAt(monitor, place, database);
    const client = await begin(server, primary, database, statement.timeoutMs);
    open.add(client);
    try {
      return await runStatement(client, server, statement);
    } finally {
      open.delete(client);
      // Not `end()`, which would wait for a server that may hang. Whatever was locked or is still
      // to come ends with the session.
      client.connection.stream.destroy();
    }
  };

  return { read, close: () => open.forEach((client) => client.connection.stream.destroy()) };
}

function serverAt(monitor: Monitored, place: Place, database: string): StatementServer {
  return {
    config: async () => ({
      database,
      host: place.server.socket,
      stream: untrustedSocket,
      port: await portAt(place),
    }),
    terminate: async (pid) => {
      await monitor.query(place.key, 'select pg_catalog.pg_terminate_backend($1)', [pid]);
    },
    answers: () =>
      monitor.query(place.key, 'select 1').then(
        () => true,
        () => false,
      ),
  };
}

/**
 * Opens a session that cannot write, or removes what would let it.
 *
 * @param primary where that is done
 */
async function begin(
  server: StatementServer,
  primary: Place,
  database: string,
  timeoutMs: number,
): Promise<Client> {
  for (const begunMs = performance.now(); ; await sleep(20)) {
    const client = await openSession(server, timeoutMs);
    const facts = await beginReading<{ writes: boolean }>(client, server, `${CAN_WRITE} as writes`);
    if (facts?.writes === false) return client;
    client.connection.stream.destroy();
    if (performance.now() - begunMs > FOLLOWS_WITHIN_MS)
      throw new EngineUnavailable(
        `the role ${READER_ROLE} can call functions that write, and that cannot be revoked at ` +
          'the moment',
      );
    await superuserAt(primary, database, async (superuser) => {
      await superuser.query(REVOKE_WRITERS);
    });
  }
}

// Makes the role of statements that users send through the API.

/** A server, and the key by which the monitor knows it. */
type Place = {
  readonly key: string;
  readonly server: SocketPlace;
  /** The port that it listens on; null: it does not run. */
  readonly findPort: () => Promise<number | null>;
};

/**
 * How long a node of a read replica set may take to have what its primary was just given. A caller
 * of the API waits for it.
 */
const FOLLOWS_WITHIN_MS = 20_000;

/** Runs work in a superuser session on a server. @throws EngineUnavailable, StatementRefused */
async function superuserAt(
  place: Place,
  database: string,
  work: (client: Client) => Promise<void>,
): Promise<void> {
  try {
    const port = await portAt(place);
    await withSuperuserSession({ server: place.server, port, name: 'howdah', database }, work);
  } catch (error) {
    if (error instanceof EngineUnavailable) throw error;
    const reason = messageOf(error);
    throw refusedWithoutDatabase(error) ?? new EngineUnavailable(reason, { cause: error });
  }
}

async function portAt({ findPort }: Place): Promise<number> {
  const port = await findPort();
  if (port === null) throw new EngineUnavailable('the server is not running');
  return port;
}

/**
 * The desired properties of the role. It bypasses row security: without the hidden rows an answer
 * would be wrong.
 */
const ATTRIBUTES =
  'login inherit nosuperuser nocreatedb nocreaterole noreplication bypassrls ' +
  `connection limit ${MAX_STATEMENTS} password null valid until 'infinity'`;

type RoleSeen = {
  sound: boolean | null;
  connects: boolean | null;
  readsAll: boolean | null;
  owner: string | null;
  others: { role: string; grantor: string }[];
};

/**
 * Makes sure that a server has the role, that the role has no more rights than these, and that it
 * may connect to a database.
 *
 * @throws EngineUnavailable when a user of the service has made a role of that name, or the
 *   server does not answer; StatementRefused when the database does not exist
 */
async function createReaderRole(monitor: Monitored, place: Place, database: string): Promise<void> {
  try {
    const seen = await observeRole(monitor, place.key, database);
    // A user who has created a role may become it, and grant it.
    if (seen?.owner != null) throw new EngineUnavailable(whyTaken(seen.owner));
    const statements = statementsFor(seen, database);
    if (statements.length === 0) return;
    await superuserAt(place, MAINTENANCE_DATABASE, async (client) => {
      for (const statement of statements) await client.query(statement);
    });
  } catch (error) {
    if (error instanceof NoAnswer || error instanceof DatabaseError)
      throw refusedWithoutDatabase(error) ?? new EngineUnavailable(error.message, { cause: error });
    throw error;
  }
}

/** The statement that gives the role its properties. */
function statementsFor(seen: RoleSeen | null, database: string): string[] {
  const name = escapeIdentifier(READER_ROLE);
  const place = escapeIdentifier(database);
  return [
    ...(seen === null ? [`create role ${name}`] : []),
    ...(seen?.sound === true
      ? []
      : [
          `alter role ${name} ${ATTRIBUTES}`,
          `alter role ${name} in database ${place} reset all`,
          `alter role ${name} set temp_file_limit = '${TEMP_FILE_LIMIT}'`,
        ]),
    ...(seen?.readsAll === true ? [] : [`grant pg_read_all_data to ${name} with inherit true`]),
    ...(seen?.connects === true ? [] : [`grant connect on database ${place} to ${name}`]),
    // Users may have granted their own roles to it.
    ...(seen?.others ?? []).map(
      ({ role, grantor }) =>
        `revoke ${escapeIdentifier(role)} from ${name} granted by ` +
        `${escapeIdentifier(grantor)} cascade`,
    ),
  ];
}

/** The role as it is; null: it does not exist. */
async function observeRole(
  monitor: Monitored,
  key: string,
  database: string,
): Promise<RoleSeen | null> {
  const [seen] = await monitor.query<RoleSeen>(
    key,
    `select r.rolcanlogin and r.rolinherit and r.rolbypassrls and r.rolconnlimit = $2
       and r.rolpassword is null
              and not (r.rolsuper or r.rolcreatedb or r.rolcreaterole or r.rolreplication)
              and (r.rolvaliduntil is null or r.rolvaliduntil = 'infinity')
              and exists (select from pg_db_role_setting s where s.setrole = r.oid
                and s.setdatabase = 0 and s.setconfig = array[$3])
              and not exists (select from pg_db_role_setting s where s.setrole = r.oid
                and s.setdatabase = (select oid from pg_database where datname = $4))
              as sound,
            has_database_privilege(r.oid, $4, 'connect') as connects,
            exists (select from pg_auth_members m where m.member = r.oid
              and m.roleid = 'pg_read_all_data'::regrole and m.inherit_option
                      and m.grantor = 10) as "readsAll",
            (select m.member::regrole::text from pg_auth_members m where m.roleid = r.oid
              limit 1) as owner,
            coalesce((select json_agg(json_build_object('role', g.rolname, 'grantor', b.rolname))
                      from pg_auth_members m join pg_roles g on g.oid = m.roleid
                        join pg_roles b on b.oid = m.grantor
                      where m.member = r.oid and not (m.roleid = 'pg_read_all_data'::regrole
                        and m.grantor = 10)), '[]') as others
     from pg_authid r where r.rolname = $1`,
    [READER_ROLE, MAX_STATEMENTS, `temp_file_limit=${TEMP_FILE_LIMIT}`, database],
  );
  return seen ?? null;
}

/** Waits until a server that follows has the role. */
async function waitForReaderRole(monitor: Monitored, key: string): Promise<void> {
  for (const begunMs = performance.now(); ; await sleep(20)) {
    const found = await monitor
      .query(key, 'select from pg_roles where rolname = $1', [READER_ROLE])
      .catch(() => []);
    if (found.length > 0) return;
    if (performance.now() - begunMs > FOLLOWS_WITHIN_MS)
      throw new EngineUnavailable('the node does not follow its service at the moment');
  }
}
