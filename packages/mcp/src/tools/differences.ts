/** The tool that compares two databases. */
import { Type } from 'typebox';
import { countSql, OBJECTS_SQL, objectsIn, type CountedTable } from '../catalogs.ts';
import { findService, type Cloud, type Service } from '../cloud.ts';
import {
  describeDiff,
  diffRows,
  diffSchemas,
  type DatabaseObject,
  type RowCount,
} from '../diff.ts';
import { isOwnFork } from '../own-forks.ts';
import { Problem } from '../problem.ts';
import { addTool, closed, service, type Outcome, type ToolServer } from '../tool.ts';
import { query, readFrom, reading } from './statements.ts';

const MAX_OBJECTS = 10_000;
const MAX_COUNTED = 200;
const COUNT_MS = 60_000;

export function addDiffTool(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'diff',
    {
      title: 'Compare two databases',
      description:
        'What a service has and another one has not: tables, columns, keys, indexes, views, ' +
        'functions, types, triggers, policies, extensions, and numbers of rows. Without ' +
        'against, a fork is compared with its parent. Reads catalogs, in a few milliseconds; ' +
        'count_rows reads all tables of both. on_fork reads temporary forks of those that are ' +
        'not forks of your own.',
      kind: 'read',
      input: Type.Object(
        {
          service,
          against: Type.Optional({
            ...service,
            description: 'name or service_id of what it is compared with; default: its parent',
          }),
          count_rows: Type.Optional(
            Type.Boolean({
              description:
                'true: count the rows of each table; default: the estimates of the last ANALYZE',
            }),
          ),
          ...reading,
        },
        closed,
      ),
    },
    async ({ service: wanted, against, on_fork, ...asked }, signal) => {
      const found = await findService(cloud, wanted);
      const other = await findService(cloud, against ?? parentOf(found));
      const isForked = async (of: Service): Promise<boolean> =>
        on_fork === true && !(await isOwnFork(cloud, of));
      return readFrom(cloud, other, await isForked(other), signal, async (from) =>
        readFrom(cloud, found, await isForked(found), signal, async (to) => {
          const { summary, data } = await compare(cloud, from, to, asked, signal);
          return {
            summary: `From ${other.name} to ${found.name}: ${summary}`,
            data: { from: other.service_id, to: found.service_id, ...data },
          };
        }),
      );
    },
  );
}

type Asked = { count_rows?: boolean; database?: string };

async function compare(
  cloud: Cloud,
  one: Service,
  another: Service,
  { count_rows: isCounted = false, database }: Asked,
  signal: AbortSignal,
): Promise<Outcome> {
  const read = async (of: Service) => readAll(cloud, of, { database, isCounted }, signal);
  const [from, to] = [await read(one), await read(another)];
  const schema = diffSchemas(from.objects, to.objects);
  const rows = diffRows(from.rows, to.rows);
  const kind = isCounted ? 'number' : 'estimated number';
  return {
    summary: `${describeDiff(schema)}; ${rows.length} tables with another ${kind} of rows.`,
    data: { schema, rows, rows_are: isCounted ? 'counted' : 'estimated' },
  };
}

function parentOf({ name, forked_from: parent }: Service): string {
  if (parent !== undefined) return parent.service_id;
  throw new Problem(
    `against: missing, and ${JSON.stringify(name)} is no fork`,
    'name the service to compare it with; list_services shows them',
  );
}

/** All objects of a database, and the rows of its tables. */
async function readAll(
  cloud: Cloud,
  of: Service,
  { database, isCounted }: { database: string | undefined; isCounted: boolean },
  signal: AbortSignal,
): Promise<{ objects: DatabaseObject[]; rows: RowCount[] }> {
  const place = { timeout_ms: COUNT_MS, ...(database === undefined ? {} : { database }) };
  const read = async (sql: string, max_rows: number) =>
    query(cloud, of, { ...place, sql, max_rows }, signal);
  const { rows: all, truncated } = await read(OBJECTS_SQL, MAX_OBJECTS);
  if (truncated)
    throw new Problem(
      `${JSON.stringify(of.name)} has more than ${MAX_OBJECTS} objects, the most that are compared`,
      'db_schema shows one schema or table of each',
    );
  const { objects, tables } = objectsIn(all);
  if (!isCounted) {
    const rows = tables.map(({ called, estimated }) => ({ table: called, rows: estimated }));
    return { objects, rows };
  }
  return { objects, rows: await countRows(tables, read) };
}

async function countRows(
  tables: readonly CountedTable[],
  read: (sql: string, maxRows: number) => Promise<{ rows: (string | null)[][] }>,
): Promise<RowCount[]> {
  if (tables.length === 0) return [];
  if (tables.length > MAX_COUNTED)
    throw new Problem(
      `count_rows: found ${tables.length} tables; at most ${MAX_COUNTED} are counted`,
      'call again without count_rows, then count single tables with db_query',
    );
  const { rows } = await read(countSql(tables), MAX_COUNTED);
  return rows.flatMap(([index, count]): RowCount[] => {
    const table = tables[Number(index)];
    return table === undefined ? [] : [{ table: table.called, rows: Number(count) }];
  });
}
