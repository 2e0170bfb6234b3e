/**
 * Sessions of tsdbadmin in forks that the key of the call has made. Statements that write run here
 * and nowhere else (docs/decisions/0104-mcp-tools.md).
 */
import { HowdahError } from '@howdah/client';
import { denialOfChanges, subjectOf } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract/types';
import { Client, DatabaseError, Query, type FieldDef } from 'pg';
import { pathOf, readKey, type Cloud, type Service } from './cloud.ts';
import { adviceAfter, Problem } from './problem.ts';

const CONNECT_MS = 20_000;
/** How long after its time limit the connection of a statement is closed. */
const GRACE_MS = 2000;
/** The most that is read of an answer, of which max_rows are kept. */
const MAX_BYTES = 16 * 1024 * 1024;
const INVALID_PASSWORD = '28P01';

/** A session of one tool. Statements that fail throw a Problem. */
export type OwnSession = {
  /** One statement, by the protocol: more than one is a syntax error. Values are text or null. */
  run: (sql: string, parameters?: readonly (string | null)[], maxRows?: number) => Promise<Answer>;
};

export type Answer = {
  /** As PostgreSQL names what was done: UPDATE, CREATE TABLE. */
  command: string;
  columns: { name: string; type_oid: number }[];
  rows: (string | null)[][];
  /** Rows that were read or changed; null: the statement has none. */
  row_count: number | null;
  truncated: boolean;
  elapsed_ms: number;
};

/** Whether a service is a fork that this key has made, and is not in use. */
export async function isOwnFork(cloud: Cloud, service: Service): Promise<boolean> {
  return whyNotOwn(service, (await readKey(cloud)).public_key) === null;
}

/** The facts of a service that decide whether statements write in it. */
type Judged = Pick<Service, 'name' | 'created_by' | 'forked_from'> &
  Parameters<typeof subjectOf>[0];

/** Why statements that write do not run on a service; null: they do. */
export function whyNotOwn(service: Judged, publicKey: string): string | null {
  const { forked_from: parent, created_by: maker, name } = service;
  const named = JSON.stringify(name);
  if (parent === undefined) return `${named} is no fork`;
  if (parent.is_standby) return `${named} is a read replica set`;
  if (maker !== publicKey) return `another key has made the fork ${named}`;
  if (subjectOf(service).environment === 'PROD') return `the fork ${named} is PROD`;
  return null;
}

/**
 * Works in a session of a fork that the key has made.
 *
 * @param limits the database, by default tsdb; the time limit of each statement
 * @throws Problem for another service, and for statements that fail
 */
export async function inOwnFork<T>(
  cloud: Cloud,
  service: Service,
  limits: { database?: string | undefined; timeoutMs: number },
  signal: AbortSignal,
  work: (session: OwnSession) => Promise<T>,
): Promise<T> {
  const key = await readKey(cloud);
  const denied = denialOfChanges(key, service.created_by);
  if (denied !== null) throw new HowdahError(403, 'FORBIDDEN', denied, undefined);
  const foreign = whyNotOwn(service, key.public_key);
  if (foreign !== null)
    throw new Problem(
      `${foreign}: statements that write run on forks that this key has made`,
      'fork_service, then call again with the fork as service',
    );
  if (service.status !== 'READY')
    throw new Problem(
      `${JSON.stringify(service.name)} is ${service.status}, and accepts no connections`,
      'start_service, or wait_for_operation until it is READY',
    );
  const client = await connect(cloud, service, limits);
  const leave = (): void => {
    client.connection.stream.destroy();
  };
  signal.addEventListener('abort', leave, { once: true });
  try {
    signal.throwIfAborted();
    return await work({
      run: async (sql, parameters = [], maxRows = 1000) =>
        run(client, { sql, parameters, maxRows, timeoutMs: limits.timeoutMs }),
    });
  } finally {
    signal.removeEventListener('abort', leave);
    client.end().catch(() => undefined);
  }
}

/** With the password that this process knows, else with one that it sets. */
async function connect(
  cloud: Cloud,
  service: Service,
  { database = DATABASE_NAME, timeoutMs }: { database?: string | undefined; timeoutMs: number },
): Promise<Client> {
  const ca = await cloud.fetchCa();
  const { host, port } = service.vpc_endpoint ?? service.endpoint;
  const open = async (password: string): Promise<Client> => {
    const client = new Client({
      host,
      port,
      user: ADMIN_ROLE,
      database,
      password,
      ssl: { ca },
      application_name: 'howdah mcp',
      connectionTimeoutMillis: CONNECT_MS,
      // The server ends a statement whose client has gone.
      options: `-c statement_timeout=${timeoutMs} -c client_connection_check_interval=1000`,
    });
    client.on('error', () => undefined); // the running statement reports it
    try {
      await client.connect();
    } catch (error) {
      client.connection.stream.destroy();
      throw error;
    }
    return client;
  };
  const { service_id: id } = service;
  const renew = async (): Promise<string> =>
    cloud.passwords.renew(id, async (password) => {
      await cloud.client.POST('/projects/{project_id}/services/{service_id}/updatePassword', {
        params: { path: pathOf(service) },
        body: { password, keep_sessions: true },
      });
    });
  try {
    const known = cloud.passwords.find(id);
    if (known === undefined) return await open(await renew());
    try {
      return await open(known);
    } catch (error) {
      const isFormer = error instanceof DatabaseError && error.code === INVALID_PASSWORD;
      if (!isFormer) throw error;
      return await open(await renew());
    }
  } catch (error) {
    throw unreachable(service, error);
  }
}

function unreachable({ name, vpc_endpoint: inside }: Service, error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof HowdahError) return error;
  const place = inside === undefined ? '' : `, which only clients of the VPC ${inside.vpc_id} can`;
  return new Problem(
    `cannot connect to the fork ${JSON.stringify(name)}${place}: ${messageOf(error)}`,
    'get_service and get_logs show its state; db_query reads it through the API',
  );
}

type Statement = {
  sql: string;
  parameters: readonly (string | null)[];
  maxRows: number;
  timeoutMs: number;
};

/** @throws Problem STATEMENT_FAILED */
async function run(
  client: Client,
  { sql, parameters, maxRows, timeoutMs }: Statement,
): Promise<Answer> {
  const { stream } = client.connection;
  const rows: (string | null)[][] = [];
  let seen = 0;
  let bytes = 0;
  let cut: string | null = null;
  const end = (why: string): void => {
    cut ??= why;
    stream.destroy();
  };
  const count = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes > MAX_BYTES) end(`its answer has more than ${MAX_BYTES / 1024 / 1024} MiB`);
  };
  const timer = setTimeout(() => end(`it did not end in ${timeoutMs} ms`), timeoutMs + GRACE_MS);
  stream.on('data', count);
  const begunMs = performance.now();
  try {
    const config = {
      text: sql,
      values: [...parameters],
      rowMode: 'array',
      queryMode: 'extended',
      types: { getTypeParser: () => (text: string) => text },
    };
    const query = new Query<(string | null)[], (string | null)[]>(config);
    const result = await new Promise<Done>((resolve, reject) => {
      query.on('row', (row) => {
        seen += 1;
        if (rows.length < maxRows) rows.push(row);
      });
      query.on('end', resolve);
      query.on('error', reject);
      client.query(query);
    });
    return {
      command: result.command ?? '',
      columns: result.fields.map(({ name, dataTypeID }) => ({ name, type_oid: dataTypeID })),
      rows,
      row_count: result.rowCount,
      truncated: seen > rows.length,
      elapsed_ms: Math.round(performance.now() - begunMs),
    };
  } catch (error) {
    throw failed(error, cut);
  } finally {
    clearTimeout(timer);
    stream.off('data', count);
  }
}

type Done = { command: string | null; rowCount: number | null; fields: FieldDef[] };

function failed(error: unknown, cut: string | null): Problem {
  if (cut !== null)
    return new Problem(
      `the statement was ended: ${cut}. Whether it had an effect is not known`,
      'look at the fork with db_query; ask for less, or raise timeout_ms',
      'STATEMENT_FAILED',
    );
  if (!(error instanceof DatabaseError))
    return new Problem(
      `the connection ended: ${messageOf(error)}`,
      'get_service and get_logs show its state',
      'STATEMENT_FAILED',
    );
  const { message, code: sqlstate = '', detail, hint } = error;
  const position = error.position ?? error.internalPosition;
  const where = position === undefined ? '' : `, at character ${position}`;
  return new Problem(
    `${message} (SQLSTATE ${sqlstate}${where})`,
    ADVICE[sqlstate] ?? adviceAfter(sqlstate) ?? 'correct the statement',
    'STATEMENT_FAILED',
    {
      sqlstate,
      ...(position === undefined ? {} : { position: Number(position) }),
      ...(detail === undefined ? {} : { detail }),
      ...(hint === undefined ? {} : { hint }),
    },
  );
}

/** The advice where that for readers does not hold: the session may write. */
const ADVICE: Readonly<Record<string, string>> = {
  '25006': 'the transaction or the database is read-only: SHOW default_transaction_read_only',
  '42501': 'tsdbadmin has no right to do this; list_extensions shows what enable_extension can do',
  '0A000':
    'a migration is one transaction: leave out BEGIN, COMMIT, ROLLBACK and SAVEPOINT; ' +
    'what PostgreSQL does not support stays refused',
  '25001':
    'this statement runs outside of transactions, like CREATE INDEX CONCURRENTLY and VACUUM: ' +
    'run it alone with execute',
  '57014': 'do less in one statement, look at the plan with explain, or raise timeout_ms',
};
