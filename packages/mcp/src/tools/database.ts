import type { Schemas } from '@howdah/client';
import type { McpServer } from '@modelcontextprotocol/server';
import { Type } from 'typebox';
import { body, findService, pathOf, settle, type Cloud, type Service } from '../cloud.ts';
import { explain, Problem } from '../problem.ts';
import { addTool, closed, service, type Outcome, changing, wait } from '../tool.ts';
import { change } from './change.ts';

type Query = Schemas['Query'];

const MAX_TABLES = 200;
/** The time limit for the fork of one statement to become READY. */
const FORK_SECONDS = 240;

/**
 * The schema without internal objects: those of PostgreSQL's catalogs, of TimescaleDB and of
 * Howdah.
 */
const SCHEMA_SQL = `
select n.nspname as schema, c.relname as name,
       case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'v' then 'view' when 'm' then 'materialized view' else 'foreign table' end as kind,
       case when c.reltuples < 0 then null else c.reltuples::bigint end as estimated_rows,
       pg_total_relation_size(c.oid) as bytes,
       (select json_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || case when a.attnotnull then ' not null' else '' end
                        || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') order by a.attnum)
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
       (select json_agg(k.conname || ': ' || pg_get_constraintdef(k.oid) order by k.contype desc, k.conname)
        from pg_constraint k where k.conrelid = c.oid and k.contype in ('p', 'f', 'u', 'c', 'x')) as keys,
       (select json_agg(pg_get_indexdef(i.indexrelid) order by i.indexrelid) from pg_index i where i.indrelid = c.oid and not i.indisprimary) as indexes,
       obj_description(c.oid, 'pg_class') as comment
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition
  and n.nspname !~ '^(pg_|information_schema$|_timescaledb|timescaledb_)' and ($1::text is null or n.nspname = $1) and ($2::text is null or c.relname = $2)
  and not exists (select from pg_depend e where e.classid = 'pg_class'::regclass and e.objid = c.oid and e.deptype = 'e')
order by 1, 2`;

const optionalName = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 63, description }));

export function addDatabaseTools(server: McpServer, cloud: Cloud): void {
  addDbSchema(server, cloud);
  addDbQuery(server, cloud);
}

function addDbSchema(server: McpServer, cloud: Cloud): void {
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
          database: optionalName('this database; default: tsdb'),
          schema: optionalName('only this schema'),
          table: optionalName('only tables with this name'),
        },
        closed,
      ),
    },
    async ({ service: wanted, database, schema, table }, signal) => {
      const found = await findService(cloud, wanted);
      const { rows, truncated } = await query(
        cloud,
        found,
        {
          sql: SCHEMA_SQL,
          ...(database === undefined ? {} : { database }),
          parameters: [schema ?? null, table ?? null],
          max_rows: MAX_TABLES,
          timeout_ms: 10_000,
        },
        signal,
      );
      const tables = rows.map(tableOf);
      const names = tables.map((one) => `${one.schema}.${one.name}`).join(', ');
      return {
        summary: `${names || 'No tables'}${truncated ? `; only the first ${MAX_TABLES}: name a schema or table to see others` : ''}.`,
        data: { tables, truncated },
      };
    },
  );
}

function addDbQuery(server: McpServer, cloud: Cloud): void {
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
      input: Type.Object(
        {
          service,
          sql: Type.String({
            minLength: 1,
            description: 'one statement; $1, $2, … are the parameters',
          }),
          database: optionalName('this database; default: tsdb'),
          parameters: Type.Optional(
            Type.Array(Type.Union([Type.String(), Type.Null()]), { maxItems: 100 }),
          ),
          max_rows: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 50 })),
          timeout_ms: Type.Optional(Type.Integer({ minimum: 1, maximum: 60_000, default: 10_000 })),
          on_fork: Type.Optional(
            Type.Boolean({
              description:
                'true: on a temporary fork, so that the service carries no load; ' +
                'works for a paused service, too',
            }),
          ),
        },
        closed,
      ),
    },
    async (
      {
        service: wanted,
        sql,
        database,
        parameters = [],
        max_rows = 50,
        timeout_ms = 10_000,
        on_fork,
      },
      signal,
    ) => {
      const found = await findService(cloud, wanted);
      const place = database === undefined ? {} : { database };
      const sent: Query = { sql, ...place, parameters, max_rows, timeout_ms };
      if (on_fork !== true) return rowsOf(await query(cloud, found, sent, signal));
      return onFork(cloud, found, signal, async (fork) =>
        rowsOf(await query(cloud, fork, sent, signal)),
      );
    },
  );
}

async function query(
  { client }: Cloud,
  of: Service,
  sent: Query,
  signal: AbortSignal,
): Promise<Schemas['QueryResult']> {
  return body(
    await client.POST('/projects/{project_id}/services/{service_id}/query', {
      params: { path: pathOf(of) },
      body: sent,
      signal,
    }),
  );
}

/** Does work on a temporary fork, which is deleted in any case, and reports what the fork cost. */
async function onFork(
  cloud: Cloud,
  parent: Service,
  signal: AbortSignal,
  work: (fork: Service) => Promise<Outcome>,
): Promise<Outcome> {
  const { client } = cloud;
  const begunMs = performance.now();
  const fork = body(
    await client.POST('/projects/{project_id}/services/{service_id}/forkService', {
      params: { path: pathOf(parent) },
      body: { fork_strategy: 'NOW', name: `${[...parent.name].slice(0, 120).join('')}-query` },
    }),
  );
  let removed: string | null = null;
  const remove = async (): Promise<void> => {
    removed = await client
      .DELETE('/projects/{project_id}/services/{service_id}', { params: { path: pathOf(fork) } })
      .then(() => null)
      .catch((error: unknown) => explain(error).message);
  };
  try {
    const { done, service: seen } = await settle(cloud, fork, 'READY', FORK_SECONDS, signal);
    const forkMs = Math.round(performance.now() - begunMs);
    if (!done)
      throw new Problem(
        `the fork ${fork.service_id} is ${seen?.status ?? 'gone'} after ${FORK_SECONDS} s`,
        'list_operations shows why; run the statement on the service itself',
      );
    const { summary, data } = await work(fork);
    await remove();
    const left =
      removed === null
        ? 'it is being deleted'
        : `it could not be deleted (${String(removed)}): delete_service`;
    return {
      summary: `${summary} On the fork ${fork.service_id}, which took ${forkMs} ms to make; ${left}.`,
      data: {
        ...data,
        fork: {
          service_id: fork.service_id,
          fork_ms: forkMs,
          total_ms: Math.round(performance.now() - begunMs),
          left_because: removed,
        },
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

function rowsOf({
  columns,
  rows,
  row_count,
  truncated,
  elapsed_ms,
}: Schemas['QueryResult']): Outcome {
  return {
    summary: `${row_count} rows in ${elapsed_ms} ms${truncated ? '; there are more: ask for fewer, or raise max_rows' : ''}.`,
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

const AT = '/projects/{project_id}/services/{service_id}/extensions';

export function addExtensionTools(server: McpServer, cloud: Cloud): void {
  addListExtensions(server, cloud);
  addChangeExtension(server, cloud);
}

function addListExtensions(server: McpServer, cloud: Cloud): void {
  addTool(
    server,
    'list_extensions',
    {
      title: 'Extensions of a service',
      description:
        'The extensions that a service has or can have, ' +
        'whether enabling one restarts it (preload), ' +
        'and why others are refused. Free.',
      kind: 'read',
      input: Type.Object({ service }, closed),
    },
    async (args) => {
      const found = await findService(cloud, args.service);
      const extensions = body(await cloud.client.GET(AT, { params: { path: pathOf(found) } }));
      const enabled = extensions.filter(({ state }) => state === 'enabled');
      const allowed = extensions.filter((one) => one.allowed && one.state === 'disabled');
      return {
        summary:
          `${enabled.length} enabled, ${allowed.length} more allowed, ` +
          `${extensions.length} installed.`,
        data: { extensions },
      };
    },
  );
}

function addChangeExtension(server: McpServer, cloud: Cloud): void {
  const { client } = cloud;
  const extension = Type.String({ description: 'its name; list_extensions shows them' });
  addTool(
    server,
    'enable_extension',
    {
      title: 'Enable an extension',
      description:
        'Creates an extension in the database of a service. If list_extensions says preload, the ' +
        'service restarts: its sessions end, new ones wait about a second. To undo it: DROP ' +
        'EXTENSION, or howdah extension disable.',
      kind: 'change',
      input: Type.Object({ service, extension, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      return change(cloud, found, args, signal, 'READY', (asked) =>
        client.POST(AT, { ...asked, body: { name: args.extension } }),
      );
    },
  );
}
