/**
 * Runs statements that users send through the API. Each has a session of its own, a role that may
 * read all data and nothing else, and a transaction that cannot write and is never committed.
 * Either would be enough; each covers faults of the other (docs/decisions/0021-query.md).
 */
import {
  DatabaseError,
  type Client,
  type Connection,
  type FieldDef,
  type QueryResultRow,
  type Submittable,
} from 'pg';
import type { QueryResult } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { EngineUnavailable, StatementRefused, type ReadStatement } from '../engine.ts';
import { SESSION_DEADLINE_MS, type StatementServer } from './session.ts';

/** The most that is taken of an answer, as it comes from the server. */
const MAX_BYTES = 4 * 1024 * 1024;
/**
 * How long after its own time limit a statement is ended from outside: it may have caught the
 * first.
 */
const GRACE_MS = 1000;
const QUERY_CANCELED = '57014';

/**
 * Begins the transaction. From its first snapshot on nothing makes a transaction that only reads
 * one that writes.
 *
 * @param facts in SQL: what is asked with that snapshot, of the session and of its role
 * @throws EngineUnavailable, StatementRefused; the session is destroyed then
 */
export async function beginReading<Row extends QueryResultRow>(
  client: Client,
  server: StatementServer,
  facts: string,
  deadlineMs = SESSION_DEADLINE_MS,
): Promise<Row | null> {
  const { stream } = client.connection;
  const timer = setTimeout(() => stream.destroy(), deadlineMs);
  try {
    await client.query('begin transaction read only');
    const { rows } = await client.query<Row>(`select ${facts}`);
    return rows[0] ?? null;
  } catch (error) {
    stream.destroy();
    throw await explain(error, server);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Runs a statement in a session that {@link beginReading} has begun. The caller destroys the
 * session, whatever happens.
 *
 * @throws EngineUnavailable, StatementRefused
 */
export async function runStatement(
  client: Client,
  server: StatementServer,
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
    if (typeof pid === 'number') server.terminate(pid).catch(() => undefined);
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
    if (cut === null) throw await explain(error, server);
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
async function explain(thrown: unknown, server: StatementServer): Promise<Error> {
  if (thrown instanceof StatementRefused) return thrown;
  if (!(thrown instanceof DatabaseError) || thrown.code === undefined) {
    return new EngineUnavailable(messageOf(thrown), {
      cause: thrown,
    });
  }
  // A session that was ended: by its own statement, or because its server ends.
  if (thrown.code.startsWith('57P') && !(await server.answers()))
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
     from rows from (pg_catalog.unnest($1::pg_catalog.oid[]),
       pg_catalog.unnest($2::pg_catalog.int4[])) with ordinality as f (id, modifier, n)
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
