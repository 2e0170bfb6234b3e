/** Applies decoded changes to the service, each transaction of the source exactly once. */
import { escapeIdentifier, type Client } from 'pg';
import { sqlOf } from './catalog.ts';
import { decode, lsnOf, numberOf, type Change, type Relation, type Value } from './decode.ts';
import { Failure } from '../exit.ts';
import type { Sessions } from './slot.ts';
import { slotOf, type State } from './state.ts';
import { messageOf } from './steps.ts';
import type { Lsn } from './slot.ts';

/** The changes that are read at a time; a transaction of the source is never divided. */
const BATCH_CHANGES = 10_000;
const FETCH_ROWS = 1000;
const INSERT_ROWS = 200;
const MAX_PARAMETERS = 60_000;

/** A run of inserts into one table. */
type Inserts = { relation: Relation; rows: Value[][] };

/**
 * Applies what the source committed up to a position, or a part of it, in one transaction.
 *
 * @param applied the position up to which everything is applied
 * @returns whether nothing was left to apply, and the number of rows
 * @throws Failure when the service does not have a row that the source changed
 */
export async function applyBatch(
  state: State,
  { source, target }: Sessions,
  applied: Lsn,
  upTo: Lsn,
): Promise<{ isAll: boolean; rows: number }> {
  const applier = createApplier(target, numberOf(applied));
  await source.query('begin');
  try {
    await source.query(
      `declare changes no scroll cursor for
       select data from pg_catalog.pg_logical_slot_peek_binary_changes($1, $2, $3,
         'proto_version', '1', 'publication_names', $4)`,
      [slotOf(state), upTo, BATCH_CHANGES, `"${slotOf(state)}"`],
    );
    await target.query('begin');
    for (;;) {
      const { rows } = await source.query<{ data: Buffer }>(`fetch ${FETCH_ROWS} from changes`);
      if (rows.length === 0) break;
      for (const { data } of rows) await applier.apply(decode(data));
    }
    await source.query('commit');
    const { end, rows } = await applier.finish();
    await target.query('commit');
    // Nothing is left before the position, unless the batch was full.
    const reached = end === null ? upTo : lsnOf(end);
    await source.query('select pg_catalog.pg_replication_slot_advance($1, $2)', [
      slotOf(state),
      reached,
    ]);
    return { isAll: end === null, rows };
  } catch (error) {
    await Promise.allSettled([source.query('rollback'), target.query('rollback')]);
    throw error instanceof Failure
      ? error
      : new Failure(`following the source: ${messageOf(error)}`);
  }
}

function createApplier(target: Client, applied: bigint) {
  const relations = new Map<number, Relation>();
  const always = new Map<number, Set<string>>();
  let inserts: Inserts | null = null;
  let [isSkipped, end, count] = [false, null as bigint | null, 0];

  const relationOf = (id: number): Relation => {
    const found = relations.get(id);
    if (found === undefined) throw new Failure('the source sent a row of an unknown table');
    return found;
  };

  const flush = async (): Promise<void> => {
    if (inserts !== null) await insertRows(target, inserts);
    inserts = null;
  };

  const alwaysOf = async (relation: Relation): Promise<Set<string>> => {
    const known = always.get(relation.id) ?? (await readAlways(target, relation));
    always.set(relation.id, known);
    return known;
  };

  const add = async (relation: Relation, row: Value[]): Promise<void> => {
    const isOther = inserts !== null && inserts.relation !== relation;
    const isFull =
      inserts !== null &&
      (inserts.rows.length >= INSERT_ROWS ||
        inserts.rows.length * relation.columns.length > MAX_PARAMETERS);
    if (isOther || isFull) await flush();
    inserts ??= { relation, rows: [] };
    inserts.rows.push(row);
  };

  const applyRow = async (change: Change): Promise<void> => {
    count++;
    if (change.kind === 'insert') return add(relationOf(change.relation), change.row);
    await flush();
    if (change.kind === 'update') {
      const relation = relationOf(change.relation);
      await updateRow(target, relation, change, await alwaysOf(relation));
    } else if (change.kind === 'delete')
      await deleteRow(target, relationOf(change.relation), change.old);
    else if (change.kind === 'truncate')
      await truncate(target, change.relations.map(relationOf), change);
  };

  const apply = async (change: Change): Promise<void> => {
    switch (change.kind) {
      case 'begin':
        // The source sends it again when the position was not yet moved there.
        isSkipped = change.commitLsn < applied;
        return;
      case 'commit':
        end = change.endLsn;
        return;
      case 'relation':
        await flush();
        relations.set(change.relation.id, change.relation);
        return;
      case 'other':
        return;
      case 'insert':
      case 'update':
      case 'delete':
      case 'truncate':
        if (!isSkipped) await applyRow(change);
    }
  };

  /** Writes the position beside the changes, in their transaction. */
  const finish = async (): Promise<{ end: bigint | null; rows: number }> => {
    await flush();
    if (end !== null && end > applied)
      await target.query('update howdah_import.progress set applied = $1', [lsnOf(end)]);
    return { end, rows: count };
  };

  return { apply, finish };
}

/** The columns whose values only the server sets: always, as an identity. */
async function readAlways(target: Client, relation: Relation): Promise<Set<string>> {
  const { rows } = await target.query<{ name: string }>(
    `select attname as name from pg_catalog.pg_attribute
     where attrelid = $1::text::regclass and attidentity = 'a' and not attisdropped`,
    [sqlOf(relation)],
  );
  return new Set(rows.map(({ name }) => name));
}

async function insertRows(target: Client, { relation, rows }: Inserts): Promise<void> {
  const columns = relation.columns.map(({ name }) => escapeIdentifier(name)).join(', ');
  if (columns === '') {
    for (const _ of rows) await target.query(`insert into ${sqlOf(relation)} default values`);
    return;
  }
  const width = relation.columns.length;
  const tuples = rows.map(
    (_, row) => `(${relation.columns.map((_column, at) => `$${row * width + at + 1}`).join(', ')})`,
  );
  await target.query(
    `insert into ${sqlOf(relation)} (${columns}) overriding system value values ` +
      tuples.join(', '),
    rows.flat().map((value) => value ?? null),
  );
}

/** The condition that finds one row, by its replica identity. */
function conditionOf(relation: Relation, old: Value[], parameters: Value[]): string {
  const parts = relation.columns.flatMap(({ name, isKey }, at) => {
    if (!isKey) return [];
    parameters.push(old[at]);
    const column = escapeIdentifier(name);
    // Not every type has an operator =, but every value has a text.
    return relation.isFull
      ? [`${column}::text is not distinct from $${parameters.length}`]
      : [`${column} = $${parameters.length}`];
  });
  const condition = parts.join(' and ');
  return relation.isFull
    ? `ctid = (select ctid from only ${sqlOf(relation)} where ${condition} limit 1)`
    : condition;
}

async function updateRow(
  target: Client,
  relation: Relation,
  { old, row }: Extract<Change, { kind: 'update' }>,
  always: ReadonlySet<string>,
): Promise<void> {
  const parameters: Value[] = [];
  const sets = relation.columns.flatMap(({ name }, at) => {
    const value = row[at];
    if (value === undefined || always.has(name)) return [];
    parameters.push(value);
    return [`${escapeIdentifier(name)} = $${parameters.length}`];
  });
  if (sets.length === 0) return;
  const condition = conditionOf(relation, old ?? row, parameters);
  await changeOne(
    target,
    relation,
    `update only ${sqlOf(relation)} set ${sets.join(', ')} where ${condition}`,
    parameters,
  );
}

async function deleteRow(target: Client, relation: Relation, old: Value[]): Promise<void> {
  const parameters: Value[] = [];
  const condition = conditionOf(relation, old, parameters);
  await changeOne(
    target,
    relation,
    `delete from only ${sqlOf(relation)} where ${condition}`,
    parameters,
  );
}

async function changeOne(
  target: Client,
  relation: Relation,
  text: string,
  values: Value[],
): Promise<void> {
  const { rowCount } = await target.query(text, values);
  if (rowCount !== 1)
    throw new Failure(
      `${relation.schema}.${relation.name}: the source changed a row that the service does ` +
        'not have: somebody wrote to the service',
    );
}

async function truncate(
  target: Client,
  relations: readonly Relation[],
  { cascade, restart }: Extract<Change, { kind: 'truncate' }>,
): Promise<void> {
  const names = relations.map((relation) => `only ${sqlOf(relation)}`).join(', ');
  await target.query(
    `truncate ${names}${restart ? ' restart identity' : ''}${cascade ? ' cascade' : ''}`,
  );
}
