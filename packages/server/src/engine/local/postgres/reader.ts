/**
 * Runs statements that users send through the API. Each has a session of its own, a role that may
 * read all data and nothing else, and a transaction that cannot write and is never committed.
 * Either would be enough; each covers faults of the other (docs/decisions/0021-query.md).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, DatabaseError, type Connection, type FieldDef, type Submittable } from 'pg';
import { DATABASE_NAME, type QueryResult } from '@howdah/contract';
import { EngineUnavailable, StatementRefused, type ReadStatement } from '../../engine.ts';
import { READER_ROLE } from './files.ts';
import type { Monitor } from './monitor.ts';
import { serviceSocket } from '../host/service-socket.ts';
import { ANSWER_DEADLINE_MS } from './superuser.ts';
import {
  createReaderRole,
  FOLLOWS_WITHIN_MS,
  MAX_SESSIONS,
  portAt,
  refusedWithoutDatabase,
  superuserAt,
  waitForReaderRole,
  type Place,
} from './reader-role.ts';
import { CAN_WRITE, revokeWriters } from './writers.ts';

/** The most that is taken of an answer, as it comes from the server. */
const MAX_BYTES = 4 * 1024 * 1024;
/**
 * How long after its own time limit a statement is ended from outside: it may have caught the
 * first.
 */
const GRACE_MS = 1000;
const QUERY_CANCELED = '57014';
const TOO_MANY_CONNECTIONS = '53300';

/**
 * Parameters that the database's owner may have set for all sessions, and that must not apply to
 * this one; the owner's search path does apply. A caller that is gone is noticed in the middle of a
 * statement.
 */
const settingsOf = ({ timeoutMs }: ReadStatement): string =>
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

export function createReader(monitor: Monitor) {
  const open = new Set<Client>();
  const creating = new Map<string, Promise<void>>();

  /** Makes sure of the role, once for all who wait for it. */
  const createReader = async (place: Place): Promise<void> => {
    const role =
      creating.get(place.key) ??
      createReaderRole(monitor, place).finally(() => creating.delete(place.key));
    creating.set(place.key, role);
    await role;
  };

  /**
   * Opens a session that cannot write, or removes what would let it.
   *
   * @param primary where that is done
   */
  const begin = async (place: Place, primary: Place, options: string): Promise<Client> => {
    for (const begunMs = performance.now(); ; await sleep(20)) {
      const client = await connect(place, options);
      const writes = await beginsAsWriter(client).catch(async (error: unknown) => {
        client.connection.stream.destroy();
        throw await explain(error, monitor, place.key);
      });
      if (!writes) return client;
      client.connection.stream.destroy();
      if (performance.now() - begunMs > FOLLOWS_WITHIN_MS)
        throw new EngineUnavailable(
          `the role ${READER_ROLE} can call functions that write, and that cannot be revoked at the moment`,
        );
      await superuserAt(primary, DATABASE_NAME, revokeWriters);
    }
  };

  /** @param primary where the role is made: the server itself, or the one that it follows */
  const read = async (
    place: Place,
    primary: Place,
    statement: ReadStatement,
  ): Promise<QueryResult> => {
    await createReader(primary);
    if (place !== primary) await waitForReaderRole(monitor, place.key);
    const client = await begin(place, primary, settingsOf(statement));
    open.add(client);
    try {
      return await readWith(client, monitor, place.key, statement);
    } finally {
      open.delete(client);
      // Not `end()`, which would wait for a server that may hang. Whatever was locked or is still
      // to come ends with the session.
      client.connection.stream.destroy();
    }
  };

  return { read, close: () => open.forEach((client) => client.connection.stream.destroy()) };
}

/** Begins a session; where all are taken it waits for one to end. */
async function connect(place: Place, options: string): Promise<Client> {
  for (const begunMs = performance.now(); ; await sleep(20)) {
    try {
      return await connectOnce(place, options);
    } catch (error) {
      if (error instanceof EngineUnavailable) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      const code = error instanceof DatabaseError ? error.code : null;
      const isFull = code === TOO_MANY_CONNECTIONS;
      if (isFull && performance.now() - begunMs < ANSWER_DEADLINE_MS) continue;
      throw (
        refusedWithoutDatabase(error) ??
        new EngineUnavailable(isFull ? whyFull(reason) : reason, { cause: error })
      );
    }
  }
}

/** The meaning of PostgreSQL's refusal of a connection: the same code is used for three limits. */
export function whyFull(message: string): string {
  if (/for role "/.test(message))
    return `${MAX_SESSIONS} statements run on it already: try again when one of them has ended`;
  if (/for database "/.test(message))
    return `the connection limit of the database ${DATABASE_NAME} is reached, which its owner set: ALTER DATABASE ${DATABASE_NAME} CONNECTION LIMIT -1`;
  return 'all connections of the server are taken: close some, let clients connect through the connection pooler, or resize the service for more';
}

/** Begins the transaction. @returns whether its role can call functions that write all the same */
async function beginsAsWriter(client: Client): Promise<boolean> {
  const timer = setTimeout(() => client.connection.stream.destroy(), ANSWER_DEADLINE_MS);
  try {
    await client.query('begin transaction read only');
    // From its first snapshot on nothing makes a transaction that only reads one that writes.
    const { rows } = await client.query<{ writes: boolean }>(`select ${CAN_WRITE} as writes`);
    return rows[0]?.writes !== false;
  } finally {
    clearTimeout(timer);
  }
}

async function connectOnce(place: Place, options: string): Promise<Client> {
  const client = new Client({
    host: place.paths.socket,
    stream: serviceSocket,
    port: await portAt(place),
    user: READER_ROLE,
    database: DATABASE_NAME,
    application_name: 'howdah query',
    connectionTimeoutMillis: ANSWER_DEADLINE_MS,
    options,
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

async function readWith(
  client: Client,
  monitor: Monitor,
  key: string,
  statement: ReadStatement,
): Promise<QueryResult> {
  const { sql, parameters, maxRows, timeoutMs } = statement;
  const rows: (string | null)[][] = [];
  const begunMs = performance.now();
  let cut: 'late' | 'large' | null = null;
  /** Ends the session from outside, whatever the statement does. */
  const end = (why: 'late' | 'large'): void => {
    cut ??= why;
    const pid: unknown = Reflect.get(client, 'processID');
    monitor.query(key, 'select pg_catalog.pg_terminate_backend($1)', [pid]).catch(() => undefined);
    client.connection.stream.destroy();
  };
  let bytes = 0;
  client.connection.stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_BYTES && cut === null) end('large');
  });
  const timer = setTimeout(() => end('late'), timeoutMs + GRACE_MS);
  let columns: QueryResult['columns'] = [];
  try {
    const described = await exchange(client, (connection) => {
      connection.parse({ name: STATEMENT, text: sql, types: [] }, true);
      connection.describe({ type: 'S', name: STATEMENT }, true);
    });
    columns = await columnsOf(client, described);
    // One more row than requested shows whether there are more.
    await exchange(
      client,
      (connection) => {
        connection.bind({ statement: STATEMENT, values: [...parameters] }, true);
        connection.execute({ rows: String(maxRows + 1) }, true);
      },
      (row) => rows.push(row),
    );
  } catch (error) {
    if (cut === 'late')
      throw new StatementRefused(`the statement was ended after its timeout of ${timeoutMs} ms`, {
        sqlstate: QUERY_CANCELED,
        hint: LATE,
      });
    if (cut === 'large' && rows.length === 0)
      throw new StatementRefused(
        `more than ${MAX_BYTES / 1024 / 1024} MiB came before the end of the first row`,
        {
          sqlstate: '54000',
          hint: 'select fewer columns, or parts of large values: left(column, 1000)',
        },
      );
    if (cut === null) throw await explain(error, monitor, key);
  } finally {
    clearTimeout(timer);
  }
  const elapsedMs = Math.round((performance.now() - begunMs) * 10) / 10;
  const truncated = cut === 'large' || rows.length > maxRows;
  const shown = rows.slice(0, maxRows);
  return { columns, rows: shown, row_count: shown.length, truncated, elapsed_ms: elapsedMs };
}

/** A name of our own: the driver uses the unnamed statement. */
const STATEMENT = 'howdah_statement';
const LATE = 'ask for less, see its plan with EXPLAIN, or raise timeout_ms';

/** PostgreSQL's error, or that the server is gone. */
async function explain(thrown: unknown, monitor: Monitor, key: string): Promise<Error> {
  if (thrown instanceof StatementRefused) return thrown;
  if (!(thrown instanceof DatabaseError) || thrown.code === undefined) {
    return new EngineUnavailable(thrown instanceof Error ? thrown.message : String(thrown), {
      cause: thrown,
    });
  }
  // A session that was ended: by its own statement, or because its server ends.
  if (
    thrown.code.startsWith('57P') &&
    (await monitor.query(key, 'select 1').catch(() => null)) === null
  )
    return new EngineUnavailable(thrown.message, { cause: thrown });
  return new StatementRefused(thrown.message, {
    sqlstate: thrown.code,
    position: thrown.position === undefined ? null : Number(thrown.position),
    detail: thrown.detail ?? null,
    hint: thrown.hint ?? (thrown.code === QUERY_CANCELED ? LATE : null),
  });
}

/** The columns of an answer, with their types in PostgreSQL's words. */
async function columnsOf(
  client: Client,
  fields: readonly FieldDef[],
): Promise<QueryResult['columns']> {
  if (fields.length === 0) return [];
  const { rows } = await client.query<{ type: string }>(
    `select pg_catalog.format_type(f.id, f.modifier) as type
     from rows from (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.int4[])) with ordinality as f (id, modifier, n)
     order by f.n`,
    [
      fields.map(({ dataTypeID }) => dataTypeID),
      fields.map(({ dataTypeModifier }) => dataTypeModifier),
    ],
  );
  return fields.map(({ name }, index) => ({ name, type: rows[index]?.type ?? 'unknown' }));
}

/**
 * Sends messages of the extended protocol, which takes one statement and no more, and waits until
 * the server is ready again.
 */
function exchange(
  client: Client,
  send: (connection: Connection) => void,
  onRow: (row: (string | null)[]) => void = () => undefined,
): Promise<readonly FieldDef[]> {
  return new Promise((resolve, reject) => {
    let fields: readonly FieldDef[] = [];
    // The driver calls these; its types know but the first.
    const query: Submittable & Record<string, (...given: never[]) => void> = {
      submit: (connection: Connection) => {
        send(connection);
        connection.sync();
      },
      handleRowDescription: (message: { fields: readonly FieldDef[] }) => {
        fields = message.fields;
      },
      handleDataRow: (message: { fields: (string | null)[] }) => onRow(message.fields),
      handleError: (error: Error) => reject(error),
      handleReadyForQuery: () => resolve(fields),
      handleCommandComplete: () => undefined,
      handlePortalSuspended: () => undefined,
      handleEmptyQuery: () => undefined,
      handleCopyInResponse: () => reject(noCopy()),
      handleCopyData: () => reject(noCopy()),
    };
    client.query(query);
  });
}

const noCopy = (): StatementRefused =>
  new StatementRefused('COPY is not supported here', {
    sqlstate: '0A000',
    hint: 'write it as a SELECT, and use psql for whole tables',
  });
