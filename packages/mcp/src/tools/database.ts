/** Tools that read a database: its schema, one statement, a plan. */
import { Type } from 'typebox';
import type { Schemas } from '@howdah/client';
import { TABLES_SQL } from '../catalogs.ts';
import { findService, type Cloud, type Service } from '../cloud.ts';
import { inOwnFork, isOwnFork } from '../own-forks.ts';
import { sqlstateOf } from '../problem.ts';
import { addTool, closed, service, type Outcome, type ToolServer } from '../tool.ts';
import { optionalName, query, readFrom, reading, statement, type Query } from './statements.ts';

const MAX_TABLES = 200;
const MAX_PLAN_LINES = 1000;
/** PostgreSQL refuses a write: the transaction is read-only, or the role has no right. */
const REFUSES_WRITES: readonly (string | undefined)[] = ['25006', '42501'];

export function addDatabaseTools(server: ToolServer, cloud: Cloud): void {
  addDbSchema(server, cloud);
  addDbQuery(server, cloud);
  addExplain(server, cloud);
}

function addDbSchema(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'db_schema',
    {
      title: 'Tables, columns, keys, indexes, sizes',
      description:
        'What is in the database of a service: ' +
        'tables and views with columns, keys, indexes, about how many rows, ' +
        'and bytes on disk. Costs a few milliseconds. Call it before db_query; ' +
        'name a schema or table where there are many.',
      kind: 'read',
      input: Type.Object(
        {
          service,
          schema: optionalName('only this schema'),
          table: optionalName('only tables with this name'),
          ...reading,
        },
        closed,
      ),
    },
    async ({ service: wanted, on_fork, ...of }, signal) => {
      const found = await findService(cloud, wanted);
      return readFrom(cloud, found, on_fork, signal, async (place) =>
        readTables(cloud, place, of, signal),
      );
    },
  );
}

/** The tables of a database, as db_schema and the resource of a schema show them. */
export async function readTables(
  cloud: Cloud,
  of: Service,
  { database, schema, table }: { database?: string; schema?: string; table?: string },
  signal: AbortSignal,
): Promise<Outcome> {
  const sent: Query = {
    sql: TABLES_SQL,
    ...(database === undefined ? {} : { database }),
    parameters: [schema ?? null, table ?? null],
    max_rows: MAX_TABLES,
    timeout_ms: 10_000,
  };
  const { rows, truncated } = await query(cloud, of, sent, signal);
  const tables = rows.map(tableOf);
  const names = tables.map((one) => `${one.schema}.${one.name}`).join(', ');
  return {
    summary:
      (names || 'No tables') +
      (truncated ? `; only the first ${MAX_TABLES}: name a schema or table to see others` : '') +
      '.',
    data: { tables, truncated },
  };
}

function addDbQuery(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'db_query',
    {
      title: 'Run one read-only statement',
      description:
        'Runs one SELECT, EXPLAIN, SHOW or WITH on a service, with a role that can read ' +
        'everything and write nothing, in a read-only transaction: every write is refused. ' +
        'Cost: the load of the statement on the service. db_schema first; ' +
        'for heavy statements use on_fork: true, which makes a fork, ' +
        'runs the statement there and removes it (list_regions shows what a fork costs). ' +
        'Values come as text or null.',
      kind: 'read',
      input: Type.Object({ service, ...statement, ...reading }, closed),
    },
    async ({ service: wanted, on_fork, ...asked }, signal) => {
      const found = await findService(cloud, wanted);
      const sent: Query = { max_rows: 50, ...asked };
      return readFrom(cloud, found, on_fork, signal, async (of) =>
        rowsOf(await query(cloud, of, sent, signal)),
      );
    },
  );
}

function addExplain(server: ToolServer, cloud: Cloud): void {
  const { max_rows: _plan, ...asked } = statement;
  addTool(
    server,
    'explain',
    {
      title: 'Show the plan of a statement',
      description:
        'EXPLAIN of one statement. With analyze it runs: a statement that reads, on the ' +
        'service or with on_fork on a temporary fork; one that writes, only on a fork that ' +
        'this key has made, and it is rolled back. Cost: none; with analyze that of the ' +
        'statement.',
      kind: 'read',
      input: Type.Object(
        {
          service,
          ...asked,
          analyze: Type.Optional(
            Type.Boolean({ description: 'true: run it, and measure times and buffers' }),
          ),
          ...reading,
        },
        closed,
      ),
    },
    async ({ service: wanted, on_fork, analyze, sql, ...rest }, signal) => {
      const found = await findService(cloud, wanted);
      const options = analyze === true ? '(analyze, buffers, settings)' : '(settings)';
      const sent = { ...rest, sql: `explain ${options} ${sql}`, max_rows: MAX_PLAN_LINES };
      return readFrom(cloud, found, on_fork, signal, async (of) => {
        try {
          return planOf((await query(cloud, of, sent, signal)).rows);
        } catch (error) {
          const isWrite = REFUSES_WRITES.includes(sqlstateOf(error));
          if (!isWrite || !(await isOwnFork(cloud, of))) throw error;
          return planOf(await explainWrite(cloud, of, sent, signal));
        }
      });
    },
  );
}

/** The plan of a statement that writes. The session ends without a commit. */
async function explainWrite(
  cloud: Cloud,
  fork: Service,
  { sql, parameters, database, timeout_ms: timeoutMs = 10_000 }: Query,
  signal: AbortSignal,
): Promise<(string | null)[][]> {
  return inOwnFork(cloud, fork, { database, timeoutMs }, signal, async ({ run }) => {
    await run('begin');
    const { rows } = await run(sql, parameters, MAX_PLAN_LINES);
    await run('rollback');
    return rows;
  });
}

function planOf(rows: readonly (readonly (string | null)[])[]): Outcome {
  const plan = rows.map(([line]) => line ?? '');
  const times = plan.filter((line) => /^(Planning|Execution) Time: /.test(line));
  return { summary: [plan[0]?.trim() ?? '', ...times].join('; '), data: { plan } };
}

function rowsOf({
  columns,
  rows,
  row_count,
  truncated,
  elapsed_ms,
}: Schemas['QueryResult']): Outcome {
  return {
    summary:
      `${row_count} rows in ${elapsed_ms} ms` +
      `${truncated ? '; there are more: ask for fewer, or raise max_rows' : ''}.`,
    data: { columns, rows, row_count, truncated, elapsed_ms },
  };
}

function tableOf([schema, name, kind, rows, bytes, columns, keys, indexes, comment]: readonly (
  | string
  | null
)[]) {
  const list = (json: string | null | undefined): string[] =>
    json == null ? [] : JSON.parse(json);
  return {
    schema: schema ?? '',
    name: name ?? '',
    kind: kind ?? '',
    estimated_rows: rows == null ? null : Number(rows),
    bytes: Number(bytes),
    columns: list(columns),
    keys: list(keys),
    indexes: list(indexes),
    ...(comment == null ? {} : { comment }),
  };
}
