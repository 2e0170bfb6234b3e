/** Copies rows, sequences and large objects in one snapshot of the source, and compares them. */
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { escapeIdentifier, escapeLiteral, type Client, type ClientBase } from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { readSequences, sqlOf, type Named, type Table } from './catalog.ts';
import { Failure } from '../exit.ts';
import { shortMessageOf, only, sizeOf, type Report } from './steps.ts';

/** The rows of a table: how many, and a sum that is the same in any order. */
export type Contents = { rows: string; sum: string };

/** A table with what it had in the snapshot. */
export type Copied = Named & { columns: string[]; isHypertable: boolean; contents: Contents };

/** Opens a session that sees the source as the snapshot has it. */
export type OpenInSnapshot = () => Promise<Client>;

const LARGE_OBJECT_BYTES = 1_000_000;

/** Takes a session into the snapshot. */
export async function enterSnapshot(client: ClientBase, snapshot: string): Promise<void> {
  await client.query('begin isolation level repeatable read read only');
  await client.query(`set transaction snapshot ${escapeLiteral(snapshot)}`);
}

/**
 * Copies all tables, the largest first, several at a time.
 *
 * @param options.jobs how many at a time
 * @throws Failure that names the table
 */
export async function copyTables(
  tables: readonly Table[],
  openSource: OpenInSnapshot,
  openTarget: () => Promise<Client>,
  { jobs, report }: { jobs: number; report: Report },
): Promise<Copied[]> {
  const queue = [...tables];
  const copied: Copied[] = [];
  let bytes = 0;
  const show = (): void => report(`${copied.length} of ${tables.length} tables, ${sizeOf(bytes)}`);
  show();
  const work = async (): Promise<void> => {
    const [source, target] = [await openSource(), await openTarget()];
    try {
      for (let table = queue.shift(); table !== undefined; table = queue.shift()) {
        await copyTable(table, source, target, (length) => {
          bytes += length;
          show();
        });
        const contents = await readContents(source, table, table.allColumns);
        const { schema, name, allColumns: columns, isHypertable } = table;
        copied.push({ schema, name, columns, isHypertable, contents });
        show();
      }
    } finally {
      await Promise.allSettled([source.end(), target.end()]);
    }
  };
  const workers = Math.min(jobs, Math.max(tables.length, 1));
  // After an error the others end with their table: their sessions are not left behind.
  const ends = await Promise.allSettled(
    Array.from({ length: workers }, () =>
      work().catch((error: unknown) => {
        queue.length = 0;
        throw error;
      }),
    ),
  );
  const failed = ends.find((end) => end.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  return copied;
}

async function copyTable(
  table: Table,
  source: Client,
  target: Client,
  count: (bytes: number) => void,
): Promise<void> {
  const columns = table.columns.map(escapeIdentifier).join(', ');
  const name = sqlOf(table);
  // The rows of a hypertable are in its chunks, which COPY of the table does not read.
  const from = table.isHypertable
    ? `(select ${columns} from ${name})`
    : `${name} ${columns === '' ? '' : `(${columns})`}`;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      count(chunk.length);
      done(null, chunk);
    },
  });
  try {
    await pipeline(
      source.query(copyTo(`copy ${from} to stdout`)),
      counted,
      target.query(copyFrom(`copy ${name} ${columns === '' ? '' : `(${columns})`} from stdin`)),
    );
  } catch (error) {
    throw new Failure(`copying ${table.schema}.${table.name}: ` + shortMessageOf(error));
  }
}

/** Counts and sums the rows of a table. */
export async function readContents(
  client: ClientBase,
  table: Named & { isHypertable: boolean },
  columns: readonly string[],
): Promise<Contents> {
  const row = `row(${columns.map((column) => `t.${escapeIdentifier(column)}`).join(', ')})`;
  const { rows } = await client.query<Contents>(
    `select count(*)::text as rows,
       coalesce(sum(hashtextextended(${row}::text collate "C", 0)::numeric), 0)::text as sum
     from ${table.isHypertable ? '' : 'only '}${sqlOf(table)} t`,
  );
  return only(rows, `the rows of ${table.schema}.${table.name}`);
}

/** Compares tables of the service with what was copied. @returns the names of those that differ */
export async function compare(
  client: ClientBase,
  copied: readonly Copied[],
  report: Report,
): Promise<string[]> {
  const different: string[] = [];
  let [done, rows] = [0, 0n];
  for (const table of copied) {
    const found = await readContents(client, table, table.columns);
    const { contents } = table;
    if (found.rows !== contents.rows || found.sum !== contents.sum)
      different.push(
        `${table.schema}.${table.name} (${contents.rows} rows in the source, ${found.rows} here)`,
      );
    rows += BigInt(found.rows);
    report(`${++done} of ${copied.length} tables, ${rows} rows, checksums of all columns`);
  }
  return different;
}

/** Gives each sequence of the service the value that it has in the source. */
export async function copySequences(source: ClientBase, target: ClientBase): Promise<number> {
  const sequences = await readSequences(source);
  for (const sequence of sequences) {
    const { rows } = await source.query<{ last: string; called: boolean }>(
      `select last_value::text as last, is_called as called from ${sqlOf(sequence)}`,
    );
    const { last, called } = only(rows, sequence.name);
    await target.query('select pg_catalog.setval($1::text::regclass, $2::bigint, $3)', [
      sqlOf(sequence),
      last,
      called,
    ]);
  }
  return sequences.length;
}

/** Copies large objects with their ids, and compares them. @throws Failure when they differ */
export async function copyLargeObjects(
  source: ClientBase,
  target: ClientBase,
  report: Report,
): Promise<void> {
  const listed = 'select oid::text from pg_catalog.pg_largeobject_metadata order by oid';
  // Those of an import that was interrupted.
  const old = await target.query<{ oid: string }>(listed);
  for (const { oid } of old.rows) await target.query('select pg_catalog.lo_unlink($1)', [oid]);
  const { rows } = await source.query<{ oid: string }>(listed);
  let bytes = 0;
  for (const [index, { oid }] of rows.entries()) {
    await target.query("select pg_catalog.lo_from_bytea($1, '')", [oid]);
    for (let offset = 0; ; offset += LARGE_OBJECT_BYTES) {
      const part = await source.query<{ data: Buffer }>(
        'select pg_catalog.lo_get($1, $2::bigint, $3) as data',
        [oid, offset, LARGE_OBJECT_BYTES],
      );
      const { data } = only(part.rows, `large object ${oid}`);
      if (data.length > 0)
        await target.query('select pg_catalog.lo_put($1, $2::bigint, $3)', [oid, offset, data]);
      bytes += data.length;
      if (data.length < LARGE_OBJECT_BYTES) break;
    }
    report(`${index + 1} of ${rows.length}, ${sizeOf(bytes)}`);
  }
  const sum = `select count(*)::text as rows, coalesce(sum(hashtextextended(
      oid || ' ' || pg_catalog.md5(pg_catalog.lo_get(oid)), 0)::numeric), 0)::text as sum
    from pg_catalog.pg_largeobject_metadata`;
  const [there, here] = [await source.query<Contents>(sum), await target.query<Contents>(sum)];
  if (there.rows[0]?.sum !== here.rows[0]?.sum)
    throw new Failure('the large objects in the service differ from those of the source');
}
