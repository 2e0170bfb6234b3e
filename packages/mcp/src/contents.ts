/** Reads what a database contains, for a comparison with another one. */
import { countSql, OBJECTS_SQL, objectsIn, type CountedTable } from './catalogs.ts';
import type { DatabaseObject, RowCount } from './diff.ts';

const MAX_OBJECTS = 10_000;
const MAX_COUNTED = 200;

/** Runs one statement that only reads. */
export type Read = (
  sql: string,
  maxRows: number,
) => Promise<{ rows: readonly (readonly (string | null)[])[]; truncated: boolean }>;

export type Contents = { objects: DatabaseObject[]; rows: RowCount[] };

/** A database that is too large for a comparison. `remedy`: for agents. */
export class TooLarge extends Error {
  readonly remedy: string;

  constructor(message: string, remedy: string) {
    super(message);
    this.remedy = remedy;
  }
}

/**
 * All objects of a database, and the rows of its tables.
 *
 * @param isCounted whether the rows are counted; else the estimate of the last ANALYZE counts
 * @throws TooLarge, and what `read` throws
 */
export async function readContents(
  name: string,
  read: Read,
  isCounted: boolean,
): Promise<Contents> {
  const { rows: all, truncated } = await read(OBJECTS_SQL, MAX_OBJECTS);
  if (truncated)
    throw new TooLarge(
      `${JSON.stringify(name)} has more than ${MAX_OBJECTS} objects, the most that are compared`,
      'db_schema shows one schema or table of each',
    );
  const { objects, tables } = objectsIn(all);
  const rows = isCounted
    ? await countRows(tables, read)
    : tables.map(({ called, estimated }) => ({ table: called, rows: estimated }));
  return { objects, rows };
}

async function countRows(tables: readonly CountedTable[], read: Read): Promise<RowCount[]> {
  if (tables.length === 0) return [];
  if (tables.length > MAX_COUNTED)
    throw new TooLarge(
      `found ${tables.length} tables; the rows of at most ${MAX_COUNTED} are counted`,
      'call again without count_rows, then count single tables with db_query',
    );
  const { rows } = await read(countSql(tables), MAX_COUNTED);
  return rows.flatMap(([index, count]): RowCount[] => {
    const table = tables[Number(index)];
    return table === undefined ? [] : [{ table: table.called, rows: Number(count) }];
  });
}
