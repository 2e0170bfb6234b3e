/** Opens sessions of the role {@link READER_ROLE}. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, DatabaseError, escapeIdentifier, type ClientConfig } from 'pg';
import { DATABASE_NAME, ADMIN_ROLE } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { EngineUnavailable, StatementRefused } from '../engine.ts';

// The role of statements that users send through the API: it may read all data and nothing else
// (docs/decisions/0021-query.md).

export const READER_ROLE = 'howdah_reader';

/** Statements of all callers together on one server: the other sessions are its users'. */
export const MAX_STATEMENTS = 10;

/** The disk space that sorts and joins may take. Only a superuser can set this limit. */
export const TEMP_FILE_LIMIT = '1GB';

/** Why statements cannot use the role. @param owner a user of the service that may become it */
export const whyTaken = (owner: string): string =>
  `it has a role ${READER_ROLE} that its user ${owner} made or was granted, and statements need ` +
  `the name: drop role ${READER_ROLE}`;

/** A server as statements of users reach it. */
export type StatementServer = Readonly<{
  /** The database, where the server listens, and the password of the role if it needs one. */
  config: () => Promise<ClientConfig>;
  /** Ends a session from outside, whatever its statement does. */
  terminate: (pid: number) => Promise<void>;
  /** Whether the server answers. */
  answers: () => Promise<boolean>;
}>;

/** How long a server may take to accept a session. A caller of the API waits for it. */
export const SESSION_DEADLINE_MS = 20_000;
/** The same for figures: those of all services are read one after the other. */
export const SAMPLE_DEADLINE_MS = 5000;
/** How long a statement waits for a place where all are taken, for how long nobody knows. */
export const FULL_WAIT_MS = 5000;
type Waits = Readonly<{ fullMs: number; acceptMs: number }>;
const CALLER_WAITS: Waits = { fullMs: FULL_WAIT_MS, acceptMs: SESSION_DEADLINE_MS };
/** The waits of a session for figures. */
export const SAMPLE_WAITS: Waits = { fullMs: 0, acceptMs: SAMPLE_DEADLINE_MS };
const TOO_MANY_CONNECTIONS = '53300';

/**
 * Parameters that the database's owner may have set for all sessions, and that must not apply to
 * one of ours; the owner's search path does apply. A caller that is gone is noticed in the middle
 * of a statement.
 */
const optionsOf = (timeoutMs: number): string =>
  [
    'default_transaction_read_only=on',
    'default_transaction_deferrable=off',
    'role=none',
    'local_preload_libraries=',
    'idle_in_transaction_session_timeout=60000',
    'idle_session_timeout=0',
    `statement_timeout=${timeoutMs}`,
    'client_connection_check_interval=1000',
  ]
    .map((setting) => `-c ${setting}`)
    .join(' ');

/**
 * Opens a session; where all are taken it waits for one to end.
 *
 * @param timeoutMs the time limit of its statements
 * @param waits for how long it waits for a place, and then for the server
 * @throws EngineUnavailable; StatementRefused when the database does not exist
 */
export async function openSession(
  server: StatementServer,
  timeoutMs: number,
  { fullMs, acceptMs }: Waits = CALLER_WAITS,
): Promise<Client> {
  for (const begunMs = performance.now(); ; await sleep(20)) {
    try {
      return await openOnce(server, timeoutMs, acceptMs);
    } catch (error) {
      if (error instanceof EngineUnavailable) throw error;
      const reason = messageOf(error);
      const code = error instanceof DatabaseError ? error.code : null;
      const isFull = code === TOO_MANY_CONNECTIONS;
      if (isFull && performance.now() - begunMs < fullMs) continue;
      throw (
        refusedWithoutDatabase(error) ??
        new EngineUnavailable(isFull ? whyFull(reason) : reason, { cause: error })
      );
    }
  }
}

async function openOnce(
  server: StatementServer,
  timeoutMs: number,
  acceptMs: number,
): Promise<Client> {
  const client = new Client({
    ...(await server.config()),
    user: READER_ROLE,
    application_name: 'howdah query',
    connectionTimeoutMillis: acceptMs,
    options: optionsOf(timeoutMs),
  });
  client.on('error', () => undefined); // the running statement reports it
  try {
    await client.connect();
  } catch (error) {
    client.connection.stream.destroy();
    throw error;
  }
  return client;
}

/** The meaning of PostgreSQL's refusal of a connection: the same code is used for three limits. */
export function whyFull(message: string): string {
  if (/for role "/.test(message)) return FULL_OF_STATEMENTS;
  const database = /for database "(.*)"/.exec(message)?.[1];
  if (database !== undefined)
    return (
      `the connection limit of the database ${database} is reached, which its owner set: ` +
      `ALTER DATABASE ${escapeIdentifier(database)} CONNECTION LIMIT -1`
    );
  return (
    'all connections of the server are taken: close some, let clients connect through the ' +
    'connection pooler, or resize the service for more'
  );
}

export const FULL_OF_STATEMENTS = `${MAX_STATEMENTS} statements run on it already: \
try again when one of them has ended`;

/**
 * The answer to a statement when the database is gone, or closed by its owner; null: the error is
 * another one.
 */
export function refusedWithoutDatabase(error: unknown): StatementRefused | null {
  if (!(error instanceof DatabaseError)) return null;
  const { code: sqlstate = '', message } = error;
  const hint = HINTS[sqlstate]?.(message);
  return hint === undefined ? null : new StatementRefused(message, { sqlstate, hint });
}

const LISTED = 'SELECT datname FROM pg_database lists those of the service.';
/** The causes of PostgreSQL's refusals of a database, by code. */
const HINTS: Readonly<Record<string, (message: string) => string>> = {
  '3D000': (message) =>
    message.includes(`"${DATABASE_NAME}"`)
      ? `A user dropped or renamed it: CREATE DATABASE ${DATABASE_NAME}, in another database.`
      : LISTED,
  '42501': () => `Its owner gives the right: GRANT CONNECT ON DATABASE … TO ${READER_ROLE}.`,
  '55000': () =>
    'Its owner opens it: ALTER DATABASE … ALLOW_CONNECTIONS true, ' +
    'in another database. A database ' +
    'whose removal was interrupted is removed by DROP DATABASE.',
};

// A time limit for work in several parts, such as sessions in all databases of a tenant.

/** @param mostMs of the next part @returns the ms that it has @throws EngineUnavailable */
export type Within = (mostMs: number) => number;

/**
 * Gives each part of some work the rest of its time.
 *
 * @returns throws EngineUnavailable when no time is left
 */
export function withinTime(limitMs: number, now: () => number): Within {
  const endMs = now() + limitMs;
  return (mostMs) => {
    const leftMs = Math.ceil(endMs - now());
    if (leftMs > 0) return Math.min(leftMs, mostMs);
    throw new EngineUnavailable(
      `its databases took longer than ${limitMs / 1000} s; drop those that are not needed, end ` +
        'sessions that hold locks there, or try again when it has less to do',
    );
  };
}

// Functions of PostgreSQL that everybody may call and that write WAL or files in a transaction that
// only reads. In a tenant's database they are tsdbadmin's alone, who cannot grant them: a grant to
// a role that both it and the reader are members of could not be revoked
// (docs/decisions/0021-query.md). `query.test.ts` classifies the others.

/** `pg_export_snapshot` makes a file with each call. */
export const WRITERS = ['pg_logical_emit_message', 'pg_export_snapshot'] as const;

const NAMES = `array[${WRITERS.map((name) => `'${name}'`).join(', ')}]::pg_catalog.name[]`;

/** In SQL, of a session of any search path: whether its role may call one of them. */
export const CAN_WRITE = `exists (
  select from pg_catalog.pg_proc p
  where p.pronamespace operator(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
    and p.proname operator(pg_catalog.=) any (${NAMES})
    and pg_catalog.has_function_privilege(p.oid, 'execute'))`;

const FOUND = `pronamespace = 'pg_catalog'::regnamespace and proname = any (${NAMES})`;

/**
 * One statement of a superuser in a database: takes the functions from everybody but tsdbadmin.
 *
 * pg_dump shows what differs from the privileges that initdb made: these are as if it had, or each
 * dump would have errors when it is restored.
 */
export const REVOKE_WRITERS = `do $body$
declare signature text;
begin
  perform set_config('allow_system_table_mods', 'on', true);
  for signature in select oid::regprocedure::text from pg_proc where ${FOUND} loop
    execute format('revoke all on function %s from public, ${ADMIN_ROLE} cascade', signature);
    execute format('grant execute on function %s to ${ADMIN_ROLE}', signature);
  end loop;
  delete from pg_init_privs where classoid = 'pg_proc'::regclass
    and objoid in (select oid from pg_proc where ${FOUND});
  insert into pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
    select oid, 'pg_proc'::regclass, 0, 'i', proacl from pg_proc where ${FOUND};
end $body$`;
