/** The tool that compares two databases. */
import { Type } from 'typebox';
import { findService, type Cloud, type Service } from '../cloud.ts';
import { readContents, TooLarge, type Contents, type Read } from '../contents.ts';
import { describeDiff, diffRows, diffSchemas } from '../diff.ts';
import { isOwnFork } from '../own-forks.ts';
import { Problem } from '../problem.ts';
import { addTool, closed, service, type Outcome, type ToolServer } from '../tool.ts';
import { query, readFrom, reading } from './statements.ts';

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

/** All objects of a database, and the rows of its tables. @throws Problem */
async function readAll(
  cloud: Cloud,
  of: Service,
  { database, isCounted }: { database: string | undefined; isCounted: boolean },
  signal: AbortSignal,
): Promise<Contents> {
  const place = { timeout_ms: COUNT_MS, ...(database === undefined ? {} : { database }) };
  const read: Read = async (sql, max_rows) => query(cloud, of, { ...place, sql, max_rows }, signal);
  try {
    return await readContents(of.name, read, isCounted);
  } catch (error) {
    throw error instanceof TooLarge ? new Problem(error.message, error.remedy) : error;
  }
}
